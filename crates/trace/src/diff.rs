//! Two traces side by side.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use tollgate_contract::{InputHash, ToolName};

use crate::{
    entry::{Ended, Entry},
    read::Trace,
};

/// One way in which two traces differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Difference {
    /// A call that only the first has.
    OnlyInFirst {
        /// The tool.
        tool: ToolName,
        /// Its input.
        input_hash: InputHash,
        /// Its place in the first trace.
        seq: u64,
    },
    /// A call that only the second has.
    OnlyInSecond {
        /// The tool.
        tool: ToolName,
        /// Its input.
        input_hash: InputHash,
        /// Its place in the second trace.
        seq: u64,
    },
    /// The same call came to something else.
    EndedOtherwise {
        /// The tool.
        tool: ToolName,
        /// Its input.
        input_hash: InputHash,
        /// Its places in the first and the second trace.
        seqs: (u64, u64),
        /// What came of it in each.
        ended: Box<(Ended, Ended)>,
    },
}

/// How two traces differ in what was called and what came of it. Times, ids and the order of different
/// calls do not count; equal calls are compared in the order in which they were admitted.
pub fn diff(first: &Trace, second: &Trace) -> Vec<Difference> {
    let (first, second) = (sorted(first), sorted(second));
    let mut waiting: BTreeMap<(ToolName, InputHash), VecDeque<&Entry>> = BTreeMap::new();
    for entry in second {
        waiting.entry((entry.tool.clone(), entry.input_hash)).or_default().push_back(entry);
    }
    let mut found = Vec::new();
    for one in first {
        let (tool, input_hash) = (one.tool.clone(), one.input_hash);
        let other = waiting.get_mut(&(tool.clone(), input_hash)).and_then(VecDeque::pop_front);
        match other {
            None => found.push(Difference::OnlyInFirst { tool, input_hash, seq: one.seq }),
            Some(other) if other.ended != one.ended => found.push(Difference::EndedOtherwise {
                tool,
                input_hash,
                seqs: (one.seq, other.seq),
                ended: Box::new((one.ended.clone(), other.ended.clone())),
            }),
            Some(_) => {}
        }
    }
    let mut left: Vec<&Entry> = waiting.into_values().flatten().collect();
    left.sort_by_key(|entry| entry.seq);
    found.extend(left.into_iter().map(|entry| Difference::OnlyInSecond {
        tool: entry.tool.clone(),
        input_hash: entry.input_hash,
        seq: entry.seq,
    }));
    found
}

fn sorted(trace: &Trace) -> Vec<&Entry> {
    let mut entries: Vec<&Entry> = trace.entries().iter().collect();
    entries.sort_by_key(|entry| entry.seq);
    entries
}
