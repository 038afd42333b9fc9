//! Asking before acting, on the wire: what a client of the protocol relies on.

#![cfg(test)]

mod common;

use common::{
    asking::{Kept, intent, ms, now_ms, with},
    daemon::Daemon,
};
use serde_json::{Value, json};

/// Windows that no test can see the end of.
const POOLS: &str = r#"
[[pools]]
id = "api:calls"
limit = 10
window = { kind = "fixed", every = "300d" }

[[pools]]
id = "api:search"
limit = 3
window = { kind = "fixed", every = "300d" }

[[pools]]
id = "api:burst"
limit = 1
window = { kind = "sliding", every = "2s" }

[[pools]]
id = "api:points"
unit = "points"
limit = 1000
window = { kind = "fixed", every = "300d" }
trust_usage = true

[[routes]]
workload = "list"
pools = [{ id = "api:calls" }]

[[routes]]
workload = "search"
pools = [{ id = "api:search" }, { id = "api:calls" }]

[[routes]]
workload = "burst"
pools = [{ id = "api:burst" }]

[[routes]]
workload = "query"
pools = [{ id = "api:points", cost = 1, worst = 100 }]
"#;

/// The answer to a body that cannot be understood: nothing is decided.
fn refused(daemon: &Daemon, body: &Value) -> Value {
    let before = daemon.events_of("intent_decided").len();
    let answer = daemon.post("/v1/intent", None, &body.to_string());
    assert_eq!((answer.status, answer.code().as_str()), (400, "INVALID_REQUEST"), "{body}");
    assert_eq!(daemon.events_of("intent_decided").len(), before);
    answer.json()["error"].clone()
}

#[test]
fn the_first_ask_of_a_new_user_is_answered_metered_and_shown() {
    let daemon = Daemon::start();
    let decision = daemon.ask(&intent("crawler", "repo_scan"));
    assert_eq!(decision["status"], "approve");
    assert!(decision["intent_id"].as_str().unwrap().starts_with("int_"));
    assert!(ms(&decision["valid_until"]) > now_ms());
    assert!(decision["evaluation"]["as_of_ts"].is_string());
    assert!(decision["evaluation"]["risk_summary"].as_str().unwrap().contains("4999 of 5000"));
    let pool = daemon.pool("default:calls", Some("pat:one"));
    assert_eq!(
        (&pool["held"], &pool["left"], &pool["limit"]),
        (&json!(1), &json!(4999), &json!(5000))
    );
    let shown = daemon.cli(&["pools"]);
    assert!(shown.out.contains("default:calls") && shown.out.contains("4,999"), "{}", shown.out);
}

#[test]
fn every_decision_has_status_200_and_says_its_word_twice() {
    let daemon = Daemon::configured(POOLS);
    let approved = daemon.ask(&intent("a", "list"));
    let denied = daemon.ask(&with(intent("a", "list"), &json!({"expected_cost": 11})));
    let mut kept = Kept::to(&daemon);
    let mut waiting = Value::Null;
    daemon.until("there is something to wait for", || {
        waiting = kept.ask(&intent("a", "burst")).unwrap();
        waiting["status"] != "approve"
    });
    for (decision, word) in [
        (&approved, "approve"),
        (&denied, "deny_with_reason"),
        (&waiting, "approve_with_modifications"),
    ] {
        assert_eq!(decision["decision"], word);
        assert_eq!(decision["status"], word);
    }
    // Nothing to do first: no member for it, and above all no null.
    assert!(!approved.as_object().unwrap().contains_key("modifications"), "{approved}");
    assert!(!denied.as_object().unwrap().contains_key("modifications"), "{denied}");
    let wait = waiting["modifications"]["wait_seconds"].as_f64().unwrap();
    assert!(wait > 0.0 && wait <= 30.0, "{waiting}");
    for decision in [&approved, &denied, &waiting] {
        assert!(!decision.to_string().contains("null"), "{decision}");
    }
    assert_eq!(denied["reason"], "hard_limit_reached");
    assert_eq!(denied["retryable"], false);
    assert!(!approved.as_object().unwrap().contains_key("retryable"), "{approved}");
}

#[test]
fn null_counts_as_absent() {
    let daemon = Daemon::configured(POOLS);
    let nulls = json!({
        "urgency": null, "expected_cost": null, "duration_hint": null, "client_context": null,
        "debug": null, "can_switch": null, "renew": null, "request_id": null,
    });
    let decision = daemon.ask(&with(intent("a", "list"), &nulls));
    assert_eq!(decision["status"], "approve");
    assert_eq!(decision["pools"][0]["amount"], 1);
    let error = refused(&daemon, &with(intent("a", "list"), &json!({"scope_id": null})));
    assert_eq!(error["details"]["missing_required_fields"], json!(["scope_id"]));
}

