//! What is kept of the governor's work, what is forgotten, and what changes while it runs.

#![cfg(test)]

mod common;

use std::{
    path::Path,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use common::{
    asking::{Kept, intent, is_approved, ms, with},
    daemon::{Daemon, signal},
};
use serde_json::{Value, json};

/// The files of a folder in which these bytes stand.
fn holding(folder: &Path, bytes: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let content = std::fs::read(&path).unwrap_or_default();
        if content.windows(bytes.len()).any(|window| window == bytes.as_bytes()) {
            found.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    found
}

fn pools(daemon: &Daemon) -> Value {
    daemon.get("/v1/pools", Some(&daemon.admin())).json()["pools"].clone()
}

#[test]
fn a_credential_that_is_forgotten_is_in_no_file_and_the_record_still_verifies() {
    let mut daemon = Daemon::start();
    let (name, word) = ("pat:quetzalcoatl", "xylophone-in-the-attic");
    let body =
        json!({"identity_id": name, "metadata": {"note": "belongs to the axolotl"}}).to_string();
    assert_eq!(daemon.post("/v1/identities", Some(&daemon.admin()), &body).status, 201);
    let asked =
        with(intent("a", "w"), &json!({"identity_id": name, "client_context": {"task": word}}));
    for _ in 0..20 {
        daemon.ask(&asked);
        daemon.ask(&intent("a", "w"));
    }
    let ghost = with(intent("a", "w"), &json!({"identity_id": name, "actual_cost": 2})).to_string();
    assert_eq!(daemon.post("/v1/usage", Some(&daemon.admin()), &ghost).status, 200);
    assert_eq!(daemon.pool("default:calls", Some(name))["held"], 20);
    assert!(!holding(&daemon.data(), name).is_empty(), "the search finds what is there");
    assert!(!holding(&daemon.data(), word).is_empty(), "the search finds what is there");
    let before = daemon.events();
    assert!(before.iter().all(|event| !event.to_string().contains(name)), "not even in the record");
    assert_eq!(daemon.cli(&["identities", "delete", name]).code, 0);
    for text in [name, word, "quetzalcoatl", "axolotl"] {
        daemon.until("it is in no file", || holding(&daemon.data(), text).is_empty());
    }
    daemon.verifies();
    let events = daemon.events();
    assert_eq!(events.len(), before.len() + 1);
    assert_eq!(events.last().unwrap()["kind"], "identity_deleted");
    assert_eq!(events[..before.len()], before[..], "what was recorded stays as it was");
    // What was done is still counted, under a name that leads nowhere.
    let shown = pools(&daemon).to_string();
    assert!(!shown.contains("quetzalcoatl") && shown.contains("idn_"), "{shown}");
    assert_eq!(daemon.cli(&["identities", "delete", name]).code, 6);
    daemon.kill();
    let mut daemon = daemon.again();
    assert_eq!(pools(&daemon).as_array().unwrap().len(), 2);
    daemon.verifies();
    // Whoever comes with the same name is somebody new.
    let anew = daemon.ask(&with(intent("a", "w"), &json!({"identity_id": name})));
    assert_eq!(anew["pools"][0]["remaining"], 4999);
    assert_eq!(daemon.cli(&["identities", "delete", name]).code, 0);
    assert_eq!(daemon.stop().code(), Some(0));
    assert_eq!(holding(&daemon.data(), name), Vec::<String>::new());
}

#[test]
fn events_that_are_retired_leave_their_sum_behind() {
    let text = r#"
[[pools]]
id = "t:calls"
limit = 100000
window = { kind = "fixed", every = "300d" }
valid_for = "1h"

[[routes]]
pools = [{ id = "t:calls" }]
"#;
    let mut daemon = Daemon::configured(text);
    let once = with(intent("a", "w"), &json!({"request_id": "once", "expected_cost": 7}));
    let first = daemon.ask(&once);
    let open = daemon.ask(&with(intent("a", "w"), &json!({"expected_cost": 11})));
    daemon.cli(&["halt", "--agent", "rogue"]);
    let mut kept = Kept::to(&daemon);
    let ten = vec![intent("b", "w"); 10];
    for _ in 0..110 {
        assert_eq!(kept.post("/v1/intents/batch", &json!({"intents": ten})).unwrap().0, 200);
    }
    let before = pools(&daemon);
    assert_eq!(before[0]["held"], 1118);
    let count = daemon.events().len();
    assert!(count > 1100);
    daemon.stop();
    let file = daemon.folder.path().join("tollgate.toml");
    std::fs::write(file, format!("[daemon]\nkeep_events = \"1ms\"\n{text}")).unwrap();
    let mut daemon = daemon.again();
    daemon.until("old events are retired", || {
        // Whoever reads just then is told to read again.
        let export = daemon.cli(&["ledger", "export", "--data", ".tollgate"]);
        export.code == 0 && export.out.lines().count() < 100
    });
    let same = |daemon: &Daemon| {
        daemon.verifies();
        assert_eq!(pools(daemon), before);
        assert_eq!(daemon.ask(&intent("rogue", "w"))["reason"], "halted");
        assert_eq!(daemon.ask(&once)["intent_id"], first["intent_id"], "it was asked before");
    };
    assert!(daemon.events().iter().any(|event| event["kind"] == "checkpoint"));
    same(&daemon);
    daemon.kill();
    let daemon = daemon.again();
    same(&daemon);
    // What was open is open, for its own holder, by its own name; and keys of before still count.
    let settled = daemon.report(&json!({"intent_id": open["intent_id"]}));
    assert_eq!(settled.json()["pools"][0], json!({"pool": "t:calls", "held": 11, "used": 11}));
    let pool = daemon.pool("t:calls", None);
    assert_eq!((&pool["held"], &pool["used"]), (&json!(1107), &json!(11)));
}

/// Two pools of the same limit.
fn twins(limit: u64) -> String {
    format!(
        "[[pools]]\nid = \"t:one\"\nlimit = {limit}\nwindow = {{ kind = \"fixed\", every = \"300d\" }}\n\n[[pools]]\nid = \"t:two\"\nlimit = {limit}\nwindow = {{ kind = \"fixed\", every = \"300d\" }}\n\n[[routes]]\npools = [{{ id = \"t:one\" }}, {{ id = \"t:two\" }}]\n"
    )
}

#[test]
fn limits_change_all_at_once_while_the_gate_runs() {
    let daemon = Daemon::configured(&twins(100_000));
    let (stop, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let file = daemon.folder.path().join("tollgate.toml");
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let mut kept = Kept::to(&daemon);
            let mut seen = std::collections::BTreeSet::new();
            while !stop.load(Ordering::SeqCst) {
                let decision = kept.ask(&intent("a", "w")).unwrap();
                assert!(is_approved(&decision), "{decision}");
                let limit = |place: usize| decision["pools"][place]["limit"].as_u64().unwrap();
                assert_eq!(limit(0), limit(1), "half of a configuration: {decision}");
                seen.insert(limit(0));
                asked.fetch_add(1, Ordering::SeqCst);
            }
            seen.len()
        });
        daemon.until("asks are answered", || asked.load(Ordering::SeqCst) > 0);
        for limit in [200_000, 300_000, 400_000, 500_000] {
            std::fs::write(&file, twins(limit)).unwrap();
            signal(daemon.child.id(), "HUP");
            daemon.until("it holds", || daemon.pool("t:one", None)["limit"] == limit);
            let now = asked.load(Ordering::SeqCst);
            daemon.until("asks go on", || asked.load(Ordering::SeqCst) > now + 1);
        }
        stop.store(true, Ordering::SeqCst);
        assert_eq!(flood.join().unwrap(), 5, "every configuration was met");
    });
    let applied = daemon.events_of("config_applied");
    let limits: Vec<&Value> = applied
        .iter()
        .map(|event| &event["payload"]["governor"]["pools"][0]["limit"])
        .filter(|limit| limit.is_u64())
        .collect();
    assert_eq!(limits.last(), Some(&&json!(500_000)), "{applied:?}");
    assert!(limits.len() >= 4, "{limits:?}");
    daemon.verifies();
}

