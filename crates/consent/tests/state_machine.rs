//! Random histories of asking, answering, granting and waiting, held against what people rely on.
#![cfg(test)]

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::json;
use tollgate_consent::{
    Asked, Change, Consent, Holder, Item, ItemState, Limits, NewGrant, Refusal, Requested, Said,
    What,
};
use tollgate_contract::{
    Capability, CostEffect, HostName, InputHash, SideEffect, ToolName,
    id::{ApprovalId, CallId, GrantId, KeyId, RunId},
};

const KEYS: u8 = 4;

fn key(number: u8) -> KeyId {
    KeyId::from_parts(1, [number; 10])
}

fn host(number: u8) -> HostName {
    HostName::parse(["a.example", "b.example", "x.a.example"][usize::from(number % 3)]).unwrap()
}

fn capability(number: u8) -> Capability {
    let texts = ["net", "net:a.example", "net:b.example", "net:*.example.com", "net:*.a.example"];
    Capability::parse(texts[usize::from(number) % texts.len()]).unwrap()
}

fn session(number: u8) -> Option<String> {
    (number > 0).then(|| format!("s{number}"))
}

/// What somebody does.
#[derive(Debug, Clone)]
enum Step {
    Wait(u16),
    AskCall { by: u8, binding: u8, approvers: u8 },
    Request { by: u8, capability: u8, session: u8, whole_key: bool },
    Answer { nth: u8, by: u8, approves: bool, lasts: u16 },
    Grant { by: u8, key: u8, session: u8, capability: u8, lasts: Option<u16> },
    Revoke { nth: u8, by: u8 },
    Use { by: u8, binding: u8, approvers: u8, starts: bool },
    Expire,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<u16>().prop_map(|ms| Step::Wait(ms % 400)),
        (0..KEYS, 0..3u8, 1..3u8).prop_map(|(by, binding, approvers)| Step::AskCall {
            by,
            binding,
            approvers
        }),
        (0..KEYS, 0..5u8, 0..3u8, any::<bool>()).prop_map(
            |(by, capability, session, whole_key)| Step::Request {
                by,
                capability,
                session,
                whole_key
            }
        ),
        (any::<u8>(), 0..KEYS, any::<bool>(), any::<u16>())
            .prop_map(|(nth, by, approves, lasts)| Step::Answer { nth, by, approves, lasts }),
        (0..KEYS, 0..=KEYS, 0..3u8, 0..5u8, any::<Option<u16>>()).prop_map(
            |(by, key, session, capability, lasts)| Step::Grant {
                by,
                key,
                session,
                capability,
                lasts
            }
        ),
        (any::<u8>(), 0..KEYS).prop_map(|(nth, by)| Step::Revoke { nth, by }),
        (0..KEYS, 0..3u8, 1..3u8, any::<bool>()).prop_map(|(by, binding, approvers, starts)| {
            Step::Use { by, binding, approvers, starts }
        }),
        Just(Step::Expire),
        Just(Step::Forget),
    ]
}

struct World {
    state: Consent,
    changes: Vec<Change>,
    now: i64,
    ids: u64,
    /// What was used, and by whom it had been approved.
    used: HashSet<ApprovalId>,
}

impl World {
    fn new() -> Self {
        let mut state = Consent::default();
        state.set_limits(Limits {
            waiting_per_key: 5,
            grants: 30,
            usable_ms: 500,
            remembered_ms: 1000,
            remembered: 4,
        });
        Self { state, changes: Vec::new(), now: 1_000, ids: 0, used: HashSet::new() }
    }

    fn id(&mut self) -> (u64, [u8; 10]) {
        self.ids += 1;
        let [a, b, ..] = self.ids.to_le_bytes();
        (self.ids, [a, b, 0, 0, 0, 0, 0, 0, 0, 0])
    }

    fn store(&mut self, changes: Vec<Change>) {
        // What is written beside the chain is what the state becomes.
        let (items, grants, gone) = self.state.after(&changes);
        for change in &changes {
            self.state.apply(change);
        }
        for item in items {
            assert_eq!(self.state.item(item.asked.id), Some(&item));
        }
        for grant in grants {
            assert_eq!(self.state.grant_of(grant.id), Some(&grant));
        }
        assert!(gone.iter().all(|id| self.state.grant_of(*id).is_none()));
        self.changes.extend(changes);
    }

