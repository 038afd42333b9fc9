//! What the governor does when something is missing or broken: it says no, and says why.

#![cfg(test)]

mod common;

use std::sync::Arc;

use common::{
    asking::{Kept, intent, is_approved, ms, now_ms, with},
    daemon::{Daemon, finish, signal, tollgate},
    disk::{SmallDisk, fill},
};
use serde_json::{Value, json};

const POOLS: &str = r#"
[[pools]]
id = "t:calls"
limit = 1000
window = { kind = "fixed", every = "300d" }

[[routes]]
workload = "w"
pools = [{ id = "t:calls" }]
"#;

/// What is held, used and booked, everywhere.
fn state(daemon: &Daemon) -> Vec<(Value, Value, Value, Value)> {
    let pools = daemon.get("/v1/pools", Some(&daemon.admin())).json();
    let pools = pools["pools"].as_array().unwrap().clone();
    let numbers =
        |p: Value| (p["id"].clone(), p["used"].clone(), p["held"].clone(), p["left"].clone());
    pools.into_iter().map(numbers).collect()
}

#[test]
fn an_approval_that_cannot_be_recorded_is_none_and_leaves_no_hold_behind() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("tollgate.toml"), POOLS).unwrap();
    let disk = folder.path().join(".tollgate");
    let mounted = SmallDisk::mount(&disk, "8m");
    let mut command = tollgate(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let mut daemon = Daemon::spawned(Arc::clone(&folder), command);
    let admin = daemon.admin();
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        acknowledged.push(daemon.ask(&intent("a", "w"))["intent_id"].clone());
    }
    fill(&disk.join("filler"));
    // A full disk is not full for everything: what was checkpointed makes room for a while.
    let mut refused = 0;
    daemon.until("asking is refused", || {
        let answer = daemon.post("/v1/intent", None, &intent("a", "w").to_string());
        if answer.status == 200 {
            acknowledged.push(answer.json()["intent_id"].clone());
            return false;
        }
        assert_eq!((answer.status, answer.code().as_str()), (503, "LEDGER_UNAVAILABLE"));
        refused += 1;
        refused >= 5 && daemon.get("/health", None).json()["status"] == "degraded"
    });
    // A report that is refused changes nothing either; it is made again.
    let report = json!({"intent_id": acknowledged[0]});
    let mut settled = daemon.report(&report).status == 200;
    let held = |settled: bool, acknowledged: &[Value]| acknowledged.len() - usize::from(settled);
    assert_eq!(
        daemon.pool("t:calls", None)["held"],
        held(settled, &acknowledged),
        "no phantom holds"
    );
    std::fs::remove_file(disk.join("filler")).unwrap();
    let mut again = Value::Null;
    daemon.until("there is room again", || {
        let answer = daemon.post("/v1/intent", None, &intent("a", "w").to_string());
        again = answer.json();
        answer.status == 200
    });
    acknowledged.push(again["intent_id"].clone());
    assert_eq!(daemon.get("/health", None).json()["status"], "ok");
    settled |= daemon.report(&report).status == 200;
    assert!(settled);
    // What is in memory is what is stored.
    let before = state(&daemon);
    assert_eq!(before[0].2, held(settled, &acknowledged), "{before:?}");
    let recorded: Vec<Value> =
        daemon.events_of("intent_decided").iter().map(|event| event["intent_id"].clone()).collect();
    assert_eq!(recorded, acknowledged);
    let metrics = daemon.get("/metrics", Some(&admin)).body;
    assert!(metrics.contains("ledger_failures"), "{metrics}");
    daemon.kill();
    let mut command = tollgate(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let mut daemon = Daemon::spawned(Arc::clone(&folder), command);
    assert_eq!(state(&daemon), before);
    daemon.verifies();
    daemon.stop();
    drop(mounted);
}

