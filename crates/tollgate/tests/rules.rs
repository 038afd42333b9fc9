//! What a person wants beyond the limits, what is to be expected, and what would have been: through the binary.

#![cfg(test)]

mod common;

use std::{fs, thread, time::Instant};

use common::{
    asking::{intent, is_approved, with},
    daemon::Daemon,
    root, run, run_with,
};
use serde_json::{Value, json};

const POOL: &str = r#"
[[pools]]
id = "p:calls"
limit = 1000
window = { kind = "fixed", every = "300d" }

[[routes]]
workload = "*"
pools = [{ id = "p:calls" }]
"#;

fn rule(text: &str) -> String {
    format!("{POOL}\n[[rules]]\n{text}\n")
}

#[test]
fn whoever_a_rule_stops_is_told_which_and_why() {
    let daemon = Daemon::configured(&format!(
        "{}\n[[rules]]\nid = \"metered\"\naction = \"warn\"\nbecause = \"this is metered\"\n",
        rule(
            "id = \"frozen\"\nworkload = \"deploy*\"\naction = \"deny\"\nbecause = \"releases are frozen\""
        )
    ));
    let no = daemon.ask(&with(intent("ci", "deploy_web"), &json!({"debug": true})));
    assert_eq!(
        (&no["status"], &no["reason"]),
        (&json!("deny_with_reason"), &json!("policy_violation"))
    );
    assert_eq!(no["evaluation"]["risk_summary"], "the rule frozen says no: releases are frozen");
    assert_eq!(no["warnings"], json!(["metered: this is metered"]));
    let steps: Vec<(&Value, &Value)> = no["trace"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|step| !step["rule_index"].is_null())
        .map(|step| (&step["policy_id"], &step["rule_index"]))
        .collect();
    assert_eq!(steps, [(&json!("frozen"), &json!(0)), (&json!("metered"), &json!(1))]);
    assert!(is_approved(&daemon.ask(&intent("ci", "build"))));
    // The record says which rules matched.
    let recorded = daemon.events_of("intent_decided");
    assert_eq!(recorded[0]["payload"]["rules"][0]["id"], "frozen");
    // The gate's own calls keep to them too.
    let daemon = Daemon::configured(&rule(
        "id = \"no-time\"\nworkload = \"system.time\"\naction = \"deny\"\nbecause = \"not today\"",
    ));
    let denied = daemon.call("system.time", &daemon.admin(), "{}");
    assert_eq!(denied.code(), "BUDGET_DENIED");
    assert_eq!(denied.json()["error"]["details"]["reason"], "policy_violation");
    assert!(
        denied.message().contains("the rule no-time says no: not today"),
        "{}",
        denied.message()
    );
}

#[test]
fn rules_are_read_again_when_the_file_changes_and_a_bad_file_changes_nothing() {
    let deny = "id = \"stop\"\naction = \"deny\"\nbecause = \"stop\"";
    let daemon = Daemon::configured(&rule(&deny.replace("deny", "warn")));
    let file = daemon.data().parent().unwrap().join("tollgate.toml");
    let asked = || is_approved(&daemon.ask(&intent("a", "work")));
    assert!(asked());
    // What does not load is refused with its place, and the old one goes on.
    fs::write(
        &file,
        rule("id = \"stop\"\nwhen = \"pool.remainin < 1\"\naction = \"deny\"\nbecause = \"x\""),
    )
    .unwrap();
    let admin = daemon.admin();
    let refused = daemon.post("/v1/reload", Some(&admin), "{}");
    assert_eq!(refused.code(), "INVALID_REQUEST");
    for part in ["rules[0].when", "did you mean `remaining`", "line 13, column 1"] {
        assert!(refused.message().contains(part), "{}", refused.message());
    }
    assert!(asked());
    // Nobody has to ask for it.
    fs::write(&file, rule(deny)).unwrap();
    daemon.until("the file was read", || !asked());
    fs::write(&file, rule(&deny.replace("deny", "warn"))).unwrap();
    let told = daemon.post("/v1/reload", Some(&admin), "{}").json();
    assert_eq!((&told["pools"], &told["rules"]), (&json!(1), &json!(1)));
    assert!(asked());
    daemon.verifies();
}

