//! Do forecasts come true as often as they say? The interval that holds 90 percent of what will be taken until
//! the reset, beside what then is taken, for the kinds of work that the simulator has.

use std::{collections::VecDeque, error::Error};

use serde_json::json;
use tollgate_governor::{Asked, Basis, GovernorConfig, Hold, Meter, Pool, Setup};

use crate::{
    documents::Random,
    measure::{Table, median, short},
};

/// The beginning of an hour.
const START: i64 = 1_800_000_000_000;
const HOUR: i64 = 3_600_000;

/// How long work goes on, and at which hours it is looked ahead to the end of the hour.
const LASTS: i64 = 3 * HOUR;
const MOMENTS: [f64; 12] = [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.5, 1.9, 2.1, 2.5, 2.9];

/// How often each kind of work is made anew.
const SEEDS: u64 = 100;

/// How long a hold is open before it is settled with what was really taken.
const RUNS: i64 = 2000;

const NOTES: &str = "
  100 histories of three hours for every kind, 12 moments in each, all by chance from fixed seeds: the same
  in every run. Every act is held first and settled two seconds later; tokens are held at their worst. `inside`
  is the share of what was really taken from the moment until the hour's end that lies between the 5th and the
  95th percentile, with half a call to spare; `below` and `above` is the rest. `over the middle` is the share above
  the 50th percentile, `width` the median of the intervals, each as a part of what was taken. What exhausts its pool
  cannot take more than is left: there the interval ends at that, and moments with nothing left do not count.";

/// How an agent works, as in the simulator.
#[derive(Clone, Copy)]
enum Behaviour {
    Poisson { per_second: f64 },
    Bursty { burst: u32, every: i64, within: i64 },
    Periodic { every: i64, jitter: f64 },
    Greedy { pause: i64 },
}

/// What an act takes.
#[derive(Clone, Copy)]
enum Takes {
    One,
    Mean(f64),
    Between(u64, u64),
}

/// What holds it back.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    Nothing,
    /// Another pool that gives one call in two seconds.
    Elsewhere,
    /// The pool itself has 2,000 an hour.
    Itself,
}

/// One kind of work.
struct Kind {
    name: &'static str,
    agents: usize,
    behaviour: Behaviour,
    takes: Takes,
    limit: Limit,
}

const fn kind(name: &'static str, agents: usize, behaviour: Behaviour) -> Kind {
    Kind { name, agents, behaviour, takes: Takes::One, limit: Limit::Nothing }
}

const fn tokens(name: &'static str, per_second: f64, takes: Takes) -> Kind {
    Kind { takes, ..kind(name, 1, Behaviour::Poisson { per_second }) }
}

const fn greedy(name: &'static str, pause: i64, limit: Limit) -> Kind {
    Kind { limit, ..kind(name, 3, Behaviour::Greedy { pause }) }
}

const KINDS: [Kind; 15] = [
    kind("poisson, 10 a second", 1, Behaviour::Poisson { per_second: 10.0 }),
    kind("poisson, 1 a second", 1, Behaviour::Poisson { per_second: 1.0 }),
    kind("poisson, 1 a minute", 1, Behaviour::Poisson { per_second: 1.0 / 60.0 }),
    kind("poisson, 1 in 10 minutes", 1, Behaviour::Poisson { per_second: 1.0 / 600.0 }),
    kind("bursty, 50 in 30 s", 1, Behaviour::Bursty { burst: 50, every: 30_000, within: 1000 }),
    kind(
        "bursty, 100 in 5 min",
        1,
        Behaviour::Bursty { burst: 100, every: 300_000, within: 10_000 },
    ),
    kind(
        "bursty, 5 × 40 in 7 min",
        5,
        Behaviour::Bursty { burst: 40, every: 420_000, within: 5000 },
    ),
    kind("periodic, 1 s", 1, Behaviour::Periodic { every: 1000, jitter: 0.2 }),
    kind("periodic, 20 s", 1, Behaviour::Periodic { every: 20_000, jitter: 0.2 }),
    kind("periodic, 10 × 5 min", 10, Behaviour::Periodic { every: 300_000, jitter: 1.0 }),
    tokens("tokens, mean 1,000", 0.2, Takes::Mean(1000.0)),
    tokens("tokens, 200 to 4,000", 0.05, Takes::Between(200, 4000)),
    tokens("tokens, 200 to 4,000, fast", 2.0, Takes::Between(200, 4000)),
    greedy("greedy, another pool limits", 500, Limit::Elsewhere),
    greedy("greedy, exhausts its pool", 4000, Limit::Itself),
];

