//! The governor at work: its decisions are made on the ledger's own thread, in the order in which they are
//! recorded, right before they are stored. So state and record never disagree, whatever happens at the same
//! time; and when a commit fails, everything in it is refused and the state is made again from what is stored.

mod asked;
mod live;
pub(crate) mod recover;
mod shown;

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::sync::oneshot;
use tollgate_contract::{
    Error,
    error::{Conflict, Internal, InvalidRequest, NotFound},
    id::IntentId,
    redact::redact_text,
    text::Clean,
};
use tollgate_governor::{
    About, Asker, Configured, Decision, Effect, Event, Fresh, GovernorConfig, Halt, Intent, Named,
    Observation, Per, ReportRefused, Setup, Target,
};
use tollgate_ledger::{Appended, Batch, Beside, Head, Ledger, LedgerError, NewEvent, Reader, Work};

use crate::{clock::Clock, metrics::Metrics};

pub use asked::{Asked, UsageReport};
use live::Live;
pub use live::written;
use recover::Taken;
pub use shown::{PoolForecast, PoolReading};

/// Where the names of identities are kept.
pub(crate) const IDENTITIES: &str = "identities";
/// Where the free text is kept that came with intents.
const CONTEXTS: &str = "contexts";
/// How many names are remembered to be no secrets.
const MOST_CLEAN: usize = 8192;
/// How long it is kept.
const CONTEXT_KEPT_MS: i64 = 30 * 24 * 60 * 60 * 1000;

/// The governor at work. Clones share it.
#[derive(Clone)]
pub struct Governing {
    shared: Arc<Shared>,
    ledger: Ledger,
}

