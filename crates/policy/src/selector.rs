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
    /// Tools by name: `tool:fs.write_text`, `tool:fs.*`.
    Tool(ToolPattern),
    /// Everything below a name, tools and permissions: `fs.*`.
    Space(ToolPattern),
    /// A dotted name: `acme.deploy`. A pack's permission and a tool look alike, and whoever writes
    /// `deny = ["fs.write_text"]` means the tool; so it refuses either. It grants the permission alone:
    /// whoever names a tool must not be able to grant it.
    Name(Permission),
}

impl Selector {
    /// Reads an entry.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named = |pattern: &str| ToolPattern::parse(pattern).map_err(|error| error.to_string());
        if let Some(pattern) = text.strip_prefix(TOOL) {
            return named(pattern).map(Self::Tool);
        }
        if text.ends_with(".*") {
            return named(text).map(Self::Space);
        }
        let permission = Permission::parse(text).map_err(|error| error.to_string())?;
        if permission.is_built_in() {
            Ok(Self::Permission(permission))
        } else {
            Ok(Self::Name(permission))
        }
    }

    /// Does it stand for this permission?
    pub fn covers(&self, permission: &Permission) -> bool {
        match self {
            Self::Permission(own) | Self::Name(own) => own == permission,
            Self::Space(space) => space.holds(permission.as_str()),
            Self::Tool(_) => false,
        }
    }

    /// Does it grant this tool by its name?
    pub fn grants(&self, tool: &ContractTool) -> bool {
        matches!(self, Self::Tool(pattern) | Self::Space(pattern) if pattern.matches(&tool.name))
    }

    /// Does it refuse this tool: by its name, or by a permission that it needs?
    pub fn refuses(&self, tool: &ContractTool) -> bool {
        let is_its_name = matches!(self, Self::Name(name) if name.as_str() == tool.name.as_str());
        is_its_name
            || self.grants(tool)
            || tool.permissions.iter().any(|permission| self.covers(permission))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permission(permission) | Self::Name(permission) => write!(f, "{permission}"),
            Self::Tool(pattern) => write!(f, "{TOOL}{pattern}"),
            Self::Space(pattern) => write!(f, "{pattern}"),
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
