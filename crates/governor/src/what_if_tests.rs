use proptest::prelude::*;

use super::*;
use crate::{
    Basis, Expected, Halt, Observation, Report, Target,
    decide::tests::{Scene, config, intent},
    usage::GhostWork,
};

/// Pools of every kind, rules and risk: whatever a decision can depend on.
const EVERYTHING: &str = r#"{
    "pools": [
        {"id": "p:fixed", "limit": 40, "window": {"kind": "fixed", "every": "1m"}},
        {"id": "p:sliding", "limit": 12, "per": "identity", "window": {"kind": "sliding", "every": "20s"}},
        {"id": "p:bucket", "limit": 20, "per": "agent", "window": {"kind": "bucket", "refill": 2, "every": "1s"}},
        {"id": "p:points", "unit": "points", "limit": 5000, "risk_limit": 0.8, "trust_usage": true,
         "window": {"kind": "calendar", "every": "day"}},
        {"id": "p:running", "limit": 4, "window": {"kind": "concurrency"}, "valid_for": "3s"},
        {"id": "p:told", "window": {"kind": "provider", "every": "1m"}, "valid_for": "2s"}
    ],
    "routes": [
        {"workload": "scan*", "pools": [{"id": "p:fixed"}, {"id": "p:sliding"}]},
        {"workload": "burst", "pools": [{"id": "p:bucket"}, {"id": "p:points", "worst": 90}]},
        {"workload": "run", "pools": [{"id": "p:running"}]},
        {"workload": "told", "pools": [{"id": "p:told"}]}
    ],
    "rules": [
        {"id": "few", "workload": "scan*", "when": "pool.remaining_percent < 20.0 && intent.urgency == 'background'",
         "action": "defer", "because": "few are left"},
        {"id": "slow", "workload": "burst", "when": "forecast.burn_rate > 0.5", "action": "wait", "wait": "2s",
         "because": "not so fast"},
        {"id": "known", "when": "agent.demoted", "action": "warn", "because": "it cried wolf"}
    ]
}"#;

/// A history: whatever callers, providers and persons do, and time that passes.
fn history(seed: u64, steps: usize) -> Scene {
    let mut random = seed;
    let mut pick = move |bound: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut scene = Scene::new(config(EVERYTHING));
    let mut open: Vec<IntentId> = Vec::new();
    let asker = Asker::local();
    for _ in 0..steps {
        scene.now += i64::try_from(pick(900)).unwrap();
        let who = pick(4);
        let workloads = ["scan", "scan_all", "burst", "run", "told", "unmapped"];
        let asked = Intent {
            agent_id: format!("agent-{who}"),
            identity_id: format!("pat:{}", pick(2)),
            workload_id: workloads[usize::try_from(pick(6)).unwrap()].to_owned(),
            urgency: [Urgency::High, Urgency::Normal, Urgency::Background]
                [usize::try_from(pick(3)).unwrap()],
            expected: match pick(3) {
                0 => Expected::UNKNOWN,
                1 => Expected::number(1.0 + pick(3) as f64).unwrap(),
                _ => Expected::parse("1 call, 30 points").unwrap(),
            },
            duration_ms: (pick(4) == 0).then(|| i64::try_from(pick(20_000)).unwrap()),
            renew: None,
            ..intent()
        };
        match pick(12) {
            0..=6 => {
                let decision = scene.ask(&asked);
                if decision.answer.is_approval() {
                    open.push(decision.intent);
                }
            }
            7 | 8 if !open.is_empty() => {
                let id = open.swap_remove(usize::try_from(pick(open.len() as u64)).unwrap());
                let report = Report {
                    asker: &asker,
                    is_trusted: pick(2) == 0,
                    intent: Some(id),
                    work: None,
                    by_pool: Vec::new(),
                    actual: Expected::number(pick(4) as f64).unwrap(),
                    nothing: pick(5) == 0,
                };
                scene.events.extend(scene.governor.report(&report, scene.now));
            }
            9 => {
                if let Some(event) = scene.governor.expire(scene.now) {
                    scene.events.push(event);
                }
            }
            10 => {
                let seen = Observation {
                    limit: Some(10),
                    remaining: Some(pick(11)),
                    reset_at: Some(scene.now + 20_000),
                    ..Observation::default()
                };
                let pools = [("p:told".into(), "".into(), 0)];
                let now = scene.now;
                scene.events.extend(scene.governor.observe(&pools, &[seen], now, true, now));
            }
            _ => match pick(6) {
                0 => {
                    let target = Target::Agent("agent-3".into());
                    let halt = Halt { target, by: "admin".into(), why: None };
                    let resumes = pick(2) == 0;
                    scene.events.extend(scene.governor.halt(halt, resumes, scene.now));
                }
                1 if !open.is_empty() => {
                    let id = open[usize::try_from(pick(open.len() as u64)).unwrap()];
                    scene.ask(&Intent { renew: Some(id), ..asked });
                }
                2 => {
                    let known = scene.governor.identities().by_name("pat:0").cloned();
                    let Some(known) = known else { continue };
                    let work = crate::Work {
                        agent: &asked.agent_id,
                        identity: "pat:0",
                        workload: "scan",
                        scope: "repo:o/n",
                    };
                    let report = Report {
                        asker: &asker,
                        is_trusted: false,
                        intent: None,
                        work: Some(GhostWork { work, identity: &known.pseudonym }),
                        by_pool: Vec::new(),
                        actual: Expected::UNKNOWN,
                        nothing: false,
                    };
                    scene.events.extend(scene.governor.report(&report, scene.now));
                }
                _ => scene.events.extend(scene.governor.watch(scene.now)),
            },
        }
    }
    scene
}

