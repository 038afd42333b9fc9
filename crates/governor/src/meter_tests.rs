use super::*;
use crate::config::{GovernorConfig, PoolConfig};

fn pool(window: &str, limit: u64) -> Pool {
    let text = format!(r#"{{"id": "a:b", "limit": {limit}, "window": {window}}}"#);
    let config: PoolConfig = serde_json::from_str(&text).unwrap();
    Pool::build(&config, 0, 0).unwrap()
}

fn minute() -> Pool {
    pool(r#"{"kind": "fixed", "every": "60ms"}"#, 10)
}

fn asked(amount: u64, validity: i64) -> Asked {
    Asked { amount, validity, kept_free: 0 }
}

fn hold(pool: &Pool, meter: &Meter, from: i64, until: i64, amount: u64) -> Hold {
    Hold { from, to: meter.counts_until(pool, until), amount, principal: 1 }
}

#[test]
fn a_hold_that_is_settled_lower_gives_the_rest_back() {
    let (pool, mut meter) = (minute(), Meter::new(&minute(), 0));
    let held = hold(&pool, &meter, 0, 30, 8);
    meter.hold(held, 0);
    assert_eq!(meter.earliest(&pool, 5, 59, &asked(3, 10)), Err(NoRoom::WithinReach));
    meter.settle(held, 2, meter.forgotten_at(&pool, 5), 5);
    assert_eq!((meter.taken(&pool, 5), meter.earliest(&pool, 5, 59, &asked(8, 10))), (2, Ok(5)));
    // What was spent is forgotten with its window.
    meter.advance(60);
    assert_eq!(meter.taken(&pool, 60), 0);
}

#[test]
fn a_hold_that_nobody_settles_counts_as_spent_and_is_marked_as_estimated() {
    let (pool, mut meter) = (minute(), Meter::new(&minute(), 0));
    let held = hold(&pool, &meter, 0, 30, 10);
    meter.hold(held, 0);
    meter.advance(45);
    meter.expire(held, 45);
    assert_eq!(meter.earliest(&pool, 45, 59, &asked(1, 5)), Err(NoRoom::WithinReach));
    assert_eq!(meter.earliest(&pool, 45, 100, &asked(1, 5)), Ok(60));
    let reading = meter.read(&pool, 45);
    assert_eq!((reading.used, reading.held, reading.estimated), (10, 0, 10));
    meter.advance(60);
    assert_eq!(meter.read(&pool, 60).estimated, 0);
}

#[test]
fn what_runs_at_the_same_time_is_free_again_when_it_ends() {
    let pool = pool(r#"{"kind": "concurrency"}"#, 2);
    let mut meter = Meter::new(&pool, 0);
    let held = hold(&pool, &meter, 0, 100, 2);
    meter.hold(held, 0);
    assert_eq!(meter.earliest(&pool, 10, 20, &asked(1, 50)), Err(NoRoom::WithinReach));
    meter.settle(held, 0, 10, 10);
    assert_eq!(meter.earliest(&pool, 10, 20, &asked(2, 50)), Ok(10));
}

#[test]
fn a_booking_is_kept_whatever_comes_later() {
    let (pool, mut meter) = (minute(), Meter::new(&minute(), 0));
    meter.hold(hold(&pool, &meter, 0, 30, 10), 0);
    let from = meter.earliest(&pool, 1, 100, &asked(4, 30)).unwrap();
    assert_eq!(from, 60);
    meter.hold(hold(&pool, &meter, from, from + 30, 4), 1);
    assert_eq!((meter.read(&pool, 1).held, meter.read(&pool, 1).booked), (10, 4));
    // Whoever asks for more than is left beside it waits longer, whenever he asks.
    assert_eq!(meter.earliest(&pool, 2, 119, &asked(7, 30)), Err(NoRoom::WithinReach));
    assert_eq!(meter.earliest(&pool, 2, 200, &asked(7, 30)), Ok(120));
    assert_eq!(meter.earliest(&pool, 2, 200, &asked(6, 30)), Ok(60));
}

#[test]
fn what_is_kept_free_is_for_others() {
    let (pool, meter) = (minute(), Meter::new(&minute(), 0));
    let background = |amount| Asked { kept_free: 2, ..asked(amount, 10) };
    assert_eq!(meter.earliest(&pool, 0, 50, &background(8)), Ok(0));
    assert_eq!(meter.earliest(&pool, 0, 50, &background(9)), Err(NoRoom::Never));
    assert_eq!(meter.earliest(&pool, 0, 50, &asked(11, 10)), Err(NoRoom::Never));
}

#[test]
fn a_share_is_a_part_of_the_limit_while_others_are_there() {
    let (pool, mut meter) = (minute(), Meter::new(&minute(), 0));
    let first = Hold { principal: 1, ..hold(&pool, &meter, 0, 30, 5) };
    meter.hold(first, 0);
    assert!(meter.is_within_share(&pool, 1, 5), "alone, it may have all");
    meter.note(2, 0);
    assert!(!meter.is_within_share(&pool, 1, 1));
    assert!(meter.is_within_share(&pool, 2, 9), "whoever holds nothing may hold what fits");
    meter.settle(first, 5, 60, 1);
    assert!(meter.is_within_share(&pool, 1, 5));
    // Whoever is not heard of any more takes no share.
    meter.hold(Hold { principal: 1, ..hold(&pool, &meter, 2, 30, 5) }, 2);
    meter.advance(20_000);
    assert!(meter.is_within_share(&pool, 1, 5));
}

#[test]
fn a_meter_that_is_as_if_never_used_need_not_be_kept() {
    let (pool, mut meter) = (minute(), Meter::new(&minute(), 0));
    let held = hold(&pool, &meter, 0, 30, 8);
    meter.hold(held, 0);
    meter.settle(held, 8, 60, 10);
    meter.advance(20);
    assert!(!meter.is_idle(20));
    meter.advance(30_000);
    assert!(!meter.is_idle(30_000), "it is remembered how fast it was used");
    assert!(meter.is_idle(700_000));
}

#[test]
fn a_pool_that_becomes_a_bucket_counts_what_was_spent() {
    let fixed = minute();
    let bucket = pool(r#"{"kind": "bucket", "refill": 1, "every": "1s"}"#, 10);
    let mut meter = Meter::new(&fixed, 0);
    meter.charge(7, 60, 0);
    let (meter, holds) = meter.reconfigured(&fixed, &bucket, 1);
    assert!(!holds);
    assert_eq!(meter.read(&bucket, 1).left, Some(3));
    assert!(GovernorConfig::usual().build(0).is_ok());
}

/// Takes one call every second for a while, as most clients do: held, and never settled.
fn drained(pool: &Pool, seconds: i64) -> (Meter, i64) {
    let start = 1_800_000_000_000;
    let mut meter = Meter::new(pool, start);
    for second in 0..seconds {
        let now = start + second * 1000;
        meter.advance(now);
        let held = hold(pool, &meter, now, now + 100, 1);
        meter.hold(held, now);
        meter.expire(held, now);
    }
    let now = start + seconds * 1000;
    meter.advance(now);
    (meter, now)
}

#[test]
fn a_forecast_knows_when_a_window_ends() {
    // Ten minutes into the hour, one a second: 3,600 until its end.
    let hour = r#"{"kind": "fixed", "every": "1h"}"#;
    let looked = |limit: u64, asked: u64| {
        let pool = pool(hour, limit);
        let (meter, now) = drained(&pool, 600);
        meter.forecast(&pool, now, asked).unwrap()
    };
    let short = looked(2000, 0);
    assert!(short.p_exhaust > 0.99, "{short:?}");
    assert!((1_300_000..1_500_000).contains(&short.exhausted_in[0].unwrap()), "{short:?}");
    let enough = looked(5000, 0);
    assert!(enough.p_exhaust < 0.01 && enough.exhausted_in == [None; 3], "{enough:?}");
    assert!(looked(5000, 3000).p_exhaust_with > 0.99);
}

#[test]
fn a_forecast_counts_what_comes_back() {
    // One a second, and each counts for a minute: sixty at a time, for ever.
    let sliding = r#"{"kind": "sliding", "every": "1m"}"#;
    let enough = pool(sliding, 90);
    let (meter, now) = drained(&enough, 300);
    assert!(meter.forecast(&enough, now, 0).unwrap().p_exhaust < 0.1);
    let bucket = |refill: u64| {
        let text = format!(r#"{{"kind": "bucket", "refill": {refill}, "every": "10s"}}"#);
        let pool = pool(&text, 500);
        let (meter, now) = drained(&pool, 300);
        meter.forecast(&pool, now, 0).unwrap().p_exhaust
    };
    assert!(bucket(20) < 0.01, "it refills faster than it is used");
    assert!(bucket(2) > 0.9, "it refills more slowly");
    let running = pool(r#"{"kind": "concurrency"}"#, 5);
    let (meter, now) = drained(&running, 5);
    assert_eq!(meter.forecast(&running, now, 0), None, "leases are not used up");
}
