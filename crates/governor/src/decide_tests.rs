use super::*;
use crate::{
    config::GovernorConfig,
    effect::Halt,
    intent::{Expected, LOCAL},
    usage::{GhostWork, Observation, Report, ReportRefused},
};

const HOUR: i64 = 3_600_000;

/// A governor, and somebody who asks it.
pub(crate) struct Scene {
    pub(crate) governor: Governor,
    pub(crate) events: Vec<Event>,
    pub(crate) now: i64,
    number: u64,
}

pub(crate) fn config(toml_like: &str) -> GovernorConfig {
    serde_json::from_str(toml_like).unwrap()
}

impl Scene {
    pub(crate) fn new(config: GovernorConfig) -> Self {
        let now = 1000 * HOUR;
        let setup = config.build(now).unwrap();
        let governor = Governor::new(config, setup, now);
        Self { governor, events: Vec::new(), now, number: 0 }
    }

    pub(crate) fn ask_as(&mut self, asker: &Asker, intent: &Intent) -> Decision {
        self.number += 1;
        let id = IntentId::from_parts(
            u64::try_from(self.now).unwrap(),
            [&[0, 0][..], &self.number.to_be_bytes()].concat().try_into().unwrap(),
        );
        let fresh = Fresh {
            pseudonym: format!("idn_{}", self.number).into(),
            salt: String::new(),
            name_hash: "".into(),
        };
        let ask = Ask {
            asker,
            intent,
            id,
            fresh: &fresh,
            request: None,
            context_hash: None,
            wants_trace: false,
        };
        let outcome = self.governor.decide(&ask, self.now).unwrap();
        self.events.extend(outcome.events);
        outcome.decision
    }

    pub(crate) fn ask(&mut self, intent: &Intent) -> Decision {
        self.ask_as(&Asker::local(), intent)
    }

    pub(crate) fn report(
        &mut self,
        intent: IntentId,
        used: u64,
        trusted: bool,
    ) -> Result<(), ReportRefused> {
        let asker = Asker::local();
        let report = Report {
            asker: &asker,
            is_trusted: trusted,
            intent: Some(intent),
            work: None,
            by_pool: Vec::new(),
            actual: Expected::number(used as f64).unwrap(),
            nothing: false,
        };
        let event = self.governor.report(&report, self.now)?;
        self.events.push(event);
        Ok(())
    }

    fn expire(&mut self) {
        while let Some(event) = self.governor.expire(self.now) {
            self.events.push(event);
        }
    }

    fn left(&self, pool: &str) -> u64 {
        let place = self.governor.setup.place_of(pool).unwrap();
        let pool = self.governor.setup.pool(place).unwrap();
        let meter = self.governor.meters[place].values().next().unwrap();
        meter.read(pool, self.now).left.unwrap()
    }
}

pub(crate) fn intent() -> Intent {
    Intent {
        agent_id: "crawler-01".to_owned(),
        identity_id: "pat:me".to_owned(),
        workload_id: "repo_scan".to_owned(),
        scope_id: "repo:o/n".to_owned(),
        urgency: Urgency::Normal,
        expected: Expected::UNKNOWN,
        duration_ms: None,
        can_switch: false,
        renew: None,
        patience_ms: None,
        named_only: false,
    }
}

fn by(agent: &str, urgency: Urgency) -> Intent {
    Intent { agent_id: agent.to_owned(), urgency, ..intent() }
}

fn costs(amount: f64) -> Intent {
    Intent { expected: Expected::number(amount).unwrap(), ..intent() }
}

fn one_pool(limit: u64, window: &str) -> GovernorConfig {
    config(&format!(
        r#"{{"pools": [{{"id": "p:a", "limit": {limit}, "window": {window}}}],
             "routes": [{{"pools": [{{"id": "p:a"}}]}}]}}"#
    ))
}

const FIXED_HOUR: &str = r#"{"kind": "fixed", "every": "1h"}"#;

#[test]
fn the_first_ask_of_a_new_user_is_answered_and_metered() {
    let mut scene = Scene::new(GovernorConfig::usual());
    let decision = scene.ask(&intent());
    assert_eq!(decision.answer, Answer::Approve);
    assert_eq!(decision.valid_until, Some(scene.now + 60_000));
    assert_eq!(decision.summary(), "4999 of 5000 calls left in default:calls");
    // Each credential has a pool of its own.
    let other = scene.ask(&Intent { identity_id: "pat:other".to_owned(), ..intent() });
    assert_eq!(other.pools[0].remaining, Some(4999));
    assert_eq!(scene.events.len(), 4, "two credentials, two decisions");
}

#[test]
fn what_never_fits_is_denied_for_good_and_what_no_route_maps_too() {
    let mut scene = Scene::new(one_pool(10, FIXED_HOUR));
    let decision = scene.ask(&costs(11.0));
    assert_eq!(decision.reason, Some(Reason::HardLimitReached));
    assert!(!decision.is_retryable());
    assert_eq!(scene.ask(&costs(9.2)).pools[0].amount, 10, "rounded up");
    let routed = config(
        r#"{"pools": [{"id": "p:a", "limit": 5, "window": {"kind": "concurrency"}}],
            "routes": [{"workload": "repo_*", "pools": [{"id": "p:a"}]}]}"#,
    );
    let mut scene = Scene::new(routed);
    assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
    let decision = scene.ask(&Intent { workload_id: "report".to_owned(), ..intent() });
    assert_eq!(decision.reason, Some(Reason::UnmappedWorkload));
    assert!(!decision.is_retryable());
}

