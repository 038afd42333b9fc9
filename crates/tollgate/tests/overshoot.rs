//! No limit is ever exceeded by approvals that clients received: many clients, several kinds of pools, random
//! amounts, and a gate that is killed again and again. The sums are added up here, from what clients were
//! told, and not by the code that decides.

#![cfg(test)]

mod common;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use common::{
    asking::{Dice, Kept, intent, is_approved, ms, now_ms, with},
    daemon::{Daemon, signal},
};
use serde_json::{Value, json};

/// One pool of each kind.
const POOLS: &str = r#"
[[pools]]
id = "t:fixed"
limit = 40
window = { kind = "fixed", every = "1s" }
valid_for = "300ms"

[[pools]]
id = "t:sliding"
limit = 60
window = { kind = "sliding", every = "2s" }
valid_for = "200ms"

[[pools]]
id = "t:bucket"
limit = 50
window = { kind = "bucket", refill = 50, every = "1s" }
valid_for = "200ms"

[[pools]]
id = "t:agent"
limit = 8
window = { kind = "fixed", every = "1s" }
per = "agent"
valid_for = "300ms"

[[pools]]
id = "t:running"
limit = 5
window = { kind = "concurrency" }
valid_for = "400ms"

[[pools]]
id = "t:whole"
limit = 1500
window = { kind = "fixed", every = "300d" }
valid_for = "1s"

[[routes]]
workload = "fixed"
pools = [{ id = "t:fixed" }, { id = "t:whole" }]

[[routes]]
workload = "sliding"
pools = [{ id = "t:sliding" }, { id = "t:whole" }]

[[routes]]
workload = "bucket"
pools = [{ id = "t:bucket" }]

[[routes]]
workload = "agent"
pools = [{ id = "t:agent" }, { id = "t:fixed" }]

[[routes]]
workload = "running"
pools = [{ id = "t:running", cost = 1 }]

[[routes]]
workload = "all"
pools = [{ id = "t:fixed" }, { id = "t:sliding" }, { id = "t:bucket" }, { id = "t:agent" }]

[governor]
horizon_seconds = { high = 2, normal = 2, background = 2 }
"#;

/// What a client was allowed: how much of which pool, and when it may act.
#[derive(Debug, Clone)]
struct Allowed {
    agent: String,
    intent: String,
    pools: Vec<(String, u64)>,
    from: i64,
    until: i64,
    /// When the client had reported, if it did.
    settled: Option<i64>,
}

impl Allowed {
    fn read(agent: &str, decision: &Value) -> Option<Self> {
        if !is_approved(decision) {
            return None;
        }
        let pools = decision["pools"].as_array().unwrap().iter();
        let pools =
            pools.map(|p| (p["pool"].as_str().unwrap().to_owned(), p["amount"].as_u64().unwrap()));
        let wait = decision["modifications"]["wait_seconds"].as_f64().unwrap_or(0.0);
        #[expect(clippy::cast_possible_truncation, reason = "a wait of seconds, in milliseconds")]
        let from = ms(&decision["evaluation"]["as_of_ts"]) + (wait * 1000.0).round() as i64;
        Some(Self {
            agent: agent.to_owned(),
            intent: decision["intent_id"].as_str().unwrap().to_owned(),
            pools: pools.collect(),
            from,
            until: ms(&decision["valid_until"]),
            settled: None,
        })
    }

    fn of(&self, pool: &str) -> u64 {
        self.pools.iter().filter(|(id, _)| id == pool).map(|(_, amount)| amount).sum()
    }
}

/// One client: it asks at random, waits for nobody, and reports now and then. Ends when the gate is gone.
fn client(address: &str, number: u64, round: u64, told: &Mutex<Vec<Allowed>>, asked: &AtomicUsize) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ (number * 7919 + round * 104_729 + 1));
    let Some(mut kept) = Kept::at(address) else { return };
    let agent = format!("agent-{}", number % 4);
    loop {
        let works = ["fixed", "sliding", "bucket", "agent", "running", "all"];
        let work = works[usize::try_from(dice.below(6)).unwrap()];
        let urgency = ["high", "normal", "background"][usize::try_from(dice.below(3)).unwrap()];
        let cost = if work == "running" { 1 } else { 1 + dice.below(3) };
        let asks = with(intent(&agent, work), &json!({"expected_cost": cost, "urgency": urgency}));
        let Some(decision) = kept.ask(&asks) else { return };
        asked.fetch_add(1, Ordering::SeqCst);
        let Some(mut allowed) = Allowed::read(&agent, &decision) else { continue };
        let id = allowed.intent.clone();
        // Whoever must wait first has nothing to report yet.
        let reports = decision.get("modifications").is_none() && dice.below(2) == 0;
        if reports {
            // It was done by the time of the report; what was done is what was held.
            allowed.settled = Some(now_ms());
        }
        told.lock().unwrap().push(allowed);
        if reports && kept.post("/v1/usage", &json!({"intent_id": id})).is_none() {
            return;
        }
    }
}