#[test]
fn holds_are_carried_over_when_limits_change() {
    let mut daemon = Daemon::configured(&twins(10));
    let file = daemon.folder.path().join("tollgate.toml");
    let held = daemon.ask(&with(intent("a", "w"), &json!({"expected_cost": 7})));
    let change = |daemon: &Daemon, text: &str, what: &str, is_so: &dyn Fn(&Value) -> bool| {
        std::fs::write(&file, text).unwrap();
        signal(daemon.child.id(), "HUP");
        daemon.until(what, || is_so(&pools(daemon)));
    };
    change(&daemon, &twins(5), "there is less", &|all| all[0]["limit"] == 5);
    let pool = daemon.pool("t:one", None);
    assert_eq!((&pool["held"], &pool["left"]), (&json!(7), &json!(0)));
    assert!(!is_approved(&daemon.ask(&intent("b", "w"))));
    change(&daemon, &twins(20), "there is more", &|all| all[0]["limit"] == 20);
    assert_eq!(daemon.pool("t:one", None)["left"], 13);
    // A pool goes, and comes back: what was held in it meanwhile is not forgotten.
    let without = twins(20).replace("{ id = \"t:one\" }, ", "");
    let (_, rest) = without.split_once("\n\n").unwrap();
    change(&daemon, rest, "a pool is gone", &|all| all.as_array().unwrap().len() == 1);
    change(&daemon, &twins(20), "it is back", &|all| all.as_array().unwrap().len() == 2);
    assert_eq!(daemon.pool("t:one", None)["held"], 7);
    let before = pools(&daemon);
    daemon.kill();
    let daemon = daemon.again();
    assert_eq!(pools(&daemon), before);
    assert_eq!(daemon.report(&json!({"intent_id": held["intent_id"]})).status, 200);
    assert_eq!(daemon.pool("t:one", None)["used"], 7);
}

