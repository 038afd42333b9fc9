//! How a tool is declared in Rust: next to its executor, with schemas taken from the types that the
//! executor really reads and writes, so that a contract cannot drift from its code.
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use tollgate_contract::*;
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields)]
//! struct EchoInput {
//!     /// What to say.
//!     text: String,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Echo {
//!     text: String,
//! }
//!
//! let declaration = Declaration::<EchoInput, Echo>::new("demo.echo", "Says what it was told.")
//!     .permissions([Permission::READ])
//!     .behaviours(Behaviours::NONE)
//!     .effects(SideEffect::None, CostEffect::None)
//!     .build()?;
//! assert_eq!(declaration.tool().schema, "Echo");
//! # Ok::<(), tollgate_contract::Violations>(())
//! ```

use std::{fmt, marker::PhantomData};

use schemars::{JsonSchema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    behaviour::Behaviours,
    effect::{CostEffect, Retry, Risk, SideEffect, Stability, Status},
    invariant::{self, Rule, Violation, Violations},
    manifest::{
        Access, AgentBinding, ContractTool, HttpBinding, HttpMethod, Replay, ReplayMatch,
        SdkBinding, TraceEvent,
    },
    name::ToolName,
    permission::Permission,
};

/// A contract together with the behaviours it was derived from. What a pack hands over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolDeclaration {
    /// The contract as it is served.
    pub tool: ContractTool,
    /// What the tool really does.
    pub behaviours: Behaviours,
}

/// A checked declaration of a tool that reads `I` and gives `O`. The types stay with it, so that only
/// an executor of these types can be registered for it.
pub struct Declaration<I, O> {
    declared: ToolDeclaration,
    types: PhantomData<fn(I) -> O>,
}

impl<I: JsonSchema, O: JsonSchema> Declaration<I, O> {
    /// Starts a declaration. `description` is one sentence for people and models.
    #[expect(
        clippy::new_ret_no_self,
        reason = "a declaration exists only once it has been checked"
    )]
    pub fn new(name: &'static str, description: &'static str) -> Draft<I, O> {
        Draft {
            name,
            description,
            stability: Stability::Beta,
            status: Status::Implemented,
            auth_required: true,
            permissions: Vec::new(),
            anonymous: false,
            effects: None,
            behaviours: None,
            risk: Vec::new(),
            http: None,
            sdk: None,
            callable: true,
            default_enabled: None,
            replayable: true,
            retry: None,
            types: PhantomData,
        }
    }
}

// Written out, because a derive would ask the same of the input and the output.
impl<I, O> Clone for Declaration<I, O> {
    fn clone(&self) -> Self {
        Self { declared: self.declared.clone(), types: PhantomData }
    }
}

impl<I, O> fmt::Debug for Declaration<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.declared.fmt(f)
    }
}

impl<I, O> Declaration<I, O> {
    /// The contract.
    pub fn tool(&self) -> &ContractTool {
        &self.declared.tool
    }

    /// The declaration without its types, for a manifest.
    pub fn erase(self) -> ToolDeclaration {
        self.declared
    }
}

/// A declaration that is being written. Nothing in it counts until [`Draft::build`] has checked it.
#[must_use]
pub struct Draft<I, O> {
    name: &'static str,
    description: &'static str,
    stability: Stability,
    status: Status,
    auth_required: bool,
    permissions: Vec<Permission>,
    anonymous: bool,
    effects: Option<(SideEffect, CostEffect)>,
    behaviours: Option<Behaviours>,
    risk: Vec<&'static str>,
    http: Option<HttpBinding>,
    sdk: Option<SdkBinding>,
    callable: bool,
    default_enabled: Option<bool>,
    replayable: bool,
    retry: Option<Retry>,
    types: PhantomData<fn(I) -> O>,
}

impl<I: JsonSchema, O: JsonSchema> Draft<I, O> {
    /// How settled it is. Beta unless said otherwise.
    pub fn stability(mut self, stability: Stability) -> Self {
        self.stability = stability;
        self
    }

