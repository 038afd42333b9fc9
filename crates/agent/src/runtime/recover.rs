//! Mending a turn that a crash cut off, from its trace. Nothing is called again: what had ended counts, and a call that
//! was running has an unknown outcome.

use serde::Deserialize;
use serde_json::Value;
use tollgate_protocol::{
    BlockKind, ChatMessage, Checkpoint, Extracted, Limits, NotesPatch, Role, Segment, ToolResult,
    bound_exchange, bounded,
};

use super::{
    journal::{Event, kinds},
    kept::Said,
    session::text_of,
    turn::Setup,
};

/// A turn that was mended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mended {
    pub(crate) turn: u64,
    pub(crate) checkpoint: Checkpoint,
    /// The calls whose outcome nobody knows.
    pub(crate) unknown: Vec<String>,
}

/// Was the turn or the note that these events are of cut off, so that the checkpoint knows nothing of it?
pub(crate) fn is_cut_off(step: &[Event], checkpoint: &Checkpoint) -> bool {
    let from = step.first().and_then(|start| start.number("revision"));
    from.is_some_and(|from| checkpoint.revision <= from)
}

/// Closes a turn: everything that it had come to, and that it was interrupted.
pub(crate) fn mend(turn: &[Event], before: &Checkpoint) -> Option<Mended> {
    let start = turn.first()?;
    let setup = Setup::deserialize(&start.data).ok()?;
    let (limits, most) = (Limits::default(), setup.bounds().message_bytes);
    let mut checkpoint = before.clone();
    let mut said = vec![ChatMessage::new(Role::User, start.text("input"))];
    let (mut running, mut unknown): (Option<&Event>, Vec<String>) = (None, Vec::new());
    for event in turn {
        match event.kind.as_str() {
            kinds::LLM_DONE if event.number("round") > Some(0) && *event.part("ok") == true => {
                let segments = Vec::<Segment>::deserialize(event.part("segments"));
                let answer = Extracted { segments: segments.ok()?, warnings: Vec::new() };
                said.push(ChatMessage::new(Role::Assistant, answer.spoken()));
                note(&answer, &mut checkpoint, &limits);
            }
            kinds::TOOL_PLAN => said.extend(rejected(event)),
            kinds::TOOL_START => running = Some(event),
            kinds::TOOL_DONE => {
                running = None;
                let result = ToolResult {
                    id: event.text("id").to_owned(),
                    tool: event.text("tool").to_owned(),
                    ok: *event.part("ok") == true,
                    output: event.part("output").clone(),
                    error: event.part("error").as_str().map(str::to_owned),
                };
                said.push(Said::by_tool(&result, &result, false).kept);
            }
            _ => {}
        }
    }
    if let Some(call) = running {
        let (id, tool) = (call.text("id"), call.text("tool"));
        let why = "OUTCOME_UNKNOWN: outcome unknown: the gate stopped while it ran; look before you call it again";
        let result = ToolResult::failed(id, tool, why);
        said.push(Said::by_tool(&result, &result, false).kept);
        unknown.push(tool.to_owned());
    }
    // A turn that was done and whose checkpoint was lost has its answer.
    if !turn.iter().any(|event| event.kind == kinds::TURN_DONE) {
        let why = "(no answer: the gate stopped during this turn; what is above had happened)";
        said.push(ChatMessage::new(Role::Assistant, why));
    }
    let said = said.into_iter();
    let mut said: Vec<ChatMessage> =
        said.map(|one| ChatMessage::new(one.role, bounded(&one.content, most))).collect();
    bound_exchange(&mut said, &setup.bounds());
    checkpoint.recent_messages.extend(said);
    checkpoint.revision = setup.revision + 1;
    checkpoint.trace_tail = setup.trace_tail;
    Some(Mended { turn: setup.turn, checkpoint, unknown })
}

/// The notes of an answer count also here; their actions do not run.
fn note(answer: &Extracted, checkpoint: &mut Checkpoint, limits: &Limits) {
    let first = answer.segments.iter().find_map(|segment| match segment {
        Segment::Json { kind: BlockKind::Notes, payload: payload @ Value::Object(_) } => {
            Some(payload)
        }
        _ => None,
    });
    if let Some(payload) = first {
        let (patch, _) = NotesPatch::read(payload, limits);
        patch.apply(&mut checkpoint.state, limits);
    }
}

/// What the model was told of calls that could not be made.
fn rejected(plan: &Event) -> Vec<ChatMessage> {
    let calls = plan.part("calls").as_array().map(Vec::as_slice).unwrap_or_default();
    calls
        .iter()
        .filter(|call| call.get("problem").is_some())
        .map(|call| {
            let text = |name: &str| text_of(call.get(name).unwrap_or(&Value::Null));
            let result = ToolResult::failed(&text("id"), &text("tool"), text("problem"));
            Said::by_tool(&result, &result, false).kept
        })
        .collect()
}
