//! The gate's answer, and the record of how it was reached.
//!
//! Each step pushes one [`StepRecord`] at the moment it decides, with the facts it decided on. The
//! list is not an explanation made afterwards: it is the decision. Words for people are made from the
//! facts when somebody asks for them.

use std::fmt;

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    call::{InvalidKey, KeyScope, Layer, Mode, Surface},
    canonical::InputHash,
    effect::{CostEffect, Risk, SideEffect, Status, words},
    error::{Error, ErrorCode},
    id::HoldId,
    name::ToolName,
    permission::Permission,
    reason::Reason,
    schema::InputProblem,
    text::{Quoted, list},
};

words! {
    /// What the gate answers.
    Decision {
        /// Go ahead.
        Approve = "approve",
        /// Go ahead, but wait or switch first.
        ApproveWithModifications = "approve_with_modifications",
        /// No.
        Deny = "deny",
        /// A person must answer first.
        Pending = "pending",
    }
}

words! {
    /// The steps of a decision, in their order. The first failure wins.
    Step {
        /// Is there such a tool?
        Existence = "existence",
        /// Is it active?
        Status = "status",
        /// May agents call it?
        AgentCallable = "agent_callable",
        /// Who calls, and may they call anything?
        Identity = "identity",
        /// Does it declare a risk that forbids every call?
        ForbiddenRisk = "forbidden_risk",
        /// Does a layer deny it?
        Deny = "deny",
        /// Does every layer with an allow list cover it?
        Allow = "allow",
        /// Does it change more than a layer lets through?
        MaxSideEffect = "max_side_effect",
        /// Does it cost more than a layer lets through?
        MaxCostEffect = "max_cost_effect",
        /// Does it read a user's data without an account?
        UserData = "user_data",
        /// Does the input fit, and what is its hash?
        Input = "input",
        /// Does it stay inside the trade guardrails?
        TradeGuardrails = "trade_guardrails",
        /// Is the capability granted that it needs?
        Capability = "capability",
        /// Could there be room?
        BudgetFeasible = "budget_feasible",
        /// Must a person answer first?
        Approval = "approval",
        /// Is room held for it?
        BudgetHold = "budget_hold",
    }
}

words! {
    /// What a step found.
    Outcome {
        /// Nothing against it.
        Pass = "pass",
        /// It ends here.
        Refuse = "refuse",
        /// A person must answer.
        Ask = "ask",
    }
}

words! {
    /// The trade guardrails, by the names they have in a policy.
    Guardrail {
        /// The `trade` section itself: without one, nothing trades real money.
        Trade = "trade",
        /// Venues that may be used.
        AllowedVenues = "allowedVenues",
        /// Tickers that may be traded.
        AllowedTickers = "allowedTickers",
        /// Most that one order may cost, in cents.
        MaxOrderCostCents = "maxOrderCostCents",
        /// Most contracts that one order may have.
        MaxQuantity = "maxQuantity",
        /// Every order needs a limit price.
        RequireLimitPrice = "requireLimitPrice",
        /// May an intent execute by itself?
        AllowAutoExecute = "allowAutoExecute",
        /// May a trading runtime be started?
        AllowRuntimeStart = "allowRuntimeStart",
        /// Only dry runs.
        DryRunOnly = "dryRunOnly",
        /// Every order must say its jurisdiction.
        RequireJurisdiction = "requireJurisdiction",
        /// The jurisdiction that orders must be from.
        Jurisdiction = "jurisdiction",
        /// Jurisdictions that may not trade.
        BlockedJurisdictions = "blockedJurisdictions",
        /// A word that every order must repeat.
        ConfirmToken = "confirmToken",
    }
}

/// One layer's ceiling, as a step saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Ceiling<E> {
    /// Whose ceiling.
    pub layer: Layer,
    /// What it lets through at most.
    pub max: E,
}

/// An `ask` entry that matched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AskMatch {
    /// Whose entry.
    pub layer: Layer,
    /// Its place in that layer's list, from 0.
    pub index: usize,
    /// What its author wrote for the person who answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Who called, as the identity step saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "caller")]
