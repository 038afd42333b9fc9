//! What if: the recorded history, asked again of another configuration.
//!
//! Every recorded ask is decided anew, at its time, by a governor of its own that starts from the same state. What
//! was used is what was recorded as used, as far as the work would have been approved; what would have been
//! approved in addition is taken to cost what it holds. So it is exact as long as the configuration is the
//! recorded one, and an estimate of what follows from the first difference on. Who else is in the
//! group of a credential is taken as it is now, and what was asked with a credential that was forgotten since stays as it was decided.

use std::{collections::BTreeSet, sync::Arc};

use tollgate_contract::{Reason, Urgency, id::IntentId};

use crate::{
    config::GovernorConfig,
    decide::{Ask, Fresh},
    decision::Decision,
    effect::{Answer, Configured, Decided, Drawn, Effect, Event, Spent, Used},
    identity::Named,
    intent::{Asker, Intent, LOCAL},
    setup::SetupError,
    state::Governor,
};

/// A history that is asked again.
pub struct WhatIf {
    governor: Governor,
    /// The configuration is another one than the recorded.
    is_changed: bool,
    /// What is approved here and was not, and until when.
    extra: BTreeSet<(i64, IntentId)>,
    asker: Asker,
}

/// What became of an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Different {
    /// The answer.
    pub answer: Answer,
    /// Why not.
    pub reason: Option<Reason>,
    /// The pool that decided.
    pub pool: Option<Arc<str>>,
    /// How long to wait, in milliseconds.
    pub wait_ms: i64,
    /// The rules that matched.
    pub rules: Vec<Arc<str>>,
    /// What it holds, or would.
    pub drawn: Vec<(Arc<str>, u64)>,
}

/// An ask that was recorded, and what it would have come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// When.
    pub ts: i64,
    /// The intent.
    pub intent: IntentId,
    /// Who.
    pub agent: Arc<str>,
    /// Whose credential, by its pseudonym.
    pub identity: Arc<str>,
    /// What.
    pub workload: Arc<str>,
    /// Where.
    pub scope: Arc<str>,
    /// How much it mattered.
    pub urgency: Urgency,
    /// What was decided.
    pub before: Different,
    /// What would have been.
    pub after: Different,
    /// Why, in words.
    pub why: String,
}

impl Difference {
    /// Does anything differ?
    pub fn is_one(&self) -> bool {
        let told = |it: &Different| (it.answer, it.reason, it.wait_ms);
        told(&self.before) != told(&self.after)
    }
}

impl WhatIf {
    /// Begins with the state that the history before has led to. With a configuration, that one holds from here on, and
    /// recorded changes of it are left out.
    pub fn new(
        mut state: Governor,
        config: Option<GovernorConfig>,
        now: i64,
    ) -> Result<Self, SetupError> {
        let is_changed = config.is_some();
        if let Some(config) = config {
            config.build(now)?;
            let configured = Configured { governor: Some(config), about: serde_json::Map::new() };
            let effect = Effect::Configured(Box::new(configured));
            state.apply(&Event { ts: now, about: crate::About::default(), effect });
        }
        let asker = Asker { is_keyless: false, ..Asker::local() };
        Ok(Self { governor: state, is_changed, extra: BTreeSet::new(), asker })
    }

    /// The state that it has come to.
    pub fn governor(&self) -> &Governor {
        &self.governor
    }

    /// Takes the next event. Gives what became of it, if it is an ask.
    pub fn next(&mut self, event: &Event) -> Option<Difference> {
        self.end_extras(event.ts);
        match &event.effect {
            Effect::Decided(decided) => return self.ask(event, decided),
            Effect::Used(used) => self.used(event, used),
            Effect::Expired(expired) => {
                let ids = expired.holds.iter().map(|hold| hold.intent_id);
                self.governor.expire_these(ids, event.ts);
            }
            Effect::Registered(registered) => {
                self.governor.apply(event);
                // A name that was forgotten since is replaced by how events call it.
                if self.governor.identities().name_of(&registered.pseudonym).is_none() {
                    self.governor.identities_mut().put(Named {
                        name: registered.pseudonym.to_string(),
                        pseudonym: Arc::clone(&registered.pseudonym),
                        salt: String::new(),
                        kind: None,
                        group: None,
                        metadata: None,
                        since_ms: event.ts,
                    });
                }
            }
            Effect::Configured(_) | Effect::Crossed(_) if self.is_changed => {}
            _ => self.governor.apply(event),
        }
        None
    }

    /// What is approved here alone runs out by itself: nobody recorded that it did.
    fn end_extras(&mut self, now: i64) {
        while let Some((until, intent)) = self.extra.first().copied().filter(|(at, _)| *at <= now) {
            self.extra.pop_first();
            self.governor.expire_these(std::iter::once(intent), until);
        }
    }

