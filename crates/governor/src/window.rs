//! The kinds of windows, and over which span of time a hold counts in each.

use std::{fmt, sync::Arc};

use jiff::{Span as Step, Timestamp, civil::Date, tz::TimeZone};
use serde::{Deserialize, Serialize};

/// Into how many pieces a sliding window is cut. What is spent is forgotten piece by piece, so that a busy
/// window costs no more than a quiet one; it is forgotten late rather than early.
const PIECES: i64 = 64;

/// How a limit is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Window {
    /// Windows of equal length, one behind the other. What is spent in one counts until it ends.
    Fixed {
        /// How long one is, in milliseconds.
        length: i64,
        /// They begin where a provider was seen to begin one, not with the UTC clock.
        observed: bool,
    },
    /// What is spent counts for a length of time from the moment it is spent.
    Sliding {
        /// For how long.
        length: i64,
    },
    /// Tokens that come in steadily.
    Bucket {
        /// How many come in.
        refill: u64,
        /// In how many milliseconds.
        per: i64,
    },
    /// Days, weeks or months of a time zone.
    Calendar(Calendar),
    /// What runs at the same time.
    Concurrency,
    /// What a provider says of its own count.
    Provider {
        /// How long its windows are at most.
        length: i64,
    },
}

impl Window {
    /// How long work of this cost takes at the pace at which the window gives; `None` where that depends on what is
    /// left of it until it ends. What runs at the same time has no pace.
    pub(crate) fn pace(&self, cost: u64, limit: Option<u64>) -> Option<i64> {
        let each = |time: i64, amount: u64| {
            let ms = i128::from(time) * i128::from(cost) / i128::from(amount.max(1));
            i64::try_from(ms).unwrap_or(i64::MAX)
        };
        match self {
            Self::Sliding { length } => Some(each(*length, limit?)),
            Self::Bucket { refill, per } => Some(each(*per, *refill)),
            Self::Concurrency => Some(0),
            _ => None,
        }
    }

    /// Can room be promised for later? Only where the count is ours.
    pub fn can_book(&self) -> bool {
        !matches!(self, Self::Concurrency | Self::Provider { .. })
    }

    /// Is it learned when a window ends?
    pub fn learns_resets(&self) -> bool {
        matches!(self, Self::Provider { .. } | Self::Fixed { observed: true, .. })
    }

    /// How long approvals are valid unless something else is said: a tenth of the window, so that holds that
    /// nobody settles do not fill a short one, between one second and a minute.
    pub fn usual_validity(&self, limit: u64) -> i64 {
        let length = match self {
            Self::Fixed { length, .. } | Self::Sliding { length } | Self::Provider { length } => {
                *length
            }
            Self::Bucket { refill, per } => {
                let to_fill = i128::from(*per) * i128::from(limit) / i128::from((*refill).max(1));
                i64::try_from(to_fill).unwrap_or(i64::MAX)
            }
            Self::Calendar(_) | Self::Concurrency => i64::MAX,
        };
        (length / 10).clamp(1000, 60_000)
    }

    /// The moment until which a hold counts that may act at any moment until `acts_until`. The holder may act
    /// at the very end, and what it does then must still fit: in fixed windows it counts in every window that
    /// it touches, in a sliding one a whole length beyond its end. `reset` is when the present window ends,
    /// where that is learned.
    pub fn counts_until(&self, acts_until: i64, reset: Option<i64>) -> i64 {
        match self {
            Self::Fixed { length, observed: false } => {
                window_end(acts_until.saturating_sub(1), *length, 0)
            }
            // The next window begins with the first act in it, and that is not known before.
            Self::Fixed { length, observed: true } | Self::Provider { length } => match reset {
                Some(reset) if acts_until <= reset => reset,
                _ => acts_until.saturating_add((*length).max(1)),
            },
            Self::Sliding { length } => {
                let length = (*length).max(1);
                let piece = (length / PIECES).max(1);
                window_end(acts_until.saturating_add(length).saturating_sub(1), piece, 0)
            }
            Self::Calendar(calendar) => calendar.end_of(acts_until.saturating_sub(1)),
            Self::Concurrency | Self::Bucket { .. } => acts_until,
        }
    }

