//! Answering calls from a trace. Nothing is ever called: what was not recorded is a miss.

use serde_json::{Map, Value, json};
use tollgate_contract::{
    Error, Mode, Quoted, ToolName,
    error::{ErrorObject, InvalidInput, UnknownTool},
    event::Event,
    id::{CallId, RunId},
    input_hash,
    schema::InputProblem,
};
use tollgate_gate::{RunEvent, ToolCallResult};
use tollgate_trace::{Ended, Entry, Replay, Trace};

use crate::direct::Answer;

/// A trace that answers calls, with the events that the run had when it was recorded. Time and ids come
/// from the trace, so that the same replay gives the same bytes.
pub struct Replayer {
    replay: Replay,
    run: RunId,
}

impl Replayer {
    /// Makes a trace answer.
    pub fn new(trace: &Trace) -> Self {
        let nobody = || RunId::from_parts(0, [0; 10]);
        let run = trace.entries().first().map_or_else(nobody, |entry| entry.run_id);
        Self { replay: Replay::new(trace), run }
    }

    /// Answers one call.
    pub fn call(&mut self, name: &str, input: &Value, hear: impl Fn(Value)) -> Answer {
        match self.take(name, input) {
            Ok(entry) => answer(entry, hear),
            Err(error) => {
                let error = error.object(None);
                let ids = (self.run, CallId::from_parts(0, [0; 10]));
                let tell =
                    |event, more| hear(told(event, ids, EPOCH, &Quoted::new(name), None, more));
                tell(Event::RunStarted, json!({"mode": Mode::ReplayOnly}));
                tell(Event::RunFailed, json!({"error": error}));
                Err(Box::new(error))
            }
        }
    }

    /// What was recorded and never asked for, in the order of admission.
    pub fn unused(&self) -> Vec<Entry> {
        self.replay.unused().into_iter().cloned().collect()
    }

    fn take(&mut self, name: &str, input: &Value) -> Result<Entry, Error> {
        let tool = ToolName::parse(name).map_err(|_| UnknownTool::new(name, None))?;
        let hash = input_hash(input).map_err(|error| {
            let problem = InputProblem {
                pointer: error.pointer().to_owned(),
                message: error.kind().to_string(),
            };
            InvalidInput::new(tool.clone(), vec![problem])
        })?;
        Ok(self.replay.take(&tool, hash, None)?)
    }
}

/// When nothing of the trace says when.
const EPOCH: &str = "1970-01-01T00:00:00.000Z";

/// Tells the events of a recorded call, and gives what came of it.
fn answer(entry: Entry, hear: impl Fn(Value)) -> Answer {
    let ids = (entry.run_id, entry.call_id);
    let tool = Quoted::from(&entry.tool);
    let effects = json!({"sideEffect": entry.side_effect, "costEffect": entry.cost_effect});
    let tell = |event, more| {
        let known = (event != Event::RunStarted).then_some(&effects);
        hear(told(event, ids, &entry.ts, &tool, known, more));
    };
    let was_let_through = entry.verdict.get("decision") == Some(&json!("approve"));
    tell(Event::RunStarted, json!({"mode": Mode::ReplayOnly}));
    tell(Event::ToolResolved, json!({"replayable": entry.replayable}));
    if was_let_through {
        tell(Event::PolicyChecked, json!({"decision": "approve"}));
        tell(Event::CallStarted, json!({"inputHash": entry.input_hash}));
    }
    let duration_ms = entry.duration_ms;
    match entry.ended {
        Ended::Output(output) => {
            let summary = &entry.output_summary;
            tell(
                Event::CallCompleted,
                json!({"durationMs": duration_ms, "outputSummary": summary}),
            );
            let result = ToolCallResult {
                run_id: entry.run_id,
                call_id: entry.call_id,
                tool: entry.tool.clone(),
                input_hash: entry.input_hash,
                output,
                replayed: true,
                duration_ms,
                verdict: (&entry.verdict).into(),
            };
            tell(Event::RunCompleted, json!({"result": result}));
            Ok(result)
        }
        Ended::Error(ref error) => {
            if was_let_through {
                tell(Event::CallFailed, json!({"durationMs": duration_ms, "error": error}));
            }
            tell(Event::RunFailed, json!({"error": error, "verdict": entry.verdict}));
            // A trace that was read has entries of the right shape; its errors are free text to it.
            let error: Option<ErrorObject> = serde_json::from_value(error.clone()).ok();
            let fallback = || {
                Error::from(tollgate_contract::error::ReplayMiss::new(
                    entry.tool.clone(),
                    entry.input_hash,
                ))
                .object(None)
            };
            Err(Box::new(error.unwrap_or_else(fallback)))
        }
    }
}

/// One event of a replayed run.
fn told(
    event: Event,
    (run, call): (RunId, CallId),
    ts: &str,
    tool: &Quoted,
    effects: Option<&Value>,
    more: Value,
) -> Value {
    let mut all = Map::new();
    all.insert("type".to_owned(), RunEvent::stream_name(event).into());
    all.insert("runId".to_owned(), json!(run));
    all.insert("callId".to_owned(), json!(call));
    all.insert("ts".to_owned(), ts.into());
    all.insert("tool".to_owned(), json!(tool));
    for part in [effects.cloned(), Some(more)] {
        if let Some(Value::Object(part)) = part {
            all.extend(part);
        }
    }
    Value::Object(all)
}