pub enum CallerFacts {
    /// No key.
    Anonymous,
    /// A key that does not count. Why stays with the operator.
    Invalid {
        /// Not for callers.
        #[serde(skip)]
        why: InvalidKey,
    },
    /// A key that counts.
    Key {
        /// What its owner calls it.
        name: String,
        /// What it is for.
        scopes: Vec<KeyScope>,
    },
}

/// What a step decided on. One variant a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is documented by the step of the same name")]
pub enum Facts {
    Existence {
        requested: Quoted,
        #[serde(skip_serializing_if = "Option::is_none")]
        did_you_mean: Option<ToolName>,
    },
    Status {
        status: Status,
    },
    AgentCallable {
        callable: bool,
    },
    Identity {
        surface: Surface,
        mode: Mode,
        #[serde(flatten)]
        caller: CallerFacts,
        anonymous_allowed: bool,
    },
    ForbiddenRisk {
        risk: Vec<Risk>,
    },
    Deny {
        permissions: Vec<Permission>,
        #[serde(skip_serializing_if = "Option::is_none")]
        entry: Option<String>,
    },
    Allow {
        permissions: Vec<Permission>,
        lists: Vec<Layer>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        missing: Vec<Permission>,
    },
    MaxSideEffect {
        side_effect: SideEffect,
        ceilings: Vec<Ceiling<SideEffect>>,
    },
    MaxCostEffect {
        cost_effect: CostEffect,
        ceilings: Vec<Ceiling<CostEffect>>,
    },
    UserData {
        user_data: bool,
        auth_required: bool,
        has_key: bool,
    },
    Input {
        #[serde(skip_serializing_if = "Option::is_none")]
        input_hash: Option<InputHash>,
        has_schema: bool,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        problems: Vec<InputProblem>,
    },
    TradeGuardrails {
        checked: Vec<Guardrail>,
        #[serde(skip_serializing_if = "Option::is_none")]
        violated: Option<Guardrail>,
        #[serde(skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    Approval {
        matched: Vec<AskMatch>,
    },
}

impl Facts {
    /// The step that these facts belong to.
    pub fn step(&self) -> Step {
        match self {
            Self::Existence { .. } => Step::Existence,
            Self::Status { .. } => Step::Status,
            Self::AgentCallable { .. } => Step::AgentCallable,
            Self::Identity { .. } => Step::Identity,
            Self::ForbiddenRisk { .. } => Step::ForbiddenRisk,
            Self::Deny { .. } => Step::Deny,
            Self::Allow { .. } => Step::Allow,
            Self::MaxSideEffect { .. } => Step::MaxSideEffect,
            Self::MaxCostEffect { .. } => Step::MaxCostEffect,
            Self::UserData { .. } => Step::UserData,
            Self::Input { .. } => Step::Input,
            Self::TradeGuardrails { .. } => Step::TradeGuardrails,
            Self::Approval { .. } => Step::Approval,
        }
    }
}

/// What one step decided, on what.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    outcome: Outcome,
    layer: Option<Layer>,
    facts: Facts,
}

impl StepRecord {
    /// The step.
    pub fn step(&self) -> Step {
        self.facts.step()
    }

    /// What it found.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The layer whose policy decided, where one did.
    pub fn layer(&self) -> Option<Layer> {
        self.layer
    }

    /// What it decided on.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The facts in a sentence.
    pub fn because(&self) -> String {
        because(self)
    }
}

impl Serialize for StepRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut record = serializer.serialize_struct("StepRecord", 5)?;
        record.serialize_field("step", &self.step())?;
        record.serialize_field("outcome", &self.outcome)?;
        match self.layer {
            Some(layer) => record.serialize_field("layer", &layer)?,
            None => record.skip_field("layer")?,
        }
        record.serialize_field("facts", &self.facts)?;
        record.serialize_field("because", &self.because())?;
        record.end()
    }
}

/// The record of a decision: its steps, in order. The last one decided.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct Explain(Vec<StepRecord>);

