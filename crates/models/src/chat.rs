//! What is said to a model and what it answers, in the same words for every server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most messages of one request.
pub const MOST_MESSAGES: usize = 10_000;

/// The most tools that are offered with one request, and the most calls of one answer.
pub const MOST_CALLS: usize = 256;

/// One turn of a conversation that a model is to answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    /// What was said so far.
    pub messages: Vec<Message>,
    /// What the model may call, by its server's own function calling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// The most tokens of the answer.
    pub max_tokens: u32,
    /// How freely the model chooses its words; the server's own default without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// Who says something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Role {
    /// Whoever runs the agent.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl Role {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    #[serde(default)]
    pub content: String,
    /// The calls that the model made by its server's function calling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MOST_CALLS))]
    pub tool_calls: Vec<NativeCall>,
    /// The call that a message of a tool answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message of text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), tool_calls: Vec::new(), tool_call_id: None }
    }
}

/// A call that a model made by its server's function calling.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct NativeCall {
    /// What the server calls it.
    pub id: String,
    /// The tool.
    pub name: String,
    /// As the model wrote them: JSON, or what it took for JSON.
    pub arguments: String,
}

/// A tool that is offered to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct ToolSpec {
    /// Its name.
    #[schemars(length(min = 1, max = 200))]
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its input.
    #[serde(default = "no_parameters")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub parameters: Value,
}

fn no_parameters() -> Value {
    serde_json::json!({"type": "object", "properties": {}})
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// A server has answered, with these headers. Comes first, also where the answer is a refusal, and again when it
    /// is asked a second time.
    Headers(Vec<(String, String)>),
    /// What the server calls the model.
    Model(String),
    /// Text.
    Text(String),
    /// What the model thinks before it answers.
    Reasoning(String),
    /// A piece of a call.
    Call {
        /// Which call of this answer.
        index: usize,
        /// Its id, once.
        id: Option<String>,
        /// Its tool, once.
        name: Option<String>,
        /// More of its arguments.
        arguments: String,
    },
    /// What was used so far. The last one counts.
    Usage(Usage),
    /// Why the model stopped, in the server's words.
    Finish(String),
}

/// How many tokens were used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenUsage", inline)]
pub struct Usage {
    /// Of what was sent, with those that the server had at hand.
    pub input_tokens: u64,
    /// Of the answer, reasoning included.
    pub output_tokens: u64,
    /// Those of `input_tokens` that the server had at hand.
    pub cached_tokens: u64,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Finish {
    /// The model had said what it wanted to say.
    #[default]
    Stop,
    /// There was no room for more.
    Length,
    /// It wants its calls answered.
    ToolCalls,
    /// The server held it back.
    Filtered,
    /// Something else.
    Other,
}

impl Finish {
    /// What the word of a server means.
    pub fn of(word: &str) -> Self {
        match word {
            "stop" | "end_turn" | "stop_sequence" | "eos" | "eos_token" => Self::Stop,
            "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => {
                Self::Length
            }
            "tool_calls" | "tool_use" | "function_call" => Self::ToolCalls,
            "content_filter" | "refusal" | "safety" => Self::Filtered,
            _ => Self::Other,
        }
    }
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChatResponse {
    /// Its text.
    pub content: String,
    /// What the model thought before.
    pub reasoning: String,
    /// What it calls.
    pub tool_calls: Vec<NativeCall>,
    /// Why it ended.
    pub finish: Finish,
    /// What it used; `None` where the server did not say, or said nonsense.
    pub usage: Option<Usage>,
    /// What the server calls the model; empty where it did not say.
    pub model: String,
}
