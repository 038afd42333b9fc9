//! One line of a trace.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::{
    CostEffect, InputHash, SideEffect, ToolName,
    id::{CallId, RunId},
    redact::{self, REDACTION_VERSION},
    text::Quoted,
};

/// The version of the line's format.
pub const VERSION: u32 = 1;

/// One call, as a trace keeps it. Members stand in the order of the wire format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The format of this line.
    pub v: u32,
    /// Its place, given at admission.
    pub seq: u64,
    /// When the call was admitted, as RFC 3339 writes it.
    pub ts: String,
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// The call that made this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_call_id: Option<CallId>,
    /// The tool, by its canonical name.
    pub tool: ToolName,
    /// The hash of the redacted canonical input.
    pub input_hash: InputHash,
    /// The input, redacted.
    pub input: Value,
    /// What came of it.
    #[serde(flatten)]
    pub ended: Ended,
    /// What came of it, in a few words.
    pub output_summary: String,
    /// What the tool changes.
    pub side_effect: SideEffect,
    /// What it uses up.
    pub cost_effect: CostEffect,
    /// The gate's answer.
    pub verdict: Value,
    /// How long it took.
    pub duration_ms: u64,
    /// May this entry stand in for a call?
    pub replayable: bool,
    /// The version of the rules that redacted it.
    pub redaction: u32,
}

/// What came of a call: `output`, or `error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ended {
    /// A result, redacted.
    Output(Value),
    /// An error: `code`, `message`, `details`.
    Error(Value),
}

impl Ended {
    /// Was it a result?
    pub fn is_output(&self) -> bool {
        matches!(self, Self::Output(_))
    }

    fn redact(&mut self) {
        let (Self::Output(value) | Self::Error(value)) = self;
        redact::redact(value);
    }
}

impl Entry {
    /// The entry with everything redacted that came from outside, and the rules' version noted.
    pub fn redacted(mut self) -> Self {
        redact::redact(&mut self.input);
        self.ended.redact();
        self.output_summary = Quoted::new(&self.output_summary).as_str().to_owned();
        self.redaction = REDACTION_VERSION;
        self
    }

    /// The line that is written, with its line end.
    pub fn line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|line| line + "\n")
    }
}
