//! A trace in a few lines.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use tollgate_contract::{CostEffect, SideEffect, id::RunId};

use crate::read::Trace;

/// What a trace comes to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The runs in it.
    pub runs: Vec<RunId>,
    /// How many calls it holds.
    pub calls: usize,
    /// How many of them ended in an error.
    pub failed: usize,
    /// How many of them can be replayed.
    pub replayable: usize,
    /// The highest side effect among them.
    pub max_side_effect: SideEffect,
    /// The highest cost effect among them.
    pub max_cost_effect: CostEffect,
    /// How long they took together.
    pub duration_ms: u64,
    /// When the first was admitted.
    pub first: Option<String>,
    /// When the last was admitted.
    pub last: Option<String>,
    /// The calls by tool.
    pub tools: BTreeMap<String, ToolCount>,
    /// SHA-256 of the trace.
    pub sha256: String,
}

/// The calls of one tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ToolCount {
    /// How many.
    pub calls: usize,
    /// How many of them ended in an error.
    pub failed: usize,
}

impl Receipt {
    /// Sums a trace up.
    pub fn of(trace: &Trace) -> Self {
        let entries = trace.entries();
        let mut tools: BTreeMap<String, ToolCount> = BTreeMap::new();
        for entry in entries {
            let count = tools.entry(entry.tool.to_string()).or_default();
            count.calls += 1;
            count.failed += usize::from(!entry.ended.is_output());
        }
        let runs: BTreeSet<RunId> = entries.iter().map(|entry| entry.run_id).collect();
        Self {
            runs: runs.into_iter().collect(),
            calls: entries.len(),
            failed: entries.iter().filter(|entry| !entry.ended.is_output()).count(),
            replayable: entries.iter().filter(|entry| entry.replayable).count(),
            max_side_effect: entries
                .iter()
                .map(|e| e.side_effect)
                .max()
                .unwrap_or(SideEffect::None),
            max_cost_effect: entries
                .iter()
                .map(|e| e.cost_effect)
                .max()
                .unwrap_or(CostEffect::None),
            duration_ms: entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.duration_ms)),
            first: entries.iter().min_by_key(|entry| entry.seq).map(|entry| entry.ts.clone()),
            last: entries.iter().max_by_key(|entry| entry.seq).map(|entry| entry.ts.clone()),
            tools,
            sha256: trace.sha256().to_owned(),
        }
    }
}
