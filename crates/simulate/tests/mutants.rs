//! Invariants that cannot fail show nothing. Each fault that the governor can be given is noticed by the
//! scenario that is meant for it, on the invariant that is meant for it.
#![cfg(test)]

use std::fs;

use tollgate_governor::Mutant;
use tollgate_simulate::Scenario;

/// A fault, the scenario that notices it, and the metric (with what it is measured of) that says so.
const NOTICED: [(Mutant, &str, &str, &str); 15] = [
    (Mutant::HoldsNothing, "thundering-herd", "overshoot", ""),
    (Mutant::ForgetsUsage, "thundering-herd", "overshoot", ""),
    (Mutant::RefundsExpired, "thundering-herd", "overshoot", ""),
    (Mutant::CountsOneWindow, "thundering-herd", "overshoot", ""),
    (Mutant::MovesBookings, "thundering-herd", "kept_waits", ""),
    (Mutant::ForgetsAtRestart, "thundering-herd", "overshoot", ""),
    (Mutant::IgnoresCorrections, "drift-correction", "drift", "github:core"),
    (Mutant::IgnoresSilence, "drift-correction", "provider_refusals", ""),
    (Mutant::IgnoresHeadroom, "priority-inversion", "approval_rate", "on-call, from 60 s"),
    (Mutant::BelievesEveryone, "priority-inversion", "wait_max", "on-call, from 60 s"),
    (Mutant::BooksBeyondReach, "priority-inversion", "wait_max", "chat"),
    (Mutant::IgnoresShares, "noisy-neighbour", "approval_rate", "team, until 360 s"),
    (Mutant::IgnoresHalts, "noisy-neighbour", "acted", "neighbour, from 275 s, until 300 s"),
    (Mutant::IgnoresReload, "noisy-neighbour", "overshoot", ""),
    (Mutant::IgnoresClosure, "cascading-failure", "provider_refusals", ""),
];

#[test]
fn every_fault_is_noticed_where_it_should_be() {
    let folder = format!("{}/../../examples/scenarios", env!("CARGO_MANIFEST_DIR"));
    for (mutant, name, metric, of) in NOTICED {
        let text = fs::read_to_string(format!("{folder}/{name}.toml")).unwrap();
        let scenario = Scenario::parse(&text).unwrap();
        let held = |outcome: tollgate_simulate::Outcome| {
            let meant = |v: &&tollgate_simulate::Verdict| v.metric == metric && v.of == of;
            outcome.invariants.iter().find(meant).unwrap().holds
        };
        assert!(held(scenario.run(None)), "{name}: {metric} of `{of}` fails without any fault");
        let broken = scenario.run_with(None, &|governor| governor.mutate(mutant));
        assert!(!broken.holds(), "{name} holds although the governor {mutant:?}");
        assert!(!held(broken), "{name}: {metric} of `{of}` does not notice {mutant:?}");
    }
}
