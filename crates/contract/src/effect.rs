//! What a tool does to the world and what it costs, as ordered classes that a policy can cap; and
//! the other closed words of a contract.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::{name::is_segment, text::Quoted};

/// Declares a closed set of words: the enum, its wire words in declaration order, and `Display`.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),*
        }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// Reads the word on the wire.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($word => Some(Self::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words! {
    /// What a tool changes, by its own purpose, from least to most. A policy's `maxSideEffect` is a
    /// ceiling in this order.
    SideEffect {
        /// Changes nothing.
        None = "none",
        /// Its purpose is to change authentication, session or key telemetry.
        AuthTelemetryWrite = "auth_telemetry_write",
        /// Changes what a user has stored.
        UserWrite = "user_write",
        /// Creates or reveals a secret.
        Secret = "secret",
        /// Starts or stops a process.
        Runtime = "runtime",
        /// Trades with play money.
        PaperTrade = "paper_trade",
        /// Trades with real money.
        LiveTrade = "live_trade",
    }
}

words! {
    /// What a call uses up, from least to most. It is a class, not an amount; amounts are the
    /// governor's. A policy's `maxCostEffect` is a ceiling in this order.
    CostEffect {
        /// Uses up nothing.
        None = "none",
        /// A hosted API's quota.
        ApiCost = "api_cost",
        /// A search.
        SearchCost = "search_cost",
        /// A request to a venue or market-data provider.
        VenueRequestCost = "venue_request_cost",
        /// A language model's tokens.
        LlmCost = "llm_cost",
    }
}

words! {
    /// Where an entry stands. Only `implemented` can be called; the rest is shown in review alone.
    Status {
        /// Works and can be called.
        Implemented = "implemented",
        /// Planned.
        Deferred = "deferred",
        /// On its way out.
        Deprecated = "deprecated",
        /// A name that models tend to invent.
        HallucinationRisk = "hallucination_risk",
        /// Must not exist.
        Forbidden = "forbidden",
        /// Pinned, and its definition changed since.
        Quarantined = "quarantined",
    }
}

words! {
    /// How settled a contract is.
    Stability {
        /// Changes only with notice.
        Stable = "stable",
        /// May change a little.
        Beta = "beta",
        /// May change or go.
        Experimental = "experimental",
    }
}

words! {
    /// Whether a call may be repeated when its outcome is not known.
    Retry {
        /// Never.
        Never = "never",
        /// Repeating changes nothing more.
        Idempotent = "idempotent",
        /// The upstream takes our key and deduplicates.
        Keyed = "keyed",
        /// The pack can ask what happened.
        Reconcile = "reconcile",
    }
}

impl Retry {
    /// What holds when a contract says nothing: reads may be repeated, effects may not.
    pub fn default_for(side_effect: SideEffect) -> Self {
        if side_effect == SideEffect::None { Self::Idempotent } else { Self::Never }
    }
}

/// A risk that a tool declares. Three of them forbid every call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Risk(String);

impl Risk {
    /// A tool with one of these is never called.
    pub const FORBIDDEN: [&'static str; 3] =
        ["unguarded_live_trade", "credential_exfiltration", "unconfined_execution"];

    /// Reads a risk: one word of lower-case letters, digits and underscores.
    pub fn parse(text: &str) -> Result<Self, RiskError> {
        if text.len() <= 64 && is_segment(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(RiskError(text.into()))
        }
    }

    /// Does this risk forbid every call?
    pub fn is_forbidden(&self) -> bool {
        Self::FORBIDDEN.contains(&self.0.as_str())
    }

    /// The risk as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no risk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a risk: use one word of lower-case letters, digits and underscores")]
pub struct RiskError(Quoted);

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Risk {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
#[path = "effect_tests.rs"]
mod tests;
