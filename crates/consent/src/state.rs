//! The state, the commands on it, and the changes that they make.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use tollgate_contract::{
    Capability, HostName, Reach,
    id::{ApprovalId, CallId, GrantId, KeyId},
};

use crate::{
    grants::{Grant, Holder},
    item::{Answer, Asked, Item, State, What},
};

/// Bounds, and how long things last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How many things of one key may wait at a time.
    pub waiting_per_key: usize,
    /// How many grants there may be.
    pub grants: usize,
    /// How long a yes to a call can be used.
    pub usable_ms: i64,
    /// How long what is over is remembered.
    pub remembered_ms: i64,
    /// How much of it at most.
    pub remembered: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting_per_key: 100,
            grants: 10_000,
            usable_ms: 60 * 60 * 1000,
            remembered_ms: 24 * 60 * 60 * 1000,
            remembered: 5_000,
        }
    }
}

/// Something that happened. The state is a fold over these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "change", rename_all_fields = "camelCase")]
pub enum Change {
    /// Something waits for a person.
    Asked(Asked),
    /// A person answered.
    Answered {
        /// What was answered.
        id: ApprovalId,
        /// What was said.
        answer: Answer,
        /// How it stands now.
        state: State,
        /// Until when a yes can be used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usable_until_ms: Option<i64>,
    },
    /// Its time is over.
    Expired {
        /// What.
        id: ApprovalId,
        /// When.
        at_ms: i64,
    },
    /// The call that was approved has started.
    Used {
        /// What was approved.
        id: ApprovalId,
        /// By which call.
        call: CallId,
        /// When.
        at_ms: i64,
    },
    /// A capability was granted.
    Granted(Grant),
    /// A capability was withdrawn.
    Revoked {
        /// Which grant.
        id: GrantId,
        /// By whom.
        by: KeyId,
        /// When.
        at_ms: i64,
    },
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such thing.
    #[error("nothing of this name waits or has waited lately")]
    Unknown,
    /// Whoever asks must not answer.
    #[error("nobody approves or grants for themselves; another key with the scope `approve` must")]
    Own,
    /// It was answered before.
    #[error("it is {} already", .0.as_str())]
    Over(State),
    /// Two people must answer.
    #[error("this key has said yes already; another one must too")]
    Twice,
    /// Too much waits.
    #[error("{0} things wait for an answer already; have some of them answered first")]
    TooMany(usize),
    /// Too many grants.
    #[error("there are {0} grants already; withdraw some first")]
    TooManyGrants(usize),
    /// A grant to nobody.
    #[error("name a session or a key that gets the capability")]
    Nobody,
    /// It would be over before it began.
    #[error("it would have expired already")]
    TooShort,
}

/// What a request for a capability came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Requested {
    /// It has been granted already.
    Granted(Grant),
    /// It waits already.
    Waits(Item),
    /// It is new.
    New(Change),
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// Who.
    pub by: KeyId,
    /// What that key is called.
    pub by_name: String,
    /// Yes or no.
    pub approves: bool,
    /// Why.
    pub reason: Option<String>,
    /// For a capability: until when it is granted.
    pub grant_until_ms: Option<i64>,
    /// For a capability: the name of the grant.
    pub grant_id: GrantId,
}

/// A grant that is to be.
#[derive(Debug, Clone, PartialEq)]
pub struct NewGrant {
    /// Its name.
    pub id: GrantId,
    /// What.
    pub capability: Capability,
    /// To whom.
    pub to: Holder,
    /// By whom.
    pub by: KeyId,
    /// What that key is called.
    pub by_name: String,
    /// Why.
    pub reason: Option<String>,
    /// Until when.
    pub until_ms: Option<i64>,
}

/// All that people have allowed and are asked.
#[derive(Debug, Clone, Default)]
pub struct Consent {
    items: BTreeMap<ApprovalId, Item>,
    grants: BTreeMap<GrantId, Grant>,
    /// Approvals that a call is about to use. Not part of the fold: a restart gives them back.
    taken: HashSet<ApprovalId>,
    /// Hosts that `net` alone may reach; every host where there is no list.
    allowlist: Option<Vec<Capability>>,
    limits: Limits,
}

impl PartialEq for Consent {
    /// What is only about to happen makes no difference.
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items && self.grants == other.grants
    }
}

