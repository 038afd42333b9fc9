//! Small worlds in which one thing happens, and what must come of it.
#![cfg(test)]

use serde_json::Value;
use tollgate_simulate::{Outcome, Scenario};

const HEAD: &str = r#"
name = "small"
seed = 4
lasts = "5m"
[[pools]]
id = "a:calls"
limit = 100
window = { kind = "sliding", every = "30s" }
valid_for = "3s"
[[routes]]
workload = "work"
pools = [{ id = "a:calls" }]
"#;

const WORKERS: &str = r#"
[[agents]]
name = "worker"
count = 10
identity = "each"
workload = "work"
behaviour = { kind = "poisson", per_second = 0.5 }
acts_within = "2s"
reports = 0.7
"#;

fn run(parts: &[&str]) -> Outcome {
    Scenario::parse(&parts.concat()).unwrap_or_else(|error| panic!("{error}")).run(None)
}

fn measured(outcome: &Outcome) -> Value {
    let json = serde_json::to_value(outcome).unwrap();
    serde_json::json!([json["pools"], json["agents"], json["decisions"]])
}

#[test]
fn a_crash_that_takes_no_time_changes_nothing() {
    let plain = run(&[HEAD, WORKERS]);
    assert!(plain.agents[0].waits > Some(10.0) && plain.agents[0].denials > Some(10.0));
    for from in ["events", "snapshot"] {
        let crash = format!("[[sabotage]]\nat = \"100s\"\ncrash = \"{from}\"\n");
        let again = format!("[[sabotage]]\nat = \"200s\"\ncrash = \"{from}\"\n");
        let crashed = run(&[HEAD, WORKERS, &crash, &again]);
        assert_eq!(measured(&plain), measured(&crashed), "from {from}");
    }
}

#[test]
fn nobody_is_answered_while_the_gate_is_away() {
    let away = "[[sabotage]]\nat = \"100s\"\ncrash = { away = \"20s\" }\n\
        [[invariants]]\nmetric = \"approval_rate\"\nfrom = \"100s\"\nuntil = \"120s\"\nat_least = 0\nbecause = \"x\"\n\
        [[invariants]]\nmetric = \"asks\"\nfrom = \"100s\"\nuntil = \"120s\"\nat_least = 20\nbecause = \"x\"\n";
    let outcome = run(&[HEAD, WORKERS, away]);
    assert_eq!(outcome.invariants[0].measured, None);
    assert!(outcome.invariants[1].holds);
    assert_eq!(outcome.pools[0].overshoot, Some(0.0));
}

#[test]
fn a_clock_that_jumps_for_a_moment_changes_nothing() {
    let plain = run(&[HEAD, WORKERS]);
    let ahead = "[[sabotage]]\nat = \"100s\"\nclock_jump = \"1h\"\nlasts = \"30s\"\n";
    assert_eq!(measured(&plain), measured(&run(&[HEAD, WORKERS, ahead])));
}

#[test]
fn a_clock_that_is_set_back_makes_everything_slow_and_nothing_over() {
    let back = "[[sabotage]]\nat = \"100s\"\nclock_jump = \"-1h\"\n";
    let outcome = run(&[HEAD, WORKERS, back]);
    assert!(outcome.agents[0].acted < run(&[HEAD, WORKERS]).agents[0].acted);
    assert_eq!(outcome.pools[0].overshoot, Some(0.0));
}

#[test]
fn a_clock_that_was_believed_to_be_ahead_shows() {
    // After a minute the governor believes it, and takes an hour for over that is not. The observer does not.
    let ahead = "[[sabotage]]\nat = \"100s\"\nclock_jump = \"1h\"\n";
    assert!(run(&[HEAD, WORKERS, ahead]).pools[0].overshoot > Some(0.0));
}

#[test]
fn whoever_does_not_obey_shows() {
    let wild = WORKERS.replace("reports = 0.7", "reports = 0.7\nobeys = false");
    let outcome = run(&[HEAD, &wild]);
    let agents = &outcome.agents[0];
    assert_eq!(agents.ghosts, agents.denials);
    assert!(outcome.pools[0].overshoot > Some(0.0));
    let often = WORKERS.replace("reports = 0.7", "reports = 0.7\nobeys = 0.9");
    assert!(run(&[HEAD, &often]).agents[0].ghosts < agents.ghosts);
}

