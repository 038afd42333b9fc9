//! What the ledger keeps of a call: redacted, and bounded in size.

use std::borrow::Cow;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tollgate_contract::{
    ContractTool, InputHash, KeyFacts, Surface,
    error::ErrorObject,
    event::Event,
    id::{CallId, RunId},
    redact::{redact_text, redacted},
    text::hex,
};
use tollgate_ledger::{LedgerError, NewEvent, Subject};

/// The most bytes of an input or an output that an event holds. Traces hold them whole.
const LARGEST_PART: usize = 32 * 1024;

/// How much of an output its summary shows.
const SUMMARY: usize = 120;

/// Whom and what the events of one call are about.
#[derive(Debug, Clone)]
pub(crate) struct About {
    pub(crate) call_id: CallId,
    pub(crate) run_id: RunId,
    pub(crate) tool: Option<std::sync::Arc<ContractTool>>,
    pub(crate) key: Option<std::sync::Arc<KeyFacts>>,
    pub(crate) agent: Option<String>,
    pub(crate) scope: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) surface: Surface,
}

impl About {
    fn subject(&self) -> Subject {
        let tool = self.tool.as_ref().map(|tool| tool.name.to_string());
        Subject {
            agent_id: self.agent.clone(),
            identity_id: None,
            workload_id: tool.clone(),
            scope_id: self.scope.as_deref().map(|scope| redact_text(scope).into_owned()),
            tool,
            intent_id: None,
        }
    }

    fn event(&self, event: Event, now_ms: i64, more: Value) -> Result<NewEvent, LedgerError> {
        let mut payload = Map::new();
        payload.insert("callId".to_owned(), self.call_id.to_string().into());
        payload.insert("runId".to_owned(), self.run_id.to_string().into());
        if let Some(key) = &self.key {
            payload.insert("keyId".to_owned(), key.id.to_string().into());
        }
        if let Some(session) = &self.session {
            payload.insert("session".to_owned(), redact_text(session).into());
        }
        if let Value::Object(more) = more {
            payload.extend(more);
        }
        NewEvent::new(event, now_ms, self.subject(), &payload)
    }

    /// The executor is about to start.
    pub(crate) fn started(
        &self,
        now_ms: i64,
        input: &Value,
        input_hash: InputHash,
        verdict: &Value,
    ) -> Result<NewEvent, LedgerError> {
        let effects = self.tool.as_ref().map(|tool| (tool.side_effect, tool.cost_effect));
        let more = json!({
            "surface": self.surface,
            "sideEffect": effects.map(|(side, _)| side),
            "costEffect": effects.map(|(_, cost)| cost),
            "inputHash": input_hash,
            "input": bounded(redacted(input)),
            "verdict": verdict,
        });
        self.event(Event::CallStarted, now_ms, more)
    }

    /// The executor gave a result.
    pub(crate) fn completed(
        &self,
        now_ms: i64,
        output: &Value,
        duration_ms: u64,
    ) -> Result<NewEvent, LedgerError> {
        let output = redacted(output);
        let summary = summary(&output);
        let more =
            json!({"durationMs": duration_ms, "outputSummary": summary, "output": bounded(output)});
        self.event(Event::CallCompleted, now_ms, more)
    }

    /// The executor failed.
    pub(crate) fn failed(
        &self,
        now_ms: i64,
        error: &ErrorObject,
        duration_ms: u64,
        outcome_unknown: bool,
    ) -> Result<NewEvent, LedgerError> {
        let mut more = json!({"durationMs": duration_ms, "error": error});
        if outcome_unknown && let Some(more) = more.as_object_mut() {
            more.insert("outcomeUnknown".to_owned(), true.into());
        }
        self.event(Event::CallFailed, now_ms, more)
    }

    /// The call was refused.
    pub(crate) fn refused(
        &self,
        now_ms: i64,
        input: &Value,
        input_hash: Option<InputHash>,
        error: &ErrorObject,
        verdict: Option<&Value>,
    ) -> Result<NewEvent, LedgerError> {
        let more = json!({
            "surface": self.surface,
            "inputHash": input_hash,
            "input": bounded(redacted(input)),
            "error": error,
            "verdict": verdict,
        });
        self.event(Event::CallFailed, now_ms, more)
    }
}

/// A value that is small enough, or what is known of it.
fn bounded(value: Cow<'_, Value>) -> Value {
    let text = value.to_string();
    if text.len() <= LARGEST_PART {
        return value.into_owned();
    }
    json!({"omitted": {"bytes": text.len(), "sha256": hex(&Sha256::digest(text.as_bytes())).to_string()}})
}

/// A redacted output in a few words.
pub fn summary(output: &Value) -> String {
    let text = match output {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = chars.by_ref().take(SUMMARY).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}
