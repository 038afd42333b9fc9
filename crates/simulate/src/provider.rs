//! A provider as it really is: it counts by itself, serves others too, and refuses what is too much.

use std::collections::BTreeMap;

use tollgate_governor::Observation;

use crate::{random::Random, scenario::ProviderPlan};

/// What is behind a pool.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) plan: ProviderPlan,
    /// Its limit now.
    pub(crate) limit: u64,
    /// It says nothing of what is left.
    pub(crate) is_silent: bool,
    /// By how much it is slower than usual.
    pub(crate) slow: i64,
    /// What it has counted, by key: the window, and how much.
    counted: BTreeMap<u32, (i64, u64)>,
    random: Random,
}

impl Provider {
    pub(crate) fn new(plan: &ProviderPlan, random: Random) -> Self {
        Self {
            plan: plan.clone(),
            limit: plan.limit,
            is_silent: false,
            slow: 0,
            counted: BTreeMap::new(),
            random,
        }
    }

    fn window(&self, now: i64) -> i64 {
        now.saturating_sub(self.plan.begins).div_euclid(self.plan.every.max(1))
    }

    /// When its window ends.
    pub(crate) fn resets_at(&self, now: i64) -> i64 {
        let ends = self.window(now).saturating_add(1).saturating_mul(self.plan.every.max(1));
        self.plan.begins.saturating_add(ends)
    }

    /// What it has counted for a key in the present window.
    pub(crate) fn used(&self, key: u32, now: i64) -> u64 {
        let window = self.window(now);
        self.counted.get(&key).filter(|(when, _)| *when == window).map_or(0, |(_, used)| *used)
    }

    /// What is left for a key.
    pub(crate) fn left(&self, key: u32, now: i64) -> u64 {
        self.limit.saturating_sub(self.used(key, now))
    }

    /// Serves, if there is room.
    pub(crate) fn serve(&mut self, key: u32, amount: u64, now: i64) -> bool {
        if amount > self.left(key, now) {
            return false;
        }
        let used = self.used(key, now).saturating_add(amount);
        self.counted.insert(key, (self.window(now), used));
        true
    }

    /// What others take of a key in a second; they are refused too where there is no room.
    pub(crate) fn others(&mut self, key: u32, now: i64) -> u64 {
        let wanted = self.random.unit() * 2.0 * self.plan.hidden_per_second;
        // A whole number whose mean is right.
        let whole = wanted as u64 + u64::from(self.random.happens(wanted.fract()));
        let taken = whole.min(self.left(key, now));
        self.serve(key, taken, now);
        taken
    }

    /// What a look at its count shows of a key.
    pub(crate) fn counts(&self, key: u32, now: i64) -> Observation {
        Observation {
            name: None,
            limit: Some(self.limit),
            remaining: Some(self.left(key, now)),
            reset_at: Some(self.resets_at(now)),
            closed_until: None,
        }
    }

    /// What its answer says of a key. A refusal says when to come back, whatever else it says.
    pub(crate) fn answers(&self, key: u32, refused: bool, now: i64) -> Option<Observation> {
        let closed_until = refused.then(|| self.resets_at(now));
        if self.is_silent || !(self.plan.answers || refused) {
            None
        } else if self.plan.answers {
            Some(Observation { closed_until, ..self.counts(key, now) })
        } else {
            Some(Observation { closed_until, ..Observation::default() })
        }
    }
}

#[cfg(test)]
#[path = "provider_tests.rs"]
mod tests;
