//! Finds the rules whose head matches. Each rule is kept under the first name that its head gives, so that an
//! ask looks only at those that name it, or nothing, however many there are.

use std::collections::HashMap;

use tollgate_contract::Urgency;

use crate::setup::Pattern;

/// What an ask is matched by.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// What is done.
    pub workload: &'a str,
    /// Who acts.
    pub agent: &'a str,
    /// Whose credential is used.
    pub identity: &'a str,
    /// Where.
    pub scope: &'a str,
    /// How much it matters.
    pub urgency: Urgency,
}

/// The head of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RuleHead {
    pub(crate) workload: Pattern,
    pub(crate) agent: Pattern,
    pub(crate) identity: Pattern,
    pub(crate) scope: Pattern,
    pub(crate) pool: Pattern,
    /// Those that are meant: background, normal, high.
    pub(crate) urgencies: [bool; 3],
}

impl RuleHead {
    /// All but the pool.
    pub(crate) fn matches(&self, head: &Head<'_>) -> bool {
        let [background, normal, high] = self.urgencies;
        let is_urgency = match head.urgency {
            Urgency::Background => background,
            Urgency::Normal => normal,
            Urgency::High => high,
        };
        is_urgency
            && self.workload.matches(head.workload)
            && self.agent.matches(head.agent)
            && self.identity.matches(head.identity)
            && self.scope.matches(head.scope)
    }
}

/// Rules by a name.
#[derive(Debug, Clone, Default)]
struct Names {
    by_name: HashMap<Box<str>, Vec<usize>>,
    by_beginning: HashMap<Box<str>, Vec<usize>>,
    /// The lengths of those beginnings, ascending.
    lengths: Vec<usize>,
}

impl Names {
    fn add(&mut self, pattern: &Pattern, place: usize) -> bool {
        match pattern {
            Pattern::Any => return false,
            Pattern::Is(name) => self.by_name.entry(name.clone()).or_default().push(place),
            Pattern::Begins(text) => {
                self.by_beginning.entry(text.clone()).or_default().push(place);
                if let Err(at) = self.lengths.binary_search(&text.len()) {
                    self.lengths.insert(at, text.len());
                }
            }
        }
        true
    }

    fn find(&self, name: &str, mut each: impl FnMut(usize)) {
        if !self.by_name.is_empty() {
            self.by_name.get(name).into_iter().flatten().for_each(|place| each(*place));
        }
        for length in self.lengths.iter().take_while(|length| **length <= name.len()) {
            // In the middle of a letter there is no beginning.
            let Some(beginning) = name.get(..*length) else { continue };
            self.by_beginning.get(beginning).into_iter().flatten().for_each(|place| each(*place));
        }
    }
}

/// All rules, each under one name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    workloads: Names,
    agents: Names,
    identities: Names,
    scopes: Names,
    pools: Names,
    /// Those that name nothing.
    others: Vec<usize>,
}

impl Index {
    pub(crate) fn add(&mut self, head: &RuleHead, place: usize) {
        let is_named = self.workloads.add(&head.workload, place)
            || self.agents.add(&head.agent, place)
            || self.identities.add(&head.identity, place)
            || self.scopes.add(&head.scope, place)
            || self.pools.add(&head.pool, place);
        if !is_named {
            self.others.push(place);
        }
    }

    /// Every rule that can match, and some that do not; one may come twice if it names the beginnings of
    /// several pools.
    pub(crate) fn find<'p>(
        &self,
        head: &Head<'_>,
        pools: impl Iterator<Item = &'p str>,
        mut each: impl FnMut(usize),
    ) {
        self.workloads.find(head.workload, &mut each);
        self.agents.find(head.agent, &mut each);
        self.identities.find(head.identity, &mut each);
        self.scopes.find(head.scope, &mut each);
        pools.for_each(|pool| self.pools.find(pool, &mut each));
        self.others.iter().for_each(|place| each(*place));
    }
}