#[test]
fn what_is_not_reported_costs_room() {
    let pool = HEAD.replace("valid_for", "trust_usage = true\nvalid_for");
    let frugal = WORKERS.replace("acts_within", "expected_cost = 5\ntakes = 1\nacts_within");
    let told = run(&[&pool, &frugal]);
    let stop = "[[sabotage]]\nat = \"10s\"\nreports_stop = \"all\"\n";
    let silent = run(&[&pool, &frugal, stop]);
    assert!(told.agents[0].acted > silent.agents[0].acted, "{told:?} {silent:?}");
}

#[test]
fn storms_bursts_and_chance_ask_as_often_as_they_should() {
    let asks = |behaviour: &str, more: &str| {
        let agent = format!(
            "[[agents]]\nname = \"one\"\nworkload = \"work\"\nretries = \"none\"\nbehaviour = {behaviour}\n"
        );
        run(&[HEAD, &agent, more]).agents[0].asks.unwrap()
    };
    assert_eq!(asks("{ kind = \"periodic\", every = \"1s\" }", ""), 300.0);
    let storm =
        "[[sabotage]]\nat = \"100s\"\nstorm = { agents = \"one\", lasts = \"50s\", times = 4 }\n";
    let stormy = asks("{ kind = \"periodic\", every = \"1s\" }", storm);
    assert!((445.0..455.0).contains(&stormy), "{stormy}");
    let bursts = asks("{ kind = \"bursty\", burst = 20, every = \"30s\", within = \"1s\" }", "");
    assert!((180.0..=200.0).contains(&bursts), "{bursts}");
    let chance = asks("{ kind = \"poisson\", per_second = 4.0 }", "");
    assert!((1100.0..1300.0).contains(&chance), "{chance}");
    let chance = asks("{ kind = \"poisson\", per_second = 500.0 }", "");
    assert!((148_000.0..152_000.0).contains(&chance), "{chance}");
    let greedy = asks("{ kind = \"greedy\", pause = \"1s\" }", "");
    assert!((290.0..=301.0).contains(&greedy), "{greedy}");
    let part = "[[agents]]\nname = \"two\"\nworkload = \"work\"\nstarts = \"1m\"\nstops = \"2m\"\nbehaviour = { kind = \"periodic\", every = \"1s\" }\n";
    assert_eq!(run(&[HEAD, part]).agents[0].asks, Some(60.0));
}

#[test]
fn every_kind_of_window_holds() {
    let windows = [
        "kind = \"fixed\", every = \"30s\"",
        "kind = \"sliding\", every = \"30s\"",
        "kind = \"bucket\", refill = 1, every = \"1s\"",
        "kind = \"calendar\", every = \"day\"",
        "kind = \"concurrency\"",
    ];
    for window in windows {
        for per in ["global", "agent", "identity"] {
            let limit = if window.contains("concurrency") { 3 } else { 40 };
            let head = HEAD.replace("kind = \"sliding\", every = \"30s\"", window).replace(
                "limit = 100",
                &format!("limit = {limit}\nunit = \"calls\"\nper = \"{per}\""),
            );
            let busy = WORKERS
                .replace("0.5 }", "2.0 }")
                .replace("reports", "runs = \"1s\"\nretries = \"none\"\nreports");
            let outcome = run(&[&head, &busy]);
            assert_eq!(outcome.pools[0].overshoot, Some(0.0), "{window} per {per}");
            assert!(outcome.agents[0].denials > Some(0.0), "{window} per {per} is never full");
            assert!(outcome.pools[0].utilization > Some(0.05), "{window} {:?}", outcome.pools[0]);
        }
    }
}

#[test]
fn the_picture_is_well_formed_and_says_what_went_wrong() {
    let more = "[[sabotage]]\nat = \"290s\"\nhalt = \"all\"\n[[sabotage]]\nat = \"1m\"\nlasts = \"1m\"\nreload = { pool = \"a:calls\", limit = 50 }\n";
    let head = HEAD.replace("name = \"small\"", "name = \"a < b & c\"\nabout = \"x > y\"");
    let svg = run(&[&head, WORKERS, more]).svg();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("a &lt; b &amp; c") && svg.contains("x &gt; y"));
    assert!(svg.contains("halt of everything") && svg.contains("limit becomes 50"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}
