//! What waits for a person: calls that a policy wants an answer for, and capabilities that were asked for.

use std::{collections::VecDeque, sync::Arc, time::Duration};

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
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tollgate_consent::{Answer, Item, ItemState, What};
use tollgate_contract::{Error, KeyScope, error::NotFound, id::ApprovalId};
use tollgate_gate::{Gate, Principal, rfc3339};

use crate::{
    app::App,
    endpoint::{Access, Ask, Endpoint, Json, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// How often it is checked that a reader's key still counts.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long an answer grants a capability where it does not say.
const USUAL_GRANT_S: u64 = 3600;

/// The longest grant with an end: ten years.
pub(super) const LONGEST_GRANT_S: u64 = 315_360_000;

/// Something that a person was asked.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Approval")]
pub(super) struct ItemShown {
    /// Its name.
    id: String,
    /// `call` or `capability`.
    kind: &'static str,
    /// How it stands: `pending`, `approved`, `denied`, `expired` or `used`.
    state: &'static str,
    /// The key that asks.
    key_id: String,
    /// What that key is called.
    key: String,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// The tool of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// What the call changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    side_effect: Option<String>,
    /// What the call uses up.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_effect: Option<String>,
    /// The input of the call, redacted, long texts cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Value>,
    /// Is a part of the input hidden, because it looks like a secret or is too long?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    input_hidden: bool,
    /// The hash of the redacted input.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_hash: Option<String>,
    /// The call that asked first.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    /// The capability that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    capability: Option<String>,
    /// What the policies say to whoever answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    because: Vec<String>,
    /// What whoever asks says.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// How many different keys must say yes.
    approvers: u8,
    /// What was said.
    answers: Vec<AnswerShown>,
    /// Since when.
    requested_at: String,
    /// When it is over by itself.
    expires_at: String,
}

/// What a person said.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ApprovalAnswer")]
struct AnswerShown {
    /// What the key is called that said it.
    by: String,
    /// `approve` or `deny`.
    decision: &'static str,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// When.
    at: String,
}

impl From<&Answer> for AnswerShown {
    fn from(answer: &Answer) -> Self {
        Self {
            by: answer.by_name.clone(),
            decision: if answer.approves { "approve" } else { "deny" },
            reason: answer.reason.clone(),
            at: rfc3339(answer.at_ms),
        }
    }
}

impl ItemShown {
    pub(super) fn new(item: &Item, state: ItemState) -> Self {
        let asked = &item.asked;
        let empty = Self {
            id: asked.id.to_string(),
            kind: "capability",
            state: state.as_str(),
            key_id: asked.key.to_string(),
            key: asked.key_name.clone(),
            session: asked.session.clone(),
            tool: None,
            side_effect: None,
            cost_effect: None,
            input: None,
            input_hidden: false,
            input_hash: None,
            call_id: None,
            capability: None,
            because: Vec::new(),
            reason: asked.reason.clone(),
            approvers: asked.approvers,
            answers: item.answers.iter().map(Into::into).collect(),
            requested_at: rfc3339(asked.since_ms),
            expires_at: rfc3339(item.ends_ms()),
        };
        match &asked.what {
            What::Capability { capability, .. } => {
                Self { capability: Some(capability.to_string()), ..empty }
            }
            What::Call {
                tool,
                side_effect,
                cost_effect,
                input,
                hidden,
                input_hash,
                call,
                because,
                ..
            } => Self {
                input_hidden: *hidden,
                kind: "call",
                tool: Some(tool.to_string()),
                side_effect: Some(side_effect.to_string()),
                cost_effect: Some(cost_effect.to_string()),
                input: Some(input.clone()),
                input_hash: Some(input_hash.to_string()),
                call_id: Some(call.to_string()),
                because: because.clone(),
                ..empty
            },
        }
    }
}

/// Which of them.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Only what waits unless this is `all`.
    #[serde(default)]
    state: Option<StateWanted>,
    /// Stay, and send what comes (SSE): `waits` for what waits, `decided` for what no longer does.
    #[serde(default)]
    stream: Option<bool>,
}

/// Which of them, by how they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum StateWanted {
    /// What waits.
    Pending,
    /// Everything of late.
    All,
}

/// What people were asked, the oldest first.
#[derive(Debug, Serialize, JsonSchema)]
struct Approvals {
    /// What people were asked.
    approvals: Vec<ItemShown>,
}

/// A person's answer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewAnswer {
    /// Yes or no.
    decision: DecisionWord,
    /// Why; whoever asked is told.
    #[serde(default)]
    #[schemars(length(max = 500))]
    reason: Option<String>,
    /// For how many seconds a capability is granted; an hour unless said otherwise.
    #[serde(default)]
    #[schemars(range(min = 1, max = 315_360_000))]
    for_seconds: Option<u64>,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DecisionWord {
    /// Yes.
    Approve,
    /// No.
    Deny,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let approve = Access::Scope(KeyScope::Approve);
    vec![
        endpoint(
            Method::GET,
            "/v1/approvals",
            "listApprovals",
            "What waits for a person, or a stream of it",
            approve,
        )
        .gives::<Approvals>(200, "What waits; with `stream=true` as it comes")
        .answers(200, "What waits, as it comes", "text/event-stream")
        .serve_raw(list_or_stream),
        endpoint(
            Method::GET,
            "/v1/approvals/{id}",
            "getApproval",
            "How it stands with one of them; also for the key that asked",
            Access::Gate,
        )
        .serve(200, "It", get),
        endpoint(
            Method::POST,
            "/v1/approvals/{id}",
            "answerApproval",
            "Answer one of them; nobody answers for themselves",
            approve,
        )
        .serve(200, "It, with the answer", answer),
    ]
}