/// The most that is taken at once by these amounts, each from its beginning until before its end.
fn peak(mut spans: Vec<(i64, i64, u64)>) -> u64 {
    let mut changes: Vec<(i64, bool, u64)> = Vec::new();
    spans.retain(|(from, to, _)| to > from);
    for (from, to, amount) in spans {
        changes.push((from, true, amount));
        changes.push((to, false, amount));
    }
    // What ends at a moment ends before something begins at it.
    changes.sort();
    let (mut now, mut most) = (0_u64, 0_u64);
    for (_, begins, amount) in changes {
        now = if begins { now + amount } else { now - amount };
        most = most.max(now);
    }
    most
}

#[test]
fn no_limit_is_exceeded_whatever_clients_do_and_however_often_the_gate_is_killed() {
    let mut daemon = Daemon::configured(POOLS);
    let mut all: Vec<Allowed> = Vec::new();
    for (round, after) in [900, 300, 1500, 60, 900].into_iter().enumerate() {
        let told: Mutex<Vec<Allowed>> = Mutex::default();
        let asked = AtomicUsize::new(0);
        let address = daemon.address();
        std::thread::scope(|scope| {
            for number in 0..16 {
                let (address, told, asked) = (&address, &told, &asked);
                let round = u64::try_from(round).unwrap();
                scope.spawn(move || client(address, number, round, told, asked));
            }
            daemon.until("enough is asked and approved", || {
                asked.load(Ordering::SeqCst) >= after && told.lock().unwrap().len() >= 70
            });
            signal(daemon.child.id(), "KILL");
        });
        all.extend(told.into_inner().unwrap());
        daemon.wait();
        daemon = daemon.again();
        daemon.verifies();
    }
    assert!(all.len() >= 350, "{}", all.len());
    check_sums(&all);
    // Every approval that a client received is on record, with what it holds.
    let events = daemon.events_of("intent_decided");
    let recorded: BTreeMap<&str, &Value> = events
        .iter()
        .map(|event| (event["intent_id"].as_str().unwrap(), &event["payload"]))
        .collect();
    for allowed in &all {
        let payload =
            recorded.get(allowed.intent.as_str()).unwrap_or_else(|| panic!("{allowed:?}"));
        assert_eq!(payload["from"].as_i64(), Some(allowed.from), "{payload} {allowed:?}");
        assert_eq!(payload["until"].as_i64(), Some(allowed.until));
        let pools = payload["pools"].as_array().unwrap();
        assert_eq!(pools.len(), allowed.pools.len());
        for pool in pools {
            assert_eq!(pool["amount"].as_u64(), Some(allowed.of(pool["pool"].as_str().unwrap())));
        }
    }
    // The one pool whose window never ends holds all of it, answers that were lost included.
    let spent: u64 = all.iter().map(|allowed| allowed.of("t:whole")).sum();
    let whole = daemon.pool("t:whole", None);
    let counted = whole["used"].as_u64().unwrap() + whole["held"].as_u64().unwrap();
    let booked = whole["booked"].as_u64().unwrap();
    assert!(counted + booked >= spent && counted + booked <= 1500, "{spent} {whole}");
}

/// Adds up, pool by pool, at whichever moment of its time a client may have acted.
fn check_sums(all: &[Allowed]) {
    // Fixed windows: whoever may act in one may act there with all of it.
    let window = |at: i64| at.div_euclid(1000);
    let mut fixed: BTreeMap<i64, (u64, u64)> = BTreeMap::new();
    let mut by_agent: BTreeMap<(i64, &str), u64> = BTreeMap::new();
    for allowed in all {
        // With a report, it acted before that; without one, at any moment until it was no longer valid.
        let last = allowed.settled.map_or(allowed.until - 1, |at| at.min(allowed.until - 1));
        let first = allowed.from.min(last);
        let sure = window(first) == window(last);
        for at in window(first)..=window(last) {
            let sums = fixed.entry(at).or_default();
            sums.0 += if sure { allowed.of("t:fixed") } else { 0 };
            sums.1 += allowed.of("t:fixed");
            if allowed.settled.is_none() {
                *by_agent.entry((at, &allowed.agent)).or_default() += allowed.of("t:agent");
            }
        }
    }
    for (at, (sure, possible)) in &fixed {
        assert!(*sure <= 40, "window {at}: {sure} for certain, {possible} perhaps");
    }
    assert!(fixed.values().any(|(_, possible)| *possible > 20), "the limit was never near");
    for (key, sum) in &by_agent {
        assert!(*sum <= 8, "{key:?}: {sum}");
    }
    let unsettled = || all.iter().filter(|allowed| allowed.settled.is_none());
    // Sliding: in any two seconds, even if each acts at the worst moment of its time.
    let spans = unsettled().map(|a| (a.from, a.until + 1999, a.of("t:sliding")));
    let most = peak(spans.collect());
    assert!((20..=60).contains(&most), "sliding: {most}");
    // At the same time.
    let running = unsettled().map(|a| (a.from, a.until, a.of("t:running"))).collect();
    assert!(peak(running) <= 5);
    // A bucket: in any stretch of time no more than was in it and came in.
    let mut acts: Vec<(i64, u64)> = all.iter().map(|a| (a.from, a.of("t:bucket"))).collect();
    acts.sort_unstable();
    let (mut level, mut at) = (50_000_i64, acts.first().map_or(0, |act| act.0));
    for (from, amount) in acts {
        level = (level + (from - at) * 50).min(50_000) - i64::try_from(amount).unwrap() * 1000;
        at = from;
        assert!(level >= 0, "the bucket is overdrawn at {at}");
    }
}

