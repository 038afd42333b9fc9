//! Sending events to webhooks: what the gate remembers of hooks, and the crate that delivers, put together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::watch;
use tollgate_contract::Secret;
use tollgate_gate::Gate;
use tollgate_outbound::{Deliveries, EventSource, Hook, Progress, SourceEvent};

use crate::app::App;

/// How often is kept how far the hooks are.
const KEEP_EVERY: Duration = Duration::from_secs(1);

/// Sends events until the server stops.
pub(crate) async fn deliver(app: Arc<App>) {
    let mut changed = app.gate.webhooks_changed();
    let (send, hooks) = watch::channel(hooks(&app.gate));
    let noted = Noted::default();
    let source = Source { app: Arc::clone(&app) };
    let guard = app.settings.webhook_guard.clone();
    let stop = app.stopping.clone();
    let deliveries = Deliveries::default().run(hooks, source, noted.clone(), guard, stop.clone());
    tokio::pin!(deliveries);
    let mut keep = tokio::time::interval(KEEP_EVERY);
    loop {
        tokio::select! {
            () = &mut deliveries => break,
            told = changed.changed() => {
                if told.is_err() {
                    break;
                }
                send.send_replace(self::hooks(&app.gate));
            }
            _ = keep.tick() => noted.keep(&app.gate).await,
        }
    }
    noted.keep(&app.gate).await;
}

fn hooks(gate: &Gate) -> Arc<Vec<Hook>> {
    let hook = |hook: tollgate_gate::Webhook| Hook {
        id: hook.id,
        url: hook.url,
        kinds: hook.kinds,
        secret: Secret::new(hook.secret.expose().to_owned()),
        paused: hook.paused,
        after: hook.after,
    };
    Arc::new(gate.webhooks().into_iter().map(hook).collect())
}

/// The ledger, as deliveries read it.
struct Source {
    app: Arc<App>,
}

impl EventSource for Source {
    fn after(&self, seq: u64, limit: usize) -> Result<Vec<SourceEvent>, String> {
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        let events = self.app.gate.read(|reader| reader.tail(seq, limit));
        let events = events.map_err(|error| error.to_string())?;
        let event = |event: tollgate_ledger::StoredEvent| SourceEvent {
            seq: event.seq,
            json: serde_json::to_string(&event).unwrap_or_default(),
            kind: event.kind,
        };
        Ok(events.into_iter().map(event).collect())
    }

    async fn changed(&self) {
        let mut head = self.app.head.clone();
        // If nobody writes any more there is nothing to wait for.
        let _ = head.changed().await;
    }
}

/// What became of deliveries, until it is kept.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    hooks: HashMap<String, (u64, Option<String>)>,
    gone: Vec<String>,
}

impl Noted {
    fn note(&self, hook: &str, seq: u64, problem: Option<&str>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.hooks.entry(hook.to_owned()).or_default();
        *known = (known.0.max(seq), problem.map(str::to_owned));
    }

    async fn keep(&self, gate: &Gate) {
        let State { hooks, gone } = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *state)
        };
        let noted: Vec<_> = hooks.into_iter().map(|(id, (seq, why))| (id, seq, why)).collect();
        if !noted.is_empty() {
            gate.note_webhooks(noted).await;
        }
        for id in gone {
            if let Err(error) = gate.pause_webhook(&id).await {
                tracing::warn!(hook = id, problem = %error.operator(), "a hook cannot be paused");
            }
        }
    }
}

impl Progress for Noted {
    fn sent_through(&self, hook_id: &str, seq: u64) {
        self.note(hook_id, seq, None);
    }

    fn failed(&self, hook_id: &str, _: u64, problem: &str) {
        self.note(hook_id, 0, Some(problem));
    }

    fn skipped(&self, hook_id: &str, seq: u64, problem: &str) {
        tracing::warn!(hook = hook_id, seq, problem, "an event was not delivered, and is given up");
        self.note(hook_id, seq, Some(problem));
    }

    fn gone(&self, hook_id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).gone.push(hook_id.to_owned());
    }
}
