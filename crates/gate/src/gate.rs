//! The gate itself: what it is made of, how it starts and stops, and the whole path of one call.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_contract::{
    Call, Error, Manifest, Secret, ToolName,
    error::{Internal, OutcomeUnknown},
    event::Event,
    id::{ApprovalId, CallId, KeyId, RunId},
    text::Clean,
};
use tollgate_governor::GovernorConfig;
use tollgate_ledger::{Appended, Batch, Beside, Ledger, LedgerError, NewEvent, Reader, Subject};
use tollgate_policy::{Policy, PolicySet};

use crate::{
    Metrics,
    admit::Arrived,
    allowance::Allowance,
    clock::{self, Clock, SystemClock},
    consent::{ConsentSettings, Consents},
    event::{Deltas, Observer},
    governing::Governing,
    idempotency,
    keys::{KeyRecord, KeyRing, Principal},
    outcome::{CallFailure, ToolCallResult, Unfinished},
    registry::Registry,
    running::UnderWay,
    seal::Seal,
    session::Sessions,
    webhooks::Webhooks,
};

/// Where the calls are kept that run now, so that a crash leaves none without an end.
pub(crate) const RUNNING: &str = "running";
/// Where the keys are kept.
pub(crate) const KEYS: &str = "keys";
/// Where the gate keeps what it must know of itself.
const GATE: &str = "gate";
/// Where the last use of keys is kept.
pub(crate) const LAST_USE: &str = "key_last_use";

/// How many connections for reading are kept.
const MOST_READERS: usize = 8;

/// How a gate behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The data folder.
    pub data: PathBuf,
    /// How long a call may run, unless it asks for less.
    pub call_timeout: Duration,
    /// How long an executor may clean up after it was cancelled.
    pub cancel_grace: Duration,
    /// Accept that the gate's own secret was lost: what is remembered of Idempotency-Keys is then lost too.
    pub accept_new_secret: bool,
}

impl Settings {
    /// The usual behaviour, in this data folder.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            call_timeout: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(2),
            accept_new_secret: false,
        }
    }
}

/// What a gate is made of.
pub struct Parts {
    /// Where it records.
    pub ledger: Ledger,
    /// What can be called.
    pub registry: Registry,
    /// The server's policy, and policies by name.
    pub policies: PolicySet,
    /// What tells the time.
    pub clock: Arc<dyn Clock>,
    /// Pools, routes, and how the governor behaves.
    pub governor: GovernorConfig,
    /// How it behaves.
    pub settings: Settings,
    /// How people's answers are asked for.
    pub consent: ConsentSettings,
}

impl Parts {
    /// A gate with the machine's clock, the usual pool and no policy of its own.
    pub fn new(ledger: Ledger, registry: Registry, settings: Settings) -> Self {
        Self {
            ledger,
            registry,
            policies: PolicySet::default(),
            clock: Arc::new(SystemClock),
            governor: GovernorConfig::usual(),
            settings,
            consent: ConsentSettings::default(),
        }
    }
}

/// What a door may add to a call.
#[derive(Default, Clone)]
pub struct CallOptions {
    /// The policy of the session that the call belongs to. It can only narrow.
    pub session_policy: Option<Policy>,
    /// The call's own policy. It can only narrow.
    pub policy: Option<Policy>,
    /// How long the call may run, if less than the gate's own limit.
    pub timeout: Option<Duration>,
    /// How long the call may wait for room, and for a person's answer.
    pub wait: Duration,
    /// The approval that the call comes back with.
    pub approval: Option<ApprovalId>,
    /// The run that the call belongs to; a new one where none is given.
    pub run: Option<RunId>,
    /// Who hears the events of the run.
    pub observer: Option<Observer>,
    /// Who hears the pieces of an answer that a tool gives bit by bit.
    pub deltas: Option<Deltas>,
    /// Stops the call, and what came of it is answered all the same. Whoever only goes away hears nothing of it.
    pub cancel: Option<CancellationToken>,
    /// What the run that the call belongs to may take in all.
    pub allowance: Option<Arc<Allowance>>,
}

/// How the gate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// It answers and records.
    Ok,
    /// The ledger could not write the last time, and nothing is let through without it.
    Degraded,
}

