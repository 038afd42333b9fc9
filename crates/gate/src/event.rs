//! What a run tells while it goes on: the RFC's events, in its order.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use tollgate_contract::{
    CostEffect, Quoted, SideEffect,
    event::Event,
    id::{CallId, RunId},
};

/// One event of a run, as it is streamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEvent {
    /// Its name in the stream, such as `tool.started`.
    #[serde(rename = "type")]
    pub name: &'static str,
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// When it happened, as RFC 3339 writes it.
    pub ts: String,
    /// The tool: as it was written until it is resolved, by its canonical name from then on.
    pub tool: Quoted,
    /// What the tool changes, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub side_effect: Option<SideEffect>,
    /// What it uses up, once it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_effect: Option<CostEffect>,
    /// What else belongs to this event.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

impl RunEvent {
    /// The name of `event` in the stream. Events that are not streamed have none, and are not made.
    pub fn stream_name(event: Event) -> &'static str {
        event.stream_name().unwrap_or("event")
    }
}

/// Hears the events of a run.
pub type Observer = Arc<dyn Fn(RunEvent) + Send + Sync>;

/// Hears the pieces of an answer, as the tool gives them: raw, and not part of the record. Also what a call waits for:
/// `waits` with an approval, `waitsForRoom` with milliseconds.
pub type Deltas = Arc<dyn Fn(Value) + Send + Sync>;