#[test]
fn members_that_nobody_knows_are_ignored_and_misspelt_ones_are_told() {
    let daemon = Daemon::configured(POOLS);
    let strange = json!({"trace_parent": "00-1", "x": [1, {"y": null}], "priority_class": 7});
    assert_eq!(daemon.ask(&with(intent("a", "list"), &strange))["status"], "approve");
    for (wrong, meant) in
        [("urgncy", "urgency"), ("expected_costs", "expected_cost"), ("requestid", "request_id")]
    {
        let error = refused(&daemon, &with(intent("a", "list"), &json!({wrong: "high"})));
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(wrong) && message.contains(&format!("`{meant}`")), "{message}");
    }
    // In a batch, too.
    let body = json!({"intents": [intent("a", "list"), with(intent("a", "list"), &json!({"agentid": "x"}))]});
    let answer = daemon.post("/v1/intents/batch", None, &body.to_string());
    assert_eq!(answer.status, 400);
    assert!(answer.message().contains("intents[1]"), "{answer:?}");
    assert_eq!(daemon.pool("api:calls", None)["held"], 1);
}

#[test]
fn a_cost_is_a_number_or_a_text_with_units() {
    let daemon = Daemon::configured(POOLS);
    let amount = |workload: &str, cost: Value| {
        let asked = with(intent("a", workload), &json!({"expected_cost": cost}));
        let decision = daemon.ask(&asked);
        assert_eq!(decision["status"], "approve", "{decision}");
        decision["pools"][0]["amount"].as_u64().unwrap()
    };
    assert_eq!(amount("query", json!("100 points")), 100);
    assert_eq!(amount("query", json!("7")), 7);
    assert_eq!(amount("query", json!(2.5)), 3, "rounded up");
    assert_eq!(amount("query", json!(0)), 1, "never below what the route says");
    assert_eq!(amount("query", json!("1 call, 30 points")), 30);
    for wrong in [json!(-1), json!("-1"), json!("many"), json!("1 2 3"), json!([1]), json!(1e18)] {
        refused(&daemon, &with(intent("a", "query"), &json!({"expected_cost": wrong})));
    }
}

#[test]
fn what_is_wrong_with_an_intent_is_told_all_at_once() {
    let daemon = Daemon::configured(POOLS);
    let error = refused(&daemon, &json!({}));
    let all = json!(["agent_id", "identity_id", "workload_id", "scope_id"]);
    assert_eq!(error["details"]["missing_required_fields"], all);
    let error = refused(&daemon, &with(intent("", "list"), &json!({"scope_id": ""})));
    assert_eq!(error["details"]["missing_required_fields"], json!(["agent_id", "scope_id"]));
    let batch = json!({"intents": [intent("a", "list"), intent("", "list")]});
    let answer = daemon.post("/v1/intents/batch", None, &batch.to_string());
    let missing = &answer.json()["error"]["details"]["missing_required_fields"];
    assert_eq!(*missing, json!(["intents[1].agent_id"]));
    for (member, value) in [
        ("urgency", json!("HIGH")),
        ("urgency", json!("critical")),
        ("agent_id", json!("a\u{1b}[2J")),
        ("agent_id", json!("a".repeat(201))),
        ("agent_id", json!(7)),
        ("duration_hint", json!(-1)),
        ("renew", json!("int_nonsense")),
        ("request_id", json!("")),
        ("client_context", json!({"text": "x".repeat(5000)})),
        ("client_context", json!("text")),
    ] {
        refused(&daemon, &with(intent("a", "list"), &json!({member: value})));
    }
    assert_eq!(daemon.pool("api:calls", None)["held"], 0);
}

#[test]
fn a_web_page_cannot_ask() {
    let daemon = Daemon::configured(POOLS);
    let body = intent("a", "list").to_string();
    let asked = |headers: &[(&str, &str)]| daemon.request("POST", "/v1/intent", headers, &body);
    let json = ("Content-Type", "application/json");
    for headers in [
        &[][..],
        &[("Content-Type", "text/plain")],
        &[("Content-Type", "application/x-www-form-urlencoded")],
        &[json, ("Host", "evil.example")],
        &[json, ("Origin", "https://evil.example")],
        &[json, ("Origin", "null")],
    ] {
        let answer = asked(headers);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "INVALID_REQUEST"),
            "{headers:?}"
        );
    }
    assert_eq!(daemon.pool("api:calls", None)["held"], 0);
    assert_eq!(asked(&[("Content-Type", "application/json; charset=utf-8")]).status, 200);
    assert_eq!(daemon.pool("api:calls", None)["held"], 1);
}