impl Explain {
    /// An empty record, with room for a whole decision.
    pub fn new() -> Self {
        Self(Vec::with_capacity(Step::ALL.len()))
    }

    /// The step found nothing against the call.
    pub fn pass(&mut self, facts: Facts) {
        self.push(Outcome::Pass, None, facts);
    }

    /// The step ends the call.
    pub fn refuse(&mut self, layer: Option<Layer>, facts: Facts) {
        self.push(Outcome::Refuse, layer, facts);
    }

    /// The step wants a person to answer.
    pub fn ask(&mut self, layer: Option<Layer>, facts: Facts) {
        self.push(Outcome::Ask, layer, facts);
    }

    fn push(&mut self, outcome: Outcome, layer: Option<Layer>, facts: Facts) {
        self.0.push(StepRecord { outcome, layer, facts });
    }

    /// The steps, in order.
    pub fn steps(&self) -> &[StepRecord] {
        &self.0
    }

    /// The step that decided.
    pub fn decided_by(&self) -> Option<&StepRecord> {
        self.0.last()
    }
}

/// The gate's answer to a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The answer.
    pub decision: Decision,
    /// Why, where it is not a plain yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The error that a refusal becomes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// How it was reached.
    pub explain: Explain,
    /// What was held in the pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldId>,
}

impl Verdict {
    /// Yes.
    pub fn approve(explain: Explain) -> Self {
        Self { decision: Decision::Approve, reason: None, code: None, explain, hold: None }
    }

    /// No, because of `error`.
    pub fn deny(error: &Error, explain: Explain) -> Self {
        Self {
            decision: Decision::Deny,
            reason: error.reason(),
            code: Some(error.code()),
            explain,
            hold: None,
        }
    }

    /// A person must answer first.
    pub fn pending(explain: Explain) -> Self {
        Self {
            decision: Decision::Pending,
            reason: Some(Reason::ApprovalRequired),
            code: None,
            explain,
            hold: None,
        }
    }
}

/// The facts of a step as a sentence.
fn because(record: &StepRecord) -> String {
    let refused = record.outcome == Outcome::Refuse;
    let by = record.layer.map_or(String::new(), |layer| format!(" of the {layer} policy"));
    match &record.facts {
        Facts::Existence { requested, did_you_mean: Some(name) } if refused => {
            format!("no tool is called {requested}; `{name}` is")
        }
        Facts::Existence { requested, .. } if refused => format!("no tool is called {requested}"),
        Facts::Existence { requested, .. } => format!("{requested} is in the manifest"),
        Facts::Status { status } if refused => format!("it is {status}, not implemented"),
        Facts::Status { status } => format!("it is {status}"),
        Facts::AgentCallable { callable: true } => "agents may call it".to_owned(),
        Facts::AgentCallable { callable: false } if refused => "agents may not call it".to_owned(),
        Facts::AgentCallable { callable: false } => {
            "agents may not call it, and this is no agent".to_owned()
        }
        Facts::Identity { surface, mode, caller, anonymous_allowed } => {
            identity(*surface, *mode, caller, *anonymous_allowed, refused)
        }
        Facts::ForbiddenRisk { risk } if risk.is_empty() => "it declares no risk".to_owned(),
        Facts::ForbiddenRisk { risk } if refused => {
            format!("it declares {}, which forbids every call", list(risk))
        }
        Facts::ForbiddenRisk { risk } => {
            format!("it declares {}, which forbids nothing", list(risk))
        }
        Facts::Deny { entry: Some(entry), .. } => format!("`{entry}` is on the deny list{by}"),
        Facts::Deny { permissions, .. } => format!("no layer denies {}", needs(permissions)),
        Facts::Allow { missing, .. } if refused => {
            format!("the allow list{by} does not cover {}", list(missing))
        }
        Facts::Allow { lists, .. } if lists.is_empty() => "no layer has an allow list".to_owned(),
        Facts::Allow { permissions, lists, .. } => {
            format!("{} covered by every allow list ({})", are(permissions), list(lists))
        }
        Facts::MaxSideEffect { side_effect, ceilings } => {
            ceiling("maxSideEffect", side_effect, ceilings, refused, &by)
        }
        Facts::MaxCostEffect { cost_effect, ceilings } => {
            ceiling("maxCostEffect", cost_effect, ceilings, refused, &by)
        }
        Facts::UserData { user_data: false, .. } => "it reads no data of a user".to_owned(),
        Facts::UserData { has_key: false, .. } => {
            "it reads data of a user, and no key was given".to_owned()
        }
        Facts::UserData { auth_required: false, .. } => {
            "it reads data of a user, yet its contract requires no account".to_owned()
        }
        Facts::UserData { .. } => "it reads data of a user, and the caller has a key".to_owned(),
        Facts::Input { problems, .. } if refused => list(problems),
        Facts::Input { input_hash: Some(hash), has_schema, .. } => {
            let fits =
                if *has_schema { "it fits the schema" } else { "the contract has no input schema" };
            format!("{fits}; input hash {hash}")
        }
        Facts::Input { .. } => "it fits the schema".to_owned(),
        Facts::TradeGuardrails { violated: Some(guardrail), problem, .. } => {
            format!("`{guardrail}`{by} is violated: {}", problem.as_deref().unwrap_or_default())
        }
        Facts::TradeGuardrails { checked, .. } if checked.is_empty() => {
            "no guardrail applies".to_owned()
        }
        Facts::TradeGuardrails { checked, .. } => format!("inside {}", list(checked)),
        Facts::Approval { matched } if matched.is_empty() => {
            "no layer asks for a person".to_owned()
        }
        Facts::Approval { matched } => approval(matched),
    }
}

