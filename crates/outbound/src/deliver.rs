//! What is done for one hook: its events, in order, each until it is delivered or given up.

use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use reqwest::{
    Client, StatusCode,
    header::{CONTENT_TYPE, HeaderValue},
};
use tokio::time::Instant;
use tollgate_contract::{Quoted, text::Clean};

use crate::{
    guard::{AddressGuard, Checked},
    http,
    poll::Clock,
    signature::signature,
    webhook::{DeliveryPace, EventSource, Hook, Hooks, Progress, SourceEvent},
};

/// How many events are read at a time.
const BATCH: usize = 100;

/// How long to wait if a source said that there are new events, and there are none.
const BREATH: Duration = Duration::from_millis(20);

/// What is known of a hook outside its task, too.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The last event that is done with.
    pub(crate) position: AtomicU64,
    /// Did the receiver say that it is gone for good?
    pub(crate) gone: AtomicBool,
}

/// The task of one hook. It can be dropped at any point where it waits.
pub(crate) struct Task<E, P> {
    pub(crate) id: String,
    pub(crate) hooks: Hooks,
    pub(crate) events: Arc<E>,
    pub(crate) progress: Arc<P>,
    pub(crate) guard: Arc<AddressGuard>,
    pub(crate) pace: DeliveryPace,
    pub(crate) clock: Clock,
    pub(crate) state: Arc<State>,
    /// The client for the addresses that were checked last, so that a connection can be used again.
    pub(crate) client: Option<(String, Vec<SocketAddr>, Client)>,
}

/// What became of an attempt.
enum Attempt {
    Delivered,
    Gone,
    Failed(String),
}

/// What is to be done with an event now.
enum Now {
    /// Send it, with this signature.
    Send(String),
    /// The hook does not want it.
    Pass,
    /// The hook is paused, or not there any more; in that case this task is about to be ended.
    Wait,
}

/// What a delivery depends on. When it changes, a failed one is tried anew at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Facts {
    url: String,
    kinds: Vec<String>,
    paused: bool,
}

/// The receiver is gone for good.
struct Gone;

impl<E: EventSource, P: Progress> Task<E, P> {
    /// Sends events until the receiver is gone for good.
    pub(crate) async fn run(mut self) {
        let events = Arc::clone(&self.events);
        let mut failures = 0;
        loop {
            // Listening begins before reading, so that nothing that comes in between is missed.
            let mut changed = pin!(events.changed());
            let listening =
                poll_fn(|context| Poll::Ready(changed.as_mut().poll(context).is_pending())).await;
            match self.read().await {
                Ok(batch) if batch.is_empty() => {
                    failures = 0;
                    // A source that always says that there is something new is not asked all the time.
                    let wait = if listening { self.pace.look_every } else { BREATH };
                    let heard = async {
                        if listening { changed.await } else { std::future::pending().await }
                    };
                    let _ = tokio::time::timeout(wait, heard).await;
                }
                Ok(batch) => {
                    failures = 0;
                    if let Err(Gone) = self.send_all(batch).await {
                        self.state.gone.store(true, Ordering::Relaxed);
                        self.progress.gone(&self.id);
                        return;
                    }
                }
                Err(problem) => {
                    failures += 1;
                    tracing::error!(hook = %Quoted::new(&self.id), "events cannot be read: {}", Clean::new(&problem));
                    tokio::time::sleep(self.pace.retry.wait(failures)).await;
                }
            }
        }
    }

    /// The next events, those that are not wanted among them.
    async fn read(&self) -> Result<Vec<SourceEvent>, String> {
        let (events, after) =
            (Arc::clone(&self.events), self.state.position.load(Ordering::Relaxed));
        let read = tokio::task::spawn_blocking(move || events.after(after, BATCH));
        let mut batch = read.await.unwrap_or_else(|_| Err("reading broke off".to_owned()))?;
        // Whatever the source does, nothing is sent twice or out of order because of it.
        batch.sort_by_key(|event| event.seq);
        batch.retain(|event| event.seq > after);
        Ok(batch)
    }

    async fn send_all(&mut self, batch: Vec<SourceEvent>) -> Result<(), Gone> {
        // What is not wanted is told of once, with what follows it or at the end.
        let mut passed = None;
        for event in batch {
            let told = self.send(&event, &mut passed).await?;
            passed = (!told).then_some(event.seq);
            if told {
                self.progress.sent_through(&self.id, event.seq);
            }
            self.state.position.store(event.seq, Ordering::Relaxed);
        }
        if let Some(seq) = passed {
            self.progress.sent_through(&self.id, seq);
        }
        Ok(())
    }

