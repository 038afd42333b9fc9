//! How fast a meter is used up, and what follows: whether it lasts until it is full again, and how long else.
//!
//! What is taken is summed up in bins of time, in several widths, each eight times as wide as the one before.
//! Of closed bins only decaying sums are kept, so that an event costs the same however long the history is, and
//! time in which nothing happens counts as what it is. From the width that fits the time ahead come the mean
//! and the variance of what will be taken, the uncertainty of both included: little data gives wide answers.
//!
//! A forecast is worked out when it is read. It says nothing about what is decided unless a pool or a rule asks.

use serde::{Deserialize, Serialize};

/// How wide the narrowest bins are, in milliseconds, and by how much each width exceeds the one before.
const NARROWEST: i64 = 1000;
const WIDER: i64 = 8;

/// How many widths there are: from a second to nine hours.
const WIDTHS: usize = 6;

/// How much less a bin counts than the one after it.
const DECAY: f64 = 7.0 / 8.0;

/// How many bins count together at most: the square of their weights' sum over the sum of their squares.
const MOST_BINS: f64 = (1.0 + DECAY) / (1.0 - DECAY);

/// So many bins, at least, fit into the time ahead, where there is data enough for bins of that width.
const BINS_AHEAD: i64 = 4;

/// Fewer closed bins than this are little data.
const FEW_BINS: f64 = 3.0;

/// How many bins the assumption is worth that one event has nothing to do with another, as long as nothing
/// else is known. The more bins are known, the less it counts.
const ASSUMED_BINS: f64 = 2.0;

/// How long it is remembered how fast something was used that is as good as never used.
const REMEMBERED: i64 = 10 * 60 * 1000;

/// In how many steps the time ahead is looked at.
const STEPS: i32 = 48;

/// How fast something is used up: a meter's memory of what was taken.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Burn {
    /// The mean size of what is taken at once, lately.
    size: f64,
    widths: [Bins; WIDTHS],
}

/// Bins of one width.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
struct Bins {
    /// Which one is open, counted from 1970.
    open: i64,
    /// What was taken in it before the narrower bins that are open now.
    sum: f64,
    /// Decaying sums of those that are closed: how many, what was taken, its squares.
    count: f64,
    taken: f64,
    squares: f64,
}

impl Bins {
    /// Closes the open bin if its time is over, and all those in which nothing happened since. Gives what was in
    /// it, or `None` if it is still open.
    fn advance(&mut self, now: i64, width: i64) -> Option<f64> {
        let bin = now.div_euclid(width);
        let passed = bin.saturating_sub(self.open);
        if passed <= 0 {
            return None;
        }
        let is_first = self.open == 0;
        self.open = bin;
        if is_first {
            return Some(0.0);
        }
        // What comes after so many empty ones does not depend on what was before.
        let passed = i32::try_from(passed.min(1000)).unwrap_or(1000);
        let (sum, decayed) = (std::mem::take(&mut self.sum), DECAY.powi(passed));
        let closed = DECAY.powi(passed - 1);
        self.count = self.count * decayed + (1.0 - decayed) / (1.0 - DECAY);
        self.taken = self.taken * decayed + sum * closed;
        self.squares = self.squares * decayed + sum * sum * closed;
        Some(sum)
    }

    /// How many closed bins it is worth.
    fn bins(&self) -> f64 {
        // The sum of n decaying weights tells what the weight of the next one would be.
        let next = (1.0 - self.count * (1.0 - DECAY)).clamp(0.0, 1.0);
        MOST_BINS * (1.0 - next) / (1.0 + next)
    }
}

/// How wide bins are.
fn width(place: usize) -> i64 {
    (0..place).fold(NARROWEST, |width, _| width * WIDER)
}

/// What will be taken in a bin, by what was: the mean, the variance, and how many bins say so.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rate {
    width: f64,
    mean: f64,
    variance: f64,
    bins: f64,
}

impl Rate {
    /// The mean of what will be taken in so many milliseconds, and its standard deviation.
    fn ahead(&self, time: f64) -> (f64, f64) {
        let bins = time / self.width;
        // What is yet to come varies, and the mean that is assumed for it is uncertain itself.
        let variance = self.variance * (bins + bins * bins / (self.bins + self.assumed()));
        (self.mean * bins, variance.sqrt())
    }

    /// How many more bins are assumed.
    fn assumed(&self) -> f64 {
        ASSUMED_BINS * (1.0 - self.bins / MOST_BINS).max(0.0)
    }

    fn degrees(&self) -> f64 {
        (self.bins + self.assumed() - 1.0).max(1.0)
    }

