//! Making a trace from the events of runs.

use serde_json::Value;
use tollgate_contract::{
    CostEffect, SideEffect, ToolName,
    id::{CallId, RunId},
    input_hash,
    redact::REDACTION_VERSION,
};
use tollgate_gate::summary;
use tollgate_trace::{Ended, Entry, VERSION};

use crate::store::{TraceFile, TraceFileError};

/// Writes one trace entry for each call, from the events of its run.
pub struct Recorder {
    file: TraceFile,
    next: u64,
}

/// A call that is being recorded: its place, given before it is admitted, and its input.
pub struct Recording {
    seq: u64,
    input: Value,
}

impl Recorder {
    /// Records into `file`, behind what it holds.
    pub fn new(file: TraceFile) -> Self {
        let next = file.next_seq();
        Self { file, next }
    }

    /// Gives the next call its place.
    pub fn begin(&mut self, input: &Value) -> Recording {
        let seq = self.next;
        self.next += 1;
        Recording { seq, input: input.clone() }
    }

    /// Does this event tell of an end, so that it comes after the trace was written?
    pub fn waits_for_trace(event: &Value) -> bool {
        let names = ["tool.completed", "tool.failed", "run.completed", "run.failed"];
        event.get("type").and_then(Value::as_str).is_some_and(|name| names.contains(&name))
    }

    /// Is this event the last one of its run?
    pub fn is_last(event: &Value) -> bool {
        let name = event.get("type").and_then(Value::as_str);
        matches!(name, Some("run.completed" | "run.failed"))
    }

    /// Writes the entry of a call whose run has ended. A call that named no tool leaves none.
    pub fn finish(&mut self, recording: Recording, events: &[Value]) -> Result<(), TraceFileError> {
        match entry(recording, events) {
            Some(entry) => self.file.append(&entry.redacted()),
            None => Ok(()),
        }
    }
}

/// The entry of a run, from its events.
fn entry(recording: Recording, events: &[Value]) -> Option<Entry> {
    let of = |name: &str| {
        events.iter().find(|event| event.get("type").and_then(Value::as_str) == Some(name))
    };
    let text = |event: &Value, field: &str| event.get(field)?.as_str().map(str::to_owned);
    let started = of("run.started")?;
    let resolved = of("tool.resolved")?;
    let (ended, last) = match (of("run.completed"), of("run.failed")) {
        (Some(done), _) => {
            (Ended::Output(done.pointer("/result/output")?.clone()), done.get("result")?)
        }
        (None, Some(failed)) => (Ended::Error(failed.get("error")?.clone()), failed),
        (None, None) => return None,
    };
    let summary = match &ended {
        Ended::Output(output) => summary(&tollgate_contract::redact::redacted(output)),
        Ended::Error(error) => text(error, "code").unwrap_or_default(),
    };
    let duration = of("tool.completed").or_else(|| of("tool.failed"));
    Some(Entry {
        v: VERSION,
        seq: recording.seq,
        ts: text(started, "ts")?,
        run_id: RunId::parse(&text(started, "runId")?).ok()?,
        call_id: CallId::parse(&text(started, "callId")?).ok()?,
        parent_call_id: None,
        tool: ToolName::parse(&text(resolved, "tool")?).ok()?,
        input_hash: input_hash(&recording.input).ok()?,
        input: recording.input,
        ended,
        output_summary: summary,
        side_effect: SideEffect::parse(&text(resolved, "sideEffect")?)?,
        cost_effect: CostEffect::parse(&text(resolved, "costEffect")?)?,
        verdict: last.get("verdict").cloned().unwrap_or_default(),
        duration_ms: duration.and_then(|event| event.get("durationMs")?.as_u64()).unwrap_or(0),
        replayable: resolved.get("replayable").and_then(Value::as_bool).unwrap_or(false),
        redaction: REDACTION_VERSION,
    })
}
