//! Agent sessions: what there is, what was decided for them, and their turns, whole or as they happen.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    http::{HeaderMap, Method, header},
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_util::sync::{CancellationToken, DropGuard};
use tollgate_agent::runtime::{
    AgentEvent, Budget, ModelChoice, NoteReport, PipelineRole, SessionSettings, SessionSummary,
    SessionView, TurnReport, TurnRequest,
};
use tollgate_contract::{Error, KeyScope, Urgency, error::Internal};
use tollgate_gate::Principal;
use tollgate_policy::Policy;
use tollgate_protocol::{LONGEST_ENTRY, LONGEST_SUMMARY, MOST_ENTRIES, PersonNote, SessionName};

use super::events::Open;
use crate::{
    endpoint::{Access, Ask, Endpoint, Json, Nothing, endpoint, from_value},
    reply::{Failed, Reply},
    request::refuse,
};

/// How long a stream waits for its first event: what cannot run at all is then an answer with a status of its own.
const SOON: Duration = Duration::from_secs(5);

/// The most that waits for somebody who reads slowly, in bytes.
const MOST_WAITING: usize = 32 * 1024 * 1024;

/// The most roles of a session.
const MOST_ROLES: usize = 8;

/// What stands in the place of a value that nobody is shown.
const HIDDEN: &str = "…";

/// The sessions that the caller may see.
#[derive(Debug, Serialize, JsonSchema)]
struct Sessions {
    /// The sessions, by name.
    sessions: Vec<SessionSummary>,
}

/// What is not finished.
#[derive(Debug, Serialize, JsonSchema)]
struct OpenLoops {
    /// What the session has open.
    open_loops: Vec<String>,
}

/// Whether something was stopped.
#[derive(Debug, Serialize, JsonSchema)]
struct Cancelled {
    /// Did a turn run?
    cancelled: bool,
}

/// A turn.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewTurn {
    /// What the person says.
    #[schemars(length(min = 1))]
    input: String,
    /// What it may take; the session's or the usual budget where nothing is said.
    #[serde(default)]
    #[schemars(with = "Option<Budget>")]
    budget: Option<Map<String, Value>>,
    /// A policy for this turn. It can only narrow.
    #[serde(default)]
    policy: Option<Map<String, Value>>,
    /// The model, by its name in the configuration.
    #[serde(default)]
    #[schemars(length(min = 1, max = 100))]
    model: Option<String>,
    /// How much it matters.
    #[serde(default)]
    urgency: Option<Urgency>,
}

/// What is to hold for a session. What is left out stays as it is; what is null is taken back.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewSettings {
    /// The folder that its tools work in, by its full path.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<String>")]
    root: Option<Option<PathBuf>>,
    /// Its model: `{"named": NAME}`, or `{"own": {…}}` with what a table `[models.NAME]` can say.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<Map<String, Value>>")]
    model: Option<Option<ModelChoice>>,
    /// The most that one of its turns may take.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<Budget>")]
    budget: Option<Option<Map<String, Value>>>,
    /// What its calls may do; it can only narrow what its key may do.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<Map<String, Value>>")]
    policy: Option<Option<Map<String, Value>>>,
    /// Its roles, the acting one last.
    #[serde(default, deserialize_with = "given")]
    #[schemars(with = "Option<Vec<PipelineRole>>", length(max = MOST_ROLES))]
    roles: Option<Option<Vec<PipelineRole>>>,
}

/// What a person notes in a session. At least one change is needed; all of it counts, or nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewNote {
    /// Goals to add.
    #[serde(default)]
    #[schemars(length(max = MOST_ENTRIES), inner(length(min = 1, max = LONGEST_ENTRY)))]
    add_goals: Vec<String>,
    /// Open loops to add.
    #[serde(default)]
    #[schemars(length(max = MOST_ENTRIES), inner(length(min = 1, max = LONGEST_ENTRY)))]
    add_open_loops: Vec<String>,
    /// Decisions to add.
    #[serde(default)]
    #[schemars(length(max = MOST_ENTRIES), inner(length(min = 1, max = LONGEST_ENTRY)))]
    add_decisions: Vec<String>,
    /// Constraints to add.
    #[serde(default)]
    #[schemars(length(max = MOST_ENTRIES), inner(length(min = 1, max = LONGEST_ENTRY)))]
    add_constraints: Vec<String>,
    /// Entries to take away, by their exact words, from whichever list holds them.
    #[serde(default)]
    #[schemars(length(max = MOST_ENTRIES))]
    remove: Vec<String>,
    /// Another summary; an empty one clears it.
    #[serde(default)]
    #[schemars(length(max = LONGEST_SUMMARY))]
    set_episode_summary: Option<String>,
    /// The revision that this is meant for. A session that has gone on is left as it is.
    #[serde(default)]
    revision: Option<u64>,
}

