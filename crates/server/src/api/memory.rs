//! What agents remember: searched by words, and taken back.

use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tollgate_contract::{
    Error, KeyScope,
    error::{Conflict, Internal, NotFound},
    id::MemoryId,
    text::Clean,
};
use tollgate_gate::rfc3339;
use tollgate_memory::{Found, Memory, MemoryError, Query};
use tollgate_protocol::SessionName;

use crate::{
    endpoint::{Access, Ask, Endpoint, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// How many are given where nothing is said, and how many at most.
const USUAL: usize = 10;
const MOST: usize = 100;

/// The longest question: it is a part of an address.
const LONGEST: usize = 1_000;

/// In how many sessions of its own a key searches at once.
const MOST_SESSIONS: usize = 200;

/// How many searches run at once; the others stand in line, so that turns, which search too, have the machine.
static AT_ONCE: Semaphore = Semaphore::const_new(2);

/// What is looked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Words. Nothing in it is syntax.
    #[schemars(length(min = 1, max = LONGEST))]
    q: String,
    /// Only in this session.
    #[serde(default)]
    session: Option<String>,
    /// How many at most: 1 to 100, 10 unless said.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    limit: Option<usize>,
}

/// A memory that fits.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MemoryFound")]
struct Shown {
    /// Its name.
    id: String,
    /// How well it fits, from 0 to 1.
    score: f64,
    /// The part that fits best, on one line.
    excerpt: String,
    /// What it says.
    text: String,
    /// What it is about.
    tags: Vec<String>,
    /// The session that it belongs to.
    session: String,
    /// The turn it is from.
    turn: u64,
    /// When that was.
    at: String,
}

/// What was found, the best first.
#[derive(Debug, Serialize, JsonSchema)]
struct Memories {
    /// What was found.
    memories: Vec<Shown>,
}

/// A memory that was taken back.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MemoryForgotten")]
struct Forgotten {
    /// Its name. Nothing else ever has it.
    id: String,
    /// The session that it belonged to.
    session: String,
    /// The turn it was from.
    turn: u64,
    /// When that was.
    at: String,
    /// How it began, on one line.
    excerpt: String,
}

impl From<Found> for Shown {
    fn from(found: Found) -> Self {
        Self {
            id: found.id.to_string(),
            score: found.score,
            excerpt: found.excerpt,
            text: found.text,
            tags: found.tags,
            session: found.session,
            turn: found.turn,
            at: rfc3339(found.at_ms),
        }
    }
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        endpoint(
            Method::GET,
            "/v1/memory",
            "searchMemory",
            "What agents remember; a key without the scope `read` searches its own sessions",
            Access::Gate,
        )
        .serve(200, "What was found", search),
        endpoint(
            Method::DELETE,
            "/v1/memory/{id}",
            "forgetMemory",
            "Take back something that an agent remembers",
            Access::Scope(KeyScope::Admin),
        )
        .serve(200, "What was forgotten", forget),
    ]
}

async fn search(ask: Ask<Wanted, Nothing>) -> Result<Reply<Memories>, Failed> {
    ask.principal.require_key()?;
    let Wanted { q, session, limit } = ask.query;
    if q.trim().is_empty() || q.chars().count() > LONGEST {
        return Err(refuse(&format!("`q` has 1 to {LONGEST} characters")).into());
    }
    let limit = limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(refuse("`limit` is from 1 to 100").into());
    }
    let session = session.as_deref().map(SessionName::parse).transpose();
    let session = session.map_err(|error| refuse(&error.to_string()))?;
    let sees_all = ask.principal.require(KeyScope::Read).is_ok();
    let (gate, own) = (ask.app.gate.clone(), ask.principal.account());
    let is_own = move |session: &SessionName| {
        own.is_some_and(|key| gate.is_session_of(session.as_str(), key))
    };
    if let Some(session) = session.as_ref().filter(|session| !sees_all && !is_own(session)) {
        // What is not one's own is not there.
        return Err(Error::from(NotFound::new("session", session.as_str())).into());
    }
    let (agents, by) = (ask.app.agents.clone(), ask.principal);
    let work = move || {
        let memory = Arc::clone(agents.memory());
        match (session, sees_all) {
            (Some(session), _) => found(&memory, Some(session.as_str()), &q, limit),
            (None, true) => found(&memory, None, &q, limit),
            (None, false) => {
                let own = agents.sessions(&by)?.into_iter().map(|session| session.session_id);
                in_each(&memory, own.filter(&is_own), &q, limit)
            }
        }
    };
    let turn = AT_ONCE.acquire().await;
    let done = tokio::task::spawn_blocking(move || {
        // Held until the search ends, also where nobody waits for it any more.
        let _turn = turn;
        work()
    })
    .await;
    let found = done.unwrap_or_else(|_| Err(Internal::new("searching ended early").into()))?;
    Ok(Reply::ok(Memories { memories: found.into_iter().map(Shown::from).collect() }))
}

fn found(
    memory: &Memory,
    session: Option<&str>,
    text: &str,
    limit: usize,
) -> Result<Vec<Found>, Error> {
    let query = Query { session, text, limit, ..Query::default() };
    memory.search(&query).map_err(failed)
}

fn failed(error: MemoryError) -> Error {
    match error {
        MemoryError::Busy => Conflict::new(Clean::new(&error.to_string())).into(),
        error => Internal::new(error.to_string()).into(),
    }
}

/// The best of several sessions. A session is a wall, so that each is searched by itself.
fn in_each(
    memory: &Memory,
    sessions: impl Iterator<Item = SessionName>,
    text: &str,
    limit: usize,
) -> Result<Vec<Found>, Error> {
    let mut all = Vec::new();
    for session in sessions.take(MOST_SESSIONS) {
        all.extend(found(memory, Some(session.as_str()), text, limit)?);
    }
    all.sort_by(|one, other| other.score.total_cmp(&one.score));
    all.truncate(limit);
    Ok(all)
}

async fn forget(ask: Ask<Nothing, Nothing>) -> Result<Reply<Forgotten>, Failed> {
    let unknown = || Error::from(NotFound::new("memory", ask.part("id")));
    let id = MemoryId::parse(ask.part("id")).map_err(|_| unknown())?;
    let memory = Arc::clone(ask.app.agents.memory());
    let found = memory.get(id).map_err(failed)?.ok_or_else(unknown)?;
    // First the record of it: what is gone could not be told any more.
    let details = serde_json::json!({"memory": id.to_string(), "turn": found.turn});
    let (gate, by) = (&ask.app.gate, &ask.principal);
    gate.record_session_change(by, &found.session, "memory_forgotten", details).await?;
    let done = tokio::task::spawn_blocking(move || memory.take_back(id)).await;
    let done = done.map_err(|_| Internal::new("forgetting ended early")).map_err(Error::from)?;
    let record = done.map_err(failed)?.ok_or_else(unknown)?;
    Ok(Reply::ok(Forgotten {
        id: record.id.to_string(),
        turn: record.turn,
        at: rfc3339(record.at_ms),
        excerpt: record.beginning(),
        session: record.session,
    }))
}
