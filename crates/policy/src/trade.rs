//! The `trade` section of a policy. What it does to a call is in [`crate::guardrail`].

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tollgate_contract::text::hex;

use crate::region::Region;

/// What one layer says about trades. Whatever is absent adds nothing, except that `allow…` must be
/// said to be true.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TradeGuardrails {
    /// Venues that may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_venues: Option<Vec<String>>,
    /// Tickers that may be traded; a trailing `*` stands for any rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tickers: Option<Vec<String>>,
    /// Most that one order may cost, in cents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_order_cost_cents: Option<u64>,
    /// Most contracts that one order may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_quantity: Option<u64>,
    /// Every order needs a limit price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_limit_price: Option<bool>,
    /// May an intent execute by itself?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_auto_execute: Option<bool>,
    /// May a trading runtime be started?
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_runtime_start: Option<bool>,
    /// Only dry runs of live trades.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dry_run_only: Option<bool>,
    /// The jurisdiction must be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_jurisdiction: Option<bool>,
    /// The jurisdiction that orders are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jurisdiction: Option<Region>,
    /// Jurisdictions that may not trade; `US` blocks `US-NY`, and `US-NY` blocks a plain `US`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked_jurisdictions: Option<Vec<Region>>,
    /// A word that every order must repeat as `confirm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_token: Option<ConfirmToken>,
}

/// A word that an order must repeat. Only its SHA-256 is kept and written.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfirmToken([u8; 32]);

/// What marks a token that is already hashed.
const HASHED: &str = "sha256:";

impl ConfirmToken {
    /// Keeps the hash of `word`.
    pub fn of(word: &str) -> Self {
        Self(Sha256::digest(word.as_bytes()).into())
    }

    pub(crate) fn matches(&self, word: &str) -> bool {
        self.0.ct_eq(&Self::of(word).0).into()
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("`confirmToken` must not be empty");
        }
        let Some(digits) = text.strip_prefix(HASHED) else {
            return Ok(Self::of(text));
        };
        let hash = tollgate_contract::InputHash::parse(digits)
            .ok_or("`sha256:` must be followed by 64 lower-case hex digits")?;
        Ok(Self(*hash.as_bytes()))
    }
}

impl fmt::Debug for ConfirmToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfirmToken(…)")
    }
}

impl Serialize for ConfirmToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{HASHED}{}", hex(&self.0)))
    }
}

impl<'de> Deserialize<'de> for ConfirmToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

impl TradeGuardrails {
    /// Is anything limited here? An empty section guards nothing.
    pub(crate) fn guards_something(&self) -> bool {
        self.allowed_venues.is_some()
            || self.allowed_tickers.is_some()
            || self.max_order_cost_cents.is_some()
            || self.max_quantity.is_some()
            || self.require_limit_price == Some(true)
            || self.dry_run_only == Some(true)
            || self.require_jurisdiction == Some(true)
            || self.blocked_jurisdictions.as_ref().is_some_and(|blocked| !blocked.is_empty())
            || self.confirm_token.is_some()
    }
}

#[cfg(test)]
#[path = "trade_tests.rs"]
mod tests;
