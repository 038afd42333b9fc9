//! The live world: models, tools, memory and people, all through the gate.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tollgate_consent::{ItemState, Requested, What};
use tollgate_contract::{
    Call, Caller, Capability, ErrorCode, Identity, Mode, SideEffect, Surface, Urgency,
    id::{KeyId, MemoryId, RunId},
    redact::redact_text,
};
use tollgate_gate::{
    Allowance, CallOptions, Clock, Gate, Health, Principal, ToolCallResult, Unfinished,
};
use tollgate_memory::{Memory, NewRecord, Query};
use tollgate_models::Failure;
use tollgate_policy::Policy;
use tollgate_protocol::{Extractor, Piece, SessionName, bounded};

use super::{
    journal::kinds,
    kept::Native,
    run::{AgentEvent, Listener},
    world::{
        Embedding, ModelAsk, ModelEnded, ModelFailed, ModelSaid, Recalled, Remember, Stop, ToolAsk,
        ToolEnded, ToolProblem, World,
    },
};

/// How many memories are made comparable at once, how often that is tried, and how much of each.
const EMBEDDED: usize = 64;
const MOST_EMBED_CALLS: usize = 8;
const LONGEST_EMBEDDED: usize = 4 * 1024;
/// How many of a session's tags help to find memories; each is searched for.
const SEARCHED_TAGS: usize = 8;
/// How many memories are shown.
const RECALLED: usize = 6;

/// What a turn's calls go through.
pub(crate) struct LiveWorld {
    pub(crate) gate: Gate,
    pub(crate) by: Principal,
    pub(crate) session: SessionName,
    pub(crate) run: RunId,
    pub(crate) turn: u64,
    pub(crate) urgency: Urgency,
    pub(crate) policy: Policy,
    /// What the turn narrows further.
    pub(crate) narrow: Option<Policy>,
    pub(crate) allowance: Arc<Allowance>,
    pub(crate) deadline: Instant,
    pub(crate) approval_wait: Option<Duration>,
    pub(crate) cancel: CancellationToken,
    pub(crate) memory: Arc<Memory>,
    pub(crate) embedding_model: Option<String>,
    /// The name that vectors are kept under, once it is known.
    pub(crate) embedded_as: Mutex<Option<String>>,
    /// What embeddings took that nobody was told of yet.
    pub(crate) embedding: Mutex<Embedding>,
    pub(crate) listener: Listener,
}

impl LiveWorld {
    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// What the turn has used of a unit, where it is limited.
    fn spent(&self, unit: &str) -> Option<u64> {
        self.allowance.left(unit).map(|left| left.spent)
    }

    fn call_of(&self, tool: &str, input: Value, call_key: Option<String>) -> Call {
        let identity: Identity = self.by.identity();
        Call {
            caller: Caller { surface: Surface::Agent, mode: Mode::Live, identity },
            tool: tool.to_owned(),
            input,
            scope: None,
            urgency: self.urgency,
            session: Some(self.session.to_string()),
            idempotency_key: call_key,
        }
    }

    /// Makes a call, until the turn is over or stopped.
    async fn through_gate(
        &self,
        call: Call,
        wait: Duration,
        hear: Arc<dyn Fn(Value) + Send + Sync>,
    ) -> Result<ToolCallResult, Box<Unfinished>> {
        let cancel = self.cancel.child_token();
        let options = CallOptions {
            session_policy: Some(self.policy.clone()),
            policy: self.narrow.clone(),
            wait,
            run: Some(self.run),
            deltas: Some(hear),
            cancel: Some(cancel.clone()),
            allowance: Some(Arc::clone(&self.allowance)),
            ..CallOptions::default()
        };
        let made = self.gate.call(call, options);
        tokio::pin!(made);
        tokio::select! {
            ended = &mut made => ended,
            () = tokio::time::sleep(self.time_left()) => {
                cancel.cancel();
                made.await
            }
        }
    }

    /// A tool that changes nothing needs no name: to call it again does no harm, and what is remembered of names costs room.
    fn needs_key(&self, tool: &str) -> bool {
        let contract = self.gate.manifest().resolve(tool);
        contract.is_ok_and(|contract| contract.side_effect != SideEffect::None)
    }

