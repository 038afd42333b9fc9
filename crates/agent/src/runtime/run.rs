//! Running turns: who may, with what, one at a time in a session; and what comes of it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_contract::{
    Error, KeyScope, Urgency,
    error::{Conflict, Internal, InvalidRequest, NotFound},
    id::RunId,
    text::{Clean, hex},
};
use tollgate_gate::{Allowance, Gate, Principal};
use tollgate_memory::Memory;
use tollgate_models::Models;
use tollgate_policy::{Layers, Policy};
use tollgate_protocol::{Checkpoint, SessionName, ToolText};

use super::{
    journal::{Event, Sink, kinds},
    live::{LiveWorld, capabilities},
    opened::{LiveSink, Opened, open, saved_event, unreadable},
    session::{CUT_OFF, NOTE_CUT_OFF, SessionFolder, SessionSummary, SessionView},
    settings::{AgentConfig, Budget, BudgetDefaults, ModelChoice, PolicyDefault, SessionSettings},
    turn::{ModelInfo, Setup, Totals, Turn, TurnError},
    world::Stop,
};

/// The longest message of a person.
const LONGEST_INPUT: usize = 256 * 1024;
/// How many turns run at once, unless it is configured.
const AT_ONCE: usize = 16;
/// How many files the checkpoint names.
const TAIL: usize = 4;
/// Of how many sessions something is known, beyond what is on disk.
const MOST_KNOWN: usize = 10_000;

/// What happens in a turn, as it happens.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// A piece of what the person sees.
    Text(String),
    /// A piece of what the model thinks aloud.
    Reasoning(String),
    /// What was shown of the answer so far is taken back.
    Retract,
    /// A step, as the trace has it.
    Step(Event),
}

impl AgentEvent {
    /// A step that no trace has.
    pub(crate) fn step(now_ms: i64, kind: &str, data: Value) -> Self {
        Self::Step(Event::new(now_ms, kind, data))
    }
}

/// Hears what happens in a turn.
pub type Listener = Arc<dyn Fn(AgentEvent) + Send + Sync>;

/// A turn that is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnRequest {
    /// What the person says.
    pub input: String,
    /// What the turn may take; the session's or the usual budget where nothing is said.
    #[serde(default)]
    pub budget: Budget,
    /// A policy for this turn. It can only narrow.
    #[serde(default)]
    pub policy: Option<Policy>,
    /// The model, by its name in the configuration.
    #[serde(default)]
    pub model: Option<String>,
    /// How much it matters.
    #[serde(default = "normal")]
    pub urgency: Urgency,
}

fn normal() -> Urgency {
    Urgency::Normal
}

impl TurnRequest {
    /// A turn that says this, and nothing else.
    pub fn new(input: impl Into<String>) -> Self {
        let (budget, policy, model) = (Budget::default(), None, None);
        Self { input: input.into(), budget, policy, model, urgency: normal() }
    }
}

/// What a turn came to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TurnReport {
    /// The session.
    #[schemars(with = "String")]
    pub session_id: SessionName,
    /// The turn.
    pub turn: u64,
    /// The run that its calls belong to.
    #[schemars(with = "String")]
    pub run_id: RunId,
    /// Did it do what it was asked?
    pub ok: bool,
    /// Why not.
    pub error: Option<TurnError>,
    /// Why it stopped early.
    pub stop: Option<Stop>,
    /// What the person sees.
    pub text: String,
    /// What it took.
    pub totals: Totals,
    /// What it might have taken.
    pub budget: Budget,
    /// What a reader should know: a turn before this one that was cut off, a copy that was used.
    pub warnings: Vec<String>,
}

/// Makes a folder the root of a session's tools.
pub type BindRoot = Arc<dyn Fn(&str, Option<&Path>) -> Result<(), String> + Send + Sync>;

