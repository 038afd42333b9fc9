//! What an observer saw who stands beside the agents and never asks the governor. Metrics are worked out of
//! nothing else.

use tollgate_contract::Urgency;

/// How an ask was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Go ahead.
    Approved,
    /// Go ahead later.
    Waits,
    /// No.
    Denied,
    /// Not at all.
    Silence,
}

/// An ask.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) at: i64,
    pub(crate) agent: u32,
    pub(crate) answered: Answered,
}

/// An act.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acted {
    pub(crate) at: i64,
    pub(crate) agent: u32,
    /// When it first asked for it, and when it was allowed.
    pub(crate) wished: i64,
    pub(crate) decided: i64,
    /// It had been told to wait, and did.
    pub(crate) booked: bool,
    /// Nobody had allowed it.
    pub(crate) ghost: bool,
    /// The provider refused.
    pub(crate) refused: bool,
}

/// What was taken of a pool.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Take {
    pub(crate) at: i64,
    pub(crate) ends: i64,
    pub(crate) key: u32,
    pub(crate) amount: u64,
    /// By which act; `None` for what others took behind our back.
    pub(crate) act: Option<usize>,
    pub(crate) refused: bool,
}

/// A time in which an agent wanted something and was not served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hunger {
    pub(crate) agent: u32,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// An agent, as far as the observer tells them apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) group: usize,
    pub(crate) urgency: Urgency,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) starts_at: i64,
    pub(crate) ends_at: i64,
    pub(crate) agents: Vec<Seen>,
    pub(crate) asks: Vec<Asked>,
    pub(crate) acts: Vec<Acted>,
    /// By pool, in the order in which it happened.
    pub(crate) takes: Vec<Vec<Take>>,
    /// By pool: from when on which limit was in force.
    pub(crate) limits: Vec<Vec<(i64, u64)>>,
    pub(crate) hunger: Vec<Hunger>,
    /// By pool: by how much the last answer overstated what was left.
    pub(crate) drift: Vec<Option<u64>>,
    /// When each sabotage was over.
    pub(crate) troubles_end: Vec<i64>,
    pub(crate) decisions: u64,
}

impl Observed {
    /// The limit of a pool at a moment.
    pub(crate) fn limit(&self, pool: usize, at: i64) -> u64 {
        self.highest(pool, at, at)
    }

    /// The highest limit that was in force at any moment from `from` to `to`.
    pub(crate) fn highest(&self, pool: usize, from: i64, to: i64) -> u64 {
        let limits = self.limits.get(pool).map_or(&[][..], Vec::as_slice);
        let before = limits.iter().rev().find(|(since, _)| *since <= from);
        let during = limits.iter().filter(|(since, _)| *since > from && *since <= to);
        before.into_iter().chain(during).map(|(_, limit)| *limit).max().unwrap_or(0)
    }

    /// The mean limit of the whole run.
    pub(crate) fn mean_limit(&self, pool: usize) -> f64 {
        let limits = self.limits.get(pool).map_or(&[][..], Vec::as_slice);
        let ends = limits.iter().skip(1).map(|(since, _)| *since).chain([self.ends_at]);
        let weighed = limits.iter().zip(ends);
        let sum: f64 =
            weighed.map(|((since, limit), end)| *limit as f64 * (end - since) as f64).sum();
        sum / (self.ends_at - self.starts_at).max(1) as f64
    }
}
