//! Doing what goes wrong, and mending it.

use super::World;
use crate::scenario::{Sabotage, Trouble};

impl World<'_> {
    /// Something goes wrong.
    pub(super) fn trouble(&mut self, place: usize) {
        let scenario = self.scenario;
        let Some(Sabotage { trouble, .. }) = scenario.sabotage.get(place) else { return };
        match trouble {
            Trouble::Crash(_) => self.governed.is_away = true,
            Trouble::ClockJump(by) => self.governed.jump(*by),
            Trouble::Drops { provider, limit } => self.provider_limit(*provider, *limit),
            Trouble::Silent { provider } => self.silence(*provider, true),
            Trouble::Slow { provider, by } => self.slow(*provider, *by),
            Trouble::Storm { group, times } => self.storm(*group, *times),
            Trouble::Halt(targets) => self.governed.halt(targets, false, self.now),
            Trouble::Resume(targets) => self.governed.halt(targets, true, self.now),
            Trouble::Reload { pool, limit } => self.reload(*pool, *limit),
            Trouble::ReportsStop(groups) => self.hush(groups, true),
        }
    }

    /// It is over. What has no end of its own never comes here.
    pub(super) fn trouble_over(&mut self, place: usize) {
        let scenario = self.scenario;
        let Some(Sabotage { trouble, .. }) = scenario.sabotage.get(place) else { return };
        match trouble {
            Trouble::Crash(from) => {
                self.governed.is_away = false;
                self.governed.restart(*from, self.now);
            }
            Trouble::ClockJump(by) => self.governed.jump(-by),
            Trouble::Drops { provider, .. } => {
                if let Some(plan) = scenario.providers.get(*provider) {
                    self.provider_limit(*provider, plan.limit);
                }
            }
            Trouble::Silent { provider } => self.silence(*provider, false),
            Trouble::Slow { provider, .. } => self.slow(*provider, 0),
            Trouble::Storm { group, .. } => self.storm(*group, 1),
            Trouble::Halt(targets) => self.governed.halt(targets, true, self.now),
            Trouble::Reload { pool, .. } => {
                let before = scenario.config.pools.get(*pool).and_then(|pool| pool.limit);
                self.reload(*pool, before.unwrap_or(1));
            }
            Trouble::ReportsStop(groups) => self.hush(groups, false),
            Trouble::Resume(_) => {}
        }
    }

    fn provider_limit(&mut self, place: usize, limit: u64) {
        let Some(real) = self.providers.get_mut(place) else { return };
        real.limit = limit;
        let known = self.observed.limits.get_mut(real.plan.pool);
        known.into_iter().for_each(|all| all.push((self.now, limit)));
    }

    fn silence(&mut self, place: usize, is_silent: bool) {
        self.providers.get_mut(place).into_iter().for_each(|real| real.is_silent = is_silent);
    }

    fn slow(&mut self, place: usize, by: i64) {
        self.providers.get_mut(place).into_iter().for_each(|real| real.slow = by);
    }

    fn storm(&mut self, group: usize, times: u32) {
        self.storms.get_mut(group).into_iter().for_each(|often| *often = times);
    }

    fn hush(&mut self, groups: &[usize], is_quiet: bool) {
        for group in groups {
            self.quiet.get_mut(*group).into_iter().for_each(|quiet| *quiet = is_quiet);
        }
    }

    fn reload(&mut self, pool: usize, limit: u64) {
        self.governed.reload(pool, limit, self.now);
        // Behind a pool with a provider it is the provider's limit that counts.
        if !self.providers.iter().any(|real| real.plan.pool == pool) {
            let known = self.observed.limits.get_mut(pool);
            known.into_iter().for_each(|all| all.push((self.now, limit)));
        }
    }
}
