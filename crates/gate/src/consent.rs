//! What people have allowed, as the gate keeps it: every change is an event, the record of what it changed is
//! written beside the chain in the same commit, and only then does it count.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::{broadcast, watch};
use tollgate_consent::{
    Asked, Change, Consent, Grant, Holder, Item, ItemState, NewGrant, Refusal, Requested, Said,
    What,
};
use tollgate_contract::{
    Capability, Error, KeyScope,
    error::{Conflict, Internal, InvalidRequest, NotFound},
    event::Event,
    id::{ApprovalId, CallId, GrantId, KeyId},
    redact::redact_text,
    text::{Clean, hex},
};
use tollgate_ledger::{Batch, Beside, LedgerError, NewEvent, Reader, Subject};

use crate::{
    Gate, Principal, clock,
    gate::Inner,
    session::{SESSIONS, check_session},
};

/// Where what was asked is kept.
const ITEMS: &str = "approvals";
/// Where grants are kept.
const GRANTS: &str = "grants";

/// How many pieces of news a listener may be behind.
const NEWS: usize = 256;

/// The longest reason.
const LONGEST_REASON: usize = 500;

/// How people's answers are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsentSettings {
    /// How long something waits for an answer, and how long a yes to a call can be used.
    pub answer_within_ms: i64,
    /// Hosts that the capability `net` reaches; all of them where there is no list.
    pub net_allowlist: Option<Vec<Capability>>,
}

impl Default for ConsentSettings {
    fn default() -> Self {
        Self { answer_within_ms: 60 * 60 * 1000, net_allowlist: None }
    }
}

/// What people have allowed, and who wants to hear of it.
pub(crate) struct Consents {
    state: Mutex<Consent>,
    /// Counts the changes.
    changed: watch::Sender<u64>,
    news: broadcast::Sender<Item>,
    settings: Mutex<ConsentSettings>,
}

