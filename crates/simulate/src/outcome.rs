//! What came of a run: what was measured, and whether everything held that should.

use std::fmt;

use serde::Serialize;

use crate::{
    metric::{Measuring, Metric},
    observed::{Answered, Observed},
    plot,
    scenario::{Invariant, Of, Scenario},
    series::{self, PIECES, Series},
};

/// What came of a run. The same scenario and seed give the same, byte for byte.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The scenario's name.
    pub name: String,
    /// What it tells.
    pub about: String,
    /// What chance was made of.
    pub seed: u64,
    /// How long it ran, in seconds of its own time.
    pub seconds: f64,
    /// How many decisions the governor made.
    pub decisions: u64,
    /// Did every invariant hold?
    pub holds: bool,
    /// What must hold, and whether it did.
    pub invariants: Vec<Verdict>,
    /// What became of each pool.
    pub pools: Vec<PoolMeasured>,
    /// What became of each group of agents.
    pub agents: Vec<AgentsMeasured>,
    /// The longest time, in seconds, until all were served again who wanted something when a sabotage was over.
    pub recovery: Option<f64>,
    #[serde(skip)]
    pub(crate) picture: Picture,
}

/// What is drawn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Picture {
    /// By pool: how full it was, in parts of its limit.
    pub(crate) curves: Vec<Vec<f64>>,
    /// By piece of time: asks that were approved, given a slot, denied, not answered.
    pub(crate) answers: Vec<[u32; 4]>,
    /// When something goes wrong, until when, and what; in seconds from the start.
    pub(crate) marks: Vec<(f64, f64, String)>,
}

/// What became of a pool.
#[derive(Debug, Clone, Serialize)]
pub struct PoolMeasured {
    /// Its name.
    pub pool: String,
    /// What is counted.
    pub unit: String,
    /// Its limit at the beginning; the provider's own where there is one.
    pub limit: u64,
    /// See [`Metric::Overshoot`].
    pub overshoot: Option<f64>,
    /// See [`Metric::Utilization`].
    pub utilization: Option<f64>,
    /// See [`Metric::KeptWaits`].
    pub kept_waits: Option<f64>,
    /// See [`Metric::ProviderRefusals`].
    pub provider_refusals: Option<f64>,
    /// See [`Metric::Drift`].
    pub drift: Option<f64>,
}

/// What became of a group of agents.
#[derive(Debug, Clone, Serialize)]
pub struct AgentsMeasured {
    /// Their name.
    pub agents: String,
    /// How many they are.
    pub count: u32,
    /// How urgent their work is.
    pub urgency: String,
    /// See [`Metric::Asks`].
    pub asks: Option<f64>,
    /// See [`Metric::Approvals`].
    pub approvals: Option<f64>,
    /// See [`Metric::Waits`].
    pub waits: Option<f64>,
    /// See [`Metric::Denials`].
    pub denials: Option<f64>,
    /// See [`Metric::Acted`].
    pub acted: Option<f64>,
    /// See [`Metric::Ghosts`].
    pub ghosts: Option<f64>,
    /// See [`Metric::ApprovalRate`].
    pub approval_rate: Option<f64>,
    /// See [`Metric::WaitP50`].
    pub wait_p50: Option<f64>,
    /// See [`Metric::WaitP99`].
    pub wait_p99: Option<f64>,
    /// See [`Metric::WaitMax`].
    pub wait_max: Option<f64>,
    /// See [`Metric::Fairness`].
    pub fairness: Option<f64>,
    /// See [`Metric::Starved`].
    pub starved: Option<f64>,
}

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
    /// Exactly this.
    Equals(f64),
}

impl Bound {
    /// Is it so? Where nothing was measured, nothing is shown, and it does not hold.
    fn holds(self, measured: Option<f64>) -> bool {
        measured.is_some_and(|value| match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
            Self::Equals(exactly) => value == exactly,
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::Equals(exactly) => write!(f, "exactly {exactly}"),
        }
    }
}

/// An invariant, what was measured, and whether it held.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// What is measured.
    pub metric: String,
    /// Of what: a pool, agents, a time; empty where it is everything.
    pub of: String,
    /// What it must be.
    pub bound: Bound,
    /// What it was; nothing where there was nothing to measure.
    pub measured: Option<f64>,
    /// Did it hold?
    pub holds: bool,
    /// Why it must hold.
    pub because: String,
}

impl Outcome {
    pub(crate) fn new(scenario: &Scenario, seed: u64, observed: &Observed) -> Self {
        let series = series::all(observed, &scenario.config, &scenario.providers);
        let hard: Vec<bool> = scenario.config.pools.iter().map(|pool| pool.hard).collect();
        let seen = Measuring { observed, series: &series, hard: &hard };
        let invariants: Vec<Verdict> =
            scenario.invariants.iter().map(|one| verdict(scenario, &seen, one)).collect();
        let pools = 0..scenario.config.pools.len();
        let groups = 0..scenario.groups.len();
        Self {
            decisions: observed.decisions,
            holds: invariants.iter().all(|verdict| verdict.holds),
            invariants,
            pools: pools.filter_map(|place| measured_pool(scenario, &seen, place)).collect(),
            agents: groups.filter_map(|place| measured_agents(scenario, &seen, place)).collect(),
            recovery: Metric::Recovery.measure(&seen, &Of::all()).map(rounded),
            picture: Picture::new(scenario, observed, series),
            ..Self::nothing(scenario, seed)
        }
    }