fn id(ask: &str) -> Result<ApprovalId, Error> {
    ApprovalId::parse(ask).map_err(|_| NotFound::new("approval", ask.to_owned()).into())
}

fn now(gate: &Gate, item: &Item) -> ItemShown {
    ItemShown::new(item, item.state(gate.clock().now_ms()))
}

async fn get(ask: Ask<Nothing, Nothing>) -> Result<Reply<ItemShown>, Failed> {
    let gate = &ask.app.gate;
    ask.principal.require_key()?;
    let id = id(ask.part("id"))?;
    let item = gate.approval(id)?;
    let is_own = ask.principal.account() == Some(item.asked.key);
    let may = |scope| ask.principal.require(scope).is_ok();
    if !is_own && !may(KeyScope::Approve) && !may(KeyScope::Read) {
        // What is not one's own is not there.
        return Err(Error::from(NotFound::new("approval", id.to_string())).into());
    }
    Ok(Reply::ok(now(gate, &item)))
}

async fn answer(ask: Ask<Nothing, Json<NewAnswer>>) -> Result<Reply<ItemShown>, Failed> {
    let id = id(ask.part("id"))?;
    let NewAnswer { decision, reason, for_seconds } = ask.body.0;
    let seconds = for_seconds.unwrap_or(USUAL_GRANT_S);
    let lasts = lasts(seconds)?;
    let approves = decision == DecisionWord::Approve;
    let gate = &ask.app.gate;
    let item = gate.answer(&ask.principal, id, approves, reason, Some(lasts)).await?;
    Ok(Reply::ok(now(gate, &item)))
}

/// Seconds as milliseconds, within bounds.
pub(super) fn lasts(seconds: u64) -> Result<i64, Error> {
    if !(1..=LONGEST_GRANT_S).contains(&seconds) {
        return Err(refuse("`forSeconds` is from 1 to 315360000; leave it out for no end"));
    }
    Ok(i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1000))
}

async fn list_or_stream(ask: Ask<Which, Nothing>) -> Result<Response, Failed> {
    if ask.query.stream == Some(true) {
        return Ok(streamed(ask.app, ask.principal));
    }
    let all = ask.query.state == Some(StateWanted::All);
    let found = ask.app.gate.approvals();
    let wanted = found.iter().filter(|(_, state)| all || *state == ItemState::Pending);
    let approvals = wanted.map(|(item, state)| ItemShown::new(item, *state)).collect();
    Ok(Reply::ok(Approvals { approvals }).response())
}

/// One listener.
struct Listening {
    app: Arc<App>,
    principal: Principal,
    news: Receiver<Item>,
    ready: VecDeque<Event>,
}

fn streamed(app: Arc<App>, principal: Principal) -> Response {
    // Whoever listens first and looks then misses nothing.
    let news = app.gate.approval_news();
    let mut listening = Listening { app, principal, news, ready: VecDeque::new() };
    listening.all();
    let events = stream::unfold(listening, async |mut listening| {
        let event = listening.next().await?;
        Some((Ok::<_, Error>(event), listening))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

impl Listening {
    /// Everything that waits, and then a mark that this is all of it.
    fn all(&mut self) {
        for (item, state) in self.app.gate.approvals() {
            if state == ItemState::Pending {
                self.ready.push_back(told("waits", &ItemShown::new(&item, state)));
            }
        }
        self.ready.push_back(Event::default().event("ready").data("{}"));
    }

    async fn next(&mut self) -> Option<Event> {
        let stopping = self.app.stopping.clone();
        loop {
            // A key may have been withdrawn while it listened.
            self.app.gate.again(&self.principal).require(KeyScope::Approve).ok()?;
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            tokio::select! {
                heard = self.news.recv() => match heard {
                    Ok(item) => {
                        let state = item.state(self.app.gate.clock().now_ms());
                        let name = match state {
                            ItemState::Pending => "waits",
                            _ => "decided",
                        };
                        self.ready.push_back(told(name, &ItemShown::new(&item, state)));
                    }
                    // Too far behind: everything again.
                    Err(RecvError::Lagged(_)) => {
                        self.ready.push_back(Event::default().event("again").data("{}"));
                        self.all();
                    }
                    Err(RecvError::Closed) => return None,
                },
                // Even if nothing happens, whoever listens is looked at from time to time.
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = stopping.cancelled() => return None,
            }
        }
    }
}

fn told(name: &str, shown: &ItemShown) -> Event {
    Event::default().event(name).data(serde_json::to_string(shown).unwrap_or_default())
}
