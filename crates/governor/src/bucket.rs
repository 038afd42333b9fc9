//! A bucket of tokens that refills steadily.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A token bucket in whole tokens. Amounts that are held are taken out, and make the bucket smaller until
/// they are settled: whoever holds may act at the very end, and must not find that others have used what
/// came in meanwhile. A booking is taken out when its time comes; until then it must stay possible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    capacity: u64,
    /// How many tokens come in every `per` milliseconds.
    refill: u64,
    per: i64,
    /// The level in parts of a token, so that nothing is lost by rounding: `per` parts are one token. Below
    /// zero it is debt: somebody has used more than was held.
    level: i128,
    at: i64,
    held: u64,
    /// What is taken out later, and when; each behind `at`.
    booked: BTreeMap<i64, u64>,
}

/// The bucket at a moment to come.
#[derive(Clone, Copy)]
struct Ahead {
    at: i64,
    level: i128,
    held: u64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(capacity: u64, refill: u64, per: i64, now: i64) -> Self {
        let per = per.max(1);
        let level = i128::from(capacity) * i128::from(per);
        Self { capacity, refill, per, level, at: now, held: 0, booked: BTreeMap::new() }
    }

    /// Gives the bucket another size and refill. What is in it stays, as far as there is room.
    pub(crate) fn resize(&mut self, capacity: u64, refill: u64, per: i64) {
        let per = per.max(1);
        self.level = self.level * i128::from(per) / i128::from(self.per);
        (self.capacity, self.refill, self.per) = (capacity, refill, per);
        self.level = self.level.min(self.most(self.held));
    }

    fn parts(&self, tokens: u64) -> i128 {
        i128::from(tokens) * i128::from(self.per)
    }

    /// The highest level while so much is held.
    fn most(&self, held: u64) -> i128 {
        self.parts(self.capacity.saturating_sub(held))
    }

    /// The lowest level: a debt of a whole bucket. Whoever reports nonsense must not close it for ever.
    fn least(&self) -> i128 {
        -self.parts(self.capacity)
    }

    /// What the bucket is at `at` if nothing is taken out meanwhile.
    fn later(&self, ahead: Ahead, at: i64) -> Ahead {
        let passed = at.saturating_sub(ahead.at).max(0);
        let came_in = i128::from(passed) * i128::from(self.refill);
        let level = (ahead.level + came_in).min(self.most(ahead.held));
        Ahead { at: ahead.at.max(at), level, ..ahead }
    }

    fn now(&self) -> Ahead {
        Ahead { at: self.at, level: self.level, held: self.held }
    }

    /// Takes an amount out.
    fn taken(&self, ahead: Ahead, amount: u64) -> Ahead {
        let held = ahead.held.saturating_add(amount);
        Ahead { level: ahead.level - self.parts(amount), held, ..ahead }
    }

    /// Lets time pass. Time that goes back changes nothing.
    pub fn advance(&mut self, now: i64) {
        let mut ahead = self.now();
        while let Some(entry) = self.booked.first_entry().filter(|entry| *entry.key() <= now) {
            let (slot, amount) = entry.remove_entry();
            ahead = self.taken(self.later(ahead, slot), amount);
        }
        let Ahead { at, level, held } = self.later(ahead, now);
        (self.at, self.level, self.held) = (at, level, held);
    }

    /// The first moment from `from` on at which there is room for `amount` beside what is booked, and
    /// `kept_free` is left; `None` if there is none before something that is held is settled.
    pub fn earliest(&self, from: i64, amount: u64, kept_free: u64) -> Option<i64> {
        let needed = self.parts(amount.saturating_add(kept_free));
        // What each booking leaves; the least of all that come later limits what can be taken before them.
        let mut ahead = self.now();
        let mut steps = Vec::with_capacity(self.booked.len());
        for (slot, booked) in &self.booked {
            let after = self.taken(self.later(ahead, *slot), *booked);
            steps.push((ahead, *slot, after.level));
            ahead = after;
        }
        let mut found = self.within(ahead, i64::MAX, from, needed);
        let mut slack = i128::MAX;
        for (before, slot, left) in steps.into_iter().rev() {
            slack = slack.min(left);
            if slack < needed {
                break;
            }
            found = self.within(before, slot, from, needed).or(found);
        }
        found
    }

    /// The first moment from `from` until before `end` at which the level is `needed`.
    fn within(&self, ahead: Ahead, end: i64, from: i64, needed: i128) -> Option<i64> {
        if needed > self.most(ahead.held) {
            return None;
        }
        let missing = needed - ahead.level;
        let wait = match i128::from(self.refill) {
            _ if missing <= 0 => 0,
            0 => return None,
            refill => i64::try_from((missing + refill - 1) / refill).ok()?,
        };
        let at = ahead.at.checked_add(wait)?.max(from);
        (at < end).then_some(at)
    }

    /// Holds an amount from a moment on.
    pub fn hold(&mut self, from: i64, amount: u64) {
        if from > self.at {
            let booked = self.booked.entry(from).or_default();
            *booked = booked.saturating_add(amount);
        } else {
            let Ahead { level, held, .. } = self.taken(self.now(), amount);
            (self.level, self.held) = (level, held);
        }
    }

    /// Settles a hold that began at `from` with what was used of it, or beyond it.
    pub fn settle(&mut self, from: i64, held: u64, used: u64) {
        if let Some(booked) = self.booked.get_mut(&from).filter(|_| from > self.at) {
            *booked = booked.saturating_sub(held);
            if *booked == 0 {
                self.booked.remove(&from);
            }
            self.charge(used);
            return;
        }
        self.held = self.held.saturating_sub(held);
        self.level += self.parts(held) - self.parts(used);
        self.level = self.level.clamp(self.least(), self.most(self.held));
    }

    /// Takes out what was used without being held, even if it is not there.
    pub(crate) fn charge(&mut self, amount: u64) {
        self.level = (self.level - self.parts(amount)).max(self.least());
    }

    /// Puts back what was taken out and not used.
    pub(crate) fn give(&mut self, amount: u64) {
        self.level = (self.level + self.parts(amount)).min(self.most(self.held));
    }

    /// Whole tokens that can be had now.
    pub fn left(&self) -> u64 {
        u64::try_from(self.level.max(0) / i128::from(self.per)).unwrap_or(u64::MAX)
    }

    /// When it is full again if nothing more is taken out.
    pub(crate) fn full_at(&self) -> i64 {
        let missing = (self.most(self.held) - self.level).max(0);
        let refill = i128::from(self.refill.max(1));
        let wait = i64::try_from((missing + refill - 1) / refill).unwrap_or(i64::MAX);
        self.at.saturating_add(wait)
    }

    /// Is it as if it had never been used?
    pub(crate) fn is_idle(&self) -> bool {
        self.held == 0 && self.booked.is_empty() && self.level >= self.most(0)
    }
}

#[cfg(test)]
#[path = "bucket_tests.rs"]
mod tests;