#[test]
fn a_decision_holds_in_every_pool_or_in_none() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "p:core", "limit": 10, "window": {"kind": "fixed", "every": "1h"}},
                      {"id": "p:search", "limit": 1, "window": {"kind": "fixed", "every": "1h"}}],
            "routes": [{"pools": [{"id": "p:core"}, {"id": "p:search"}]}]}"#,
    ));
    assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
    let decision = scene.ask(&intent());
    assert_eq!(decision.answer, Answer::DenyWithReason);
    assert_eq!(decision.pool.as_deref(), Some("p:search"));
    assert_eq!(
        (decision.reason, decision.retry_at),
        (Some(Reason::DeferUntilReset), Some(1001 * HOUR))
    );
    assert_eq!((scene.left("p:core"), scene.left("p:search")), (9, 0));
}

#[test]
fn a_wait_within_reach_is_a_booking_that_later_asks_do_not_move() {
    let mut scene = Scene::new(one_pool(2, FIXED_HOUR));
    scene.now += HOUR - 20_000;
    assert_eq!(scene.ask(&costs(2.0)).answer, Answer::Approve);
    // The hold crosses the reset and counts in both windows: nobody else gets into the next one either.
    let denied = scene.ask(&intent());
    assert_eq!(denied.retry_at, Some(1002 * HOUR));
    let mut scene = Scene::new(one_pool(2, FIXED_HOUR));
    scene.now += HOUR - 20_000;
    let first = scene.ask(&costs(2.0)).intent;
    scene.report(first, 2, false).unwrap();
    let waits = scene.ask(&intent());
    assert_eq!(waits.answer, Answer::ApproveWithModifications);
    assert!((20_000..=22_000).contains(&waits.wait_ms), "{}", waits.wait_ms);
    // High urgency may book five seconds ahead, and this is twenty.
    assert_eq!(scene.ask(&by("other", Urgency::High)).answer, Answer::DenyWithReason);
    assert!(scene.ask(&by("other", Urgency::Normal)).wait_ms >= 20_000);
    assert_eq!(scene.ask(&by("third", Urgency::Normal)).answer, Answer::DenyWithReason);
    scene.now += waits.wait_ms;
    scene.expire();
    assert_eq!(scene.left("p:a"), 0, "the next window is booked");
}

#[test]
fn a_hold_is_settled_once_and_clients_cannot_refund_a_hard_pool() {
    let mut scene = Scene::new(one_pool(10, FIXED_HOUR));
    let id = scene.ask(&costs(4.0)).intent;
    scene.report(id, 1, false).unwrap();
    assert_eq!(scene.left("p:a"), 6, "nobody believes a client that it used less");
    assert_eq!(scene.report(id, 1, false), Err(ReportRefused::Unknown));
    let id = scene.ask(&costs(2.0)).intent;
    scene.report(id, 3, false).unwrap();
    assert_eq!(scene.left("p:a"), 3, "but more counts");
    let id = scene.ask(&costs(3.0)).intent;
    scene.report(id, 1, true).unwrap();
    assert_eq!(scene.left("p:a"), 2, "the gate is believed about its own calls");
    let id = scene.ask(&intent()).intent;
    let report = |asker: &Asker, scene: &mut Scene| {
        let report = Report {
            asker,
            is_trusted: false,
            intent: Some(id),
            work: None,
            by_pool: vec![("p:b".to_owned(), 1)],
            actual: Expected::UNKNOWN,
            nothing: false,
        };
        scene.governor.report(&report, scene.now).map(drop)
    };
    assert_eq!(report(&Asker::local(), &mut scene), Err(ReportRefused::OtherPool));
    let stranger = Asker { account: "other".into(), ..Asker::local() };
    assert_eq!(report(&stranger, &mut scene), Err(ReportRefused::Unknown));
}

#[test]
fn a_hold_that_nobody_settles_is_spent_unless_its_pool_says_otherwise() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "p:a", "limit": 10, "window": {"kind": "fixed", "every": "1h"}},
                      {"id": "p:b", "limit": 10, "on_expiry": "release", "window": {"kind": "fixed", "every": "1h"}},
                      {"id": "p:c", "limit": 10, "window": {"kind": "concurrency"}}],
            "routes": [{"pools": [{"id": "p:a"}, {"id": "p:b"}, {"id": "p:c"}]}]}"#,
    ));
    let id = scene.ask(&costs(4.0)).intent;
    scene.now += 60_001;
    scene.expire();
    assert_eq!((scene.left("p:a"), scene.left("p:b"), scene.left("p:c")), (6, 10, 10));
    // A late report corrects upwards, and only once.
    scene.report(id, 5, false).unwrap();
    assert_eq!(scene.left("p:a"), 5);
    assert_eq!(scene.report(id, 5, false), Err(ReportRefused::Unknown));
}

