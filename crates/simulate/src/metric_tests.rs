//! Each metric on a run that was made by hand, and on one in which what it watches went wrong.

use tollgate_contract::Urgency;
use tollgate_governor::GovernorConfig;

use super::*;
use crate::{
    observed::{Asked, Hunger, Seen, Take},
    series,
};

fn config() -> GovernorConfig {
    let text = r#"{
        "pools": [
            {"id": "a:calls", "limit": 10, "window": {"kind": "fixed", "every": "10s"}},
            {"id": "b:soft", "limit": 1, "hard": false, "window": {"kind": "fixed", "every": "10s"}}
        ],
        "routes": [{"pools": [{"id": "a:calls"}]}]
    }"#;
    serde_json::from_str(text).unwrap()
}

/// Two agents of one group and one of another, for twenty seconds.
fn seen() -> Observed {
    let agent = |group, urgency| Seen { group, urgency };
    Observed {
        starts_at: 0,
        ends_at: 20_000,
        agents: vec![agent(0, Urgency::Normal), agent(0, Urgency::Normal), agent(1, Urgency::High)],
        takes: vec![Vec::new(), Vec::new()],
        limits: vec![vec![(0, 10)], vec![(0, 1)]],
        drift: vec![None, None],
        ..Observed::default()
    }
}

impl Observed {
    /// Somebody acts, and takes this of the first pool.
    fn act(&mut self, agent: u32, wished: i64, at: i64, amount: u64) -> &mut Acted {
        let act = Some(self.acts.len());
        self.takes[0].push(Take { at, ends: at, key: 0, amount, act, refused: false });
        self.acts.push(Acted {
            at,
            agent,
            wished,
            decided: wished,
            booked: false,
            ghost: false,
            refused: false,
        });
        self.acts.last_mut().unwrap()
    }

    fn asked(&mut self, agent: u32, at: i64, answered: Answered) {
        self.asks.push(Asked { at, agent, answered });
    }

    fn hungry(&mut self, agent: u32, from: i64, to: i64) {
        self.hunger.push(Hunger { agent, from, to });
    }

    fn measure(&self, metric: Metric, of: &Of) -> Option<f64> {
        let series = series::all(self, &config(), &[]);
        metric.measure(&Measuring { observed: self, series: &series, hard: &[true, false] }, of)
    }

    fn all(&self, metric: Metric) -> Option<f64> {
        self.measure(metric, &Of::all())
    }
}

#[test]
fn overshoot_is_what_a_window_saw_above_its_limit() {
    let mut run = seen();
    assert_eq!(run.all(Metric::Overshoot), None, "nobody acted, and nothing is shown");
    run.act(0, 0, 1_000, 6);
    run.act(1, 0, 9_000, 4);
    run.act(1, 0, 10_000, 10);
    assert_eq!(run.all(Metric::Overshoot), Some(0.0));
    run.act(1, 0, 19_000, 3);
    assert_eq!(run.all(Metric::Overshoot), Some(3.0));
    let early = Of { until: 10_000, ..Of::all() };
    assert_eq!(run.measure(Metric::Overshoot, &early), Some(0.0));
    // A soft pool may be over, and says so when it is asked.
    run.takes[1].push(Take { at: 1, ends: 1, key: 0, amount: 5, act: Some(0), refused: false });
    assert_eq!(run.all(Metric::Overshoot), Some(3.0));
    assert_eq!(run.measure(Metric::Overshoot, &Of::pool(1)), Some(4.0));
}

#[test]
fn overshoot_counts_keys_apart() {
    let mut run = seen();
    run.act(0, 0, 1_000, 8);
    run.act(1, 0, 1_000, 8);
    assert_eq!(run.all(Metric::Overshoot), Some(6.0));
    run.takes[0][1].key = 1;
    assert_eq!(run.all(Metric::Overshoot), Some(0.0));
}

#[test]
fn a_limit_that_falls_binds_what_was_allowed_after_it_fell() {
    let mut run = seen();
    run.limits[0].push((5_000, 4));
    run.act(0, 4_000, 6_000, 10);
    assert_eq!(run.all(Metric::Overshoot), Some(0.0), "it was allowed under the larger one");
    let mut run = seen();
    run.ends_at = 60_000;
    run.limits[0].push((5_000, 4));
    run.act(0, 30_000, 30_000, 10);
    assert_eq!(run.all(Metric::Overshoot), Some(6.0));
}

#[test]
fn refusals_utilization_and_drift() {
    let mut run = seen();
    run.act(0, 0, 1_000, 5);
    assert_eq!(run.all(Metric::ProviderRefusals), Some(0.0));
    assert_eq!(run.measure(Metric::Utilization, &Of::pool(0)), Some(0.25));
    run.act(0, 0, 2_000, 5).refused = true;
    run.takes[0][1].refused = true;
    assert_eq!(run.all(Metric::ProviderRefusals), Some(1.0));
    assert_eq!(run.measure(Metric::ProviderRefusals, &Of::pool(1)), Some(0.0));
    assert_eq!(run.measure(Metric::Utilization, &Of::pool(0)), Some(0.25), "it got nothing");
    // What others take is not ours.
    run.takes[0].push(Take {
        at: 3_000,
        ends: 3_000,
        key: 0,
        amount: 9,
        act: None,
        refused: false,
    });
    assert_eq!(run.measure(Metric::Utilization, &Of::pool(0)), Some(0.25));
    assert_eq!(run.all(Metric::Drift), None);
    run.drift = vec![Some(3), Some(40)];
    assert_eq!(run.all(Metric::Drift), Some(40.0));
    assert_eq!(run.measure(Metric::Drift, &Of::pool(0)), Some(3.0));
}