    fn asked(&mut self, by: u8, what: What, session: Option<String>, approvers: u8) -> Asked {
        let (at, random) = self.id();
        Asked {
            id: ApprovalId::from_parts(at, random),
            what,
            key: key(by),
            key_name: format!("key {by}"),
            session,
            reason: None,
            approvers,
            since_ms: self.now,
            until_ms: self.now + 300,
        }
    }

    fn call(&mut self, by: u8, binding: u8, approvers: u8) -> Asked {
        let what = What::Call {
            tool: ToolName::parse("fs.write_text").unwrap(),
            side_effect: SideEffect::UserWrite,
            cost_effect: CostEffect::None,
            input: json!({}),
            hidden: false,
            input_hash: InputHash::parse(&"0".repeat(64)).unwrap(),
            binding: format!("{by}:{binding}"),
            call: CallId::from_parts(1, [1; 10]),
            run: RunId::from_parts(1, [1; 10]),
            because: Vec::new(),
        };
        self.asked(by, what, None, approvers)
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Wait(ms) => self.now += i64::from(*ms),
            Step::AskCall { by, binding, approvers } => {
                let asked = self.call(*by, *binding, *approvers);
                if let Ok(change) = self.state.ask(asked) {
                    self.store(vec![change]);
                }
            }
            Step::Request { by, capability: wanted, session: s, whole_key } => {
                let what =
                    What::Capability { capability: capability(*wanted), whole_key: *whole_key };
                let asked = self.asked(*by, what, session(*s), 1);
                if let Ok(Requested::New(change)) = self.state.request(asked) {
                    self.store(vec![change]);
                }
            }
            Step::Answer { nth, by, approves, lasts } => self.answer(*nth, *by, *approves, *lasts),
            Step::Grant { by, key: to, session: s, capability: what, lasts } => {
                let (at, random) = self.id();
                let new = NewGrant {
                    id: GrantId::from_parts(at, random),
                    capability: capability(*what),
                    to: Holder { key: (*to < KEYS).then(|| key(*to)), session: session(*s) },
                    by: key(*by),
                    by_name: format!("key {by}"),
                    reason: None,
                    until_ms: lasts.map(|ms| self.now + i64::from(ms % 600)),
                };
                if let Ok(changes) = self.state.grant(new, self.now) {
                    self.store(changes);
                }
            }
            Step::Revoke { nth, by } => {
                let ids: Vec<GrantId> = self.state.grants().map(|grant| grant.id).collect();
                if ids.is_empty() {
                    return;
                }
                let id = ids[usize::from(*nth) % ids.len()];
                if let Ok(change) = self.state.revoke(id, key(*by), self.now) {
                    self.store(vec![change]);
                    assert!(self.state.grant_of(id).is_none());
                }
            }
            Step::Use { by, binding, approvers, starts } => {
                self.use_up(*by, *binding, *approvers, *starts);
            }
            Step::Expire => {
                let changes = self.state.expire(self.now);
                self.store(changes);
                assert!(self.state.expire(self.now).is_empty());
            }
            Step::Forget => {
                let (items, grants) = self.state.forgotten(self.now);
                for id in &items {
                    let item = self.state.item(*id).unwrap();
                    let is_live = matches!(item.state(self.now), ItemState::Pending)
                        || item.state(self.now) == ItemState::Approved && item.binding().is_some();
                    assert!(!is_live, "something live was forgotten");
                }
                for id in &grants {
                    assert!(!self.state.grant_of(*id).unwrap().counts(self.now));
                }
            }
        }
    }

    fn answer(&mut self, nth: u8, by: u8, approves: bool, lasts: u16) {
        let ids: Vec<ApprovalId> = self.state.items().map(|item| item.asked.id).collect();
        if ids.is_empty() {
            return;
        }
        let id = ids[usize::from(nth) % ids.len()];
        let before = self.state.item(id).unwrap().clone();
        let (at, random) = self.id();
        let said = Said {
            by: key(by),
            by_name: format!("key {by}"),
            approves,
            reason: None,
            grant_until_ms: Some(self.now + 1 + i64::from(lasts % 600)),
            grant_id: GrantId::from_parts(at, random),
        };
        match self.state.answer(id, said, self.now) {
            Ok(changes) => {
                assert_eq!(before.state(self.now), ItemState::Pending, "it was over");
                assert_ne!(before.asked.key, key(by), "somebody answered for themselves");
                self.store(changes);
                // A second answer to what is decided never wins.
                let decided = self.state.item(id).unwrap().state(self.now);
                if decided != ItemState::Pending {
                    let (at, random) = self.id();
                    let again = Said {
                        by: key((by + 1) % KEYS),
                        by_name: String::new(),
                        approves: !approves,
                        reason: None,
                        grant_until_ms: None,
                        grant_id: GrantId::from_parts(at, random),
                    };
                    let refusal = self.state.answer(id, again, self.now).unwrap_err();
                    assert_eq!(refusal, Refusal::Over(decided));
                }
            }
            Err(Refusal::Own) => assert_eq!(before.asked.key, key(by)),
            Err(_) => {}
        }
    }

    fn use_up(&mut self, by: u8, binding: u8, approvers: u8, starts: bool) {
        let binding = format!("{by}:{binding}");
        let found = self.state.of_call(key(by), &binding, approvers, self.now).cloned();
        let Some(item) = found else { return };
        assert_eq!(item.binding(), Some(binding.as_str()));
        let id = item.asked.id;
        if !self.state.take(id, self.now) {
            assert_ne!(item.state(self.now), ItemState::Approved);
            return;
        }
        assert!(!self.state.take(id, self.now), "one yes was taken twice");
        check_yes(&item, approvers);
        if starts {
            assert!(self.used.insert(id), "one yes was used twice");
            let call = CallId::from_parts(1, [1; 10]);
            self.store(vec![Change::Used { id, call, at_ms: self.now }]);
        } else {
            self.state.give_back(id);
        }
    }

    fn check(&self) {
        for item in self.state.items() {
            let Some(wanted) = item.capability() else { continue };
            if item.state(self.now) != ItemState::Pending {
                continue;
            }
            // Nothing granted is ever pending.
            let granted = self.state.grants().any(|grant| {
                grant.capability == *wanted
                    && grant.counts_for(item.asked.key, item.asked.session.as_deref(), self.now)
                    && grant.to.key.is_none_or(|key| key == item.asked.key)
                    && (grant.to.session.is_none()
                        || grant.to.session == item.asked.session && !whole_key(item))
            });
            assert!(!granted, "{wanted} is granted and pending");
        }
        for by in 0..KEYS {
            for at in 0..3 {
                for s in 0..3 {
                    let session = session(s);
                    let reach = self.state.reach(&host(at), key(by), session.as_deref(), self.now);
                    let own = self.state.grants().filter(|grant| grant.by != key(by));
                    let best = own
                        .filter(|grant| grant.until_ms.is_none_or(|until| self.now < until))
                        .filter(|grant| grant.to.includes(key(by), session.as_deref()))
                        .filter_map(|grant| grant.capability.reach(&host(at), None))
                        .max();
                    assert_eq!(reach, best, "a grant of one's own, or one that is over, counted");
                }
            }
        }
    }
}