#[test]
fn hostile_rules_are_refused_at_once() {
    let deep = format!("when = \"{}true{}\"", "(".repeat(5000), ")".repeat(5000));
    let long = format!("when = \"{}true\"", "true && ".repeat(100_000));
    let nested = "when = \"[1,2].all(x, [1,2].exists(y, x == y))\"".to_owned();
    let confused = "when = \"pool.remaining + intent.agent_id == 3\"".to_owned();
    let slow = format!("when = \"[{}1].exists(x, x > pool.used)\"", "1,".repeat(900));
    let unsafe_text = "when = \"intent.agent_id.matches(intent.scope_id)\"".to_owned();
    let no_bool = "when = \"pool.remaining\"".to_owned();
    let missing = "when = \"account.balance > 1\"".to_owned();
    for when in [deep, long, nested, confused, slow, unsafe_text, no_bool, missing] {
        let shown: String = when.chars().take(60).collect();
        let text = rule(&format!("id = \"r\"\naction = \"deny\"\nbecause = \"x\"\n{when}"));
        let began = Instant::now();
        let ran = run_with(&["policy", "check", "-"], text.as_bytes());
        assert_eq!(ran.code, 3, "{shown}: {}", ran.err);
        assert!(ran.err.contains("rules[0].when"), "{shown}: {}", ran.err);
        assert!(began.elapsed().as_secs() < 20, "{shown}");
    }
}

#[test]
fn examples_that_come_out_otherwise_refuse_the_file() {
    let text = rule(
        "id = \"few\"\nwhen = \"pool.remaining < 10\"\naction = \"deny\"\nbecause = \"few\"\n\n[[rules.expect]]\npool = { remaining = 50 }\noutcome = \"matches\"",
    );
    let ran = run_with(&["policy", "check", "-"], text.as_bytes());
    assert_eq!(ran.code, 3);
    for part in ["expect", "matches", "few"] {
        assert!(ran.err.contains(part), "{}", ran.err);
    }
    let ran = run_with(&["policy", "check", "-"], text.replace("= 50", "= 5").as_bytes());
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("1 hold"), "{}", ran.out);
}

#[test]
fn a_pool_that_will_not_last_shows_and_is_an_event() {
    let daemon = Daemon::configured(POOL);
    // Whatever is asked for from time to time does not last for months.
    let told = || daemon.cli(&["forecast", "--json"]).json()["data"]["forecasts"][0].clone();
    daemon.until("enough is known", || {
        daemon.ask(&intent("eager", "work"));
        told()["basis"] == "enough"
    });
    let one = &told();
    assert_eq!((&one["pool"], &one["basis"]), (&json!("p:calls"), &json!("enough")));
    assert!(one["p_exhaust"].as_f64().unwrap() > 0.9, "{one}");
    assert!(one["tte_p50_seconds"].as_f64().unwrap() < 3600.0, "{one}");
    assert_eq!(one["cone"].as_array().unwrap().len(), 25);
    let shown = daemon.cli(&["forecast"]).out;
    assert!(shown.contains("p:calls") && shown.contains('%'), "{shown}");
    daemon.until("it is told", || {
        daemon.ask(&intent("eager", "work"));
        !daemon.events_of("forecast_crossed").is_empty()
    });
    let event = &daemon.events_of("forecast_crossed")[0]["payload"];
    assert_eq!((&event["pool"], &event["rises"]), (&json!("p:calls"), &json!(true)));
}

#[test]
fn what_work_takes_is_learned_and_survives_a_restart() {
    let daemon = Daemon::configured(
        "[[pools]]\nid = \"p:points\"\nunit = \"points\"\nlimit = 1000000\ntrust_usage = true\nwindow = { kind = \"fixed\", every = \"300d\" }\n\n[[routes]]\npools = [{ id = \"p:points\", worst = 900 }]\n",
    );
    let held = |daemon: &Daemon| daemon.ask(&intent("a", "query"))["pools"][0]["amount"].clone();
    assert_eq!(held(&daemon), 900);
    for _ in 0..25 {
        let asked = daemon.ask(&intent("a", "query"));
        let report = json!({"intent_id": asked["intent_id"], "actual_cost": 40});
        assert_eq!(daemon.report(&report).status, 200);
    }
    let learned = held(&daemon).as_u64().unwrap();
    assert!((39..=42).contains(&learned), "{learned}");
    let daemon = daemon.again();
    assert_eq!(held(&daemon), learned);
    let costs = daemon.get("/v1/forecast", Some(&daemon.admin())).json();
    assert_eq!(costs["learned_costs"][0]["workload_id"], "query");
    assert_eq!(costs["learned_costs"][0]["samples"], 25);
}