/// What the clones share, and the ledger's thread with them.
pub(crate) struct Shared {
    live: Mutex<Live>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    degraded: Arc<AtomicBool>,
    /// Names that are known to be no secrets.
    clean: RwLock<HashSet<u64>>,
    keyless: AtomicBool,
    folder: PathBuf,
    /// Told of snapshots that are ready to be written. Kept here so that it ends with the governor.
    snapshots: std::sync::mpsc::SyncSender<Taken>,
    /// The event that the last snapshot was taken behind.
    snapshot_seq: AtomicU64,
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless somebody decides at this moment: then it is looked at again soon. To wait would stop a
    /// thread that serves others.
    fn try_live(&self) -> Option<MutexGuard<'_, Live>> {
        match self.live.try_lock() {
            Ok(live) => Some(live),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes a snapshot from time to time, after a commit: then the state is what the events up to `head` lead
    /// to. It saves time at the next start, whatever the events are; one that nobody has time for is left out.
    fn snapshot_if_due(&self, head: Head) {
        let since = head.seq.saturating_sub(self.snapshot_seq.load(Ordering::Relaxed));
        if since < SNAPSHOT_EVERY {
            return;
        }
        let live = self.live();
        // A large state is copied less often: it costs in proportion to what happened since.
        let holds = u64::try_from(live.governor.known_holds()).unwrap_or(u64::MAX);
        if since < holds.saturating_mul(2) || live.broken().is_some() {
            return;
        }
        self.snapshot_seq.store(head.seq, Ordering::Relaxed);
        let _ = self.snapshots.try_send(Taken::new(live.governor.snapshot(), head));
    }
}

/// After how many events a snapshot is taken.
const SNAPSHOT_EVERY: u64 = 100_000;

/// What came of something that was decided on the ledger's thread.
struct Made<T> {
    events: Vec<Event>,
    beside: Vec<Beside>,
    gives: T,
}

impl<T> Made<T> {
    fn new(events: Vec<Event>, gives: T) -> Self {
        Self { events, beside: Vec::new(), gives }
    }
}

/// Something that is decided on the ledger's thread.
struct Deciding<T, F> {
    shared: Arc<Shared>,
    decide: Option<F>,
    gives: Option<Result<T, Error>>,
    tell: oneshot::Sender<Result<T, Error>>,
}

impl<T, F> Work for Deciding<T, F>
where
    T: Send + 'static,
    F: FnOnce(&mut Live, i64) -> Result<Made<T>, Error> + Send + 'static,
{
    fn make(&mut self) -> Batch {
        let Some(decide) = self.decide.take() else { return Batch::default() };
        let mut live = self.shared.live();
        if let Some(problem) = live.broken() {
            // Nothing is decided on a state that cannot be trusted. The ledger takes a panic for a failure,
            // and then it is tried again to make the state from what is stored.
            std::panic::resume_unwind(Box::new(problem.to_owned()));
        }
        let now = live.read_time(&*self.shared.clock);
        let before = live.governor.applied();
        let made = decide(&mut live, now).and_then(|made| {
            let events: Result<Vec<NewEvent>, LedgerError> =
                made.events.iter().map(written).collect();
            Ok((events?, made.beside, made.gives))
        });
        let (events, beside, gives) = match made {
            Ok(made) => made,
            Err(error) if live.governor.applied() == before => {
                self.gives = Some(Err(error));
                return Batch::default();
            }
            // Something was applied that is not recorded. The ledger takes a panic for a failure, and has
            // the state made again from what is stored.
            Err(error) => std::panic::resume_unwind(Box::new(error.operator())),
        };
        self.gives = Some(Ok(gives));
        Batch { events, beside }
    }

    fn done(self: Box<Self>, result: Result<&[Appended], LedgerError>) {
        let Self { shared, gives, tell, .. } = *self;
        // Where nothing was to be stored, nothing is known of whether it can be.
        let told = match &result {
            Ok([]) => None,
            Ok(_) => Some(false),
            Err(_) => Some(true),
        };
        if let Some(failed) = told
            && shared.degraded.load(Ordering::Relaxed) != failed
        {
            shared.degraded.store(failed, Ordering::Relaxed);
        }
        let answer = match (result, gives) {
            (Ok(_), Some(gives)) => gives,
            (Err(error), _) => {
                shared.metrics.ledger_failures.inc();
                Err(error.into())
            }
            (Ok(_), None) => Err(Internal::new("a decision was not made").into()),
        };
        let _ = tell.send(answer);
    }
}

impl Governing {
    /// Starts from what is recorded. Nothing is decided yet: the configuration that holds is applied by
    /// [`Governing::configure`].
    pub(crate) fn open(
        ledger: &Ledger,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
        degraded: &Arc<AtomicBool>,
        (folder, hash_key): (&Path, [u8; 32]),
    ) -> Result<Self, Error> {
        let wall = clock.now_ms();
        let (governor, after) = recover::state(&ledger.reader()?, folder)?;
        let keyless = governor.setup().settings().keyless;
        let live = Live::new(governor, wall, clock.counted_ms(), hash_key);
        let snapshots = recover::writer(folder);
        let shared = Arc::new(Shared {
            live: Mutex::new(live),
            clock: Arc::clone(clock),
            metrics: metrics.clone(),
            degraded: Arc::clone(degraded),
            clean: RwLock::default(),
            keyless: AtomicBool::new(keyless),
            folder: folder.to_owned(),
            snapshots,
            snapshot_seq: AtomicU64::new(after),
        });
        // The ledger must not own itself through this, nor the governor for ever.
        let weak = Arc::downgrade(&shared);
        ledger.on_failure(move |_| {
            let Some(shared) = weak.upgrade() else { return };
            // A connection that stays open would keep the database from being tidied up at the end.
            let again = Reader::of_folder(&shared.folder)
                .map_err(Error::from)
                .and_then(|reader| recover::state(&reader, &shared.folder));
            let mut live = shared.live();
            match again {
                Ok((governor, _)) => live.starts_again(governor),
                Err(error) => live.breaks(&error.operator()),
            }
        });
        let weak = Arc::downgrade(&shared);
        ledger.on_commit(move |head| {
            if let Some(shared) = weak.upgrade() {
                shared.snapshot_if_due(head);
            }
        });
        Ok(Self { shared, ledger: ledger.clone() })
    }

