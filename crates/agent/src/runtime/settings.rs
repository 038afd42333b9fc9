//! What a session's turns run with: a model, a budget, a policy, a root, roles.

use std::{fmt, marker::PhantomData, path::PathBuf};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use tollgate_models::ModelConfig;
use tollgate_policy::Policy;
use tollgate_protocol::Bounds;

use super::{roles::PipelineRole, trace_file::TraceLimits};

/// What one turn may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "TurnBudget")]
pub struct Budget {
    /// How often the model may be asked.
    #[schemars(range(min = 1, max = 500))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Tokens, in and out.
    #[schemars(range(min = 1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_micros: Option<u64>,
    /// Seconds.
    #[schemars(range(min = 1, max = 86_400))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

impl Budget {
    /// The most rounds that any turn may have.
    pub const MOST_ROUNDS: u32 = 500;
    /// The most seconds that any turn may take: a day.
    pub const MOST_SECONDS: u64 = 24 * 60 * 60;

    /// The most tokens, and the most millionths of a dollar.
    pub const MOST: u64 = 1_000_000_000_000;

    /// This one, filled up with another where it says nothing.
    pub fn or(self, other: Self) -> Self {
        Self {
            rounds: self.rounds.or(other.rounds),
            tokens: self.tokens.or(other.tokens),
            usd_micros: self.usd_micros.or(other.usd_micros),
            seconds: self.seconds.or(other.seconds),
        }
    }

    /// This one, and never more than another says.
    pub fn within(self, other: Self) -> Self {
        fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        Self {
            rounds: least(self.rounds, other.rounds),
            tokens: least(self.tokens, other.tokens),
            usd_micros: least(self.usd_micros, other.usd_micros),
            seconds: least(self.seconds, other.seconds),
        }
    }

    /// What is wrong with it, and where.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if self.rounds.is_some_and(|rounds| !(1..=Self::MOST_ROUNDS).contains(&rounds)) {
            return Err(("rounds", format!("is from 1 to {}", Self::MOST_ROUNDS)));
        }
        if self.seconds.is_some_and(|seconds| !(1..=Self::MOST_SECONDS).contains(&seconds)) {
            return Err(("seconds", format!("is from 1 to {}", Self::MOST_SECONDS)));
        }
        for (name, amount) in [("tokens", self.tokens), ("usd_micros", self.usd_micros)] {
            if amount.is_some_and(|amount| amount > Self::MOST) {
                return Err((name, format!("is at most {}", Self::MOST)));
            }
        }
        if self.tokens == Some(0) {
            return Err(("tokens", "is at least 1".to_owned()));
        }
        Ok(())
    }
}

/// What a turn gets that says nothing of its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum BudgetDefaults {
    /// Nothing: a turn without a budget is refused.
    Off(OffWord),
    /// This much.
    On(Budget),
}

/// The word that switches something off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffWord {
    /// Off.
    Off,
}

/// Reads a table, or the word that switches it off. What is wrong in the table is told as such.
fn off_or<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct Either<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("`\"off\"` or a table")
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<Self::Value, E> {
            match word {
                "off" => Ok(None),
                other => Err(E::invalid_value(de::Unexpected::Str(other), &self)),
            }
        }

        fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(Some)
        }
    }
    from.deserialize_any(Either(PhantomData))
}

impl<'de> Deserialize<'de> for BudgetDefaults {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(off_or(from)?.map_or(Self::Off(OffWord::Off), Self::On))
    }
}

impl Default for BudgetDefaults {
    fn default() -> Self {
        Self::On(Budget {
            rounds: Some(16),
            tokens: Some(200_000),
            usd_micros: Some(1_000_000),
            seconds: Some(600),
        })
    }
}

/// Which model a session talks to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelChoice {
    /// One of the configuration.
    Named(String),
    /// One of its own.
    Own(Box<ModelConfig>),
}

/// What an operator has decided for a session.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSettings {
    /// The folder that its tools work in; its own one where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// Its model; the usual one where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub model: Option<ModelChoice>,
    /// The most that a turn may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What its calls may do; it can only narrow what its key may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub policy: Option<Policy>,
    /// Its roles; one where nothing is said.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<PipelineRole>,
}

/// How agents are run here.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentConfig {
    /// What a turn may take that says nothing of it; `"off"` refuses such a turn.
    pub default_budget: BudgetDefaults,
    /// What a session may do that has no policy; `"off"` refuses its turns.
    pub default_policy: PolicyDefault,
    /// The model of `[models]` that is used where none is named; the only one where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_model: Option<String>,
    /// The model that memories are made comparable with; none where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_model: Option<String>,
    /// How many messages of its history a session keeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_messages: Option<u32>,
    /// How many files of traces are kept for each session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_trace_files: Option<u32>,
    /// How large a file of a trace grows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_file_bytes: Option<u64>,
    /// How long a tool call waits for a person, in seconds; as long as the turn lasts where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_wait_seconds: Option<u64>,
    /// How many turns run at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_at_once: Option<u32>,
}

/// What a session without a policy may do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PolicyDefault {
    /// Nothing: its turns are refused.
    Off(OffWord),
    /// This.
    On(Box<Policy>),
}

impl<'de> Deserialize<'de> for PolicyDefault {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(off_or(from)?.map_or(Self::Off(OffWord::Off), Self::On))
    }
}

impl Default for PolicyDefault {
    fn default() -> Self {
        Self::On(Box::new(usual_policy()))
    }
}

/// What a session may do unless somebody says otherwise: all that its key may, but commands take a person's word.
fn usual_policy() -> Policy {
    let text = serde_json::json!({
        "ask": [{"tool": "shell.exec", "reason": "an agent wants to run a command"}],
    });
    serde_json::from_value(text).unwrap_or_else(|_| Policy::readonly())
}

impl AgentConfig {
    /// What is wrong with it, and where.
    pub fn check(&self) -> Result<(), (String, String)> {
        if let BudgetDefaults::On(budget) = &self.default_budget {
            budget
                .check()
                .map_err(|(field, problem)| (format!("default_budget.{field}"), problem))?;
        }
        let at_least = |name: &str, value: Option<u64>, least: u64| match value {
            Some(value) if value < least => Err((name.to_owned(), format!("is at least {least}"))),
            _ => Ok(()),
        };
        at_least("keep_messages", self.keep_messages.map(Into::into), 4)?;
        at_least("keep_trace_files", self.keep_trace_files.map(Into::into), 2)?;
        at_least("trace_file_bytes", self.trace_file_bytes, 64 * 1024)?;
        at_least("turns_at_once", self.turns_at_once.map(Into::into), 1)
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let usual = Bounds::default();
        let messages = self.keep_messages.and_then(|n| usize::try_from(n).ok());
        Bounds { messages: messages.unwrap_or(usual.messages), ..usual }
    }

    pub(crate) fn trace_limits(&self) -> TraceLimits {
        let usual = TraceLimits::default();
        TraceLimits {
            file_bytes: self.trace_file_bytes.unwrap_or(usual.file_bytes),
            files: self
                .keep_trace_files
                .and_then(|n| usize::try_from(n).ok())
                .unwrap_or(usual.files),
        }
    }
}