#[test]
fn a_configuration_that_does_not_load_keeps_the_running_one() {
    let daemon = Daemon::configured(POOLS);
    daemon.ask(&intent("a", "w"));
    let file = daemon.folder.path().join("tollgate.toml");
    let applied = |daemon: &Daemon| daemon.events_of("config_applied").len();
    let (before, limits) = (applied(&daemon), state(&daemon));
    let wrongs = [
        (POOLS.replace("limit = 1000", "limit = 0"), "pools[0].limit"),
        (POOLS.replace("{ id = \"t:calls\" }", "{ id = \"t:cals\" }"), "did you mean `t:calls`?"),
        (POOLS.replace("300d", "300 days"), "no length of time"),
        (POOLS.replace("[[routes]]", "[[rutes]]"), "unknown field `rutes`"),
        (POOLS.replace("limit = 1000", "limit = 10\nunit = \"tokens\""), "is missing"),
        ("[[pools]]\n".to_owned(), "missing field"),
    ];
    for (told, (wrong, said)) in wrongs.into_iter().enumerate() {
        std::fs::write(&file, &wrong).unwrap();
        signal(daemon.child.id(), "HUP");
        daemon.until("the mistake is told", || {
            daemon.logged().matches("the running one stays").count() == told + 1
        });
        assert!(daemon.logged().contains(said), "{said}: {}", daemon.logged());
        assert_eq!(state(&daemon), limits, "{said}");
        // At a first start the same file ends the command, with the same words.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tollgate.toml"), &wrong).unwrap();
        let mut command = tollgate(folder.path());
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        let ran = finish(command, b"");
        assert_eq!(ran.code, 3, "{}", ran.err);
        let shown: String =
            ran.err.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
        assert!(shown.contains(said), "{said}: {shown}");
    }
    assert_eq!(applied(&daemon), before);
    assert_eq!(daemon.ask(&intent("a", "w"))["status"], "approve");
}

#[test]
fn work_that_no_route_maps_is_denied_for_good() {
    let daemon = Daemon::configured(POOLS);
    let denied = daemon.ask(&with(intent("a", "elsewhere"), &json!({"debug": true})));
    assert_eq!(denied["status"], "deny_with_reason");
    assert_eq!(
        (&denied["reason"], &denied["retryable"]),
        (&json!("unmapped_workload"), &json!(false))
    );
    let steps = denied["trace"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["policy_id"] == "routes" && step["result"] == "deny"));
    assert_eq!(daemon.events_of("intent_decided")[0]["payload"]["reason"], "unmapped_workload");
}

#[test]
fn a_cost_that_nobody_knows_is_the_worst_case() {
    let pools = r#"
[[pools]]
id = "t:calls"
limit = 10
window = { kind = "fixed", every = "300d" }

[[pools]]
id = "t:tokens"
unit = "tokens"
limit = 10000
window = { kind = "fixed", every = "300d" }
price = 3000000
trust_usage = true

[[pools]]
id = "t:money"
unit = "usd_micros"
limit = 100000
window = { kind = "fixed", every = "300d" }

[[routes]]
workload = "chat"
pools = [{ id = "t:calls" }, { id = "t:tokens", worst = 4000 }, { id = "t:money" }]
"#;
    let daemon = Daemon::configured(pools);
    let amounts = |decision: &Value| -> Vec<u64> {
        let pools = decision["pools"].as_array().unwrap().iter();
        pools.map(|pool| pool["amount"].as_u64().unwrap()).collect()
    };
    let unknown = daemon.ask(&intent("a", "chat"));
    assert_eq!(amounts(&unknown), [1, 4000, 12_000], "one call, the most tokens, and their price");
    let known =
        daemon.ask(&with(intent("a", "chat"), &json!({"expected_cost": "1 call, 500 tokens"})));
    assert_eq!(amounts(&known), [1, 500, 1500]);
    // It settles down where usage is trusted; money is not given back on a client's word.
    let used = json!({"intent_id": unknown["intent_id"], "actual_cost": "700 tokens"});
    assert_eq!(daemon.report(&used).status, 200);
    assert_eq!(daemon.pool("t:tokens", None)["used"], 700);
    assert_eq!(daemon.pool("t:money", None)["used"], 12_000);
    // What it takes at most, and nobody said how much that is: such a route does not load.
    let folder = tempfile::tempdir().unwrap();
    let text = pools.replace(", worst = 4000", "");
    std::fs::write(folder.path().join("tollgate.toml"), text).unwrap();
    let mut command = tollgate(folder.path());
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let ran = finish(command, b"");
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("worst"), "{}", ran.err);
}

