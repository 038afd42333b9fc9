//! Waits that are kept, and room for everyone: a provider that counts by itself sees no limit exceeded by
//! clients that do nothing but sleep as they were told; nobody is starved.

#![cfg(test)]

mod common;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::{
    asking::{Kept, intent, is_approved, ms, now_ms, with},
    daemon::Daemon,
};
use serde_json::{Value, json};

fn pool(window: &str, limit: u64, valid_for: &str) -> String {
    format!(
        "[[pools]]\nid = \"t:calls\"\nlimit = {limit}\nwindow = {window}\nvalid_for = \"{valid_for}\"\n\n[[routes]]\npools = [{{ id = \"t:calls\" }}]\n"
    )
}

fn wait_of(decision: &Value) -> f64 {
    decision["modifications"]["wait_seconds"].as_f64().unwrap_or(0.0)
}

/// Lets many clients ask, sleep as they are told, and act. Gives when each one acted.
fn acts(daemon: &Daemon, waits_wanted: usize) -> Vec<i64> {
    let acts: Mutex<Vec<i64>> = Mutex::default();
    let (waited, late, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (acts, waited, late, stop) = (&acts, &waited, &late, &stop);
            scope.spawn(move || {
                let mut kept = Kept::to(daemon);
                let asks = intent(&format!("agent-{number}"), "w");
                while !stop.load(Ordering::SeqCst) {
                    let begun = now_ms();
                    let decision = kept.ask(&asks).unwrap();
                    let is_slow = now_ms() - begun > 100;
                    if !is_approved(&decision) {
                        std::thread::sleep(Duration::from_millis(20));
                        continue;
                    }
                    let wait = wait_of(&decision);
                    let meant = now_ms() + (wait * 1000.0).ceil() as i64;
                    std::thread::sleep(Duration::from_secs_f64(wait));
                    let now = now_ms();
                    // When it was decided is not known better than this: an answer that took long, or that was asked for
                    // in another window, may have been for that one.
                    let meant = if wait > 0.0 { meant } else { begun };
                    let is_late = now.div_euclid(1000) > meant.div_euclid(1000);
                    if is_late || is_slow || now >= ms(&decision["valid_until"]) {
                        // This machine slept too long. A client that looks does not act then.
                        late.fetch_add(1, Ordering::SeqCst);
                        continue;
                    }
                    acts.lock().unwrap().push(now);
                    // Its hold is still there.
                    let done = json!({"intent_id": decision["intent_id"]});
                    let (status, told) = kept.post("/v1/usage", &done).unwrap();
                    assert_eq!(status, 200, "{told} {decision}");
                    waited.fetch_add(usize::from(wait > 0.0), Ordering::SeqCst);
                }
            });
        }
        daemon
            .until("enough clients have waited", || waited.load(Ordering::SeqCst) >= waits_wanted);
        stop.store(true, Ordering::SeqCst);
    });
    let (acts, late) = (acts.into_inner().unwrap(), late.into_inner());
    assert!(acts.len() > late, "{} acts, {late} too late", acts.len());
    acts
}

#[test]
fn a_wait_for_the_next_window_is_kept_whatever_others_ask() {
    let daemon = Daemon::configured(&pool("{ kind = \"fixed\", every = \"1s\" }", 4, "600ms"));
    let mut windows: BTreeMap<i64, u64> = BTreeMap::new();
    for at in acts(&daemon, 12) {
        *windows.entry(at.div_euclid(1000)).or_default() += 1;
    }
    assert!(windows.values().all(|count| *count <= 4), "{windows:?}");
}

#[test]
fn a_wait_in_a_sliding_window_is_kept_whatever_others_ask() {
    let daemon = Daemon::configured(&pool("{ kind = \"sliding\", every = \"1s\" }", 4, "500ms"));
    let mut acts = acts(&daemon, 12);
    acts.sort_unstable();
    for five in acts.windows(5) {
        assert!(five[4] - five[0] >= 1000, "{five:?}");
    }
}

