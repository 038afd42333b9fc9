//! The events of the ledger: some of them, or all as they come, from wherever a reader stopped.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use axum::{
    http::Method,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::{Error, KeyScope, Quoted, error::Internal};
use tollgate_gate::Principal;
use tollgate_ledger::{EventQuery, Head, LedgerError, StoredEvent};

use crate::{
    app::App,
    endpoint::{Access, Ask, Endpoint, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// How often it is checked that a reader's key still counts.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How many events are read from the ledger at a time.
const AT_A_TIME: u64 = 256;

/// Which events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Only of this kind, such as `call_completed`.
    #[serde(default)]
    kind: Option<String>,
    /// Only of this tool.
    #[serde(default)]
    tool: Option<String>,
    /// Not before this time: RFC 3339, or milliseconds since 1970.
    #[serde(default)]
    from: Option<String>,
    /// Not after this time.
    #[serde(default)]
    to: Option<String>,
    /// Only behind this event.
    #[serde(default)]
    after: Option<u64>,
    /// At most so many; 100 unless said otherwise. Not for streams.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    limit: Option<u64>,
    /// Stay, and send what comes (SSE). Goes on behind `after` or the header `Last-Event-ID`; without
    /// either, with what happens from now on.
    #[serde(default)]
    stream: Option<bool>,
}

/// Events, the oldest first.
#[derive(Debug, Serialize, JsonSchema)]
struct Events {
    /// The events.
    events: Vec<Value>,
    /// For the next page: `after` this one.
    next: Option<u64>,
}

/// Where the chain stands.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Head")]
struct HeadShown {
    /// The last event.
    seq: u64,
    /// Its hash. Kept elsewhere, it shows a ledger that was cut or rewritten.
    hash: String,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let read = Access::Scope(KeyScope::Read);
    vec![
        endpoint(
            Method::GET,
            "/v1/events",
            "listEvents",
            "Events of the ledger, or a stream of them",
            read,
        )
        .gives::<Events>(200, "The events; with `stream=true` as they come")
        .answers(200, "The events as they come", "text/event-stream")
        .serve_raw(list_or_stream),
        endpoint(
            Method::GET,
            "/v1/ledger/head",
            "ledgerHead",
            "Where the ledger's chain stands",
            read,
        )
        .serve(200, "The head", head),
    ]
}

async fn list_or_stream(ask: Ask<Which, Nothing>) -> Result<Response, Failed> {
    if ask.query.stream == Some(true) {
        streamed(ask)
    } else {
        list(ask).await.map(Reply::response)
    }
}

async fn list(ask: Ask<Which, Nothing>) -> Result<Reply<Events>, Failed> {
    let wanted = &ask.query;
    let limit = page_size(wanted.limit)?;
    let query = EventQuery {
        kind: wanted.kind.clone(),
        tool: wanted.tool.clone(),
        from_ms: wanted.from.as_deref().map(time).transpose()?,
        to_ms: wanted.to.as_deref().map(time).transpose()?,
        after: wanted.after,
        limit,
        ..EventQuery::default()
    };
    let is_plain = query == EventQuery { after: query.after, limit, ..EventQuery::default() };
    let app = Arc::clone(&ask.app);
    let found = blocking(move || {
        if is_plain {
            // Straight from the ledger: nothing to catch up with.
            return app.gate.read(|reader| reader.tail(query.after.unwrap_or(0), limit));
        }
        app.queries.events(&query)
    });
    let found = found.await?;
    let next = found.last().map(|event| event.seq);
    let events =
        found.iter().map(|event| serde_json::to_value(event).unwrap_or_default()).collect();
    Ok(Reply::ok(Events { events, next }))
}

/// How many are shown at a time.
pub(super) fn page_size(wanted: Option<u64>) -> Result<u64, Error> {
    match wanted.unwrap_or(100) {
        size @ 1..=1000 => Ok(size),
        _ => Err(refuse("`limit` is from 1 to 1000")),
    }
}

pub(super) fn time(text: &str) -> Result<i64, Error> {
    let ms = text.parse::<i64>().ok();
    let written = || text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond);
    ms.or_else(written).ok_or_else(|| {
        refuse(&format!(
            "{} is no time; write it as 2026-01-31T12:00:00Z, or as milliseconds since 1970",
            Quoted::new(text)
        ))
    })
}