    /// When everything that is spent at `now` is forgotten.
    pub fn forgotten_at(&self, now: i64, reset: Option<i64>) -> i64 {
        match self {
            Self::Concurrency | Self::Bucket { .. } => now,
            _ => self.counts_until(now.saturating_add(1), reset),
        }
    }

    /// When the window ends that is open at `now`, where windows end at all.
    pub fn reset_after(&self, now: i64, reset: Option<i64>) -> Option<i64> {
        match self {
            Self::Fixed { observed: false, .. } | Self::Calendar(_) => {
                Some(self.forgotten_at(now, None))
            }
            Self::Fixed { observed: true, .. } | Self::Provider { .. } => {
                reset.filter(|reset| *reset > now)
            }
            Self::Sliding { .. } | Self::Bucket { .. } | Self::Concurrency => None,
        }
    }
}

/// The end of the window that holds `moment`.
fn window_end(moment: i64, length: i64, offset: i64) -> i64 {
    let length = length.max(1);
    let into = moment.saturating_sub(offset).rem_euclid(length);
    moment.saturating_sub(into).saturating_add(length)
}

/// How long a window of the calendar is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first to the first.
    Month,
}

/// How many windows ahead are worked out at once.
const AHEAD: usize = 800;

/// The windows of a calendar in a time zone.
#[derive(Clone)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: TimeZone,
    /// The ends of the windows from some moment on, so that they need not be worked out at every decision.
    ends: Arc<[i64]>,
}

impl Calendar {
    /// The windows of this unit in the time zone of this name (`Europe/Berlin`); `None` if there is no such
    /// zone. Those from `now` on are found fastest.
    pub fn new(unit: CalendarUnit, zone: &str, now: i64) -> Option<Self> {
        let zone = if zone == "UTC" { TimeZone::UTC } else { TimeZone::get(zone).ok()? };
        let mut calendar = Self { unit, zone, ends: Arc::new([]) };
        let mut ends = Vec::with_capacity(AHEAD);
        let mut at = now.saturating_sub(3 * 24 * 3600 * 1000);
        while ends.len() < AHEAD {
            at = calendar.work_out(at);
            ends.push(at);
        }
        calendar.ends = ends.into();
        Some(calendar)
    }

    /// The end of the window that holds `moment`.
    pub fn end_of(&self, moment: i64) -> i64 {
        let place = self.ends.partition_point(|end| *end <= moment);
        match self.ends.get(place) {
            // Before the first one it is not known where that one begins.
            Some(end) if place > 0 => *end,
            _ => self.work_out(moment),
        }
    }

    fn work_out(&self, moment: i64) -> i64 {
        let end = || {
            let time = Timestamp::from_millisecond(moment).ok()?.to_zoned(self.zone.clone());
            let date = time.date();
            let (first, length) = match self.unit {
                CalendarUnit::Day => (date, Step::new().days(1)),
                CalendarUnit::Week => (monday(date)?, Step::new().weeks(1)),
                CalendarUnit::Month => (date.first_of_month(), Step::new().months(1)),
            };
            let next = first.checked_add(length).ok()?;
            Some(next.to_zoned(self.zone.clone()).ok()?.timestamp().as_millisecond())
        };
        // Beyond the calendar's last year nothing resets.
        end().filter(|end| *end > moment).unwrap_or(i64::MAX)
    }
}

fn monday(date: Date) -> Option<Date> {
    let back = i64::from(date.weekday().to_monday_zero_offset());
    date.checked_sub(Step::new().days(back)).ok()
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({:?}, {:?})", self.unit, self.zone.iana_name())
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.unit == other.unit && self.zone == other.zone
    }
}

impl Eq for Calendar {}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