/// What an act of random size is held at.
const WORST: u64 = 8000;

/// Looks ahead, and waits for what comes.
pub(crate) fn section() -> Result<(), Box<dyn Error>> {
    println!(
        "\n17. Calibration: is what is taken inside the 90 % interval? {SEEDS} histories of each kind, {} moments\n",
        MOMENTS.len()
    );
    let hour = json!({"kind": "fixed", "every": "1h"});
    let config: GovernorConfig = serde_json::from_value(json!({"pools": [
        {"id": "p:plenty", "limit": 1_000_000_000_000_u64, "window": hour},
        {"id": "p:few", "limit": 2000, "window": hour},
        {"id": "p:slow", "limit": 10, "window": {"kind": "bucket", "refill": 1, "every": "2s"}},
    ], "routes": [{"workload": "work", "pools": [{"id": "p:plenty"}]}]}))?;
    let setup = config.build(START)?;
    let (mut all, mut shown, mut silent) = (Vec::new(), Table::new(HEAD), 0);
    for kind in &KINDS {
        let mut found = Vec::new();
        for seed in 0..SEEDS {
            found.extend(history(kind, &setup, seed)?);
        }
        let asked = found.len();
        // Where nothing was ever taken, nothing is said.
        found.retain(|came| came.basis != Basis::None);
        silent += asked - found.len();
        shown.row(row(kind.name, &found));
        all.extend(found);
    }
    shown.row(row("all together", &all));
    shown.heading("by what was known");
    for (name, basis) in [("  little", Basis::Little), ("  enough", Basis::Enough)] {
        let some: Vec<Came> = all.iter().filter(|came| came.basis == basis).copied().collect();
        shown.row(row(name, &some));
    }
    shown.heading("by hours since the beginning");
    for moment in MOMENTS {
        let some: Vec<Came> = all.iter().filter(|came| came.moment == moment).copied().collect();
        shown.row(row(&format!("  {moment}"), &some));
    }
    shown.print();
    println!("\n  At {silent} more moments nothing had been taken yet, and no forecast is made.");
    println!("{NOTES}");
    Ok(())
}

const HEAD: [&str; 8] =
    ["", "outcomes", "inside", "below", "above", "over the middle", "width", "target"];

fn row(name: &str, found: &[Came]) -> [String; 8] {
    let share = |is_it: fn(&Came) -> bool| {
        let part = found.iter().filter(|came| is_it(came)).count() as f64 / found.len() as f64;
        format!("{:.1} %", part * 100.0)
    };
    let widths: Vec<f64> = found
        .iter()
        .filter(|came| came.really > 0.0)
        .map(|c| (c.high - c.low) / c.really)
        .collect();
    [
        name.to_owned(),
        found.len().to_string(),
        share(|came| !came.is_below() && !came.is_above()),
        share(Came::is_below),
        share(Came::is_above),
        share(|came| came.really > came.middle),
        short(median(&widths)),
        "85 to 95 %".to_owned(),
    ]
}

/// What was said at a moment, and what came.
#[derive(Clone, Copy)]
struct Came {
    moment: f64,
    basis: Basis,
    low: f64,
    middle: f64,
    high: f64,
    really: f64,
}

impl Came {
    fn is_below(&self) -> bool {
        self.really < self.low - 0.5
    }

    fn is_above(&self) -> bool {
        self.really > self.high + 0.5
    }
}

/// An agent that works.
struct Agent {
    behaviour: Behaviour,
    burst_left: u32,
    next: f64,
}

/// From above 0 to 1.
fn unit(random: &mut Random) -> f64 {
    (random.below(1 << 52) + 1) as f64 / (1_u64 << 52) as f64
}

impl Agent {
    /// Those who do the same do not begin in step.
    fn new(behaviour: Behaviour, random: &mut Random) -> Self {
        let first = match behaviour {
            Behaviour::Poisson { per_second } => -unit(random).ln() / per_second * 1000.0,
            Behaviour::Bursty { every, .. } | Behaviour::Periodic { every, .. } => {
                unit(random) * every as f64
            }
            Behaviour::Greedy { pause } => unit(random) * pause as f64,
        };
        Self { behaviour, burst_left: 0, next: first }
    }

    /// When it wants something again.
    fn pass(&mut self, random: &mut Random) {
        self.next += match self.behaviour {
            Behaviour::Poisson { per_second } => -unit(random).ln() / per_second * 1000.0,
            Behaviour::Periodic { every, jitter } => {
                (every as f64 * (1.0 + jitter * (2.0 * unit(random) - 1.0))).max(1.0)
            }
            Behaviour::Greedy { pause } => pause as f64,
            Behaviour::Bursty { burst, every, within } => {
                let is_over = self.burst_left == 0;
                self.burst_left = if is_over { burst.max(1) } else { self.burst_left } - 1;
                if is_over { (every - within) as f64 } else { within as f64 / f64::from(burst) }
            }
        };
    }
}