/// Runs turns. Clones share it.
#[derive(Clone)]
pub struct Runtime {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) gate: Gate,
    models: Models,
    memory: Arc<Memory>,
    /// The folder of all sessions.
    pub(super) folder: PathBuf,
    config: RwLock<AgentConfig>,
    bind_root: BindRoot,
    running: Mutex<HashMap<SessionName, Running>>,
    /// What this process has done last in each session.
    known: Mutex<HashMap<SessionName, Known>>,
    slots: Semaphore,
    pub(super) tasks: TaskTracker,
    stop: CancellationToken,
}

struct Running {
    cancel: CancellationToken,
    doing: Doing,
}

/// What is done in a session while nobody else may do anything there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// A turn runs.
    Turn,
    /// A person's note is written down.
    Note,
}

impl Doing {
    fn conflict(self, session: &SessionName) -> Error {
        let problem = match self {
            Self::Turn => format!(
                "a turn is running in the session {session}; wait for it, or cancel it first"
            ),
            Self::Note => {
                format!("somebody is noting something in the session {session}; try again")
            }
        };
        Conflict::new(Clean::already(problem)).into()
    }
}

/// What is known of a session whose last turn this process has run.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// The tools that its trace tells of.
    tools_sha256: String,
    /// The revision that was saved last: if it is still there, no turn was cut off.
    pub(super) revision: Option<u64>,
}