#[test]
fn a_renewal_extends_the_hold_charges_what_is_added_and_may_be_refused() {
    let mut scene = Scene::new(one_pool(3, r#"{"kind": "concurrency"}"#));
    let first = scene.ask(&intent());
    scene.now += 30_000;
    let again = Intent { renew: Some(first.intent), ..intent() };
    let renewed = scene.ask(&again);
    assert_eq!((renewed.answer, renewed.intent), (Answer::Approve, first.intent));
    assert_eq!(renewed.valid_until, Some(scene.now + 60_000));
    assert_eq!(scene.left("p:a"), 2, "nothing was added");
    let more = Intent { expected: Expected::number(1.0).unwrap(), ..again.clone() };
    assert_eq!(scene.ask(&more).answer, Answer::Approve);
    assert_eq!(scene.left("p:a"), 1);
    scene.ask(&by("other", Urgency::Normal));
    let refused = scene.ask(&more);
    assert_eq!(refused.answer, Answer::DenyWithReason, "somebody else has the rest");
    assert_eq!(scene.left("p:a"), 0, "what it has it keeps until its time is over");
    let stolen = Intent { agent_id: "thief".to_owned(), ..again.clone() };
    assert_eq!(scene.ask(&stolen).reason, Some(Reason::PolicyViolation));
    scene.now += 100_000;
    scene.expire();
    assert_eq!(scene.ask(&again).reason, Some(Reason::PolicyViolation), "it is over");
}

#[test]
fn claims_beyond_the_key_are_a_policy_violation() {
    let mut scene = Scene::new(GovernorConfig::usual());
    let asker = Asker {
        account: "team".into(),
        key: "key_1".into(),
        is_keyless: false,
        agents: Arc::new(["crawler-*".to_owned()]),
        identities: Arc::new(["pat:me".to_owned()]),
        max_urgency: Urgency::Normal,
        is_vouched: false,
    };
    assert_eq!(scene.ask_as(&asker, &intent()).answer, Answer::Approve);
    for wrong in [
        Intent { agent_id: "deployer".to_owned(), ..intent() },
        Intent { identity_id: "pat:you".to_owned(), ..intent() },
        Intent { urgency: Urgency::High, ..intent() },
    ] {
        let decision = scene.ask_as(&asker, &wrong);
        assert_eq!(decision.reason, Some(Reason::PolicyViolation));
        assert!(!decision.is_retryable());
    }
    assert!(scene.governor.identities().by_name("pat:you").is_none(), "it was not even named");
}

#[test]
fn who_hides_its_identity_or_cries_wolf_is_background_work() {
    let mut scene = Scene::new(one_pool(100, FIXED_HOUR));
    scene.ask(&Intent { identity_id: UNKNOWN.to_owned(), urgency: Urgency::High, ..intent() });
    let Effect::Decided(decided) = &scene.events.last().unwrap().effect else { panic!() };
    assert_eq!((decided.urgency, decided.claimed), (Urgency::Background, Some(Urgency::High)));
    for _ in 0..25 {
        scene.ask(&by("wolf", Urgency::High));
    }
    let decision = scene.ask(&by("wolf", Urgency::High));
    assert!(decision.summary().contains("demoted to background"), "{}", decision.summary());
    assert!(!scene.ask(&by("sheep", Urgency::High)).summary().contains("demoted"));
    scene.now += 11 * 60_000;
    assert!(!scene.ask(&by("wolf", Urgency::High)).summary().contains("demoted"));
    // Whoever acts without asking is demoted as well.
    let work = Work { agent: "ghost", identity: "pat:me", workload: "repo_scan", scope: "x" };
    let pseudonym: Arc<str> = "idn_1".into();
    for _ in 0..5 {
        let asker = Asker::local();
        let report = Report {
            asker: &asker,
            is_trusted: false,
            intent: None,
            work: Some(GhostWork { work, identity: &pseudonym }),
            by_pool: Vec::new(),
            actual: Expected::UNKNOWN,
            nothing: false,
        };
        scene.governor.report(&report, scene.now).unwrap();
    }
    assert!(scene.ask(&by("ghost", Urgency::Normal)).summary().contains("demoted"));
}

#[test]
fn another_credential_of_the_group_is_offered_to_whoever_can_switch() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "p:a", "limit": 1, "per": "identity", "window": {"kind": "fixed", "every": "1h"}}],
            "routes": [{"pools": [{"id": "p:a"}]}]}"#,
    ));
    for name in ["pat:me", "pat:spare"] {
        let named = Named {
            name: name.to_owned(),
            pseudonym: format!("idn_{name}").into(),
            salt: String::new(),
            kind: None,
            group: Some("github".to_owned()),
            metadata: None,
            since_ms: 0,
        };
        let fresh = Fresh {
            pseudonym: Arc::clone(&named.pseudonym),
            salt: String::new(),
            name_hash: "".into(),
        };
        scene.governor.register(named, &fresh, false, scene.now);
    }
    scene.ask(&intent());
    assert_eq!(scene.ask(&intent()).answer, Answer::DenyWithReason);
    let switched = scene.ask(&Intent { can_switch: true, ..intent() });
    assert_eq!(switched.answer, Answer::ApproveWithModifications);
    assert_eq!(switched.identity_switch.as_deref(), Some("pat:spare"));
    assert_eq!(scene.ask(&Intent { can_switch: true, ..intent() }).answer, Answer::DenyWithReason);
}

#[test]
fn a_stale_pool_is_probed_once_its_window_is_over() {
    let mut scene = Scene::new(provider());
    scene.ask(&costs(10.0));
    let reset = scene.now + HOUR / 2;
    scene.observe(100, 90, reset, scene.now);
    scene.now += HOUR / 4;
    scene.expire();
    let denied = scene.ask(&intent());
    assert_eq!((denied.answer, denied.retry_at), (Answer::DenyWithReason, Some(reset)));
    scene.now = reset + 1;
    assert_eq!(scene.ask(&intent()).answer, Answer::Approve, "a probe");
    assert_eq!(scene.ask(&intent()).answer, Answer::DenyWithReason, "one at a time");
}