impl Consent {
    /// The state that these records describe.
    pub fn restored(
        items: impl IntoIterator<Item = Item>,
        grants: impl IntoIterator<Item = Grant>,
    ) -> Self {
        Self {
            items: items.into_iter().map(|item| (item.asked.id, item)).collect(),
            grants: grants.into_iter().map(|grant| (grant.id, grant)).collect(),
            ..Self::default()
        }
    }

    /// Takes other bounds.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes another allowlist for `net`.
    pub fn set_allowlist(&mut self, allowlist: Option<Vec<Capability>>) {
        self.allowlist = allowlist;
    }

    /// Everything that was asked and is remembered, the oldest first.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.values()
    }

    /// One of them.
    pub fn item(&self, id: ApprovalId) -> Option<&Item> {
        self.items.get(&id)
    }

    /// Every grant, also those that are over and not yet forgotten.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.grants.values()
    }

    /// One of them.
    pub fn grant_of(&self, id: GrantId) -> Option<&Grant> {
        self.grants.get(&id)
    }

    /// How far a caller reaches to a host.
    pub fn reach(
        &self,
        host: &HostName,
        key: KeyId,
        session: Option<&str>,
        now_ms: i64,
    ) -> Option<Reach> {
        self.grants
            .values()
            .filter(|grant| grant.counts_for(key, session, now_ms))
            .filter_map(|grant| grant.capability.reach(host, self.allowlist.as_deref()))
            .max()
    }

    /// May a caller do what needs this capability?
    pub fn allows(
        &self,
        needed: &Capability,
        key: KeyId,
        session: Option<&str>,
        now_ms: i64,
    ) -> bool {
        match needed {
            Capability::NetHost(host) => self.reach(host, key, session, now_ms).is_some(),
            wider => self
                .grants
                .values()
                .filter(|grant| grant.counts_for(key, session, now_ms))
                .any(|grant| grant.capability.covers(wider, self.allowlist.as_deref())),
        }
    }

    /// The grant that gives this capability to this holder already.
    fn granted(&self, capability: &Capability, to: &Holder, now_ms: i64) -> Option<&Grant> {
        self.grants.values().find(|grant| {
            grant.counts(now_ms)
                && Some(grant.by) != to.key
                && grant.to.holds(to)
                && grant.capability.covers(capability, self.allowlist.as_deref())
        })
    }

    fn waiting(&self, now_ms: i64) -> impl Iterator<Item = &Item> {
        self.items.values().filter(move |item| item.state(now_ms) == State::Pending)
    }

    /// Is there room for one more that waits?
    fn room(&self, key: KeyId, now_ms: i64) -> Result<(), Refusal> {
        let waiting = self.waiting(now_ms).filter(|item| item.asked.key == key).count();
        if waiting >= self.limits.waiting_per_key {
            return Err(Refusal::TooMany(waiting));
        }
        Ok(())
    }

    /// Asks for a capability.
    pub fn request(&self, asked: Asked) -> Result<Requested, Refusal> {
        let now_ms = asked.since_ms;
        let What::Capability { capability, .. } = &asked.what else {
            return Err(Refusal::Unknown);
        };
        let to = wanted_for(&asked);
        if let Some(grant) = self.granted(capability, &to, now_ms) {
            return Ok(Requested::Granted(grant.clone()));
        }
        let same =
            |item: &&Item| item.capability() == Some(capability) && wanted_for(&item.asked) == to;
        if let Some(item) = self.waiting(now_ms).find(same) {
            return Ok(Requested::Waits(item.clone()));
        }
        self.room(asked.key, now_ms)?;
        Ok(Requested::New(Change::Asked(asked)))
    }

    /// Asks about a call. Whoever asks the same again finds what waits already by [`Consent::of_call`].
    pub fn ask(&self, asked: Asked) -> Result<Change, Refusal> {
        self.room(asked.key, asked.since_ms)?;
        Ok(Change::Asked(asked))
    }

    /// What a person was asked about this very call and can still be answered or used: one that says yes
    /// before one that waits.
    pub fn of_call(&self, key: KeyId, binding: &str, approvers: u8, now_ms: i64) -> Option<&Item> {
        let is_it = |item: &&Item| {
            item.asked.key == key
                && item.binding() == Some(binding)
                // One that fewer people had to answer is not enough.
                && item.asked.approvers >= approvers
        };
        let of = |state: State| {
            self.items
                .values()
                .filter(is_it)
                .filter(|item| !self.taken.contains(&item.asked.id))
                .find(|item| item.state(now_ms) == state)
        };
        of(State::Approved).or_else(|| of(State::Pending))
    }

    /// A no to this very call that still holds.
    pub fn denied(&self, key: KeyId, binding: &str, now_ms: i64) -> Option<&Item> {
        self.items.values().find(|item| {
            item.asked.key == key
                && item.binding() == Some(binding)
                && item.state(now_ms) == State::Denied
                && now_ms < item.asked.until_ms
        })
    }

    /// A person answers.
    pub fn answer(&self, id: ApprovalId, said: Said, now_ms: i64) -> Result<Vec<Change>, Refusal> {
        let item = self.items.get(&id).ok_or(Refusal::Unknown)?;
        match item.state(now_ms) {
            State::Pending => {}
            over => return Err(Refusal::Over(over)),
        }
        if item.asked.key == said.by {
            return Err(Refusal::Own);
        }
        if said.approves && item.answers.iter().any(|answer| answer.by == said.by) {
            return Err(Refusal::Twice);
        }
        let answer = Answer {
            by: said.by,
            by_name: said.by_name.clone(),
            approves: said.approves,
            reason: said.reason.clone(),
            at_ms: now_ms,
        };
        let enough = item.approvals() + 1 >= usize::from(item.asked.approvers);
        let state = match (said.approves, enough) {
            (false, _) => State::Denied,
            (true, true) => State::Approved,
            (true, false) => State::Pending,
        };
        let is_call = item.binding().is_some();
        let usable_until_ms =
            (state == State::Approved && is_call).then(|| now_ms + self.limits.usable_ms);
        let mut changes = vec![Change::Answered { id, answer, state, usable_until_ms }];
        if let (State::Approved, Some(capability)) = (state, item.capability()) {
            let grant = NewGrant {
                id: said.grant_id,
                capability: capability.clone(),
                to: wanted_for(&item.asked),
                by: said.by,
                by_name: said.by_name,
                reason: said.reason,
                until_ms: said.grant_until_ms,
            };
            // What waits for it is answered just now.
            changes.extend(self.give(grant, Some(id), now_ms)?);
        }
        Ok(changes)
    }

    /// A person grants a capability. What waits for it is answered by it.
    pub fn grant(&self, new: NewGrant, now_ms: i64) -> Result<Vec<Change>, Refusal> {
        self.give(new, None, now_ms)
    }

    fn give(
        &self,
        new: NewGrant,
        answered: Option<ApprovalId>,
        now_ms: i64,
    ) -> Result<Vec<Change>, Refusal> {
        if new.to.key.is_none() && new.to.session.is_none() {
            return Err(Refusal::Nobody);
        }
        if new.to.key == Some(new.by) {
            return Err(Refusal::Own);
        }
        if new.until_ms.is_some_and(|until| until <= now_ms) {
            return Err(Refusal::TooShort);
        }
        if self.grants.len() >= self.limits.grants {
            return Err(Refusal::TooManyGrants(self.grants.len()));
        }
        let grant = Grant {
            id: new.id,
            capability: new.capability,
            to: new.to,
            by: new.by,
            by_name: new.by_name,
            reason: new.reason,
            since_ms: now_ms,
            until_ms: new.until_ms,
        };
        let mut changes = Vec::new();
        for item in self.waiting(now_ms) {
            let Some(wanted) = item.capability() else { continue };
            let is_covered = grant.to.holds(&wanted_for(&item.asked))
                && grant.capability.covers(wanted, self.allowlist.as_deref())
                // A grant does not count for whoever gave it.
                && item.asked.key != grant.by;
            if is_covered && Some(item.asked.id) != answered {
                let answer = Answer {
                    by: grant.by,
                    by_name: grant.by_name.clone(),
                    approves: true,
                    reason: grant.reason.clone(),
                    at_ms: now_ms,
                };
                changes.push(Change::Answered {
                    id: item.asked.id,
                    answer,
                    state: State::Approved,
                    usable_until_ms: None,
                });
            }
        }
        changes.push(Change::Granted(grant));
        Ok(changes)
    }

    /// A person withdraws a grant.
    pub fn revoke(&self, id: GrantId, by: KeyId, now_ms: i64) -> Result<Change, Refusal> {
        self.grants.get(&id).filter(|grant| grant.counts(now_ms)).ok_or(Refusal::Unknown)?;
        Ok(Change::Revoked { id, by, at_ms: now_ms })
    }

    /// Sets a yes aside for the one call that uses it. Gives false if another one was faster, or there is no yes.
    pub fn take(&mut self, id: ApprovalId, now_ms: i64) -> bool {
        let is_approved =
            self.items.get(&id).is_some_and(|item| item.state(now_ms) == State::Approved);
        is_approved && self.taken.insert(id)
    }

    /// Gives a yes back that was not used.
    pub fn give_back(&mut self, id: ApprovalId) {
        self.taken.remove(&id);
    }

    /// What is over and was not written down as such. What a call is about to use is left to it.
    pub fn expire(&self, now_ms: i64) -> Vec<Change> {
        self.items
            .values()
            .filter(|item| item.written != State::Expired && item.state(now_ms) == State::Expired)
            .filter(|item| !self.taken.contains(&item.asked.id))
            .map(|item| Change::Expired { id: item.asked.id, at_ms: now_ms })
            .collect()
    }

    /// What has been over for long and need not be remembered.
    pub fn forgotten(&self, now_ms: i64) -> (Vec<ApprovalId>, Vec<GrantId>) {
        let before = now_ms - self.limits.remembered_ms;
        let is_over = |item: &&Item| match item.state(now_ms) {
            State::Pending => false,
            // The grant that came of it lives by itself.
            State::Approved => item.capability().is_some(),
            State::Denied | State::Expired | State::Used => true,
        };
        let is_old = |item: &Item| {
            let last = item.answers.last().map_or(item.asked.since_ms, |answer| answer.at_ms);
            last < before && (item.capability().is_some() || item.ends_ms() < before)
        };
        let over: Vec<&Item> = self.items.values().filter(is_over).collect();
        // The oldest come first.
        let too_many = over.len().saturating_sub(self.limits.remembered);
        let items = over
            .iter()
            .enumerate()
            .filter(|(place, item)| *place < too_many || is_old(item))
            .map(|(_, item)| item.asked.id)
            .collect();
        let is_over = |grant: &&Grant| grant.until_ms.is_some_and(|until| until < before);
        let grants = self.grants.values().filter(is_over).map(|grant| grant.id).collect();
        (items, grants)
    }

    /// Forgets these.
    pub fn forget(&mut self, items: &[ApprovalId], grants: &[GrantId]) {
        items.iter().for_each(|id| drop(self.items.remove(id)));
        grants.iter().for_each(|id| drop(self.grants.remove(id)));
    }

    /// What these changes leave: the items and grants that they touch, and the grants that are gone.
    pub fn after(&self, changes: &[Change]) -> (Vec<Item>, Vec<Grant>, Vec<GrantId>) {
        let mut touched = Self::default();
        let mut gone = Vec::new();
        for change in changes {
            match change {
                Change::Answered { id, .. }
                | Change::Expired { id, .. }
                | Change::Used { id, .. } => {
                    if let (Some(item), false) =
                        (self.items.get(id), touched.items.contains_key(id))
                    {
                        touched.items.insert(*id, item.clone());
                    }
                }
                Change::Revoked { id, .. } => gone.push(*id),
                Change::Asked(_) | Change::Granted(_) => {}
            }
            touched.apply(change);
        }
        (touched.items.into_values().collect(), touched.grants.into_values().collect(), gone)
    }

    /// Takes a change in.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Asked(asked) => {
                self.items.insert(asked.id, Item::new(asked.clone()));
            }
            Change::Answered { id, answer, state, usable_until_ms } => {
                if let Some(item) = self.items.get_mut(id) {
                    item.answers.push(answer.clone());
                    item.written = *state;
                    item.usable_until_ms = *usable_until_ms;
                }
            }
            Change::Expired { id, .. } => self.end(*id, State::Expired),
            Change::Used { id, .. } => {
                self.end(*id, State::Used);
                self.taken.remove(id);
            }
            Change::Granted(grant) => {
                self.grants.insert(grant.id, grant.clone());
            }
            Change::Revoked { id, .. } => {
                self.grants.remove(id);
            }
        }
    }

    fn end(&mut self, id: ApprovalId, state: State) {
        if let Some(item) = self.items.get_mut(&id) {
            item.written = state;
        }
    }
}

/// For whom a capability is wanted.
fn wanted_for(asked: &Asked) -> Holder {
    let whole_key = matches!(asked.what, What::Capability { whole_key: true, .. });
    Holder { key: Some(asked.key), session: asked.session.clone().filter(|_| !whole_key) }
}
