//! Who may ask for what: with a key, without one, and with names that are none.

#![cfg(test)]

mod common;

use std::path::Path;

use common::{
    asking::{intent, with},
    daemon::{Daemon, signal},
};
use serde_json::{Value, json};

/// Do these bytes stand in any file of a folder?
fn holds(folder: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, bytes);
        }
        let Ok(content) = std::fs::read(&path) else { return false };
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn without_a_key_one_may_ask_and_report_ones_own_and_nothing_else() {
    let daemon = Daemon::start();
    let own = daemon.ask(&intent("a", "w"));
    let (_, key) = daemon.new_key(&json!({"name": "agent", "owner": "team"}));
    let foreign = daemon.ask_as(&key, &intent("a", "w"));
    let report = |id: &Value| daemon.report(&json!({"intent_id": id}));
    assert_eq!(report(&own["intent_id"]).status, 200);
    assert_eq!(report(&foreign["intent_id"]).status, 404);
    // What nobody asked for cannot be charged to others.
    let ghost = with(intent("a", "w"), &json!({"actual_cost": 1000}));
    assert_eq!(daemon.report(&ghost).code(), "MISSING_API_KEY");
    for path in [
        "/v1/pools",
        "/v1/identities",
        "/v1/halts",
        "/v1/events",
        "/v1/trends",
        "/v1/reports",
        "/v1/webhooks",
        "/metrics",
    ] {
        let answer = daemon.get(path, None);
        assert_eq!((answer.status, answer.code().as_str()), (401, "MISSING_API_KEY"), "{path}");
    }
    for path in ["/v1/halt", "/v1/resume", "/v1/identities", "/v1/webhooks"] {
        assert_eq!(daemon.post(path, None, "{}").status, 401, "{path}");
    }
    assert_eq!(daemon.get("/health", None).status, 200);
    assert_eq!(daemon.get("/v1/health", None).status, 200);
}

#[test]
fn where_asking_without_a_key_is_switched_off_a_key_is_needed() {
    let daemon = Daemon::configured("[governor]\nkeyless = false\n");
    let asked = intent("a", "w").to_string();
    let batch = json!({"intents": [intent("a", "w")]}).to_string();
    for (path, body) in [("/v1/intent", &asked), ("/v1/intents/batch", &batch)] {
        let answer = daemon.post(path, None, body);
        assert_eq!((answer.status, answer.code().as_str()), (401, "MISSING_API_KEY"), "{path}");
    }
    assert_eq!(daemon.report(&json!({"intent_id": "int_1"})).status, 401);
    let (_, key) = daemon.new_key(&json!({"name": "agent"}));
    assert_eq!(daemon.ask_as(&key, &intent("a", "w"))["status"], "approve");
    let (_, reader) = daemon.new_key(&json!({"name": "reader", "scopes": ["read"]}));
    assert_eq!(daemon.post("/v1/intent", Some(&reader), &asked).code(), "SCOPE_MISSING");
    // It can be switched while the gate runs.
    let file = daemon.folder.path().join("tollgate.toml");
    std::fs::write(file, "[governor]\nkeyless = true\n").unwrap();
    signal(daemon.child.id(), "HUP");
    daemon.until("asking needs no key", || daemon.post("/v1/intent", None, &asked).status == 200);
}

#[test]
fn a_key_claims_no_more_than_it_may() {
    let daemon = Daemon::start();
    let (_, key) = daemon.new_key(&json!({
        "name": "crawler", "agents": ["crawler-*", "ci"], "identities": ["pat:one"], "maxUrgency": "normal",
    }));
    let allowed = intent("crawler-7", "w");
    assert_eq!(daemon.ask_as(&key, &allowed)["status"], "approve");
    assert_eq!(daemon.ask_as(&key, &intent("ci", "w"))["status"], "approve");
    for claim in [
        json!({"agent_id": "deployer"}),
        json!({"agent_id": "ci-2"}),
        json!({"identity_id": "pat:two"}),
        json!({"urgency": "high"}),
    ] {
        let denied = daemon.ask_as(&key, &with(allowed.clone(), &claim));
        assert_eq!(denied["status"], "deny_with_reason", "{claim}");
        assert_eq!(
            (&denied["reason"], &denied["retryable"]),
            (&json!("policy_violation"), &json!(false))
        );
    }
    assert_eq!(daemon.pool("default:calls", Some("pat:one"))["held"], 2);
    let identities = daemon.get("/v1/identities", Some(&daemon.admin())).json();
    assert_eq!(identities["identities"].as_array().unwrap().len(), 1, "{identities}");
    // What nobody asked for is charged within the same bounds.
    let ghost = |claim: Value| {
        let body = with(with(allowed.clone(), &json!({"actual_cost": 1})), &claim);
        daemon.post("/v1/usage", Some(&key), &body.to_string()).status
    };
    assert_eq!(ghost(json!({"agent_id": "deployer"})), 400);
    assert_eq!(ghost(json!({"identity_id": "pat:two"})), 400);
    assert_eq!(ghost(json!({})), 200);
}

