//! What a session's turns run with: a model, a budget, a policy, a root, roles.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tollgate_models::ModelConfig;
use tollgate_policy::Policy;
use tollgate_protocol::Bounds;

use super::{roles::PipelineRole, trace_file::TraceLimits};

/// What one turn may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    /// How often the model may be asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Tokens, in and out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Money, in millionths of a dollar.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_micros: Option<u64>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

impl Budget {
    /// The most rounds that any turn may have.
    pub const MOST_ROUNDS: u32 = 500;
    /// The most seconds that any turn may take: a day.
    pub const MOST_SECONDS: u64 = 24 * 60 * 60;

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
        if self.tokens == Some(0) {
            return Err(("tokens", "is at least 1".to_owned()));
        }
        Ok(())
    }
}

/// What a turn gets that says nothing of its budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSettings {
    /// The folder that its tools work in; its own one where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// Its model; the usual one where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelChoice>,
    /// The most that a turn may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What its calls may do; it can only narrow what its key may do.
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PolicyDefault {
    /// Nothing: its turns are refused.
    Off(OffWord),
    /// This.
    On(Box<Policy>),
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