#[test]
fn a_batch_has_ten_intents_and_not_one_more() {
    let daemon = Daemon::configured(POOLS);
    let batch = |count: usize| {
        let intents = vec![intent("a", "list"); count];
        daemon.post("/v1/intents/batch", None, &json!({"intents": intents}).to_string())
    };
    assert_eq!(batch(11).status, 400);
    assert_eq!(batch(0).status, 400);
    assert_eq!(daemon.pool("api:calls", None)["left"], 10);
    let ten = batch(10).json();
    let decisions = ten["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 10);
    assert!(decisions.iter().all(|decision| decision["status"] == "approve"), "{ten}");
    // Each is decided by itself: what is full for one says nothing of those before.
    let mixed = json!({"intents": [intent("a", "list"), intent("a", "query"), intent("a", "?")]});
    let mixed = daemon.post("/v1/intents/batch", None, &mixed.to_string()).json();
    let words: Vec<&str> = mixed["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|decision| decision["status"].as_str().unwrap())
        .collect();
    assert_eq!(words, ["deny_with_reason", "approve", "deny_with_reason"]);
    assert_eq!(mixed["decisions"][2]["reason"], "unmapped_workload");
}

#[test]
fn asking_again_with_the_same_request_id_gives_the_same_answer_and_holds_once() {
    let mut daemon = Daemon::configured(POOLS);
    let asked = with(intent("a", "list"), &json!({"request_id": "r-1"}));
    let first = daemon.ask(&asked);
    daemon.ask(&intent("a", "burst"));
    let waiting = with(intent("a", "burst"), &json!({"request_id": "r-2"}));
    let waits = daemon.ask(&waiting);
    let same = |daemon: &Daemon| {
        let again = daemon.ask(&asked);
        for member in ["intent_id", "status", "valid_until"] {
            assert_eq!(again[member], first[member], "{member}");
        }
        let again = daemon.ask(&waiting);
        assert_eq!(
            (&again["intent_id"], &again["valid_until"]),
            (&waits["intent_id"], &waits["valid_until"])
        );
        assert_eq!(daemon.pool("api:calls", None)["held"], 1);
        let other = with(asked.clone(), &json!({"expected_cost": 2}));
        let answer = daemon.post("/v1/intent", None, &other.to_string());
        assert_eq!((answer.status, answer.code().as_str()), (409, "CONFLICT"), "{answer:?}");
        assert_eq!(daemon.pool("api:calls", None)["held"], 1);
    };
    same(&daemon);
    daemon.kill();
    let daemon = daemon.again();
    same(&daemon);
    // Somebody else's names are their own.
    let (_, key) = daemon.new_key(&json!({"name": "other", "owner": "other"}));
    assert_ne!(daemon.ask_as(&key, &asked)["intent_id"], first["intent_id"]);
    assert_eq!(daemon.pool("api:calls", None)["held"], 2);
}

#[test]
fn asking_again_waits_only_for_what_is_left() {
    let daemon = Daemon::configured(POOLS);
    daemon.ask(&intent("a", "burst"));
    let waiting = with(intent("a", "burst"), &json!({"request_id": "r"}));
    let first = daemon.ask(&waiting);
    let wait = |decision: &Value| decision["modifications"]["wait_seconds"].as_f64().unwrap_or(0.0);
    assert!(wait(&first) > 0.5, "{first}");
    let mut again = Value::Null;
    daemon.until("some of the wait is over", || {
        again = daemon.ask(&waiting);
        assert_eq!(again["intent_id"], first["intent_id"]);
        wait(&again) < wait(&first) - 0.2
    });
    assert_eq!(again["valid_until"], first["valid_until"]);
}

#[test]
fn asking_again_repeats_the_credential_to_switch_to() {
    let pools = r#"
[[pools]]
id = "api:calls"
limit = 1
window = { kind = "fixed", every = "300d" }
per = "identity"

[[routes]]
pools = [{ id = "api:calls" }]
"#;
    let daemon = Daemon::configured(pools);
    for name in ["pat:one", "pat:two"] {
        let body = json!({"identity_id": name, "group": "github"}).to_string();
        assert_eq!(daemon.post("/v1/identities", Some(&daemon.admin()), &body).status, 201);
    }
    assert_eq!(daemon.ask(&intent("a", "w"))["status"], "approve");
    let can = json!({"can_switch": true, "request_id": "r"});
    let switched = daemon.ask(&with(intent("a", "w"), &can));
    assert_eq!(switched["status"], "approve_with_modifications");
    assert_eq!(switched["modifications"], json!({"identity_switch": "pat:two"}));
    assert_eq!(daemon.pool("api:calls", Some("pat:two"))["held"], 1);
    let again = daemon.ask(&with(intent("a", "w"), &can));
    assert_eq!(again["modifications"], switched["modifications"], "{again}");
    // Whoever cannot switch is not told to.
    let denied = daemon.ask(&intent("a", "w"));
    assert_eq!(denied["status"], "deny_with_reason");
}

#[test]
fn a_renewal_charges_only_what_it_adds() {
    let daemon = Daemon::configured(POOLS);
    let first = daemon.ask(&with(intent("a", "list"), &json!({"expected_cost": 6})));
    let renew = |members: &Value| {
        let renew = with(intent("a", "list"), &json!({"renew": first["intent_id"]}));
        daemon.ask(&with(renew, members))
    };
    let second = renew(&json!({"expected_cost": 2, "duration_hint": "10m"}));
    assert_eq!(second["status"], "approve", "{second}");
    assert_eq!(second["intent_id"], first["intent_id"]);
    assert!(ms(&second["valid_until"]) > ms(&first["valid_until"]) + 300_000, "{second}");
    assert_eq!(daemon.pool("api:calls", None)["held"], 8);
    assert_eq!(renew(&json!({}))["status"], "approve");
    assert_eq!(daemon.pool("api:calls", None)["held"], 8);
    // There is no room to go on: what is held stays held, and the stream must stop.
    let denied = renew(&json!({"expected_cost": 3}));
    assert_eq!(denied["status"], "deny_with_reason", "{denied}");
    assert_eq!(daemon.pool("api:calls", None)["held"], 8);
    // Only its own holder can go on with a hold.
    let other = with(intent("b", "list"), &json!({"renew": first["intent_id"]}));
    assert_eq!(daemon.ask(&other)["reason"], "policy_violation");
}

#[test]
fn usage_settles_a_hold_once_and_only_for_its_own_caller() {
    let daemon = Daemon::configured(POOLS);
    let first = daemon.ask(&with(intent("a", "query"), &json!({"expected_cost": 50})));
    let (_, key) = daemon.new_key(&json!({"name": "other", "owner": "other"}));
    let report = json!({"intent_id": first["intent_id"], "actual_cost": "20 points"});
    let foreign = daemon.post("/v1/usage", Some(&key), &report.to_string());
    assert_eq!((foreign.status, foreign.code().as_str()), (404, "NOT_FOUND"));
    let told = daemon.report(&report);
    assert_eq!(told.status, 200, "{told:?}");
    let told = told.json();
    assert_eq!((&told["ghost"], &told["late"]), (&json!(false), &json!(false)));
    assert_eq!(told["pools"], json!([{"pool": "api:points", "held": 50, "used": 20}]));
    let pool = daemon.pool("api:points", None);
    assert_eq!(
        (&pool["used"], &pool["held"], &pool["estimated"]),
        (&json!(20), &json!(0), &json!(0))
    );
    assert_eq!(daemon.report(&report).status, 404, "settled once");
    assert_eq!(daemon.pool("api:points", None)["used"], 20);
    // Where usage is not trusted it can only add.
    let calls = daemon.ask(&with(intent("a", "list"), &json!({"expected_cost": 4})));
    let less = json!({"intent_id": calls["intent_id"], "actual_cost": {"api:calls": 1}});
    assert_eq!(daemon.report(&less).json()["pools"][0]["used"], 4);
    let calls = daemon.ask(&intent("a", "list"));
    let more = json!({"intent_id": calls["intent_id"], "actual_cost": 3});
    assert_eq!(daemon.report(&more).json()["pools"][0]["used"], 3);
    assert_eq!(daemon.pool("api:calls", None)["used"], 7);
    let calls = daemon.ask(&intent("a", "list"));
    let other = json!({"intent_id": calls["intent_id"], "actual_cost": {"api:points": 1}});
    assert_eq!(daemon.report(&other).status, 400);
    assert_eq!(daemon.report(&json!({"intent_id": "int_1"})).status, 400);
}
