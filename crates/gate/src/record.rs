//! What the ledger keeps of a call: redacted, and bounded in size.

use std::{borrow::Cow, sync::Arc};

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_contract::{
    ContractTool, CostEffect, InputHash, KeyFacts, SideEffect, Surface,
    error::ErrorObject,
    event::Event,
    id::{CallId, KeyId, RunId},
    redact::{redact_text, redacted},
    text::hex,
};
use tollgate_ledger::{LedgerError, NewEvent, Subject};

use crate::{idempotency::Ended, outcome::WrittenVerdict};

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
        let tool: Option<Arc<str>> = self.tool.as_ref().map(|tool| tool.name.as_str().into());
        Subject {
            agent_id: self.agent.as_deref().map(Into::into),
            identity_id: None,
            workload_id: tool.clone(),
            scope_id: self.scope.as_deref().map(|scope| redact_text(scope).into()),
            tool,
            intent_id: None,
        }
    }

    /// Writes an event whose payload is what every event of the call has, and `more`.
    fn event(
        &self,
        event: Event,
        now_ms: i64,
        more: impl Serialize,
    ) -> Result<NewEvent, LedgerError> {
        let payload = Payload {
            call_id: self.call_id,
            run_id: self.run_id,
            key_id: self.key.as_ref().map(|key| key.id),
            session: self.session.as_deref().map(redact_text),
            more,
        };
        NewEvent::new(event, now_ms, self.subject(), &payload)
    }

    /// The executor is about to start.
    pub(crate) fn started(
        &self,
        now_ms: i64,
        input: &Value,
        input_hash: InputHash,
        verdict: &WrittenVerdict,
    ) -> Result<NewEvent, LedgerError> {
        let effects = self.tool.as_ref().map(|tool| (tool.side_effect, tool.cost_effect));
        let more = Started {
            surface: self.surface,
            side_effect: effects.map(|(side, _)| side),
            cost_effect: effects.map(|(_, cost)| cost),
            input_hash,
            input: bounded(redacted(input)),
            verdict,
        };
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
        let output_summary = summary(&output);
        let more = Completed { duration_ms, output_summary, output: bounded(output) };
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
        let outcome_unknown = outcome_unknown.then_some(true);
        let more = Failed { duration_ms, error, outcome_unknown };
        self.event(Event::CallFailed, now_ms, more)
    }

    /// The call was answered with what came of an earlier one, and nothing ran.
    pub(crate) fn repeated(
        &self,
        now_ms: i64,
        replay_of: CallId,
        ended: &Ended,
    ) -> Result<NewEvent, LedgerError> {
        let (event, error) = match ended {
            Ended::Output { .. } => (Event::CallCompleted, None),
            Ended::Failed { error, .. } => (Event::CallFailed, Some(error)),
        };
        self.event(event, now_ms, Repeated { replay_of, error })
    }

    /// The call was refused.
    pub(crate) fn refused(
        &self,
        now_ms: i64,
        input: Option<&Value>,
        input_hash: Option<InputHash>,
        error: &ErrorObject,
        verdict: Option<&WrittenVerdict>,
    ) -> Result<NewEvent, LedgerError> {
        let input = input.map(|input| bounded(redacted(input)));
        let more = Refused { surface: self.surface, input_hash, input, error, verdict };
        self.event(Event::CallFailed, now_ms, more)
    }
}

/// What an event of a call says. Members stand in the order in which they are written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Payload<'a, M> {
    call_id: CallId,
    run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<KeyId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Cow<'a, str>>,
    #[serde(flatten)]
    more: M,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Repeated<'a> {
    replay_of: CallId,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorObject>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Started<'a> {
    surface: Surface,
    side_effect: Option<SideEffect>,
    cost_effect: Option<CostEffect>,
    input_hash: InputHash,
    input: Cow<'a, Value>,
    verdict: &'a WrittenVerdict,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Completed<'a> {
    duration_ms: u64,
    output_summary: String,
    output: Cow<'a, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Failed<'a> {
    duration_ms: u64,
    error: &'a ErrorObject,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome_unknown: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Refused<'a> {
    surface: Surface,
    input_hash: Option<InputHash>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Cow<'a, Value>>,
    error: &'a ErrorObject,
    verdict: Option<&'a WrittenVerdict>,
}

/// A value that is small enough, or what is known of it.
pub(crate) fn bounded(value: Cow<'_, Value>) -> Cow<'_, Value> {
    let text = value.to_string();
    if text.len() <= LARGEST_PART {
        return value;
    }
    Cow::Owned(
        json!({"omitted": {"bytes": text.len(), "sha256": hex(&Sha256::digest(text.as_bytes())).to_string()}}),
    )
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