#[test]
fn asks_are_counted_by_their_answer() {
    let mut run = seen();
    run.asked(0, 100, Answered::Approved);
    run.asked(0, 200, Answered::Waits);
    run.asked(1, 300, Answered::Denied);
    run.asked(2, 400, Answered::Denied);
    run.asked(2, 500, Answered::Silence);
    let values =
        [Metric::Asks, Metric::Approvals, Metric::Waits, Metric::Denials, Metric::ApprovalRate];
    assert_eq!(values.map(|metric| run.all(metric).unwrap()), [5.0, 1.0, 1.0, 2.0, 0.5]);
    let first = Of::group(0);
    assert_eq!(values.map(|m| run.measure(m, &first).unwrap()), [3.0, 1.0, 1.0, 1.0, 2.0 / 3.0]);
    let high = Of { urgency: Some(Urgency::High), ..Of::all() };
    assert_eq!(run.measure(Metric::Denials, &high), Some(1.0));
    let early = Of { from: 200, until: 400, ..Of::all() };
    assert_eq!(run.measure(Metric::Asks, &early), Some(2.0));
    assert_eq!(seen().all(Metric::ApprovalRate), None);
}

#[test]
fn waits_are_from_first_asking_to_acting() {
    let mut run = seen();
    assert_eq!(run.all(Metric::WaitMax), None);
    for wait in 1..=100 {
        run.act(0, 0, wait * 10, 0);
    }
    let waits = [Metric::WaitP50, Metric::WaitP99, Metric::WaitMax];
    assert_eq!(waits.map(|metric| run.all(metric).unwrap()), [0.5, 0.99, 1.0]);
    // Who acts without leave has not waited, and who was refused has not been served.
    run.act(0, 0, 9_000, 0).ghost = true;
    run.act(0, 0, 9_000, 0).refused = true;
    assert_eq!(run.all(Metric::WaitMax), Some(1.0));
    assert_eq!((run.all(Metric::Ghosts), run.all(Metric::Acted)), (Some(1.0), Some(101.0)));
}

#[test]
fn a_wait_is_kept_where_there_is_room_when_its_time_comes() {
    let mut run = seen();
    run.act(0, 0, 1_000, 8);
    assert_eq!(run.all(Metric::KeptWaits), None, "nobody was told to wait");
    run.act(0, 0, 2_000, 2).booked = true;
    assert_eq!(run.all(Metric::KeptWaits), Some(1.0));
    run.act(1, 0, 3_000, 1).booked = true;
    assert_eq!(run.all(Metric::KeptWaits), Some(0.5));
    let refused = run.act(1, 0, 12_000, 1);
    (refused.booked, refused.refused) = (true, true);
    run.act(1, 0, 13_000, 1).booked = true;
    assert_eq!(run.all(Metric::KeptWaits), Some(0.5));
}

#[test]
fn fairness_is_the_least_served_over_the_most_served() {
    let mut run = seen();
    assert_eq!(run.measure(Metric::Fairness, &Of::group(0)), None);
    run.act(0, 0, 1, 1);
    assert_eq!(run.measure(Metric::Fairness, &Of::group(0)), Some(0.0), "the other got nothing");
    run.act(0, 0, 2, 1);
    run.act(1, 0, 3, 1);
    run.act(2, 0, 3, 1);
    assert_eq!(run.measure(Metric::Fairness, &Of::group(0)), Some(0.5));
    run.act(1, 0, 4, 1).refused = true;
    assert_eq!(run.measure(Metric::Fairness, &Of::group(0)), Some(0.5));
}

#[test]
fn starved_is_the_longest_hunger_and_recovery_what_is_left_of_it_after_trouble() {
    let mut run = seen();
    assert_eq!((run.all(Metric::Starved), run.all(Metric::Recovery)), (None, None));
    run.hungry(0, 1_000, 2_000);
    run.hungry(1, 4_000, 9_000);
    run.hungry(2, 8_000, 8_500);
    assert_eq!(run.all(Metric::Starved), Some(5.0));
    assert_eq!(run.measure(Metric::Starved, &Of::group(1)), Some(0.5));
    assert_eq!(run.measure(Metric::Starved, &Of { from: 7_000, ..Of::all() }), Some(2.0));
    run.troubles_end = vec![1_500, 6_000];
    assert_eq!(run.all(Metric::Recovery), Some(3.0));
    assert_eq!(run.measure(Metric::Recovery, &Of::group(1)), Some(0.0), "it wanted nothing then");
}
