//! What an entry of `allow` or `deny` means: a permission, or tools by name.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tollgate_contract::{ContractTool, Permission, ToolPattern};

/// What marks an entry that can only name tools.
const TOOL: &str = "tool:";

/// An entry of `allow` or `deny`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Selector {
    /// A built-in permission: `user_data`.
    Permission(Permission),
    /// Tools by name: `tool:fs.write_text`, `fs.*`.
    Tool(ToolPattern),
    /// A dotted name: `acme.deploy`. A pack's permission and a tool look alike, and whoever writes
    /// `deny = ["fs.write_text"]` means the tool; so it stands for either.
    Name(Permission),
}

impl Selector {
    /// Reads an entry.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pattern = match text.strip_prefix(TOOL) {
            Some(pattern) => Some(pattern),
            None => text.ends_with(".*").then_some(text),
        };
        if let Some(pattern) = pattern {
            return ToolPattern::parse(pattern).map(Self::Tool).map_err(|error| error.to_string());
        }
        let permission = Permission::parse(text).map_err(|error| error.to_string())?;
        if permission.is_built_in() {
            Ok(Self::Permission(permission))
        } else {
            Ok(Self::Name(permission))
        }
    }

    /// Is this permission on the entry?
    pub fn covers(&self, permission: &Permission) -> bool {
        matches!(self, Self::Permission(own) | Self::Name(own) if own == permission)
    }

    /// Does it name this tool?
    pub fn names(&self, tool: &ContractTool) -> bool {
        match self {
            Self::Permission(_) => false,
            Self::Tool(pattern) => pattern.matches(&tool.name),
            Self::Name(name) => name.as_str() == tool.name.as_str(),
        }
    }

    /// Does it name this tool, or a permission that this tool needs?
    pub fn touches(&self, tool: &ContractTool) -> bool {
        self.names(tool) || tool.permissions.iter().any(|permission| self.covers(permission))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permission(permission) | Self::Name(permission) => write!(f, "{permission}"),
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

#[cfg(test)]
#[path = "selector_tests.rs"]
mod tests;