impl Consents {
    /// Reads what is kept.
    pub(crate) fn read(reader: &Reader, settings: ConsentSettings) -> Result<Self, Error> {
        let mut state = restored(reader)?;
        configure(&mut state, &settings);
        Ok(Self {
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            news: broadcast::Sender::new(NEWS),
            settings: Mutex::new(settings),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, Consent> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn answer_within_ms(&self) -> i64 {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).answer_within_ms
    }

    /// Lets changes count that are stored, and tells whoever waits.
    pub(crate) fn apply(&self, changes: &[Change]) {
        let mut changed: Vec<Item> = Vec::new();
        {
            let mut state = self.state();
            for change in changes {
                state.apply(change);
            }
            let ids: BTreeSet<ApprovalId> = changes.iter().filter_map(about).collect();
            changed.extend(ids.into_iter().filter_map(|id| state.item(id).cloned()));
        }
        self.changed.send_modify(|count| *count += 1);
        for item in changed {
            // Nobody may be listening.
            let _ = self.news.send(item);
        }
    }

    /// The events that tell of changes, and the records that they leave.
    pub(crate) fn written(&self, changes: &[Change], now_ms: i64) -> Result<Batch, LedgerError> {
        let (items, grants, gone) = self.state().after(changes);
        let mut batch = Batch::default();
        for change in changes {
            batch.events.push(told(change, now_ms)?);
        }
        for item in &items {
            batch.beside.push(put(ITEMS, item.asked.id.to_string(), item));
        }
        for grant in &grants {
            batch.beside.push(put(GRANTS, grant.id.to_string(), grant));
        }
        for id in gone {
            batch.beside.push(Beside::Delete { space: GRANTS, key: id.to_string().into_bytes() });
        }
        Ok(batch)
    }
}

fn configure(state: &mut Consent, settings: &ConsentSettings) {
    state.set_allowlist(settings.net_allowlist.clone());
    state.set_limits(tollgate_consent::Limits {
        usable_ms: settings.answer_within_ms,
        ..tollgate_consent::Limits::default()
    });
}

fn put(space: &'static str, key: String, record: &impl serde::Serialize) -> Beside {
    let value = serde_json::to_vec(record).unwrap_or_default();
    Beside::Put { space, key: key.into_bytes(), value, expires_ms: None }
}

fn restored(reader: &Reader) -> Result<Consent, Error> {
    fn all<T: serde::de::DeserializeOwned>(reader: &Reader, space: &str) -> Result<Vec<T>, Error> {
        let read = |value: &[u8]| {
            serde_json::from_slice(value).map_err(|error| {
                // To go on without it could forget a no.
                Error::from(Internal::new(format!("a record of {space} cannot be read: {error}")))
            })
        };
        reader.kept_all(space)?.iter().map(|kept| read(&kept.value)).collect()
    }
    Ok(Consent::restored(all::<Item>(reader, ITEMS)?, all::<Grant>(reader, GRANTS)?))
}

/// What a change is about, if it is something that waits or has waited.
fn about(change: &Change) -> Option<ApprovalId> {
    match change {
        Change::Asked(asked) => Some(asked.id),
        Change::Answered { id, .. } | Change::Expired { id, .. } | Change::Used { id, .. } => {
            Some(*id)
        }
        Change::Granted(_) | Change::Revoked { .. } => None,
    }
}

/// The event that tells of a change. What binds an approval to an input stays with the gate.
fn told(change: &Change, now_ms: i64) -> Result<NewEvent, LedgerError> {
    let event = match change {
        Change::Asked(Asked { what: What::Call { .. }, .. }) => Event::ApprovalRequested,
        Change::Asked(_) => Event::CapabilityRequested,
        Change::Answered { .. } | Change::Expired { .. } => Event::ApprovalDecided,
        Change::Used { .. } => Event::ApprovalUsed,
        Change::Granted(_) => Event::CapabilityGranted,
        Change::Revoked { .. } => Event::CapabilityRevoked,
    };
    let mut payload = serde_json::to_value(change).unwrap_or_default();
    if let Some(payload) = payload.as_object_mut()
        && let Some(Value::String(binding)) = payload.remove("binding")
    {
        // Enough to tell whether the record beside the chain has another one.
        payload.insert("bound".to_owned(), bound(&binding).into());
    }
    let tool = payload.get("tool").and_then(Value::as_str).map(Into::into);
    let agent = payload.get("keyName").and_then(Value::as_str).map(Into::into);
    let subject = Subject { tool, agent_id: agent, ..Subject::default() };
    NewEvent::new(event, now_ms, subject, &payload)
}

/// Holds all that is kept beside the chain and opens something, keys and grants, against the events that made it
/// so, and tells every difference.
pub fn check_kept(reader: &Reader) -> Result<Vec<String>, LedgerError> {
    let mut problems = crate::manage::check_keys(reader)?;
    problems.extend(check_consent(reader)?);
    Ok(problems)
}

/// The hash of what binds an approval, which gives nothing away.
fn bound(binding: &str) -> String {
    hex(&Sha256::digest(binding.as_bytes())).to_string()
}

/// What the events say of people's answers and of sessions.
#[derive(Default, Serialize, Deserialize)]
struct Told {
    items: Vec<Item>,
    grants: Vec<Grant>,
    /// What each approval is bound to, hashed.
    bound: BTreeMap<String, String>,
    /// Whose sessions are whose.
    sessions: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct CheckpointConsent {
    state: ConsentLeft,
}

#[derive(Deserialize)]
struct ConsentLeft {
    #[serde(default)]
    consent: Told,
}

/// Adds up what the events say, from the last checkpoint on.
fn told_consent(reader: &Reader) -> Result<Told, LedgerError> {
    let mut told = Told::default();
    let mut at = 0;
    if let Some(checkpoint) = reader.last_checkpoint()? {
        let left: CheckpointConsent =
            serde_json::from_str(&checkpoint.payload).map_err(|error| {
                LedgerError::Damaged(format!(
                    "checkpoint {} cannot be read: {error}",
                    checkpoint.seq
                ))
            })?;
        told = left.state.consent;
        at = checkpoint.seq;
    }
    let mut state =
        Consent::restored(std::mem::take(&mut told.items), std::mem::take(&mut told.grants));
    loop {
        let events = reader.tail(at, 1000)?;
        let Some(last) = events.last() else { break };
        at = last.seq;
        for event in &events {
            if !["capability_", "approval_", "session_opened"]
                .iter()
                .any(|p| event.kind.starts_with(p))
            {
                continue;
            }
            let payload: Value = serde_json::from_str(&event.payload).unwrap_or_default();
            let word = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
            if let (Some(id), Some(bound)) = (word("id"), word("bound")) {
                told.bound.insert(id, bound);
            }
            if let (Some(session), Some(key)) = (word("session"), word("keyId")) {
                told.sessions.insert(session, key);
            }
            if let Ok(change) = serde_json::from_value::<Change>(payload) {
                state.apply(&change);
            }
        }
    }
    told.items = state.items().cloned().collect();
    told.grants = state.grants().cloned().collect();
    Ok(told)
}

/// Holds what is kept of capabilities, approvals and sessions against the events that made it so, and tells every
/// difference.
fn check_consent(reader: &Reader) -> Result<Vec<String>, LedgerError> {
    reader.at_once(|reader| {
        let mut told = told_consent(reader)?;
        let mut problems = Vec::new();
        let told_grants: BTreeMap<String, Grant> =
            told.grants.drain(..).map(|grant| (grant.id.to_string(), grant)).collect();
        for row in reader.kept_all(GRANTS)? {
            let id = String::from_utf8_lossy(&row.key).into_owned();
            match (serde_json::from_slice::<Grant>(&row.value), told_grants.get(&id)) {
                (Err(_), _) => problems.push(format!("the grant {id} cannot be read")),
                (Ok(grant), None) => {
                    problems
                        .push(format!("{id} ({}) counts and was never granted", grant.capability));
                }
                (Ok(grant), Some(told)) if *told != grant => {
                    problems.push(format!("{id} ({}) is not what was granted", grant.capability));
                }
                _ => {}
            }
        }
        let told_items: BTreeMap<String, Item> =
            told.items.drain(..).map(|item| (item.asked.id.to_string(), item)).collect();
        for row in reader.kept_all(ITEMS)? {
            let id = String::from_utf8_lossy(&row.key).into_owned();
            let Ok(mut item) = serde_json::from_slice::<Item>(&row.value) else {
                problems.push(format!("the approval {id} cannot be read"));
                continue;
            };
            let binding = item.unbind().map(|binding| bound(&binding));
            if told_items.get(&id) != Some(&item) || told.bound.get(&id) != binding.as_ref() {
                problems.push(format!("{id} is not what was asked and answered"));
            }
        }
        for row in reader.kept_all(SESSIONS)? {
            let session = String::from_utf8_lossy(&row.key).into_owned();
            let key = String::from_utf8_lossy(&row.value);
            if told.sessions.remove(&session).as_deref() != Some(&*key) {
                let session = tollgate_contract::Quoted::new(&session);
                problems
                    .push(format!("the session {session} is not that of the key that opened it"));
            }
        }
        for session in told.sessions.keys() {
            let session = tollgate_contract::Quoted::new(session);
            problems.push(format!("the session {session} was opened and is gone"));
        }
        Ok(problems)
    })
}

/// What is told of people's answers when the events that made them are retired.
pub(crate) fn consent_left(reader: &Reader) -> Result<Value, LedgerError> {
    reader.at_once(|reader| {
        let mut told = told_consent(reader)?;
        let names = |space: &'static str| -> Result<BTreeSet<String>, LedgerError> {
            let rows = reader.kept_all(space)?;
            Ok(rows.iter().map(|row| String::from_utf8_lossy(&row.key).into_owned()).collect())
        };
        // What was forgotten stays so.
        let (items, grants, sessions) = (names(ITEMS)?, names(GRANTS)?, names(SESSIONS)?);
        told.items.retain(|item| items.contains(&item.asked.id.to_string()));
        told.bound.retain(|id, _| items.contains(id));
        told.grants.retain(|grant| grants.contains(&grant.id.to_string()));
        told.sessions.retain(|session, _| sessions.contains(session));
        Ok(json!(told))
    })
}

impl Inner {
    /// Stores changes and lets them count. Only while no other change is made.
    pub(crate) async fn consent(&self, changes: &[Change]) -> Result<(), Error> {
        let batch = self.consents.written(changes, self.clock.now_ms())?;
        self.append(batch).await?;
        self.consents.apply(changes);
        Ok(())
    }

    pub(crate) fn approval_id(&self) -> Result<ApprovalId, Error> {
        let at = u64::try_from(self.clock.now_ms()).unwrap_or_default();
        Ok(ApprovalId::from_parts(at, clock::random()?))
    }

    /// An approval was used by a call that starts: what to store with its start.
    pub(crate) fn used(&self, id: ApprovalId, call: CallId) -> [Change; 1] {
        [Change::Used { id, call, at_ms: self.clock.now_ms() }]
    }
}

/// Who asks, as people's answers are counted: a token is its key.
pub(crate) fn account(principal: &Principal) -> Result<(KeyId, String), Error> {
    let key = principal.require_key()?;
    Ok((key.account(), key.name.clone()))
}

impl Gate {
    /// Asks for a capability: for one session, or for the caller's key as such.
    pub async fn request_capability(
        &self,
        by: &Principal,
        capability: Capability,
        session: Option<String>,
        reason: Option<String>,
    ) -> Result<Requested, Error> {
        let reason = said(reason)?;
        if let Some(session) = &session {
            self.inner.session(by, session).await?;
        }
        let turn = self.turn().await;
        let by = self.again(by);
        by.require(KeyScope::Call)?;
        let (key, key_name) = account(&by)?;
        let now = self.inner.clock.now_ms();
        let asked = Asked {
            id: self.inner.approval_id()?,
            what: What::Capability { capability, whole_key: session.is_none() },
            key,
            key_name,
            session,
            reason,
            approvers: 1,
            since_ms: now,
            until_ms: now + self.inner.consents.answer_within_ms(),
        };
        let requested = self.inner.consents.state().request(asked).map_err(refused)?;
        if let Requested::New(change) = &requested {
            self.change(turn, vec![change.clone()]).await?;
        }
        Ok(requested)
    }

    /// Grants a capability, for so long or until it is withdrawn.
    pub async fn grant_capability(
        &self,
        by: &Principal,
        capability: Capability,
        to: Holder,
        lasts_ms: Option<i64>,
        reason: Option<String>,
    ) -> Result<Grant, Error> {
        let reason = said(reason)?;
        if let Some(session) = &to.session {
            check_session(session)?;
        }
        if let Some(key) = to.key {
            self.key(key)?;
        }
        let turn = self.turn().await;
        let by = self.again(by);
        by.require(KeyScope::Approve)?;
        let (key, by_name) = account(&by)?;
        // A session that is its own is itself.
        if let Some(session) = &to.session
            && self.inner.owner_of(session) == Some(key)
        {
            return Err(refused(Refusal::Own));
        }
        let now = self.inner.clock.now_ms();
        let new = NewGrant {
            id: self.grant_id()?,
            capability,
            to,
            by: key,
            by_name,
            reason,
            until_ms: lasts_ms.map(|ms| now.saturating_add(ms)),
        };
        let id = new.id;
        let changes = self.inner.consents.state().grant(new, now).map_err(refused)?;
        self.change(turn, changes).await?;
        self.grant(id)
    }

    /// Withdraws a grant. It counts no more from now on, also for what runs.
    pub async fn revoke_capability(&self, by: &Principal, id: GrantId) -> Result<Grant, Error> {
        let turn = self.turn().await;
        let by = self.again(by);
        by.require(KeyScope::Approve)?;
        let (key, _) = account(&by)?;
        let grant = self.grant(id)?;
        let now = self.inner.clock.now_ms();
        let revoked = self.inner.consents.state().revoke(id, key, now);
        let change = revoked.map_err(|_| NotFound::new("grant", id.to_string()))?;
        self.change(turn, vec![change]).await?;
        Ok(grant)
    }

    /// A person answers something that waits. `lasts_ms` is how long a capability is granted.
    pub async fn answer(
        &self,
        by: &Principal,
        id: ApprovalId,
        approves: bool,
        reason: Option<String>,
        lasts_ms: Option<i64>,
    ) -> Result<Item, Error> {
        let reason = said(reason)?;
        let turn = self.turn().await;
        let by = self.again(by);
        by.require(KeyScope::Approve)?;
        let (key, by_name) = account(&by)?;
        let now = self.inner.clock.now_ms();
        let said = Said {
            by: key,
            by_name,
            approves,
            reason,
            grant_until_ms: lasts_ms.map(|ms| now.saturating_add(ms)),
            grant_id: self.grant_id()?,
        };
        let answered = self.inner.consents.state().answer(id, said, now);
        let changes = answered.map_err(|refusal| match refusal {
            Refusal::Unknown => NotFound::new("approval", id.to_string()).into(),
            other => refused(other),
        })?;
        self.change(turn, changes).await?;
        self.approval(id)
    }

    /// Writes down what is over, tells whoever waits for it, and forgets what has been over for long.
    pub async fn expire_approvals(&self) -> Result<(), Error> {
        let now = self.inner.clock.now_ms();
        if self.inner.consents.state().expire(now).is_empty() {
            return Ok(());
        }
        let turn = self.turn().await;
        let changes = self.inner.consents.state().expire(self.inner.clock.now_ms());
        if changes.is_empty() {
            return Ok(());
        }
        self.change(turn, changes).await
    }

    /// Forgets what has been over for long.
    pub(crate) async fn forget_consent(&self) {
        let _turn = self.turn().await;
        let (items, grants) = self.inner.consents.state().forgotten(self.inner.clock.now_ms());
        if items.is_empty() && grants.is_empty() {
            return;
        }
        let delete = |space, id: String| Beside::Delete { space, key: id.into_bytes() };
        let mut beside: Vec<Beside> = Vec::new();
        beside.extend(items.iter().map(|id| delete(ITEMS, id.to_string())));
        beside.extend(grants.iter().map(|id| delete(GRANTS, id.to_string())));
        if self.inner.append(Batch { events: Vec::new(), beside }).await.is_ok() {
            self.inner.consents.state().forget(&items, &grants);
        }
    }

    /// Everything that people were asked and that is remembered, with how it stands now; the oldest first.
    pub fn approvals(&self) -> Vec<(Item, ItemState)> {
        let now = self.inner.clock.now_ms();
        let state = self.inner.consents.state();
        state.items().map(|item| (item.clone(), item.state(now))).collect()
    }

    /// One of them.
    pub fn approval(&self, id: ApprovalId) -> Result<Item, Error> {
        let found = self.inner.consents.state().item(id).cloned();
        found.ok_or_else(|| NotFound::new("approval", id.to_string()).into())
    }

    /// Every grant that counts now.
    pub fn grants(&self) -> Vec<Grant> {
        let now = self.inner.clock.now_ms();
        let state = self.inner.consents.state();
        state.grants().filter(|grant| grant.counts(now)).cloned().collect()
    }

    /// One of them.
    pub fn grant(&self, id: GrantId) -> Result<Grant, Error> {
        let found = self.inner.consents.state().grant_of(id).cloned();
        found.ok_or_else(|| NotFound::new("grant", id.to_string()).into())
    }

    /// Hears of everything that waits or is answered from now on.
    pub fn approval_news(&self) -> broadcast::Receiver<Item> {
        self.inner.consents.news.subscribe()
    }

    /// Takes other settings; what waits keeps the time it was given.
    pub fn apply_consent(&self, settings: ConsentSettings) {
        let consents = &self.inner.consents;
        configure(&mut consents.state(), &settings);
        *consents.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    fn grant_id(&self) -> Result<GrantId, Error> {
        let at = u64::try_from(self.inner.clock.now_ms()).unwrap_or_default();
        Ok(GrantId::from_parts(at, clock::random()?))
    }

    async fn change(&self, turn: crate::manage::Turn, changes: Vec<Change>) -> Result<(), Error> {
        self.whole(turn, async move |inner| inner.consent(&changes).await).await
    }
}

/// A reason, if it is short and plain enough to be kept; without what looks like a secret.
fn said(reason: Option<String>) -> Result<Option<String>, Error> {
    let Some(reason) = reason.filter(|reason| !reason.trim().is_empty()) else { return Ok(None) };
    let is_plain = reason.chars().all(tollgate_contract::text::is_plain);
    if reason.chars().count() > LONGEST_REASON || !is_plain {
        let problem = format!(
            "`reason` has at most {LONGEST_REASON} characters, none that a terminal would act on"
        );
        return Err(InvalidRequest::new(Clean::already(problem), Vec::new()).into());
    }
    Ok(Some(redact_text(&reason).into_owned()))
}

/// A refusal as callers are told it.
pub(crate) fn refused(refusal: Refusal) -> Error {
    let text = Clean::already(refusal.to_string());
    match refusal {
        Refusal::Nobody | Refusal::TooShort => InvalidRequest::new(text, Vec::new()).into(),
        _ => Conflict::new(text).into(),
    }
}
