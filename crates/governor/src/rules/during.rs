//! Times of the day on days of the week, in a time zone. It is such a time while the clock on the wall shows one. On
//! the nights when clocks are changed, a time that they skip is so much later, and one that they show twice is both.

use jiff::{
    ToSpan,
    civil::{Date, Time},
    tz::TimeZone,
};

use super::{config::DuringConfig, facts::local};
use crate::config::meant;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Minutes of a day.
const WHOLE_DAY: i16 = 24 * 60;

/// When a rule applies.
#[derive(Debug, Clone)]
pub(crate) struct During {
    /// The days on which it begins, Monday first.
    days: [bool; 7],
    from: i16,
    /// Less than `from` where it is on the next day.
    to: i16,
    pub(crate) zone: TimeZone,
}

impl During {
    /// The field that is wrong, and what about it.
    pub(crate) fn build(config: &DuringConfig) -> Result<Self, (&'static str, String)> {
        let zone = match config.zone.as_deref() {
            None | Some("UTC") => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|_| {
                ("zone", format!("`{name}` is no time zone; write it as Europe/Berlin"))
            })?,
        };
        let mut days = [config.days.is_none(); 7];
        for day in config.days.iter().flatten() {
            match days.iter_mut().zip(DAYS).find(|(_, name)| name == day) {
                Some((chosen, _)) => *chosen = true,
                None => {
                    let near = meant(day, DAYS.into_iter());
                    return Err(("days", format!("`{day}` is no day{near}")));
                }
            }
        }
        if !days.contains(&true) {
            return Err(("days", "names no day; leave it out for every day".to_owned()));
        }
        let from = minutes(&config.from).filter(|from| *from < WHOLE_DAY);
        let from = from.ok_or_else(|| ("from", no_time(&config.from)))?;
        let to = minutes(&config.to).ok_or_else(|| ("to", no_time(&config.to)))?;
        if from == to {
            let problem = "is when it begins; the whole day is from 00:00 to 24:00";
            return Err(("to", problem.to_owned()));
        }
        Ok(Self { days, from, to, zone })
    }

    /// Is it one of these times? `None` for a time beyond every calendar.
    pub(crate) fn holds(&self, now: i64) -> Option<bool> {
        let today = local(now, &self.zone)?.date();
        // A stretch that began yesterday may still go on.
        let goes_on = self.to < self.from;
        let inside =
            |date: Date| self.stretch(date).is_some_and(|(start, end)| (start..end).contains(&now));
        let in_stretch = inside(today) || goes_on && today.yesterday().is_ok_and(inside);
        Some(in_stretch || self.shows(now)?)
    }

    /// Does the clock on the wall show one of these times?
    fn shows(&self, now: i64) -> Option<bool> {
        let shown = local(now, &self.zone)?;
        let minutes = i16::from(shown.hour()) * 60 + i16::from(shown.minute());
        let day = usize::try_from(shown.weekday().to_monday_zero_offset()).ok()?;
        let begins = |day: usize| self.days.get(day % 7).copied().unwrap_or(false);
        Some(if self.from < self.to {
            begins(day) && (self.from..self.to).contains(&minutes)
        } else {
            begins(day) && minutes >= self.from || begins(day + 6) && minutes < self.to
        })
    }

    /// The stretch that begins on this day, in milliseconds since 1970.
    fn stretch(&self, date: Date) -> Option<(i64, i64)> {
        let day = usize::try_from(date.weekday().to_monday_zero_offset()).ok()?;
        if !*self.days.get(day)? {
            return None;
        }
        let is_tomorrow = self.to < self.from || self.to == WHOLE_DAY;
        let last = if is_tomorrow { date.tomorrow().ok()? } else { date };
        Some((self.moment(date, self.from)?, self.moment(last, self.to % WHOLE_DAY)?))
    }

    /// A time that the clocks skip is so much later; of one that they show twice it is the first.
    fn moment(&self, date: Date, minutes: i16) -> Option<i64> {
        let hour = i8::try_from(minutes / 60).ok()?;
        let time = Time::new(hour, i8::try_from(minutes % 60).ok()?, 0, 0).ok()?;
        let zoned = date.to_datetime(time).to_zoned(self.zone.clone()).ok()?;
        Some(zoned.timestamp().as_millisecond())
    }

    /// The beginning of the first stretch after `now`.
    pub(crate) fn next(&self, now: i64) -> Option<i64> {
        let today = local(now, &self.zone)?.date();
        (0..9).find_map(|days| {
            let date = today.checked_add(i64::from(days).days()).ok()?;
            self.stretch(date).map(|(start, _)| start).filter(|start| *start >= now)
        })
    }
}

fn minutes(text: &str) -> Option<i16> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |text: &str, most: i16| {
        let is_two = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        is_two.then(|| text.parse::<i16>().ok()).flatten().filter(|number| *number <= most)
    };
    let minutes = number(hours, 24)? * 60 + number(minutes, 59)?;
    (minutes <= WHOLE_DAY).then_some(minutes)
}

fn no_time(text: &str) -> String {
    format!("`{text}` is no time of the day; write it as 06:30")
}
