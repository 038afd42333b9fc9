//! The problems themselves: what each knows, and what it says to whom.

use serde::Serialize;
use serde_json::Value;

use super::ErrorCode;
use crate::{
    call::{InvalidKey, KeyScope, Layer},
    canonical::InputHash,
    effect::{CostEffect, Risk, SideEffect, Status},
    id::{ApprovalId, CallId},
    name::{ToolName, is_dotted, is_reserved},
    permission::Permission,
    reason::Reason,
    schema::InputProblem,
    text::{Clean, Quoted, list},
    verdict::Guardrail,
};

/// Declares the problems: fields, the caller's message, the operator's message. Fields marked
/// `#[serde(skip)]` are for the operator only; the rest are the error's `details`.
macro_rules! problems {
    ($(
        $(#[$doc:meta])*
        $name:ident { $($(#[$fmeta:meta])* $field:ident: $type:ty),* $(,)? }
        |$e:ident| $caller:expr;
        operator: $operator:expr;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Serialize)]
            #[serde(rename_all = "camelCase")]
            pub struct $name { $($(#[$fmeta])* $field: $type),* }

            impl $name {
                /// States the problem.
                pub fn new($($field: impl Into<$type>),*) -> Self {
                    Self { $($field: $field.into()),* }
                }

                fn caller(&self) -> String {
                    #[allow(unused_variables, reason = "not every message has a variable part")]
                    let $e = self;
                    $caller.into()
                }

                fn operator(&self) -> String {
                    #[allow(unused_variables, reason = "not every message has a variable part")]
                    let $e = self;
                    $operator.into()
                }
            }

            impl From<$name> for Error {
                fn from(problem: $name) -> Self {
                    Self::$name(problem)
                }
            }
        )*

        /// Why there is an error instead of a result. One variant a code.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Error {
            $($(#[$doc])* $name($name)),*
        }

        impl Error {
            /// The code.
            pub fn code(&self) -> ErrorCode {
                match self { $(Self::$name(_) => ErrorCode::$name),* }
            }

            /// What a program needs to act on it.
            pub fn details(&self) -> Value {
                // Every field is a plain word, number or list; serialising them cannot fail.
                let details = match self { $(Self::$name(problem) => serde_json::to_value(problem)),* };
                details.unwrap_or_default()
            }

            pub(super) fn caller(&self) -> String {
                match self { $(Self::$name(problem) => problem.caller()),* }
            }

            /// The message for the person who runs the gate.
            pub fn operator(&self) -> String {
                match self { $(Self::$name(problem) => problem.operator()),* }
            }
        }
    };
}

problems! {
    /// The request cannot be read.
    InvalidRequest {
        problem: Clean,
        #[serde(rename = "missing_required_fields", skip_serializing_if = "Vec::is_empty")]
        missing_required_fields: Vec<String>,
    }
    |e| if e.missing_required_fields.is_empty() {
        e.problem.to_string()
    } else {
        format!("{}: {}", e.problem, e.missing_required_fields.join(", "))
    };
    operator: e.caller();

    /// A key is needed.
    MissingApiKey { tool: Option<ToolName> }
    |e| match &e.tool {
        Some(tool) => format!("`{tool}` needs an API key and none was given; set TOLLGATE_API_KEY or send one as a bearer token"),
        None => "an API key is needed and none was given; set TOLLGATE_API_KEY or send one as a bearer token".to_owned(),
    };
    operator: "a call that needs a key came without one";

    /// The key does not count.
    InvalidApiKey { #[serde(skip)] why: InvalidKey }
    |e| "the API key is not valid; check that it is complete and has not expired, or ask for a new one";
    operator: format!("an API key was refused: {}", e.why);

    /// The key is not for this.
    ScopeMissing { needed: KeyScope, has: Vec<KeyScope> }
    |e| format!("this needs a key with the scope `{}`; this key has {}", e.needed, list(&e.has));
    operator: e.caller();

    /// No active tool has this name.
    UnknownTool { requested: Quoted, did_you_mean: Option<ToolName> }
    |e| {
        let hint = match &e.did_you_mean {
            Some(name) => format!("; did you mean `{name}`?"),
            None => "; `tollgate tools` lists the names".to_owned(),
        };
        let requested = e.requested.as_str();
        if !is_dotted(requested) {
            format!("{} is not a canonical tool name{hint}", e.requested)
        } else if is_reserved(requested) {
            format!("{} is a reserved name and is never a tool{hint}", e.requested)
        } else {
            format!("there is no tool {}{hint}", e.requested)
        }
    };
    operator: e.caller();

    /// The thing asked for is not there.
    NotFound { what: String, id: Quoted }
    |e| format!("there is no {} {}", e.what, e.id);
    operator: e.caller();

    /// The tool is listed but not active.
    ToolNotActive { tool: ToolName, status: Status }
    |e| format!("`{}` is {} and cannot be called", e.tool, e.status);
    operator: match e.status {
        Status::Quarantined => format!("`{}` changed since it was pinned; look at the difference and approve it again, or remove it", e.tool),
        _ => e.caller(),
    };

    /// The tool is not for agents.
    ToolNotCallable { tool: ToolName }
    |e| format!("agents may not call `{}`", e.tool);
    operator: format!("`{}` has agent.callable false, or a contract that contradicts itself", e.tool);

    /// The tool declares a risk that forbids every call.
    ForbiddenRisk { tool: ToolName, risk: Risk }
    |e| format!("`{}` declares the risk `{}` and is never called", e.tool, e.risk);
    operator: e.caller();

    /// A deny list names it.
    PermissionDenied { tool: ToolName, layer: Layer, entry: String }
    |e| match e.entry.strip_prefix("urgency:") {
        Some(urgency) => format!("this key may not claim the urgency `{urgency}` for `{}`", e.tool),
        None => format!("the {} policy denies `{}`, and `{}` falls under it", e.layer, e.entry, e.tool),
    };
    operator: match e.entry.strip_prefix("urgency:") {
        Some(_) => format!("{}; a key made with a higher --max-urgency may", e.caller()),
        None => format!("{}; remove `{}` from `deny` of the {} policy to let it through", e.caller(), e.entry, e.layer),
    };

    /// An allow list does not cover it.
    PermissionNotGranted { tool: ToolName, layer: Layer, missing: Vec<Permission> }
    |e| format!("the {} policy has an `allow` list that does not cover {}, which `{}` needs", e.layer, list(&e.missing), e.tool);
    operator: format!("{}; add the permissions or `tool:{}` to `allow` of the {} policy to let it through", e.caller(), e.tool, e.layer);

    /// It changes more than the policy lets through.
    SideEffectExceeded { tool: ToolName, side_effect: SideEffect, max_side_effect: SideEffect, layer: Layer }
    |e| format!("`{}` has the side effect `{}`, and the {} policy lets through at most `{}`", e.tool, e.side_effect, e.layer, e.max_side_effect);
    operator: format!("{}; raise `maxSideEffect` of the {} policy to let it through", e.caller(), e.layer);

    /// It costs more than the policy lets through.
    CostEffectExceeded { tool: ToolName, cost_effect: CostEffect, max_cost_effect: CostEffect, layer: Layer }
    |e| format!("`{}` has the cost effect `{}`, and the {} policy lets through at most `{}`", e.tool, e.cost_effect, e.layer, e.max_cost_effect);
    operator: format!("{}; raise `maxCostEffect` of the {} policy to let it through", e.caller(), e.layer);

    /// The input does not fit the tool's schema.
    InvalidInput { tool: ToolName, problems: Vec<InputProblem> }
    |e| match e.problems.as_slice() {
        [only] => format!("the input does not fit `{}`: {only}", e.tool),
        all => format!("the input does not fit `{}` in {} places: {}", e.tool, all.len(), all.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    };
    operator: e.caller();

    /// A trade guardrail is violated.
    TradeGuardrail { tool: ToolName, guardrail: Guardrail, layer: Option<Layer>, problem: Clean }
    |e| {
        let of = e.layer.map_or(String::new(), |layer| format!(" of the {layer} policy"));
        format!("the guardrail `{}`{of} refuses this call of `{}`: {}", e.guardrail, e.tool, e.problem)
    };
    operator: e.caller();

    /// A capability is needed that was not granted.
    CapabilityMissing { tool: ToolName, capability: Quoted, request: Clean, grant: Clean }
    |e| format!("`{}` needs the capability {}, which was not granted; ask for it with `{}` or `POST /v1/capabilities/requests`, or have a person run `{}`", e.tool, e.capability, e.request, e.grant);
    operator: e.caller();

    /// A person said no, or did not answer in time.
    ApprovalDenied { tool: ToolName, approval: ApprovalId, problem: Clean }
    |e| format!("the call of `{}` was not approved: {}", e.tool, e.problem);
    operator: format!("{} ({})", e.caller(), e.approval);

    /// There is no room in a pool.
    BudgetDenied { tool: Option<ToolName>, reason: Reason, pool: Option<String>, retry_after_seconds: Option<u64>, why: Option<Clean> }
    |e| {
        let what = e.tool.as_ref().map_or("the intent".to_owned(), |tool| format!("`{tool}`"));
        let pool = e.pool.as_ref().map_or(String::new(), |pool| format!(" in the pool `{pool}`"));
        let retry = e.retry_after_seconds.map_or("; trying again does not help".to_owned(), |s| format!("; try again in {s} s"));
        match (&e.why, e.reason) {
            (Some(why), Reason::PolicyViolation) => format!("{what} is not approved{pool}: {why}"),
            (Some(why), Reason::DeferUntilReset | Reason::RiskTooHigh) => format!("{what} is not approved now{pool}: {why}{retry}"),
            (Some(why), Reason::HardLimitReached) if e.pool.as_ref().is_some_and(|pool| pool.starts_with("run:")) => format!("there is no room for {what}: {why}"),
            _ => format!("there is no room for {what}{pool}: {}{retry}", e.reason),
        }
    };
    operator: e.caller();

    /// It does not go together with what is there.
    Conflict { problem: Clean }
    |e| format!("this does not go together with what is there: {}", e.problem);
    operator: e.caller();

    /// Nobody knows whether the call happened.
    OutcomeUnknown { tool: ToolName, call: CallId }
    |e| format!("the gate stopped while `{}` was running, or could not record its end, and nobody knows whether it took effect; look before you call again", e.tool);
    operator: format!("{} was running when the gate stopped, or its end could not be recorded; its outcome is unknown", e.call);

    /// The trace has no such call.
    ReplayMiss { tool: ToolName, input_hash: InputHash }
    |e| format!("the trace holds no call of `{}` with the input hash {}; nothing was called", e.tool, e.input_hash);
    operator: e.caller();

    /// The request is too large.
    PayloadTooLarge { limit_bytes: u64 }
    |e| format!("the request is larger than {} bytes", e.limit_bytes);
    operator: e.caller();

    /// The tool itself failed.
    ToolFailed { tool: ToolName, problem: Clean }
    |e| format!("`{}` failed: {}", e.tool, e.problem);
    operator: e.caller();

    /// The tool took too long.
    Timeout { tool: ToolName, after_ms: u64 }
    |e| format!("`{}` did not finish within {} ms and was stopped", e.tool, e.after_ms);
    operator: e.caller();

    /// The caller gave up.
    Cancelled { tool: Option<ToolName> }
    |e| "the call was cancelled by its caller";
    operator: e.caller();

    /// The sandbox cannot give its guarantees.
    SandboxUnavailable { tool: ToolName, #[serde(skip)] problem: Clean }
    |e| format!("`{}` needs a sandbox, and this machine cannot give one; `tollgate doctor` says why", e.tool);
    operator: format!("`{}` is not callable: {}", e.tool, e.problem);

    /// The record cannot be written.
    LedgerUnavailable { #[serde(skip)] problem: Clean }
    |e| "the gate cannot write its record, and lets nothing through without one; try again later";
    operator: format!("the ledger cannot append: {}", e.problem);

    /// New calls are stopped.
    Halted { what: String, started: bool, #[serde(skip)] problem: Clean }
    |e| if e.started {
        format!("the call was stopped while it was under way, and nobody knows how far it came ({} is halted); a person must resume it", e.what)
    } else {
        format!("new calls are stopped ({}); a person must resume them", e.what)
    };
    operator: format!("halted ({}): {}", e.what, e.problem);

    /// A fault of the gate itself.
    Internal { #[serde(skip)] problem: Clean }
    |e| "the gate made a mistake; its operator can find the cause by the request id";
    operator: format!("a fault of the gate: {}", e.problem);

    /// The gate does not answer. Said by clients.
    GateUnavailable { address: Quoted, #[serde(skip)] problem: Clean }
    |e| format!("the gate at {} does not answer; nothing was called; start it with `tollgate serve`", e.address);
    operator: format!("{}: {}", e.caller(), e.problem);
}

impl BudgetDenied {
    /// Why there is no room.
    pub fn reason(&self) -> Reason {
        self.reason
    }
}

impl TradeGuardrail {
    /// The guardrail that is violated.
    pub fn guardrail(&self) -> Guardrail {
        self.guardrail
    }
}

impl UnknownTool {
    /// The tool that was probably meant.
    pub fn did_you_mean(&self) -> Option<&ToolName> {
        self.did_you_mean.as_ref()
    }
}