#[test]
fn a_recorded_run_asked_again_gives_the_same_and_another_policy_what_would_differ() {
    let config = "[[pools]]\nid = \"p:slow\"\nlimit = 40\nwindow = { kind = \"sliding\", every = \"2s\" }\n\n[[pools]]\nid = \"p:running\"\nlimit = 6\nvalid_for = \"1s\"\nwindow = { kind = \"concurrency\" }\n\n[[routes]]\nworkload = \"scan\"\npools = [{ id = \"p:slow\" }]\n\n[[routes]]\nworkload = \"run\"\npools = [{ id = \"p:running\" }]\n\n[[rules]]\nid = \"few\"\nworkload = \"scan\"\nwhen = \"pool.remaining_percent < 30.0\"\naction = \"wait\"\nwait = \"1s\"\nbecause = \"slowly\"\n";
    let mut daemon = Daemon::configured(config);
    for round in 0..2 {
        thread::scope(|scope| {
            for agent in 0..4 {
                let daemon = &daemon;
                scope.spawn(move || {
                    for number in 0..60 {
                        let work = if number % 3 == 0 { "run" } else { "scan" };
                        let asked = daemon.ask(&intent(&format!("agent-{agent}"), work));
                        if is_approved(&asked) && number % 2 == 0 {
                            daemon.report(
                                &json!({"intent_id": asked["intent_id"], "actual_cost": 1}),
                            );
                        }
                    }
                });
            }
        });
        if round == 0 {
            daemon.kill();
            daemon = daemon.again();
        }
    }
    let folder = daemon.data().parent().unwrap().to_owned();
    let same = daemon.cli(&["what-if", "--json"]).json();
    let summary = &same["data"]["summary"];
    assert_eq!(summary["decisions"], 480);
    assert_eq!(summary["same"], summary["decisions"], "{summary}");
    // The same configuration, written out, is no change either.
    let again = daemon.cli(&["what-if", "--policy", "tollgate.toml", "--json"]).json();
    assert_eq!(again["data"]["summary"]["same"], 480);
    fs::write(folder.join("stricter.toml"), config.replace("limit = 6", "limit = 1")).unwrap();
    let ran = daemon.cli(&["what-if", "--policy", "stricter.toml", "--diff", "d.ndjson", "--json"]);
    let told = ran.json();
    let stopped = told["data"]["summary"]["stopped"].as_u64().unwrap();
    assert!(stopped > 0, "{}", told["data"]["summary"]);
    let lines = fs::read_to_string(folder.join("d.ndjson")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = &told["data"]["summary"];
    let differ = summary["decisions"].as_u64().unwrap() - summary["same"].as_u64().unwrap();
    assert_eq!(lines.len() as u64, differ);
    assert!(lines.iter().any(|line| line["after"]["decision"] == "denied"));
    let shown = daemon.cli(&["what-if", "--policy", "stricter.toml"]).out;
    assert!(shown.contains("would be denied") && shown.contains("p:running"), "{shown}");
    // Over HTTP it is the same.
    let body = json!({"config": {
        "pools": [{"id": "p:one", "limit": 1, "window": {"kind": "fixed", "every": "300d"}}],
        "routes": [{"pools": [{"id": "p:one"}]}],
    }, "limit": 3});
    let answer = daemon.post("/v1/what-if", Some(&daemon.admin()), &body.to_string()).json();
    assert_eq!(answer["summary"]["decisions"], 480);
    assert_eq!(answer["differences"].as_array().unwrap().len(), 3);
    let wrong = json!({"config": {"pools": [{"id": "p:one"}]}}).to_string();
    let refused = daemon.post("/v1/what-if", Some(&daemon.admin()), &wrong);
    assert_eq!(refused.code(), "INVALID_REQUEST");
}

#[test]
fn simulations_repeat_to_the_byte_and_a_broken_invariant_is_exit_code_1() {
    for name in [
        "thundering-herd",
        "drift-correction",
        "priority-inversion",
        "noisy-neighbour",
        "cascading-failure",
    ] {
        let file = root().join(format!("examples/scenarios/{name}.toml"));
        let file = file.to_str().unwrap();
        let first = run(&["simulate", file, "--json"]);
        assert_eq!(first.code, 0, "{name}: {}", first.out);
        assert_eq!(first.out, run(&["simulate", file, "--json"]).out, "{name}");
    }
    let file = root().join("examples/scenarios/noisy-neighbour.toml");
    let text = fs::read_to_string(file).unwrap();
    let broken = format!(
        "{text}\n[[invariants]]\nmetric = \"asks\"\nat_most = 1\nbecause = \"it cannot hold\"\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("out.svg");
    let ran = run_with(&["simulate", "-", "--plot", plot.to_str().unwrap()], broken.as_bytes());
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.out.contains("FAIL") && ran.out.contains("1 invariant is broken"), "{}", ran.out);
    assert!(fs::read_to_string(plot).unwrap().starts_with("<svg"));
    let ran = run_with(&["simulate", "-"], b"name = \"x\"\nlasts = \"1m\"\nagens = 1\n");
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("line 3") && ran.err.contains("agents"), "{}", ran.err);
}

#[test]
fn a_file_that_was_cut_off_opens_nothing() {
    let deny = rule("id = \"stop\"\naction = \"deny\"\nbecause = \"stop\"");
    let daemon = Daemon::configured(&deny);
    let file = daemon.data().parent().unwrap().join("tollgate.toml");
    for cut in ["", "# nothing\n"] {
        fs::write(&file, cut).unwrap();
        let refused = daemon.post("/v1/reload", Some(&daemon.admin()), "{}");
        assert!(refused.message().contains("no pools any more"), "{}", refused.message());
        assert!(!is_approved(&daemon.ask(&intent("a", "work"))));
    }
}