/// One reader's place in the ledger. It is read as far as the reader reads, and no further.
struct Following {
    app: Arc<App>,
    principal: Principal,
    at: u64,
    kind: Option<String>,
    tool: Option<String>,
    ready: VecDeque<StoredEvent>,
    _open: Open,
}

/// Counts open streams.
pub(super) struct Open(Gauge);

impl Open {
    /// One more.
    pub(super) fn new(app: &App) -> Self {
        app.streams.inc();
        Self(app.streams.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn streamed(ask: Ask<Which, Nothing>) -> Result<Response, Failed> {
    let last = ask.header("last-event-id")?;
    let last = last.map(|text| text.parse::<u64>()).transpose();
    let last = last.map_err(|_| refuse("`Last-Event-ID` is the number of an event"))?;
    if ask.query.from.is_some() || ask.query.to.is_some() || ask.query.limit.is_some() {
        return Err(refuse(
            "a stream takes `after`, `kind` and `tool`, and neither times nor a limit",
        )
        .into());
    }
    let app = ask.app;
    let now = app.gate.ledger().head().seq;
    let following = Following {
        principal: ask.principal,
        at: last.or(ask.query.after).unwrap_or(now),
        kind: ask.query.kind,
        tool: ask.query.tool,
        ready: VecDeque::new(),
        _open: Open::new(&app),
        app,
    };
    let events = stream::unfold(following, async |mut following| {
        let event = following.next().await?;
        Some((sse(&event), following))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

impl Following {
    /// The next event; `None` when the server stops or cannot read, or the reader may not read any more.
    async fn next(&mut self) -> Option<StoredEvent> {
        let mut head = self.app.head.clone();
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.app.gate.again(&self.principal).require(KeyScope::Read).is_err() {
                return None;
            }
            let stopping = self.app.stopping.clone();
            let behind = *head.borrow_and_update() > self.at;
            if !behind {
                tokio::select! {
                    changed = head.changed() => changed.ok()?,
                    () = stopping.cancelled() => return None,
                    // Even if nothing happens, whoever reads is looked at from time to time.
                    () = tokio::time::sleep(LOOK_AGAIN) => {}
                }
                continue;
            }
            if stopping.is_cancelled() {
                return None;
            }
            let (app, at) = (Arc::clone(&self.app), self.at);
            let read = blocking(move || app.gate.read(|reader| reader.tail(at, AT_A_TIME)));
            let events = read.await.ok()?;
            self.at = events.last().map_or(self.at, |event| event.seq);
            let wanted = |event: &StoredEvent| {
                self.kind.as_ref().is_none_or(|kind| *kind == event.kind)
                    && self
                        .tool
                        .as_ref()
                        .is_none_or(|tool| event.subject.tool.as_deref() == Some(tool.as_str()))
            };
            self.ready = events.into_iter().filter(wanted).collect();
        }
    }
}

fn sse(event: &StoredEvent) -> Result<Event, Error> {
    let data = serde_json::to_string(event).unwrap_or_default();
    Ok(Event::default().id(event.seq.to_string()).event(&event.kind).data(data))
}

async fn head(ask: Ask<Nothing, Nothing>) -> Result<Reply<HeadShown>, Failed> {
    let Head { seq, hash } = ask.app.gate.ledger().head();
    Ok(Reply::ok(HeadShown { seq, hash: hash.to_string() }))
}

/// Reads from the database without stopping others.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(Error::from),
        Err(_) => Err(Internal::new("reading the ledger ended early").into()),
    }
}