fn needs(permissions: &[Permission]) -> String {
    if permissions.is_empty() { "it".to_owned() } else { list(permissions) }
}

fn are(permissions: &[Permission]) -> String {
    match permissions {
        [] => "it needs no permission and is".to_owned(),
        [only] => format!("{only} is"),
        many => format!("{} are", list(many)),
    }
}

fn identity(
    surface: Surface,
    mode: Mode,
    caller: &CallerFacts,
    anonymous_allowed: bool,
    refused: bool,
) -> String {
    match caller {
        CallerFacts::Key { name, scopes } if refused => {
            format!("the key {} has the scopes {}, and not `call`", Quoted::new(name), list(scopes))
        }
        CallerFacts::Key { name, .. } => format!("the key {} may call tools", Quoted::new(name)),
        CallerFacts::Invalid { .. } => "the key is not valid".to_owned(),
        CallerFacts::Anonymous if mode != Mode::Live => {
            format!("mode {mode} needs no key: nothing is called")
        }
        CallerFacts::Anonymous if !refused => {
            "no key, and the tool is free for everyone".to_owned()
        }
        CallerFacts::Anonymous if surface == Surface::Agent => {
            "no key, and live calls of agents always need one".to_owned()
        }
        CallerFacts::Anonymous if anonymous_allowed => {
            "no key, and the tool has effects or needs an account".to_owned()
        }
        CallerFacts::Anonymous => {
            "no key, and the tool is not on the anonymous allowlist".to_owned()
        }
    }
}

fn ceiling<E: fmt::Display>(
    name: &str,
    effect: &E,
    ceilings: &[Ceiling<E>],
    refused: bool,
    by: &str,
) -> String {
    let all = list(ceilings.iter().map(|ceiling| format!("{} {}", ceiling.layer, ceiling.max)));
    if refused {
        format!("{effect} is above {name}{by} ({all})")
    } else {
        format!("{effect} is within {name} ({all})")
    }
}

fn approval(matched: &[AskMatch]) -> String {
    let entries = matched.iter().map(|m| match &m.reason {
        Some(reason) => format!("{} ask[{}] ({})", m.layer, m.index, Quoted::new(reason)),
        None => format!("{} ask[{}]", m.layer, m.index),
    });
    format!("a person must answer: {}", list(entries))
}
