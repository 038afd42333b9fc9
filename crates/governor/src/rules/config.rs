//! Rules as they are written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use tollgate_contract::Urgency;

use super::action::Action;

/// One rule: where it applies, when, and what it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleConfig {
    /// Its name, in small letters, digits, `-`, `_` and `.`.
    pub id: String,
    /// The work: its name, or the beginning of it and `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// The agent, the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The credential, the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The place, the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The pool, the same way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// One urgency, or several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgency: Option<Urgencies>,
    /// A condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// At which times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<DuringConfig>,
    /// What it does.
    pub action: Action,
    /// How long to wait: a length of time, or `paced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<String>,
    /// Why; whoever is kept back reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Examples that must come out as they say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<ExampleConfig>,
}

/// One urgency, or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected `high`, `normal` or `background`, or a list of them")]
pub enum Urgencies {
    /// This one.
    One(Urgency),
    /// Any of these.
    Any(Vec<Urgency>),
}

impl Urgencies {
    /// All of them.
    pub fn as_slice(&self) -> &[Urgency] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Any(several) => several,
        }
    }
}

/// A time of the day, on some days of the week, in a time zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DuringConfig {
    /// The days on which it begins: `mon`, `tue`, …; every day where none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub days: Option<Vec<String>>,
    /// When it begins: `22:00`.
    pub from: String,
    /// When it ends; the next day, where that is earlier than it begins. `24:00` is the end of the day.
    pub to: String,
    /// The time zone: `Europe/Berlin`; UTC where none is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// An example. What it does not say is such that the rule's head and times match, and is a usual value else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExampleConfig {
    /// What is asked; `expected_cost` is what is asked of the pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub intent: BTreeMap<String, Said>,
    /// The credential.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub identity: BTreeMap<String, Said>,
    /// The agent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agent: BTreeMap<String, Said>,
    /// The pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pool: BTreeMap<String, Said>,
    /// The forecast.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forecast: BTreeMap<String, Said>,
    /// What is asked of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// When, as `2026-11-13T23:30:00+01:00`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// What is not known: `["pool.limit"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
    /// What comes of it.
    pub outcome: Expectation,
}

/// What is expected of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expectation {
    /// The rule matches.
    Matches,
    /// It does not.
    NoMatch,
    /// It cannot be worked out.
    Error,
}

impl Expectation {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Matches => "matches",
            Self::NoMatch => "no_match",
            Self::Error => "error",
        }
    }
}

/// A value in an example.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Said {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction; `inf`, or `"inf"`, is infinite.
    Double(f64),
    /// A text.
    Text(String),
}

impl Serialize for Said {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            // JSON has no word for infinite.
            Self::Double(value) if value.is_infinite() => serializer.serialize_str("inf"),
            Self::Double(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
        }
    }
}
