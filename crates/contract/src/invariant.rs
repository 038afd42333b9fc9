//! What every manifest must hold, checked when it loads. A manifest that breaks one rule does not
//! load at all, and the error names every tool, field and rule that is broken.

use std::{collections::HashMap, fmt};

use serde::Serialize;
use serde_json::Value;

use crate::{
    behaviour::Behaviours,
    declare::ToolDeclaration,
    effect::{CostEffect, Retry, SideEffect, words},
    manifest::ContractTool,
    name::{NameError, ToolName, is_segment},
    permission::Permission,
    schema::Schema,
    text::Quoted,
};

words! {
    /// The rules, by the words that the golden vectors use.
    Rule {
        /// The text is not the JSON of a manifest, or a field has the wrong type.
        Shape = "shape",
        /// A field is there that no contract has.
        UnknownField = "unknown_field",
        /// A field is missing.
        MissingField = "missing_field",
        /// The schema version is another.
        SchemaVersion = "schema_version",
        /// A manifest in mode `implemented` holds an entry that is not.
        Mode = "mode",
        /// The name is not canonical.
        CanonicalName = "canonical_name",
        /// The name is reserved.
        ReservedName = "reserved_name",
        /// Two entries have the same name.
        UniqueName = "unique_name",
        /// Two entries have the same name for hosts that reject dots.
        UniqueCompatName = "unique_compat_name",
        /// The compatibility name is not the canonical one with underscores.
        CompatName = "compat_name",
        /// An agent would use another name than the canonical one.
        AgentName = "agent_name",
        /// Declares no permission, so that no allow list could hold it back.
        HasPermission = "has_permission",
        /// Anonymous, yet it needs an account.
        AnonymousNeedsNoAuth = "anonymous_needs_no_auth",
        /// Anonymous, yet it changes something.
        AnonymousHasNoSideEffect = "anonymous_has_no_side_effect",
        /// Anonymous, yet it costs something.
        AnonymousHasNoCost = "anonymous_has_no_cost",
        /// Anonymous, yet it reads a user's data.
        AnonymousHasNoUserData = "anonymous_has_no_user_data",
        /// Reads a user's data without needing an account.
        UserDataNeedsAuth = "user_data_needs_auth",
        /// Reads a user's data at no cost.
        UserDataHasCost = "user_data_has_cost",
        /// Trades real money without needing an account.
        LiveTradeNeedsAuth = "live_trade_needs_auth",
        /// Trades real money and is offered without being enabled by name.
        LiveTradeIsOptIn = "live_trade_is_opt_in",
        /// Trades, and says that repeating a call does no harm.
        TradeIsNotRepeated = "trade_is_not_repeated",
        /// A resource path does not start with `/`.
        HttpPath = "http_path",
        /// A schema cannot be used, or an input's schema is not that of an object.
        UsableSchema = "usable_schema",
        /// The side effect does not follow from the behaviours.
        BehaviourSideEffect = "behaviour_side_effect",
        /// The cost effect does not follow from the behaviours.
        BehaviourCostEffect = "behaviour_cost_effect",
        /// The permission `user_data` and the behaviour do not agree.
        BehaviourUserData = "behaviour_user_data",
        /// Needs account context without needing an account.
        BehaviourAccountContext = "behaviour_account_context",
    }
}

impl Rule {
    /// The rule that a name error breaks.
    pub(crate) fn of_name(error: &NameError) -> Self {
        match error {
            NameError::Reserved(_) => Self::ReservedName,
            NameError::NotCanonical(_) | NameError::TooLong(_) => Self::CanonicalName,
        }
    }
}

/// One broken rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    tool: String,
    field: String,
    rule: Rule,
    message: String,
}

impl Violation {
    /// States what is broken.
    pub fn new(
        tool: impl fmt::Display,
        field: impl Into<String>,
        rule: Rule,
        message: impl Into<String>,
    ) -> Self {
        let tool = Quoted::new(&tool.to_string()).as_str().to_owned();
        Self { tool, field: field.into(), rule, message: message.into() }
    }

    /// The tool, or the place in the list where it has no name.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The field, dotted where it is nested.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The rule.
    pub fn rule(&self) -> Rule {
        self.rule
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            return write!(f, "{}: {}", self.tool, self.message);
        }
        write!(f, "{}: `{}`: {}", self.tool, self.field, self.message)
    }
}

/// Every rule that a manifest breaks; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// The broken rules.
    pub fn iter(&self) -> impl Iterator<Item = &Violation> {
        self.0.iter()
    }

    pub(crate) fn unless_empty(violations: Vec<Violation>) -> Result<(), Self> {
        if violations.is_empty() { Ok(()) } else { Err(Self(violations)) }
    }
}

impl From<Violation> for Violations {
    fn from(violation: Violation) -> Self {
        Self(vec![violation])
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "the manifest breaks {count} rule{plural}")?;
        self.0.iter().try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}

impl std::error::Error for Violations {}

/// Checks what packs declare: each contract, its behaviours, and all of them together.
pub(crate) fn check_declarations(declarations: &[ToolDeclaration]) -> Result<(), Violations> {
    let mut found = Vec::new();
    for declared in declarations {
        check_tool(&declared.tool, &mut found);
        check_behaviours(&declared.tool, &declared.behaviours, &mut found);
    }
    check_names(declarations.iter().map(|declared| &declared.tool), &mut found);
    Violations::unless_empty(found)
}

