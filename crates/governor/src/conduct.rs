//! How an agent behaves, and what follows: whoever calls everything urgent, or acts without asking, is taken
//! for background work for a time.

use serde::{Deserialize, Serialize};

use crate::config::SinBin;

/// What an agent did lately.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conduct {
    /// Since when it is watched.
    since: i64,
    asks: u32,
    high: u32,
    ghosts: u32,
    demoted_until: i64,
}

impl Conduct {
    /// Until when it is demoted, if it is.
    pub(crate) fn demoted_until(&self, now: i64) -> Option<i64> {
        (self.demoted_until > now).then_some(self.demoted_until)
    }

    /// Is it demoted by asking once more? Gives until when.
    pub(crate) fn would_ask(&self, now: i64, high: bool, rule: &SinBin) -> Option<i64> {
        let mut after = self.clone();
        after.count(now, rule, 1, u32::from(high), 0);
        let share = u64::from(after.high) * 100 / u64::from(after.asks.max(1));
        let is_judged = high && after.asks >= rule.asks && rule.asks > 0;
        (is_judged && share > u64::from(rule.high_percent)).then(|| now + minutes(rule))
    }

    /// Is it demoted by having acted without asking once more?
    pub(crate) fn would_ghost(&self, now: i64, rule: &SinBin) -> Option<i64> {
        let mut after = self.clone();
        after.count(now, rule, 0, 0, 1);
        (rule.ghosts > 0 && after.ghosts >= rule.ghosts).then(|| now + minutes(rule))
    }

    /// It has asked.
    pub(crate) fn asked(&mut self, now: i64, high: bool, demoted: Option<i64>, rule: &SinBin) {
        self.count(now, rule, 1, u32::from(high), 0);
        self.demote(now, demoted);
    }

    /// It has acted without asking.
    pub(crate) fn ghost(&mut self, now: i64, demoted: Option<i64>, rule: &SinBin) {
        self.count(now, rule, 0, 0, 1);
        self.demote(now, demoted);
    }

    /// It is demoted, and watched anew.
    fn demote(&mut self, now: i64, until: Option<i64>) {
        if let Some(until) = until {
            *self = Self { since: now, demoted_until: until, ..Self::default() };
        }
    }

    /// Counts on, or anew when the time is over for which it is watched.
    fn count(&mut self, now: i64, rule: &SinBin, asks: u32, high: u32, ghosts: u32) {
        if now.saturating_sub(self.since) > minutes(rule) {
            *self = Self { since: now, demoted_until: self.demoted_until, ..Self::default() };
        }
        self.asks = self.asks.saturating_add(asks);
        self.high = self.high.saturating_add(high);
        self.ghosts = self.ghosts.saturating_add(ghosts);
    }

    /// Is there nothing left to remember?
    pub(crate) fn is_over(&self, now: i64, watched: i64) -> bool {
        self.demoted_until <= now && now.saturating_sub(self.since) > watched
    }
}

fn minutes(rule: &SinBin) -> i64 {
    i64::from(rule.minutes) * 60_000
}
