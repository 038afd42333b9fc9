//! The promise of the governor, tried against a world that really acts: whatever is asked, booked, settled,
//! renewed, left to expire, restarted or reconfigured, no window of a hard pool ever sees more acts than its
//! limit. The reference adds up every act anew, window by window, and knows nothing of how holds are kept.
#![cfg(test)]

use std::{collections::BTreeMap, sync::Arc};

use proptest::{prelude::*, test_runner::Config};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use tollgate_contract::{Urgency, id::IntentId};
use tollgate_governor::{
    Answer, Ask, Asker, Effect, Event, Expected, Fresh, Governor, GovernorConfig, Intent, Report,
};

const START: i64 = 1_000_000_000;

/// The pools of the world: id, limit, and how the world counts.
const POOLS: [(&str, u64, World); 5] = [
    ("w:fixed", 20, World::Fixed(10_000)),
    ("w:sliding", 10, World::Sliding(5000)),
    ("w:bucket", 12, World::Bucket { refill: 3, per: 1000 }),
    ("w:day", 60, World::Fixed(86_400_000)),
    ("w:same", 4, World::AtOnce),
];

#[derive(Debug, Clone, Copy)]
enum World {
    Fixed(i64),
    Sliding(i64),
    Bucket { refill: u64, per: i64 },
    AtOnce,
}

fn config() -> GovernorConfig {
    let text = r#"{
        "pools": [
            {"id": "w:fixed", "limit": 20, "window": {"kind": "fixed", "every": "10s"}, "valid_for": "4s"},
            {"id": "w:sliding", "limit": 10, "per": "agent", "trust_usage": true, "window": {"kind": "sliding", "every": "5s"}, "valid_for": "4s"},
            {"id": "w:bucket", "limit": 12, "window": {"kind": "bucket", "refill": 3, "every": "1s"}, "valid_for": "4s"},
            {"id": "w:day", "limit": 60, "per": "identity", "window": {"kind": "calendar", "every": "day"}, "valid_for": "4s"},
            {"id": "w:same", "unit": "calls", "limit": 4, "window": {"kind": "concurrency"}, "valid_for": "4s"}
        ],
        "routes": [
            {"workload": "one", "pools": [{"id": "w:fixed"}]},
            {"workload": "slide", "pools": [{"id": "w:sliding"}]},
            {"workload": "two", "pools": [{"id": "w:sliding"}, {"id": "w:bucket"}]},
            {"workload": "all", "pools": [{"id": "w:fixed"}, {"id": "w:sliding"}, {"id": "w:bucket"}, {"id": "w:day"}, {"id": "w:same"}]},
            {"workload": "day", "pools": [{"id": "w:day"}, {"id": "w:same"}]}
        ]
    }"#;
    serde_json::from_str(text).unwrap()
}

/// What is done to the governor.
#[derive(Debug, Clone)]
enum Step {
    /// Time passes.
    Wait(i64),
    /// Somebody asks, and acts at some moment of its hold if it may: `when` in thousandths of it. It reports
    /// how much it used when it is asked to, or never.
    Ask {
        agent: u8,
        identity: u8,
        workload: u8,
        amount: u8,
        urgency: u8,
        when: u16,
        uses_less: bool,
    },
    /// The open intent of this number reports, if it has acted.
    Report(usize),
    /// It goes on instead.
    Renew { which: usize, added: u8 },
    /// The process dies, and its state is made again: from all events, or from a snapshot.
    Restart { from_snapshot: bool },
    /// The configuration is read again, with another limit for a pool that the world does not count.
    Reload,
}

/// The world needs no state to make steps: every step can always be done.
#[derive(Debug, Clone)]
struct Nothing;

