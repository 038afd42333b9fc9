//! A bucket of tokens that refills steadily.

/// A token bucket in whole tokens. Amounts that are held are taken out at once, and make the bucket smaller
/// until they are settled: whoever holds may act at the very end, and must not find that others have used
/// what came in meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    capacity: u64,
    /// How many tokens come in every `per` milliseconds.
    refill: u64,
    per: i64,
    /// The level in parts of a token, so that nothing is lost by rounding: `per` parts are one token. Below
    /// zero it is debt, which bookings make.
    level: i128,
    at: i64,
    held: u64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(capacity: u64, refill: u64, per: i64, now: i64) -> Self {
        let per = per.max(1);
        let level = i128::from(capacity) * i128::from(per);
        Self { capacity, refill, per, level, at: now, held: 0 }
    }

    /// Lets time pass. Time that goes back changes nothing.
    pub fn advance(&mut self, now: i64) {
        let passed = now.saturating_sub(self.at).max(0);
        self.at = self.at.max(now);
        let came_in = i128::from(passed) * i128::from(self.refill);
        let most = i128::from(self.capacity.saturating_sub(self.held)) * i128::from(self.per);
        self.level = (self.level + came_in).min(most);
    }

    /// When there is room for `amount`; `None` if there never is.
    pub fn earliest(&self, amount: u64) -> Option<i64> {
        if amount > self.capacity.saturating_sub(self.held) {
            return None;
        }
        let missing = i128::from(amount) * i128::from(self.per) - self.level;
        if missing <= 0 {
            return Some(self.at);
        }
        if self.refill == 0 {
            return None;
        }
        let refill = i128::from(self.refill);
        let wait = (missing + refill - 1) / refill;
        i64::try_from(wait).ok().and_then(|wait| self.at.checked_add(wait))
    }

    /// Holds an amount.
    pub fn hold(&mut self, amount: u64) {
        self.level -= i128::from(amount) * i128::from(self.per);
        self.held += amount;
    }

    /// Settles a hold with what was used of it, or beyond it.
    pub fn settle(&mut self, held: u64, used: u64) {
        self.held = self.held.saturating_sub(held);
        self.level += (i128::from(held) - i128::from(used)) * i128::from(self.per);
        let most = i128::from(self.capacity.saturating_sub(self.held)) * i128::from(self.per);
        self.level = self.level.min(most);
    }

    /// Whole tokens that can be had now.
    pub fn left(&self) -> u64 {
        u64::try_from(self.level.max(0) / i128::from(self.per)).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
#[path = "bucket_tests.rs"]
mod tests;