    /// What a model makes of texts, and under which name that is kept: vectors of different servers, or of different
    /// lengths, cannot be compared.
    async fn embed(&self, texts: &[String]) -> Result<Option<(String, Vec<Vec<f32>>)>, String> {
        let Some(model) = &self.embedding_model else { return Ok(None) };
        let texts: Vec<String> = texts.iter().map(|text| bounded(text, LONGEST_EMBEDDED)).collect();
        let before = (self.spent("tokens"), self.spent("usd_micros"));
        let call = self.call_of("model.embed", json!({"model": model, "input": texts}), None);
        let made = self.through_gate(call, Duration::ZERO, Arc::new(|_| {})).await;
        self.count_embedding(made.as_ref().ok().map(|made| &made.output), before);
        let output = made.map_err(|unfinished| {
            let problem = match unfinished.failure() {
                Some(failure) => redact_text(&failure.error.message).into_owned(),
                None => "a person must answer first".to_owned(),
            };
            self.not_embedded(problem)
        })?;
        let vectors = output.output.get("vectors").cloned().unwrap_or_default();
        let vectors: Vec<Vec<f32>> = serde_json::from_value(vectors)
            .map_err(|error| self.not_embedded(error.to_string()))?;
        let named = output.output.get("model").and_then(Value::as_str).unwrap_or_default();
        let length = vectors.first().map_or(0, Vec::len);
        let kept_as: String = format!("{model}/{named}/{length}").chars().take(150).collect();
        *self.embedded_as.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept_as.clone());
        Ok(Some((kept_as, vectors)))
    }

    /// Counts what a call of `model.embed` took; one that failed may have been paid for all the same.
    fn count_embedding(&self, output: Option<&Value>, before: (Option<u64>, Option<u64>)) {
        let number = |path: &str| output?.pointer(path)?.as_u64();
        let since = |unit: &str, before: Option<u64>| {
            if output.is_some() {
                return None;
            }
            self.spent(unit).zip(before).map(|(now, before)| now.saturating_sub(before))
        };
        let tokens = number("/usage/input_tokens").or_else(|| since("tokens", before.0));
        let cost = number("/cost_usd_micros").or_else(|| since("usd_micros", before.1));
        let (tokens, cost) = (tokens.unwrap_or(0), cost.unwrap_or(0));
        let mut all = self.embedding.lock().unwrap_or_else(PoisonError::into_inner);
        all.calls += 1;
        all.tokens = all.tokens.saturating_add(tokens);
        all.usd_micros = all.usd_micros.saturating_add(cost);
    }

    /// Keeps why something was not made comparable.
    fn not_embedded(&self, problem: String) -> String {
        let mut all = self.embedding.lock().unwrap_or_else(PoisonError::into_inner);
        all.problem.get_or_insert_with(|| problem.clone());
        problem
    }

    fn take_embedding(&self) -> Embedding {
        std::mem::take(&mut *self.embedding.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Works with the memory on a thread that may block.
    async fn with_memory<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Memory) -> Result<T, tollgate_memory::MemoryError> + Send + 'static,
    ) -> Result<T, String> {
        let memory = Arc::clone(&self.memory);
        let done = tokio::task::spawn_blocking(move || work(&memory)).await;
        done.map_err(|_| "the memory stopped".to_owned())?.map_err(|error| error.to_string())
    }
}

/// What comes in of an answer while it is streamed.
struct Incoming {
    since: Instant,
    extractor: Extractor,
    content: String,
    pieces: u64,
    first_ms: Option<u64>,
    /// What the model's client says of a failure.
    failure: Option<Failure>,
    is_shown: bool,
    clock: Arc<dyn Clock>,
    listener: Listener,
}

impl Incoming {
    fn take(&mut self, piece: &Value) {
        if let Some(waits) = waits(piece) {
            let now = self.clock.now_ms();
            (self.listener)(AgentEvent::step(now, kinds::TOOL_WAIT, waits));
            return;
        }
        if let Some(failure) = piece.get("failure") {
            self.failure = serde_json::from_value(failure.clone()).ok();
            return;
        }
        self.pieces += 1;
        let since = self.since;
        self.first_ms.get_or_insert_with(|| millis(since));
        if let Some(text) = piece.get("text").and_then(Value::as_str) {
            self.content.push_str(text);
            let pieces = self.extractor.feed(text);
            self.show(pieces);
        } else if let Some(text) = piece.get("reasoning").and_then(Value::as_str)
            && self.is_shown
        {
            (self.listener)(AgentEvent::Reasoning(text.to_owned()));
        }
    }

    fn show(&self, pieces: Vec<Piece>) {
        for piece in pieces.into_iter().filter(|_| self.is_shown) {
            (self.listener)(match piece {
                Piece::Text(text) => AgentEvent::Text(text),
                Piece::Reasoning(text) => AgentEvent::Reasoning(text),
                Piece::Retract => AgentEvent::Retract,
            });
        }
    }

