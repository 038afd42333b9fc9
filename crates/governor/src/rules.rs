//! Rules: what an operator wants to be decided otherwise than by limits alone.
//!
//! A rule has a head (which work, agent, credential, place, pool and urgency it is about), an optional condition
//! in CEL, an optional time window, and an action. Everything is checked when rules are loaded: every name and
//! type in a condition, what it can cost, and its examples; one bad rule and none is loaded. All rules whose
//! head matches are evaluated, the strictest decides, and what cannot be worked out restricts.

mod action;
mod calls;
mod check;
mod config;
mod during;
mod examples;
mod expression;
mod facts;
mod index;
mod rule;
mod samples;
mod scan;

use std::{collections::HashSet, fmt};

use tollgate_contract::text::Quoted;

pub use action::{Action, Evaluated, Matched, Wait, strictest};
pub use config::{DuringConfig, ExampleConfig, Expectation, RuleConfig, Said, Urgencies};
pub use expression::Position;
pub use facts::{
    AgentFacts, Facts, ForecastFacts, IdentityFacts, IntentFacts, Kind, PoolFacts, VARIABLES,
    Variable, sample_facts,
};
pub use index::Head;
pub use rule::Rule;

use crate::setup::Pattern;
use expression::Refusal;
use index::Index;

/// How many rules there may be.
const MOST_RULES: usize = 10_000;

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct RuleError {
    /// The rule's place in the file.
    pub rule: usize,
    /// Its name.
    pub id: String,
    /// The field.
    pub field: String,
    /// Where in it, if it is an expression.
    pub position: Option<Position>,
    /// What, and what to do.
    pub problem: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, id, field, position, problem } = self;
        write!(f, "rules[{rule}] \"{id}\" {field}")?;
        if let Some(Position { line, column }) = position {
            write!(f, ", line {line}, column {column}")?;
        }
        write!(f, ": {problem}")
    }
}

/// Rules, checked and indexed.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    index: Index,
}

impl Rules {
    /// No rules.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Checks all rules, or says what is wrong with the first that is.
    pub fn build(configs: &[RuleConfig]) -> Result<Self, RuleError> {
        let mut built = Self::default();
        let mut ids = HashSet::new();
        for (place, config) in configs.iter().enumerate() {
            let error = |field: String, (position, problem): Refusal| RuleError {
                rule: place,
                id: Quoted::new(&config.id).as_str().to_owned(),
                field,
                position,
                problem,
            };
            if place >= MOST_RULES {
                let problem = format!("there are more than {MOST_RULES} rules");
                return Err(error("id".to_owned(), (None, problem)));
            }
            let rule = rule::build(config).map_err(|(field, refusal)| error(field, refusal))?;
            if !ids.insert(config.id.as_str()) {
                let problem = "there are two rules of this name; every name is used once";
                return Err(error("id".to_owned(), (None, problem.to_owned())));
            }
            rule.try_examples(&config.expect)
                .map_err(|(field, problem)| error(field, (None, problem)))?;
            built.index.add(&rule.head, place);
            built.rules.push(rule);
        }
        Ok(built)
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// All rules, in the order of the file.
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule at this place.
    pub fn get(&self, place: usize) -> Option<&Rule> {
        self.rules.get(place)
    }

    /// The places of the rules whose head matches, in the order of the file. A rule that names a pool is among
    /// them if one of `pools`, which are drawn on, is meant. Where there is none, nothing is allocated.
    pub fn candidates<'p>(
        &self,
        head: &Head<'_>,
        pools: impl Iterator<Item = &'p str> + Clone,
    ) -> Vec<usize> {
        let mut found = Vec::new();
        if self.rules.is_empty() {
            return found;
        }
        self.index.find(head, pools.clone(), |place| {
            let is_meant = self.rules.get(place).is_some_and(|rule| {
                rule.head.matches(head)
                    && (rule.head.pool == Pattern::Any
                        || pools.clone().any(|pool| rule.applies_to_pool(pool)))
            });
            if is_meant {
                found.push(place);
            }
        });
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