    /// Where it stands. Implemented unless said otherwise.
    pub fn status(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    /// It needs no account. Every tool needs one unless this is said.
    pub fn without_auth(mut self) -> Self {
        self.auth_required = false;
        self
    }

    /// The SDK surface may call it without a key.
    pub fn anonymous(mut self) -> Self {
        self.auth_required = false;
        self.anonymous = true;
        self
    }

    /// What a policy must allow.
    pub fn permissions(mut self, permissions: impl IntoIterator<Item = Permission>) -> Self {
        self.permissions = permissions.into_iter().collect();
        self
    }

    /// What it changes and what it uses up. Must follow from the behaviours.
    pub fn effects(mut self, side: SideEffect, cost: CostEffect) -> Self {
        self.effects = Some((side, cost));
        self
    }

    /// Which of the nine behaviours hold.
    pub fn behaviours(mut self, behaviours: Behaviours) -> Self {
        self.behaviours = Some(behaviours);
        self
    }

    /// Declared risks.
    pub fn risk(mut self, risk: impl IntoIterator<Item = &'static str>) -> Self {
        self.risk = risk.into_iter().collect();
        self
    }

    /// The resource path that serves it.
    pub fn http(mut self, method: HttpMethod, path: &str) -> Self {
        self.http = Some(HttpBinding { method, path: path.to_owned() });
        self
    }

    /// The SDK method that wraps it.
    pub fn sdk(mut self, package: &str, method: &str) -> Self {
        self.sdk = Some(SdkBinding { package: package.to_owned(), method: method.to_owned() });
        self
    }

    /// No agent may call it.
    pub fn not_for_agents(mut self) -> Self {
        self.callable = false;
        self
    }

    /// Offered only once a policy or key enables it by name.
    pub fn off_by_default(mut self) -> Self {
        self.default_enabled = Some(false);
        self
    }

    /// A recorded result must not stand in for a call.
    pub fn not_replayable(mut self) -> Self {
        self.replayable = false;
        self
    }

    /// How a call may be repeated when its outcome is unknown.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Checks the declaration: every invariant, and the effects against the behaviours.
    pub fn build(self) -> Result<Declaration<I, O>, Violations> {
        let name = ToolName::parse(self.name)
            .map_err(|error| self.violation("name", Rule::of_name(&error), error.to_string()))?;
        let missing = |field, what: &str| {
            self.violation(field, Rule::MissingField, format!("{what} must be declared"))
        };
        let (side_effect, cost_effect) =
            self.effects.ok_or_else(|| missing("sideEffect", "the effects"))?;
        let behaviours =
            self.behaviours.ok_or_else(|| missing("behaviours", "the nine behaviours"))?;
        let risk: Result<Vec<Risk>, _> = self.risk.iter().map(|text| Risk::parse(text)).collect();
        let risk = risk.map_err(|error| self.violation("risk", Rule::Shape, error.to_string()))?;
        let tool = ContractTool {
            status: self.status,
            stability: self.stability,
            auth_required: self.auth_required,
            permissions: self.permissions,
            access: Access { anonymous_allowed: self.anonymous },
            side_effect,
            cost_effect,
            risk,
            schema: O::schema_name().into_owned(),
            input_schema: Some(Value::from(schema_for!(I))),
            output_schema: Some(Value::from(schema_for!(O))),
            http: self.http,
            sdk: self.sdk,
            agent: AgentBinding {
                callable: self.callable,
                default_enabled: self
                    .default_enabled
                    .unwrap_or(self.callable && side_effect < SideEffect::LiveTrade),
                compat_name: Some(name.underscored()),
                name: name.clone(),
            },
            name,
            trace_events: TraceEvent::ALL.to_vec(),
            replay: Replay { replayable: self.replayable, by: ReplayMatch::ToolAndInputHash },
            retry: self.retry,
            description: Some(self.description.to_owned()),
        };
        let declared = ToolDeclaration { tool, behaviours };
        invariant::check_declarations(std::slice::from_ref(&declared))?;
        Ok(Declaration { declared, types: PhantomData })
    }

    fn violation(&self, field: &str, rule: Rule, message: String) -> Violations {
        Violations::from(Violation::new(self.name, field, rule, message))
    }
}

#[cfg(test)]
#[path = "declare_tests.rs"]
mod tests;