#[test]
fn the_same_request_gets_the_same_answer_and_holds_once() {
    let mut scene = Scene::new(one_pool(10, FIXED_HOUR));
    let ask = |scene: &mut Scene, amount: f64, content: &str| {
        let (asker, intent) = (Asker::local(), costs(amount));
        scene.number += 1;
        let fresh = Fresh { pseudonym: "idn_1".into(), salt: String::new(), name_hash: "".into() };
        let mut random = [0; 10];
        random[9] = u8::try_from(scene.number).unwrap();
        let ask = Ask {
            asker: &asker,
            intent: &intent,
            id: IntentId::from_parts(1, random),
            fresh: &fresh,
            request: Some(("mine", content)),
            context_hash: None,
            wants_trace: false,
        };
        scene.governor.decide(&ask, scene.now).map(|outcome| outcome.decision)
    };
    let first = ask(&mut scene, 3.0, "x").unwrap();
    let again = ask(&mut scene, 3.0, "x").unwrap();
    assert_eq!((again.intent, again.answer), (first.intent, first.answer));
    assert_eq!(scene.left("p:a"), 7);
    assert_eq!(ask(&mut scene, 4.0, "y").unwrap_err(), AnotherRequest);
    scene.now += 11 * 60_000;
    scene.expire();
    assert_ne!(ask(&mut scene, 3.0, "x").unwrap().intent, first.intent, "it is forgotten");
}

#[test]
fn money_is_settled_by_the_tokens_that_were_used() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "llm:tokens", "unit": "tokens", "limit": 100000, "price": 3000000, "window": {"kind": "fixed", "every": "1h"}},
                      {"id": "team:money", "unit": "usd_micros", "limit": 1000000, "window": {"kind": "fixed", "every": "1h"}}],
            "routes": [{"pools": [{"id": "llm:tokens", "worst": 4000}, {"id": "team:money"}]}]}"#,
    ));
    let id = scene.ask(&intent()).intent;
    assert_eq!(scene.left("team:money"), 988_000);
    let more =
        Intent { renew: Some(id), expected: Expected::parse("500 tokens").unwrap(), ..intent() };
    assert_eq!(scene.ask(&more).answer, Answer::Approve);
    assert_eq!(scene.left("team:money"), 986_500);
    let asker = Asker::local();
    let report = Report {
        asker: &asker,
        is_trusted: true,
        intent: Some(id),
        work: None,
        by_pool: Vec::new(),
        actual: Expected::parse("1000 tokens").unwrap(),
        nothing: false,
    };
    scene.governor.report(&report, scene.now).unwrap();
    assert_eq!((scene.left("llm:tokens"), scene.left("team:money")), (99_000, 997_000));
}

#[test]
fn a_booking_cannot_be_moved_to_another_window_by_reporting_early() {
    let mut scene = Scene::new(one_pool(2, FIXED_HOUR));
    scene.now += HOUR - 20_000;
    let first = scene.ask(&costs(2.0)).intent;
    scene.report(first, 2, false).unwrap();
    let waits = scene.ask(&costs(2.0));
    assert!(waits.wait_ms >= 20_000);
    assert_eq!(scene.report(waits.intent, 0, false), Err(ReportRefused::TooEarly));
    let denied = scene.ask(&by("other", Urgency::Background));
    assert_eq!(denied.answer, Answer::DenyWithReason, "the slot is still taken");
    scene.now += waits.wait_ms;
    scene.report(waits.intent, 0, false).unwrap();
    assert_eq!(scene.left("p:a"), 0);
    // The gate knows of its own calls that nothing was done.
    let mut scene = Scene::new(one_pool(2, FIXED_HOUR));
    scene.now += HOUR - 20_000;
    let first = scene.ask(&costs(2.0)).intent;
    scene.report(first, 2, false).unwrap();
    let waits = scene.ask(&costs(2.0)).intent;
    scene.report(waits, 0, true).unwrap();
    assert!(scene.ask(&costs(2.0)).wait_ms >= 20_000);
}

fn two_pools(b: &str) -> GovernorConfig {
    config(&format!(
        r#"{{"pools": [{{"id": "p:a", "limit": 100, "window": {FIXED_HOUR}}}{b}],
             "routes": [{{"pools": [{{"id": "p:a"}}{}]}}]}}"#,
        if b.is_empty() { "" } else { r#", {"id": "p:b"}"# }
    ))
}

const SECOND: &str = r#", {"id": "p:b", "limit": 12, "window": {"kind": "fixed", "every": "1h"}, "valid_for": "1s"}"#;

impl Scene {
    fn reload(&mut self, config: GovernorConfig) {
        let configured =
            crate::effect::Configured { governor: Some(config), about: serde_json::Map::new() };
        let effect = Effect::Configured(Box::new(configured));
        self.governor.apply(&Event { ts: self.now, about: About::default(), effect });
    }
}

#[test]
fn what_a_renewal_or_report_says_without_a_unit_counts_in_every_pool_of_that_unit() {
    let mut scene = Scene::new(two_pools(SECOND));
    let id = scene.ask(&costs(5.0)).intent;
    assert_eq!((scene.left("p:a"), scene.left("p:b")), (95, 7));
    let more = Intent { renew: Some(id), ..costs(10.0) };
    assert_eq!(scene.ask(&more).answer, Answer::DenyWithReason, "the second has no room for it");
    scene.report(id, 8, false).unwrap();
    assert_eq!((scene.left("p:a"), scene.left("p:b")), (92, 4));
}

