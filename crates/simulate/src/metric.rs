//! What is measured, and how: each metric is worked out of what the observer saw.

use std::collections::BTreeMap;

use crate::{
    observed::{Acted, Answered, Observed},
    scenario::Of,
    series::Series,
};

/// Something that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// The most that was acted above a pool's limit in any true window; of hard pools where none is named.
    /// What a provider refused was tried, and counts.
    Overshoot,
    /// Acts that a provider refused.
    ProviderRefusals,
    /// How much of what a pool had our agents really got, from 0 to 1.
    Utilization,
    /// By how much the last answer overstated what the provider had left.
    Drift,
    /// Asks, answered or not.
    Asks,
    /// Asks that were approved at once.
    Approvals,
    /// Asks that were given a slot for later.
    Waits,
    /// Asks that were denied.
    Denials,
    /// Acts that succeeded.
    Acted,
    /// Acts that nobody had allowed.
    Ghosts,
    /// Approved asks, at once or later, of all that were answered, from 0 to 1.
    ApprovalRate,
    /// Seconds from first asking to acting: half of them are at most this.
    WaitP50,
    /// The same: 99 of 100 are at most this.
    WaitP99,
    /// The same: the longest.
    WaitMax,
    /// Of the acts that had been given a slot for later, those that found room then, from 0 to 1.
    KeptWaits,
    /// Acts of the least served agent over those of the most served, from 0 to 1.
    Fairness,
    /// The longest time, in seconds, that an agent wanted something and was not served.
    Starved,
    /// The longest time, in seconds, from the end of a sabotage until all who wanted something then were served.
    Recovery,
}

/// What a metric needs to be worked out.
pub(crate) struct Measuring<'a> {
    pub(crate) observed: &'a Observed,
    pub(crate) series: &'a [Series],
    /// By pool: is it never over?
    pub(crate) hard: &'a [bool],
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Overshoot,
        Self::ProviderRefusals,
        Self::Utilization,
        Self::Drift,
        Self::Asks,
        Self::Approvals,
        Self::Waits,
        Self::Denials,
        Self::Acted,
        Self::Ghosts,
        Self::ApprovalRate,
        Self::WaitP50,
        Self::WaitP99,
        Self::WaitMax,
        Self::KeptWaits,
        Self::Fairness,
        Self::Starved,
        Self::Recovery,
    ];

    /// Its name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Self::Overshoot => "overshoot",
            Self::ProviderRefusals => "provider_refusals",
            Self::Utilization => "utilization",
            Self::Drift => "drift",
            Self::Asks => "asks",
            Self::Approvals => "approvals",
            Self::Waits => "waits",
            Self::Denials => "denials",
            Self::Acted => "acted",
            Self::Ghosts => "ghosts",
            Self::ApprovalRate => "approval_rate",
            Self::WaitP50 => "wait_p50",
            Self::WaitP99 => "wait_p99",
            Self::WaitMax => "wait_max",
            Self::KeptWaits => "kept_waits",
            Self::Fairness => "fairness",
            Self::Starved => "starved",
            Self::Recovery => "recovery",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    fn is_of_pools(self) -> bool {
        matches!(self, Self::Overshoot | Self::Utilization | Self::Drift)
    }

    /// Can it be measured of this? Else which selector is wrong, and why.
    pub(crate) fn takes(self, of: &Of, pools: usize) -> Result<(), (&'static str, String)> {
        let name = self.name();
        let has_agents = of.group.is_some() || of.urgency.is_some();
        let has_time = of.from != i64::MIN || of.until != i64::MAX;
        if self.is_of_pools() && has_agents {
            return Err(("agents", format!("`{name}` is measured of a pool, not of agents")));
        }
        let may_name =
            self.is_of_pools() || matches!(self, Self::ProviderRefusals | Self::KeptWaits);
        if of.pool.is_some() && !may_name {
            return Err(("pool", format!("`{name}` is measured of agents, not of a pool")));
        }
        if matches!(self, Self::Utilization | Self::Drift | Self::Recovery) && has_time {
            return Err(("from", format!("`{name}` is measured of the whole run")));
        }
        if self == Self::Utilization && of.pool.is_none() && pools != 1 {
            return Err(("pool", "is missing: say of which pool".to_owned()));
        }
        Ok(())
    }

    /// Its value; `None` where there was nothing to measure.
    pub(crate) fn measure(self, seen: &Measuring<'_>, of: &Of) -> Option<f64> {
        let answers =
            |wanted: Answered| Some(seen.asks(of).filter(|a| *a == wanted).count() as f64);
        match self {
            Self::Overshoot => seen.overshoot(of),
            Self::ProviderRefusals => {
                Some(seen.takes(of).filter(|(act, _)| act.refused).count() as f64)
            }
            Self::Utilization => seen.series.get(of.pool.unwrap_or(0)).map(|s| s.utilization),
            Self::Drift => {
                let all = seen.observed.drift.iter().enumerate();
                let wanted = all.filter(|(place, _)| of.pool.is_none_or(|pool| pool == *place));
                wanted.filter_map(|(_, drift)| drift.map(|drift| drift as f64)).reduce(f64::max)
            }
            Self::Asks => Some(seen.asks(of).count() as f64),
            Self::Approvals => answers(Answered::Approved),
            Self::Waits => answers(Answered::Waits),
            Self::Denials => answers(Answered::Denied),
            Self::Acted => Some(seen.acts(of).filter(|act| !act.refused).count() as f64),
            Self::Ghosts => Some(seen.acts(of).filter(|act| act.ghost).count() as f64),
            Self::ApprovalRate => seen.approval_rate(of),
            Self::WaitP50 => seen.wait(of, 50),
            Self::WaitP99 => seen.wait(of, 99),
            Self::WaitMax => seen.wait(of, 100),
            Self::KeptWaits => seen.kept_waits(of),
            Self::Fairness => seen.fairness(of),
            Self::Starved => {
                let hunger = seen.observed.hunger.iter().filter(|h| seen.is_meant(of, h.agent));
                let clipped =
                    hunger.map(|h| h.to.min(of.until).saturating_sub(h.from.max(of.from)));
                clipped.max().map(|longest| longest.max(0) as f64 / 1000.0)
            }
            Self::Recovery => seen.recovery(of),
        }
    }
}

