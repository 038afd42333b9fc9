//! The calls that an answer wants. Which ones is read from what is kept of it, so that a replay finds the same; what they are
//! given is read from the answer as it is.

use serde_json::{Value, json};
use tollgate_protocol::{BlockKind, Plan, Planned, Rejected, Segment};

use super::kept::{Answer, Native};

/// A call that a model wants, with the input as it is.
pub(super) struct Wanted {
    pub(super) call: Result<(Planned, serde_json::Map<String, Value>), Rejected>,
    pub(super) is_native: bool,
}

impl Wanted {
    /// As the trace lists it.
    pub(super) fn listed(&self) -> Value {
        match &self.call {
            Ok((call, _)) => json!({"id": call.id, "tool": call.tool, "args": call.args}),
            Err(no) => json!({"id": no.id, "tool": no.tool, "problem": no.problem}),
        }
    }
}

/// The calls of an answer: those that its server set apart, else those of its first block that can be read.
pub(super) fn wanted(answer: &Answer) -> Vec<Wanted> {
    let (kept, natives) = plan_of(&answer.kept.segments, &answer.kept_calls);
    kept.items
        .into_iter()
        .enumerate()
        .map(|(place, item)| {
            let call = item.and_then(|call| {
                let (id, tool) = (call.id.clone(), call.tool.clone());
                if tool.starts_with("model.") {
                    let problem = "models are asked by the runtime alone".to_owned();
                    return Err(Rejected { id, tool, problem });
                }
                let input = raw_input(answer, place, natives);
                // Redaction changes no shape: what is kept as an object was one.
                let problem = "its arguments cannot be told from what is kept of them".to_owned();
                input.map(|input| (call, input)).ok_or(Rejected { id, tool, problem })
            });
            Wanted { call, is_native: place < natives }
        })
        .collect()
}

/// The input of a call as the model wrote it, by the call's place. What is kept of it is never what is called.
fn raw_input(
    answer: &Answer,
    place: usize,
    natives: usize,
) -> Option<serde_json::Map<String, Value>> {
    let args = match place.checked_sub(natives) {
        None => {
            let text = answer.calls.get(place)?.arguments.trim();
            let text = if text.is_empty() { "{}" } else { text };
            tollgate_contract::json::parse(text.as_bytes()).ok()?
        }
        Some(place) => {
            let first = answer.raw.segments.iter().find_map(|segment| match segment {
                Segment::Json { kind: BlockKind::ToolCalls, payload } => Some(payload),
                _ => None,
            })?;
            first.get(place)?.get("args")?.clone()
        }
    };
    match args {
        Value::Object(args) => Some(args),
        _ => None,
    }
}

/// The plan of an answer, and how many of its items the server set apart.
fn plan_of(segments: &[Segment], native: &[Native]) -> (Plan, usize) {
    let mut plan = Plan::default();
    for call in native {
        plan.add_native(&call.id, &call.name, &call.arguments);
    }
    let natives = plan.items.len();
    let mut is_first = true;
    for segment in segments {
        match segment {
            Segment::Json { kind: BlockKind::ToolCalls, payload } if is_first => {
                plan.add_block(payload);
                is_first = false;
            }
            Segment::Json { kind: BlockKind::ToolCalls, .. } => {
                let problem =
                    "only the first TOOL_CALLS block of an answer counts; put all calls into one";
                plan.reject(String::new(), String::new(), problem.to_owned());
            }
            Segment::Broken { kind: BlockKind::ToolCalls, .. } => {
                let problem = "a TOOL_CALLS block could not be read: it is a JSON list between its two marks, nothing was called from it";
                plan.reject(String::new(), String::new(), problem.to_owned());
            }
            _ => {}
        }
    }
    (plan, natives)
}
