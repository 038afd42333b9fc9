//! What an operator writes: pools, routes and how the governor behaves. It is read as a whole or not at all.

use serde::{Deserialize, Serialize};
use tollgate_contract::{
    Urgency,
    text::{list, nearest},
};

use crate::{
    rules::RuleConfig,
    setup::{Setup, SetupError},
    window::{Calendar, CalendarUnit, Window},
};

/// The largest limit or amount. Sums of many of them still fit.
pub const LARGEST_AMOUNT: u64 = 1_000_000_000_000_000;

/// Pools, routes and settings, as they are written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GovernorConfig {
    /// The limits.
    pub pools: Vec<PoolConfig>,
    /// Which work draws on which pools.
    pub routes: Vec<RouteConfig>,
    /// What a person wants beyond the limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleConfig>,
    /// How the governor behaves.
    pub governor: Settings,
}

impl GovernorConfig {
    /// What holds without pools of one's own: everything draws on one pool, so that the first ask of a new
    /// user is answered, metered and visible.
    pub fn usual() -> Self {
        let pool = PoolConfig {
            window: WindowConfig::Fixed { every: "1h".to_owned(), aligned: Aligned::Utc },
            per: Per::Identity,
            ..PoolConfig::new(DEFAULT_POOL, 5000)
        };
        let draw = DrawConfig { id: DEFAULT_POOL.to_owned(), cost: None, worst: None };
        let route = RouteConfig { pools: vec![draw], ..RouteConfig::default() };
        let (pools, routes) = (vec![pool], vec![route]);
        Self { pools, routes, rules: Vec::new(), governor: Settings::default() }
    }

    /// The configuration itself, or the usual pool where it names none.
    pub fn or_usual(self) -> Self {
        if self.pools.is_empty() && self.routes.is_empty() {
            Self { governor: self.governor, rules: self.rules, ..Self::usual() }
        } else {
            self
        }
    }

    /// Checks everything, and makes it ready to be used.
    pub fn build(&self, now_ms: i64) -> Result<Setup, SetupError> {
        Setup::build(self, now_ms)
    }
}

/// The pool that there is without a configuration.
pub const DEFAULT_POOL: &str = "default:calls";

/// A limit on something countable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolConfig {
    /// `provider:name`.
    pub id: String,
    /// What is counted: `calls` where nothing is said, and `slots` where it is what runs at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// How much of it. Only a provider's pool can do without: then its provider says.
    #[serde(default)]
    pub limit: Option<u64>,
    /// In which time.
    pub window: WindowConfig,
    /// For whom it is counted separately.
    #[serde(default)]
    pub per: Per,
    /// A hard pool is never over. A soft one only holds background work back.
    #[serde(default = "yes")]
    pub hard: bool,
    /// What 1,000,000 units cost, in millionths of a dollar.
    #[serde(default)]
    pub price: u64,
    /// What becomes of a hold that nobody settles.
    #[serde(default)]
    pub on_expiry: OnExpiry,
    /// Reports of clients may give back what they did not use.
    #[serde(default)]
    pub trust_usage: bool,
    /// How long an approval is valid.
    #[serde(default)]
    pub valid_for: Option<String>,
    /// What is not urgent is refused when it would exhaust the pool, before it is full again, with a higher
    /// probability than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_limit: Option<f64>,
}

impl PoolConfig {
    /// What is counted.
    pub fn unit(&self) -> &str {
        let counts_slots = matches!(self.window, WindowConfig::Concurrency {});
        let usual = if counts_slots { "slots" } else { "calls" };
        self.unit.as_deref().unwrap_or(usual)
    }

    fn new(id: &str, limit: u64) -> Self {
        Self {
            id: id.to_owned(),
            unit: None,
            limit: Some(limit),
            window: WindowConfig::Concurrency {},
            per: Per::Global,
            hard: true,
            price: 0,
            on_expiry: OnExpiry::Charge,
            trust_usage: false,
            valid_for: None,
            risk_limit: None,
        }
    }
}

fn yes() -> bool {
    true
}

/// For whom a pool is counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Per {
    /// Everyone together.
    #[default]
    Global,
    /// Each credential.
    Identity,
    /// Each agent.
    Agent,
    /// Each place.
    Scope,
    /// Each account that keys belong to.
    Account,
}

impl Per {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Identity => "identity",
            Self::Agent => "agent",
            Self::Scope => "scope",
            Self::Account => "account",
        }
    }
}

/// What becomes of a hold that nobody settles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// It counts as spent: its holder may have acted.
    #[default]
    Charge,
    /// It is given back.
    Release,
}

/// In which time a limit is counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum WindowConfig {
    /// One window behind the other.
    Fixed {
        /// How long one is.
        every: String,
        /// Where they begin.
        #[serde(default)]
        aligned: Aligned,
    },
    /// Any stretch of time of this length.
    Sliding {
        /// How long it is.
        every: String,
    },
    /// Tokens that come in steadily, up to the limit.
    Bucket {
        /// How many come in.
        refill: u64,
        /// In which time.
        every: String,
    },
    /// Days, weeks or months.
    Calendar {
        /// Which.
        every: CalendarUnit,
        /// Of which time zone.
        #[serde(default = "utc")]
        zone: String,
    },
    /// At the same time.
    Concurrency {},
    /// What the provider says.
    Provider {
        /// How long its windows are at most.
        every: String,
        /// The name under which the provider reports this limit (`core`, `requests`); any where none is said.
        #[serde(default)]
        name: Option<String>,
        /// How long a report is believed.
        #[serde(default)]
        stale_after: Option<String>,
    },
}