#[test]
fn thousands_of_holds_that_run_out_at_once_keep_nobody_waiting() {
    let pools = r#"
[[pools]]
id = "t:calls"
limit = 1000000
window = { kind = "fixed", every = "300d" }

[[pools]]
id = "t:free"
limit = 1000000
window = { kind = "fixed", every = "300d" }
on_expiry = "release"

[[routes]]
workload = "storm"
pools = [{ id = "t:calls" }, { id = "t:free" }]
"#;
    let pools = pools.replace("\"300d\" }\n", "\"300d\" }\nvalid_for = \"2s\"\n");
    let daemon = Daemon::configured(&pools);
    let holds = Mutex::new(Vec::<i64>::new());
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (daemon, holds) = (&daemon, &holds);
            scope.spawn(move || {
                let mut kept = Kept::to(daemon);
                let storm = vec![intent(&format!("s{number}"), "storm"); 10];
                for _ in 0..50 {
                    let (_, told) =
                        kept.post("/v1/intents/batch", &json!({"intents": storm})).unwrap();
                    let told = told["decisions"].as_array().unwrap().clone();
                    assert!(told.iter().all(is_approved));
                    holds.lock().unwrap().extend(told.iter().map(|d| ms(&d["valid_until"])));
                }
            });
        }
    });
    let holds = holds.into_inner().unwrap();
    assert_eq!(holds.len(), 2000);
    // While they run out, others are answered.
    let stop = AtomicBool::new(false);
    let later = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut kept = Kept::to(&daemon);
            let mut count = 0_u64;
            while !stop.load(Ordering::SeqCst) {
                assert!(is_approved(&kept.ask(&intent("calm", "storm")).unwrap()));
                count += 1;
            }
            count
        });
        daemon.until("all have run out", || {
            daemon.pool("t:calls", None)["estimated"].as_u64().unwrap() >= 2000
        });
        stop.store(true, Ordering::SeqCst);
        asking.join().unwrap()
    });
    assert!(later > 10, "{later}");
    daemon.until("the last ones have run out, too", || {
        let pool = daemon.pool("t:calls", None);
        assert_eq!(pool["used"].as_u64().unwrap() + pool["held"].as_u64().unwrap(), 2000 + later);
        pool["held"] == 0
    });
    let free = daemon.pool("t:free", None);
    assert_eq!(
        (&free["used"], &free["held"], &free["left"]),
        (&json!(0), &json!(0), &json!(1_000_000))
    );
    let ended: usize = daemon
        .events_of("hold_expired")
        .iter()
        .map(|event| event["payload"]["holds"].as_array().unwrap().len())
        .sum();
    assert_eq!(u64::try_from(ended).unwrap(), 2000 + later, "each runs out once");
    daemon.verifies();
}

#[test]
fn a_client_that_never_reports_and_retries_blindly_is_metered_right() {
    let pools = r#"
[[pools]]
id = "t:calls"
limit = 200
window = { kind = "fixed", every = "300d" }
valid_for = "1s"

[[routes]]
pools = [{ id = "t:calls" }]
"#;
    let mut daemon = Daemon::configured(pools);
    let approved = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut kept = Kept::to(&daemon);
                for _ in 0..100 {
                    let decision = kept.ask(&intent("blind", "w")).unwrap();
                    approved.fetch_add(usize::from(is_approved(&decision)), Ordering::SeqCst);
                }
            });
        }
    });
    let approved = approved.into_inner();
    assert_eq!(approved, 200, "all that there is, and nothing beyond");
    daemon.until("every approval counts as spent", || daemon.pool("t:calls", None)["held"] == 0);
    let metered = |daemon: &Daemon| {
        let pool = daemon.pool("t:calls", None);
        (pool["used"].clone(), pool["estimated"].clone(), pool["left"].clone())
    };
    assert_eq!(metered(&daemon), (json!(200), json!(200), json!(0)));
    assert!(daemon.cli(&["pools"]).out.contains("~200"), "marked as an estimate");
    daemon.kill();
    let daemon = daemon.again();
    assert_eq!(metered(&daemon), (json!(200), json!(200), json!(0)));
    let late = daemon.events_of("intent_decided");
    let late = late.iter().find(|event| event["payload"]["decision"] == "approve").unwrap();
    // A late report does not make it free: nobody vouches for it.
    let told = daemon.report(&json!({"intent_id": late["intent_id"], "actual_cost": 0})).json();
    assert_eq!((&told["late"], &told["pools"][0]["used"]), (&json!(true), &json!(1)));
    assert_eq!(metered(&daemon), (json!(200), json!(199), json!(0)));
}
