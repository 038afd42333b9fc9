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
    Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| format!("{time:.3}"))
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