    /// The stream is over. What was shown of an answer that is asked for again is taken back.
    fn end(&mut self, takes_back: bool) -> (u64, u64, u64) {
        let (pieces, _) = std::mem::take(&mut self.extractor).finish();
        self.show(pieces);
        if takes_back && self.is_shown && !self.content.is_empty() {
            (self.listener)(AgentEvent::Retract);
        }
        let bytes = u64::try_from(self.content.len()).unwrap_or(u64::MAX);
        (self.pieces, bytes, self.first_ms.unwrap_or(0))
    }
}

/// What a call waits for, if the piece says so.
fn waits(piece: &Value) -> Option<Value> {
    let waits = piece.get("waits").map(|item| json!({"approval": item}));
    waits.or_else(|| piece.get("waitsForRoom").map(|room| json!({"room": room})))
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl World for LiveWorld {
    fn stop(&self) -> Option<Stop> {
        if self.cancel.is_cancelled() {
            Some(Stop::Cancelled)
        } else if self.time_left().is_zero() {
            Some(Stop::Time)
        } else {
            None
        }
    }

    fn now_ms(&self) -> i64 {
        self.gate.clock().now_ms()
    }

    async fn chat(&self, ask: ModelAsk) -> ModelEnded {
        let since = Instant::now();
        let incoming = Arc::new(Mutex::new(Incoming {
            since,
            extractor: Extractor::default(),
            content: String::new(),
            pieces: 0,
            first_ms: None,
            failure: None,
            is_shown: ask.is_shown,
            clock: Arc::clone(self.gate.clock()),
            listener: Arc::clone(&self.listener),
        }));
        let heard = Arc::clone(&incoming);
        let hear = move |piece: Value| {
            heard.lock().unwrap_or_else(PoisonError::into_inner).take(&piece);
        };
        let before = (self.spent("tokens"), self.spent("usd_micros"));
        let call = self.call_of("model.chat", ask.input, None);
        let ended = self.through_gate(call, self.time_left(), Arc::new(hear)).await;
        let mut incoming = incoming.lock().unwrap_or_else(PoisonError::into_inner);
        let duration_ms = millis(since);
        match ended {
            Ok(result) => ModelEnded {
                stream: Some(incoming.end(false)),
                said: said(&result.output),
                failed: None,
                call_id: Some(result.call_id.to_string()),
                duration_ms,
                is_kept: false,
            },
            Err(unfinished) => {
                let failed = model_failed(&unfinished, incoming.failure.take());
                let was_stopped = self.stop().is_some();
                let stream = incoming.end(!was_stopped);
                let content = std::mem::take(&mut incoming.content);
                // An answer that broke off was paid for all the same.
                let since = |now: Option<u64>, before: Option<u64>| {
                    now.zip(before).map(|(now, before)| now.saturating_sub(before))
                };
                let used = since(self.spent("tokens"), before.0);
                let said = ModelSaid {
                    content,
                    input_tokens: used.unwrap_or(0),
                    usage_estimated: true,
                    cost_usd_micros: since(self.spent("usd_micros"), before.1),
                    ..ModelSaid::default()
                };
                let call_id = unfinished.failure().map(|failure| failure.call_id.to_string());
                ModelEnded {
                    said,
                    failed: Some(failed),
                    call_id,
                    duration_ms,
                    stream: Some(stream),
                    is_kept: false,
                }
            }
        }
    }

    async fn pause(&self, ms: u64) {
        let pause = Duration::from_millis(ms).min(self.time_left());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.cancel.cancelled() => {}
        }
    }

    async fn tool(&self, ask: ToolAsk) -> ToolEnded {
        let since = Instant::now();
        let call_key = self.needs_key(&ask.tool).then_some(ask.call_key);
        let call = self.call_of(&ask.tool, Value::Object(ask.args), call_key);
        let wait = self.approval_wait.unwrap_or(Duration::MAX).min(self.time_left());
        let (listener, clock) = (Arc::clone(&self.listener), Arc::clone(self.gate.clock()));
        let hear = move |piece: Value| {
            if let Some(waits) = waits(&piece) {
                listener(AgentEvent::step(clock.now_ms(), kinds::TOOL_WAIT, waits));
            }
        };
        let ended = self.through_gate(call, wait, Arc::new(hear)).await;
        let duration_ms = millis(since);
        let (output, call_id) = match ended {
            Ok(result) => (Ok(result.output), Some(result.call_id)),
            Err(unfinished) => match *unfinished {
                Unfinished::Failed(failure) => {
                    let code = failure.error.code.to_string();
                    let problem = ToolProblem { code, message: failure.error.message };
                    (Err(problem), Some(failure.call_id))
                }
                Unfinished::Waits(waits) => {
                    let id = waits.item.asked.id;
                    let message = format!(
                        "a person was asked ({id}) and has not answered; go on without it, or make the same call again later"
                    );
                    let problem = ToolProblem { code: "APPROVAL_REQUIRED".to_owned(), message };
                    (Err(problem), Some(waits.call_id))
                }
            },
        };
        let call_id = call_id.map(|id| id.to_string());
        ToolEnded { output, call_id, duration_ms, is_kept: false }
    }

    async fn recall(
        &self,
        query: &str,
        tags: &[String],
    ) -> (Result<Vec<Recalled>, String>, Embedding) {
        (self.find(query, tags).await, self.take_embedding())
    }

    async fn remember(&self, records: Vec<Remember>) -> (Result<Vec<String>, String>, Embedding) {
        (self.keep(records).await, self.take_embedding())
    }

    fn has_leisure(&self) -> bool {
        self.gate.health() == Health::Ok
    }

    async fn request(&self, capability: &Capability) -> String {
        let session = Some(self.session.to_string());
        let reason = Some("asked for by the model".to_owned());
        let asked = self.gate.request_capability(&self.by, capability.clone(), session, reason);
        match asked.await {
            Ok(Requested::New(_)) => "a person is asked".to_owned(),
            Ok(_) => "it is granted or asked for already".to_owned(),
            Err(error) => redact_text(&error.object(None).message).into_owned(),
        }
    }

    fn capabilities(&self) -> (Vec<String>, Vec<String>) {
        let key = self.by.account();
        key.map(|key| capabilities(&self.gate, key, &self.session)).unwrap_or_default()
    }
}