/// A member that is there, also when it is null.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let admin = Access::Scope(KeyScope::Admin);
    let get = |path, id, summary| endpoint(Method::GET, path, id, summary, Access::Gate);
    vec![
        get(
            "/v1/sessions",
            "listSessions",
            "Agent sessions; a key without the scope `read` sees its own",
        )
        .serve(200, "The sessions", list),
        get(
            "/v1/sessions/{session}",
            "getSession",
            "A session: its checkpoint, settings and last turns",
        )
        .serve(200, "The session", view),
        endpoint(
            Method::PUT,
            "/v1/sessions/{session}",
            "setSession",
            "Decide what a session runs with",
            admin,
        )
        .serve(200, "What holds now", set),
        get(
            "/v1/sessions/{session}/open-loops",
            "listOpenLoops",
            "What a session has not finished",
        )
        .serve(200, "What is open", open_loops),
        endpoint(
            Method::POST,
            "/v1/sessions/{session}/cancel",
            "cancelTurn",
            "Stop the turn that runs in a session; also for the key that it belongs to",
            Access::Gate,
        )
        .serve(200, "Whether one ran", cancel),
        endpoint(
            Method::POST,
            "/v1/sessions/{session}/notes",
            "noteSession",
            "Correct what a session's agent noted, between two turns",
            admin,
        )
        .serve(200, "What the session holds now, and what changed", note),
        endpoint(
            Method::POST,
            "/v1/sessions/{session}/turns",
            "runTurn",
            "Run a turn, and wait for it; with `Accept: text/event-stream` hear it as it happens",
            Access::Scope(KeyScope::Call),
        )
        .gives::<TurnReport>(200, "What the turn came to, also when it failed")
        .answers(
            200,
            "`delta` and `step` as they happen, and `done` or `error` at the end",
            "text/event-stream",
        )
        .serve_raw(turn),
    ]
}

/// The session that a path names.
fn session<Q, B>(ask: &Ask<Q, B>) -> Result<SessionName, Error> {
    SessionName::parse(ask.part("session")).map_err(|error| refuse(&error.to_string()))
}

/// Reads files without stopping others.
async fn reading<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Internal::new("reading a session ended early").into()))
}

async fn list(ask: Ask<Nothing, Nothing>) -> Result<Reply<Sessions>, Failed> {
    let (agents, by) = (ask.app.agents.clone(), ask.principal);
    let sessions = reading(move || agents.sessions(&by)).await?;
    Ok(Reply::ok(Sessions { sessions }))
}

async fn look(ask: &Ask<Nothing, Nothing>) -> Result<SessionView, Error> {
    let (agents, by, session) = (ask.app.agents.clone(), ask.principal.clone(), session(ask)?);
    reading(move || agents.view(&by, &session)).await
}

async fn view(ask: Ask<Nothing, Nothing>) -> Result<Reply<SessionView>, Failed> {
    let mut view = look(&ask).await?;
    view.settings = shown(view.settings, &ask.principal);
    Ok(Reply::ok(view))
}

async fn open_loops(ask: Ask<Nothing, Nothing>) -> Result<Reply<OpenLoops>, Failed> {
    let view = look(&ask).await?;
    Ok(Reply::ok(OpenLoops { open_loops: view.checkpoint.state.open_loops }))
}

async fn cancel(ask: Ask<Nothing, Nothing>) -> Result<Reply<Cancelled>, Failed> {
    let cancelled = ask.app.agents.cancel(&ask.principal, &session(&ask)?)?;
    Ok(Reply::ok(Cancelled { cancelled }))
}

/// Settings as they are shown: where folders and servers are concerns operators, and what headers say nobody.
fn shown(mut settings: SessionSettings, to: &Principal) -> SessionSettings {
    if to.require(KeyScope::Read).is_err() {
        settings.root = None;
        settings.model = settings.model.filter(|model| matches!(model, ModelChoice::Named(_)));
    }
    if let Some(ModelChoice::Own(model)) = &mut settings.model {
        model.headers.values_mut().for_each(|value| HIDDEN.clone_into(value));
    }
    settings
}

