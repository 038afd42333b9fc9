//! What forecasts cost: remembering how fast a pool is used, with every event, and looking ahead.

use std::{error::Error, hint::black_box, time::Instant};

use serde_json::json;
use tollgate_governor::{GovernorConfig, Hold, Meter, Pool, Setup};

use super::{ratio, scene::START_MS};
use crate::measure::{Contender, Table, median, percent, race, short, spread};

const ROUNDS: usize = 21;

/// Events in one turn, each turn on a copy, so that a young meter stays young.
const TURN: usize = 2000;

/// How much time passes from one event to the next, in milliseconds.
const STEP: i64 = 100;

/// How long it takes from a hold to its settlement.
const RUNS: i64 = 1000;

const YOUNG: usize = 1000;
const OLD: usize = 1_000_000;

const NOTES: &str = "
  An event is a hold, and the settlement of the one before, in one meter; ten of them a second. `ratio` is the
  median of the ratios within the rounds. A charge of a bucket is a subtraction and the forecast's memory of it:
  it bounds from above what forecasts add to an event. What one more look costs depends on how many amounts
  the window keeps apart: in the sliding one those of a minute.";

/// Times both.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!(
        "\n14. Forecasts: one event after {YOUNG} and after {OLD} events, {ROUNDS} interleaved rounds of {TURN}\n"
    );
    let config: GovernorConfig = serde_json::from_value(json!({"pools": [
        {"id": "p:fixed", "limit": 10_000_000_u64, "window": {"kind": "fixed", "every": "1h"}},
        {"id": "p:sliding", "limit": 10_000_000_u64, "window": {"kind": "sliding", "every": "1m"}},
        {"id": "p:bucket", "limit": 10_000_000_u64,
         "window": {"kind": "bucket", "refill": 36_000, "every": "1h"}},
    ], "routes": [{"workload": "work", "pools": [{"id": "p:fixed"}]}]}))?;
    let setup = config.build(START_MS)?;
    let mut old = Vec::new();
    let mut table = Table::new(["ns an event", "young", "spread", "old", "spread", "ratio"]);
    for (name, id, charges) in [
        ("fixed, hold and settle", "p:fixed", false),
        ("sliding, hold and settle", "p:sliding", false),
        ("bucket, hold and settle", "p:bucket", false),
        ("bucket, charge", "p:bucket", true),
    ] {
        let ages = [Used::new(&setup, id, charges, YOUNG)?, Used::new(&setup, id, charges, OLD)?];
        let [young, aged] = compare(&ages);
        table.row([
            name.to_owned(),
            short(median(&young)),
            percent(spread(&young)),
            short(median(&aged)),
            percent(spread(&aged)),
            short(ratio(&aged, &young)),
        ]);
        let [_, aged] = ages;
        if !charges {
            old.push(aged);
        }
    }
    table.print();
    println!();
    read(&old);
    println!("{NOTES}");
    Ok(())
}

/// A meter that is used.
#[derive(Clone)]
struct Used<'a> {
    pool: &'a Pool,
    meter: Meter,
    now: i64,
    charges: bool,
    open: std::collections::VecDeque<Hold>,
}

impl<'a> Used<'a> {
    fn new(
        setup: &'a Setup,
        id: &str,
        charges: bool,
        events: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let pool = setup.by_id(id).ok_or("no such pool")?;
        let meter = Meter::new(pool, START_MS);
        let open = std::collections::VecDeque::new();
        let mut used = Self { pool, meter, now: START_MS, charges, open };
        (0..events).for_each(|_| used.event());
        Ok(used)
    }

    fn event(&mut self) {
        self.now += STEP;
        let (pool, now) = (self.pool, self.now);
        self.meter.advance(now);
        if self.charges {
            self.meter.charge(1, now, now);
            return;
        }
        let to = self.meter.counts_until(pool, now + 2 * RUNS);
        let hold = Hold { from: now, to, amount: 1, principal: 1 };
        self.meter.hold(hold, now);
        self.open.push_back(hold);
        if let Some(oldest) = self.open.pop_front_if(|oldest| oldest.from + RUNS <= now) {
            let until = self.meter.forgotten_at(pool, now);
            self.meter.settle(oldest, 1, until, now);
        }
    }
}

/// Nanoseconds of one event, by round, for both ages.
fn compare(ages: &[Used<'_>; 2]) -> [Vec<f64>; 2] {
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS {
        for (used, took) in ages.iter().zip(&mut took) {
            let mut copy = used.clone();
            let start = Instant::now();
            for _ in 0..TURN {
                copy.event();
            }
            let spent = start.elapsed().as_nanos() as f64 / TURN as f64;
            black_box(copy);
            // The first round only warms up.
            if round > 0 {
                took.push(spent);
            }
        }
    }
    took
}

/// What one look ahead costs, beside reading what is left.
fn read(meters: &[Used<'_>]) {
    let mut contenders = Vec::new();
    for used in meters {
        let (pool, meter, now) = (used.pool, &used.meter, used.now);
        contenders.push(Contender::new(format!("{}, what is left", pool.id), move || {
            black_box(meter.read(black_box(pool), now));
        }));
        contenders.push(Contender::new(format!("{}, forecast", pool.id), move || {
            black_box(meter.forecast(black_box(pool), now, 1));
        }));
    }
    let mut table = Table::new(["one reading", "ns", "spread", "ratio"]);
    for pair in race(contenders).chunks(2) {
        for timing in pair {
            let base = pair.first().unwrap_or(timing);
            table.row([
                timing.name.clone(),
                short(timing.ns()),
                percent(timing.spread()),
                short(timing.times(base)),
            ]);
        }
    }
    table.print();
}
