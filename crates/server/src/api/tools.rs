//! Calling tools: the answer at the end, or the events of the run as they happen.

use std::{sync::Arc, time::Duration};

use axum::{
    http::Method,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use tollgate_consent::ItemState;
use tollgate_contract::{Call, Caller, Error, Mode, Surface, Urgency, id::ApprovalId};
use tollgate_gate::{
    CallFailure, CallOptions, RunEvent, ToolCallResult, Unfinished, Waits, WrittenVerdict,
    check_call,
};
use tollgate_policy::Policy;

use super::approvals::ItemShown;
use crate::{
    endpoint::{Access, Ask, Endpoint, Json, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// A call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewCall {
    /// The input, as the tool's `inputSchema` describes it.
    input: serde_json::Map<String, Value>,
    /// Where it happens, such as `repo:owner/name`.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[^\x00-\x1f\x7f-\x9f]*$"))]
    scope: Option<String>,
    /// How much it matters.
    #[serde(default)]
    urgency: Option<Urgency>,
    /// The session that it belongs to.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[^\x00-\x1f\x7f-\x9f]*$"))]
    session: Option<String>,
    /// How many seconds it may wait for room, and for a person's answer; not at all unless said otherwise.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    wait: Option<u64>,
    /// How many milliseconds it may run, if less than the gate allows.
    #[serde(default)]
    #[schemars(range(min = 1))]
    timeout_ms: Option<u64>,
    /// The approval that it comes back with, where a person was asked before.
    #[serde(default)]
    #[schemars(regex(pattern = r"^apr_[0-9a-f]{32}$"))]
    approval: Option<String>,
    /// A policy for this call alone. It can only narrow.
    #[serde(default)]
    policy: Option<serde_json::Map<String, Value>>,
}

/// What a call gives.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ToolCallResult")]
struct Called {
    /// The run.
    run_id: String,
    /// The call.
    call_id: String,
    /// The tool, by its canonical name.
    tool: String,
    /// SHA-256 over the redacted canonical input.
    input_hash: String,
    /// What the tool gave.
    output: Value,
    /// Was it recorded before, and nothing was run now?
    replayed: bool,
    /// How long it took.
    duration_ms: u64,
    /// The gate's answer, with every step.
    #[schemars(with = "Value")]
    verdict: WrittenVerdict,
}

/// A call that waits for a person: ask again with the approval's name once it is answered.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct WaitsForPerson {
    /// The run.
    run_id: String,
    /// The call.
    call_id: String,
    /// What the person was asked.
    approval: ItemShown,
    /// The gate's answer, with every step.
    #[schemars(with = "Value")]
    verdict: WrittenVerdict,
}

impl From<ToolCallResult> for Called {
    fn from(result: ToolCallResult) -> Self {
        Self {
            run_id: result.run_id.to_string(),
            call_id: result.call_id.to_string(),
            tool: result.tool.to_string(),
            input_hash: result.input_hash.to_string(),
            output: result.output,
            replayed: result.replayed,
            duration_ms: result.duration_ms,
            verdict: result.verdict,
        }
    }
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        endpoint(Method::POST, "/v1/tools/{name}/call", "callTool", "Call a tool", Access::Gate)
            .idempotent()
            .gives::<WaitsForPerson>(202, "A person must answer first")
            .gives::<Called>(200, "What the tool gave")
            .serve_raw(call),
        endpoint(
            Method::POST,
            "/v1/tools/{name}/stream",
            "streamTool",
            "Call a tool, and hear the events of the run as they happen",
            Access::Gate,
        )
        .idempotent()
        .answers(
            200,
            "The events of the run, from `run.started` to `run.completed` or `run.failed`",
            "text/event-stream",
        )
        .serve_raw(streamed),
    ]
}

type AskCall = Ask<Nothing, Json<NewCall>>;