/// The gate. Clones share it.
#[derive(Clone)]
pub struct Gate {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) registry: Registry,
    // Before the ledger: whoever closes the database last tidies it up, and a reader cannot.
    pub(crate) readers: Mutex<Vec<Reader>>,
    pub(crate) ledger: Ledger,
    keys: RwLock<KeyRing>,
    pub(crate) policies: RwLock<Arc<PolicySet>>,
    pub(crate) governing: Governing,
    pub(crate) webhooks: Webhooks,
    pub(crate) consents: Consents,
    pub(crate) sessions: Sessions,
    pub(crate) under_way: UnderWay,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) seal: Seal,
    pub(crate) settings: Settings,
    pub(crate) same_key: Arc<idempotency::Running>,
    pub(crate) metrics: Metrics,
    /// Changes of keys and policies happen one after the other.
    pub(crate) changing: Arc<tokio::sync::Mutex<()>>,
    degraded: Arc<AtomicBool>,
    pub(crate) tasks: TaskTracker,
    /// The gate stops: nobody waits for a person any more.
    pub(crate) closing: CancellationToken,
    stop: CancellationToken,
}

impl Gate {
    /// Opens the gate: reads the keys, and gives an end to every call that a crash interrupted.
    pub fn open(parts: Parts) -> Result<Self, Error> {
        let Parts { ledger, registry, policies, clock, governor, settings, consent } = parts;
        let seal = Seal::of_folder(&settings.data)?;
        let reader = ledger.reader()?;
        let keys = read_keys(&reader, &policies)?;
        let (metrics, degraded) = (Metrics::default(), Arc::new(AtomicBool::new(false)));
        let webhooks = Webhooks::read(&reader, &seal)?;
        let consents = Consents::read(&reader, consent)?;
        let sessions = Sessions::read(&reader)?;
        let governing = Governing::open(
            &ledger,
            &clock,
            &metrics,
            &degraded,
            (&settings.data, seal.hash(&[b"requests"])),
        )?;
        let inner = Inner {
            registry,
            ledger,
            readers: Mutex::new(vec![reader]),
            keys: RwLock::new(keys),
            policies: RwLock::new(Arc::new(policies)),
            governing,
            webhooks,
            consents,
            sessions,
            under_way: UnderWay::default(),
            clock,
            seal,
            settings,
            same_key: Arc::default(),
            metrics,
            changing: Arc::default(),
            degraded,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            stop: CancellationToken::new(),
        };
        inner.check_secret()?;
        inner.recover()?;
        inner.governing.start_with(governor)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The governor.
    pub fn governing(&self) -> &Governing {
        &self.inner.governing
    }

    /// The caller who presents this key, or none.
    pub fn identify(&self, presented: Option<&Secret>) -> Principal {
        let now = self.inner.clock.now_ms();
        self.inner.keys().identify(presented, now)
    }

    /// Takes a call through the whole path. It goes on in a task of its own: a caller who goes away
    /// cancels it, and what came of it is recorded all the same.
    pub async fn call(
        &self,
        call: Call,
        options: CallOptions,
    ) -> Result<ToolCallResult, Box<Unfinished>> {
        let now = self.inner.clock.now_ms();
        let (call_id, run_id) = match clock::call_ids(now) {
            Ok((call_id, run_id)) => (call_id, options.run.unwrap_or(run_id)),
            // Without randomness there are no ids, and no call.
            Err(error) => {
                let (call, run) = (CallId::from_parts(0, [0; 10]), RunId::from_parts(0, [0; 10]));
                return Err(CallFailure::new(run, call, &error).into());
            }
        };
        let cancelled = self.inner.stop.child_token();
        let gives_up = cancelled.clone().drop_guard();
        let (cancel, stop) = (options.cancel.clone(), cancelled.clone());
        let arrived =
            Arrived::new(Arc::clone(&self.inner), call, options, (call_id, run_id), cancelled);
        let mut task = self.inner.tasks.spawn(arrived.go());
        let ended = match cancel {
            None => task.await,
            Some(cancel) => tokio::select! {
                ended = &mut task => ended,
                () = cancel.cancelled() => {
                    stop.cancel();
                    task.await
                }
            },
        };
        gives_up.disarm();
        ended.unwrap_or_else(|_| {
            let error = Internal::new("the task of a call ended early").into();
            Err(CallFailure::new(run_id, call_id, &error).into())
        })
    }

    /// A name for a new run.
    pub fn new_run(&self) -> Result<RunId, Error> {
        clock::call_ids(self.inner.clock.now_ms()).map(|(_, run)| run)
    }

    /// Makes a session the caller's, unless it is another's.
    pub async fn open_session(&self, by: &Principal, session: &str) -> Result<(), Error> {
        self.inner.session(by, session).await
    }

    /// Records what an operator did to a session: `what` in one word, and what else there is to say.
    pub async fn record_session_change(
        &self,
        by: &Principal,
        session: &str,
        what: &str,
        details: serde_json::Value,
    ) -> Result<(), Error> {
        self.inner.session_changed(by, session, what, details).await
    }

    /// What can be called.
    pub fn manifest(&self) -> &Arc<Manifest> {
        self.inner.registry.manifest()
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.inner.ledger
    }

    /// Reads the ledger with a connection that is kept for it.
    pub fn read<T>(
        &self,
        f: impl FnOnce(&Reader) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.inner.read(f)
    }

    /// The person who runs the gate, for doors whose callers have proved to be that person by other means
    /// than a key.
    pub fn owner(&self) -> Principal {
        let now = self.inner.clock.now_ms();
        self.inner.keys().owner(now)
    }

    /// Is what it has acknowledged still there after a loss of power?
    pub fn survives_power_loss(&self) -> bool {
        self.inner.ledger.sync() == tollgate_ledger::Sync::Full
    }

    /// What tells the time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    /// How the gate is.
    pub fn health(&self) -> Health {
        if self.inner.degraded.load(Ordering::Relaxed) { Health::Degraded } else { Health::Ok }
    }

    /// What the gate counts.
    pub fn metrics(&self) -> &Metrics {
        &self.inner.metrics
    }

    /// How many calls are under way.
    pub fn calls_under_way(&self) -> usize {
        self.inner.tasks.len()
    }

    /// Waits until no call is under way, at most this long; then cancels what still runs and waits until
    /// that is recorded.
    pub async fn drain(&self, patience: Duration) {
        self.inner.tasks.close();
        self.inner.closing.cancel();
        if tokio::time::timeout(patience, self.inner.tasks.wait()).await.is_err() {
            self.inner.stop.cancel();
            self.inner.tasks.wait().await;
        }
        self.keep_last_use().await;
    }

    /// Notes that the daemon started, and with which configuration.
    pub fn record_start(
        &self,
        version: &str,
        configuration: &serde_json::Value,
    ) -> Result<(), Error> {
        let now = self.inner.clock.now_ms();
        let started = json!({"version": version, "tools": self.manifest().entries().len()});
        let events = vec![
            NewEvent::new(Event::SystemStarted, now, Subject::default(), &started)?,
            NewEvent::new(Event::ConfigApplied, now, Subject::default(), configuration)?,
        ];
        self.inner.append_now(events)
    }
}

impl Inner {
    /// Appends, and waits without stopping the thread.
    pub(crate) async fn append(
        &self,
        batch: impl Into<Batch>,
    ) -> Result<Vec<Appended>, LedgerError> {
        let (done, wait) = oneshot::channel();
        self.ledger.append_then(batch, move |result| {
            let _ = done.send(result);
        });
        let result = wait.await.unwrap_or(Err(LedgerError::Closed));
        self.note(result.as_ref().err());
        result
    }

