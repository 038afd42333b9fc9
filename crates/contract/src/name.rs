//! Canonical tool names. A [`ToolName`] cannot hold a legacy name such as `get_world_state`, nor a
//! name that is reserved for surfaces that must never exist.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::text::Quoted;

/// Long enough for any real tool, short enough for every host that shows or stores it.
pub const MAX_NAME_LEN: usize = 128;

/// Names that are never entries of a manifest, in no mode and from no importer.
/// A name ending in `.*` reserves everything below it.
pub const RESERVED_NAMES: [&str; 8] = [
    "events.*",
    "market.related",
    "auth.status",
    "investigations.create",
    "intents.propose",
    "webhooks.create",
    "get_world_state",
    "get_regime_history",
];

/// Names of an older inventory, and the canonical name that took their place. They are for advice
/// only: nothing resolves through this list.
pub const LEGACY_NAMES: [(&str, &str); 2] =
    [("get_world_state", "world.read"), ("get_regime_history", "world.read")];

/// The canonical name that took the place of a legacy one.
pub fn successor(legacy: &str) -> Option<&'static str> {
    LEGACY_NAMES.iter().find(|(old, _)| *old == legacy).map(|(_, new)| *new)
}

/// Is `name` on the reserved list?
pub fn is_reserved(name: &str) -> bool {
    RESERVED_NAMES.iter().any(|reserved| match reserved.strip_suffix(".*") {
        Some(space) => name == space || is_below(name, space),
        None => name == *reserved,
    })
}

/// Is `name` below the name space `space`, as `events.search` is below `events`?
fn is_below(name: &str, space: &str) -> bool {
    name.strip_prefix(space).is_some_and(|rest| rest.starts_with('.'))
}

/// A canonical dotted tool name: two or more segments of `[a-z][a-z0-9_]*`, and not reserved.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct ToolName(Arc<str>);

/// Why a text is not a canonical tool name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It does not have the shape of a canonical name.
    #[error(
        "{0} is not a canonical tool name: use two or more segments of lower-case letters, digits \
         and underscores joined by dots, such as `world.read`"
    )]
    NotCanonical(Quoted),
    /// It is reserved and never a tool.
    #[error("{0} is a reserved name and is never a tool")]
    Reserved(Quoted),
    /// It is longer than any name may be.
    #[error("{0} is longer than {MAX_NAME_LEN} characters")]
    TooLong(Quoted),
}

impl ToolName {
    /// Reads a canonical name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.len() > MAX_NAME_LEN {
            return Err(NameError::TooLong(text.into()));
        }
        if is_reserved(text) {
            return Err(NameError::Reserved(text.into()));
        }
        if !is_dotted(text) {
            return Err(NameError::NotCanonical(text.into()));
        }
        Ok(Self(text.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Is `other` this name with underscores for dots, or in other letters?
    pub(crate) fn is_written_as(&self, other: &str) -> bool {
        let same = |(own, other): (u8, u8)| {
            own == other.to_ascii_lowercase() || (own == b'.' && other == b'_')
        };
        self.0.len() == other.len() && self.0.bytes().zip(other.bytes()).all(same)
    }

    /// The underscore form for hosts that reject dots. Not unique by itself; a manifest checks that.
    pub fn underscored(&self) -> String {
        self.0.replace('.', "_")
    }
}

/// Two or more segments of `[a-z][a-z0-9_]*` joined by dots.
pub(crate) fn is_dotted(text: &str) -> bool {
    text.contains('.') && text.split('.').all(is_segment)
}

/// One segment: `[a-z][a-z0-9_]*`.
pub(crate) fn is_segment(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolName({})", self.0)
    }
}

impl FromStr for ToolName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for ToolName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

/// Which tools a policy entry means: one by name, or all below a name space (`fs.*`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ToolPattern {
    /// Exactly this tool.
    Exact(ToolName),
    /// Every tool whose name starts with these segments.
    Below(Arc<str>),
}

impl ToolPattern {
    /// Reads `fs.read_text` or `fs.*`.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match text.strip_suffix(".*") {
            Some(space) if text.len() <= MAX_NAME_LEN && space.split('.').all(is_segment) => {
                Ok(Self::Below(space.into()))
            }
            Some(_) => Err(NameError::NotCanonical(text.into())),
            None => ToolName::parse(text).map(Self::Exact),
        }
    }

    /// Does this pattern mean `name`?
    pub fn matches(&self, name: &ToolName) -> bool {
        self.holds(name.as_str())
    }

    /// Does this pattern mean the dotted name `name`, a tool's or another?
    pub fn holds(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact.as_str() == name,
            Self::Below(space) => is_below(name, space),
        }
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => write!(f, "{name}"),
            Self::Below(space) => write!(f, "{space}.*"),
        }
    }
}

impl Serialize for ToolPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ToolPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
