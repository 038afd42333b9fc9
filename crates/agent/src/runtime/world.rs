//! What a turn does not know by itself: what models and tools answer, what is remembered, when to stop, what time it
//! is. Live it is the gate; in a replay it is the trace.

use std::future::Future;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tollgate_contract::Capability;

use super::kept::Native;

/// Why a turn stops before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "TurnStop")]
pub enum Stop {
    /// Somebody cancelled it.
    Cancelled,
    /// Its time is over.
    Time,
}

/// A question to a model.
#[derive(Debug, Clone)]
pub(crate) struct ModelAsk {
    /// The input of `model.chat`.
    pub(crate) input: Value,
    /// Is the answer for the person, so that it is streamed?
    pub(crate) is_shown: bool,
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelSaid {
    pub(crate) content: String,
    /// Reasoning that the server set apart.
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<Native>,
    pub(crate) finish: String,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) usage_estimated: bool,
    pub(crate) cost_usd_micros: Option<u64>,
}

/// Why a model did not answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct ModelFailed {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
}

/// What came of a question.
#[derive(Debug, Clone)]
pub(crate) struct ModelEnded {
    /// The answer; where it failed, as much as had come.
    pub(crate) said: ModelSaid,
    pub(crate) failed: Option<ModelFailed>,
    pub(crate) call_id: Option<String>,
    pub(crate) duration_ms: u64,
    /// How the answer came in: pieces, bytes, and when the first one came.
    pub(crate) stream: Option<(u64, u64, u64)>,
    /// Is it already as it is kept?
    pub(crate) is_kept: bool,
}

/// A call of a tool.
#[derive(Debug, Clone)]
pub(crate) struct ToolAsk {
    pub(crate) tool: String,
    pub(crate) args: Map<String, Value>,
    /// What names the call: session, run, turn, round and place; never the model's own id.
    pub(crate) call_key: String,
}

/// What came of a call.
#[derive(Debug, Clone)]
pub(crate) struct ToolEnded {
    pub(crate) output: Result<Value, ToolProblem>,
    pub(crate) call_id: Option<String>,
    pub(crate) duration_ms: u64,
    /// Is the output already as it is kept?
    pub(crate) is_kept: bool,
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ToolProblem {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// A memory that fits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recalled {
    pub(crate) id: String,
    pub(crate) score: f64,
    pub(crate) excerpt: String,
}

/// What making texts comparable took.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Embedding {
    pub(crate) calls: u32,
    pub(crate) tokens: u64,
    pub(crate) usd_micros: u64,
    /// Why it was not done, where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

impl Embedding {
    /// As the trace has it; nothing where no model was asked.
    pub(crate) fn written(&self) -> Option<&Self> {
        (*self != Self::default()).then_some(self)
    }
}

/// Something to remember.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remember {
    pub(crate) text: String,
    pub(crate) tags: Vec<String>,
}

/// What a turn lives in.
pub(crate) trait World: Sync {
    /// Asked between any two steps: is it time to stop?
    fn stop(&self) -> Option<Stop>;

    /// The time, at the end of the turn.
    fn now_ms(&self) -> i64;

    /// Asks a model.
    fn chat(&self, ask: ModelAsk) -> impl Future<Output = ModelEnded> + Send;

    /// Waits before a model is asked again.
    fn pause(&self, ms: u64) -> impl Future<Output = ()> + Send;

    /// Calls a tool.
    fn tool(&self, ask: ToolAsk) -> impl Future<Output = ToolEnded> + Send;

    /// Finds what is remembered, and says what that took.
    fn recall(
        &self,
        query: &str,
        tags: &[String],
    ) -> impl Future<Output = (Result<Vec<Recalled>, String>, Embedding)> + Send;

    /// Remembers, gives the names of what is remembered, and says what that took.
    fn remember(
        &self,
        records: Vec<Remember>,
    ) -> impl Future<Output = (Result<Vec<String>, String>, Embedding)> + Send;

    /// May work be done that nobody waits for? Not when the gate is in trouble.
    fn has_leisure(&self) -> bool;

    /// Asks a person for a capability. Gives the words that tell what came of it.
    fn request(&self, capability: &Capability) -> impl Future<Output = String> + Send;

    /// What is granted, and what waits for a person.
    fn capabilities(&self) -> (Vec<String>, Vec<String>);
}
