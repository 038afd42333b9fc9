//! Two clocks: the time that really passes, and what the governor takes for the time.

use tollgate_governor::SteadyTime;

/// The governor's clock. Whoever moves the clock on the wall meets the same guard as in the gate.
#[derive(Debug)]
pub(crate) struct Clock {
    steady: SteadyTime,
    /// By how much the wall is ahead of what really is.
    ahead: i64,
}

impl Clock {
    pub(crate) fn new(now: i64) -> Self {
        Self { steady: SteadyTime::new(now, now, now), ahead: 0 }
    }

    /// What the governor takes for the time at a moment.
    pub(crate) fn read(&mut self, now: i64) -> i64 {
        self.steady.read(now.saturating_add(self.ahead), now)
    }

    /// The wall jumps.
    pub(crate) fn jump(&mut self, by: i64) {
        self.ahead = self.ahead.saturating_add(by);
    }

    /// The governor's process begins anew, and goes on from the last moment that it recorded.
    pub(crate) fn restart(&mut self, now: i64, last: i64) {
        self.steady = SteadyTime::new(now.saturating_add(self.ahead), now, last);
    }
}
