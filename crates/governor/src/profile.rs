//! How much of a limit is taken at every moment, now and later.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The sum of all amounts that are taken, as a function of time from a moment on. Only the changes are kept,
/// so that it costs nothing to wait, and what is over is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Profile {
    /// The moment up to which it is forgotten.
    at: i64,
    /// What is taken at that moment.
    taken: u64,
    /// By how much it rises or falls, and when; each behind `at`.
    changes: BTreeMap<i64, Change>,
}

/// What begins and what ends at one moment. Kept apart, so that taking back leaves no trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Change {
    begins: u64,
    ends: u64,
}

/// There is no room for an amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// It is more than the limit itself: it never fits.
    Never,
    /// It does not fit within reach.
    WithinReach,
}

impl Profile {
    /// Forgets what is over. Time does not go back: an earlier moment changes nothing.
    pub fn advance(&mut self, now: i64) {
        while let Some(entry) = self.changes.first_entry().filter(|entry| *entry.key() <= now) {
            let change = entry.remove();
            self.taken = self.taken.saturating_add(change.begins).saturating_sub(change.ends);
        }
        self.at = self.at.max(now);
    }

    /// What is taken at `now`, which is not before the last moment that was forgotten.
    pub fn taken(&self, now: i64) -> u64 {
        self.levels(now).next().map_or(self.taken, |(_, level)| level)
    }

    /// The most that is taken at any moment from `from` until before `to`.
    pub fn peak(&self, from: i64, to: i64) -> u64 {
        self.levels(from)
            .take_while(|(at, _)| *at < to || *at <= from)
            .map(|(_, level)| level)
            .max()
            .unwrap_or(0)
    }

    /// Takes an amount from `from` until before `to`.
    pub fn take(&mut self, from: i64, to: i64, amount: u64) {
        self.change(from, to, amount, true);
    }

    /// Gives an amount back that was taken over this span. What has passed stays as it was.
    pub fn give_back(&mut self, from: i64, to: i64, amount: u64) {
        self.change(from, to, amount, false);
    }

    fn change(&mut self, from: i64, to: i64, amount: u64, is_taken: bool) {
        let from = from.max(self.at);
        if to <= from || amount == 0 {
            return;
        }
        let apply = |sum: u64| {
            if is_taken { sum.saturating_add(amount) } else { sum.saturating_sub(amount) }
        };
        if from == self.at {
            self.taken = apply(self.taken);
        } else {
            let change = self.changes.entry(from).or_default();
            change.begins = apply(change.begins);
        }
        let change = self.changes.entry(to).or_default();
        change.ends = apply(change.ends);
        self.changes.retain_if_empty(from);
        self.changes.retain_if_empty(to);
    }

    /// The first moment from `now` to `latest` at which `amount` fits below `limit`, for the whole span that
    /// it takes if it begins then. `until` gives the end of that span; whoever begins later ends no earlier.
    pub fn earliest(
        &self,
        now: i64,
        latest: i64,
        amount: u64,
        limit: u64,
        until: impl Fn(i64) -> i64,
    ) -> Result<i64, NoRoom> {
        let room = limit.checked_sub(amount).ok_or(NoRoom::Never)?;
        let (mut from, mut ends, mut is_over) = (now, until(now), false);
        // One pass: whatever begins at or before a moment without room contains it, so that the next chance
        // is where there is room again, and nothing before it needs to be looked at twice.
        for (at, level) in self.levels(now) {
            if is_over && level <= room {
                (from, ends, is_over) = (at, until(at), false);
            }
            if from > latest {
                return Err(NoRoom::WithinReach);
            }
            if !is_over && at >= ends && at > from {
                return Ok(from);
            }
            is_over |= level > room;
        }
        if is_over || from > latest { Err(NoRoom::WithinReach) } else { Ok(from) }
    }

    /// The levels from `from` on: what is taken at `from`, and after each change.
    pub(crate) fn levels(&self, from: i64) -> impl Iterator<Item = (i64, u64)> {
        let mut level = self.taken;
        let mut after = self.changes.iter().peekable();
        while let Some((_, change)) = after.next_if(|(at, _)| **at <= from) {
            level = level.saturating_add(change.begins).saturating_sub(change.ends);
        }
        let later = after.scan(level, |level, (at, change)| {
            *level = level.saturating_add(change.begins).saturating_sub(change.ends);
            Some((*at, *level))
        });
        std::iter::once((from.max(self.at), level)).chain(later)
    }

    /// Is nothing taken, now or later?
    pub fn is_empty(&self) -> bool {
        self.taken == 0 && self.changes.is_empty()
    }

    /// How many moments are kept: a measure of what it costs.
    pub fn moments(&self) -> usize {
        self.changes.len()
    }
}

/// Removing what has become nothing.
trait RetainIfEmpty {
    fn retain_if_empty(&mut self, at: i64);
}

impl RetainIfEmpty for BTreeMap<i64, Change> {
    fn retain_if_empty(&mut self, at: i64) {
        if self.get(&at) == Some(&Change::default()) {
            self.remove(&at);
        }
    }
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