fn utc() -> String {
    "UTC".to_owned()
}

/// Where fixed windows begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aligned {
    /// With the UTC clock.
    #[default]
    Utc,
    /// Where a provider was seen to reset.
    Observed,
}

impl WindowConfig {
    /// The window, and how long a report is believed where it has a provider.
    pub(crate) fn window(&self, now_ms: i64) -> Result<(Window, Option<i64>), String> {
        Ok(match self {
            Self::Fixed { every, aligned } => {
                let observed = *aligned == Aligned::Observed;
                (Window::Fixed { length: duration(every)?, observed }, None)
            }
            Self::Sliding { every } => (Window::Sliding { length: duration(every)? }, None),
            Self::Bucket { refill, every } => {
                (Window::Bucket { refill: *refill, per: duration(every)? }, None)
            }
            Self::Calendar { every, zone } => {
                let calendar = Calendar::new(*every, zone, now_ms).ok_or_else(|| {
                    format!("`{zone}` is no time zone; write it as Europe/Berlin")
                })?;
                (Window::Calendar(calendar), None)
            }
            Self::Concurrency {} => (Window::Concurrency, None),
            Self::Provider { every, stale_after, .. } => {
                let stale = stale_after.as_deref().map_or(Ok(USUAL_STALE), duration)?;
                (Window::Provider { length: duration(every)? }, Some(stale))
            }
        })
    }
}

/// How long a provider's report is believed where nothing is said.
const USUAL_STALE: i64 = 10 * 60 * 1000;

/// Which work draws on which pools. Every route that matches counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteConfig {
    /// The work: its name, or the beginning of it and `*`.
    pub workload: Option<String>,
    /// The agent, the same way.
    pub agent: Option<String>,
    /// The credential, the same way.
    pub identity: Option<String>,
    /// The place, the same way.
    pub scope: Option<String>,
    /// What it draws on. An expected cost without a unit is meant for the first.
    pub pools: Vec<DrawConfig>,
}

/// What one piece of work takes from a pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrawConfig {
    /// The pool.
    pub id: String,
    /// What it takes at least.
    #[serde(default)]
    pub cost: Option<u64>,
    /// What it takes at most, which is held where nobody says what to expect.
    #[serde(default)]
    pub worst: Option<u64>,
}

/// Something for each urgency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByUrgency {
    /// For what must happen now.
    pub high: u32,
    /// As usual.
    pub normal: u32,
    /// For what can wait.
    pub background: u32,
}

impl ByUrgency {
    /// The one for this urgency.
    pub fn of(&self, urgency: Urgency) -> u32 {
        match urgency {
            Urgency::High => self.high,
            Urgency::Normal => self.normal,
            Urgency::Background => self.background,
        }
    }
}

/// How the governor behaves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// On this machine, asking needs no key.
    pub keyless: bool,
    /// How much of a limit is kept free from this urgency, in percent.
    pub headroom_percent: ByUrgency,
    /// How far ahead this urgency may book, in seconds.
    pub horizon_seconds: ByUrgency,
    /// How long an approval may be valid at most.
    pub longest_validity: String,
    /// How many credentials callers without a key may name.
    pub keyless_identities: u32,
    /// When an agent is demoted.
    pub sin_bin: SinBin,
    /// How probable it must be that a pool is exhausted before it is full again for an event to tell so; 0 for
    /// never.
    pub forecast_alert: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            keyless: true,
            headroom_percent: ByUrgency { high: 0, normal: 0, background: 5 },
            horizon_seconds: ByUrgency { high: 5, normal: 30, background: 300 },
            longest_validity: "1h".to_owned(),
            keyless_identities: 1000,
            sin_bin: SinBin::default(),
            forecast_alert: 0.9,
        }
    }
}

/// When an agent is demoted to background, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SinBin {
    /// How long it is watched, and then demoted.
    pub minutes: u32,
    /// So many asks are needed to judge it.
    pub asks: u32,
    /// More of them than this being `high` is too many, in percent. Keys that may claim `high` are exempt.
    pub high_percent: u32,
    /// So many acts without an approval are too many.
    pub ghosts: u32,
}

impl Default for SinBin {
    fn default() -> Self {
        Self { minutes: 10, asks: 20, high_percent: 50, ghosts: 5 }
    }
}

/// A length of time such as `90s`, `15m`, `1h`, in milliseconds.
pub fn duration(text: &str) -> Result<i64, String> {
    const UNITS: [(&str, i64); 5] =
        [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
    let ms = number.parse::<i64>().ok().zip(factor).and_then(|(n, factor)| n.checked_mul(*factor));
    ms.filter(|ms| (1..=366 * 86_400_000).contains(ms)).ok_or_else(|| {
        format!("`{text}` is no length of time; write it as 500ms, 90s, 15m, 12h or 7d, up to 366d")
    })
}

/// The name that was probably meant, for the end of a sentence.
pub(crate) fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.clone().next().is_none() => "; there is none".to_owned(),
        None => format!("; there are {}", list(known.map(|name| format!("`{name}`")))),
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
