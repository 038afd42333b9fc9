//! What every manifest must hold, checked when it loads. A manifest that breaks one rule does not
//! load at all, and the error names every tool, field and rule that is broken.

use std::{collections::HashMap, fmt};

use serde::Serialize;
use serde_json::Value;

use crate::{
    behaviour::Behaviours,
    declare::ToolDeclaration,
    effect::{CostEffect, Retry, SideEffect, Status, words},
    json,
    manifest::{ContractTool, ManifestMode, SCHEMA_VERSION},
    name::{NameError, ToolName, is_segment},
    permission::Permission,
    schema::Schema,
    text::{Clean, Quoted, nearest, plain_shape},
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
    pub(crate) fn new(
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

    fn unless_empty(violations: Vec<Violation>) -> Result<(), Self> {
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

/// Reads a manifest in its wire format, where behaviours are not told.
pub(crate) fn read_manifest(bytes: &[u8]) -> Result<Vec<ContractTool>, Violations> {
    let whole =
        |field: &str, rule, message: String| Violation::new("manifest", field, rule, message);
    let value = json::parse(bytes).map_err(|error| whole("", Rule::Shape, error.to_string()))?;
    let Value::Object(mut document) = value else {
        return Err(whole("", Rule::Shape, "a manifest is an object".to_owned()).into());
    };
    let mut found = Vec::new();
    if document.get("schemaVersion").and_then(Value::as_str) != Some(SCHEMA_VERSION) {
        found.push(whole(
            "schemaVersion",
            Rule::SchemaVersion,
            format!("must be `{SCHEMA_VERSION}`"),
        ));
    }
    let mode = document.get("mode").and_then(Value::as_str).and_then(ManifestMode::parse);
    if mode.is_none() {
        found.push(whole("mode", Rule::Shape, "must be `implemented` or `review`".to_owned()));
    }
    for key in
        document.keys().filter(|key| !["schemaVersion", "mode", "tools"].contains(&key.as_str()))
    {
        found.push(whole(
            Quoted::new(key).as_str(),
            Rule::UnknownField,
            "a manifest has `schemaVersion`, `mode` and `tools`".to_owned(),
        ));
    }
    let Some(Value::Array(entries)) = document.remove("tools") else {
        found.push(whole("tools", Rule::Shape, "must be a list".to_owned()));
        return Err(Violations(found));
    };
    let tools = read_tools(entries, mode, &mut found);
    check_names(tools.iter(), &mut found);
    Violations::unless_empty(found).map(|()| tools)
}

fn read_tools(
    entries: Vec<Value>,
    mode: Option<ManifestMode>,
    found: &mut Vec<Violation>,
) -> Vec<ContractTool> {
    let mut tools = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let Some(tool) = read_tool(index, entry, found) else {
            continue;
        };
        check_tool(&tool, found);
        if mode == Some(ManifestMode::Implemented) && tool.status != Status::Implemented {
            found.push(Violation::new(
                &tool.name,
                "status",
                Rule::Mode,
                format!(
                    "is `{}`, and a manifest in mode `implemented` holds only what is implemented",
                    tool.status
                ),
            ));
        }
        tools.push(tool);
    }
    tools
}

/// Every field of a contract on the wire, and whether it must be there.
const FIELDS: [(&str, bool); 19] = [
    ("name", true),
    ("status", true),
    ("stability", true),
    ("authRequired", true),
    ("permissions", true),
    ("access", true),
    ("sideEffect", true),
    ("costEffect", true),
    ("risk", true),
    ("schema", true),
    ("inputSchema", false),
    ("outputSchema", false),
    ("http", false),
    ("sdk", false),
    ("agent", true),
    ("traceEvents", true),
    ("replay", true),
    ("retry", false),
    ("description", false),
];

/// Reads one entry; on failure tells all that is missing or unknown, not only the first.
fn read_tool(index: usize, entry: Value, found: &mut Vec<Violation>) -> Option<ContractTool> {
    let before = found.len();
    let label = match entry.get("name").and_then(Value::as_str) {
        Some(name) => name.to_owned(),
        None => format!("tools/{index}"),
    };
    let mut refuse = |field: &str, rule, message: String| {
        found.push(Violation::new(&label, field, rule, message));
    };
    let Value::Object(fields) = &entry else {
        refuse("", Rule::Shape, "an entry is an object".to_owned());
        return None;
    };
    for (field, _) in
        FIELDS.iter().filter(|(field, required)| *required && !fields.contains_key(*field))
    {
        refuse(field, Rule::MissingField, "is missing; every entry declares it".to_owned());
    }
    if fields
        .get("access")
        .is_some_and(|access| access.is_object() && access.get("anonymousAllowed").is_none())
    {
        refuse(
            "access.anonymousAllowed",
            Rule::MissingField,
            "is missing; every entry declares it".to_owned(),
        );
    }
    for field in fields.keys().filter(|field| !FIELDS.iter().any(|(known, _)| known == field)) {
        let hint = nearest(field, FIELDS.iter().map(|(known, _)| *known))
            .map(|near| format!("; did you mean `{near}`?"))
            .unwrap_or_default();
        refuse(
            Quoted::new(field).as_str(),
            Rule::UnknownField,
            format!("no contract has this field{hint}"),
        );
    }
    // A list would be read by the places of its items; here every part has its name.
    for field in ["access", "http", "sdk", "agent", "replay"] {
        if fields.get(field).is_some_and(|value| !value.is_object()) {
            refuse(field, Rule::Shape, "must be an object".to_owned());
        }
    }
    if let Some(Err(error)) = fields.get("name").and_then(Value::as_str).map(ToolName::parse) {
        refuse("name", Rule::of_name(&error), error.to_string());
    }
    if found.len() > before {
        return None;
    }
    match serde_path_to_error::deserialize::<_, ContractTool>(entry) {
        Ok(tool) => Some(tool),
        Err(error) => {
            let message = Clean::new(&plain_shape(&error.inner().to_string())).as_str().to_owned();
            found.push(Violation::new(&label, error.path().to_string(), Rule::Shape, message));
            None
        }
    }
}

/// The rules that one contract must hold by itself.
fn check_tool(tool: &ContractTool, found: &mut Vec<Violation>) {
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
fn check_names<'a>(tools: impl Iterator<Item = &'a ContractTool>, found: &mut Vec<Violation>) {
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