impl Runtime {
    /// A runtime whose sessions are in `folder`.
    pub fn new(
        gate: Gate,
        models: Models,
        memory: Memory,
        folder: impl Into<PathBuf>,
        config: AgentConfig,
        bind_root: BindRoot,
    ) -> Self {
        let at_once = config.turns_at_once.and_then(|n| usize::try_from(n).ok());
        let inner = Inner {
            gate,
            models,
            memory: Arc::new(memory),
            folder: folder.into(),
            config: RwLock::new(config),
            bind_root,
            running: Mutex::default(),
            known: Mutex::default(),
            slots: Semaphore::new(at_once.unwrap_or(AT_ONCE)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let runtime = Self { inner: Arc::new(inner) };
        runtime.bind_roots();
        runtime
    }

    /// Lets the roots hold that were decided before: also calls outside of turns work there.
    fn bind_roots(&self) {
        for session in SessionFolder::list(&self.inner.folder).unwrap_or_default() {
            let settings = self.folder(&session).settings().unwrap_or_default();
            if let Some(root) = settings.root
                && let Err(problem) = (self.inner.bind_root)(session.as_str(), Some(&root))
            {
                tracing::warn!(%session, problem, "the root of a session cannot be used");
            }
        }
    }

    /// Lets another configuration hold for the turns to come.
    pub fn configure(&self, config: AgentConfig) {
        *self.inner.config.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// What is remembered.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.inner.memory
    }

    /// The folder of a session.
    pub fn folder(&self, session: &SessionName) -> SessionFolder {
        SessionFolder::new(&self.inner.folder, session.clone())
    }

    /// Runs a turn to its end. Whoever goes away cancels it, and what came of it is kept all the same.
    pub async fn run(
        &self,
        by: &Principal,
        session: &SessionName,
        request: TurnRequest,
        listener: Listener,
    ) -> Result<TurnReport, Error> {
        self.run_until(by, session, request, listener, CancellationToken::new()).await
    }

    /// Runs a turn to its end, or until it is cancelled.
    pub async fn run_until(
        &self,
        by: &Principal,
        session: &SessionName,
        request: TurnRequest,
        listener: Listener,
        cancel: CancellationToken,
    ) -> Result<TurnReport, Error> {
        by.require(KeyScope::Call)?;
        if request.input.trim().is_empty() || request.input.len() > LONGEST_INPUT {
            return Err(invalid(format!("`input` has 1 to {LONGEST_INPUT} bytes of text")));
        }
        request
            .budget
            .check()
            .map_err(|(field, problem)| invalid(format!("`budget.{field}` {problem}")))?;
        // A request that cannot be takes no name.
        self.inner.gate.open_session(by, session.as_str()).await?;
        let place = self.inner.enter(session, &cancel, Doing::Turn)?;
        let gives_up = place.cancel.clone().drop_guard();
        let (inner, by) = (Arc::clone(&self.inner), by.clone());
        let task = self.inner.tasks.spawn(async move {
            // Waiting for a slot is cancelled like everything else.
            let slot = tokio::select! {
                slot = inner.slots.acquire() => slot.ok(),
                () = place.cancel.cancelled() => None,
            };
            let ended = inner.turn(&by, &place, request, listener).await;
            drop((slot, place));
            ended
        });
        let ended = task.await;
        gives_up.disarm();
        ended.unwrap_or_else(|_| Err(Internal::new("the task of a turn ended early").into()))
    }

    /// Stops the turn that runs in a session. Says whether there was one. Whoever may only look stops nothing.
    pub fn cancel(&self, by: &Principal, session: &SessionName) -> Result<bool, Error> {
        self.may_see(by, session)?;
        if !self.is_own(by, session) {
            by.require(KeyScope::Admin)?;
        }
        let running = self.inner.running();
        let running = running.get(session).filter(|running| running.doing == Doing::Turn);
        running.inspect(|running| running.cancel.cancel());
        Ok(running.is_some())
    }

    /// Decides something for a session. Only an operator does.
    pub fn set(
        &self,
        by: &Principal,
        session: &SessionName,
        settings: &SessionSettings,
    ) -> Result<(), Error> {
        by.require(KeyScope::Admin)?;
        if let Some(running) = self.inner.running().get(session) {
            return Err(running.doing.conflict(session));
        }
        // What is kept is where it really is, so that it can be told when that is another place.
        let real = |root: &PathBuf| {
            std::fs::canonicalize(root).map_err(|error| {
                invalid(format!("the folder {} cannot be used: {error}", root.display()))
            })
        };
        let root = settings.root.as_ref().map(real).transpose()?;
        let settings = &SessionSettings { root, ..settings.clone() };
        if let Some(budget) = &settings.budget {
            budget
                .check()
                .map_err(|(field, problem)| invalid(format!("`budget.{field}` {problem}")))?;
        }
        if let Some(ModelChoice::Own(config)) = &settings.model {
            config
                .check()
                .map_err(|(field, problem)| invalid(format!("`model.own.{field}` {problem}")))?;
        }
        self.inner.apply(session, settings)?;
        let kept = self.folder(session).set(settings);
        kept.map_err(|error| Internal::new(format!("settings cannot be kept: {error}")).into())
    }

    /// The sessions that the caller may see.
    pub fn sessions(&self, by: &Principal) -> Result<Vec<SessionSummary>, Error> {
        by.require_key()?;
        let names = SessionFolder::list(&self.inner.folder)
            .map_err(|error| Internal::new(format!("sessions cannot be listed: {error}")))?;
        let seen = names.into_iter().filter(|name| self.may_see(by, name).is_ok());
        Ok(seen.map(|name| self.summary(&name)).collect())
    }

    fn summary(&self, session: &SessionName) -> SessionSummary {
        let running = self.inner.runs_turn(session);
        SessionSummary { running, ..self.folder(session).summary() }
    }

    /// A session, to look at.
    pub fn view(&self, by: &Principal, session: &SessionName) -> Result<SessionView, Error> {
        self.may_see(by, session)?;
        let folder = self.folder(session);
        if !folder.exists() {
            return Err(not_found(session));
        }
        let running = self.inner.runs_turn(session);
        let mut view = folder.view().map_err(unreadable)?;
        if running {
            // It only looks so while a turn is under way.
            view.warnings.retain(|warning| warning != CUT_OFF && warning != NOTE_CUT_OFF);
        }
        // The ledger is the truth; what the checkpoint says of it is as old as the checkpoint.
        let owner = self.inner.gate.session_owner(session.as_str());
        if let Some(owner) = owner {
            let (granted, pending) = capabilities(&self.inner.gate, owner, session);
            view.checkpoint.state.project(granted, pending);
        }
        let memories = self.inner.memory.count(Some(session.as_str())).unwrap_or(0);
        Ok(SessionView { memories, running, ..view })
    }

    /// Passes if the session is the caller's, or the caller may see all.
    fn may_see(&self, by: &Principal, session: &SessionName) -> Result<(), Error> {
        by.require_key()?;
        if self.is_own(by, session) || by.require(KeyScope::Read).is_ok() {
            Ok(())
        } else {
            Err(not_found(session))
        }
    }

    fn is_own(&self, by: &Principal, session: &SessionName) -> bool {
        by.account().is_some_and(|key| self.inner.gate.is_session_of(session.as_str(), key))
    }

    /// Cancels every turn, and waits until they have ended.
    pub async fn drain(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

pub(super) fn invalid(problem: String) -> Error {
    InvalidRequest::new(Clean::already(problem), Vec::new()).into()
}

pub(super) fn not_found(session: &SessionName) -> Error {
    NotFound::new("session", session.as_str()).into()
}

/// A session that a turn runs in, or that somebody writes to. Nobody else does until it is dropped.
pub(super) struct Place {
    inner: Arc<Inner>,
    pub(super) session: SessionName,
    cancel: CancellationToken,
}

impl Drop for Place {
    fn drop(&mut self) {
        // Whoever watched for a cancellation is done.
        self.cancel.cancel();
        self.inner.running().remove(&self.session);
    }
}

impl Inner {
    fn running(&self) -> MutexGuard<'_, HashMap<SessionName, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, HashMap<SessionName, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn config(&self) -> AgentConfig {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn runs_turn(&self, session: &SessionName) -> bool {
        self.running().get(session).is_some_and(|running| running.doing == Doing::Turn)
    }

    pub(super) fn enter(
        self: &Arc<Self>,
        session: &SessionName,
        cancel: &CancellationToken,
        doing: Doing,
    ) -> Result<Place, Error> {
        let stops = self.stop.child_token();
        let mut running = self.running();
        if let Some(running) = running.get(session) {
            return Err(running.doing.conflict(session));
        }
        running.insert(session.clone(), Running { cancel: stops.clone(), doing });
        drop(running);
        // Either of the two stops it.
        let (asked, told) = (cancel.clone(), stops.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = asked.cancelled() => told.cancel(),
                () = told.cancelled() => {}
            }
        });
        Ok(Place { inner: Arc::clone(self), session: session.clone(), cancel: stops })
    }

    /// Lets what was decided for a session hold.
    fn apply(&self, session: &SessionName, settings: &SessionSettings) -> Result<(), Error> {
        (self.bind_root)(session.as_str(), settings.root.as_deref()).map_err(invalid)?;
        if !matches!(settings.model, Some(ModelChoice::Own(_))) {
            self.models.forget_session(session.as_str());
        }
        if let Some(ModelChoice::Own(config)) = &settings.model {
            self.models
                .set_for_session(session.as_str(), &own_model(session), (**config).clone())
                .map_err(|problem| invalid(problem.to_string()))?;
        }
        Ok(())
    }

    async fn turn(
        self: &Arc<Self>,
        by: &Principal,
        place: &Place,
        request: TurnRequest,
        listener: Listener,
    ) -> Result<TurnReport, Error> {
        let config = self.config();
        let folder = SessionFolder::new(&self.folder, place.session.clone());
        let mut opened = self.open(&folder, &config).await?;
        let settings = opened.settings.clone();
        self.apply(&place.session, &settings)?;
        let policy = session_policy(&settings, &config)?;
        let run = self.gate.new_run()?;
        let model = self.model(&place.session, &settings, request.model.as_deref())?;
        let mut budget = self.budget(&settings, &config, request.budget)?;
        if budget.usd_micros.is_some() && model.price.is_none() {
            if request.budget.usd_micros.is_some()
                || settings.budget.is_some_and(|b| b.usd_micros.is_some())
            {
                return Err(invalid(format!(
                    "the model {} has no price, so that nobody knows when the money is spent; give it one in the configuration, or the turn no money limit",
                    model.name
                )));
            }
            // The usual limit of money means nothing for a model that costs none.
            budget.usd_micros = None;
        }
        let narrow = request.policy.clone();
        let tools = self.tools(by, &policy, narrow.as_ref());
        let tools_sha256 = fingerprint(&tools);
        self.write_head(&mut opened, &folder, &config, by)?;
        self.write_tools(&mut opened, &place.session, &tools, &tools_sha256)?;
        let setup = Setup {
            session: place.session.clone(),
            turn: opened.checkpoint.revision + 1,
            run_id: run.to_string(),
            model,
            budget,
            roles: settings.roles.clone(),
            keep_messages: config.bounds().messages,
            trace_tail: opened.tail.clone(),
            tools_sha256,
            policy: json!({"session": policy, "turn": narrow}),
            revision: opened.checkpoint.revision,
        };
        let world = self.world(by, place, &setup, run, &request, policy, &config, &listener);
        let mut sink = LiveSink {
            writer: opened.writer,
            clock: self.gate.clock().clone(),
            listener: Arc::clone(&listener),
            survives_power_loss: self.gate.survives_power_loss(),
        };
        let turn = Turn::new(&world, &mut sink, &setup, &tools, &opened.checkpoint);
        let over = turn
            .run(&request.input)
            .await
            .map_err(|problem| Internal::new(format!("the turn cannot be recorded: {problem}")))?;
        self.save(&folder, &over.checkpoint, setup.revision, &mut sink).await?;
        Ok(TurnReport {
            session_id: place.session.clone(),
            turn: setup.turn,
            run_id: run,
            ok: over.error.is_none() && over.stop.is_none(),
            error: over.error,
            stop: over.stop,
            text: over.visible,
            totals: over.totals,
            budget: setup.budget,
            warnings: opened.warnings,
        })
    }

    /// Loads a session, and closes a turn that a crash cut off.
    async fn open(&self, folder: &SessionFolder, config: &AgentConfig) -> Result<Opened, Error> {
        let (folder, limits) = (folder.clone(), config.trace_limits());
        let now = self.gate.clock().now_ms();
        let saved = self.known().get(folder.session()).and_then(|known| known.revision);
        let opened = tokio::task::spawn_blocking(move || open(&folder, &limits, now, saved)).await;
        opened.map_err(|_| Internal::new("loading a session ended early"))?
    }

    /// Begins the next file of a trace where it is time to, and says which files the checkpoint will name.
    pub(super) fn write_head(
        &self,
        opened: &mut Opened,
        folder: &SessionFolder,
        config: &AgentConfig,
        by: &Principal,
    ) -> Result<(), Error> {
        let session = folder.session();
        let mut all_known = self.known();
        if all_known.len() > MOST_KNOWN {
            all_known.clear();
        }
        let known = all_known.entry(session.clone()).or_default();
        // Until it is saved again.
        known.revision = None;
        if opened.is_new || opened.writer.is_full(&config.trace_limits()) {
            if !opened.is_new {
                let begun = folder.traces().begin(&config.trace_limits());
                opened.writer = begun.map_err(|error| unwritable(session, &error))?;
            }
            let head = json!({
                "session": session, "key": by.account(), "version": env!("CARGO_PKG_VERSION"),
                "checkpoint": opened.checkpoint,
            });
            let head = Event::as_is(self.gate.clock().now_ms(), kinds::SESSION, head);
            opened.writer.write(&head).map_err(|error| unwritable(session, &error))?;
            opened.is_new = false;
            known.tools_sha256.clear();
        }
        let name = opened.writer.name();
        opened.tail.clone_from(&opened.checkpoint.trace_tail);
        if opened.tail.last() != Some(&name) {
            opened.tail.push(name);
        }
        let over = opened.tail.len().saturating_sub(TAIL);
        opened.tail.drain(..over);
        Ok(())
    }

    /// Writes the tools down, where the trace tells of others.
    fn write_tools(
        &self,
        opened: &mut Opened,
        session: &SessionName,
        tools: &[ToolText],
        tools_sha256: &str,
    ) -> Result<(), Error> {
        let mut all_known = self.known();
        let known = all_known.entry(session.clone()).or_default();
        if known.tools_sha256 != tools_sha256 {
            let data = json!({"sha256": tools_sha256, "tools": tools});
            let event = Event::as_is(self.gate.clock().now_ms(), kinds::TOOLS, data);
            opened.writer.write(&event).map_err(|error| unwritable(session, &error))?;
            tools_sha256.clone_into(&mut known.tools_sha256);
        }
        Ok(())
    }

    fn model(
        &self,
        session: &SessionName,
        settings: &SessionSettings,
        wanted: Option<&str>,
    ) -> Result<ModelInfo, Error> {
        // What an operator has decided for a session, its caller does not change.
        if let (Some(wanted), Some(chosen)) = (wanted, &settings.model)
            && *chosen != ModelChoice::Named(wanted.to_owned())
        {
            let problem = format!(
                "an operator has decided on a model for the session {session}; leave `model` (--model NAME) out, or have another decided on with --model URL"
            );
            return Err(invalid(problem));
        }
        let name = match (wanted, &settings.model) {
            (Some(wanted), _) => Some(wanted.to_owned()),
            (None, Some(ModelChoice::Named(name))) => Some(name.clone()),
            (None, Some(ModelChoice::Own(_))) => Some(own_model(session)),
            (None, None) => None,
        };
        let model = self
            .models
            .get(name.as_deref(), Some(session.as_str()))
            .map_err(|problem| invalid(problem.to_string()))?;
        let config = model.config();
        Ok(ModelInfo {
            name: model.name().to_owned(),
            native_tools: config.tools == tollgate_models::ToolMode::Native,
            context_tokens: config.context_tokens.into(),
            max_output_tokens: config.max_output_tokens.into(),
            tokenizer: model.tokenizer(),
            price: config.price,
        })
    }

    fn budget(
        &self,
        settings: &SessionSettings,
        config: &AgentConfig,
        asked: Budget,
    ) -> Result<Budget, Error> {
        let of_session = settings.budget.unwrap_or_default();
        let asked = asked.within(of_session);
        match config.default_budget {
            BudgetDefaults::On(usual) => Ok(asked.or(usual)),
            BudgetDefaults::Off(_) => {
                let is_whole = asked.rounds.is_some()
                    && asked.seconds.is_some()
                    && (asked.tokens.is_some() || asked.usd_micros.is_some());
                if is_whole {
                    return Ok(asked);
                }
                Err(invalid(
                    "the turn has no budget, and there is no usual one here: say rounds, seconds, and tokens or usd_micros".to_owned(),
                ))
            }
        }
    }

    /// The tools that a model is told of: those that may be called here.
    fn tools(&self, by: &Principal, policy: &Policy, narrow: Option<&Policy>) -> Vec<ToolText> {
        let Some(layers) = by.layers() else { return Vec::new() };
        let mut layers: Layers = layers.clone().with_session(policy.clone());
        if let Some(narrow) = narrow {
            layers = layers.with_call(narrow.clone());
        }
        let manifest = self.gate.manifest();
        let offered = manifest.entries().iter().filter(|tool| {
            let name = tool.name.as_str();
            // Models are asked by the runtime, and the list of tools is what this makes.
            let is_inner = name.starts_with("model.") || name.starts_with("manifest.");
            !is_inner && layers.shows(tool) && layers.offers(tool) && layers.reaches(tool)
        });
        offered
            .map(|tool| ToolText {
                name: tool.name.to_string(),
                description: tool.description.clone().unwrap_or_default(),
                schema: told_schema(tool.input_schema.clone().unwrap_or_default()),
            })
            .collect()
    }

    #[expect(clippy::too_many_arguments, reason = "everything that a turn's calls depend on")]
    fn world(
        &self,
        by: &Principal,
        place: &Place,
        setup: &Setup,
        run: RunId,
        request: &TurnRequest,
        policy: Policy,
        config: &AgentConfig,
        listener: &Listener,
    ) -> LiveWorld {
        let units = [("tokens", setup.budget.tokens), ("usd_micros", setup.budget.usd_micros)];
        let limits = units.into_iter().filter_map(|(unit, most)| Some((unit.to_owned(), most?, 0)));
        let seconds = setup.budget.seconds.unwrap_or(Budget::MOST_SECONDS);
        LiveWorld {
            gate: self.gate.clone(),
            by: by.clone(),
            session: place.session.clone(),
            run,
            turn: setup.turn,
            urgency: request.urgency,
            policy,
            narrow: request.policy.clone(),
            allowance: Allowance::new(limits),
            deadline: Instant::now() + Duration::from_secs(seconds),
            approval_wait: config.approval_wait_seconds.map(Duration::from_secs),
            cancel: place.cancel.clone(),
            memory: Arc::clone(&self.memory),
            embedding_model: config.embedding_model.clone(),
            embedded_as: Mutex::default(),
            embedding: Mutex::default(),
            listener: Arc::clone(listener),
        }
    }

    /// Remembers that a session is saved and its trace says so: opening it needs no look at the trace.
    pub(super) fn know_saved(&self, session: &SessionName, revision: u64) {
        if let Some(known) = self.known().get_mut(session) {
            known.revision = Some(revision);
        }
    }

    async fn save(
        &self,
        folder: &SessionFolder,
        checkpoint: &Checkpoint,
        expected: u64,
        sink: &mut LiveSink,
    ) -> Result<(), Error> {
        // First what leads to the checkpoint, then the checkpoint.
        sink.writer
            .sync()
            .map_err(|error| Internal::new(format!("the trace cannot be written: {error}")))?;
        let (file, to_save) = (folder.checkpoint(), checkpoint.clone());
        let saved = tokio::task::spawn_blocking(move || file.save(&to_save, expected)).await;
        saved.map_err(|_| Internal::new("saving a session ended early"))?.map_err(unreadable)?;
        // It is saved; that its record cannot be written is made good when the session is opened again.
        match sink.write(kinds::CHECKPOINT, saved_event(checkpoint)) {
            Ok(()) => self.know_saved(folder.session(), checkpoint.revision),
            Err(problem) => {
                tracing::warn!(problem, "the end of a turn is missing in its trace");
            }
        }
        Ok(())
    }
}

fn unwritable(session: &SessionName, error: &std::io::Error) -> Error {
    Internal::new(format!("the trace of {session} cannot be written: {error}")).into()
}

/// The name of the model that a session has for itself: no other session has one of that name.
pub(crate) fn own_model(session: &SessionName) -> String {
    format!("own:{session}")
}

fn session_policy(settings: &SessionSettings, config: &AgentConfig) -> Result<Policy, Error> {
    match (&settings.policy, &config.default_policy) {
        (Some(policy), _) => Ok(policy.clone()),
        (None, PolicyDefault::On(policy)) => Ok((**policy).clone()),
        (None, PolicyDefault::Off(_)) => Err(invalid(
            "the session has no policy, and there is no usual one here: an operator gives it one"
                .to_owned(),
        )),
    }
}

/// A schema without what tells a model nothing: which draft it is, and what its type is called in here.
fn told_schema(mut schema: Value) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.remove("$schema");
        members.remove("title");
    }
    schema
}

fn fingerprint(tools: &[ToolText]) -> String {
    let text = serde_json::to_vec(tools).unwrap_or_default();
    hex(&Sha256::digest(&text)).to_string()
}
