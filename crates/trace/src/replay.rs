//! Strict replay.

use std::collections::{HashMap, VecDeque};

use tollgate_contract::{InputHash, ToolName, error::ReplayMiss, id::CallId};

use crate::{entry::Entry, read::Trace};

/// What a recorded call is found by: its tool, its input, and the call that made it.
type Key = (ToolName, InputHash, Option<CallId>);

/// A trace that answers calls. Each entry answers once.
#[derive(Debug, Clone)]
pub struct Replay {
    waiting: HashMap<Key, VecDeque<Entry>>,
}

impl Replay {
    /// Makes a trace answer. Equal calls of the same parent are answered in the order in which they were
    /// admitted; the order across different calls is free.
    pub fn new(trace: &Trace) -> Self {
        let mut entries = trace.entries().to_vec();
        entries.sort_by_key(|entry| entry.seq);
        let mut waiting: HashMap<Key, VecDeque<Entry>> = HashMap::new();
        for entry in entries {
            let key = (entry.tool.clone(), entry.input_hash, entry.parent_call_id);
            waiting.entry(key).or_default().push_back(entry);
        }
        Self { waiting }
    }

    /// The recorded call for this one. A miss, or an entry that must not stand in for a call, is a
    /// [`ReplayMiss`], and nothing else happens: nothing is ever called in its place.
    pub fn take(
        &mut self,
        tool: &ToolName,
        input_hash: InputHash,
        parent: Option<CallId>,
    ) -> Result<Entry, ReplayMiss> {
        let miss = || ReplayMiss::new(tool.clone(), input_hash);
        let queue = self.waiting.get_mut(&(tool.clone(), input_hash, parent)).ok_or_else(miss)?;
        match queue.front() {
            Some(entry) if entry.replayable => queue.pop_front().ok_or_else(miss),
            _ => Err(miss()),
        }
    }

    /// What was recorded and never asked for, in the order of admission.
    pub fn unused(&self) -> Vec<&Entry> {
        let mut left: Vec<&Entry> = self.waiting.values().flatten().collect();
        left.sort_by_key(|entry| entry.seq);
        left
    }
}