/// The call that a request asks for.
fn read(ask: AskCall) -> Result<(AskedCall, CallOptions), Failed> {
    let idempotency_key = ask.header("idempotency-key")?;
    let tool = ask.part("name").to_owned();
    let body = ask.body.0;
    let policy = body.policy.map(|policy| Policy::from_json(&Value::Object(policy))).transpose();
    let policy = policy.map_err(|error| refuse(&format!("`policy`: {error}")))?;
    if body.wait.is_some_and(|seconds| seconds > 3600) {
        return Err(refuse("`wait` is from 0 to 3600 seconds").into());
    }
    if body.timeout_ms == Some(0) {
        return Err(refuse("`timeoutMs` is at least 1").into());
    }
    let call = Call {
        caller: Caller {
            surface: Surface::Agent,
            mode: Mode::Live,
            identity: ask.principal.identity(),
        },
        tool,
        input: Value::Object(body.input),
        scope: body.scope,
        urgency: body.urgency.unwrap_or(Urgency::Normal),
        session: body.session,
        idempotency_key,
    };
    check_call(&call)?;
    let approval = body.approval.as_deref().map(ApprovalId::parse).transpose();
    let approval = approval.map_err(|_| refuse("`approval` is a name such as apr_…"))?;
    let timeout = body.timeout_ms.map(Duration::from_millis);
    let wait = Duration::from_secs(body.wait.unwrap_or(0));
    let options = CallOptions { policy, timeout, wait, approval, ..CallOptions::default() };
    Ok((AskedCall { app: ask.app, call, has_key: ask.principal.key().is_some() }, options))
}

struct AskedCall {
    app: Arc<crate::app::App>,
    call: Call,
    has_key: bool,
}

async fn call(ask: AskCall) -> Result<Response, Failed> {
    let (asked, options) = read(ask)?;
    answered(asked.app.gate.call(asked.call, options).await)
}

/// What became of a call, as it is answered.
fn answered(ended: Result<ToolCallResult, Box<Unfinished>>) -> Result<Response, Failed> {
    match ended.map_err(|unfinished| *unfinished) {
        Ok(result) => {
            let replayed = result.replayed;
            let reply = Reply::ok(Called::from(result));
            let reply = if replayed { reply.header("idempotency-replayed", "true") } else { reply };
            Ok(reply.response())
        }
        Err(Unfinished::Waits(waits)) => Ok(waiting(waits).response()),
        Err(Unfinished::Failed(failure)) => Err(failed(failure)),
    }
}

fn waiting(waits: Waits) -> Reply<WaitsForPerson> {
    let where_to = format!("/v1/approvals/{}", waits.item.asked.id);
    let body = WaitsForPerson {
        run_id: waits.run_id.to_string(),
        call_id: waits.call_id.to_string(),
        approval: ItemShown::new(&waits.item, ItemState::Pending),
        verdict: waits.verdict,
    };
    Reply::accepted(body).header("location", where_to).header("retry-after", "2")
}

fn failed(failure: CallFailure) -> Failed {
    let failed = Failed::object(failure.error)
        .for_operator(failure.operator)
        .header("x-tollgate-call-id", failure.call_id.to_string())
        .header("x-tollgate-run-id", failure.run_id.to_string());
    if failure.replayed { failed.header("idempotency-replayed", "true") } else { failed }
}

/// The events of a run. Whoever stops listening gives the call up.
async fn streamed(ask: AskCall) -> Result<Response, Failed> {
    let (asked, mut options) = read(ask)?;
    if !asked.has_key {
        // Without a key there is no run to stream; the refusal is recorded, and has its status.
        return answered(asked.app.gate.call(asked.call, options).await);
    }
    let (told, heard) = mpsc::unbounded_channel::<RunEvent>();
    let listener = told.clone();
    options.observer = Some(Arc::new(move |event| {
        // Nobody listens any more only when the call is being given up.
        let _ = told.send(event);
    }));
    let gate = asked.app.gate.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = gate.call(asked.call, options) => {}
            () = listener.closed() => {}
        }
    });
    let events = stream::unfold(heard, async |mut heard| {
        let event = heard.recv().await?;
        Some((sse(&event), heard))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

fn sse(event: &RunEvent) -> Result<Event, Error> {
    let data = serde_json::to_string(event).unwrap_or_default();
    Ok(Event::default().event(event.name).data(data))
}
