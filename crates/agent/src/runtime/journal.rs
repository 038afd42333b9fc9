//! One line of a session's trace: `{ts, kind, data}`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::{json, redact::redact, text::plain_shape};

/// The kinds of events. The first nine are the protocol's.
pub mod kinds {
    /// A model was asked.
    pub const LLM_REQ: &str = "llm_req";
    /// How a model's answer came in.
    pub const LLM_STREAM: &str = "llm_stream";
    /// A model has answered, or not.
    pub const LLM_DONE: &str = "llm_done";
    /// A NOTES block was applied.
    pub const NOTES_PATCH: &str = "notes_patch";
    /// Actions were run.
    pub const ACTIONS: &str = "actions";
    /// Memory was searched.
    pub const RETRIEVAL: &str = "retrieval";
    /// The calls that a model wants.
    pub const TOOL_PLAN: &str = "tool_plan";
    /// A call is about to be made.
    pub const TOOL_START: &str = "tool_start";
    /// What came of a call.
    pub const TOOL_DONE: &str = "tool_done";

    /// The head of a file: the session as it was.
    pub const SESSION: &str = "session";
    /// The tools that the turns behind it were offered.
    pub const TOOLS: &str = "tools";
    /// A turn began, and with what.
    pub const TURN_START: &str = "turn_start";
    /// A call waits for a person, or for room.
    pub const TOOL_WAIT: &str = "tool_wait";
    /// A model that could not answer will be asked again.
    pub const LLM_RETRY: &str = "llm_retry";
    /// Something was odd.
    pub const WARNING: &str = "warning";
    /// The turn was stopped.
    pub const STOP: &str = "stop";
    /// Records went into memory.
    pub const MEMORY_WRITE: &str = "memory_write";
    /// A turn ended, and how.
    pub const TURN_DONE: &str = "turn_done";
    /// A turn that a crash cut off was closed.
    pub const RECOVERED: &str = "recovered";
    /// A person noted something, between two turns.
    pub const PERSON_NOTE: &str = "person_note";
    /// The checkpoint was written.
    pub const CHECKPOINT: &str = "checkpoint";
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in seconds since 1970.
    pub ts: f64,
    /// What.
    pub kind: String,
    /// The rest.
    pub data: Value,
}

/// Why a line is no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {problem}")]
pub struct EventError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

impl Event {
    /// An event without secrets.
    pub(crate) fn new(now_ms: i64, kind: &str, mut data: Value) -> Self {
        redact(&mut data);
        Self { ts: seconds(now_ms), kind: kind.to_owned(), data }
    }

    /// An event whose data are kept as they are: they hold nothing but what was redacted before, or is public.
    pub(crate) fn as_is(now_ms: i64, kind: &str, data: Value) -> Self {
        Self { ts: seconds(now_ms), kind: kind.to_owned(), data }
    }

    /// The line that is written.
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Reads a line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let value = json::parse(text.as_bytes()).map_err(|error| error.to_string())?;
        Self::deserialize(value).map_err(|error| plain_shape(&error.to_string()))
    }

    /// A number of its data.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.data.get(name).and_then(Value::as_u64)
    }

    /// A text of its data.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.data.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// A part of its data.
    pub(crate) fn part(&self, name: &str) -> &Value {
        self.data.get(name).unwrap_or(&Value::Null)
    }
}

/// Milliseconds as seconds.
pub(crate) fn seconds(ms: i64) -> f64 {
    // Exact for any time of this millennium.
    ms as f64 / 1000.0
}

/// Where the events of a turn go: a file and whoever listens, or a list.
pub(crate) trait Sink: Send {
    /// Takes one event in. Nothing goes on without its record.
    fn write(&mut self, kind: &str, data: Value) -> Result<(), String>;
}