/// A meter, and what is held in it.
struct Metered<'a> {
    pool: &'a Pool,
    meter: Meter,
    open: VecDeque<(Hold, u64)>,
}

impl<'a> Metered<'a> {
    fn new(setup: &'a Setup, id: &str) -> Result<Self, Box<dyn Error>> {
        let pool = setup.by_id(id).ok_or("no such pool")?;
        Ok(Self { pool, meter: Meter::new(pool, START), open: VecDeque::new() })
    }

    /// Settles what has run, and lets time pass.
    fn advance(&mut self, now: i64) {
        while let Some((hold, used)) =
            self.open.pop_front_if(|(hold, _)| hold.from.saturating_add(RUNS) <= now)
        {
            let at = hold.from.saturating_add(RUNS);
            self.meter.advance(at);
            let until = self.meter.forgotten_at(self.pool, at);
            self.meter.settle(hold, used, until, at);
        }
        self.meter.advance(now);
    }

    fn has_room(&self, amount: u64, now: i64) -> bool {
        let asked = Asked { amount, validity: RUNS, kept_free: 0 };
        self.meter.earliest(self.pool, now, now, &asked) == Ok(now)
    }

    fn hold(&mut self, amount: u64, used: u64, now: i64) {
        let to = self.meter.counts_until(self.pool, now.saturating_add(RUNS));
        let hold = Hold { from: now, to, amount, principal: 1 };
        self.meter.hold(hold, now);
        self.open.push_back((hold, used));
    }
}

/// One history: what was said at every moment, and what came.
fn history(kind: &Kind, setup: &Setup, seed: u64) -> Result<Vec<Came>, Box<dyn Error>> {
    // Far apart, so that no history is another one a little later.
    let mut random = Random::new((seed + 1).wrapping_mul(0xD134_2543_DE82_EF95));
    let id = if kind.limit == Limit::Itself { "p:few" } else { "p:plenty" };
    let mut metered = Metered::new(setup, id)?;
    let mut slow = Metered::new(setup, "p:slow")?;
    let mut agents: Vec<Agent> =
        (0..kind.agents).map(|_| Agent::new(kind.behaviour, &mut random)).collect();
    let mut said: Vec<Came> = Vec::new();
    let mut moments = MOMENTS.into_iter().peekable();
    loop {
        let first = agents.iter_mut().min_by(|one, other| one.next.total_cmp(&other.next));
        let Some(agent) = first else { return Err("nobody works".into()) };
        let at = agent.next as i64;
        while let Some(moment) = moments.next_if(|hour| hour * HOUR as f64 <= at as f64) {
            said.extend(look(kind, &mut metered, moment));
        }
        if at >= LASTS {
            return Ok(said);
        }
        agent.pass(&mut random);
        let now = START + at;
        let (held, used) = match kind.takes {
            Takes::One => (1, 1),
            Takes::Mean(mean) => {
                let used = (-unit(&mut random).ln() * mean).round() as u64;
                (WORST.max(used), used)
            }
            Takes::Between(least, most) => (most, least + random.below(most - least + 1)),
        };
        metered.advance(now);
        slow.advance(now);
        let is_free = kind.limit != Limit::Elsewhere || slow.has_room(held, now);
        if !is_free || !metered.has_room(held, now) {
            continue;
        }
        if kind.limit == Limit::Elsewhere {
            slow.hold(held, used, now);
        }
        metered.hold(held, used, now);
        // It is what came of all that was said in this hour.
        let hour = at / HOUR;
        for came in said.iter_mut().filter(|came| came.moment as i64 == hour) {
            came.really += used as f64;
        }
    }
}

/// What is said at a moment; nothing where nothing is left to be taken.
fn look(kind: &Kind, metered: &mut Metered<'_>, moment: f64) -> Option<Came> {
    let now = START + (moment * HOUR as f64) as i64;
    metered.advance(now);
    let forecast = metered.meter.forecast(metered.pool, now, 0)?;
    let left = metered.meter.read(metered.pool, now).left.unwrap_or(0) as f64;
    if kind.limit == Limit::Itself && left <= 0.0 {
        return None;
    }
    let [low, middle, high] = forecast.will_take.map(|amount| amount.min(left));
    Some(Came { moment, basis: forecast.basis, low, middle, high, really: 0.0 })
}
