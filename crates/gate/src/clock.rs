//! Time and randomness, which the pure parts are given and the gate must take from somewhere.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicI64, Ordering},
    },
    time::Instant,
};

use jiff::Timestamp;
use tollgate_contract::{Error, error::Internal, id};

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since 1970.
    fn now_ms(&self) -> i64;

    /// Milliseconds since some moment, on a clock that nobody sets.
    fn counted_ms(&self) -> i64;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        Timestamp::now().as_millisecond()
    }

    fn counted_ms(&self) -> i64 {
        static START: OnceLock<Instant> = OnceLock::new();
        i64::try_from(START.get_or_init(Instant::now).elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows this time.
    pub fn at(ms: i64) -> Self {
        Self(AtomicI64::new(ms))
    }

    /// Moves it on.
    pub fn advance(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn counted_ms(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A time as RFC 3339 writes it, to the millisecond.
pub fn rfc3339(ms: i64) -> String {
    // Every decision tells several times, so that this is worth being quick.
    match u64::try_from(ms) {
        Ok(ms) if ms < YEAR_10000 => quick(ms),
        // Whatever is later than can be written is as good as never.
        Ok(_) => quick(YEAR_10000 - 1),
        Err(_) => Timestamp::from_millisecond(ms)
            .map_or_else(|_| ms.to_string(), |time| format!("{time:.3}")),
    }
}

/// The first millisecond that needs five digits for its year.
const YEAR_10000: u64 = 253_402_300_800_000;

/// The same from 1970 until the year 9999, by the arithmetic of the Gregorian calendar: a year that begins in
/// March has its leap day at the end, and 400 of them have 146,097 days.
fn quick(ms: u64) -> String {
    let (days, of_day) = (ms / 86_400_000, ms % 86_400_000);
    let since_march_0 = days + 719_468;
    let era = since_march_0 / 146_097;
    let of_era = since_march_0 % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let seconds = of_day / 1000;
    let mut text = String::with_capacity(24);
    for (number, digits, end) in [
        (year, 4, '-'),
        (month, 2, '-'),
        (day, 2, 'T'),
        (seconds / 3600, 2, ':'),
        (seconds / 60 % 60, 2, ':'),
        (seconds % 60, 2, '.'),
        (of_day % 1000, 3, 'Z'),
    ] {
        let mut place = 10_u64.pow(digits - 1);
        while place > 0 {
            let digit = u8::try_from(number / place % 10).unwrap_or_default();
            text.push(char::from(b'0' + digit));
            place /= 10;
        }
        text.push(end);
    }
    text
}

/// Random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Internal::new(format!("the system gives no randomness: {error}")))?;
    Ok(bytes)
}

/// The ids of one call and of the run that it belongs to.
pub(crate) fn call_ids(now_ms: i64) -> Result<(id::CallId, id::RunId), Error> {
    let bytes: [u8; 20] = random()?;
    let (call, run) = bytes.split_at(10);
    let part = |bytes: &[u8]| bytes.try_into().unwrap_or_default();
    let at = u64::try_from(now_ms).unwrap_or_default();
    Ok((id::CallId::from_parts(at, part(call)), id::RunId::from_parts(at, part(run))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quick_way_to_write_a_time_is_the_right_one() {
        let slow = |ms: i64| format!("{:.3}", Timestamp::from_millisecond(ms).unwrap());
        // Every day of four hundred years and then some, at odd hours; and the ends.
        for day in 0..160_000_i64 {
            let ms = day * 86_400_000 + day * 7919 % 86_400_000;
            assert_eq!(rfc3339(ms), slow(ms));
        }
        for ms in [0, 1, 999, 253_402_000_000_000, -1, -62_135_596_800_000] {
            assert_eq!(rfc3339(ms), slow(ms));
        }
    }
}