    /// The probability that at least `amount` is taken in so many milliseconds.
    fn at_least(&self, amount: f64, time: f64) -> f64 {
        let (mean, deviation) = self.ahead(time);
        if amount <= 0.0 {
            return 1.0;
        }
        if mean <= 0.0 || time <= 0.0 {
            return 0.0;
        }
        if deviation <= 0.0 {
            return if mean >= amount { 1.0 } else { 0.0 };
        }
        let t = (mean - amount) / deviation;
        let degrees = self.degrees();
        // Student's distribution by way of the normal one.
        normal(t * (1.0 - 0.25 / degrees) / (1.0 + t * t / (2.0 * degrees)).sqrt())
    }

    /// What is taken in so many milliseconds with the probability that belongs to `z`.
    fn quantile(&self, z: f64, time: f64) -> f64 {
        let (mean, deviation) = self.ahead(time);
        let t = z * (1.0 + (z * z + 1.0) / (4.0 * self.degrees()));
        (mean + t * deviation).max(0.0)
    }
}

impl Burn {
    /// Something was taken, or given back.
    pub(crate) fn note(&mut self, now: i64, amount: f64) {
        self.advance(now);
        if amount > 0.0 {
            self.size += (amount - self.size) * if self.size > 0.0 { 0.1 } else { 1.0 };
        }
        if let Some(narrowest) = self.widths.first_mut() {
            narrowest.sum += amount;
        }
    }

    /// Lets time pass. What was in a bin that is over goes to the wider one around it, and only then can that be
    /// over too. So most events touch the narrowest bin alone.
    fn advance(&mut self, now: i64) {
        let mut carried = 0.0;
        for (place, bins) in self.widths.iter_mut().enumerate() {
            bins.sum += carried;
            match bins.advance(now, width(place)) {
                Some(sum) => carried = sum,
                None => return,
            }
        }
    }

    /// What can be said for so many milliseconds ahead: by the widest bins of which enough fit into it, or
    /// by narrower ones where those say too little yet.
    fn rate(&self, now: i64, ahead: i64) -> Option<Rate> {
        let mut past = self.clone();
        past.advance(now);
        let fits = |place: &usize| width(*place).saturating_mul(BINS_AHEAD) <= ahead.max(1);
        let widest = (0..WIDTHS).rev().find(fits).unwrap_or(0);
        let mut known = (0..=widest)
            .rev()
            .filter_map(|place| Some((place, past.widths.get(place)?)))
            .filter(|(_, bins)| bins.open > 0);
        let enough = known.clone().find(|(_, bins)| bins.bins() >= FEW_BINS);
        let (place, bins) = enough.or_else(|| known.next_back())?;
        let wide = width(place) as f64;
        // The open bin tells of the mean as far as it has come.
        let part = now.rem_euclid(width(place)) as f64 / wide;
        let seen = bins.count + part;
        if seen <= 0.0 {
            return None;
        }
        // What is in the narrower ones that are open is in this one too.
        let open: f64 = past.widths.iter().take(place + 1).map(|bins| bins.sum).sum();
        let mean = ((bins.taken + open) / seen).max(0.0);
        let observed = if bins.count > 0.0 {
            let closed = bins.taken / bins.count;
            (bins.squares / bins.count - closed * closed).max(0.0)
        } else {
            0.0
        };
        let count = bins.bins();
        let mut rate = Rate { width: wide, mean, variance: 0.0, bins: count };
        let assumed = rate.assumed();
        rate.variance = (observed * count + mean * self.size * assumed) / (count + assumed);
        Some(rate)
    }

    /// Was nothing taken for so long that it need not be remembered?
    pub(crate) fn is_over(&self, now: i64) -> bool {
        let last = self.widths.first().map_or(0, |bins| bins.open.saturating_mul(NARROWEST));
        now.saturating_sub(last) > REMEMBERED
    }

    /// Was anything ever taken?
    fn knows_nothing(&self) -> bool {
        self.size <= 0.0
    }
}

/// How much a forecast is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// Nothing was ever taken.
    None,
    /// It is too early to say much, and the intervals are wide.
    Little,
    /// Enough was seen.
    Enough,
}