#[test]
fn a_provider_that_has_not_reported_for_long_lets_only_urgent_work_through() {
    let pools = r#"
[[pools]]
id = "p:core"
limit = 100
window = { kind = "provider", every = "1h", stale_after = "1s" }
trust_usage = true

[[routes]]
pools = [{ id = "p:core" }]
"#;
    let daemon = Daemon::configured(pools);
    // Before the first report the declared limit holds.
    let first = daemon.ask(&intent("a", "w"));
    assert_eq!(first["status"], "approve");
    let reset = now_ms() / 1000 + 1800;
    let headers = json!({"x-ratelimit-limit": "60", "x-ratelimit-remaining": "3", "x-ratelimit-reset": reset.to_string()});
    let report = json!({"intent_id": first["intent_id"], "response_headers": headers});
    assert_eq!(daemon.report(&report).status, 200);
    let mut kept = Kept::to(&daemon);
    let mut ask =
        |urgency: &str| kept.ask(&with(intent("a", "w"), &json!({"urgency": urgency}))).unwrap();
    let mut denied = Value::Null;
    daemon.until("the report is too old", || {
        denied = ask("background");
        denied["evaluation"]["risk_summary"].as_str().unwrap().contains("not reported")
    });
    assert_eq!(
        (&denied["reason"], &denied["retryable"]),
        (&json!("hard_limit_reached"), &json!(true))
    );
    assert!(!is_approved(&ask("normal")));
    // High urgency passes, inside what was last known to be left.
    let mut passed = 0;
    while is_approved(&ask("high")) {
        passed += 1;
        assert!(passed <= 3, "more than the provider said is left");
    }
    assert!(passed >= 1, "{}", daemon.pool("p:core", None));
    let pool = daemon.pool("p:core", None);
    assert_eq!((&pool["limit"], &pool["left"]), (&json!(60), &json!(0)), "{pool}");
    assert!(ms(&pool["reset_at"]) == reset * 1000, "{pool}");
}

#[test]
fn a_provider_of_which_nothing_is_known_is_tried_one_by_one() {
    let pools = "[[pools]]\nid = \"p:core\"\nwindow = { kind = \"provider\", every = \"1h\" }\ntrust_usage = true\n\n[[routes]]\npools = [{ id = \"p:core\" }]\n";
    let daemon = Daemon::configured(pools);
    let probe = daemon.ask(&intent("a", "w"));
    assert_eq!(probe["status"], "approve");
    let second = daemon.ask(&intent("b", "w"));
    assert!(!is_approved(&second) && second["retryable"] == true, "{second}");
    let headers = json!({"x-ratelimit-limit": "60", "x-ratelimit-remaining": "59", "x-ratelimit-reset": (now_ms() / 1000 + 900).to_string()});
    let report = json!({"intent_id": probe["intent_id"], "response_headers": headers});
    assert_eq!(daemon.report(&report).status, 200);
    for _ in 0..5 {
        assert_eq!(daemon.ask(&intent("b", "w"))["status"], "approve");
    }
    assert_eq!(daemon.pool("p:core", None)["left"], 54);
}

#[test]
fn a_snapshot_that_was_damaged_is_not_believed() {
    let daemon = Daemon::configured("");
    for _ in 0..3 {
        daemon.ask(&intent("crawler-01", "repo_scan"));
    }
    let before = state(&daemon);
    // As if one had been taken: what is in it is not what its checksum says.
    for damaged in ["", "{}", "0000\n{\"format\":2}", "not a snapshot at all"] {
        std::fs::write(daemon.data().join("governor.snapshot"), damaged).unwrap();
    }
    let daemon = daemon.again();
    assert_eq!(state(&daemon), before);
    assert!(daemon.logged().contains("snapshot is not used"), "{}", daemon.logged());
}