    /// Decides something on the ledger's thread, and waits until it is recorded.
    async fn decide<T: Send + 'static>(
        &self,
        decide: impl FnOnce(&mut Live, i64) -> Result<Made<T>, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (tell, told) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let work = Deciding { shared, decide: Some(decide), gives: None, tell };
        self.ledger.work(Box::new(work));
        told.await.unwrap_or_else(|_| Err(LedgerError::Closed.into()))
    }

    /// Could there be room for this? Gives the pools that it draws on, none where it needs none, or the no
    /// that it gets for certain. Nothing is held.
    pub(crate) fn could(
        &self,
        asker: &Asker,
        intent: &Intent,
    ) -> Result<Vec<Arc<str>>, Box<Decision>> {
        let mut live = self.shared.live();
        let now = live.read_time(&*self.shared.clock);
        live.governor.could(asker, intent, now)
    }

    /// Decides an intent.
    pub async fn ask(&self, asked: Asked) -> Result<Decision, Error> {
        let decision = self.decide(move |live, now| asked.decide(live, now)).await?;
        self.shared.metrics.decided(&decision);
        Ok(decision)
    }

    /// Takes a report of usage. Gives what was counted.
    pub async fn report(&self, report: UsageReport) -> Result<Event, Error> {
        self.decide(move |live, now| report.settle(live, now)).await?
    }

    /// Makes a credential known.
    pub async fn register(
        &self,
        name: String,
        kind: Option<String>,
        group: Option<String>,
        metadata: Option<serde_json::Value>,
    ) -> Result<(Arc<Named>, bool), Error> {
        self.decide(move |live, now| {
            let known = live.governor.identities().by_name(&name).cloned();
            let fresh = match &known {
                Some(known) => Fresh {
                    pseudonym: Arc::clone(&known.pseudonym),
                    salt: known.salt.clone(),
                    name_hash: live::salted(&known.salt, &name),
                },
                None => live.fresh(&name)?,
            };
            let named = Named {
                pseudonym: Arc::clone(&fresh.pseudonym),
                salt: fresh.salt.clone(),
                // What is not said stays as it was.
                kind: kind.or_else(|| known.as_ref()?.kind.clone()),
                group: group.or_else(|| known.as_ref()?.group.clone()),
                metadata: metadata.or_else(|| known.as_ref()?.metadata.clone()),
                since_ms: known.as_ref().map_or(now, |known| known.since_ms),
                name,
            };
            let event = live.governor.register(named.clone(), &fresh, false, now);
            let put = live::keep_name(&named)?;
            let gives = (Arc::new(named), known.is_none());
            Ok(Made { events: vec![event], beside: vec![put], gives })
        })
        .await
    }

    /// Forgets a credential: its name, and all free text that came with its intents.
    pub async fn delete_identity(&self, name: String, by: Arc<str>) -> Result<(), Error> {
        self.decide(move |live, now| {
            let Some((event, named)) = live.governor.delete_identity(&name, &by, now) else {
                return Err(NotFound::new("identity", name).into());
            };
            let prefix = format!("{}/", named.pseudonym).into_bytes();
            let beside = vec![
                Beside::Delete { space: IDENTITIES, key: name.into_bytes() },
                Beside::DeleteUnder { space: CONTEXTS, prefix },
            ];
            Ok(Made { events: vec![event], beside, gives: () })
        })
        .await
    }

    /// Stops something, or lets it go on. Gives false if it was so already.
    pub async fn halt(
        &self,
        target: HaltTarget,
        by: Arc<str>,
        why: Option<String>,
        resumes: bool,
    ) -> Result<bool, Error> {
        self.decide(move |live, now| {
            let (mut events, mut beside) = (Vec::new(), Vec::new());
            let target = match target {
                HaltTarget::Target(target) => target,
                HaltTarget::IdentityNamed(name)
                    if resumes && live.governor.identities().by_name(&name).is_none() =>
                {
                    return Err(NotFound::new("identity", name).into());
                }
                // It may be stopped before it is first used.
                HaltTarget::IdentityNamed(name) => {
                    let (pseudonym, put, event) = live.known_or_named(&name, false, now)?;
                    beside.extend(put);
                    events.extend(event);
                    Target::Identity(pseudonym)
                }
            };
            let halt = Halt { target, by, why: why.map(Into::into) };
            let event = live.governor.halt(halt, resumes, now);
            let gives = event.is_some();
            events.extend(event);
            Ok(Made { events, beside, gives })
        })
        .await
    }

