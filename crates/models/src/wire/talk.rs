//! One question and its answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::{sync::OnceCell, time::timeout};
use tokio_util::sync::CancellationToken;
use tollgate_contract::text::{Clean, is_plain};

use super::{
    Answer, Ask, Decoder, Limits, Progress, Protocol, Transport,
    read::{Incoming, REFUSAL, whole},
    refusal::refused,
    stream::{Out, stream},
};
use crate::{
    backend::{Backend, Chatting, Deltas},
    chat::{ChatRequest, ChatResponse, Delta},
    collect::Collector,
    error::ModelError,
    names::Names,
    sse::Events,
};

/// How long a server that has finished may take to say what was used.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// How long a server may take to say which models it has.
const LISTING: Duration = Duration::from_secs(10);

/// How often a request is sent in another form.
const FORMS: usize = 3;

/// The longest name of a model.
const LONGEST_MODEL: usize = 200;

/// What a model is called that has no name.
const UNNAMED: &str = "default";

/// The largest count of tokens that is believed.
const MOST_TOKENS: u64 = 100_000_000;

/// A server that is spoken to by a protocol.
pub(crate) struct Talker<P>(Arc<Inner<P>>);

struct Inner<P> {
    protocol: P,
    transport: Arc<dyn Transport>,
    limits: Limits,
    /// The name that the operator gave.
    model: Option<String>,
    /// The first that the server has.
    found: OnceCell<String>,
}

impl<P: Protocol> Talker<P> {
    pub(crate) fn new(
        protocol: P,
        transport: Arc<dyn Transport>,
        limits: Limits,
        model: Option<String>,
    ) -> Self {
        Self(Arc::new(Inner { protocol, transport, limits, model, found: OnceCell::new() }))
    }
}

impl<P: Protocol> Backend for Talker<P> {
    fn chat(&self, request: ChatRequest) -> Chatting {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let limit = inner.limits.timeout;
            match timeout(limit, inner.at_once(&request)).await {
                Ok(done) => done,
                Err(_) => Err(ModelError::Timeout(limit)),
            }
        })
    }

    fn stream_chat(&self, request: ChatRequest, cancel: CancellationToken) -> Deltas {
        let inner = Arc::clone(&self.0);
        stream(|out| async move {
            let limit = inner.limits.timeout;
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(ModelError::Cancelled),
                done = timeout(limit, inner.piece_by_piece(&request, &out)) => match done {
                    Ok(done) => done,
                    Err(_) => Err(ModelError::Timeout(limit)),
                }
            }
        })
    }
}

impl<P: Protocol> Inner<P> {
    async fn at_once(&self, request: &ChatRequest) -> Result<ChatResponse, ModelError> {
        let (answer, mut decoder) = self.asked(request, false, None).await?;
        let mut pieces = Vec::new();
        decoder.whole(&whole(answer, self.limits).await?, &mut pieces)?;
        let mut collector = Collector::default();
        for piece in &pieces {
            collector.push(piece)?;
        }
        Ok(collector.finish())
    }

    async fn piece_by_piece(&self, request: &ChatRequest, out: &Out) -> Result<(), ModelError> {
        let (answer, mut decoder) = self.asked(request, true, Some(out)).await?;
        if answer.content_type.contains("json") || answer.content_type.contains("html") {
            // This one does not stream; or it is no model server, and then this says so.
            let mut pieces = Vec::new();
            decoder.whole(&whole(answer, self.limits).await?, &mut pieces)?;
            return give_all(pieces, out).await;
        }
        self.events(Incoming::new(answer, self.limits), &mut *decoder, out).await
    }

    /// Asks, in the form that the server takes.
    async fn asked(
        &self,
        request: &ChatRequest,
        streamed: bool,
        out: Option<&Out>,
    ) -> Result<(Answer, Box<dyn Decoder>), ModelError> {
        let names = Names::new(&request.tools);
        let model = self.model().await;
        let mut body = self.protocol.request(request, &names, &model, streamed);
        // An answer that is not streamed begins when it is complete.
        let (first, setting) = match streamed {
            true => (self.limits.first, "first_timeout_seconds"),
            false => (self.limits.timeout, "timeout_seconds"),
        };
        let mut forms = 1;
        loop {
            let ask = Ask { path: self.protocol.path(), body: Some(body.clone()) };
            let idle = ModelError::Idle { after: first, setting };
            let answer = timeout(first, self.transport.ask(ask)).await.unwrap_or(Err(idle))?;
            if let Some(out) = out {
                out.give(Delta::Headers(answer.headers.clone())).await;
            }
            if (200..300).contains(&answer.status) {
                let decoder = self.protocol.decoder(names, answer.hide.clone());
                return Ok((answer, decoder));
            }
            let (status, headers) = (answer.status, answer.headers.clone());
            let incoming = Incoming::new(answer, self.limits);
            let hide = incoming.hide.clone();
            let said = incoming.words(REFUSAL).await;
            let text = String::from_utf8_lossy(&said);
            if status != 400 || forms == FORMS || !self.protocol.again(&text, &mut body) {
                return Err(refused(status, &headers, &said, &hide));
            }
            forms += 1;
        }
    }