impl ReferenceStateMachine for Nothing {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let ask = (
            0..3_u8,
            0..2_u8,
            0..5_u8,
            1..6_u8,
            0..3_u8,
            prop_oneof![Just(0_u16), Just(999), 0..1000_u16],
            prop::bool::weighted(0.2),
        )
            .prop_map(|(agent, identity, workload, amount, urgency, when, uses_less)| Step::Ask {
                agent,
                identity,
                workload,
                amount,
                urgency,
                when,
                uses_less,
            });
        prop_oneof![
            10 => ask,
            3 => prop_oneof![4 => 0..200_i64, 2 => 0..2000_i64, 1 => 0..9000_i64].prop_map(Step::Wait),
            3 => (0..40_usize).prop_map(Step::Report),
            1 => (0..40_usize, 0..3_u8).prop_map(|(which, added)| Step::Renew { which, added }),
            1 => any::<bool>().prop_map(|from_snapshot| Step::Restart { from_snapshot }),
            1 => Just(Step::Reload),
        ]
        .boxed()
    }

    fn apply(state: Self, _: &Step) -> Self {
        state
    }
}

/// Something that was really done.
#[derive(Debug, Clone)]
struct Act {
    /// The keys within the pools.
    agent: u8,
    identity: u8,
    /// When it happened; for what runs at the same time, from then until `ended`.
    at: i64,
    ended: i64,
    pools: Vec<(usize, u64)>,
}

/// An intent that may act, or has.
#[derive(Debug, Clone)]
struct Open {
    id: IntentId,
    act: usize,
    workload: u8,
    from: i64,
    until: i64,
    uses_less: bool,
}

/// The governor, and the world that it governs.
struct Living {
    governor: Governor,
    config: GovernorConfig,
    events: Vec<String>,
    now: i64,
    number: u64,
    acts: Vec<Act>,
    open: Vec<Open>,
}

const WORKLOADS: [(&str, &[usize]); 5] =
    [("one", &[0]), ("slide", &[1]), ("two", &[1, 2]), ("all", &[0, 1, 2, 3, 4]), ("day", &[3, 4])];

impl Living {
    fn keep(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            let kind = event.effect.kind().ledger_kind().unwrap();
            let about = &event.about;
            let text = serde_json::json!({
                "ts": event.ts, "kind": kind, "payload": event.effect.payload().unwrap(),
                "agent": about.agent, "identity": about.identity, "workload": about.workload,
                "scope": about.scope, "intent": about.intent,
            });
            self.events.push(text.to_string());
        }
    }

    /// Ends what is over. Whoever has not acted by then has missed its time.
    fn expire(&mut self) {
        while let Some(event) = self.governor.expire(self.now) {
            self.keep([event]);
        }
        self.open.retain(|open| open.until > self.now);
    }

    fn ask(&mut self, intent: &Intent) -> tollgate_governor::Decision {
        self.number += 1;
        let random = [&[0, 0][..], &self.number.to_be_bytes()].concat().try_into().unwrap();
        let fresh = Fresh {
            pseudonym: format!("idn_{}", intent.identity_id).into(),
            salt: String::new(),
            name_hash: "".into(),
        };
        let asker = Asker::local();
        let ask = Ask {
            asker: &asker,
            intent,
            id: IntentId::from_parts(self.now as u64, random),
            fresh: &fresh,
            request: None,
            context_hash: None,
            wants_trace: false,
        };
        let outcome = self.governor.decide(&ask, self.now).unwrap();
        self.keep(outcome.events);
        outcome.decision
    }

    fn restart(&mut self, from_snapshot: bool) {
        let setup = config().build(START).unwrap();
        let mut fresh = Governor::new(config(), setup, START);
        for named in self.governor.identities().named() {
            fresh.identities_mut().put((**named).clone());
        }
        if from_snapshot {
            let text = serde_json::to_string(&self.governor.snapshot()).unwrap();
            fresh.restore(serde_json::from_str(&text).unwrap());
        } else {
            for text in &self.events {
                let value: serde_json::Value = serde_json::from_str(text).unwrap();
                let text = |name: &str| value[name].as_str().map(Arc::<str>::from);
                let effect = Effect::read(
                    value["kind"].as_str().unwrap(),
                    value["payload"].as_str().unwrap(),
                );
                fresh.apply(&Event {
                    ts: value["ts"].as_i64().unwrap(),
                    about: tollgate_governor::About {
                        agent: text("agent"),
                        identity: text("identity"),
                        workload: text("workload"),
                        scope: text("scope"),
                        intent: value["intent"].as_str().map(|id| IntentId::parse(id).unwrap()),
                    },
                    effect: effect.unwrap().unwrap(),
                });
            }
        }
        self.governor = fresh;
    }

    /// What the world has counted, window by window.
    fn check(&self) {
        for (place, (id, limit, world)) in POOLS.iter().enumerate() {
            let mut by_key: BTreeMap<u8, Vec<(i64, i64, u64)>> = BTreeMap::new();
            for act in &self.acts {
                let key = match *id {
                    "w:sliding" => act.agent,
                    "w:day" => act.identity,
                    _ => 0,
                };
                for (pool, amount) in act.pools.iter().filter(|(pool, _)| *pool == place) {
                    assert_eq!(*pool, place);
                    by_key.entry(key).or_default().push((act.at, act.ended, *amount));
                }
            }
            for acts in by_key.values() {
                let worst = worst(*world, acts);
                assert!(worst <= *limit, "{id}: {worst} of {limit}: {acts:?}");
            }
        }
    }
}