    /// Takes another configuration, all of it at once, with an event that says so. `about` is what else is
    /// told of it.
    fn configure(
        config: GovernorConfig,
        about: serde_json::Map<String, serde_json::Value>,
    ) -> impl FnOnce(&mut Live, i64) -> Result<Made<()>, Error> + Send + use<> {
        move |live, now| {
            let configured = Configured { governor: Some(config), about };
            let effect = Effect::Configured(Box::new(configured));
            let event = Event { ts: now, about: About::default(), effect };
            live.governor.apply(&event);
            Ok(Made::new(vec![event], ()))
        }
    }

    /// The same while the gate runs.
    pub async fn reconfigure(
        &self,
        config: GovernorConfig,
        about: serde_json::Map<String, serde_json::Value>,
    ) -> Result<(), Error> {
        let keyless = config.governor.keyless;
        let apply = Self::configure(config, about);
        self.decide(apply).await?;
        self.shared.keyless.store(keyless, Ordering::Relaxed);
        Ok(())
    }

    /// The same when the gate starts, where it is another than the recorded one. Waits on this thread.
    pub(crate) fn start_with(&self, config: GovernorConfig) -> Result<(), Error> {
        let mut live = self.shared.live();
        if *live.governor.config() == config {
            return Ok(());
        }
        let now = live.read_time(&*self.shared.clock);
        config.build(now).map_err(|error| Internal::new(error.to_string()))?;
        self.shared.keyless.store(config.governor.keyless, Ordering::Relaxed);
        let made = Self::configure(config, serde_json::Map::new())(&mut live, now)?;
        drop(live);
        let events = made.events.iter().map(written).collect::<Result<Vec<_>, _>>()?;
        self.ledger.append(events)?;
        Ok(())
    }

    /// Takes what a provider answered when it was asked directly, about these pools of a credential.
    pub async fn polled(
        &self,
        pools: Vec<String>,
        identity: Option<String>,
        seen: Vec<Observation>,
        began_at: i64,
    ) -> Result<(), Error> {
        self.decide(move |live, now| {
            let mut beside = Vec::new();
            let mut events = Vec::new();
            let key: Arc<str> = match identity {
                None => "".into(),
                Some(name) => {
                    let (pseudonym, put, event) = live.known_or_named(&name, false, now)?;
                    beside.extend(put);
                    events.extend(event);
                    pseudonym
                }
            };
            let setup = Arc::clone(live.governor.setup());
            let asked = pools.iter().filter_map(|id| setup.by_id(id)).map(|pool| {
                let own = if pool.per == Per::Identity { Arc::clone(&key) } else { "".into() };
                (Arc::clone(&pool.id), own, 0)
            });
            let asked: Vec<_> = asked.collect();
            events.extend(live.governor.observe(&asked, &seen, began_at, true, now));
            Ok(Made { events, beside, gives: () })
        })
        .await
    }

    /// Ends the holds whose time is over, as many as are due. Says whether more may be.
    pub async fn expire(&self) -> Result<bool, Error> {
        {
            let Some(mut live) = self.shared.try_live() else { return Ok(false) };
            let now = live.read_time(&*self.shared.clock);
            if live.broken().is_none() && live.governor.next_due() > now {
                return Ok(false);
            }
        }
        self.decide(|live, now| {
            let events: Vec<Event> = live.governor.expire(now).into_iter().collect();
            let more = !events.is_empty();
            Ok(Made::new(events, more))
        })
        .await
    }

