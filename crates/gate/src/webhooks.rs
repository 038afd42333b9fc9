//! Webhooks: where events are sent to, as far as it must be remembered. Sending them is a door's work.
//!
//! A hook is kept beside the chain, its secret sealed, with the last event that it is done with. That every
//! change is recorded too is in the chain: nobody can have events sent elsewhere without a trace.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;
use tollgate_contract::{
    Error, Secret,
    error::{Conflict, Internal, NotFound},
    event::Event,
    text::{Clean, hex},
};
use tollgate_ledger::{Batch, Beside, NewEvent, Reader, Subject};

use crate::{clock, gate::Gate, seal::Seal};

/// Where hooks are kept.
const HOOKS: &str = "webhooks";
/// Where is kept how far each one is.
const PROGRESS: &str = "webhook_progress";

/// Most hooks of a gate.
const MOST: usize = 50;

/// A hook.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Its name.
    pub id: String,
    /// Where events go.
    pub url: String,
    /// Which kinds; all where none is named.
    pub kinds: Vec<String>,
    /// What they are signed with.
    pub secret: Arc<Secret>,
    /// Its receiver has said that it is gone.
    pub paused: bool,
    /// The last event that it is done with.
    pub after: u64,
    /// When it was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// Why the last attempt failed, if it did.
    pub problem: Option<String>,
}

/// A hook as it is kept.
#[derive(Serialize, Deserialize)]
struct Kept {
    url: String,
    kinds: Vec<String>,
    secret: Vec<u8>,
    paused: bool,
    from: u64,
    created_ms: i64,
}

/// The hooks of a gate.
pub(crate) struct Webhooks {
    hooks: Mutex<BTreeMap<String, Webhook>>,
    changed: watch::Sender<()>,
}

impl Webhooks {
    pub(crate) fn read(reader: &Reader, seal: &Seal) -> Result<Self, Error> {
        let mut hooks = BTreeMap::new();
        for row in reader.kept_all(HOOKS)? {
            let id = String::from_utf8_lossy(&row.key).into_owned();
            let kept: Option<Kept> = serde_json::from_slice(&row.value).ok();
            let opened = kept.and_then(|kept| {
                let secret = seal.open(id.as_bytes(), &kept.secret)?;
                Some((String::from_utf8(secret).ok()?, kept))
            });
            let Some((secret, kept)) = opened else {
                tracing::error!(hook = id, "a webhook cannot be read, and nothing is sent to it");
                continue;
            };
            let hook = Webhook {
                url: kept.url,
                kinds: kept.kinds,
                secret: Arc::new(Secret::new(secret)),
                paused: kept.paused,
                after: kept.from,
                created_ms: kept.created_ms,
                problem: None,
                id: id.clone(),
            };
            hooks.insert(id, hook);
        }
        for row in reader.kept_all(PROGRESS)? {
            let id = String::from_utf8_lossy(&row.key).into_owned();
            if let (Some(hook), Ok(bytes)) = (hooks.get_mut(&id), row.value.try_into()) {
                hook.after = hook.after.max(u64::from_le_bytes(bytes));
            }
        }
        Ok(Self { hooks: Mutex::new(hooks), changed: watch::Sender::new(()) })
    }

    fn hooks(&self) -> MutexGuard<'_, BTreeMap<String, Webhook>> {
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// Every hook.
    pub fn webhooks(&self) -> Vec<Webhook> {
        self.inner.webhooks.hooks().values().cloned().collect()
    }

    /// Tells when a hook was made, changed or removed.
    pub fn webhooks_changed(&self) -> watch::Receiver<()> {
        self.inner.webhooks.changed.subscribe()
    }