    /// Appends, and stops the thread until it is done.
    pub(crate) fn append_now(&self, batch: impl Into<Batch>) -> Result<(), Error> {
        let result = self.ledger.append(batch);
        self.note(result.as_ref().err());
        result.map(drop).map_err(Error::from)
    }

    fn note(&self, failed: Option<&LedgerError>) {
        // What is too large is refused for itself; the ledger is well.
        let failed = failed.filter(|error| !matches!(error, LedgerError::TooLarge { .. }));
        if let Some(error) = failed {
            self.metrics.ledger_failures.inc();
            if !self.degraded.swap(true, Ordering::Relaxed) {
                tracing::error!(%error, "the ledger cannot write; nothing is let through");
            }
        } else if self.degraded.load(Ordering::Relaxed)
            && self.degraded.swap(false, Ordering::Relaxed)
        {
            tracing::info!("the ledger writes again");
        }
    }

    /// Reads with one of the connections that are kept for it.
    pub(crate) fn read<T>(
        &self,
        f: impl FnOnce(&Reader) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let reader = match kept {
            Some(reader) => reader,
            None => self.ledger.reader()?,
        };
        let result = f(&reader);
        let mut kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MOST_READERS {
            kept.push(reader);
        }
        result
    }

    /// The keys, to look at.
    pub(crate) fn keys(&self) -> RwLockReadGuard<'_, KeyRing> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The keys, to change.
    pub(crate) fn keys_mut(&self) -> RwLockWriteGuard<'_, KeyRing> {
        self.keys.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn policies(&self) -> Arc<PolicySet> {
        Arc::clone(&self.policies.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes sure that the gate's secret is the one that this ledger was written with. With another one no
    /// Idempotency-Key would be known, and what must run once would run again.
    fn check_secret(&self) -> Result<(), Error> {
        let key = b"secret".to_vec();
        let value = self.seal.fingerprint().to_vec();
        let kept = self.read(|reader| reader.kept(GATE, &key))?.map(|kept| kept.value);
        match kept {
            Some(kept) if kept == value => return Ok(()),
            Some(_) if !self.settings.accept_new_secret => {
                let problem = "the file gate.secret is not the one that this data folder was written with, and no Idempotency-Key would be known; restore it, or start with --new-secret";
                return Err(Internal::new(Clean::already(problem.to_owned())).into());
            }
            _ => {}
        }
        let put = Beside::Put { space: GATE, key, value, expires_ms: None };
        self.append_now(Batch { events: Vec::new(), beside: vec![put] })
    }

    /// Gives an end to the calls that ran when the process died: nobody knows what came of them.
    fn recover(&self) -> Result<(), Error> {
        let left = self.read(|reader| reader.kept_all(RUNNING))?;
        let mut batch = Batch::default();
        for kept in left {
            let space = RUNNING;
            match serde_json::from_slice::<RunningCall>(&kept.value) {
                Ok(call) => batch.events.push(call.unknown(self.clock.now_ms())?),
                Err(error) => {
                    tracing::error!(%error, "a call that was interrupted cannot be told by name")
                }
            }
            batch.beside.push(Beside::Delete { space, key: kept.key });
        }
        if batch.beside.is_empty() {
            return Ok(());
        }
        tracing::warn!(
            calls = batch.events.len(),
            "calls were interrupted; their outcome is unknown"
        );
        self.append_now(batch)
    }
}

/// A call that runs, as it is kept beside the chain.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct RunningCall {
    pub(crate) call: CallId,
    pub(crate) run: RunId,
    pub(crate) key: Option<KeyId>,
    pub(crate) tool: ToolName,
}

impl RunningCall {
    pub(crate) fn put(&self) -> Beside {
        Beside::Put {
            space: RUNNING,
            key: self.call.to_string().into_bytes(),
            value: serde_json::to_vec(self).unwrap_or_default(),
            expires_ms: None,
        }
    }

