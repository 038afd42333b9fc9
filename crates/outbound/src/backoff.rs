//! How long to wait after a failure.

use std::time::Duration;

/// Waits that double from failure to failure, up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

impl Backoff {
    /// How long to wait after so many failures in a row: between half of the full wait and all of it, so that
    /// those who failed together do not come back together.
    pub(crate) fn wait(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let full = self.first.saturating_mul(doubled).min(self.longest);
        full.mul_f64(0.5 + random_part() / 2.0)
    }
}

/// A number from 0 to 1. Without a source of randomness, which only a broken system lacks, waits are whole.
fn random_part() -> f64 {
    getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound_and_are_not_all_the_same() {
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(600) };
        for (failures, full) in
            [(0, 1), (1, 1), (2, 2), (3, 4), (10, 512), (11, 600), (u32::MAX, 600)]
        {
            let full = Duration::from_secs(full);
            let waits: Vec<_> = (0..50).map(|_| backoff.wait(failures)).collect();
            assert!(waits.iter().all(|wait| *wait >= full / 2 && *wait <= full), "{waits:?}");
            assert!(waits.iter().any(|wait| wait != &waits[0]));
        }
    }
}