    fn ask(&mut self, event: &Event, decided: &Decided) -> Option<Difference> {
        let about = &event.about;
        let intent_id = about.intent?;
        let identity = decided.asked.asked_identity.clone().or_else(|| about.identity.clone());
        let identity = identity.unwrap_or_else(|| "".into());
        let before = Different::recorded(event.ts, decided);
        let difference = |after: Different, why: String| Difference {
            ts: event.ts,
            intent: intent_id,
            agent: about.agent.clone().unwrap_or_else(|| "".into()),
            identity: Arc::clone(&identity),
            workload: about.workload.clone().unwrap_or_else(|| "".into()),
            scope: about.scope.clone().unwrap_or_else(|| "".into()),
            urgency: decided.urgency,
            before: before.clone(),
            after,
            why,
        };
        // What a key may claim is no matter of pools and rules; and of a credential that was forgotten nobody knows
        // which routes and rules it was for.
        let name = self.governor.identities().name_of(&identity).map(str::to_owned);
        let name = name.filter(|name| **name != *identity && !decided.asked.claim_refused);
        let Some(name) = name else {
            self.governor.apply(event);
            return Some(difference(before.clone(), String::new()));
        };
        self.be_as_registered(&name, decided);
        let intent = Intent {
            agent_id: about.agent.as_deref().unwrap_or_default().to_owned(),
            identity_id: name,
            workload_id: about.workload.as_deref().unwrap_or_default().to_owned(),
            scope_id: about.scope.as_deref().unwrap_or_default().to_owned(),
            urgency: decided.claimed.unwrap_or(decided.urgency),
            expected: decided.expected_cost.clone(),
            duration_ms: decided.asked.duration_ms,
            can_switch: decided.asked.can_switch,
            renew: decided.asked.renew,
            patience_ms: decided.asked.patience_ms,
            named_only: decided.asked.named_only,
        };
        self.asker.account = Arc::clone(&decided.account);
        self.asker.key = Arc::clone(&decided.caller);
        self.asker.is_vouched = decided.asked.vouched;
        self.asker.identities = match &decided.asked.may_use {
            Some(claims) => Arc::clone(claims),
            None => Arc::clone(&self.asker.agents),
        };
        self.asker.is_keyless = *decided.caller == *LOCAL;
        let fresh =
            Fresh { pseudonym: Arc::clone(&identity), salt: String::new(), name_hash: "".into() };
        let ask = Ask {
            asker: &self.asker,
            intent: &intent,
            id: intent_id,
            fresh: &fresh,
            request: None,
            context_hash: None,
            wants_trace: false,
        };
        let outcome = self.governor.decide(&ask, event.ts).ok()?;
        let rules = outcome.events.iter().find_map(|event| match &event.effect {
            Effect::Decided(decided) => Some(names(decided)),
            _ => None,
        });
        let after = Different::anew(&outcome.decision, rules.unwrap_or_default());
        if let Some(until) = outcome.decision.valid_until
            && !decided.decision.is_approval()
        {
            self.extra.insert((until, intent_id));
        }
        Some(difference(after, outcome.decision.summary()))
    }

    /// A credential is what it was when this was asked.
    fn be_as_registered(&mut self, name: &str, decided: &Decided) {
        let identities = self.governor.identities_mut();
        let Some(named) = identities.by_name(name) else { return };
        let (kind, group) = (decided.asked.kind.as_deref(), decided.asked.group.as_deref());
        if (named.kind.as_deref(), named.group.as_deref()) != (kind, group) {
            let (kind, group) = (kind.map(str::to_owned), group.map(str::to_owned));
            let named = Named { kind, group, ..Named::clone(named) };
            identities.put(named);
        }
    }

    /// What was recorded as used counts here too, if the work was approved here.
    fn used(&mut self, event: &Event, used: &Used) {
        if used.ghost {
            self.governor.apply(event);
            return;
        }
        let Some(intent) = event.about.intent else { return };
        let Some((drawn, _)) = self.governor.drawn_by(intent) else { return };
        let drawn: Vec<Drawn> = drawn.to_vec();
        let pools = drawn.iter().filter_map(|drawn| {
            let pool = Arc::clone(self.governor.pool_of(&drawn.pool)?);
            let same = |spent: &&Spent| spent.pool == drawn.pool && spent.key == drawn.key;
            let recorded = used.pools.iter().find(same);
            Some(Spent {
                pool: Arc::clone(&drawn.pool),
                key: Arc::clone(&drawn.key),
                held: drawn.amount,
                used: recorded.map_or(drawn.amount, |spent| spent.used),
                reported: None,
                to: self.governor.forgotten_at(drawn, &pool, event.ts),
            })
        });
        let pools = pools.collect();
        let effect = Effect::Used(Used { pools, ..used.clone() });
        self.governor.apply(&Event { ts: event.ts, about: event.about.clone(), effect });
    }
}

fn names(decided: &Decided) -> Vec<Arc<str>> {
    decided.rules.iter().map(|rule| Arc::clone(&rule.id)).collect()
}

impl Different {
    fn recorded(now: i64, decided: &Decided) -> Self {
        Self {
            answer: decided.decision,
            reason: decided.reason,
            pool: decided.pool.clone(),
            wait_ms: decided.from.map_or(0, |from| (from - now).max(0)),
            rules: names(decided),
            drawn: decided.pools.iter().map(|d| (Arc::clone(&d.pool), d.amount)).collect(),
        }
    }

    fn anew(decision: &Decision, rules: Vec<Arc<str>>) -> Self {
        Self {
            answer: decision.answer,
            reason: decision.reason,
            pool: decision.pool.clone(),
            wait_ms: decision.wait_ms,
            rules,
            drawn: decision.pools.iter().map(|p| (Arc::clone(&p.id), p.amount)).collect(),
        }
    }
}

#[cfg(test)]
#[path = "what_if_tests.rs"]
mod tests;