/// The same history, asked again.
fn again(scene: &Scene, other: Option<GovernorConfig>) -> (WhatIf, Vec<Difference>) {
    let mut first = Scene::new(config(EVERYTHING));
    // What credentials are called is kept beside the chain.
    for named in scene.governor.identities().named() {
        first.governor.identities_mut().put(Named::clone(named));
    }
    let mut what_if = WhatIf::new(first.governor, other, first.now).unwrap();
    let asked: Vec<Difference> =
        scene.events.iter().filter_map(|event| what_if.next(event)).collect();
    (what_if, asked)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn an_unchanged_policy_changes_nothing(seed in prop_oneof![8 => any::<u64>(), 1 => Just(6_691_103_644_647_210_614)]) {
        let scene = history(seed, 400);
        let (what_if, asked) = again(&scene, None);
        let different: Vec<&Difference> = asked.iter().filter(|one| one.is_one()).collect();
        prop_assert!(different.is_empty(), "{:#?}", different.first());
        prop_assert!(asked.len() > 150);
        // Written out as the running one, it is the same.
        let (_, asked) = again(&scene, Some(config(EVERYTHING)));
        prop_assert!(asked.iter().all(|one| !one.is_one()));
        // And it ends where the history has ended.
        let ends = |governor: &Governor| {
            let all = governor.clone().forecasts(scene.now + 1, |_| true, 1000);
            // A meter that was only ever asked, and never took anything, is the same as none.
            let says_something = |one: &crate::Forecasted| {
                let reading = &one.reading;
                let has_none = [reading.used, reading.held, reading.booked, reading.estimated] == [0; 4];
                let is_known = one.forecast.as_ref().is_some_and(|known| known.basis != Basis::None);
                !has_none || is_known
            };
            let shown = |one: crate::Forecasted| (one.key, one.reading, one.forecast);
            all.into_iter().filter(says_something).map(shown).collect::<Vec<_>>()
        };
        prop_assert_eq!(ends(&scene.governor), ends(what_if.governor()));
    }
}

#[test]
fn a_history_has_all_kinds_of_answers() {
    let scene = history(7, 2000);
    let (_, asked) = again(&scene, None);
    let count = |wanted: Answer| asked.iter().filter(|one| one.before.answer == wanted).count();
    assert!(count(Answer::Approve) > 100, "{}", count(Answer::Approve));
    assert!(count(Answer::ApproveWithModifications) > 20);
    assert!(count(Answer::DenyWithReason) > 100);
    assert!(asked.iter().any(|one| !one.before.rules.is_empty()));
}

#[test]
fn a_stricter_policy_says_whom_it_would_have_stopped_and_why() {
    let scene = history(7, 600);
    let mut stricter = config(EVERYTHING);
    let rule =
        r#"{"id": "no-bursts", "workload": "burst", "action": "deny", "because": "too costly"}"#;
    stricter.rules.push(serde_json::from_str(rule).unwrap());
    let (_, asked) = again(&scene, Some(stricter));
    let different: Vec<&Difference> = asked.iter().filter(|one| one.is_one()).collect();
    let stopped = different.iter().filter(|one| &*one.workload == "burst");
    assert!(stopped.clone().count() > 20);
    for one in stopped {
        assert_eq!(one.after.reason, Some(Reason::PolicyViolation));
        assert!(one.why.contains("too costly"), "{}", one.why);
    }
}

#[test]
fn a_wider_limit_approves_what_was_denied() {
    let scene = history(11, 600);
    let mut wider = config(EVERYTHING);
    for pool in &mut wider.pools {
        pool.limit = pool.limit.map(|limit| limit * 100);
        pool.risk_limit = None;
    }
    wider.rules.clear();
    let (what_if, asked) = again(&scene, Some(wider));
    let denied = |one: &&Difference| one.before.reason == Some(Reason::HardLimitReached);
    let were: Vec<&Difference> =
        asked.iter().filter(denied).filter(|one| &*one.workload == "run").collect();
    assert!(were.len() > 5, "{}", were.len());
    assert!(were.iter().all(|one| one.after.answer.is_approval()));
    // What is approved in addition ends by itself.
    assert!(what_if.governor().open_holds() < 60, "{}", what_if.governor().open_holds());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_history_that_begins_with_a_checkpoint_is_the_same(seed: u64) {
        // The same seed does the same: the first half of the long one is the short one.
        let (half, whole) = (history(seed, 200), history(seed, 400));
        let text = serde_json::to_string(&half.governor.snapshot()).unwrap();
        let mut first = Scene::new(config(EVERYTHING)).governor;
        for named in whole.governor.identities().named() {
            first.identities_mut().put(Named::clone(named));
        }
        first.restore(serde_json::from_str(&text).unwrap());
        let mut what_if = WhatIf::new(first, None, half.now).unwrap();
        let rest = whole.events.iter().skip(half.events.len());
        let asked: Vec<Difference> = rest.filter_map(|event| what_if.next(event)).collect();
        let different: Vec<&Difference> = asked.iter().filter(|one| one.is_one()).collect();
        prop_assert!(asked.len() > 50);
        prop_assert!(different.is_empty(), "{:#?}", different.first());
    }
}