#[test]
fn taking_a_pool_out_and_putting_it_back_neither_refunds_nor_leaks() {
    let mut scene = Scene::new(two_pools(SECOND));
    let kept = scene.ask(&costs(5.0)).intent;
    scene.ask(&by("other", Urgency::Normal));
    scene.reload(two_pools(""));
    scene.now += 1500;
    // One is settled while the pool is gone, the other one expires.
    scene.report(kept, 5, false).unwrap();
    scene.expire();
    let lines = Intent { renew: Some(kept), ..intent() };
    assert_eq!(scene.ask(&lines).reason, Some(Reason::PolicyViolation));
    scene.reload(two_pools(SECOND));
    assert_eq!(scene.left("p:b"), 6);
    let place = scene.governor.setup.place_of("p:b").unwrap();
    assert!(scene.governor.meters[place].values().all(|meter| meter.open() == 0));
}

#[test]
fn a_renewal_is_for_the_same_work() {
    let mut scene = Scene::new(one_pool(10, FIXED_HOUR));
    let id = scene.ask(&intent()).intent;
    let again = Intent { renew: Some(id), ..intent() };
    assert_eq!(scene.ask(&again).answer, Answer::Approve);
    for other in [
        Intent { identity_id: "pat:other".to_owned(), ..again.clone() },
        Intent { workload_id: "deploy".to_owned(), ..again.clone() },
        Intent { scope_id: "elsewhere".to_owned(), ..again.clone() },
    ] {
        assert_eq!(scene.ask(&other).reason, Some(Reason::PolicyViolation));
    }
}

#[test]
fn whoever_asks_for_what_never_fits_takes_no_share_from_others() {
    let mut scene = Scene::new(one_pool(100, FIXED_HOUR));
    scene.ask(&costs(5.0));
    for number in 0..60 {
        let agent = format!("fake-{number}");
        scene.ask(&Intent { agent_id: agent, ..costs(1000.0) });
    }
    assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
}

#[test]
fn a_learned_limit_and_a_learned_end_are_no_longer_than_the_pool_says() {
    let mut scene = Scene::new(provider());
    scene.ask(&intent());
    let far = scene.now + 1_000_000 * HOUR;
    scene.observe(5000, 0, far, scene.now);
    assert_eq!(scene.left("github:core"), 0);
    assert_eq!(scene.ask(&intent()).retry_at, Some(scene.now + HOUR));
    scene.now += HOUR + 120_000;
    scene.expire();
    assert!(scene.left("github:core") > 4000, "the window is over");
    // Once the pool has a limit of its own, what a provider said does not count.
    scene.reload(config(
        r#"{"pools": [{"id": "github:core", "limit": 10, "per": "identity", "window": {"kind": "fixed", "every": "1h"}}],
            "routes": [{"pools": [{"id": "github:core"}]}]}"#,
    ));
    assert_eq!(scene.ask(&costs(11.0)).reason, Some(Reason::HardLimitReached));
}

#[test]
fn a_halt_stops_what_it_names_and_a_resume_lets_it_go_on() {
    let mut scene = Scene::new(GovernorConfig::usual());
    let halt = |target: Target| Halt { target, by: LOCAL.into(), why: None };
    scene.governor.halt(halt(Target::Agent("crawler-01".into())), false, scene.now).unwrap();
    assert_eq!(scene.ask(&intent()).reason, Some(Reason::Halted));
    assert_eq!(scene.ask(&by("other", Urgency::Normal)).answer, Answer::Approve);
    scene.governor.halt(halt(Target::Pool("default:calls".into())), false, scene.now).unwrap();
    assert_eq!(scene.ask(&by("other", Urgency::Normal)).reason, Some(Reason::Halted));
    scene.governor.halt(halt(Target::Pool("default:calls".into())), true, scene.now).unwrap();
    scene.governor.halt(halt(Target::Agent("crawler-01".into())), true, scene.now).unwrap();
    assert!(scene.governor.halt(halt(Target::All), true, scene.now).is_none(), "it was not halted");
    assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
}

fn provider() -> GovernorConfig {
    config(
        r#"{"pools": [{"id": "github:core", "limit": 100, "per": "identity",
                       "window": {"kind": "provider", "every": "1h", "name": "core", "stale_after": "5m"}}],
            "routes": [{"pools": [{"id": "github:core"}]}]}"#,
    )
}

impl Scene {
    fn observe(&mut self, limit: u64, remaining: u64, reset_at: i64, began_at: i64) -> usize {
        let place = self.governor.setup.place_of("github:core").unwrap();
        let key = Arc::clone(self.governor.meters[place].keys().next().unwrap());
        let seen = Observation {
            name: Some("core".to_owned()),
            limit: Some(limit),
            remaining: Some(remaining),
            reset_at: Some(reset_at),
            closed_until: None,
        };
        let pools = [("github:core".into(), key, 0)];
        self.governor.observe(&pools, &[seen], began_at, true, self.now).len()
    }
}

#[test]
fn a_provider_corrects_downwards_and_only_a_reset_gives_more() {
    let mut scene = Scene::new(provider());
    let reset = scene.now + HOUR / 2;
    let id = scene.ask(&costs(10.0)).intent;
    scene.report(id, 10, false).unwrap();
    assert_eq!(scene.left("github:core"), 90);
    // Somebody else uses the same account. What was reported as used by now is counted on both sides.
    scene.now += 1000;
    scene.observe(200, 50, reset, scene.now);
    assert_eq!(scene.left("github:core"), 50);
    // More than we thought: not believed before the window ends.
    scene.observe(200, 80, reset, scene.now);
    assert_eq!(scene.left("github:core"), 50);
    // An older report says nothing new.
    assert_eq!(scene.observe(200, 1, reset, scene.now - 500), 0);
    // What is on its way may not have been seen by the provider.
    scene.ask(&costs(20.0));
    scene.observe(200, 50, reset, scene.now);
    assert_eq!(scene.left("github:core"), 30);
    scene.now = reset + 120_000;
    scene.expire();
    let background = scene.ask(&by("crawler-01", Urgency::Background));
    assert_eq!(background.reason, Some(Reason::HardLimitReached), "the report is too old");
    assert_eq!(scene.ask(&by("urgent", Urgency::High)).answer, Answer::Approve);
    let decision = scene.ask(&intent());
    assert_eq!(decision.reason, Some(Reason::HardLimitReached), "one is on its way already");
    assert!(scene.observe(200, 199, reset + HOUR, scene.now) > 1, "a reset was seen");
    assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
}

