use tollgate_contract::{Reason, Urgency};

use crate::{
    Answer, Expected, Intent,
    decide::tests::{Scene, config, intent},
};

const HOUR: i64 = 3_600_000;

/// One pool of so many calls an hour, and these rules.
fn scene(limit: u64, rules: &str) -> Scene {
    Scene::new(config(&format!(
        r#"{{"pools": [{{"id": "p:a", "limit": {limit}, "window": {{"kind": "fixed", "every": "1h"}}}}],
             "routes": [{{"pools": [{{"id": "p:a"}}]}}], "rules": [{rules}]}}"#
    )))
}

fn work(workload: &str) -> Intent {
    Intent { workload_id: workload.to_owned(), ..intent() }
}

#[test]
fn the_denied_are_told_the_rule_and_its_reason() {
    let mut scene = scene(
        100,
        r#"{"id": "no-deploys", "workload": "deploy*", "action": "deny", "because": "releases are frozen"}"#,
    );
    let no = scene.ask(&work("deploy_web"));
    assert_eq!((no.answer, no.reason), (Answer::DenyWithReason, Some(Reason::PolicyViolation)));
    assert_eq!(no.why, "the rule no-deploys says no: releases are frozen");
    assert!(!no.is_retryable());
    assert_eq!(scene.ask(&work("repo_scan")).answer, Answer::Approve);
    let recorded = format!("{:?}", scene.events);
    assert!(recorded.contains("no-deploys"), "what matched is recorded");
}

#[test]
fn a_rule_that_reads_a_pool_decides_by_what_is_left() {
    let mut scene = scene(
        10,
        r#"{"id": "keep-some", "pool": "p:a", "when": "pool.remaining_percent < 50.0 && intent.urgency != 'high'",
            "action": "defer", "because": "the rest is for what is urgent"}"#,
    );
    for _ in 0..6 {
        assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
    }
    let no = scene.ask(&intent());
    assert_eq!(no.reason, Some(Reason::DeferUntilReset));
    assert_eq!((no.pool.as_deref(), no.retry_at), (Some("p:a"), Some(scene.now + HOUR)));
    let urgent = Intent { urgency: Urgency::High, ..intent() };
    assert_eq!(scene.ask(&urgent).answer, Answer::Approve);
}

#[test]
fn the_strictest_rule_wins_and_all_are_told() {
    let mut scene = scene(
        100,
        r#"{"id": "heads-up", "action": "warn", "because": "this is metered"},
           {"id": "slowly", "action": "wait", "wait": "10s", "because": "not so fast"},
           {"id": "never", "workload": "bad", "action": "deny", "because": "no"}"#,
    );
    let waits = scene.ask(&work("good"));
    assert_eq!(waits.answer, Answer::ApproveWithModifications);
    assert!((10_000..=10_700).contains(&waits.wait_ms), "{}", waits.wait_ms);
    assert_eq!(waits.warnings, ["heads-up: this is metered"]);
    let no = scene.ask(&work("bad"));
    assert_eq!(no.reason, Some(Reason::PolicyViolation));
    assert_eq!(no.warnings.len(), 1);
}

#[test]
fn a_wait_beyond_what_may_be_booked_is_a_no() {
    let mut scene =
        scene(100, r#"{"id": "later", "action": "wait", "wait": "10m", "because": "later"}"#);
    let no = scene.ask(&intent());
    assert_eq!(
        (no.reason, no.retry_at),
        (Some(Reason::DeferUntilReset), Some(scene.now + 600_000))
    );
}

#[test]
fn paced_work_is_spread_until_the_reset() {
    let mut scene =
        scene(240, r#"{"id": "evenly", "action": "wait", "wait": "paced", "because": "evenly"}"#);
    // 3,600 seconds for 240 calls: one every fifteen.
    let waits = scene.ask(&intent());
    assert_eq!(waits.answer, Answer::ApproveWithModifications);
    assert!((14_000..=17_000).contains(&waits.wait_ms), "{}", waits.wait_ms);
}

#[test]
fn what_cannot_be_evaluated_restricts_and_never_permits() {
    // A provider's pool of which nothing is known yet has no limit to be read.
    let of = |action: &str| {
        config(&format!(
            r#"{{"pools": [{{"id": "p:a", "window": {{"kind": "provider", "every": "1h"}}}}],
                 "routes": [{{"pools": [{{"id": "p:a"}}]}}],
                 "rules": [{{"id": "r", "when": "pool.limit < 10", "action": "{action}", "because": "too few"}}]}}"#
        ))
    };
    let no = Scene::new(of("deny")).ask(&intent());
    assert_eq!(no.reason, Some(Reason::PolicyViolation));
    assert!(no.why.contains("could not be evaluated"), "{}", no.why);
    let passes = Scene::new(of("approve")).ask(&intent());
    assert_eq!(passes.answer, Answer::Approve, "the rule is as if it were not there");
}

