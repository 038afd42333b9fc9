//! How full a window really is: each kind of window counted once more, in the plainest way that is right.
//! Nothing here is shared with the governor, so that both being wrong in the same way is unlikely.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use jiff::{Timestamp, tz::TimeZone};
use tollgate_governor::{CalendarUnit, WindowConfig, duration};

use crate::scenario::ProviderPlan;

/// What is in a window, as time goes on.
#[derive(Debug, Clone)]
pub(crate) enum Gauge {
    /// Windows one behind the other: the present one's number, and its sum.
    Windows { kind: Numbered, number: i64, sum: u64 },
    /// Everything of the last so many milliseconds.
    Sliding { length: i64, inside: VecDeque<(i64, u64)>, sum: u64 },
    /// What was poured in and has not leaked out yet, in parts: `per` of them are one.
    Bucket { refill: u64, per: i64, level: u128, at: i64 },
    /// What runs now, by its end.
    Running { ends: BinaryHeap<Reverse<(i64, u64)>>, sum: u64 },
}

/// How windows are numbered.
#[derive(Debug, Clone)]
pub(crate) enum Numbered {
    Every { length: i64, begins: i64 },
    Calendar { unit: CalendarUnit, zone: TimeZone },
}

impl Numbered {
    fn number(&self, at: i64) -> i64 {
        match self {
            Self::Every { length, begins } => (at - begins).div_euclid((*length).max(1)),
            Self::Calendar { unit, zone } => {
                let Ok(moment) = Timestamp::from_millisecond(at) else { return i64::MAX };
                let date = moment.to_zoned(zone.clone()).date();
                match unit {
                    CalendarUnit::Month => i64::from(date.year()) * 12 + i64::from(date.month()),
                    CalendarUnit::Day => days(date),
                    // The first day of the count was a Thursday; weeks begin on Monday.
                    CalendarUnit::Week => (days(date) + 3).div_euclid(7),
                }
            }
        }
    }
}

/// Days since 1970.
fn days(date: jiff::civil::Date) -> i64 {
    let since = jiff::civil::date(1970, 1, 1);
    date.since(since).map_or(0, |span| i64::from(span.get_days()))
}

impl Gauge {
    /// For a pool, or for the provider behind it, whose windows are the true ones.
    pub(crate) fn new(window: &WindowConfig, provider: Option<&ProviderPlan>) -> Self {
        let windows = |kind| Self::Windows { kind, number: i64::MIN, sum: 0 };
        if let Some(plan) = provider {
            return windows(Numbered::Every { length: plan.every, begins: plan.begins });
        }
        let length = |text: &str| duration(text).unwrap_or(1);
        match window {
            WindowConfig::Fixed { every, .. } | WindowConfig::Provider { every, .. } => {
                windows(Numbered::Every { length: length(every), begins: 0 })
            }
            WindowConfig::Sliding { every } => {
                Self::Sliding { length: length(every), inside: VecDeque::new(), sum: 0 }
            }
            WindowConfig::Bucket { refill, every } => {
                Self::Bucket { refill: *refill, per: length(every), level: 0, at: i64::MIN }
            }
            WindowConfig::Calendar { every, zone } => {
                let zone = TimeZone::get(zone).unwrap_or(TimeZone::UTC);
                windows(Numbered::Calendar { unit: *every, zone })
            }
            WindowConfig::Concurrency {} => Self::Running { ends: BinaryHeap::new(), sum: 0 },
        }
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, now: i64) {
        match self {
            Self::Windows { kind, number, sum } => {
                let present = kind.number(now);
                if present != *number {
                    (*number, *sum) = (present, 0);
                }
            }
            Self::Sliding { length, inside, sum } => {
                while let Some((_, amount)) = inside.pop_front_if(|(at, _)| *at + *length <= now) {
                    *sum -= amount;
                }
            }
            Self::Bucket { refill, level, at, .. } => {
                let passed = u128::try_from(now.saturating_sub((*at).max(0))).unwrap_or(0);
                *level = level.saturating_sub(passed * u128::from(*refill));
                *at = now;
            }
            Self::Running { ends, sum } => {
                while let Some(Reverse((end, amount))) = ends.peek().copied()
                    && end <= now
                {
                    ends.pop();
                    *sum -= amount;
                }
            }
        }
    }

    /// Something is taken, now.
    pub(crate) fn take(&mut self, now: i64, ends_at: i64, amount: u64) {
        self.advance(now);
        match self {
            Self::Windows { sum, .. } => *sum += amount,
            Self::Sliding { inside, sum, .. } => {
                inside.push_back((now, amount));
                *sum += amount;
            }
            Self::Bucket { per, level, .. } => {
                *level += u128::from(amount) * u128::from(per.unsigned_abs());
            }
            Self::Running { ends, sum } => {
                if ends_at > now {
                    ends.push(Reverse((ends_at, amount)));
                    *sum += amount;
                }
            }
        }
    }

    /// What is in the window.
    pub(crate) fn taken(&self) -> u64 {
        match self {
            Self::Windows { sum, .. } | Self::Sliding { sum, .. } | Self::Running { sum, .. } => {
                *sum
            }
            Self::Bucket { per, level, .. } => {
                let whole = level.div_ceil(u128::from(per.unsigned_abs()).max(1));
                u64::try_from(whole).unwrap_or(u64::MAX)
            }
        }
    }

    /// How far back the present window reaches at most.
    pub(crate) fn reach(&self) -> i64 {
        const DAY: i64 = 86_400_000;
        match self {
            Self::Windows { kind: Numbered::Every { length, .. }, .. }
            | Self::Sliding { length, .. } => *length,
            Self::Windows { kind: Numbered::Calendar { unit, .. }, .. } => match unit {
                CalendarUnit::Day => DAY + DAY / 12,
                CalendarUnit::Week => 7 * DAY + DAY / 12,
                CalendarUnit::Month => 31 * DAY + DAY / 12,
            },
            Self::Bucket { .. } | Self::Running { .. } => 0,
        }
    }

    /// How many times its limit could be taken in a run.
    pub(crate) fn capacity(&self, from: i64, to: i64, limit: f64) -> f64 {
        let lasts = (to - from).max(1) as f64;
        match self {
            Self::Windows { kind: kind @ Numbered::Every { .. }, .. } => {
                limit * (kind.number(to - 1) - kind.number(from) + 1) as f64
            }
            Self::Windows { kind, .. } => {
                let mut windows = 1.0;
                let (mut at, mut number) = (from, kind.number(from));
                while at < to {
                    at = at.saturating_add(3_600_000).min(to);
                    let next = kind.number(at - 1);
                    windows += f64::from(u8::from(next != number));
                    number = next;
                }
                limit * windows
            }
            Self::Sliding { length, .. } => limit * (lasts / (*length).max(1) as f64).max(1.0),
            Self::Bucket { refill, per, .. } => {
                limit + *refill as f64 * lasts / (*per).max(1) as f64
            }
            // Of what runs, the time is counted.
            Self::Running { .. } => limit * lasts,
        }
    }
}

#[cfg(test)]
#[path = "gauge_tests.rs"]
mod tests;