#[test]
fn a_client_that_is_not_trusted_cannot_make_a_provider_generous() {
    let mut scene = Scene::new(provider());
    let id = scene.ask(&costs(10.0)).intent;
    let (pools, _) = scene.governor.drawn_by(id).unwrap();
    let pools: Vec<_> =
        pools.iter().map(|d| (Arc::clone(&d.pool), Arc::clone(&d.key), 0)).collect();
    let say = |scene: &mut Scene, limit, remaining, reset_at| {
        let seen = Observation {
            name: Some("core".to_owned()),
            limit: Some(limit),
            remaining: Some(remaining),
            reset_at: Some(reset_at),
            closed_until: None,
        };
        scene.governor.observe(&pools, &[seen], scene.now, false, scene.now);
        scene.left("github:core")
    };
    let soon = scene.now + 1000;
    assert_eq!(say(&mut scene, 1_000_000, 999_999, soon), 90, "no larger limit");
    assert_eq!(say(&mut scene, 100, 50, soon), 40, "but less is believed");
    scene.now += 2000;
    assert_eq!(scene.left("github:core"), 40, "and the window did not end early");
}

#[test]
fn before_a_provider_has_said_anything_one_probe_at_a_time_passes() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "github:core", "window": {"kind": "provider", "every": "1h"}}],
            "routes": [{"pools": [{"id": "github:core"}]}]}"#,
    ));
    let probe = scene.ask(&intent());
    assert_eq!(probe.answer, Answer::Approve);
    assert_eq!(scene.ask(&intent()).answer, Answer::DenyWithReason);
    scene.observe(60, 59, scene.now + HOUR, scene.now);
    assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
}

#[test]
fn a_provider_that_says_when_to_come_back_is_listened_to() {
    let mut scene = Scene::new(provider());
    let id = scene.ask(&intent()).intent;
    let (pools, _) = scene.governor.drawn_by(id).unwrap();
    let pools: Vec<_> =
        pools.iter().map(|d| (Arc::clone(&d.pool), Arc::clone(&d.key), d.amount)).collect();
    let closed = Observation { closed_until: Some(scene.now + 9000), ..Observation::default() };
    scene.governor.observe(&pools, &[closed], scene.now, true, scene.now);
    let decision = scene.ask(&by("urgent", Urgency::High));
    assert_eq!(decision.reason, Some(Reason::DeferUntilReset));
    assert_eq!(decision.retry_at, Some(scene.now + 9000));
}

#[test]
fn a_soft_pool_holds_only_background_work_back() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "p:a", "limit": 2, "hard": false, "window": {"kind": "fixed", "every": "1h"}}],
            "routes": [{"pools": [{"id": "p:a"}]}]}"#,
    ));
    for _ in 0..4 {
        assert_eq!(scene.ask(&intent()).answer, Answer::Approve);
    }
    let background = scene.ask(&by("crawler-01", Urgency::Background));
    assert_eq!(background.answer, Answer::DenyWithReason);
}

#[test]
fn money_follows_from_priced_tokens_and_the_worst_case_is_held() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "llm:tokens", "unit": "tokens", "limit": 100000, "price": 15000000, "window": {"kind": "fixed", "every": "1h"}},
                      {"id": "team:money", "unit": "usd_micros", "limit": 1000000, "window": {"kind": "calendar", "every": "month"}}],
            "routes": [{"pools": [{"id": "llm:tokens", "worst": 8000}, {"id": "team:money"}]}]}"#,
    ));
    let unknown = scene.ask(&intent());
    assert_eq!((unknown.pools[0].amount, unknown.pools[1].amount), (8000, 120_000));
    let said = Intent { expected: Expected::parse("1 call, 1001 tokens").unwrap(), ..intent() };
    let decision = scene.ask(&said);
    assert_eq!((decision.pools[0].amount, decision.pools[1].amount), (1001, 15_015));
    assert!(scene.governor.setup().needs_full_sync());
}

#[test]
fn callers_without_a_key_cannot_name_credentials_without_end() {
    let usual = GovernorConfig::usual();
    let settings = crate::config::Settings { keyless_identities: 3, ..usual.governor.clone() };
    let mut scene = Scene::new(GovernorConfig { governor: settings, ..usual });
    for number in 0..3 {
        let name = format!("pat:{number}");
        assert!(scene.ask(&Intent { identity_id: name, ..intent() }).answer.is_approval());
    }
    let fourth = Intent { identity_id: "pat:4".to_owned(), ..intent() };
    assert_eq!(scene.ask(&fourth).reason, Some(Reason::PolicyViolation));
    let with_key = Asker { is_keyless: false, ..Asker::local() };
    assert!(scene.ask_as(&with_key, &fourth).answer.is_approval());
}

