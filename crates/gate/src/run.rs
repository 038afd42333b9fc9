//! The second stage: the start is recorded, and the executor works, within its deadline and until its
//! caller gives up.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tollgate_contract::{
    Error, ErrorCode, SideEffect,
    error::{Internal, Timeout},
    event::Event,
    text::hex,
};
use tollgate_ledger::Batch;

use crate::{
    admit::{Arrived, Ready},
    gate::{RunningCall, millis},
    registry::{Admitted, Context, ToolFailure},
};

/// How long an executor whose time is over may take to end by itself.
pub(crate) const TIDY_UP: Duration = Duration::from_millis(100);

/// A call that ran, and what its executor gave.
pub(crate) struct Ran {
    pub(crate) ready: Ready,
    pub(crate) ended: Result<Value, ToolFailure>,
    pub(crate) duration_ms: u64,
}

impl Ready {
    /// Must its start be on disk before the executor starts? So it is for all that has an effect, and
    /// for all that must not run twice.
    pub(crate) fn starts_on_disk(&self) -> bool {
        let contract = &self.tool.contract;
        contract.side_effect != SideEffect::None
            || contract.cost_effect != tollgate_contract::CostEffect::None
            || self.claim.is_some()
            || self.approval.is_some()
    }
}

impl Arrived {
    /// Writes the start where it must be on disk first. A caller who has left by now starts nothing.
    pub(crate) async fn start(&self, ready: &Ready) -> Result<(), Error> {
        if self.cancelled.is_cancelled() {
            return Err(self.stopped(ready.tool.contract.name.clone()));
        }
        if !ready.starts_on_disk() {
            return Ok(());
        }
        let now = self.gate.clock.now_ms();
        let (call, run) = (self.about.call_id, self.about.run_id);
        let (input, hash) = (&self.call.input, ready.input_hash);
        let started = self.about.started(now, input, hash, &ready.verdict)?;
        let key = self.about.key.as_ref().map(|key| key.id);
        let running = RunningCall { call, run, key, tool: ready.tool.contract.name.clone() };
        let mut beside = vec![running.put()];
        if let Some((claim, _)) = &ready.claim {
            beside.push(claim.started(call, run, now));
        }
        let mut batch = Batch { events: vec![started], beside };
        let Some(approval) = &ready.approval else {
            self.gate.append(batch).await?;
            return Ok(());
        };
        // The yes is used up by the very commit that starts the call.
        let _turn = self.gate.changing.lock().await;
        let used = self.gate.used(approval.id, call);
        let with = self.gate.consents.written(&used, now)?;
        batch.events.extend(with.events);
        batch.beside.extend(with.beside);
        self.gate.append(batch).await?;
        self.gate.consents.apply(&used);
        Ok(())
    }

    /// Lets the executor work.
    pub(crate) async fn run(&self, ready: Ready) -> Ran {
        let hash = ready.input_hash;
        if let Some(place) = &self.place {
            place.starts();
        }
        self.tell(Event::CallStarted, || json!({"inputHash": hash}));
        let since = Instant::now();
        let ended = self.execute(&ready).await;
        let duration_ms = millis(since);
        self.gate.metrics.seconds.observe(since.elapsed().as_secs_f64());
        Ran { ready, ended, duration_ms }
    }

    async fn execute(&self, ready: &Ready) -> Result<Value, ToolFailure> {
        let contract = &ready.tool.contract;
        let name = || contract.name.clone();
        let Some(executor) = &ready.tool.executor else {
            return Err(
                Error::from(Internal::new("a tool without an executor was let through")).into()
            );
        };
        // It may have been stopped while its start was written. Nothing has happened.
        if self.cancelled.is_cancelled() {
            return Err(self.stopped(name()).into());
        }
        let timeout = self.timeout(&ready.tool);
        let deadline = tokio::time::Instant::now() + timeout;
        let context = Context {
            call_id: self.about.call_id,
            run_id: self.about.run_id,
            tool: contract.clone(),
            caller: ready.caller.clone(),
            session: self.call.session.clone(),
            deadline,
            cancelled: self.cancelled.child_token(),
            upstream_key: ready
                .claim
                .as_ref()
                .map(|(claim, _)| hex(claim.name.as_bytes()).to_string()),
            manifest: self.gate.registry.manifest().clone(),
            clock: self.gate.clock.clone(),
            usage: Arc::clone(&ready.held.usage),
            deltas: self.options.deltas.clone(),
            gate: Arc::clone(&self.gate),
        };
        let cancelled = context.cancelled.clone();
        let admitted = Admitted { input: self.call.input.clone(), context };
        // In a task of its own: a panic ends the call and nothing else, and it can be stopped.
        let executor = Arc::clone(executor);
        let mut work = tokio::spawn(async move { executor.execute(admitted).await });
        // Stopping something that changes the world leaves open what it has changed.
        let stopped = |error: Error| {
            let failure = ToolFailure::from(error);
            if contract.side_effect == SideEffect::None {
                failure
            } else {
                failure.outcome_unknown()
            }
        };
        let panicked =
            |_| stopped(Internal::new(format!("the executor of `{}` panicked", name())).into());
        let (why, patience): (Error, _) = tokio::select! {
            done = &mut work => return done.unwrap_or_else(|error| Err(panicked(error))),
            () = tokio::time::sleep_until(deadline) => {
                let after = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
                (Timeout::new(name(), after).into(), TIDY_UP)
            }
            () = self.cancelled.cancelled() => {
                (self.stopped(name()), self.gate.settings.cancel_grace)
            }
        };
        cancelled.cancel();
        if let Ok(done) = tokio::time::timeout(patience, &mut work).await {
            return match done.unwrap_or_else(|error| Err(panicked(error))) {
                // It only says that it was stopped; why, is known here.
                Err(failure) if failure.error.code() == ErrorCode::Cancelled => Err(stopped(why)),
                done => done,
            };
        }
        work.abort();
        // It is over when it is over: nobody may run it again before.
        match tokio::time::timeout(TIDY_UP, &mut work).await {
            Ok(Ok(done)) => done,
            Ok(Err(_)) => Err(stopped(why)),
            Err(_) => {
                // It blocks its thread. Its caller is answered; its name stays taken until it ends, and it
                // is among the calls under way until then.
                let turn = ready.claim.as_ref().map(|(_, turn)| Arc::clone(turn));
                let place = self.place.clone();
                tokio::spawn(async move {
                    let _ = work.await;
                    drop((turn, place));
                });
                Err(stopped(why))
            }
        }
    }
}