    /// Sends one event, however long that takes. Says whether that is worth telling: not of an event that is
    /// not wanted. `passed` is the last one before it that was not.
    async fn send(&mut self, event: &SourceEvent, passed: &mut Option<u64>) -> Result<bool, Gone> {
        let mut failures = 0;
        let mut began = Instant::now();
        loop {
            let (now, facts) = self.now(event);
            let signed = match now {
                Now::Send(signed) => signed,
                Now::Pass => return Ok(false),
                Now::Wait => {
                    self.differs_from(&facts).await;
                    (failures, began) = (0, Instant::now());
                    continue;
                }
            };
            if let Some(seq) = passed.take() {
                // An event that fails for hours should not hold back what is known already.
                self.progress.sent_through(&self.id, seq);
            }
            let timeout = self.pace.timeout;
            let attempt = self.attempt(event, &facts.url, signed);
            let problem = match tokio::time::timeout(timeout, attempt).await {
                Ok(Ok(Attempt::Delivered)) => return Ok(true),
                Ok(Ok(Attempt::Gone)) => return Err(Gone),
                Ok(Ok(Attempt::Failed(problem)) | Err(problem)) => problem,
                Err(_) => "no answer came in time".to_owned(),
            };
            failures += 1;
            if began.elapsed() >= self.pace.give_up_after {
                self.progress.skipped(&self.id, event.seq, &problem);
                return Ok(true);
            }
            self.progress.failed(&self.id, event.seq, &problem);
            let wait = self.pace.retry.wait(failures);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.differs_from(&facts) => failures = 0,
            }
        }
    }

    /// What is to be done with an event, as the hook is now.
    fn now(&mut self, event: &SourceEvent) -> (Now, Facts) {
        let seconds = (self.clock)().div_euclid(1000);
        let hooks = self.hooks.borrow_and_update();
        let Some(hook) = hooks.iter().find(|hook| hook.id == self.id) else {
            return (Now::Wait, Facts::default());
        };
        let now = if hook.paused {
            Now::Wait
        } else if hook.wants(&event.kind) {
            Now::Send(signature(&hook.secret, seconds, &event.json))
        } else {
            Now::Pass
        };
        (now, Facts::of(hook))
    }

    /// Waits until the hook is not as it was.
    async fn differs_from(&mut self, facts: &Facts) {
        let differs = |hooks: &Arc<Vec<Hook>>| {
            let hook = hooks.iter().find(|hook| hook.id == self.id);
            hook.map(Facts::of).unwrap_or_default() != *facts
        };
        if self.hooks.wait_for(differs).await.is_err() {
            // Nobody is left who could change it.
            std::future::pending::<()>().await;
        }
    }

    /// Sends an event once.
    async fn attempt(
        &mut self,
        event: &SourceEvent,
        url: &str,
        signed: String,
    ) -> Result<Attempt, String> {
        let checked = self.guard.check(url).await.map_err(|refused| refused.to_string())?;
        let client = self.client(url, &checked)?;
        let kind = HeaderValue::from_str(&event.kind);
        let request = client
            .post(checked.url().clone())
            .header(CONTENT_TYPE, "application/json")
            .header("x-tollgate-event", kind.unwrap_or(HeaderValue::from_static("unknown")))
            .header("x-tollgate-delivery", event.seq)
            .header("x-tollgate-signature", signed)
            .body(event.json.clone());
        let status = request.send().await.map_err(http::problem)?.status();
        Ok(match status {
            StatusCode::GONE => Attempt::Gone,
            status if status.is_success() => Attempt::Delivered,
            status if status.is_redirection() => Attempt::Failed(format!(
                "the receiver answered {}; redirects are not followed: set the hook's address to where it leads",
                status.as_u16()
            )),
            status => Attempt::Failed(format!("the receiver answered {}", status.as_u16())),
        })
    }

    /// The client for these addresses.
    fn client(&mut self, url: &str, checked: &Checked) -> Result<Client, String> {
        if let Some((for_url, addresses, client)) = &self.client
            && for_url == url
            && addresses == checked.addresses()
        {
            return Ok(client.clone());
        }
        let client = checked.client(self.pace.timeout)?;
        self.client = Some((url.to_owned(), checked.addresses().to_vec(), client.clone()));
        Ok(client)
    }
}

impl Facts {
    fn of(hook: &Hook) -> Self {
        Self { url: hook.url.clone(), kinds: hook.kinds.clone(), paused: hook.paused }
    }
}
