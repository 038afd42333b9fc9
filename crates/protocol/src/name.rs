//! Names of agent sessions. They name files, so they are never paths.

use std::fmt;

use serde::{Deserialize, Serialize};
use tollgate_contract::text::Quoted;

/// The name of an agent's session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionName(String);

/// A text that cannot be the name of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} cannot be the name of a session: it has 1 to 64 letters, digits, `-`, `_` or `.`, and begins with a letter or a digit"
)]
pub struct NameError(Quoted);

impl SessionName {
    /// The longest name.
    pub const LONGEST: usize = 64;

    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins = text.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
        if begins && text.len() <= Self::LONGEST && text.chars().all(is_fine) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(Quoted::new(text)))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SessionName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::parse(&text)
    }
}

impl From<SessionName> for String {
    fn from(name: SessionName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_paths() {
        for name in ["notes", "a", "run-7_b.2", "9", &"x".repeat(64)] {
            assert_eq!(SessionName::parse(name).unwrap().as_str(), name);
        }
        for name in [
            "",
            ".",
            "..",
            ".hidden",
            "-x",
            "_x",
            "a/b",
            "../a",
            "a\\b",
            "a b",
            "a\0",
            "ä",
            "a\n",
            &"x".repeat(65),
            "a:b",
            "%2e%2e",
        ] {
            assert!(SessionName::parse(name).is_err(), "{name:?}");
        }
    }
}
