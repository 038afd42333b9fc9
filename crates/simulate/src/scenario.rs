//! A scenario that was checked: every name in it means something.

use tollgate_contract::Urgency;
use tollgate_governor::{Expected, Governor, GovernorConfig, Target};

use crate::{
    check,
    error::ScenarioError,
    file::{Behaviour, Retries, Share, Takes},
    file_world::Source,
    metric::Metric,
    outcome::{Bound, Outcome},
    world::World,
};

/// Agents, providers, sabotage and invariants, ready to be run.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) seed: u64,
    /// When it begins and ends, in milliseconds since 1970.
    pub(crate) starts_at: i64,
    pub(crate) ends_at: i64,
    pub(crate) config: GovernorConfig,
    pub(crate) groups: Vec<Group>,
    pub(crate) providers: Vec<ProviderPlan>,
    pub(crate) sabotage: Vec<Sabotage>,
    pub(crate) invariants: Vec<Invariant>,
}

/// Agents of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) count: u32,
    /// Their credential; `None` for one of their own each.
    pub(crate) identity: Option<String>,
    pub(crate) workload: String,
    pub(crate) scope: String,
    pub(crate) account: String,
    pub(crate) urgency: Urgency,
    pub(crate) vouched: bool,
    pub(crate) expected: Expected,
    pub(crate) takes: Takes,
    pub(crate) reports: Share,
    pub(crate) obeys: Share,
    pub(crate) starts: i64,
    pub(crate) stops: i64,
    pub(crate) acts_within: i64,
    pub(crate) runs: i64,
    pub(crate) behaviour: Behaviour,
    pub(crate) retries: Retries,
    pub(crate) gives_up: i64,
}

impl Group {
    /// What its agent of this number is called, from 1.
    pub(crate) fn agent(&self, number: u32) -> String {
        if self.count == 1 { self.name.clone() } else { format!("{}-{number}", self.name) }
    }
}

/// What is really behind a pool.
#[derive(Debug, Clone)]
pub(crate) struct ProviderPlan {
    pub(crate) pool: usize,
    pub(crate) limit: u64,
    pub(crate) every: i64,
    /// A moment at which a window of it begins.
    pub(crate) begins: i64,
    pub(crate) hidden_per_second: f64,
    pub(crate) answers: bool,
    pub(crate) polled: Option<i64>,
    pub(crate) latency: i64,
}

/// Something that goes wrong.
#[derive(Debug, Clone)]
pub(crate) struct Sabotage {
    pub(crate) at: i64,
    /// When it is over; the same moment where it is over at once or never.
    pub(crate) ends: i64,
    pub(crate) trouble: Trouble,
    /// For people.
    pub(crate) label: String,
}

/// What goes wrong. Providers and groups are meant by their places.
#[derive(Debug, Clone)]
pub(crate) enum Trouble {
    Crash(Source),
    ClockJump(i64),
    Drops { provider: usize, limit: u64 },
    Silent { provider: usize },
    Slow { provider: usize, by: i64 },
    Storm { group: usize, times: u32 },
    Halt(Vec<Target>),
    Resume(Vec<Target>),
    Reload { pool: usize, limit: u64 },
    ReportsStop(Vec<usize>),
}

/// Something that must hold.
#[derive(Debug, Clone)]
pub(crate) struct Invariant {
    pub(crate) metric: Metric,
    pub(crate) of: Of,
    pub(crate) bound: Bound,
    pub(crate) because: String,
}

/// Of what a metric is measured.
#[derive(Debug, Clone)]
pub(crate) struct Of {
    pub(crate) pool: Option<usize>,
    pub(crate) group: Option<usize>,
    pub(crate) urgency: Option<Urgency>,
    pub(crate) from: i64,
    pub(crate) until: i64,
}

impl Of {
    /// Of everything, from the beginning to the end.
    pub(crate) fn all() -> Self {
        Self { pool: None, group: None, urgency: None, from: i64::MIN, until: i64::MAX }
    }

    pub(crate) fn pool(pool: usize) -> Self {
        Self { pool: Some(pool), ..Self::all() }
    }

    pub(crate) fn group(group: usize) -> Self {
        Self { group: Some(group), ..Self::all() }
    }
}

impl Scenario {
    /// Reads a scenario file.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        check::scenario(text)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it tells.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Runs it, with its own seed or another.
    pub fn run(&self, seed: Option<u64>) -> Outcome {
        self.run_with(seed, &|_| {})
    }

    /// Runs it on governors that something was done to first, each time that one is made.
    pub fn run_with(&self, seed: Option<u64>, prepare: &dyn Fn(&mut Governor)) -> Outcome {
        let seed = seed.unwrap_or(self.seed);
        match World::new(self, seed, prepare) {
            Some(world) => Outcome::new(self, seed, &world.run()),
            // The configuration was built once already, when the file was read.
            None => Outcome::nothing(self, seed),
        }
    }
}