/// A pool that is used evenly, and would be exhausted long before the hour ends.
fn burning(risk_limit: &str, rules: &str) -> Scene {
    let mut scene = Scene::new(config(&format!(
        r#"{{"pools": [{{"id": "p:a", "limit": 1000, "window": {{"kind": "fixed", "every": "1h"}} {risk_limit}}}],
             "routes": [{{"pools": [{{"id": "p:a"}}]}}], "rules": [{rules}]}}"#
    )));
    for number in 0..120 {
        scene.now += 1000;
        // Each by somebody else: who claims so often to be urgent is not believed.
        let agent_id = format!("urgent-{number}");
        scene.ask(&Intent { urgency: Urgency::High, agent_id, ..intent() });
    }
    scene
}

#[test]
fn risk_is_advice_unless_the_pool_sets_a_limit() {
    assert_eq!(burning("", "").ask(&intent()).answer, Answer::Approve);
    let mut scene = burning(r#", "risk_limit": 0.5"#, "");
    let no = scene.ask(&intent());
    assert_eq!(no.reason, Some(Reason::RiskTooHigh));
    assert!(no.why.contains('%') && no.is_retryable(), "{no:?}");
    let urgent = Intent { urgency: Urgency::High, ..intent() };
    assert_eq!(scene.ask(&urgent).answer, Answer::Approve, "it is what the rest is kept for");
    // When nobody burns any more, the risk is gone.
    scene.now += HOUR / 2;
    assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
}

#[test]
fn an_approving_rule_skips_risk_and_never_a_hard_limit() {
    let rule = r#"{"id": "always", "workload": "repo_scan", "action": "approve"}"#;
    let mut scene = burning(r#", "risk_limit": 0.5"#, rule);
    assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
    let large = Intent { expected: Expected::number(1000.0).unwrap(), ..intent() };
    assert_eq!(scene.ask(&large).answer, Answer::DenyWithReason);
}

#[test]
fn rules_read_forecasts() {
    let rule = r#"{"id": "running-out", "when": "forecast.p_exhaust > 0.9 && forecast.tte_p50 < 1800.0",
                   "action": "deny", "because": "it will not last"}"#;
    let no = burning("", &rule.replace("1800.0", "3600.0")).ask(&intent());
    assert_eq!(no.reason, Some(Reason::PolicyViolation));
    // The first ask of all finds a forecast that says nothing, and passes.
    let first = self::scene(1000, rule).ask(&intent());
    assert_eq!(first.answer, Answer::Approve);
}

#[test]
fn a_renewal_keeps_to_the_rules() {
    let mut scene = scene(
        100,
        r#"{"id": "day", "during": {"from": "00:00", "to": "12:00"}, "action": "warn", "because": "-"},
           {"id": "enough", "when": "pool.used + pool.held >= 2", "action": "deny", "because": "enough"}"#,
    );
    let first = scene.ask(&intent());
    assert_eq!(first.answer, Answer::Approve);
    scene.ask(&work("other"));
    let again = Intent { renew: Some(first.intent), ..intent() };
    assert_eq!(scene.ask(&again).reason, Some(Reason::PolicyViolation));
}

#[test]
fn what_nobody_says_is_learned_where_that_does_no_harm() {
    let of = |unit: &str, hard: bool| {
        config(&format!(
            r#"{{"pools": [{{"id": "p:a", "unit": "{unit}", "limit": 1000000, "hard": {hard}, "trust_usage": true,
                            "window": {{"kind": "fixed", "every": "1h"}}}}],
                 "routes": [{{"pools": [{{"id": "p:a", "worst": 9000}}]}}]}}"#
        ))
    };
    let held = |unit: &str, hard: bool| {
        let mut scene = Scene::new(of(unit, hard));
        assert_eq!(scene.ask(&intent()).pools[0].amount, 9000, "the worst, while nothing is known");
        for number in 0..30 {
            scene.now += 1000;
            let id = scene.ask(&intent()).intent;
            scene.report(id, 100 + number, false).unwrap();
        }
        assert_eq!(scene.governor.learned_costs()[0].samples, 30);
        scene.ask(&intent()).pools[0].amount
    };
    assert!((120..=135).contains(&held("points", true)));
    assert!((120..=135).contains(&held("tokens", false)));
    assert_eq!(held("tokens", true), 9000, "too much would be real harm");
}

