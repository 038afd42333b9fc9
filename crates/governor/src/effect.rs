//! What happened, as it is recorded: effects, never reasons to decide anew. A live governor applies the very
//! values that are written, and one that starts applies what it reads.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_contract::{Reason, Urgency, event::Event as Kind, id::IntentId};

use crate::{config::GovernorConfig, intent::Expected, judge::RuleMatch};

/// Something that happened to the governor.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When, in milliseconds since 1970.
    pub ts: i64,
    /// Whom and what it is about.
    pub about: About,
    /// What.
    pub effect: Effect,
}

/// Whom and what an event is about. Identities are pseudonyms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct About {
    /// The agent.
    pub agent: Option<Arc<str>>,
    /// The credential's pseudonym.
    pub identity: Option<Arc<str>>,
    /// The work.
    pub workload: Option<Arc<str>>,
    /// The place.
    pub scope: Option<Arc<str>>,
    /// The intent.
    pub intent: Option<IntentId>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// An intent was decided.
    Decided(Box<Decided>),
    /// Usage was reported.
    Used(Used),
    /// Holds ran out unsettled.
    Expired(Expired),
    /// A provider said something of its own count.
    Heard(Heard),
    /// A window of a provider was seen to begin anew. Told apart for readers; what it changes is in
    /// [`Effect::Heard`].
    Reset(Told),
    /// Our count and the provider's differ. Told for readers.
    Drift(Told),
    /// A credential was named for the first time.
    Registered(Registered),
    /// A credential was forgotten.
    Deleted(Deleted),
    /// Work was stopped.
    Halted(Halt),
    /// Work goes on.
    Resumed(Halt),
    /// Pools, routes or settings changed.
    Configured(Box<Configured>),
    /// It has become probable that a pool is exhausted before it is full again, or is so no more.
    Crossed(Crossed),
}

impl Effect {
    /// Its kind in the ledger.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Decided(_) => Kind::IntentDecided,
            Self::Used(_) => Kind::UsageObserved,
            Self::Expired(_) => Kind::HoldExpired,
            Self::Heard(_) => Kind::ProviderObserved,
            Self::Reset(_) => Kind::ResetObserved,
            Self::Drift(_) => Kind::DriftDetected,
            Self::Registered(_) => Kind::IdentityRegistered,
            Self::Deleted(_) => Kind::IdentityDeleted,
            Self::Halted(_) => Kind::Halted,
            Self::Resumed(_) => Kind::Resumed,
            Self::Configured(_) => Kind::ConfigApplied,
            Self::Crossed(_) => Kind::ForecastCrossed,
        }
    }

    /// What it is written as.
    pub fn payload(&self) -> serde_json::Result<String> {
        match self {
            Self::Decided(effect) => serde_json::to_string(effect),
            Self::Used(effect) => serde_json::to_string(effect),
            Self::Expired(effect) => serde_json::to_string(effect),
            Self::Heard(effect) => serde_json::to_string(effect),
            Self::Reset(effect) | Self::Drift(effect) => serde_json::to_string(effect),
            Self::Registered(effect) => serde_json::to_string(effect),
            Self::Deleted(effect) => serde_json::to_string(effect),
            Self::Halted(effect) | Self::Resumed(effect) => serde_json::to_string(effect),
            Self::Configured(effect) => serde_json::to_string(effect),
            Self::Crossed(effect) => serde_json::to_string(effect),
        }
    }

    /// Reads what was written; `None` for a kind that is none of the governor's.
    pub fn read(kind: &str, payload: &str) -> Option<serde_json::Result<Self>> {
        fn of<T: for<'a> Deserialize<'a>>(
            payload: &str,
            wrap: impl FnOnce(T) -> Effect,
        ) -> Option<serde_json::Result<Effect>> {
            Some(serde_json::from_str(payload).map(wrap))
        }
        match kind {
            "intent_decided" => of(payload, |effect| Self::Decided(Box::new(effect))),
            "usage_observed" => of(payload, Self::Used),
            "hold_expired" => of(payload, Self::Expired),
            "provider_observed" => of(payload, Self::Heard),
            "reset_observed" => of(payload, Self::Reset),
            "drift_detected" => of(payload, Self::Drift),
            "identity_registered" => of(payload, Self::Registered),
            "identity_deleted" => of(payload, Self::Deleted),
            "halted" => of(payload, Self::Halted),
            "resumed" => of(payload, Self::Resumed),
            "forecast_crossed" => of(payload, Self::Crossed),
            "config_applied" => of(payload, |effect| Self::Configured(Box::new(effect))),
            _ => None,
        }
    }
}

