//! What comes of a call.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use tollgate_consent::Item;
use tollgate_contract::{
    Error, ErrorCode, InputHash, ToolName, Verdict,
    error::ErrorObject,
    id::{CallId, RunId},
};

/// A call that gave a result. Members stand in the order of the wire format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallResult {
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// The tool, by its canonical name.
    pub tool: ToolName,
    /// The hash of the redacted canonical input.
    pub input_hash: InputHash,
    /// What the tool gave, as it gave it.
    pub output: Value,
    /// Was it recorded before, and nothing was run now?
    pub replayed: bool,
    /// How long it took.
    pub duration_ms: u64,
    /// The gate's answer.
    pub verdict: WrittenVerdict,
}

/// A call that gave no result: refused, or failed.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFailure {
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// The hash of the input, if it came that far.
    pub input_hash: Option<InputHash>,
    /// The error, for the caller.
    pub error: ErrorObject,
    /// The error, for the person who runs the gate.
    pub operator: String,
    /// The gate's answer, if it came that far.
    pub verdict: Option<WrittenVerdict>,
    /// Did the executor start?
    pub started: bool,
    /// Was it recorded before, and nothing was run now?
    pub replayed: bool,
}

impl CallFailure {
    /// The code.
    pub fn code(&self) -> ErrorCode {
        self.error.code
    }

    pub(crate) fn new(run_id: RunId, call_id: CallId, error: &Error) -> Self {
        Self {
            run_id,
            call_id,
            input_hash: None,
            error: error.object(None),
            operator: error.operator(),
            verdict: None,
            started: false,
            replayed: false,
        }
    }
}

/// A call that gave no result so far or at all.
#[derive(Debug, Clone, PartialEq)]
pub enum Unfinished {
    /// It was refused, or failed.
    Failed(CallFailure),
    /// A person must answer first. That is no error.
    Waits(Waits),
}

/// A call that waits for a person. Whoever made it comes back with the approval's name once it is answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Waits {
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// The hash of the input.
    pub input_hash: Option<InputHash>,
    /// What the person was asked.
    pub item: Box<Item>,
    /// The gate's answer.
    pub verdict: WrittenVerdict,
}

impl From<CallFailure> for Box<Unfinished> {
    fn from(failure: CallFailure) -> Self {
        Self::new(Unfinished::Failed(failure))
    }
}

impl From<Box<CallFailure>> for Box<Unfinished> {
    fn from(failure: Box<CallFailure>) -> Self {
        (*failure).into()
    }
}

impl Unfinished {
    /// The failure, if it is one.
    pub fn failure(&self) -> Option<&CallFailure> {
        match self {
            Self::Failed(failure) => Some(failure),
            Self::Waits(_) => None,
        }
    }

    /// The code of the failure, if it is one.
    pub fn code(&self) -> Option<ErrorCode> {
        self.failure().map(CallFailure::code)
    }
}

/// A verdict as it is served: JSON that is written once, for the record and for the caller alike. It is
/// the longest part of both. Clones share it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WrittenVerdict(Arc<RawValue>);

impl WrittenVerdict {
    fn new(verdict: &impl Serialize) -> Self {
        // A verdict is words, numbers and lists; writing it cannot fail.
        let written = to_raw_value(verdict).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self(written.into())
    }

    /// The verdict, to look at.
    pub fn to_value(&self) -> Value {
        // It was written from a verdict, or from JSON that was read.
        serde_json::from_str(self.0.get()).unwrap_or_default()
    }
}

impl From<&Verdict> for WrittenVerdict {
    fn from(verdict: &Verdict) -> Self {
        Self::new(verdict)
    }
}

impl From<&Value> for WrittenVerdict {
    fn from(verdict: &Value) -> Self {
        Self::new(verdict)
    }
}

impl PartialEq for WrittenVerdict {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}
