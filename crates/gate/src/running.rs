//! The calls that are under way, so that a halt can stop them and say what it could not stop.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::Serialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tollgate_contract::{
    Error,
    error::{Cancelled, Halted, Internal},
    id::{CallId, KeyId},
    text::Clean,
};
use tollgate_governor::Target;

use crate::{Gate, HaltTarget, budget::SOMEWHERE, gate::Inner, run::TIDY_UP};

/// A call that a halt has met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetCall {
    /// The call.
    pub call_id: String,
    /// Its tool.
    pub tool: String,
    /// The name of its key.
    pub key: Option<String>,
}

/// What a halt has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HaltDone {
    /// False if it was halted already.
    pub changed: bool,
    /// Calls that were stopped.
    pub stopped: Vec<MetCall>,
    /// Calls that would not stop.
    pub not_stopped: Vec<MetCall>,
}

/// One call that is under way.
#[derive(Debug)]
struct Entry {
    tool: String,
    key: Option<(KeyId, String)>,
    scope: String,
    cancel: CancellationToken,
    /// What was halted, if this call was stopped by it.
    halted: Option<String>,
    /// Has its executor begun?
    started: bool,
}

/// The calls that are under way.
#[derive(Default)]
pub(crate) struct UnderWay {
    calls: Mutex<HashMap<CallId, Entry>>,
    left: watch::Sender<()>,
}

/// A place among the calls under way, which is left when the call is really over.
pub(crate) struct Place {
    gate: Arc<Inner>,
    call: CallId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gate.under_way.calls().remove(&self.call);
        self.gate.under_way.left.send_replace(());
    }
}

impl Place {
    /// The executor begins.
    pub(crate) fn starts(&self) {
        if let Some(entry) = self.gate.under_way.calls().get_mut(&self.call) {
            entry.started = true;
        }
    }

    /// Why the call was stopped.
    pub(crate) fn stopped(&self, tool: tollgate_contract::ToolName) -> Error {
        let calls = self.gate.under_way.calls();
        let entry = calls.get(&self.call);
        let started = entry.is_some_and(|entry| entry.started);
        match entry.and_then(|entry| entry.halted.clone()) {
            Some(what) => {
                let problem = format!("it was stopped while `{tool}` was under way");
                Halted::new(what, started, Clean::already(problem)).into()
            }
            None => Cancelled::new(tool).into(),
        }
    }
}

impl UnderWay {
    fn calls(&self) -> MutexGuard<'_, HashMap<CallId, Entry>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place for a call.
    pub(crate) fn enter(
        gate: &Arc<Inner>,
        call: CallId,
        tool: &str,
        key: Option<(KeyId, String)>,
        scope: Option<&str>,
        cancel: &CancellationToken,
    ) -> Place {
        let entry = Entry {
            tool: tool.to_owned(),
            key,
            scope: scope.unwrap_or(SOMEWHERE).to_owned(),
            cancel: cancel.clone(),
            halted: None,
            started: false,
        };
        gate.under_way.calls().insert(call, entry);
        Place { gate: Arc::clone(gate), call }
    }

    /// Stops every call that is meant.
    fn stop(&self, what: &str, is_meant: impl Fn(&Entry) -> bool) -> Vec<(CallId, MetCall)> {
        let mut calls = self.calls();
        let mut met = Vec::new();
        for (id, entry) in calls.iter_mut().filter(|(_, entry)| is_meant(entry)) {
            entry.halted.get_or_insert_with(|| what.to_owned());
            entry.cancel.cancel();
            met.push((*id, shown(*id, entry)));
        }
        met.sort_by_key(|(id, _)| *id);
        met
    }

    /// Waits until none of these is under way, for a while at most. Gives those that still are.
    async fn gone(&self, met: &[(CallId, MetCall)], patience: Duration) -> Vec<MetCall> {
        let mut left = self.left.subscribe();
        let still = || {
            let calls = self.calls();
            let is_there = |(id, _): &&(CallId, MetCall)| calls.contains_key(id);
            met.iter().filter(is_there).map(|(_, shown)| shown.clone()).collect::<Vec<_>>()
        };
        let waiting = async {
            while !still().is_empty() {
                if left.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(patience, waiting).await;
        still()
    }
}

fn shown(id: CallId, entry: &Entry) -> MetCall {
    let key = entry.key.as_ref().map(|(_, name)| name.clone());
    MetCall { call_id: id.to_string(), tool: entry.tool.clone(), key }
}

impl Gate {
    /// Stops something: new calls at once, and those under way as far as they can be stopped. It is done to its end,
    /// even if whoever asked for it goes away.
    pub async fn halt(
        &self,
        target: HaltTarget,
        by: Arc<str>,
        why: Option<String>,
    ) -> Result<HaltDone, Error> {
        let gate = self.clone();
        let task = self.inner.tasks.spawn(async move { gate.halt_now(target, by, why).await });
        task.await.unwrap_or_else(|_| Err(Internal::new("a halt ended early").into()))
    }

    async fn halt_now(
        &self,
        target: HaltTarget,
        by: Arc<str>,
        why: Option<String>,
    ) -> Result<HaltDone, Error> {
        // From here on nothing new begins. Where that cannot be recorded, no call with an effect or a cost begins either,
        // since none can be; and what is under way is stopped all the same.
        let recorded = self.governing().halt(target.clone(), by, why, false).await;
        let (what, met) = {
            let under_way = &self.inner.under_way;
            let of = |what: String, is_meant: &dyn Fn(&Entry) -> bool| {
                let met = under_way.stop(&what, is_meant);
                (what, met)
            };
            match &target {
                HaltTarget::IdentityNamed(name) => of(format!("the identity {name}"), &|entry| {
                    let identity = |(_, key): &(KeyId, String)| format!("key:{key}") == *name;
                    entry.key.as_ref().is_some_and(identity)
                }),
                HaltTarget::Target(target) => of(target.to_string(), &|entry| match target {
                    Target::All => true,
                    Target::Agent(name) => {
                        entry.key.as_ref().is_some_and(|(_, key)| **name == **key)
                    }
                    Target::Key(id) => {
                        entry.key.as_ref().is_some_and(|(key, _)| key.to_string() == **id)
                    }
                    Target::Workload(tool) => **tool == *entry.tool,
                    Target::Scope(scope) => **scope == *entry.scope,
                    // What has room in a pool already uses it up.
                    Target::Identity(_) | Target::Pool(_) => false,
                }),
            }
        };
        let patience = self.inner.settings.cancel_grace + TIDY_UP * 5;
        let not_stopped = self.inner.under_way.gone(&met, patience).await;
        if !met.is_empty() {
            tracing::warn!(what, met = met.len(), left = not_stopped.len(), "calls were stopped");
        }
        let changed = recorded?;
        let stopped = met.into_iter().map(|(_, call)| call);
        let stopped = stopped.filter(|call| !not_stopped.contains(call)).collect();
        Ok(HaltDone { changed, stopped, not_stopped })
    }
}