/// The three answers of the seed, by its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Go ahead.
    Approve,
    /// Go ahead, but wait or switch first.
    ApproveWithModifications,
    /// No.
    DenyWithReason,
}

impl Answer {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::ApproveWithModifications => "approve_with_modifications",
            Self::DenyWithReason => "deny_with_reason",
        }
    }

    /// May the agent act?
    pub fn is_approval(self) -> bool {
        self != Self::DenyWithReason
    }
}

/// An intent, and what was decided about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// The key that asked, or `local`.
    pub caller: Arc<str>,
    /// The account that it belongs to.
    pub account: Arc<str>,
    /// How much it mattered, for the decision.
    pub urgency: Urgency,
    /// What was claimed, where that was more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Urgency>,
    /// What it was expected to take.
    #[serde(default, skip_serializing_if = "Expected::is_unknown")]
    pub expected_cost: Expected,
    /// The answer.
    pub decision: Answer,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The pool that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Arc<str>>,
    /// When it may be worth asking again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<i64>,
    /// From when on its holder may act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
    /// What it draws on. Held if it was approved.
    pub pools: Vec<Drawn>,
    /// It goes on with its earlier hold, which ends here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub renews: bool,
    /// The caller's own name for this ask, hashed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Arc<str>>,
    /// The free text that came along, hashed with a salt that is kept beside the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_hash: Option<Box<str>>,
    /// Until when the agent is demoted from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demoted_until: Option<i64>,
    /// The rules that matched, in the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleMatch>,
    /// What else was asked, so that it can be asked again of another configuration.
    #[serde(default, skip_serializing_if = "AskedMore::is_nothing")]
    pub asked: AskedMore,
}

/// What an ask said beside its names, its urgency and its cost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AskedMore {
    /// How long it would run, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
    /// How long it was willing to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ms: Option<i64>,
    /// It could use another credential.
    #[serde(default, skip_serializing_if = "is_false")]
    pub can_switch: bool,
    /// Which credentials it may use instead, where not any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may_use: Option<Arc<[String]>>,
    /// The credential that it asked with, where it got another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_identity: Option<Arc<str>>,
    /// What was registered of its credential: its kind and its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Box<str>>,
    /// The group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Box<str>>,
    /// Only routes that name the work counted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub named_only: bool,
    /// Somebody vouched for its claim to be urgent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub vouched: bool,
    /// The intent that it wanted to go on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<IntentId>,
    /// It was refused for what it claimed, whatever the pools say.
    #[serde(default, skip_serializing_if = "is_false")]
    pub claim_refused: bool,
}

impl AskedMore {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What an intent draws on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawn {
    /// The pool.
    pub pool: Arc<str>,
    /// The key within it.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub key: Arc<str>,
    /// How much.
    pub amount: u64,
    /// Until when it counts, where it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
    /// Where the pool was when this was made.
    #[serde(skip)]
    pub(crate) hint: Hint,
}

/// Where a pool probably is among the others. It saves looking it up, and says nothing more: two of them are
/// never different.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Hint(pub(crate) usize);

impl PartialEq for Hint {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Hint {}

fn is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

/// What was used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// The key that reports, or `local`, or `gate`.
    pub caller: Arc<str>,
    /// The account that it belongs to.
    pub account: Arc<str>,
    /// Nobody had asked before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ghost: bool,
    /// The hold had expired before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub late: bool,
    /// The gate itself says so, about a call of its own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub trusted: bool,
    /// What it took.
    pub pools: Vec<Spent>,
    /// Until when the agent is demoted from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demoted_until: Option<i64>,
}

/// What was used of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// The pool.
    pub pool: Arc<str>,
    /// The key within it.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub key: Arc<str>,
    /// What was held.
    pub held: u64,
    /// What is counted.
    pub used: u64,
    /// What was reported, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<u64>,
    /// Until when it counts.
    pub to: i64,
}

