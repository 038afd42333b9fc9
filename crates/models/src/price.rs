//! What tokens cost.

use serde::{Deserialize, Serialize};

use crate::chat::Usage;

/// The highest price, in dollars for a million tokens.
const HIGHEST: f64 = 1_000_000.0;

/// A price is kept in millionths of what one token costs in millionths of a dollar.
const FINE: f64 = 1_000_000.0;

/// What a model costs, in dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// For what is sent.
    pub input: f64,
    /// For what comes back.
    #[serde(default)]
    pub output: f64,
    /// For what is sent and that the server had at hand; as `input` without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<f64>,
}

impl Price {
    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        let parts = [
            ("price.input", self.input),
            ("price.output", self.output),
            ("price.cached_input", self.cached_input.unwrap_or(0.0)),
        ];
        match parts.into_iter().find(|(_, price)| !(0.0..=HIGHEST).contains(price)) {
            Some((name, _)) => {
                Err((name, format!("is from 0 to {HIGHEST} dollars for a million tokens")))
            }
            None => Ok(()),
        }
    }

    /// What this costs, in millionths of a dollar, rounded up.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let cached = usage.cached_tokens.min(usage.input_tokens);
        let parts = [
            (usage.input_tokens - cached, self.input),
            (cached, self.cached_input.unwrap_or(self.input)),
            (usage.output_tokens, self.output),
        ];
        let fine: u128 = parts
            .into_iter()
            .map(|(tokens, price)| u128::from(tokens) * u128::from((price * FINE).round() as u64))
            .sum();
        u64::try_from(fine.div_ceil(FINE as u128)).unwrap_or(u64::MAX)
    }

    /// The most that so many tokens can cost, before it is known what the server has at hand.
    pub fn most(&self, input_tokens: u64, output_tokens: u64) -> u64 {
        let none = Usage { input_tokens, output_tokens, cached_tokens: 0 };
        let all = Usage { cached_tokens: input_tokens, ..none };
        self.cost(&none).max(self.cost(&all))
    }
}

#[cfg(test)]
#[path = "price_tests.rs"]
mod tests;
