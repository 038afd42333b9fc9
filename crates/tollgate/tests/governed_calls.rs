//! A call through the gate is an intent like any other: asked for, waited for, held and settled.

#![cfg(test)]

mod common;

use std::collections::BTreeSet;

use common::daemon::Daemon;
use serde_json::{Value, json};

fn pools(limit: u64, every: &str) -> String {
    format!(
        "[[pools]]\nid = \"t:times\"\nlimit = {limit}\nwindow = {{ kind = \"fixed\", every = \"{every}\" }}\n\n[[routes]]\nworkload = \"system.*\"\npools = [{{ id = \"t:times\" }}]\n"
    )
}

#[test]
fn a_call_with_a_cost_is_an_intent_and_shows_in_the_pool() {
    let daemon = Daemon::configured(&pools(2, "300d"));
    let key = daemon.admin();
    for used in 1..=2 {
        assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
        let pool = daemon.pool("t:times", None);
        assert_eq!(
            (&pool["used"], &pool["held"], &pool["estimated"]),
            (&json!(used), &json!(0), &json!(0))
        );
    }
    let denied = daemon.call("system.time", &key, "{}");
    assert_eq!((denied.status, denied.code().as_str()), (429, "BUDGET_DENIED"));
    let details = &denied.json()["error"]["details"];
    assert_eq!(
        (&details["pool"], &details["reason"]),
        (&json!("t:times"), &json!("defer_until_reset"))
    );
    assert!(denied.header("retry-after").unwrap().parse::<u64>().unwrap() > 1);
    let decided = daemon.events_of("intent_decided");
    let words: Vec<&Value> = decided.iter().map(|event| &event["payload"]["decision"]).collect();
    assert_eq!(words, ["approve", "approve", "deny_with_reason"]);
    assert!(decided.iter().all(|event| event["workload_id"] == "system.time"));
    assert_eq!(daemon.events_of("usage_observed").len(), 2);
    // What costs nothing and is named by no route needs no pool.
    let free = Daemon::configured(&pools(1, "300d").replace("system.*", "elsewhere"));
    for _ in 0..3 {
        assert_eq!(free.call("system.time", &free.admin(), "{}").status, 200);
    }
    assert!(free.events_of("intent_decided").is_empty());
}

#[test]
fn a_call_that_must_wait_waits_inside_its_patience() {
    let daemon = Daemon::configured(&pools(1, "1s"));
    let key = daemon.admin();
    let call = |wait: u64| {
        let body = json!({"input": {}, "wait": wait, "timeoutMs": 200}).to_string();
        daemon.post("/v1/tools/system.time/call", Some(&key), &body)
    };
    for _ in 0..4 {
        let answer = call(20);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let seconds = |event: &Value| event["ts"].as_i64().unwrap().div_euclid(1000);
    let used: Vec<i64> = daemon.events_of("usage_observed").iter().map(seconds).collect();
    let windows: BTreeSet<i64> = used.iter().copied().collect();
    assert_eq!((used.len(), windows.len()), (4, 4), "one in each second: {used:?}");
    // Whoever does not want to wait is refused at once, sooner or later within the same second.
    daemon.until("there is no room now", || call(0).status == 429);
}

#[test]
fn what_is_halted_cannot_be_called() {
    let daemon = Daemon::configured(&pools(100, "300d"));
    let key = daemon.admin();
    assert_eq!(daemon.cli(&["halt", "--workload", "system.time"]).code, 0);
    let halted = daemon.call("system.time", &key, "{}");
    assert_eq!(halted.code(), "HALTED", "{halted:?}");
    assert_eq!(daemon.pool("t:times", None)["used"], 0);
    assert_eq!(daemon.cli(&["resume", "--workload", "system.time"]).code, 0);
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
}

/// One call now, and the next one five seconds later.
const SLOW: &str = "[[pools]]\nid = \"t:times\"\nlimit = 1\nwindow = { kind = \"bucket\", refill = 1, every = \"5s\" }\n\n[[routes]]\nworkload = \"system.*\"\npools = [{ id = \"t:times\" }]\n";

/// A call that waits for room while something happens. Gives its answer, and how many calls were started.
fn waiting_while(
    key: impl FnOnce(&Daemon) -> String,
    happens: impl FnOnce(&Daemon),
) -> (Value, usize) {
    let daemon = Daemon::configured(SLOW);
    let key = key(&daemon);
    assert_eq!(daemon.call("system.time", &key, "{}").status, 200);
    let body = json!({"input": {}, "wait": 60}).to_string();
    let answer = std::thread::scope(|scope| {
        let call = scope.spawn(|| daemon.post("/v1/tools/system.time/call", Some(&key), &body));
        daemon.until("it waits", || daemon.events_of("intent_decided").len() == 2);
        happens(&daemon);
        call.join().unwrap()
    });
    // The room that it did not use is there again.
    daemon.until("its hold is settled", || daemon.pool("t:times", None)["held"] == 0);
    (answer.json(), daemon.events_of("call_started").len())
}

#[test]
fn a_call_that_waits_when_everything_is_halted_does_not_run() {
    let (answer, started) = waiting_while(Daemon::admin, |daemon| {
        assert_eq!(daemon.cli(&["halt"]).code, 0);
    });
    assert_eq!((&answer["error"]["code"], started), (&json!("HALTED"), 1));
}

#[test]
fn a_call_that_waits_when_its_work_is_halted_does_not_run() {
    let (answer, started) = waiting_while(Daemon::admin, |daemon| {
        assert_eq!(daemon.cli(&["halt", "--workload", "system.time"]).code, 0);
    });
    assert_eq!((&answer["error"]["code"], started), (&json!("HALTED"), 1));
}

#[test]
fn a_call_that_waits_when_its_key_is_revoked_does_not_run() {
    let worker = |daemon: &Daemon| {
        let worker = json!({"name": "worker", "scopes": ["call"]});
        daemon.new_key(&worker).1
    };
    let (answer, started) = waiting_while(worker, |daemon| {
        assert_eq!(daemon.cli(&["key", "revoke", "worker"]).code, 0);
    });
    assert_eq!((&answer["error"]["code"], started), (&json!("INVALID_API_KEY"), 1));
}