/// Holds that ran out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expired {
    /// Which.
    pub holds: Vec<ExpiredHold>,
}

/// A hold that ran out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpiredHold {
    /// Whose it was.
    pub intent_id: IntentId,
    /// The agent.
    pub agent_id: Arc<str>,
    /// The credential's pseudonym.
    pub identity_id: Arc<str>,
    /// The work.
    pub workload_id: Arc<str>,
    /// What it held.
    pub pools: Vec<Ended>,
}

/// What became of an amount that was held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The pool.
    pub pool: Arc<str>,
    /// The key within it.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub key: Arc<str>,
    /// How much.
    pub amount: u64,
    /// It was given back; else it counts as spent.
    pub released: bool,
}

/// What a provider said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Heard {
    /// The pool.
    pub pool: Arc<str>,
    /// The key within it.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub key: Arc<str>,
    /// When the request began that the report came with.
    pub began_at: i64,
    /// Its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What it says is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// When its window ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<i64>,
    /// Until when it wants nobody to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_until: Option<i64>,
    /// What is counted in addition, because the provider has less left than we thought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<u64>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected_to: Option<i64>,
    /// What counts on until `reset_at`, because the window ends later than was thought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
}

/// What counts on behind the end that a window was thought to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// That end.
    pub from: i64,
    /// How much.
    pub amount: u64,
}

/// A forecast that has crossed the threshold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crossed {
    /// The pool.
    pub pool: Arc<str>,
    /// The key within it.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub key: Arc<str>,
    /// It has become probable; else it is so no more.
    pub rises: bool,
    /// How probable it is that the pool is exhausted before it is full again, in percent.
    pub p_exhaust_percent: u32,
    /// When that is as likely to have happened as not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted_at: Option<i64>,
    /// When the pool is full again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<i64>,
}

/// Two numbers for readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The pool.
    pub pool: Arc<str>,
    /// The key within it.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub key: Arc<str>,
    /// What we thought: what is left, or when the window ends.
    pub ours: i64,
    /// What the provider says.
    pub theirs: i64,
}

/// A credential that was named for the first time. Its name is kept beside the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// How it is called in events.
    pub pseudonym: Arc<str>,
    /// Somebody without a key named it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keyless: bool,
    /// SHA-256 of its salt and its name.
    pub name_hash: Box<str>,
}

/// A credential that was forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// How it was called in events.
    pub pseudonym: Arc<str>,
    /// The key that wanted it.
    pub by: Arc<str>,
}

/// What is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halt {
    /// What.
    pub target: Target,
    /// The key that wanted it.
    pub by: Arc<str>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Box<str>>,
}

/// What can be stopped.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Everything.
    All,
    /// An agent.
    Agent(Arc<str>),
    /// An API key, by its id.
    Key(Arc<str>),
    /// A credential, by its pseudonym.
    Identity(Arc<str>),
    /// A kind of work, or a tool.
    Workload(Arc<str>),
    /// A place.
    Scope(Arc<str>),
    /// A pool.
    Pool(Arc<str>),
}

/// A configuration that took effect. Other members of the event are not the governor's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configured {
    /// Pools, routes and settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<GovernorConfig>,
    /// What else is told of it.
    #[serde(flatten)]
    pub about: serde_json::Map<String, serde_json::Value>,
}