async fn set(ask: Ask<Nothing, Json<NewSettings>>) -> Result<Reply<SessionSettings>, Failed> {
    let session = session(&ask)?;
    let (app, by) = (Arc::clone(&ask.app), ask.principal);
    let new = ask.body.0;
    let changed = new.changed();
    // What two operators say at once is put together, one after the other.
    let turn = Arc::clone(&app.settings_turn).lock_owned().await;
    whole(async move {
        let (agents, who, of) = (app.agents.clone(), by.clone(), session.clone());
        let settings = reading(move || {
            let mut settings = agents.folder(&of).settings().map_err(Internal::new)?;
            new.apply(&mut settings)?;
            agents.set(&who, &of, &settings)?;
            drop(turn);
            Ok(shown(settings, &who))
        });
        let settings = settings.await?;
        let details = json!({"changed": changed});
        app.gate.record_session_change(&by, session.as_str(), "settings", details).await?;
        Ok(Reply::ok(settings))
    })
    .await
}

/// Does what was begun to its end, also where whoever asked has gone.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, Failed>> + Send + 'static,
) -> Result<T, Failed> {
    let done = tokio::spawn(work).await;
    done.unwrap_or_else(|_| Err(Error::from(Internal::new("a change ended early")).into()))
}

async fn note(ask: Ask<Nothing, Json<NewNote>>) -> Result<Reply<NoteReport>, Failed> {
    let session = session(&ask)?;
    let new = ask.body.0;
    let note = PersonNote {
        add_goals: new.add_goals,
        add_open_loops: new.add_open_loops,
        add_decisions: new.add_decisions,
        add_constraints: new.add_constraints,
        remove: new.remove,
        set_episode_summary: new.set_episode_summary,
    };
    let (app, by) = (Arc::clone(&ask.app), ask.principal);
    whole(async move {
        let noted = app.agents.note(&by, &session, note, new.revision).await?;
        if !noted.added.is_empty() || !noted.removed.is_empty() || noted.summary_changed {
            let details = json!({
                "revision": noted.revision, "added": noted.added.len(),
                "removed": noted.removed.len(), "summary": noted.summary_changed,
            });
            app.gate.record_session_change(&by, session.as_str(), "note", details).await?;
        }
        Ok(Reply::ok(noted))
    })
    .await
}

impl NewSettings {
    /// What it decides on, in the words of the request.
    fn changed(&self) -> Vec<&'static str> {
        let said = [
            ("root", self.root.is_some()),
            ("model", self.model.is_some()),
            ("budget", self.budget.is_some()),
            ("policy", self.policy.is_some()),
            ("roles", self.roles.is_some()),
        ];
        said.into_iter().filter(|(_, is_said)| *is_said).map(|(name, _)| name).collect()
    }

    fn apply(self, settings: &mut SessionSettings) -> Result<(), Error> {
        if let Some(root) = self.root {
            if root.as_ref().is_some_and(|root| !root.is_absolute()) {
                return Err(refuse("`root` is the full path of a folder, such as /home/me/notes"));
            }
            settings.root = root;
        }
        if let Some(model) = self.model {
            settings.model = model;
        }
        if let Some(budget) = self.budget {
            settings.budget = budget.map(read_budget).transpose()?;
        }
        if let Some(policy) = self.policy {
            settings.policy = policy.map(read_policy).transpose()?;
        }
        if let Some(roles) = self.roles {
            let roles = roles.unwrap_or_default();
            if roles.len() > MOST_ROLES {
                return Err(refuse(&format!("`roles` has at most {MOST_ROLES} entries")));
            }
            settings.roles = roles;
        }
        Ok(())
    }
}

/// Reads a budget. It is a map until here, because a list would pass for one otherwise.
fn read_budget(budget: Map<String, Value>) -> Result<Budget, Error> {
    #[derive(Deserialize)]
    struct Of {
        budget: Budget,
    }
    from_value(json!({"budget": budget})).map(|of: Of| of.budget)
}

fn read_policy(policy: Map<String, Value>) -> Result<Policy, Error> {
    let read = Policy::from_json(&Value::Object(policy));
    read.map_err(|error| refuse(&format!("`policy`: {error}")))
}