/// The rules that one contract must hold by itself.
pub(crate) fn check_tool(tool: &ContractTool, found: &mut Vec<Violation>) {
    let mut require = |holds: bool, field: &str, rule, message: &str| {
        if !holds {
            found.push(Violation::new(&tool.name, field, rule, message));
        }
    };
    require(
        !tool.permissions.is_empty(),
        "permissions",
        Rule::HasPermission,
        "must name at least one permission; without one no allow list could hold the tool back",
    );
    let user_data = tool.needs(&Permission::USER_DATA);
    if tool.access.anonymous_allowed {
        require(
            !tool.auth_required,
            "authRequired",
            Rule::AnonymousNeedsNoAuth,
            "a tool with access.anonymousAllowed cannot require an account",
        );
        require(
            tool.side_effect == SideEffect::None,
            "sideEffect",
            Rule::AnonymousHasNoSideEffect,
            "a tool with access.anonymousAllowed must have sideEffect `none`",
        );
        require(
            tool.cost_effect == CostEffect::None,
            "costEffect",
            Rule::AnonymousHasNoCost,
            "a tool with access.anonymousAllowed must have costEffect `none`",
        );
        require(
            !user_data,
            "permissions",
            Rule::AnonymousHasNoUserData,
            "a tool with access.anonymousAllowed cannot have the permission `user_data`",
        );
    }
    if user_data {
        require(
            tool.auth_required,
            "authRequired",
            Rule::UserDataNeedsAuth,
            "a tool with the permission `user_data` must require an account",
        );
        require(
            tool.cost_effect >= CostEffect::ApiCost,
            "costEffect",
            Rule::UserDataHasCost,
            "a tool with the permission `user_data` must have costEffect `api_cost` or higher",
        );
    }
    if tool.side_effect == SideEffect::LiveTrade {
        require(
            tool.auth_required,
            "authRequired",
            Rule::LiveTradeNeedsAuth,
            "a tool that trades real money must require an account",
        );
        require(
            !tool.agent.default_enabled,
            "agent.defaultEnabled",
            Rule::LiveTradeIsOptIn,
            "a tool that trades real money must be false here: it is offered only when enabled by name",
        );
    }
    if tool.side_effect >= SideEffect::PaperTrade {
        require(
            tool.retry() != Retry::Idempotent,
            "retry",
            Rule::TradeIsNotRepeated,
            "an order is not idempotent; use `never`, `keyed` or `reconcile`",
        );
    }
    require(
        tool.agent.name == tool.name,
        "agent.name",
        Rule::AgentName,
        "must be the canonical name of the tool",
    );
    if let Some(compat) = &tool.agent.compat_name {
        require(
            *compat == tool.name.underscored() && is_segment(compat),
            "agent.compatName",
            Rule::CompatName,
            "must be the canonical name with underscores for dots",
        );
    }
    if let Some(http) = &tool.http {
        require(http.path.starts_with('/'), "http.path", Rule::HttpPath, "must start with `/`");
    }
    check_schemas(tool, found);
}

fn check_schemas(tool: &ContractTool, found: &mut Vec<Violation>) {
    let mut refuse = |field: &str, message: String| {
        found.push(Violation::new(&tool.name, field, Rule::UsableSchema, message));
    };
    for (field, schema) in
        [("inputSchema", &tool.input_schema), ("outputSchema", &tool.output_schema)]
    {
        if let Some(Err(error)) = schema.as_ref().map(Schema::compile) {
            refuse(field, error.to_string());
        }
    }
    if let Some(schema) = &tool.input_schema
        && schema.get("type").and_then(Value::as_str) != Some("object")
    {
        refuse(
            "inputSchema",
            "an input is an object: the schema's `type` must be `object`".to_owned(),
        );
    }
}

/// Does the contract follow from what the tool really does?
fn check_behaviours(tool: &ContractTool, behaviours: &Behaviours, found: &mut Vec<Violation>) {
    let mut require = |holds: bool, field: &str, rule, message: String| {
        if !holds {
            found.push(Violation::new(&tool.name, field, rule, message));
        }
    };
    let (side, cost) = (behaviours.side_effect(), behaviours.cost_effect());
    require(
        tool.side_effect == side,
        "sideEffect",
        Rule::BehaviourSideEffect,
        format!("is `{}`, but what the tool does makes it `{side}`", tool.side_effect),
    );
    require(
        tool.cost_effect == cost,
        "costEffect",
        Rule::BehaviourCostEffect,
        format!("is `{}`, but what the tool does makes it `{cost}`", tool.cost_effect),
    );
    require(
        tool.needs(&Permission::USER_DATA) == behaviours.user_data,
        "permissions",
        Rule::BehaviourUserData,
        "must hold `user_data` exactly when the tool reads data of a user".to_owned(),
    );
    require(
        tool.auth_required || !behaviours.account_context,
        "authRequired",
        Rule::BehaviourAccountContext,
        "must be true for a tool that needs account context".to_owned(),
    );
}

/// The rules about names across all entries.
pub(crate) fn check_names<'a>(
    tools: impl Iterator<Item = &'a ContractTool>,
    found: &mut Vec<Violation>,
) {
    let mut names: HashMap<&str, ()> = HashMap::new();
    let mut compat_names: HashMap<&str, &ToolName> = HashMap::new();
    for tool in tools {
        if names.insert(tool.name.as_str(), ()).is_some() {
            found.push(Violation::new(
                &tool.name,
                "name",
                Rule::UniqueName,
                "another entry has this name",
            ));
            continue;
        }
        let Some(compat) = tool.agent.compat_name.as_deref() else {
            continue;
        };
        if let Some(other) = compat_names.insert(compat, &tool.name) {
            let message = format!("`{compat}` is also what `{other}` is called");
            found.push(Violation::new(
                &tool.name,
                "agent.compatName",
                Rule::UniqueCompatName,
                message,
            ));
        }
    }
}

#[cfg(test)]
#[path = "invariant_tests.rs"]
mod tests;
