//! The third stage: what came of the call is recorded, redacted, and told to its caller, raw.

use std::time::Duration;

use serde_json::json;
use tollgate_contract::{
    Error, ErrorCode, SideEffect, error::OutcomeUnknown, event::Event, redact::redacted,
};
use tollgate_ledger::{Batch, LedgerError};

use crate::{
    admit::Arrived,
    gate::RunningCall,
    idempotency::Ended,
    outcome::{CallFailure, ToolCallResult},
    record::summary,
    run::Ran,
};

/// How long to wait before trying again to record an effect that has happened.
const TRY_AGAIN: [Duration; 4] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(250),
    Duration::from_millis(1000),
];

impl Ran {
    /// What to remember of it for whoever asks again.
    fn remembered(&self) -> Ended {
        let verdict = self.ready.verdict.clone();
        match &self.ended {
            Ok(output) => {
                Ended::Output { output: output.clone(), verdict, duration_ms: self.duration_ms }
            }
            Err(failure) => Ended::Failed { error: failure.error.object(None), verdict },
        }
    }
}

impl Arrived {
    /// Records the end and answers the caller.
    pub(crate) async fn settle(&self, ran: Ran) -> Result<ToolCallResult, Box<CallFailure>> {
        let now = self.gate.clock.now_ms();
        if let Some(taken) = &ran.ready.taken {
            taken.settle(&ran.ready.held.usage.amounts());
        }
        self.spent(&ran.ready.held).await;
        let recorded = match self.closing(&ran, now) {
            Ok(batch) => self.record(&ran, batch).await,
            Err(error) => Err(error),
        };
        let Ran { ready, ended, duration_ms } = ran;
        let verdict = ready.verdict;
        let contract = &ready.tool.contract;
        let name = contract.name.clone();
        let ended = match (ended, recorded) {
            (ended, Ok(())) => ended.map_err(|failure| failure.error),
            // Nothing has happened that anyone would miss: without a record there is no result.
            (_, Err(error)) if contract.side_effect == SideEffect::None => Err(error),
            // Something has happened, and the record ends with its start.
            (_, Err(_)) => Err(OutcomeUnknown::new(name.clone(), self.about.call_id).into()),
        };
        match ended {
            Ok(output) => {
                self.gate.metrics.count(Some(name.as_str()), "completed", "");
                let result = ToolCallResult {
                    run_id: self.about.run_id,
                    call_id: self.about.call_id,
                    tool: name,
                    input_hash: ready.input_hash,
                    output,
                    replayed: false,
                    duration_ms,
                    verdict,
                };
                self.tell(Event::CallCompleted, || {
                    let summary = summary(&redacted(&result.output));
                    json!({"durationMs": duration_ms, "outputSummary": summary})
                });
                self.tell(Event::RunCompleted, || json!({"result": result}));
                Ok(result)
            }
            Err(error) => {
                self.gate.metrics.count(Some(name.as_str()), "failed", error.code().as_str());
                let failure = CallFailure {
                    input_hash: Some(ready.input_hash),
                    verdict: Some(verdict),
                    started: true,
                    ..CallFailure::new(self.about.run_id, self.about.call_id, &error)
                };
                tracing::warn!(call = %self.about.call_id, code = %failure.code(), operator = %failure.operator, "a call failed");
                self.tell(
                    Event::CallFailed,
                    || json!({"durationMs": duration_ms, "error": failure.error}),
                );
                self.tell(
                    Event::RunFailed,
                    || json!({"error": failure.error, "verdict": failure.verdict}),
                );
                Err(Box::new(failure))
            }
        }
    }

    /// The events that end the call, and what is remembered of it.
    fn closing(&self, ran: &Ran, now: i64) -> Result<Batch, Error> {
        let mut batch = Batch::default();
        let ready = &ran.ready;
        if ready.starts_on_disk() {
            batch.beside.push(RunningCall::delete(self.about.call_id));
        } else {
            let started_at = now - i64::try_from(ran.duration_ms).unwrap_or_default();
            let hash = ready.input_hash;
            let input = &self.call.input;
            batch.events.push(self.about.started(started_at, input, hash, &ready.verdict)?);
        }
        let duration_ms = ran.duration_ms;
        let (event, unknown) = match &ran.ended {
            Ok(output) => (self.about.completed(now, output, duration_ms)?, false),
            Err(failure) => {
                let (error, unknown) = (failure.error.object(None), failure.outcome_unknown);
                (self.about.failed(now, &error, duration_ms, unknown)?, unknown)
            }
        };
        batch.events.push(event);
        // What is not known is not remembered as an end: whoever asks again is told just that.
        // Nor is a call that was stopped and changed nothing: it may be made again.
        let was_stopped = ran.ended.as_ref().is_err_and(|failure| {
            matches!(failure.error.code(), ErrorCode::Timeout | ErrorCode::Cancelled)
        });
        if let Some((claim, _)) = ready.claim.as_ref().filter(|_| !unknown && !was_stopped) {
            let ids = (self.about.call_id, self.about.run_id);
            batch.beside.push(claim.ended(&self.gate.seal, ids, &ran.remembered(), now)?);
        }
        Ok(batch)
    }

    async fn record(&self, ran: &Ran, batch: Batch) -> Result<(), Error> {
        // An effect that has happened is worth some patience.
        let has_happened = ran.ready.tool.contract.side_effect != SideEffect::None;
        for pause in TRY_AGAIN.iter().filter(|_| has_happened) {
            match self.gate.append(batch.clone()).await {
                Ok(_) => return Ok(()),
                Err(error @ LedgerError::Closed) => return Err(error.into()),
                Err(_) => tokio::time::sleep(*pause).await,
            }
        }
        // The last attempt, which leaves nothing for another.
        self.gate.append(batch).await.map(drop).map_err(Error::from)
    }
}