#[test]
fn a_name_that_looks_like_a_secret_is_refused_and_kept_nowhere() {
    let mut daemon = Daemon::start();
    let secret = format!("ghp_{}", "x7Kq2Wm9Rt4Zb8Nc3Vd6".repeat(2).get(..36).unwrap());
    for member in ["identity_id", "agent_id", "workload_id", "scope_id"] {
        let body = with(intent("a", "w"), &json!({member: secret}));
        let answer = daemon.post("/v1/intent", None, &body.to_string());
        assert_eq!(answer.status, 400, "{member}");
        assert!(answer.message().contains(member) && !answer.body.contains(&secret), "{answer:?}");
        let batch = json!({"intents": [body]}).to_string();
        let answer = daemon.post("/v1/intents/batch", None, &batch);
        assert!(answer.status == 400 && !answer.body.contains(&secret), "{answer:?}");
    }
    let admin = daemon.admin();
    let named = json!({"identity_id": secret}).to_string();
    assert_eq!(daemon.post("/v1/identities", Some(&admin), &named).status, 400);
    let ghost = with(intent("a", "w"), &json!({"identity_id": secret, "actual_cost": 1}));
    let ghost = daemon.post("/v1/usage", Some(&admin), &ghost.to_string());
    assert!(ghost.status == 400 && !ghost.body.contains(&secret), "{ghost:?}");
    // Free text is cleaned, and the intent is answered.
    let context = json!({"client_context": {"header": format!("Authorization: Bearer {secret}")}});
    assert_eq!(daemon.ask(&with(intent("a", "w"), &context))["status"], "approve");
    assert!(!holds(&daemon.data(), secret.as_bytes()));
    assert!(!daemon.logged().contains(&secret));
    daemon.stop();
    assert!(!holds(&daemon.data(), secret.as_bytes()));
    assert!(holds(&daemon.data(), b"pat:one"), "the search finds what is there");
}

#[test]
fn callers_without_a_key_cannot_name_identities_without_end() {
    let daemon = Daemon::configured("[governor]\nkeyless_identities = 3\n");
    let asked = |name: &str| with(intent("a", "w"), &json!({"identity_id": name}));
    for name in ["pat:1", "pat:2", "pat:3", "pat:1"] {
        assert_eq!(daemon.ask(&asked(name))["status"], "approve", "{name}");
    }
    let denied = daemon.ask(&asked("pat:4"));
    assert_eq!(denied["reason"], "policy_violation", "{denied}");
    // A key may, and what is known may be named by anyone.
    assert_eq!(daemon.ask_as(&daemon.admin(), &asked("pat:4"))["status"], "approve");
    assert_eq!(daemon.ask(&asked("pat:4"))["status"], "approve");
}

#[test]
fn who_does_not_say_who_it_is_counts_as_background_work() {
    let daemon = Daemon::start();
    let (_, key) = daemon.new_key(&json!({"name": "urgent", "maxUrgency": "high"}));
    let masked =
        with(intent("a", "w"), &json!({"identity_id": "sentinel:unknown", "urgency": "high"}));
    let decision = daemon.ask_as(&key, &masked);
    assert_eq!(decision["status"], "approve");
    assert!(
        decision["evaluation"]["risk_summary"].as_str().unwrap().contains("background"),
        "{decision}"
    );
    let open = with(intent("a", "w"), &json!({"urgency": "high"}));
    daemon.ask_as(&key, &open);
    let events = daemon.events_of("intent_decided");
    let urgencies: Vec<(&Value, &Value)> =
        events.iter().map(|e| (&e["payload"]["urgency"], &e["payload"]["claimed"])).collect();
    assert_eq!(urgencies, [(&json!("background"), &json!("high")), (&json!("high"), &Value::Null)]);
}

#[test]
fn what_a_person_halts_is_denied_until_it_is_resumed() {
    let daemon = Daemon::start();
    assert_eq!(daemon.cli(&["halt", "--agent", "rogue", "--reason", "looks wrong"]).code, 0);
    let denied = daemon.ask(&intent("rogue", "w"));
    assert_eq!((&denied["reason"], &denied["retryable"]), (&json!("halted"), &json!(true)));
    assert_eq!(daemon.ask(&intent("good", "w"))["status"], "approve");
    assert_eq!(daemon.cli(&["halt", "--pool", "default:calls"]).code, 0);
    assert_eq!(daemon.ask(&intent("good", "w"))["reason"], "halted");
    let halts = daemon.get("/v1/halts", Some(&daemon.admin())).json();
    let whats: Vec<&str> =
        halts["halts"].as_array().unwrap().iter().map(|h| h["what"].as_str().unwrap()).collect();
    assert_eq!(whats, ["agent:rogue", "pool:default:calls"]);
    let mut daemon = daemon;
    daemon.kill();
    let daemon = daemon.again();
    assert_eq!(daemon.ask(&intent("good", "w"))["reason"], "halted", "a restart resumes nothing");
    assert_eq!(daemon.cli(&["resume", "--pool", "default:calls"]).code, 0);
    assert_eq!(daemon.ask(&intent("good", "w"))["status"], "approve");
    assert_eq!(daemon.ask(&intent("rogue", "w"))["reason"], "halted");
    assert_eq!(daemon.cli(&["resume", "--agent", "rogue"]).code, 0);
    assert_eq!(daemon.ask(&intent("rogue", "w"))["status"], "approve");
}