    /// Looks whether a pool will be exhausted before it is full again, or was thought to be so and is not, and
    /// tells of it.
    pub async fn watch(&self) -> Result<(), Error> {
        if !self.shared.try_live().is_some_and(|live| live.governor.has_to_watch()) {
            return Ok(());
        }
        self.decide(|live, now| Ok(Made::new(live.governor.watch(now), ()))).await
    }

    /// Everything that is known, as JSON. To be called on the ledger's thread.
    pub(crate) fn state_json(&self) -> impl FnOnce() -> String + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || serde_json::to_string(&shared.live().governor.snapshot()).unwrap_or_default()
    }

    /// The pools, routes and settings that hold now.
    pub fn setup(&self) -> Arc<Setup> {
        Arc::clone(self.shared.live().governor.setup())
    }

    /// What is stopped now.
    pub fn halts(&self) -> Vec<Halt> {
        self.shared.live().governor.halts().to_vec()
    }

    /// May anyone on this machine ask without a key?
    pub fn is_keyless(&self) -> bool {
        self.shared.keyless.load(Ordering::Relaxed)
    }

    /// Refuses names that look like secrets: they are shown and recorded.
    pub fn check_names(&self, intent: &Intent) -> Result<(), Error> {
        let names = [
            ("agent_id", &intent.agent_id),
            ("identity_id", &intent.identity_id),
            ("workload_id", &intent.workload_id),
            ("scope_id", &intent.scope_id),
        ];
        for (what, name) in names {
            self.check_name(what, name)?;
        }
        Ok(())
    }

    /// Refuses a name that looks like a secret.
    pub fn check_name(&self, what: &str, name: &str) -> Result<(), Error> {
        // Looking is slow, and the same names come again and again.
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish();
        let is_known = |clean: &HashSet<u64>| clean.contains(&hash);
        if is_known(&self.shared.clean.read().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(());
        }
        if redact_text(name) != name {
            let problem = format!(
                "`{what}` looks like a secret, and names are recorded; give the credential a name such as pat:me, and rotate it"
            );
            return Err(InvalidRequest::new(Clean::already(problem), Vec::new()).into());
        }
        let mut clean = self.shared.clean.write().unwrap_or_else(PoisonError::into_inner);
        if clean.len() >= MOST_CLEAN {
            clean.clear();
        }
        clean.insert(hash);
        Ok(())
    }

    /// Is everything stopped?
    pub fn is_halted(&self) -> bool {
        self.shared.live().governor.is_halted()
    }

    /// The time that windows reset by.
    pub fn now_ms(&self) -> i64 {
        self.shared.live().read_time(&*self.shared.clock)
    }
}

/// What is to be stopped, by the names that people use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HaltTarget {
    /// Something whose name is the same in events.
    Target(Target),
    /// An identity, by the name that its owner uses.
    IdentityNamed(String),
}

/// Why a report is not accepted, in words.
fn report_refused(refused: ReportRefused, intent: Option<IntentId>) -> Error {
    let refuse =
        |problem: &str| InvalidRequest::new(Clean::already(problem.to_owned()), Vec::new()).into();
    match refused {
        ReportRefused::Unknown => {
            let name = intent.map_or_else(String::new, |intent| intent.to_string());
            NotFound::new("open hold of this caller", name).into()
        }
        ReportRefused::TooEarly => {
            let problem = "its slot has not begun, so that nobody can have acted on it; report when it was done. What is not reported counts as spent when its time is over";
            Conflict::new(Clean::already(problem.to_owned())).into()
        }
        ReportRefused::Unmapped => {
            refuse("no route says which pools this work draws on; nothing was charged")
        }
        ReportRefused::OtherPool => refuse(
            "`actual_cost` names a pool that this work does not draw on; nothing was charged",
        ),
    }
}

/// The same `request_id` for something else.
fn another_request() -> Error {
    let problem =
        "the request_id was used before for another intent; use a new one for a new intent";
    Conflict::new(Clean::already(problem.to_owned())).into()
}