#[test]
fn high_urgency_passes_a_flood_of_background_work() {
    for window in [
        r#"{"kind": "bucket", "refill": 10, "every": "1s"}"#,
        r#"{"kind": "sliding", "every": "10s"}"#,
        r#"{"kind": "fixed", "every": "10s"}"#,
    ] {
        let mut scene = Scene::new(one_pool(100, window));
        let (mut served, mut asked) = (0, 0);
        for step in 0..600 {
            scene.now += 100;
            scene.expire();
            for _ in 0..5 {
                scene.ask(&by("flood", Urgency::Background));
            }
            if step % 50 == 0 {
                asked += 1;
                let decision = scene.ask(&by("urgent", Urgency::High));
                served += u32::from(decision.answer.is_approval() && decision.wait_ms <= 5000);
            }
        }
        assert_eq!(served, asked, "{window}");
    }
}

#[test]
fn equal_agents_get_equal_shares_however_fast_they_ask() {
    let mut scene = Scene::new(one_pool(60, r#"{"kind": "bucket", "refill": 20, "every": "1s"}"#));
    let mut got = [0_u64; 3];
    let mut acting: Vec<(i64, usize, IntentId)> = Vec::new();
    for step in 0..3000_usize {
        scene.now += 20;
        scene.expire();
        // Whoever's time has come acts and reports.
        let due: Vec<_> = acting.iter().filter(|(at, _, _)| *at <= scene.now).copied().collect();
        acting.retain(|(at, _, _)| *at > scene.now);
        for (_, agent, id) in due {
            scene.report(id, 1, false).unwrap();
            got[agent] += 1;
        }
        for (agent, every) in [1, 2, 4].into_iter().enumerate() {
            if step % every == 0 {
                let decision = scene.ask(&by(&format!("agent-{agent}"), Urgency::Normal));
                if decision.answer.is_approval() {
                    acting.push((scene.now + decision.wait_ms, agent, decision.intent));
                }
            }
        }
    }
    let total: u64 = got.iter().sum();
    assert!(total > 1100, "{got:?}");
    let mean = total / 3;
    assert!(got.iter().all(|share| share.abs_diff(mean) * 10 <= mean), "{got:?}");
}

#[test]
fn the_state_is_the_fold_of_its_events_and_survives_as_a_snapshot() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "p:a", "limit": 20, "per": "agent", "window": {"kind": "sliding", "every": "1m"}},
                      {"id": "p:b", "limit": 50, "window": {"kind": "bucket", "refill": 3, "every": "1s"}}],
            "routes": [{"pools": [{"id": "p:a"}, {"id": "p:b"}]}]}"#,
    ));
    for number in 0..200_u32 {
        scene.now += i64::from(number * 37 % 900);
        scene.expire();
        let agent = format!("agent-{}", number % 3);
        let decision = scene.ask(&Intent { agent_id: agent, ..costs(f64::from(number % 4)) });
        if decision.answer == Answer::Approve && number % 2 == 0 {
            scene.report(decision.intent, u64::from(number % 5), false).unwrap();
        }
    }
    let mut folded = Scene::new(scene.governor.config().clone()).governor;
    for event in &scene.events {
        let payload = event.effect.payload().unwrap();
        let kind = event.effect.kind().ledger_kind().unwrap();
        let effect = Effect::read(kind, &payload).unwrap().unwrap();
        folded.apply(&Event { effect, ..event.clone() });
    }
    let sorted = |governor: &Governor| {
        let mut governor = governor.clone();
        governor.advance(scene.now);
        governor.meters.iter_mut().flat_map(|m| m.values_mut()).for_each(|m| {
            m.advance(scene.now + 2000);
        });
        let text = serde_json::to_value(governor.snapshot()).unwrap();
        let mut holds = text["holds"].as_array().unwrap().clone();
        holds.sort_by_key(|hold| hold[0].as_str().unwrap().to_owned());
        (text["meters"].clone(), holds, text["conduct"].as_array().unwrap().len())
    };
    assert_eq!(sorted(&scene.governor), sorted(&folded));
    let text = serde_json::to_string(&scene.governor.snapshot()).unwrap();
    let mut restored = Scene::new(GovernorConfig::usual()).governor;
    restored.restore(serde_json::from_str(&text).unwrap());
    assert_eq!(restored.open_holds(), scene.governor.open_holds());
    scene.now += 1;
    let next = scene.ask(&intent());
    let mut other = Scene { governor: restored, events: Vec::new(), now: scene.now, number: 999 };
    let again = other.ask(&intent());
    assert_eq!((next.answer, next.wait_ms, next.pools), (again.answer, again.wait_ms, again.pools));
}

