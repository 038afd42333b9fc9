//! The governor's own time. Windows reset by it, so that nobody can reset one by moving a clock.

/// By how much the clock on the wall may differ from what is expected before it counts as a jump.
const TOLERANCE: i64 = 2000;

/// How long a jump ahead must last before it is believed.
const CONFIRMED_AFTER: i64 = 60_000;

/// Time that never goes back, and believes a jump ahead only once it has lasted. It is made of two clocks:
/// the one on the wall, which people and providers go by, and one that only counts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SteadyTime {
    now: i64,
    counted: i64,
    /// What has passed while time goes slowly, and was too little to count.
    half: i64,
    /// A jump ahead that was seen: by how much, and since when.
    jump: Option<(i64, i64)>,
}

impl SteadyTime {
    /// Time from the first look at both clocks. It goes on from `last`, the last moment that is recorded: a
    /// process that was away for long believes the wall, and one whose wall was set back does not.
    pub fn new(wall: i64, counted: i64, last: i64) -> Self {
        Self { now: wall.max(last), counted, half: 0, jump: None }
    }

    /// The time, after another look at both clocks.
    pub fn read(&mut self, wall: i64, counted: i64) -> i64 {
        let passed = counted.saturating_sub(self.counted).max(0);
        self.counted = self.counted.max(counted);
        let expected = self.now.saturating_add(passed);
        let ahead = wall.saturating_sub(expected);
        self.now = if ahead > TOLERANCE {
            if self.is_confirmed(ahead, counted) { wall } else { expected }
        } else {
            self.jump = None;
            if ahead >= 0 {
                wall
            } else {
                // The wall is behind: time goes on at half its pace until both agree again.
                self.half = self.half.saturating_add(passed);
                let step = self.half / 2;
                self.half -= step * 2;
                self.now.saturating_add(step).max(wall)
            }
        };
        self.now
    }

    /// A jump ahead is believed once it has lasted.
    fn is_confirmed(&mut self, ahead: i64, counted: i64) -> bool {
        match self.jump {
            Some((by, since)) if by.abs_diff(ahead) <= TOLERANCE.unsigned_abs() => {
                let lasted = counted.saturating_sub(since) >= CONFIRMED_AFTER;
                self.jump = self.jump.filter(|_| !lasted);
                lasted
            }
            _ => {
                self.jump = Some((ahead, counted));
                false
            }
        }
    }

    /// The last moment that was read.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Is a jump of the clock waiting to be confirmed?
    pub fn is_waiting(&self) -> bool {
        self.jump.is_some()
    }
}

#[cfg(test)]
#[path = "time_tests.rs"]
mod tests;
