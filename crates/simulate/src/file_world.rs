//! The world around the agents as it is written: providers, what goes wrong, and what must hold.

use serde::Deserialize;
use tollgate_contract::Urgency;
use toml::Spanned;

use crate::file::Length;

/// What is really behind a pool.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderFile {
    pub(crate) pool: Spanned<String>,
    pub(crate) limit: u64,
    /// How long its windows are.
    pub(crate) every: Length,
    /// How long after the start of the scenario its first reset is; a whole window where nothing is said.
    #[serde(default)]
    pub(crate) resets_after: Option<Length>,
    /// What others take that nobody told us of.
    #[serde(default)]
    pub(crate) hidden_per_second: f64,
    /// Does every answer say what is left? Else only a refusal says when to come back.
    #[serde(default = "yes")]
    pub(crate) answers: bool,
    /// How often it is asked what is left.
    #[serde(default)]
    pub(crate) polled: Option<Length>,
    /// How long an answer is on its way.
    #[serde(default)]
    pub(crate) latency: Option<Length>,
}

fn yes() -> bool {
    true
}

/// Something that goes wrong: when, and exactly one of the others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SabotageFile {
    pub(crate) at: Length,
    /// For how long, where it can end by itself.
    #[serde(default)]
    pub(crate) lasts: Option<Length>,
    /// The provider's pool, where there are several.
    #[serde(default)]
    pub(crate) pool: Option<String>,
    #[serde(default)]
    pub(crate) crash: Option<Crash>,
    #[serde(default)]
    pub(crate) clock_jump: Option<String>,
    #[serde(default)]
    pub(crate) provider_drops: Option<u64>,
    #[serde(default)]
    pub(crate) provider_silent: Option<Length>,
    #[serde(default)]
    pub(crate) provider_slow: Option<Length>,
    #[serde(default)]
    pub(crate) storm: Option<Storm>,
    #[serde(default)]
    pub(crate) halt: Option<TargetFile>,
    #[serde(default)]
    pub(crate) resume: Option<TargetFile>,
    #[serde(default)]
    pub(crate) reload: Option<ReloadFile>,
    #[serde(default)]
    pub(crate) reports_stop: Option<String>,
}

/// The governor's process dies.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "expected \"events\", \"snapshot\" or { from = …, away = \"30s\" }")]
pub(crate) enum Crash {
    At(Source),
    Away(CrashAway),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CrashAway {
    #[serde(default)]
    pub(crate) from: Source,
    pub(crate) away: Length,
}

/// What its state is made of again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// Every event from the first on.
    #[default]
    Events,
    /// A snapshot, and the events after it.
    Snapshot,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Storm {
    pub(crate) agents: String,
    pub(crate) lasts: Length,
    /// So many times as often.
    #[serde(default = "ten")]
    pub(crate) times: u32,
}

fn ten() -> u32 {
    10
}

/// What a person stops.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TargetFile {
    All,
    Agents(String),
    Workload(String),
    Scope(String),
    Identity(String),
    Pool(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReloadFile {
    pub(crate) pool: String,
    pub(crate) limit: u64,
}

/// Something that must hold: a metric, of what, and its bound.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InvariantFile {
    pub(crate) metric: String,
    #[serde(default)]
    pub(crate) pool: Option<String>,
    #[serde(default)]
    pub(crate) agents: Option<String>,
    #[serde(default)]
    pub(crate) urgency: Option<Urgency>,
    /// Only what happened from then on counts, and until then.
    #[serde(default)]
    pub(crate) from: Option<Length>,
    #[serde(default)]
    pub(crate) until: Option<Length>,
    #[serde(default)]
    pub(crate) at_most: Option<f64>,
    #[serde(default)]
    pub(crate) at_least: Option<f64>,
    #[serde(default)]
    pub(crate) equals: Option<f64>,
    pub(crate) because: String,
}
