//! The calls that were made, from the projection of the ledger.

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::{Error, KeyScope, error::NotFound};
use tollgate_ledger::{CallQuery, CallRow, StoredEvent};

use super::events::{blocking, page_size};
use crate::{
    endpoint::{Access, Ask, Endpoint, Nothing, endpoint},
    reply::{Failed, Reply},
};

/// Which calls.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Which {
    /// Only of this tool.
    #[serde(default)]
    tool: Option<String>,
    /// Only of this key.
    #[serde(default)]
    key: Option<String>,
    /// Only with this outcome.
    #[serde(default)]
    outcome: Option<Outcome>,
    /// Only before this event; for the next page, the `seq` of the last call of this one.
    #[serde(default)]
    before: Option<u64>,
    /// At most so many; 100 unless said otherwise.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u64>,
}

/// What became of a call.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// It runs.
    Running,
    /// It gave a result.
    Completed,
    /// It failed.
    Failed,
    /// It was refused.
    Denied,
    /// Nobody knows.
    Unknown,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
        }
    }
}

/// Calls, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
struct Calls {
    /// The calls.
    calls: Vec<CallRow>,
}

/// One call, with everything that is recorded of it.
#[derive(Debug, Serialize, JsonSchema)]
struct Whole {
    /// The call.
    call: CallRow,
    /// Its events, with the verdict and every step of it.
    events: Vec<Value>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let read = Access::Scope(KeyScope::Read);
    vec![
        endpoint(
            Method::GET,
            "/v1/calls",
            "listCalls",
            "The calls that were made, the newest first",
            read,
        )
        .serve(200, "The calls", list),
        endpoint(Method::GET, "/v1/calls/{id}", "getCall", "One call with its record", read)
            .serve(200, "The call", get),
    ]
}

async fn list(ask: Ask<Which, Nothing>) -> Result<Reply<Calls>, Failed> {
    let wanted = ask.query;
    let limit = page_size(wanted.limit)?;
    let query = CallQuery {
        tool: wanted.tool,
        key_id: wanted.key,
        outcome: wanted.outcome.map(|outcome| outcome.word().to_owned()),
        before: wanted.before,
        limit,
    };
    let app = ask.app;
    let calls = blocking(move || app.queries.calls(&query)).await?;
    Ok(Reply::ok(Calls { calls }))
}

async fn get(ask: Ask<Nothing, Nothing>) -> Result<Reply<Whole>, Failed> {
    let id = ask.part("id").to_owned();
    let app = ask.app;
    let wanted = id.clone();
    let found = blocking(move || {
        let Some(call) = app.queries.call(&wanted)? else { return Ok(None) };
        let events = app.gate.read(|reader| {
            let mut events = Vec::new();
            for seq in [Some(call.seq), call.ended_seq].into_iter().flatten() {
                events.extend(reader.tail(seq.saturating_sub(1), 1)?);
            }
            Ok(events)
        })?;
        Ok(Some((call, events)))
    });
    let (call, mut events) = found.await?.ok_or_else(|| Error::from(NotFound::new("call", id)))?;
    events.dedup_by_key(|event: &mut StoredEvent| event.seq);
    let events =
        events.iter().map(|event| serde_json::to_value(event).unwrap_or_default()).collect();
    Ok(Reply::ok(Whole { call, events }))
}