impl NewTurn {
    fn read(self) -> Result<TurnRequest, Error> {
        Ok(TurnRequest {
            budget: self.budget.map(read_budget).transpose()?.unwrap_or_default(),
            policy: self.policy.map(read_policy).transpose()?,
            model: self.model,
            urgency: self.urgency.unwrap_or(Urgency::Normal),
            ..TurnRequest::new(self.input)
        })
    }
}

/// What a stream is told.
enum Told {
    Event(AgentEvent),
    Ended(Result<TurnReport, Error>),
}

/// A turn that somebody listens to. Whoever stops listening cancels it.
struct Listening {
    heard: UnboundedReceiver<Told>,
    /// What was told and not heard yet, in bytes.
    waiting: Arc<AtomicUsize>,
    first: Option<Told>,
    is_over: bool,
    _leaves: DropGuard,
    _open: Open,
}

async fn turn(ask: Ask<Nothing, Json<NewTurn>>) -> Result<Response, Failed> {
    let session = session(&ask)?;
    let streams = wants_events(&ask.headers);
    let (app, by, request) = (ask.app, ask.principal, ask.body.0.read()?);
    let agents = app.agents.clone();
    if !streams {
        let report = agents.run(&by, &session, request, Arc::new(|_| {})).await?;
        return Ok(Reply::ok(report).response());
    }
    let (tell, mut heard) = unbounded_channel();
    let cancel = CancellationToken::new();
    let leaves = cancel.clone().drop_guard();
    let waiting = Arc::new(AtomicUsize::new(0));
    let (counted, gives_up) = (Arc::clone(&waiting), cancel.clone());
    tokio::spawn(async move {
        let teller = tell.clone();
        let listener = Arc::new(move |event: AgentEvent| {
            let size = weight(&event);
            // Whoever has stopped reading has gone away, as far as a turn is concerned.
            if counted.fetch_add(size, Ordering::Relaxed) + size > MOST_WAITING {
                gives_up.cancel();
                return;
            }
            // Nobody listens any more only when the turn is being cancelled.
            let _ = teller.send(Told::Event(event));
        });
        let ended = agents.run_until(&by, &session, request, listener, cancel).await;
        let _ = tell.send(Told::Ended(ended));
    });
    let first = tokio::time::timeout(SOON, heard.recv()).await.ok().flatten();
    if let Some(Told::Ended(Err(error))) = first {
        return Err(error.into());
    }
    let open = Open::new(&app);
    let listening =
        Listening { heard, waiting, first, is_over: false, _leaves: leaves, _open: open };
    let events = stream::unfold(listening, async |mut listening| {
        let event = listening.next().await?;
        Some((Ok::<_, Error>(event), listening))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// What an event takes while it waits to be read, about.
fn weight(event: &AgentEvent) -> usize {
    let text = match event {
        AgentEvent::Text(text) | AgentEvent::Reasoning(text) => text.len(),
        AgentEvent::Retract => 0,
        AgentEvent::Step(step) => step.data.to_string().len(),
    };
    text + 128
}

/// Does the caller want events as they happen?
fn wants_events(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|text| text.split(','));
    kinds.any(|kind| {
        let name = kind.split(';').next().unwrap_or_default().trim();
        name.eq_ignore_ascii_case("text/event-stream")
    })
}

impl Listening {
    async fn next(&mut self) -> Option<Event> {
        if self.is_over {
            return None;
        }
        let told = match self.first.take() {
            Some(told) => told,
            None => self.heard.recv().await?,
        };
        if let Told::Event(event) = &told {
            self.waiting.fetch_sub(weight(event), Ordering::Relaxed);
        }
        let (name, data) = match told {
            Told::Event(AgentEvent::Text(text)) => ("delta", json!({"text": text})),
            Told::Event(AgentEvent::Reasoning(text)) => ("delta", json!({"reasoning": text})),
            Told::Event(AgentEvent::Retract) => ("delta", json!({"retract": true})),
            Told::Event(AgentEvent::Step(step)) => ("step", json!(step)),
            Told::Ended(ended) => {
                self.is_over = true;
                match ended {
                    Ok(report) => ("done", json!(report)),
                    Err(error) => {
                        tracing::warn!(problem = %error.operator(), "a turn ended early");
                        ("error", json!(error.object(None)))
                    }
                }
            }
        };
        Some(Event::default().event(name).data(data.to_string()))
    }
}