/// The most that any window has seen.
fn worst(world: World, acts: &[(i64, i64, u64)]) -> u64 {
    let sum = |is_in: &dyn Fn(&(i64, i64, u64)) -> bool| -> u64 {
        acts.iter().filter(|act| is_in(act)).map(|(_, _, amount)| amount).sum()
    };
    let each = acts.iter().map(|(at, _, _)| *at);
    match world {
        World::Fixed(length) => each
            .map(|at| sum(&|(other, _, _)| other.div_euclid(length) == at.div_euclid(length)))
            .max(),
        World::Sliding(length) => {
            each.map(|at| sum(&|(other, _, _)| (at..at + length).contains(other))).max()
        }
        // Any stretch of time sees at most the bucket and what came in during it.
        World::Bucket { refill, per } => each
            .clone()
            .flat_map(|from| each.clone().map(move |to| (from, to)))
            .filter(|(from, to)| from <= to)
            .map(|(from, to)| {
                let came_in = ((to - from) as u64 * refill).div_euclid(per as u64) + 1;
                sum(&|(at, _, _)| (from..=to).contains(at)).saturating_sub(came_in)
            })
            .max(),
        World::AtOnce => each.map(|at| sum(&|(from, to, _)| *from <= at && at < *to)).max(),
    }
    .unwrap_or(0)
}

/// The test itself.
struct Tried;

impl StateMachineTest for Tried {
    type SystemUnderTest = Living;
    type Reference = Nothing;

    fn init_test(_: &Nothing) -> Living {
        let setup = config().build(START).unwrap();
        Living {
            governor: Governor::new(config(), setup, START),
            config: config(),
            events: Vec::new(),
            now: START,
            number: 0,
            acts: Vec::new(),
            open: Vec::new(),
        }
    }