impl Measuring<'_> {
    /// Is this agent meant?
    fn is_meant(&self, of: &Of, agent: u32) -> bool {
        self.observed.agents.get(agent as usize).is_some_and(|seen| {
            of.group.is_none_or(|group| group == seen.group)
                && of.urgency.is_none_or(|urgency| urgency == seen.urgency)
        })
    }

    fn asks(&self, of: &Of) -> impl Iterator<Item = Answered> {
        let asks = self.observed.asks.iter();
        let meant = asks.filter(|ask| (of.from..of.until).contains(&ask.at));
        meant.filter(|ask| self.is_meant(of, ask.agent)).map(|ask| ask.answered)
    }

    fn acts(&self, of: &Of) -> impl Iterator<Item = &Acted> {
        let acts = self.observed.acts.iter();
        let meant = acts.filter(|act| (of.from..of.until).contains(&act.at));
        meant.filter(|act| self.is_meant(of, act.agent))
    }

    /// Acts, each with by how much the fullest pool that it drew on was over.
    fn takes(&self, of: &Of) -> impl Iterator<Item = (Acted, u64)> {
        let mut by_act: BTreeMap<usize, u64> = BTreeMap::new();
        for (pool, (takes, series)) in self.observed.takes.iter().zip(self.series).enumerate() {
            for (take, over) in takes.iter().zip(&series.over) {
                if let Some(act) = take.act.filter(|_| of.pool.is_none_or(|meant| meant == pool)) {
                    let worst = by_act.entry(act).or_default();
                    *worst = (*worst).max(*over);
                }
            }
        }
        by_act.into_iter().filter_map(|(act, over)| {
            let act = *self.observed.acts.get(act)?;
            let meant = (of.from..of.until).contains(&act.at) && self.is_meant(of, act.agent);
            meant.then_some((act, over))
        })
    }

    fn overshoot(&self, of: &Of) -> Option<f64> {
        let mut worst = None;
        for (pool, (takes, series)) in self.observed.takes.iter().zip(self.series).enumerate() {
            let hard = self.hard.get(pool).copied().unwrap_or(false);
            if of.pool.map_or(hard, |meant| meant == pool) {
                let all = takes.iter().zip(&series.over);
                let meant = all.filter(|(take, _)| (of.from..of.until).contains(&take.at));
                worst = worst.max(meant.map(|(_, over)| *over).max());
            }
        }
        worst.map(|over| over as f64)
    }

    fn approval_rate(&self, of: &Of) -> Option<f64> {
        let (mut approved, mut answered) = (0_u64, 0_u64);
        for answer in self.asks(of).filter(|answer| *answer != Answered::Silence) {
            answered += 1;
            approved += u64::from(answer != Answered::Denied);
        }
        (answered > 0).then(|| approved as f64 / answered as f64)
    }

    /// Seconds from first asking to acting; so many percent of them are at most this.
    fn wait(&self, of: &Of, percent: usize) -> Option<f64> {
        let served = self.acts(of).filter(|act| !act.refused && !act.ghost);
        let mut waits: Vec<i64> = served.map(|act| act.at - act.wished).collect();
        waits.sort_unstable();
        let place = (waits.len() * percent).div_ceil(100).saturating_sub(1);
        waits.get(place).map(|wait| *wait as f64 / 1000.0)
    }

    fn kept_waits(&self, of: &Of) -> Option<f64> {
        let (mut booked, mut kept) = (0_u64, 0_u64);
        for (act, over) in self.takes(of).filter(|(act, _)| act.booked) {
            booked += 1;
            kept += u64::from(over == 0 && !act.refused);
        }
        (booked > 0).then(|| kept as f64 / booked as f64)
    }

    fn fairness(&self, of: &Of) -> Option<f64> {
        let all = (0..self.observed.agents.len() as u32).filter(|agent| self.is_meant(of, *agent));
        let mut served: BTreeMap<u32, u64> = all.map(|agent| (agent, 0)).collect();
        for act in self.acts(of).filter(|act| !act.refused) {
            *served.entry(act.agent).or_default() += 1;
        }
        let (least, most) = (served.values().min()?, served.values().max()?);
        (served.len() > 1 && *most > 0).then(|| *least as f64 / *most as f64)
    }

    fn recovery(&self, of: &Of) -> Option<f64> {
        let hunger = || self.observed.hunger.iter().filter(|h| self.is_meant(of, h.agent));
        let after = |end: &i64| {
            let waiting = hunger().filter(|h| h.from <= *end && h.to > *end);
            waiting.map(|h| h.to - end).max().unwrap_or(0)
        };
        let longest = self.observed.troubles_end.iter().map(after).max();
        longest.map(|ms| ms as f64 / 1000.0)
    }
}

#[cfg(test)]
#[path = "metric_tests.rs"]
mod tests;