/// What is to be expected of a meter until it is full again, or for as long as can be looked ahead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Forecast {
    /// What it rests on.
    pub basis: Basis,
    /// How far it looks ahead, in milliseconds.
    pub ahead_ms: i64,
    /// How much is taken in a second.
    pub burn_per_second: f64,
    /// The probability that nothing is left at some moment until then.
    pub p_exhaust: f64,
    /// The same if what is asked now is taken too.
    pub p_exhaust_with: f64,
    /// For how many milliseconds it lasts at least, with a probability of 50, 90 and 99 percent; `None` where it
    /// lasts until then with that probability.
    pub exhausted_in: [Option<i64>; 3],
    /// How much more will be taken until then: with 5, 50 and 95 percent it is less.
    pub will_take: [f64; 3],
}

/// The standard normal quantile of 95 percent.
const Z95: f64 = 1.644_853_6;

impl Forecast {
    /// Looks ahead. `room` says how much can be taken until a moment that is so many milliseconds ahead.
    pub(crate) fn of(
        burn: &Burn,
        now: i64,
        ahead_ms: i64,
        asked: u64,
        mut room: impl FnMut(i64) -> f64,
    ) -> Self {
        let rate = burn.rate(now, ahead_ms).filter(|_| !burn.knows_nothing());
        let basis = match &rate {
            None => Basis::None,
            Some(rate) if rate.bins < FEW_BINS => Basis::Little,
            Some(_) => Basis::Enough,
        };
        let mut forecast = Self {
            basis,
            ahead_ms,
            burn_per_second: rate.map_or(0.0, |rate| rate.mean / rate.width * 1000.0),
            p_exhaust: 0.0,
            p_exhaust_with: 0.0,
            exhausted_in: [None; 3],
            will_take: [0.0; 3],
        };
        let asked = asked as f64;
        let gone = |amount: f64, at: f64| match &rate {
            _ if amount <= 0.0 => 1.0,
            None => 0.0,
            Some(rate) => rate.at_least(amount, at),
        };
        let mut before = (0.0, room(0));
        for step in 0..=STEPS {
            // Closer at first: what is near matters more.
            let part = f64::from(step) / f64::from(STEPS);
            let at = (ahead_ms as f64 * part.powi(4)).floor();
            let left = room(at as i64);
            // What is gone once is gone, whatever comes back later.
            forecast.p_exhaust = forecast.p_exhaust.max(gone(left, at));
            forecast.p_exhaust_with = forecast.p_exhaust_with.max(gone(left - asked, at));
            for (found, wanted) in forecast.exhausted_in.iter_mut().zip([0.5, 0.1, 0.01]) {
                if found.is_none() && forecast.p_exhaust >= wanted {
                    *found = Some(reached(before, (at, left), |at, left| gone(left, at) >= wanted));
                }
            }
            before = (at, left);
        }
        if let Some(rate) = rate {
            forecast.will_take = [-Z95, 0.0, Z95].map(|z| rate.quantile(z, ahead_ms as f64));
        }
        forecast
    }
}

/// What will be left at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ConePoint {
    /// In how many milliseconds.
    pub in_ms: i64,
    /// With 95 percent it is more.
    pub low: f64,
    /// As likely more as less.
    pub middle: f64,
    /// With 95 percent it is less.
    pub high: f64,
}

/// What will be left, in equal steps of the time ahead.
pub(crate) fn cone(
    burn: &Burn,
    now: i64,
    ahead_ms: i64,
    steps: u32,
    mut room: impl FnMut(i64) -> f64,
) -> Vec<ConePoint> {
    let rate = burn.rate(now, ahead_ms).filter(|_| !burn.knows_nothing());
    let point = |step: u32| {
        let in_ms = (ahead_ms as f64 * f64::from(step) / f64::from(steps.max(1))) as i64;
        let there = room(in_ms);
        let [low, middle, high] = [Z95, 0.0, -Z95].map(|z| {
            let taken = rate.map_or(0.0, |rate| rate.quantile(z, in_ms as f64));
            (there - taken).max(0.0)
        });
        ConePoint { in_ms, low, middle, high }
    };
    (0..=steps).map(point).collect()
}

/// When something is so for the first time, between two moments with what is left at each; at the latter it is.
fn reached(
    (from, before): (f64, f64),
    (to, after): (f64, f64),
    is_so: impl Fn(f64, f64) -> bool,
) -> i64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if is_so(from + (to - from) * middle, before + (after - before) * middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    (from + (to - from) * high) as i64
}

/// How often the stretch is halved in which something happens.
const HALVINGS: u32 = 12;

/// The normal distribution: the probability of at most `z`. By Abramowitz and Stegun 7.1.26, exact to seven
/// digits.
fn normal(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = series.iter().fold(0.0, |sum, part| (sum + part) * t);
    let tail = sum * (-x * x).exp() / 2.0;
    if z > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
#[path = "forecast_tests.rs"]
mod tests;