    fn apply(mut world: Living, _: &Nothing, step: Step) -> Living {
        match step {
            Step::Wait(ms) => {
                world.now += ms;
                world.expire();
            }
            Step::Ask { agent, identity, workload, amount, urgency, when, uses_less } => {
                let (name, pools) = WORKLOADS[usize::from(workload)];
                let urgency =
                    [Urgency::Background, Urgency::Normal, Urgency::High][usize::from(urgency)];
                let intent = Intent {
                    agent_id: format!("agent-{agent}"),
                    identity_id: format!("pat:{identity}"),
                    workload_id: name.to_owned(),
                    scope_id: "here".to_owned(),
                    urgency,
                    expected: Expected::number(f64::from(amount)).unwrap(),
                    duration_ms: None,
                    can_switch: false,
                    renew: None,
                    patience_ms: None,
                    named_only: false,
                };
                let decision = world.ask(&intent);
                if decision.answer != Answer::DenyWithReason {
                    let from = world.now + decision.wait_ms;
                    let until = decision.valid_until.unwrap();
                    assert!(until > from && decision.wait_ms <= 300_000);
                    let at = from + (until - from) * i64::from(when) / 1000;
                    let used = if uses_less { 1 } else { u64::from(amount) };
                    // Only one pool gives back what its clients say they did not use; the act is what counts.
                    let pools = pools.iter().map(|pool| (*pool, used)).collect();
                    world.acts.push(Act { agent, identity, at, ended: until, pools });
                    let act = world.acts.len() - 1;
                    world.open.push(Open {
                        id: decision.intent,
                        act,
                        workload,
                        from,
                        until,
                        uses_less,
                    });
                }
            }
            Step::Report(which) => {
                let acted: Vec<usize> = (0..world.open.len())
                    .filter(|place| world.acts[world.open[*place].act].at <= world.now)
                    .collect();
                if let Some(place) = acted.get(which % acted.len().max(1)).copied() {
                    let open = world.open.remove(place);
                    let used = world.acts[open.act].pools[0].1;
                    assert!(!open.uses_less || used == 1);
                    world.acts[open.act].ended = world.now.max(world.acts[open.act].at);
                    let asker = Asker::local();
                    let report = Report {
                        asker: &asker,
                        is_trusted: false,
                        intent: Some(open.id),
                        work: None,
                        by_pool: WORKLOADS[usize::from(open.workload)]
                            .1
                            .iter()
                            .map(|pool| (POOLS[*pool].0.to_owned(), used))
                            .collect(),
                        actual: Expected::UNKNOWN,
                        nothing: false,
                    };
                    let event = world.governor.report(&report, world.now).unwrap();
                    world.keep([event]);
                }
            }
            Step::Renew { which, added } => {
                // Only whoever may act now goes on.
                let may: Vec<usize> = (0..world.open.len())
                    .filter(|place| world.open[*place].from <= world.now)
                    .collect();
                if let Some(place) = may.get(which % may.len().max(1)).copied() {
                    let Open { id, act, workload, .. } = world.open[place].clone();
                    let intent = Intent {
                        agent_id: format!("agent-{}", world.acts[act].agent),
                        identity_id: format!("pat:{}", world.acts[act].identity),
                        workload_id: WORKLOADS[usize::from(workload)].0.to_owned(),
                        scope_id: "here".to_owned(),
                        urgency: Urgency::Normal,
                        expected: if added == 0 {
                            Expected::UNKNOWN
                        } else {
                            Expected::number(f64::from(added)).unwrap()
                        },
                        duration_ms: None,
                        can_switch: false,
                        renew: Some(id),
                        patience_ms: None,
                        named_only: false,
                    };
                    let decision = world.ask(&intent);
                    if decision.answer == Answer::Approve {
                        let open = &mut world.open[place];
                        open.until = decision.valid_until.unwrap();
                        world.acts[act].ended = open.until;
                        // Whoever has not acted yet may take until the new end.
                        if world.acts[act].at > world.now {
                            world.acts[act].at = open.until - 1;
                        }
                    }
                }
            }
            Step::Restart { from_snapshot } => {
                world.restart(from_snapshot);
                world.expire();
            }
            Step::Reload => {
                let event = Event {
                    ts: world.now,
                    about: tollgate_governor::About::default(),
                    effect: Effect::Configured(Box::new(tollgate_governor::Configured {
                        governor: Some(GovernorConfig {
                            governor: tollgate_governor::Settings {
                                keyless_identities: 1000 + world.number as u32,
                                ..world.config.governor.clone()
                            },
                            ..world.config.clone()
                        }),
                        about: serde_json::Map::new(),
                    })),
                };
                world.governor.apply(&event);
                world.keep([event]);
            }
        }
        world
    }

    fn teardown(mut world: Living, _: Nothing) {
        world.now += 1_000_000;
        world.expire();
        world.check();
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 256, ..Config::default() })]
    #[test]
    fn no_window_of_a_hard_pool_ever_sees_more_than_its_limit(sequential 20..200 => Tried);
}