#[test]
fn a_wait_for_a_bucket_is_kept_whatever_others_ask() {
    let window = "{ kind = \"bucket\", refill = 4, every = \"1s\" }";
    let daemon = Daemon::configured(&pool(window, 4, "500ms"));
    let mut acts = acts(&daemon, 8);
    acts.sort_unstable();
    let (mut level, mut at) = (4000, acts[0]);
    for act in acts {
        level = (level + (act - at) * 4).min(4000) - 1000;
        at = act;
        // What came in is counted in whole milliseconds, here and there.
        assert!(level >= -8, "overdrawn by {level} at {at}");
    }
}

#[test]
fn what_matters_is_not_starved_by_a_flood_of_what_does_not() {
    let daemon = Daemon::configured(&pool("{ kind = \"fixed\", every = \"1s\" }", 40, "300ms"));
    let (stop, flooded) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut kept = Kept::to(&daemon);
                let bulk = with(intent("bulk", "w"), &json!({"urgency": "background"}));
                while !stop.load(Ordering::SeqCst) {
                    kept.ask(&bulk).unwrap();
                    flooded.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        daemon.until("the flood is there", || flooded.load(Ordering::SeqCst) > 500);
        let mut kept = Kept::to(&daemon);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let urgent = with(intent("urgent", "w"), &json!({"urgency": "high"}));
            let decision = kept.ask(&urgent).unwrap();
            assert!(is_approved(&decision), "{decision}");
            waits.push(wait_of(&decision));
            std::thread::sleep(Duration::from_millis(200));
        }
        stop.store(true, Ordering::SeqCst);
        assert!(waits.iter().all(|wait| *wait <= 5.0), "{waits:?}");
    });
    // The flood was a flood: it took what it could get.
    let decided = daemon.events_of("intent_decided");
    let denied = decided.iter().filter(|event| event["payload"]["decision"] == "deny_with_reason");
    assert!(denied.count() > 100);
}

#[test]
fn whoever_asks_more_often_gets_no_more_than_its_share() {
    let daemon = Daemon::configured(&pool("{ kind = \"fixed\", every = \"250ms\" }", 6, "100ms"));
    let got: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
    let stop = AtomicBool::new(false);
    let asked: Vec<AtomicUsize> = (0..3).map(|_| AtomicUsize::new(0)).collect();
    // All three are known to be there. Whoever is alone may have everything.
    for agent in 0..3 {
        assert!(is_approved(&daemon.ask(&intent(&format!("agent-{agent}"), "w"))));
    }
    std::thread::scope(|scope| {
        for (agent, pause) in [(0, 0), (0, 0), (0, 0), (1, 4), (2, 4)] {
            let (daemon, got, asked, stop) = (&daemon, &got, &asked, &stop);
            scope.spawn(move || {
                let mut kept = Kept::to(daemon);
                let asks = intent(&format!("agent-{agent}"), "w");
                while !stop.load(Ordering::SeqCst) {
                    let decision = kept.ask(&asks).unwrap();
                    asked[agent].fetch_add(1, Ordering::SeqCst);
                    got[agent].fetch_add(usize::from(is_approved(&decision)), Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(pause));
                }
            });
        }
        let total = || got.iter().map(|count| count.load(Ordering::SeqCst)).sum::<usize>();
        daemon.until("enough was given", || total() >= 150);
        stop.store(true, Ordering::SeqCst);
    });
    let count = |all: &[AtomicUsize]| -> Vec<usize> {
        all.iter().map(|count| count.load(Ordering::SeqCst)).collect()
    };
    let (got, asked) = (count(&got), count(&asked));
    assert!(asked[0] > 2 * asked[1], "{asked:?}");
    let mean = got.iter().sum::<usize>() / 3;
    assert!(got.iter().all(|count| count.abs_diff(mean) * 10 <= mean), "{got:?} of {asked:?}");
}