impl LiveWorld {
    async fn find(&self, query: &str, tags: &[String]) -> Result<Vec<Recalled>, String> {
        let session = self.session.to_string();
        let of_session = session.clone();
        if self.with_memory(move |memory| memory.count(Some(&of_session))).await? == 0 {
            return Ok(Vec::new());
        }
        let query = query.to_owned();
        // Without vectors, words find what they can.
        let vector = if self.has_leisure() {
            let embedded = self.embed(std::slice::from_ref(&query)).await;
            embedded.unwrap_or_else(|problem| {
                tracing::warn!(
                    problem,
                    "a question was not made comparable with what is remembered"
                );
                None
            })
        } else {
            None
        };
        // What the session is about helps to find what the words alone do not.
        let newest: Vec<&str> = tags.iter().rev().take(SEARCHED_TAGS).map(String::as_str).collect();
        let text = format!("{query}\n{}", newest.join(" "));
        let found = self
            .with_memory(move |memory| {
                let vector = vector.as_ref().and_then(|(model, all)| {
                    all.first().map(|one| (model.as_str(), one.as_slice()))
                });
                memory.search(&Query {
                    session: Some(&session),
                    text: &text,
                    vector,
                    tags: &[],
                    limit: RECALLED,
                })
            })
            .await?;
        let recalled = found.into_iter().map(|one| Recalled {
            id: one.id.to_string(),
            score: one.score,
            excerpt: one.excerpt,
        });
        Ok(recalled.collect())
    }

    async fn keep(&self, records: Vec<Remember>) -> Result<Vec<String>, String> {
        let now = self.now_ms();
        let mut new = Vec::new();
        for Remember { text, tags } in records {
            let id = memory_id(now)?;
            new.push(NewRecord { id, text, tags, turn: self.turn, at_ms: now });
        }
        let session = self.session.to_string();
        let ids = self.with_memory(move |memory| memory.add(&session, &new)).await?;
        self.embed_new().await;
        Ok(ids.ids.iter().map(ToString::to_string).collect())
    }

    /// Makes new memories of this session comparable. It is background work: what fails is done another time, or not at
    /// all where it fails by itself.
    async fn embed_new(&self) {
        if self.embedding_model.is_none() || !self.has_leisure() {
            return;
        }
        let known = self.embedded_as.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (session, known) = (self.session.to_string(), known.unwrap_or_default());
        let missing = self
            .with_memory(move |memory| memory.without_vector(Some(&session), &known, EMBEDDED))
            .await;
        let Ok(missing) = missing else { return };
        let mut batches = vec![missing];
        let mut calls = 0;
        while let Some(mut batch) = batches.pop().filter(|batch| !batch.is_empty()) {
            calls += 1;
            if calls > MOST_EMBED_CALLS || self.stop().is_some() {
                return;
            }
            let texts: Vec<String> = batch.iter().map(|(_, text)| text.clone()).collect();
            match self.embed(&texts).await {
                Ok(Some((model, vectors))) => self.keep_vectors(model, batch, vectors).await,
                Ok(None) => return,
                Err(problem) => {
                    tracing::warn!(
                        problem,
                        texts = batch.len(),
                        "memories were not made comparable"
                    );
                    // One that cannot be done must not hold up the others.
                    if batch.len() > 1 {
                        let half = batch.split_off(batch.len() / 2);
                        batches.extend([batch, half]);
                    }
                }
            }
        }
    }