    async fn events(
        &self,
        mut incoming: Incoming,
        decoder: &mut dyn Decoder,
        out: &Out,
    ) -> Result<(), ModelError> {
        let mut events = Events::default();
        let mut whole = Vec::new();
        let mut finished: Option<Instant> = None;
        loop {
            let piece = match decoder.progress() {
                Progress::Going => incoming.next().await?,
                // The answer is whole. What is still missing is nice to have.
                Progress::Finished => {
                    let since = *finished.get_or_insert_with(Instant::now);
                    let afterwards =
                        AFTERWARDS.min(self.limits.idle).saturating_sub(since.elapsed());
                    match incoming.next_within(afterwards).await {
                        Some(Ok(piece)) => piece,
                        Some(Err(error @ ModelError::TooLarge(_))) => return Err(error),
                        Some(Err(_)) | None => None,
                    }
                }
                Progress::Over => return self.warn(&events),
            };
            let Some(piece) = piece else { break };
            let mut pieces = Vec::new();
            events.push(&piece, &mut whole).map_err(too_large)?;
            for event in whole.drain(..) {
                decoder.event(&event, &mut pieces)?;
            }
            give_all(pieces, out).await?;
        }
        if decoder.progress() == Progress::Going
            && let Some(event) = events.finish()
        {
            // Some leave out the empty line behind the last event. Half an event cannot be read.
            let mut pieces = Vec::new();
            let read = decoder.event(&event, &mut pieces);
            read.map_err(|error| match error {
                ModelError::Malformed(_) => dropped("in the middle of an event"),
                other => other,
            })?;
            give_all(pieces, out).await?;
        }
        match decoder.progress() {
            Progress::Going => Err(dropped("it did not say that it is complete")),
            Progress::Finished | Progress::Over => self.warn(&events),
        }
    }

    fn warn(&self, events: &Events) -> Result<(), ModelError> {
        if events.replaced() > 0 {
            let lines = events.replaced();
            tracing::warn!(lines, "a model server sent what is no UTF-8; it was replaced");
        }
        Ok(())
    }

    /// What the server calls the model.
    async fn model(&self) -> String {
        if let Some(model) = &self.model {
            return model.clone();
        }
        let found = self.found.get_or_try_init(|| async { self.first_model().await.ok_or(()) });
        found.await.map_or_else(|()| UNNAMED.to_owned(), Clone::clone)
    }

    async fn first_model(&self) -> Option<String> {
        let listing = async {
            let answer = self.transport.ask(Ask { path: "models", body: None }).await.ok()?;
            let answer = Some(answer).filter(|answer| answer.status == 200)?;
            whole(answer, self.limits).await.ok()
        };
        let list = timeout(LISTING.min(self.limits.timeout), listing).await.ok()??;
        let first = list.get("data")?.as_array()?.first()?;
        Some(model_name(first.get("id")?.as_str()?)).filter(|name| !name.is_empty())
    }
}

async fn give_all(pieces: Vec<Delta>, out: &Out) -> Result<(), ModelError> {
    for piece in pieces {
        out.give(piece).await;
    }
    Ok(())
}

fn dropped(how: &str) -> ModelError {
    ModelError::Dropped(Clean::already(how.to_owned()))
}

fn too_large(error: impl ToString) -> ModelError {
    ModelError::TooLarge(Clean::already(error.to_string()))
}

/// A name as a server gives it, fit to be shown and kept.
pub(crate) fn model_name(text: &str) -> String {
    text.chars().filter(|c| is_plain(*c)).take(LONGEST_MODEL).collect()
}

/// A count of tokens, if it can be one.
pub(crate) fn count_of(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    let whole = |number: f64| (number.fract() == 0.0 && number >= 0.0).then_some(number as u64);
    let count = value.as_u64().or_else(|| value.as_f64().and_then(whole))?;
    (count <= MOST_TOKENS).then_some(count)
}
