//! Reading a manifest from its wire format: every entry that cannot be read is told with all that is
//! missing or unknown in it, and every one that can is held against the rules of [`crate::invariant`].

use serde_json::Value;

use crate::{
    effect::Status,
    invariant::{Rule, Violation, Violations, check_names, check_tool},
    json,
    manifest::{ContractTool, ManifestMode, SCHEMA_VERSION},
    name::ToolName,
    text::{Clean, Quoted, nearest, plain_shape},
};

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
        return Violations::unless_empty(found).map(|()| Vec::new());
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
