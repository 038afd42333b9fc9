//! What if: the ledger's history through another configuration, read as it stands, event by event.

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate_contract::{Error, error::InvalidRequest, text::Clean};
use tollgate_governor::{Answer, Difference, Governor, GovernorConfig, WhatIf};
use tollgate_ledger::Reader;

use crate::{clock::rfc3339, governing::recover};

/// How many events are read at a time.
const AT_A_TIME: u64 = 2000;

/// How many names are told of each kind, those with the most differences first.
const MOST_TOLD: usize = 20;

/// What a history would have come to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct WhatIfSummary {
    /// When the first decision was made that was asked again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// When the last one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// How many decisions were asked again.
    pub decisions: u64,
    /// How many of them would be the same.
    pub same: u64,
    /// How many were approved, at once or after a wait, and would be denied.
    pub stopped: u64,
    /// How many were denied and would be approved.
    pub allowed: u64,
    /// How many would have to wait, or to wait longer.
    pub delayed: u64,
    /// How many would wait less, or not at all.
    pub sped_up: u64,
    /// How many would be denied for another reason.
    pub other_reason: u64,
    /// Of whom, those with the most differences first.
    pub agents: Vec<WhatIfCount>,
    /// Of what, likewise.
    pub workloads: Vec<WhatIfCount>,
    /// What each rule matched.
    pub rules: Vec<WhatIfRule>,
    /// What was held in each pool, and what would have been.
    pub pools: Vec<WhatIfPool>,
}

/// The differences of one agent, or of one kind of work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct WhatIfCount {
    /// Its name.
    pub name: String,
    /// How often it would be stopped.
    pub stopped: u64,
    /// How often it would be allowed.
    pub allowed: u64,
    /// How often it would wait longer, or less, or be denied for another reason.
    pub other: u64,
}

/// What a rule would have matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct WhatIfRule {
    /// The rule.
    pub id: String,
    /// How many asks it would have matched.
    pub matched: u64,
}

/// What a pool would have held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct WhatIfPool {
    /// The pool.
    pub id: String,
    /// What was approved of it.
    pub approved: u64,
    /// What would have been.
    pub would_be: u64,
}

/// What is counted on the way.
#[derive(Default)]
struct Sums {
    summary: WhatIfSummary,
    first: Option<i64>,
    last: Option<i64>,
    agents: BTreeMap<String, WhatIfCount>,
    workloads: BTreeMap<String, WhatIfCount>,
    rules: BTreeMap<String, u64>,
    pools: BTreeMap<String, (u64, u64)>,
}

/// How an ask differs.
enum Kind {
    Stopped,
    Allowed,
    Other,
}

impl Sums {
    fn note(&mut self, one: &Difference) {
        self.first = self.first.or(Some(one.ts));
        self.last = Some(one.ts);
        self.summary.decisions += 1;
        for rule in &one.after.rules {
            *self.rules.entry(rule.to_string()).or_default() += 1;
        }
        for (told, was) in [(&one.before, true), (&one.after, false)] {
            for (pool, amount) in told.drawn.iter().filter(|_| told.answer.is_approval()) {
                let sums = self.pools.entry(pool.to_string()).or_default();
                let sum = if was { &mut sums.0 } else { &mut sums.1 };
                *sum = sum.saturating_add(*amount);
            }
        }
        if !one.is_one() {
            self.summary.same += 1;
            return;
        }
        let kind = self.kind(one);
        for (names, name) in [(&mut self.agents, &one.agent), (&mut self.workloads, &one.workload)]
        {
            let count = names.entry(name.to_string()).or_default();
            count.name = name.to_string();
            match kind {
                Kind::Stopped => count.stopped += 1,
                Kind::Allowed => count.allowed += 1,
                Kind::Other => count.other += 1,
            }
        }
    }

    fn kind(&mut self, one: &Difference) -> Kind {
        let summary = &mut self.summary;
        match (one.before.answer.is_approval(), one.after.answer.is_approval()) {
            (true, false) => {
                summary.stopped += 1;
                return Kind::Stopped;
            }
            (false, true) => {
                summary.allowed += 1;
                return Kind::Allowed;
            }
            (true, true) if one.after.wait_ms > one.before.wait_ms => summary.delayed += 1,
            (true, true) => summary.sped_up += 1,
            (false, false) => summary.other_reason += 1,
        }
        Kind::Other
    }

    fn finish(self) -> WhatIfSummary {
        let top = |names: BTreeMap<String, WhatIfCount>| {
            let mut all: Vec<WhatIfCount> = names.into_values().collect();
            all.sort_by_key(|count| std::cmp::Reverse(count.stopped + count.allowed + count.other));
            all.truncate(MOST_TOLD);
            all
        };
        let pool = |(id, (approved, would_be))| WhatIfPool { id, approved, would_be };
        WhatIfSummary {
            from: self.first.map(rfc3339),
            to: self.last.map(rfc3339),
            agents: top(self.agents),
            workloads: top(self.workloads),
            rules: self.rules.into_iter().map(|(id, matched)| WhatIfRule { id, matched }).collect(),
            pools: self.pools.into_iter().map(pool).collect(),
            ..self.summary
        }
    }
}

/// Asks the history since a moment again, and tells of every decision that would differ. Without a configuration
/// the recorded ones hold, and nothing differs.
pub fn what_if(
    reader: &Reader,
    config: Option<GovernorConfig>,
    since_ms: i64,
    mut differs: impl FnMut(&Difference),
) -> Result<WhatIfSummary, Error> {
    let (state, mut after) = recover::oldest(reader)?;
    let mut begun: Result<WhatIf, (Governor, Option<GovernorConfig>)> = Err((state, config));
    let mut sums = Sums::default();
    loop {
        let events = reader.tail(after, AT_A_TIME)?;
        let Some(last) = events.last() else { return Ok(sums.finish()) };
        after = last.seq;
        for event in events.iter().filter_map(recover::read) {
            begun = match begun {
                Err((mut state, config)) if event.ts < since_ms => {
                    state.apply(&event);
                    Err((state, config))
                }
                Err((state, config)) => {
                    Ok(WhatIf::new(state, config, event.ts).map_err(|error| {
                        InvalidRequest::new(Clean::new(&error.to_string()), Vec::new())
                    })?)
                }
                running => running,
            };
            if let Ok(what_if) = &mut begun
                && let Some(one) = what_if.next(&event)
            {
                sums.note(&one);
                if one.is_one() {
                    differs(&one);
                }
            }
        }
    }
}

/// An answer in a word.
pub fn answer_word(answer: Answer, wait_ms: i64) -> &'static str {
    match answer {
        Answer::Approve => "approved",
        Answer::ApproveWithModifications if wait_ms == 0 => "switches",
        Answer::ApproveWithModifications => "waits",
        Answer::DenyWithReason => "denied",
    }
}
