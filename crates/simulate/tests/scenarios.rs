//! The scenarios that are shipped hold, whatever the seed, and give the same every time.
#![cfg(test)]

use std::{fs, path::PathBuf};

use tollgate_simulate::{Outcome, Scenario};

const SHIPPED: [&str; 5] = [
    "thundering-herd",
    "drift-correction",
    "priority-inversion",
    "noisy-neighbour",
    "cascading-failure",
];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios")
}

fn scenario(name: &str) -> Scenario {
    let text = fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap();
    let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(scenario.name(), name);
    scenario
}

fn broken(outcome: &Outcome) -> Vec<String> {
    let broken = outcome.invariants.iter().filter(|verdict| !verdict.holds);
    broken.map(|v| format!("{} of `{}` was {:?}", v.metric, v.of, v.measured)).collect()
}

#[test]
fn every_file_in_the_folder_is_known_here() {
    let files = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name());
    let mut names: Vec<String> =
        files.filter_map(|name| name.to_str()?.strip_suffix(".toml").map(str::to_owned)).collect();
    names.sort();
    let mut known = SHIPPED.map(str::to_owned);
    known.sort();
    assert_eq!(names, known);
}

#[test]
fn each_holds_with_its_own_seed_and_with_others() {
    for name in SHIPPED {
        let scenario = scenario(name);
        assert!(scenario.about().len() > 10);
        let own = scenario.run(None);
        assert!(own.holds() && own.invariants.len() >= 4, "{name}: {:?}", broken(&own));
        let own = serde_json::to_value(&own).unwrap();
        for seed in 101..106 {
            let other = scenario.run(Some(seed));
            assert!(other.holds(), "{name} with seed {seed}: {:?}", broken(&other));
            let other = serde_json::to_value(&other).unwrap();
            assert_ne!(own["agents"], other["agents"], "{name}: another seed, another run");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for name in SHIPPED {
        let run = || {
            let outcome = scenario(name).run(Some(42));
            (serde_json::to_string(&outcome).unwrap(), outcome.svg(), outcome.table())
        };
        assert!(run() == run(), "{name} differs from run to run");
    }
}

#[test]
fn a_broken_invariant_is_told() {
    let text = fs::read_to_string(folder().join("noisy-neighbour.toml")).unwrap();
    let text = text.replace("at_least = 100\n", "at_least = 1000000\n");
    let outcome = Scenario::parse(&text).unwrap().run(None);
    assert!(!outcome.holds());
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["holds"], false);
    assert_eq!(json["invariants"][5]["bound"], serde_json::json!({"at_least": 1_000_000.0}));
    assert_eq!(json["invariants"][5]["holds"], false);
    let table = outcome.table().pop().unwrap();
    let row = table.rows.last().unwrap();
    assert_eq!(row[..2], ["FAIL", "acted"]);
    assert_eq!(row[3], "at least 1000000");
    assert_eq!(row.len(), table.head.len());
    assert!(outcome.svg().contains("5 of 6 invariants hold"));
}

#[test]
fn nothing_measured_is_nothing_shown() {
    let text = fs::read_to_string(folder().join("drift-correction.toml")).unwrap();
    let text =
        text.replace("metric = \"ghosts\"\nequals = 0", "metric = \"kept_waits\"\nequals = 1");
    let outcome = Scenario::parse(&text).unwrap().run(None);
    assert!(!outcome.holds(), "a provider's pool promises no slots, so there are none to be kept");
    assert_eq!(outcome.invariants.last().unwrap().measured, None);
}

#[test]
fn the_example_of_the_reference_runs() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulation.md");
    let page = fs::read_to_string(page).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let outcome = Scenario::parse(example).unwrap_or_else(|error| panic!("{error}")).run(None);
    assert!(outcome.holds(), "{:?}", broken(&outcome));
    for metric in tollgate_simulate::Metric::ALL {
        assert!(page.contains(&format!("`{}`", metric.name())), "{} is missing", metric.name());
    }
}