    async fn keep_vectors(
        &self,
        model: String,
        batch: Vec<(MemoryId, String)>,
        vectors: Vec<Vec<f32>>,
    ) {
        let is_usable = |vector: &Vec<f32>| {
            vector.iter().all(|number| number.is_finite()) && vector.iter().any(|n| *n != 0.0)
        };
        let ids = batch.into_iter().map(|(id, _)| id);
        let vectors: Vec<(MemoryId, Vec<f32>)> =
            ids.zip(vectors).filter(|(_, vector)| is_usable(vector)).collect();
        let kept = self.with_memory(move |memory| memory.set_vectors(&model, &vectors)).await;
        if let Err(problem) = kept {
            tracing::warn!(problem, "vectors of memories could not be kept");
        }
    }
}

/// What a session is granted, and what waits for a person, as the ledger has it.
pub(crate) fn capabilities(
    gate: &Gate,
    key: KeyId,
    session: &SessionName,
) -> (Vec<String>, Vec<String>) {
    let now = gate.clock().now_ms();
    let mut granted: Vec<String> = gate
        .grants()
        .iter()
        .filter(|grant| grant.until_ms.is_none_or(|until| until > now))
        .filter(|grant| grant.to.includes(key, Some(session.as_str())))
        .map(|grant| grant.capability.to_string())
        .collect();
    granted.sort_unstable();
    granted.dedup();
    let mut pending: Vec<String> = gate
        .approvals()
        .into_iter()
        .filter(|(item, state)| {
            let of_session = item.asked.session.as_deref().is_none_or(|of| of == session.as_str());
            *state == ItemState::Pending && item.asked.key == key && of_session
        })
        .filter_map(|(item, _)| match item.asked.what {
            What::Capability { capability, .. } => Some(capability.to_string()),
            What::Call { .. } => None,
        })
        .collect();
    pending.sort_unstable();
    pending.dedup();
    (granted, pending)
}

fn memory_id(now_ms: i64) -> Result<MemoryId, String> {
    let mut random = [0; 10];
    getrandom::fill(&mut random).map_err(|error| format!("there is no randomness: {error}"))?;
    Ok(MemoryId::from_parts(u64::try_from(now_ms).unwrap_or_default(), random))
}

/// The output of `model.chat`.
fn said(output: &Value) -> ModelSaid {
    let text = |name: &str| output.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let tokens = |name: &str| output.pointer(&format!("/usage/{name}")).and_then(Value::as_u64);
    let calls = output.get("tool_calls").cloned().unwrap_or_default();
    ModelSaid {
        content: text("content"),
        reasoning: text("reasoning"),
        calls: serde_json::from_value::<Vec<Native>>(calls).unwrap_or_default(),
        finish: text("finish"),
        input_tokens: tokens("input_tokens").unwrap_or(0),
        output_tokens: tokens("output_tokens").unwrap_or(0),
        usage_estimated: output.get("usage_estimated").and_then(Value::as_bool).unwrap_or(false),
        cost_usd_micros: output.get("cost_usd_micros").and_then(Value::as_u64),
    }
}

fn model_failed(unfinished: &Unfinished, told: Option<Failure>) -> ModelFailed {
    match unfinished {
        Unfinished::Waits(_) => ModelFailed {
            code: "APPROVAL_REQUIRED".to_owned(),
            message: "a person must answer before a model is asked; see `tollgate approve`"
                .to_owned(),
            ..ModelFailed::default()
        },
        Unfinished::Failed(failure) => {
            // That a pool is closed for a moment is no reason to give up.
            let later = failure.error.details.get("retryAfterSeconds").and_then(Value::as_u64);
            let is_short =
                failure.code() == ErrorCode::BudgetDenied && later.is_some_and(|s| s <= 30);
            ModelFailed {
                code: failure.code().to_string(),
                message: failure.error.message.clone(),
                retryable: is_short || told.as_ref().is_some_and(|told| told.retryable),
                retry_after_ms: told
                    .and_then(|told| told.retry_after_ms)
                    .or(later.filter(|_| is_short).map(|seconds| seconds * 1000)),
            }
        }
    }
}
