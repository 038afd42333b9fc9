//! What the gate counts.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};
use tollgate_governor::Decision;

/// What a call is counted under. Tools are canonical names, so that a caller cannot make up labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct CallLabels {
    pub(crate) tool: String,
    pub(crate) outcome: &'static str,
    pub(crate) code: &'static str,
}

/// What a decision is counted under.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    decision: &'static str,
    reason: &'static str,
}

/// The gate's counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    pub(crate) calls: Family<CallLabels, Counter>,
    pub(crate) seconds: Histogram,
    pub(crate) ledger_failures: Counter,
    pub(crate) unrecorded_refusals: Counter,
    decisions: Family<DecisionLabels, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            calls: Family::default(),
            seconds: Histogram::new([
                0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
            ]),
            ledger_failures: Counter::default(),
            unrecorded_refusals: Counter::default(),
            decisions: Family::default(),
        }
    }
}

impl Metrics {
    /// Shows them in `registry`.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "tollgate_calls",
            "Calls by tool, outcome (completed, failed, denied, replayed) and error code",
            self.calls.clone(),
        );
        registry.register("tollgate_call_seconds", "How long executors ran", self.seconds.clone());
        registry.register(
            "tollgate_ledger_failures",
            "Batches that the ledger could not write",
            self.ledger_failures.clone(),
        );
        registry.register(
            "tollgate_unrecorded_refusals",
            "Refusals that could not be recorded, because the ledger could not write",
            self.unrecorded_refusals.clone(),
        );
        registry.register(
            "tollgate_intents",
            "Intents by decision and reason",
            self.decisions.clone(),
        );
    }

    pub(crate) fn decided(&self, decision: &Decision) {
        let reason = decision.reason.map_or("", |reason| reason.as_str());
        let labels = DecisionLabels { decision: decision.answer.as_str(), reason };
        self.decisions.get_or_create(&labels).inc();
    }

    pub(crate) fn count(&self, tool: Option<&str>, outcome: &'static str, code: &'static str) {
        let tool = tool.unwrap_or("unknown").to_owned();
        self.calls.get_or_create(&CallLabels { tool, outcome, code }).inc();
    }
}