#[test]
fn trends_and_reports_say_what_was_done() {
    let text = r#"
[[pools]]
id = "t:calls"
limit = 30
window = { kind = "fixed", every = "300d" }
trust_usage = true

[[pools]]
id = "t:short"
limit = 100
window = { kind = "fixed", every = "300d" }
valid_for = "1s"

[[routes]]
workload = "w"
pools = [{ id = "t:calls" }]

[[routes]]
workload = "short"
pools = [{ id = "t:short" }]
"#;
    let daemon = Daemon::configured(text);
    let admin = daemon.admin();
    let ask = |agent: &str, work: &str, cost: u64| {
        daemon.ask(&with(intent(agent, work), &json!({"expected_cost": cost})))
    };
    let first = ask("=cmd|calc", "w", 5);
    ask("=cmd|calc", "w", 3);
    let second = ask("b", "w", 10);
    for _ in 0..4 {
        assert!(!is_approved(&ask("b", "w", 31)));
    }
    assert_eq!(
        daemon.report(&json!({"intent_id": first["intent_id"], "actual_cost": 2})).status,
        200
    );
    assert_eq!(
        daemon.report(&json!({"intent_id": second["intent_id"], "cancelled": true})).status,
        200
    );
    let ghost = with(intent("b", "w"), &json!({"actual_cost": 6})).to_string();
    assert_eq!(daemon.post("/v1/usage", Some(&admin), &ghost).status, 200);
    ask("b", "short", 9);
    daemon.until("it has run out", || daemon.pool("t:short", None)["estimated"] == 9);
    // Whatever hour and day these fall into.
    let sums = |query: &str, wanted: &dyn Fn(&Value) -> bool| {
        let told = daemon.get(&format!("/v1/trends?step=minute&{query}"), Some(&admin)).json();
        let names = [
            "asks", "approved", "waited", "denied", "held", "used", "ghost", "expired", "released",
        ];
        let rows: Vec<Value> =
            told["rows"].as_array().unwrap().iter().filter(|row| wanted(row)).cloned().collect();
        names.map(|name| rows.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>())
    };
    daemon.until("the trends have caught up", || {
        sums("by=pool", &|row| row["pool"] == "t:short")[7] == 9
    });
    assert_eq!(sums("by=pool", &|row| row["pool"] == "t:calls"), [7, 3, 0, 4, 18, 2, 6, 0, 0]);
    assert_eq!(sums("by=pool", &|row| row["pool"] == "t:short"), [1, 1, 0, 0, 9, 0, 0, 9, 0]);
    let of_b = |row: &Value| row["agent_id"] == "b";
    assert_eq!(sums("by=agent&pool=t:calls", &of_b), [5, 1, 0, 4, 10, 0, 6, 0, 0]);
    assert_eq!(
        sums("by=identity&identity_id=pat:one&pool=t:calls", &|row| row["identity_id"]
            == "pat:one")[0],
        7
    );
    assert_eq!(sums("by=pool&identity_id=pat:nobody", &|_| true)[0], 0);
    let told = daemon.get("/v1/trends?step=day&by=workload", Some(&admin)).json();
    let starts: Vec<i64> =
        told["rows"].as_array().unwrap().iter().map(|row| ms(&row["start"])).collect();
    assert!(!starts.is_empty() && starts.iter().all(|start| start % 86_400_000 == 0), "{starts:?}");
    // The report is the same, and no cell of it is a formula.
    let csv = daemon.get("/v1/reports?by=pool,agent", Some(&admin));
    assert!(csv.header("content-type").unwrap().starts_with("text/csv"));
    let mut lines = csv.body.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = |name: &str| head.iter().position(|cell| *cell == name).unwrap();
    let (mut held, mut rows) = (0, 0);
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        assert_eq!(cells.len(), head.len(), "{line}");
        assert!(cells.iter().all(|cell| !cell.trim_matches('"').starts_with('=')), "{line}");
        held += cells[place("held")].parse::<u64>().unwrap();
        rows += 1;
    }
    assert_eq!(held, 27);
    assert!(rows >= 3, "{}", csv.body);
    for wrong in ["by=nothing", "step=year", "limit=0", "from=yesterday", "pol=t:calls"] {
        assert_eq!(daemon.get(&format!("/v1/trends?{wrong}"), Some(&admin)).status, 400, "{wrong}");
    }
}