    /// Makes a hook, which hears what happens from now on. Without a secret one is made.
    pub async fn create_webhook(
        &self,
        url: String,
        kinds: Vec<String>,
        secret: Option<Secret>,
    ) -> Result<Webhook, Error> {
        // Changes happen one after the other.
        let _turn = self.turn().await;
        if self.inner.webhooks.hooks().len() >= MOST {
            let problem = format!("there are {MOST} webhooks already; remove one first");
            return Err(Conflict::new(Clean::already(problem)).into());
        }
        let now = self.inner.clock.now_ms();
        let id = format!("hook_{}", hex(&clock::random::<12>()?));
        let secret = match secret {
            Some(secret) => secret,
            None => Secret::new(format!("whsec_{}", hex(&clock::random::<32>()?))),
        };
        let after = self.inner.ledger.head().seq;
        let hook = Webhook {
            id,
            url,
            kinds,
            secret: Arc::new(secret),
            paused: false,
            after,
            created_ms: now,
            problem: None,
        };
        let told = json!({"webhook": hook.id, "change": "created", "host": host(&hook.url), "kinds": hook.kinds});
        self.keep_webhook(&hook, now, &told).await?;
        self.inner.webhooks.hooks().insert(hook.id.clone(), hook.clone());
        self.inner.webhooks.changed.send_replace(());
        Ok(hook)
    }

    /// Removes a hook.
    pub async fn delete_webhook(&self, id: &str) -> Result<(), Error> {
        let _turn = self.turn().await;
        if !self.inner.webhooks.hooks().contains_key(id) {
            return Err(NotFound::new("webhook", id).into());
        }
        let now = self.inner.clock.now_ms();
        let told = json!({"webhook": id, "change": "deleted"});
        let key = id.as_bytes().to_vec();
        let beside = vec![
            Beside::Delete { space: HOOKS, key: key.clone() },
            Beside::Delete { space: PROGRESS, key },
        ];
        let event = NewEvent::new(Event::ConfigApplied, now, Subject::default(), &told)?;
        self.inner.append(Batch { events: vec![event], beside }).await?;
        self.inner.webhooks.hooks().remove(id);
        self.inner.webhooks.changed.send_replace(());
        Ok(())
    }

    /// The receiver of a hook has said that it is gone: nothing more is sent to it.
    pub async fn pause_webhook(&self, id: &str) -> Result<(), Error> {
        let _turn = self.turn().await;
        let Some(mut hook) = self.inner.webhooks.hooks().get(id).cloned() else { return Ok(()) };
        hook.paused = true;
        let now = self.inner.clock.now_ms();
        let told =
            json!({"webhook": id, "change": "paused", "why": "its receiver says it is gone"});
        self.keep_webhook(&hook, now, &told).await?;
        self.inner.webhooks.hooks().insert(hook.id.clone(), hook);
        self.inner.webhooks.changed.send_replace(());
        Ok(())
    }

    /// Notes how far hooks are, and how the last attempt went. What cannot be kept is sent again some day.
    pub async fn note_webhooks(&self, noted: Vec<(String, u64, Option<String>)>) {
        let mut beside = Vec::new();
        {
            let mut hooks = self.inner.webhooks.hooks();
            for (id, seq, problem) in noted {
                let Some(hook) = hooks.get_mut(&id) else { continue };
                hook.problem = problem;
                if seq > hook.after {
                    hook.after = seq;
                    let (key, value) = (id.into_bytes(), seq.to_le_bytes().to_vec());
                    beside.push(Beside::Put { space: PROGRESS, key, value, expires_ms: None });
                }
            }
        }
        if !beside.is_empty() {
            let _ = self.inner.append(Batch { events: Vec::new(), beside }).await;
        }
    }

    async fn keep_webhook(
        &self,
        hook: &Webhook,
        now: i64,
        told: &serde_json::Value,
    ) -> Result<(), Error> {
        let secret = self.inner.seal.seal(hook.id.as_bytes(), hook.secret.expose().as_bytes())?;
        let kept = Kept {
            url: hook.url.clone(),
            kinds: hook.kinds.clone(),
            secret,
            paused: hook.paused,
            from: hook.after,
            created_ms: hook.created_ms,
        };
        let value = serde_json::to_vec(&kept)
            .map_err(|error| Internal::new(format!("a webhook is no JSON: {error}")))?;
        let key = hook.id.clone().into_bytes();
        let put = Beside::Put { space: HOOKS, key, value, expires_ms: None };
        let event = NewEvent::new(Event::ConfigApplied, now, Subject::default(), told)?;
        self.inner.append(Batch { events: vec![event], beside: vec![put] }).await?;
        Ok(())
    }
}

/// The host of an address. The rest of it may hold a secret.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").field("hooks", &self.hooks().len()).finish()
    }
}
