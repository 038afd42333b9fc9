//! Asking providers for their own count, as the configuration says, and telling the governor.

use std::sync::Arc;

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_gate::Gate;
use tollgate_governor::Observation;
use tollgate_outbound::{BadSource, PollResult, Poller};

use crate::config::Poll;

/// Starts a task for each provider. They end when `stop` is cancelled.
pub(crate) fn start(
    gate: &Gate,
    polls: &[Poll],
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<(), BadSource> {
    for (number, poll) in polls.iter().enumerate() {
        let timing = gate.clone();
        let clock = Arc::new(move || timing.governing().now_ms());
        let name = format!("polls[{number}]");
        let poller = Poller::new(name, poll.source.clone(), clock)?;
        let (gate, poll, own) = (gate.clone(), poll.clone(), tasks.clone());
        let sink = move |result: PollResult| {
            let (gate, poll) = (gate.clone(), poll.clone());
            own.spawn(async move { tell(&gate, &poll, result).await });
        };
        let stop = stop.clone();
        tasks.spawn(async move { poller.run(sink, stop).await });
    }
    Ok(())
}

async fn tell(gate: &Gate, poll: &Poll, result: PollResult) {
    let seen: Vec<Observation> = result
        .reports
        .into_iter()
        .map(|report| Observation {
            remaining: report
                .remaining
                .or_else(|| Some(report.limit?.saturating_sub(report.used?))),
            name: report.name,
            limit: report.limit,
            reset_at: report.reset_at_ms,
            closed_until: None,
        })
        .collect();
    if seen.is_empty() {
        return;
    }
    let (pools, identity) = (poll.pools.clone(), poll.identity.clone());
    let told = gate.governing().polled(pools, identity, seen, result.began_at_ms).await;
    if let Err(error) = told {
        tracing::warn!(problem = %error.operator(), "what a provider said cannot be recorded");
    }
}
