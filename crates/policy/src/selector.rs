//! What an entry of `allow` or `deny` means: a permission, or tools by name.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tollgate_contract::{ContractTool, Permission, ToolPattern};

/// What marks an entry that names tools; without it the entry is a permission.
const TOOL: &str = "tool:";

/// An entry of `allow` or `deny`: `user_data`, `tool:fs.write_text` or `tool:fs.*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Selector {
    /// A permission.
    Permission(Permission),
    /// Tools by name.
    Tool(ToolPattern),
}

impl Selector {
    /// Reads an entry.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix(TOOL) {
            Some(pattern) => {
                ToolPattern::parse(pattern).map(Self::Tool).map_err(|error| error.to_string())
            }
            None => Permission::parse(text).map(Self::Permission).map_err(|error| {
                match ToolPattern::parse(text) {
                    Ok(pattern) => format!("{error}; to name tools, write `{TOOL}{pattern}`"),
                    Err(_) => error.to_string(),
                }
            }),
        }
    }

    /// Does it name this tool, or a permission that this tool needs?
    pub fn touches(&self, tool: &ContractTool) -> bool {
        match self {
            Self::Permission(permission) => tool.needs(permission),
            Self::Tool(pattern) => pattern.matches(&tool.name),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permission(permission) => write!(f, "{permission}"),
            Self::Tool(pattern) => write!(f, "{TOOL}{pattern}"),
        }
    }
}

impl Serialize for Selector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Selector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}