#[test]
fn a_pool_that_will_not_last_is_told_of_once_and_when_the_danger_is_over() {
    let mut scene = burning("", "");
    let told = scene.governor.watch(scene.now);
    let crate::Effect::Crossed(crossed) = &told[0].effect else { panic!("{told:?}") };
    assert_eq!((told.len(), &*crossed.pool, crossed.rises), (1, "p:a", true));
    assert!(crossed.p_exhaust_percent >= 90 && crossed.exhausted_at.is_some());
    let before = scene.governor.snapshot();
    scene.ask(&intent());
    assert!(scene.governor.watch(scene.now).is_empty(), "it is known already");
    // Also behind a restart.
    scene.governor.restore(before);
    scene.ask(&intent());
    assert!(scene.governor.watch(scene.now).is_empty());
    scene.now += HOUR / 2;
    let over = scene.governor.watch(scene.now);
    assert!(matches!(&over[0].effect, crate::Effect::Crossed(crossed) if !crossed.rises));
    assert!(!scene.governor.has_to_watch());
}

#[test]
fn paced_asks_stand_one_behind_the_other() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "p:a", "limit": 60, "window": {"kind": "sliding", "every": "1m"}}],
            "routes": [{"pools": [{"id": "p:a"}]}],
            "rules": [{"id": "evenly", "action": "wait", "wait": "paced", "because": "evenly"}]}"#,
    ));
    // One a second.
    let mut last = 0;
    for number in 0..8 {
        let agent_id = format!("agent-{number}");
        let wait = scene.ask(&Intent { agent_id, ..intent() }).wait_ms;
        assert!((last + 900..=last + 1600).contains(&wait), "{last} {wait}");
        last = wait;
    }
}

#[test]
fn a_renewal_does_not_get_round_a_wait() {
    let rule = r#"{"id": "slowly", "action": "wait", "wait": "10s", "because": "slowly"}"#;
    let mut scene = scene(100, rule);
    let booked = scene.ask(&intent());
    let again = Intent { renew: Some(booked.intent), ..intent() };
    assert_eq!(scene.ask(&again).reason, Some(Reason::PolicyViolation), "its slot has not begun");
    scene.now += booked.wait_ms;
    assert_eq!(scene.ask(&again).answer, Answer::Approve, "for longer, and no more of it");
    let more = Intent { expected: Expected::number(5.0).unwrap(), ..again };
    assert_eq!(scene.ask(&more).answer, Answer::DenyWithReason);
}

#[test]
fn whoever_is_not_believed_teaches_no_costs() {
    let of = |trust: bool| {
        config(&format!(
            r#"{{"pools": [{{"id": "p:a", "unit": "points", "limit": 1000000, "trust_usage": {trust},
                            "window": {{"kind": "fixed", "every": "1h"}}}}],
                 "routes": [{{"pools": [{{"id": "p:a", "worst": 1000}}]}}]}}"#
        ))
    };
    let held = |trust: bool, used: u64| {
        let mut scene = Scene::new(of(trust));
        for _ in 0..30 {
            let cheap = Intent { expected: Expected::number(1.0).unwrap(), ..intent() };
            let id = scene.ask(&cheap).intent;
            scene.report(id, used, false).unwrap();
        }
        scene.ask(&intent()).pools[0].amount
    };
    assert_eq!(held(false, 1), 1000);
    assert_eq!(held(false, 9000), 1000);
    assert!((1..=2).contains(&held(true, 1)), "never nothing");
    assert_eq!(held(true, 9000), 1000, "never more than the worst");
}
