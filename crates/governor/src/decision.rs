//! A decision as it is told to whoever asked.

use std::{fmt, sync::Arc};

use tollgate_contract::{Reason, id::IntentId};

use crate::effect::{Answer, Decided, Target};

/// The answer to an intent.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The intent's name.
    pub intent: IntentId,
    /// The answer.
    pub answer: Answer,
    /// Why not.
    pub reason: Option<Reason>,
    /// The same in words.
    pub why: String,
    /// The pool that decided.
    pub pool: Option<Arc<str>>,
    /// When it may be worth asking again.
    pub retry_at: Option<i64>,
    /// How long to wait before acting, in milliseconds.
    pub wait_ms: i64,
    /// The credential to use instead.
    pub identity_switch: Option<String>,
    /// Until when it may act.
    pub valid_until: Option<i64>,
    /// What was held, and what is left.
    pub pools: Vec<PoolShown>,
    /// When it was decided.
    pub as_of: i64,
    /// Why its urgency was not believed.
    pub demotion: Option<String>,
    /// What rules say that only warn.
    pub warnings: Vec<String>,
    /// Every step, where that was wanted.
    pub trace: Option<Vec<TraceStep>>,
}

/// What was asked of a pool, and what is left in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolShown {
    /// The pool.
    pub id: Arc<str>,
    /// What is counted.
    pub unit: Arc<str>,
    /// How much was asked.
    pub amount: u64,
    /// The limit.
    pub limit: Option<u64>,
    /// What is left now.
    pub remaining: Option<u64>,
    /// When the window ends.
    pub reset_at: Option<i64>,
}

/// One step of a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    /// What was looked at.
    pub policy_id: String,
    /// The rule within it.
    pub rule_index: Option<usize>,
    /// What was asked of it.
    pub condition: String,
    /// What it came to.
    pub result: &'static str,
    /// Why.
    pub reason: String,
}

impl Decision {
    pub(crate) fn new(intent: IntentId, now: i64, decided: &Decided) -> Self {
        let wait_ms = decided.from.map_or(0, |from| (from - now).max(0));
        Self {
            intent,
            answer: decided.decision,
            reason: decided.reason,
            why: String::new(),
            pool: decided.pool.clone(),
            retry_at: decided.retry_at,
            wait_ms,
            identity_switch: None,
            valid_until: decided.until,
            pools: Vec::new(),
            as_of: now,
            demotion: None,
            warnings: Vec::new(),
            trace: None,
        }
    }

    /// A decision about nothing, which is a no.
    pub(crate) fn nothing(intent: IntentId, now: i64) -> Self {
        Self {
            intent,
            answer: Answer::DenyWithReason,
            reason: Some(Reason::PolicyViolation),
            why: "nothing was decided".to_owned(),
            pool: None,
            retry_at: None,
            wait_ms: 0,
            identity_switch: None,
            valid_until: None,
            pools: Vec::new(),
            as_of: now,
            demotion: None,
            warnings: Vec::new(),
            trace: None,
        }
    }

    /// Can asking again help?
    pub fn is_retryable(&self) -> bool {
        self.retry_at.is_some() || self.reason == Some(Reason::Halted)
    }

    /// Why it was decided so, in a sentence.
    pub fn summary(&self) -> String {
        use fmt::Write;
        let mut text = String::with_capacity(96);
        match (self.answer, &self.pool) {
            (Answer::DenyWithReason, Some(pool)) => {
                let _ = write!(text, "{pool}: {}", self.why);
            }
            (Answer::DenyWithReason, None) => text.push_str(&self.why),
            _ => {
                let share = |pool: &&PoolShown| {
                    let limit = pool.limit.unwrap_or(u64::MAX).max(1);
                    u128::from(pool.remaining.unwrap_or(u64::MAX)) * 1_000_000 / u128::from(limit)
                };
                match self.pools.iter().min_by_key(share) {
                    Some(PoolShown {
                        id, remaining: Some(left), limit: Some(limit), unit, ..
                    }) => {
                        let _ = write!(text, "{left} of {limit} {unit} left in {id}");
                    }
                    Some(pool) => {
                        let _ = write!(text, "the limit of {} is not known yet", pool.id);
                    }
                    None => text.push_str("no pool is drawn on"),
                }
            }
        }
        if let Some(demotion) = &self.demotion {
            let _ = write!(text, "; {demotion}");
        }
        text
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("everything"),
            Self::Agent(name) => write!(f, "the agent {name}"),
            Self::Key(id) => write!(f, "the key {id}"),
            Self::Identity(name) => write!(f, "the identity {name}"),
            Self::Workload(name) => write!(f, "the work {name}"),
            Self::Scope(name) => write!(f, "the scope {name}"),
            Self::Pool(name) => write!(f, "the pool {name}"),
        }
    }
}
