//! Sending events to the addresses that users gave.
//!
//! Each hook has a task of its own, so that a slow or dead receiver delays nobody else. This part starts
//! and ends the tasks as hooks come and go; [`crate::deliver`] is what one of them does.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;
use tollgate_contract::Secret;

use crate::{
    backoff::Backoff,
    deliver::{State, Task},
    guard::AddressGuard,
    poll::Clock,
};

/// Where events are sent to.
#[derive(Debug)]
pub struct Hook {
    /// What the hook is called. No two hooks have the same id, and none takes over another's.
    pub id: String,
    /// Where events go.
    pub url: String,
    /// Which kinds of events go there; all of them if it is empty.
    pub kinds: Vec<String>,
    /// What deliveries are signed with.
    pub secret: Secret,
    /// Is it to be left alone for now? What happens meanwhile is sent later.
    pub paused: bool,
    /// The last event that is not sent any more. It counts when the hook appears; from then on its task knows
    /// better.
    pub after: u64,
}

impl Hook {
    /// Do events of this kind go there?
    pub(crate) fn wants(&self, kind: &str) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind)
    }
}

/// All hooks, as they are now.
pub(crate) type Hooks = watch::Receiver<Arc<Vec<Hook>>>;

/// An event that may be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceEvent {
    /// Its place in the order.
    pub seq: u64,
    /// What happened.
    pub kind: String,
    /// The event as JSON: the body of the delivery, byte for byte.
    pub json: String,
}

/// Where events come from.
pub trait EventSource: Send + Sync + 'static {
    /// At most `limit` events after `seq`, in order. It may take its time.
    fn after(&self, seq: u64, limit: usize) -> Result<Vec<SourceEvent>, String>;

    /// Ends once there may be new events: those count that come after it was first polled.
    fn changed(&self) -> impl Future<Output = ()> + Send;
}

/// Who wants to know how deliveries go. These are called in between, so they return at once.
pub trait Progress: Send + Sync + 'static {
    /// Everything up to `seq` is done with: it was delivered, it was not wanted, or it was skipped.
    fn sent_through(&self, hook_id: &str, seq: u64);

    /// An attempt failed. It is made again later.
    fn failed(&self, hook_id: &str, seq: u64, problem: &str);

    /// An event was tried for as long as events are tried, and will not be sent any more.
    fn skipped(&self, hook_id: &str, seq: u64, problem: &str);

    /// The receiver said that it is gone for good. Nothing is sent there until its address changes, or until
    /// the hook was paused.
    fn gone(&self, hook_id: &str);
}

/// How long to try, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryPace {
    /// After failures.
    pub retry: Backoff,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// How long one event is tried.
    pub give_up_after: Duration,
    /// How often to look for events, even if nobody says that there are any.
    pub look_every: Duration,
}

impl Default for DeliveryPace {
    fn default() -> Self {
        Self {
            retry: Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(10 * 60) },
            timeout: Duration::from_secs(10),
            give_up_after: Duration::from_secs(24 * 60 * 60),
            look_every: Duration::from_secs(60),
        }
    }
}

/// Sends events to hooks.
#[derive(Clone)]
pub struct Deliveries {
    /// How long to try, and how often.
    pub pace: DeliveryPace,
    /// The time that deliveries are signed with.
    pub clock: Clock,
}

impl Default for Deliveries {
    fn default() -> Self {
        let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = move || i64::try_from(since_1970().as_millis()).unwrap_or(i64::MAX);
        Self { pace: DeliveryPace::default(), clock: Arc::new(clock) }
    }
}

/// A hook's task.
struct Running {
    /// Where it sends to.
    url: String,
    /// How far it is.
    state: Arc<State>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Deliveries {
    /// Sends events until it is stopped. Each hook gets its events in order and at least once: what was sent
    /// but not yet reported when the process ends is sent again.
    pub async fn run<E: EventSource, P: Progress>(
        self,
        mut hooks: watch::Receiver<Arc<Vec<Hook>>>,
        events: E,
        progress: P,
        guard: AddressGuard,
        stop: CancellationToken,
    ) {
        let (events, progress, guard) = (Arc::new(events), Arc::new(progress), Arc::new(guard));
        let mut running: HashMap<String, Running> = HashMap::new();
        while !stop.is_cancelled() {
            let now = Arc::clone(&hooks.borrow_and_update());
            let mut positions = end_old(&mut running, &now).await;
            for hook in now.iter().filter(|hook| !hook.id.is_empty()) {
                running.entry(hook.id.clone()).or_insert_with(|| {
                    let after = positions.remove(&hook.id).unwrap_or(0).max(hook.after);
                    let state = Arc::new(State { position: after.into(), ..State::default() });
                    let stop = stop.child_token();
                    let task = Task {
                        id: hook.id.clone(),
                        hooks: hooks.clone(),
                        events: Arc::clone(&events),
                        progress: Arc::clone(&progress),
                        guard: Arc::clone(&guard),
                        pace: self.pace,
                        clock: Arc::clone(&self.clock),
                        state: Arc::clone(&state),
                        client: None,
                    };
                    let task = tokio::spawn(until(stop.clone(), task.run()));
                    Running { url: hook.url.clone(), state, stop, task }
                });
            }
            tokio::select! {
                () = stop.cancelled() => break,
                // Whoever gave out the hooks may be gone; those that there are stay.
                changed = hooks.changed() => if changed.is_err() { stop.cancelled().await },
            }
        }
        for hook in running.into_values() {
            hook.end().await;
        }
    }
}

impl Running {
    async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await
            && error.is_panic()
        {
            tracing::error!("the task of a webhook broke off");
        }
    }

    /// Has it ended by itself, and is there reason to begin anew?
    fn is_over(&self, hook: &Hook) -> bool {
        // Whoever is told that a receiver is gone may pause its hook before the task has quite ended.
        if self.state.gone.load(Ordering::Relaxed) {
            hook.paused || hook.url != self.url
        } else {
            self.task.is_finished()
        }
    }
}

/// Ends the tasks whose hooks are gone, and forgets those that ended by themselves and may begin anew. Says how
/// far the latter were.
async fn end_old(running: &mut HashMap<String, Running>, now: &[Hook]) -> HashMap<String, u64> {
    let hooks: HashMap<&str, &Hook> = now.iter().map(|hook| (hook.id.as_str(), hook)).collect();
    let mut positions = HashMap::new();
    let ended =
        running.extract_if(|id, task| hooks.get(id.as_str()).is_none_or(|hook| task.is_over(hook)));
    let ended: Vec<_> = ended.collect();
    for (id, task) in ended {
        if hooks.contains_key(id.as_str()) {
            positions.insert(id, task.state.position.load(Ordering::Relaxed));
        }
        task.end().await;
    }
    positions
}

/// `work`, unless it is stopped before.
async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = work => {}
    }
}
