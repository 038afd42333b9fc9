//! Permissions that a tool declares and a policy allows or denies.

use std::{borrow::Cow, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{
    name::{MAX_NAME_LEN, is_dotted},
    text::{Quoted, nearest},
};

/// One permission: a built-in one, or a dotted one that a pack adds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Permission(Cow<'static, str>);

/// A text that is no permission.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text} is not a permission{}", hint(*.suggestion))]
pub struct PermissionError {
    text: Quoted,
    suggestion: Option<&'static str>,
}

fn hint(suggestion: Option<&str>) -> String {
    match suggestion {
        Some(name) => format!("; did you mean `{name}`?"),
        None => format!(
            "; the built-in ones are {}, and a pack's own have a dot, such as `acme.deploy`",
            Permission::BUILT_IN.join(", ")
        ),
    }
}

macro_rules! built_in {
    ($($constant:ident = $text:literal;)*) => {
        impl Permission {
            $(#[doc = concat!("`", $text, "`")]
            pub const $constant: Self = Self(Cow::Borrowed($text));)*
            /// Every built-in permission.
            pub const BUILT_IN: &'static [&'static str] = &[$($text),*];
        }
    };
}

built_in! {
    READ_PUBLIC = "read.public";
    MARKET_DATA = "market_data";
    READ = "read";
    RESEARCH = "research";
    USER_DATA = "user_data";
    WRITE = "write";
    RUNTIME = "runtime";
    SECRET = "secret";
    PAPER_TRADE = "paper_trade";
    TRADE = "trade";
    EXECUTION = "execution";
    FS = "fs";
    SHELL = "shell";
    NET = "net";
    MODEL = "model";
}

impl Permission {
    /// Reads a built-in permission or a pack's dotted one.
    pub fn parse(text: &str) -> Result<Self, PermissionError> {
        if let Some(known) = Self::BUILT_IN.iter().find(|known| **known == text) {
            return Ok(Self(Cow::Borrowed(known)));
        }
        if text.len() <= MAX_NAME_LEN && is_dotted(text) {
            return Ok(Self(Cow::Owned(text.to_owned())));
        }
        Err(PermissionError {
            text: text.into(),
            suggestion: nearest(text, Self::BUILT_IN.iter().copied()),
        })
    }

    /// Is it one of the built-in ones?
    pub fn is_built_in(&self) -> bool {
        Self::BUILT_IN.contains(&self.as_str())
    }

    /// The permission as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permission({})", self.0)
    }
}

impl<'de> Deserialize<'de> for Permission {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
#[path = "permission_tests.rs"]
mod tests;
