//! The gate's answer, and the record of how it was reached.
//!
//! Each step pushes one [`StepRecord`] at the moment it decides, with the facts it decided on. The
//! list is not an explanation made afterwards: it is the decision. Words for people are made from the
//! facts when somebody asks for them.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{
    because,
    call::{InvalidKey, KeyScope, Layer, Mode, Surface, Urgency},
    canonical::InputHash,
    capability::Capability,
    effect::{CostEffect, Risk, SideEffect, Status, words},
    error::{Error, ErrorCode},
    id::{ApprovalId, HoldId},
    name::ToolName,
    permission::Permission,
    reason::Reason,
    schema::InputProblem,
    text::{Clean, Quoted},
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
    pub reason: Option<Clean>,
    /// How many different keys must say yes, where it is more than one.
    #[serde(skip_serializing_if = "is_one")]
    pub approvers: u8,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
fn is_one(number: &u8) -> bool {
    *number == 1
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
    Capability {
        needed: Vec<Capability>,
        #[serde(skip_serializing_if = "Option::is_none")]
        missing: Option<Capability>,
    },
    BudgetFeasible {
        urgency: Urgency,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_urgency: Option<Urgency>,
        pools: Vec<String>,
    },
    Approval {
        matched: Vec<AskMatch>,
        #[serde(skip_serializing_if = "Option::is_none")]
        approval: Option<ApprovalId>,
    },
    BudgetHold {
        pools: Vec<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        hold: Option<HoldId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        wait_ms: Option<u64>,
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
            Self::Capability { .. } => Step::Capability,
            Self::BudgetFeasible { .. } => Step::BudgetFeasible,
            Self::Approval { .. } => Step::Approval,
            Self::BudgetHold { .. } => Step::BudgetHold,
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
        because::sentence(self)
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
