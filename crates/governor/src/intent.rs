//! What an agent asks for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_contract::{Urgency, id::IntentId};

use crate::config::LARGEST_AMOUNT;

/// The name of an identity that nobody gives: then it is background work.
pub const UNKNOWN: &str = "sentinel:unknown";

/// Who asks, as the door found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    /// The account: of the key, or `local` without one.
    pub account: Arc<str>,
    /// The key's public name, or `local`.
    pub key: Arc<str>,
    /// Does it ask without a key?
    pub is_keyless: bool,
    /// Which agents it may say to be; `*` for anyone.
    pub agents: Arc<[String]>,
    /// Whose credentials it may name.
    pub identities: Arc<[String]>,
    /// The highest urgency it may claim.
    pub max_urgency: Urgency,
    /// Somebody vouched for its claim to be urgent.
    pub is_vouched: bool,
}

/// Without a key.
pub const LOCAL: &str = "local";

impl Asker {
    /// Whoever asks without a key, on this machine.
    pub fn local() -> Self {
        let anyone: Arc<[String]> = Arc::new(["*".to_owned()]);
        Self {
            account: LOCAL.into(),
            key: LOCAL.into(),
            is_keyless: true,
            agents: Arc::clone(&anyone),
            identities: anyone,
            max_urgency: Urgency::High,
            is_vouched: false,
        }
    }

    /// May it say to be this agent?
    pub fn may_be(&self, agent: &str) -> bool {
        covers(&self.agents, agent)
    }

    /// May it name any credential?
    pub(crate) fn may_use_any(&self) -> bool {
        self.identities.iter().any(|claim| claim == "*")
    }

    /// May it name this credential?
    pub fn may_use(&self, identity: &str) -> bool {
        covers(&self.identities, identity)
    }
}

/// Is a name among those that may be claimed? An entry may end in `*`.
fn covers(claims: &[String], name: &str) -> bool {
    claims.iter().any(|claim| match claim.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => claim == name,
    })
}

/// A request for permission.
#[derive(Debug, Clone, PartialEq)]
pub struct Intent {
    /// Who acts.
    pub agent_id: String,
    /// Whose credential is used.
    pub identity_id: String,
    /// What is done.
    pub workload_id: String,
    /// Where.
    pub scope_id: String,
    /// How much it matters.
    pub urgency: Urgency,
    /// What it will take.
    pub expected: Expected,
    /// How long it will run, in milliseconds.
    pub duration_ms: Option<i64>,
    /// Can it use another credential?
    pub can_switch: bool,
    /// The intent whose hold it goes on with.
    pub renew: Option<IntentId>,
    /// How long it is willing to wait, in milliseconds; as long as its urgency may book ahead where nothing
    /// is said.
    pub patience_ms: Option<i64>,
    /// Only routes that name the work count: it costs nothing by itself.
    pub named_only: bool,
}

/// What something is expected to take: amounts with their units. An amount without a unit is meant for the
/// first pool of a route.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Expected(Vec<(Option<Box<str>>, u64)>);

impl Expected {
    /// Nothing is said.
    pub const UNKNOWN: Self = Self(Vec::new());

    /// A number without a unit, rounded up.
    pub fn number(number: f64) -> Option<Self> {
        whole(number).map(|amount| Self(vec![(None, amount)]))
    }

    /// An amount with its unit.
    pub fn amount(unit: &str, amount: u64) -> Self {
        Self(vec![(Some(singular(unit).into()), amount)])
    }

    /// Amounts with their units.
    pub fn amounts(amounts: &[(String, u64)]) -> Self {
        Self(amounts.iter().map(|(unit, amount)| (Some(singular(unit).into()), *amount)).collect())
    }

    /// A text such as `100 points` or `1 call, 5000 tokens`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut amounts = Vec::new();
        for part in text.split(',') {
            let mut words = part.split_whitespace();
            let number = words.next()?.replace('_', "").parse::<f64>().ok().and_then(whole)?;
            let unit = words.next().map(|unit| singular(&unit.to_ascii_lowercase()).into());
            // Among several, one without a unit is rather a comma within a number.
            let is_unclear = unit.is_none() && text.contains(',');
            if words.next().is_some() || amounts.len() >= 8 || is_unclear {
                return None;
            }
            amounts.push((unit, number));
        }
        Some(Self(amounts))
    }

    /// What is said for a pool of this unit.
    pub(crate) fn of(&self, unit: &str, is_first: bool) -> Option<u64> {
        let unit = singular(unit);
        let meant = |said: &Option<Box<str>>| match said {
            Some(said) => **said == *unit,
            None => is_first,
        };
        self.0.iter().filter(|(said, _)| meant(said)).map(|(_, amount)| *amount).max()
    }

    /// Is nothing said?
    pub fn is_unknown(&self) -> bool {
        self.0.is_empty()
    }
}

fn singular(unit: &str) -> &str {
    unit.strip_suffix('s').unwrap_or(unit)
}

/// A number that is not negative, rounded up; `None` where it is no amount.
pub fn whole(number: f64) -> Option<u64> {
    #[expect(clippy::cast_precision_loss, reason = "the bound is exact as a float")]
    let most = LARGEST_AMOUNT as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is in range")]
    (0.0..=most).contains(&number).then(|| number.ceil() as u64)
}

#[cfg(test)]
#[path = "intent_tests.rs"]
mod tests;
