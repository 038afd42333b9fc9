//! What an agent keeps for long: its goals, what is open, what was decided.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::Capability;

/// The long-lived state of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "AgentState")]
pub struct State {
    /// What it is after.
    pub goals: Vec<String>,
    /// What is not finished.
    pub open_loops: Vec<String>,
    /// What was decided.
    pub decisions: Vec<String>,
    /// What must hold.
    pub constraints: Vec<String>,
    /// What has happened, in short.
    pub episode_summary: String,
    /// Words that memories are kept under.
    pub memory_tags: Vec<String>,
    /// Memories that history was moved into.
    pub memory_refs: Vec<String>,
    /// What was granted, as the ledger had it when this was written. It grants nothing.
    pub capabilities_granted: Vec<String>,
    /// What was asked for and waits for a person.
    pub capabilities_pending: Vec<String>,
}

/// The longest entry of a list, in characters.
pub const LONGEST_ENTRY: usize = 2000;
/// The longest summary, in characters.
pub const LONGEST_SUMMARY: usize = 8000;

/// How much a state holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest entry of a list, in characters.
    pub entry: usize,
    /// The longest summary, in characters.
    pub summary: usize,
    /// The most goals.
    pub goals: usize,
    /// The most open loops.
    pub open_loops: usize,
    /// The most decisions. The oldest make room.
    pub decisions: usize,
    /// The most constraints.
    pub constraints: usize,
    /// The most tags. The oldest make room.
    pub memory_tags: usize,
    /// The most references into memory. The oldest make room.
    pub memory_refs: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entry: LONGEST_ENTRY,
            summary: LONGEST_SUMMARY,
            goals: 50,
            open_loops: 200,
            decisions: 200,
            constraints: 100,
            memory_tags: 100,
            memory_refs: 200,
        }
    }
}

impl State {
    /// Puts in what the ledger says of capabilities. Nothing granted is pending.
    pub fn project(&mut self, granted: Vec<String>, pending: Vec<String>) {
        let is_granted = |wanted: &String| {
            granted.contains(wanted)
                || Capability::parse(wanted).is_ok_and(|wanted| {
                    let mut all = granted.iter().filter_map(|one| Capability::parse(one).ok());
                    all.any(|one| one == wanted)
                })
        };
        let mut waits: Vec<String> = Vec::new();
        for one in pending {
            if !is_granted(&one) && !waits.contains(&one) {
                waits.push(one);
            }
        }
        self.capabilities_pending = waits;
        self.capabilities_granted = granted;
    }

    /// Keeps references into memory; the oldest make room.
    pub fn refer(&mut self, ids: impl IntoIterator<Item = String>, limits: &Limits) {
        for id in ids {
            if !self.memory_refs.contains(&id) {
                self.memory_refs.push(id);
            }
        }
        let over = self.memory_refs.len().saturating_sub(limits.memory_refs);
        self.memory_refs.drain(..over);
    }
}
