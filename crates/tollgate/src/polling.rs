//! Asking providers for their own count, as the configuration says, and telling the governor.

use std::sync::Arc;

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tollgate_gate::{Gate, observations};
use tollgate_governor::Learned;
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
    let seen = observations(&Learned { reports: result.reports, retry_at_ms: None });
    if seen.is_empty() {
        return;
    }
    let (pools, identity) = (poll.pools.clone(), poll.identity.clone());
    let told = gate.governing().polled(pools, identity, seen, result.began_at_ms).await;
    if let Err(error) = told {
        tracing::warn!(problem = %error.operator(), "what a provider said cannot be recorded");
    }
}