    /// Of a scenario that could not be run.
    pub(crate) fn nothing(scenario: &Scenario, seed: u64) -> Self {
        Self {
            name: scenario.name.clone(),
            about: scenario.about.clone(),
            seed,
            seconds: (scenario.ends_at - scenario.starts_at) as f64 / 1000.0,
            decisions: 0,
            holds: false,
            invariants: Vec::new(),
            pools: Vec::new(),
            agents: Vec::new(),
            recovery: None,
            picture: Picture::default(),
        }
    }

    /// Did every invariant hold?
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// A picture of it: how full each pool was, how asks were answered, and what went wrong when.
    pub fn svg(&self) -> String {
        plot::svg(self)
    }
}

/// Six digits are enough for anybody, and print the same everywhere.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn verdict(scenario: &Scenario, seen: &Measuring<'_>, invariant: &Invariant) -> Verdict {
    let measured = invariant.metric.measure(seen, &invariant.of).map(rounded);
    Verdict {
        metric: invariant.metric.name().to_owned(),
        of: told(scenario, &invariant.of),
        bound: invariant.bound,
        measured,
        holds: invariant.bound.holds(measured),
        because: invariant.because.clone(),
    }
}

/// Of what something is measured, for people.
fn told(scenario: &Scenario, of: &Of) -> String {
    let mut words = Vec::new();
    words.extend(of.pool.and_then(|pool| scenario.config.pools.get(pool)).map(|p| p.id.clone()));
    words.extend(of.group.and_then(|group| scenario.groups.get(group)).map(|g| g.name.clone()));
    words.extend(of.urgency.map(|urgency| format!("{} urgency", urgency.as_str())));
    let second = |at: i64| (at - scenario.starts_at) as f64 / 1000.0;
    if of.from != i64::MIN {
        words.push(format!("from {} s", second(of.from)));
    }
    if of.until != i64::MAX {
        words.push(format!("until {} s", second(of.until)));
    }
    words.join(", ")
}

fn measured_pool(scenario: &Scenario, seen: &Measuring<'_>, place: usize) -> Option<PoolMeasured> {
    let pool = scenario.config.pools.get(place)?;
    let of = Of::pool(place);
    let value = |metric: Metric| metric.measure(seen, &of).map(rounded);
    let has_provider = scenario.providers.iter().any(|plan| plan.pool == place);
    Some(PoolMeasured {
        pool: pool.id.clone(),
        unit: pool.unit().to_owned(),
        limit: seen.observed.limit(place, seen.observed.starts_at),
        overshoot: value(Metric::Overshoot),
        utilization: value(Metric::Utilization),
        kept_waits: value(Metric::KeptWaits),
        provider_refusals: value(Metric::ProviderRefusals).filter(|_| has_provider),
        drift: value(Metric::Drift),
    })
}

fn measured_agents(
    scenario: &Scenario,
    seen: &Measuring<'_>,
    place: usize,
) -> Option<AgentsMeasured> {
    let group = scenario.groups.get(place)?;
    let of = Of::group(place);
    let value = |metric: Metric| metric.measure(seen, &of).map(rounded);
    Some(AgentsMeasured {
        agents: group.name.clone(),
        count: group.count,
        urgency: group.urgency.as_str().to_owned(),
        asks: value(Metric::Asks),
        approvals: value(Metric::Approvals),
        waits: value(Metric::Waits),
        denials: value(Metric::Denials),
        acted: value(Metric::Acted),
        ghosts: value(Metric::Ghosts),
        approval_rate: value(Metric::ApprovalRate),
        wait_p50: value(Metric::WaitP50),
        wait_p99: value(Metric::WaitP99),
        wait_max: value(Metric::WaitMax),
        fairness: value(Metric::Fairness),
        starved: value(Metric::Starved),
    })
}

impl Picture {
    fn new(scenario: &Scenario, observed: &Observed, series: Vec<Series>) -> Self {
        let piece = ((observed.ends_at - observed.starts_at) / PIECES as i64).max(1);
        let mut answers = vec![[0; 4]; PIECES];
        for ask in &observed.asks {
            let place = usize::try_from((ask.at - observed.starts_at) / piece).unwrap_or(0);
            let kind = match ask.answered {
                Answered::Approved => 0,
                Answered::Waits => 1,
                Answered::Denied => 2,
                Answered::Silence => 3,
            };
            let counts = answers.get_mut(place.min(PIECES - 1));
            counts.and_then(|counts| counts.get_mut(kind)).into_iter().for_each(|n| *n += 1);
        }
        let second = |at: i64| (at - observed.starts_at) as f64 / 1000.0;
        let marks = scenario.sabotage.iter();
        Self {
            curves: series.into_iter().map(|series| series.curve).collect(),
            answers,
            marks: marks.map(|s| (second(s.at), second(s.ends), s.label.clone())).collect(),
        }
    }
}