#[test]
fn a_renewal_never_shortens_what_was_promised() {
    let mut scene = Scene::new(one_pool(1, r#"{"kind": "concurrency"}"#));
    let long = Intent { duration_ms: Some(600_000), ..intent() };
    let first = scene.ask(&long);
    let until = first.valid_until.unwrap();
    assert!(until > scene.now + 60_000);
    let renewed = scene.ask(&Intent { renew: Some(first.intent), ..costs(0.0) });
    assert_eq!((renewed.answer, renewed.valid_until), (Answer::Approve, Some(until)));
    scene.now = until - 1;
    scene.expire();
    assert_eq!(scene.ask(&by("other", Urgency::High)).answer, Answer::DenyWithReason);
}

#[test]
fn a_renewal_draws_on_what_the_routes_say_now() {
    let pools = |routes: &str| {
        config(&format!(
            r#"{{"pools": [{{"id": "p:a", "limit": 100, "window": {FIXED_HOUR}}},
                           {{"id": "p:b", "unit": "points", "limit": 50, "window": {FIXED_HOUR}}}],
                 "routes": [{{"workload": "fill", "pools": [{{"id": "p:b", "cost": 1}}]}}, {routes}]}}"#
        ))
    };
    let own = r#"{"workload": "repo_scan", "pools": [{"id": "p:a"}]}"#;
    let more = r#"{"workload": "repo_scan", "pools": [{"id": "p:a"}, {"id": "p:b", "cost": 1}]}"#;
    let mut scene = Scene::new(pools(own));
    let first = scene.ask(&intent()).intent;
    let fill = Intent { workload_id: "fill".to_owned(), ..costs(50.0) };
    assert_eq!(scene.ask(&fill).answer, Answer::Approve);
    let configured =
        crate::effect::Configured { governor: Some(pools(more)), about: serde_json::Map::new() };
    let effect = Effect::Configured(Box::new(configured));
    scene.governor.apply(&Event { ts: scene.now, about: About::default(), effect });
    let again = Intent {
        renew: Some(first),
        expected: Expected::parse("1 call, 10 points").unwrap(),
        ..intent()
    };
    let refused = scene.ask(&again);
    assert_eq!(refused.reason, Some(Reason::HardLimitReached));
    assert_eq!(refused.pool.as_deref(), Some("p:b"));
    assert!(!refused.is_retryable(), "what already runs cannot wait");
    scene.now += HOUR;
    let first = scene.ask(&intent()).intent;
    let renewed = scene.ask(&Intent { renew: Some(first), ..again });
    assert_eq!(renewed.answer, Answer::Approve);
    assert_eq!(scene.left("p:b"), 39, "one for the ask, ten for the renewal");
}

#[test]
fn a_window_that_ends_later_than_was_thought_keeps_what_was_spent_in_it() {
    let mut scene = Scene::new(provider());
    let ends = scene.now + 9000;
    let id = scene.ask(&costs(1.0)).intent;
    scene.observe(100, 100, ends, scene.now);
    scene.report(id, 1, true).unwrap();
    let id = scene.ask(&costs(99.0)).intent;
    scene.report(id, 99, true).unwrap();
    scene.now += 5000;
    scene.observe(100, 0, ends + 600_000, scene.now);
    scene.now = ends + 100;
    assert_eq!(scene.left("github:core"), 0);
    assert_eq!(scene.ask(&intent()).answer, Answer::DenyWithReason);
    scene.now = ends + 600_000;
    assert_eq!(scene.left("github:core"), 100);
}

#[test]
fn a_window_that_has_really_begun_anew_is_fresh() {
    let mut scene = Scene::new(provider());
    let ends = scene.now + 9000;
    let id = scene.ask(&costs(1.0)).intent;
    scene.observe(100, 100, ends, scene.now);
    scene.report(id, 1, true).unwrap();
    let id = scene.ask(&costs(99.0)).intent;
    scene.report(id, 99, true).unwrap();
    // The provider's clock is a little ahead of ours.
    scene.now = ends - 1000;
    scene.observe(100, 100, ends + HOUR, scene.now);
    scene.now = ends;
    assert_eq!(scene.left("github:core"), 100);
}

#[test]
fn an_observed_window_that_ends_later_keeps_all_that_was_counted() {
    let window = r#"{"kind": "fixed", "every": "1h", "aligned": "observed"}"#;
    let mut scene = Scene::new(one_pool(5, window));
    let heard = |scene: &mut Scene, reset_at: i64| {
        let seen = Observation { reset_at: Some(reset_at), ..Observation::default() };
        let pools = [("p:a".into(), "".into(), 0)];
        scene.governor.observe(&pools, &[seen], scene.now, true, scene.now);
    };
    let ends = scene.now + 60_000;
    heard(&mut scene, ends);
    let id = scene.ask(&costs(5.0)).intent;
    scene.report(id, 5, true).unwrap();
    // Rounded seconds: it moves a little, up to the very end.
    scene.now = ends - 500;
    heard(&mut scene, ends + 1000);
    scene.now = ends + 500;
    assert_eq!(scene.left("p:a"), 0);
    scene.now = ends + 1000;
    assert_eq!(scene.left("p:a"), 5);
}

#[test]
fn nonsense_does_not_close_a_bucket_for_ever() {
    let mut scene = Scene::new(one_pool(100, r#"{"kind": "bucket", "refill": 10, "every": "1s"}"#));
    let ids = [(); 3].map(|()| scene.ask(&costs(0.0)).intent);
    for id in ids {
        scene.report(id, 1_000_000_000_000_000, false).unwrap();
    }
    let decision = scene.ask(&intent());
    assert_eq!(decision.answer, Answer::ApproveWithModifications);
    assert!((10_100..=10_800).contains(&decision.wait_ms), "a whole bucket, and one more");
}

#[test]
fn what_is_booked_in_the_same_window_is_not_left() {
    let mut scene = Scene::new(config(
        r#"{"pools": [{"id": "p:day", "limit": 10, "window": {"kind": "calendar", "every": "day"}},
                      {"id": "p:few", "limit": 6, "window": {"kind": "sliding", "every": "20s"}}],
            "routes": [{"pools": [{"id": "p:day"}, {"id": "p:few"}]}],
            "governor": {"horizon_seconds": {"high": 60, "normal": 60, "background": 60}}}"#,
    ));
    let mut answers: Vec<Answer> = Vec::new();
    for number in 0..11 {
        answers.push(scene.ask(&by(&format!("agent-{number}"), Urgency::High)).answer);
    }
    assert_eq!(answers.iter().filter(|answer| answer.is_approval()).count(), 10);
    assert!(answers.contains(&Answer::ApproveWithModifications));
    assert_eq!(scene.left("p:day"), 0);
}