    pub(crate) fn delete(call: CallId) -> Beside {
        Beside::Delete { space: RUNNING, key: call.to_string().into_bytes() }
    }

    fn unknown(&self, now_ms: i64) -> Result<NewEvent, LedgerError> {
        let error = Error::from(OutcomeUnknown::new(self.tool.clone(), self.call)).object(None);
        let tool: Option<Arc<str>> = Some(self.tool.as_str().into());
        let subject = Subject { tool: tool.clone(), workload_id: tool, ..Subject::default() };
        let payload = json!({
            "callId": self.call, "runId": self.run, "keyId": self.key,
            "error": error, "outcomeUnknown": true,
        });
        NewEvent::new(Event::CallFailed, now_ms, subject, &payload)
    }
}

/// Reads the keys that are kept beside the chain.
fn read_keys(reader: &Reader, policies: &PolicySet) -> Result<KeyRing, Error> {
    let mut records = Vec::new();
    for kept in reader.kept_all(KEYS)? {
        let record: KeyRecord = serde_json::from_slice(&kept.value).map_err(|error| {
            Internal::new(format!("the record of a key cannot be read: {error}"))
        })?;
        records.push(record);
    }
    // Keys before the tokens that were made from them.
    records.sort_by_key(|record| record.parent.is_some());
    let mut ring = KeyRing::default();
    for record in records {
        ring.put(record, policies);
    }
    for kept in reader.kept_all(LAST_USE)? {
        let id = std::str::from_utf8(&kept.key).ok().and_then(|text| KeyId::parse(text).ok());
        let at = kept.value.try_into().ok().map(i64::from_le_bytes);
        if let (Some(id), Some(at)) = (id, at) {
            ring.set_last_used(id, at);
        }
    }
    Ok(ring)
}

/// How long something took, in whole milliseconds.
pub(crate) fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