fn whole_key(item: &Item) -> bool {
    matches!(item.asked.what, What::Capability { whole_key: true, .. })
}

fn check_yes(item: &Item, approvers: u8) {
    let voices: HashSet<KeyId> =
        item.answers.iter().filter(|answer| answer.approves).map(|answer| answer.by).collect();
    assert!(voices.len() >= usize::from(approvers), "too few different people said yes");
    assert!(!voices.contains(&item.asked.key), "somebody approved for themselves");
    assert!(item.answers.iter().all(|answer| answer.approves), "somebody said no");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_nobody_answers_for_themselves_and_a_yes_is_used_once(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            world.check();
        }
        // The state is a fold over the changes, and the same when it is read from its records.
        let mut folded = Consent::default();
        for change in &world.changes {
            folded.apply(change);
        }
        prop_assert!(folded == world.state);
        let written: Vec<Change> = world.changes.iter()
            .map(|change| serde_json::from_value(serde_json::to_value(change).unwrap()).unwrap())
            .collect();
        prop_assert!(written == world.changes);
        let read = |item: &Item| serde_json::from_value::<Item>(serde_json::to_value(item).unwrap()).unwrap();
        let restored = Consent::restored(
            world.state.items().map(read), world.state.grants().cloned(),
        );
        prop_assert!(restored == world.state);
    }
}
