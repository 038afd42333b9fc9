//! The tools of the scenario, by kind: some that can be called, and two for every way to be refused.

use serde_json::{Value, json};
use tollgate_contract::Step;

/// A kind of tool: `count` of them, alike but for their names.
pub(crate) struct Kind {
    stem: &'static str,
    count: usize,
    permissions: &'static [&'static str],
    side_effect: &'static str,
    cost_effect: &'static str,
    /// Where the kind differs from a tool that can be called.
    quirk: Quirk,
    /// The step that refuses a call of it by a key that may call; `None` when it passes.
    pub(crate) refused_at: Option<Step>,
}

enum Quirk {
    None,
    Deferred,
    NotCallable,
    Risky,
}

/// Fifty tools. A table reads best with one kind a line.
#[rustfmt::skip]
pub(crate) const KINDS: [Kind; 17] = [
    passing("market.read", 8, &["read.public", "market_data", "read"], "none", "api_cost"),
    passing("research.search", 6, &["research", "net"], "none", "search_cost"),
    passing("notes.write", 5, &["write", "user_data"], "user_write", "api_cost"),
    passing("intent.place", 5, &["trade", "user_data"], "user_write", "api_cost"),
    passing("worker.start", 2, &["write", "net"], "runtime", "none"),

    odd("planned.read", &["read"], Quirk::Deferred, Step::Status),
    odd("planned.write", &["write"], Quirk::Deferred, Step::Status),
    odd("hidden.read", &["read"], Quirk::NotCallable, Step::AgentCallable),
    odd("risky.run", &["write"], Quirk::Risky, Step::ForbiddenRisk),
    // By the server's layer, by the key's.
    refused("vault.reveal", &["read", "secret"], "none", "none", Step::Deny),
    refused("shell.run", &["read", "shell"], "none", "none", Step::Deny),
    refused("acme.deploy", &["write", "acme.deploy"], "none", "none", Step::Allow),
    refused("files.write", &["write", "fs"], "none", "none", Step::Allow),
    refused("live.order", &["trade"], "live_trade", "none", Step::MaxSideEffect),
    refused("paper.order", &["paper_trade"], "paper_trade", "none", Step::MaxSideEffect),
    refused("model.ask", &["model"], "none", "llm_cost", Step::MaxCostEffect),
    refused("venue.quote", &["market_data"], "none", "venue_request_cost", Step::MaxCostEffect),
];

const fn passing(
    stem: &'static str,
    count: usize,
    permissions: &'static [&'static str],
    side_effect: &'static str,
    cost_effect: &'static str,
) -> Kind {
    Kind {
        stem,
        count,
        permissions,
        side_effect,
        cost_effect,
        quirk: Quirk::None,
        refused_at: None,
    }
}

const fn refused(
    stem: &'static str,
    permissions: &'static [&'static str],
    side_effect: &'static str,
    cost_effect: &'static str,
    at: Step,
) -> Kind {
    Kind {
        stem,
        count: 2,
        permissions,
        side_effect,
        cost_effect,
        quirk: Quirk::None,
        refused_at: Some(at),
    }
}

const fn odd(
    stem: &'static str,
    permissions: &'static [&'static str],
    quirk: Quirk,
    at: Step,
) -> Kind {
    Kind { quirk, ..refused(stem, permissions, "none", "none", at) }
}

impl Kind {
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        (1..=self.count).map(|number| format!("{}_{number}", self.stem))
    }

    /// An entry of the manifest, in its wire format.
    pub(crate) fn entry(&self, name: &str) -> Value {
        let status = match self.quirk {
            Quirk::Deferred => "deferred",
            _ => "implemented",
        };
        let risk: &[&str] = match self.quirk {
            Quirk::Risky => &["slow", "unconfined_execution"],
            _ => &[],
        };
        json!({
            "name": name,
            "status": status,
            "stability": "beta",
            "authRequired": true,
            "permissions": self.permissions,
            "access": { "anonymousAllowed": false },
            "sideEffect": self.side_effect,
            "costEffect": self.cost_effect,
            "risk": risk,
            "schema": "Result",
            "agent": {
                "callable": !matches!(self.quirk, Quirk::NotCallable),
                "defaultEnabled": self.side_effect != "live_trade",
                "name": name,
            },
            "traceEvents": ["tool.call.started", "tool.call.completed", "tool.call.failed"],
            "replay": { "replayable": true, "match": "tool+inputHash" },
        })
    }
}
