//! Events as the gate writes them for a call: about the same members, and about as long.

use serde_json::{json, value::RawValue};
use tollgate_contract::event::Event;
use tollgate_ledger::{LedgerError, NewEvent, Subject};

/// How many steps the record of a call that passes has.
const STEPS: usize = 15;

/// The name of the tool that is called.
pub(crate) const TOOL: &str = "system.time";

/// What is the same in every call, written once.
pub(crate) struct Sample {
    verdict: String,
}

impl Sample {
    pub(crate) fn new() -> Self {
        let step = json!({
            "step": "max_side_effect", "outcome": "pass",
            "facts": {"sideEffect": "none", "layer": "server", "max": "paper_trade"},
            "because": "none is within the ceiling",
        });
        let steps = vec![step; STEPS];
        Self { verdict: json!({"decision": "approve", "explain": steps}).to_string() }
    }

    /// The payloads of the two events of call number `number`, written.
    pub(crate) fn payloads(&self, number: u64) -> Result<[Box<RawValue>; 2], serde_json::Error> {
        // As UUIDs are: time first, so that they come in rising order, and the rest by chance.
        let chance = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let id = format!("{:012x}7000{chance:016x}", 0x0190_0000_0000 + number / 16);
        let common = format!(
            r#""callId":"call_{id}","runId":"run_{id}","keyId":"key_01900000000070008000000000000001""#
        );
        let start = format!(
            r#"{{{common},"surface":"agent","sideEffect":"none","costEffect":"none","inputHash":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","input":{{}},"verdict":{}}}"#,
            self.verdict
        );
        let end = format!(
            r#"{{{common},"durationMs":0,"outputSummary":"{{\"utc\":\"2026-01-01T00:00:00.000Z\",\"unixMs\":1767225600000}}","output":{{"utc":"2026-01-01T00:00:00.000Z","unixMs":1767225600000}}}}"#
        );
        Ok([RawValue::from_string(start)?, RawValue::from_string(end)?])
    }
}

/// The kinds of the two events of a call.
pub(crate) const EVENTS: [Event; 2] = [Event::CallStarted, Event::CallCompleted];

/// An event of a call, at some time.
pub(crate) fn event(kind: Event, ts_ms: i64, payload: &RawValue) -> Result<NewEvent, LedgerError> {
    let tool: Option<std::sync::Arc<str>> = Some(TOOL.into());
    let subject = Subject {
        agent_id: Some("admin".into()),
        workload_id: tool.clone(),
        tool,
        ..Subject::default()
    };
    NewEvent::new(kind, ts_ms, subject, &payload)
}
