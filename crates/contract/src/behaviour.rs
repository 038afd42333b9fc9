//! What a tool really does, as nine declared behaviours, and the effects that follow from them.
//!
//! A pack does not choose its effects by feel. It says which of the nine hold, and the effects it
//! declares are checked against the RFC's annotation table, which [`Behaviours::side_effect`] and
//! [`Behaviours::cost_effect`] spell out.

use serde::{Deserialize, Serialize};

use crate::effect::{CostEffect, SideEffect, words};

words! {
    /// What a tool changes.
    Mutation {
        /// Nothing.
        None = "none",
        /// Key, session or authentication telemetry, and that is its purpose.
        AuthTelemetry = "auth_telemetry",
        /// What a user has stored.
        UserState = "user_state",
        /// Which processes run.
        Runtime = "runtime",
    }
}

words! {
    /// Whether a tool trades.
    Trade {
        /// It does not.
        None = "none",
        /// With play money.
        Paper = "paper",
        /// With real money.
        Live = "live",
    }
}

/// The nine behaviours of a tool. All nine are stated; none has a default on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Behaviours {
    /// It needs an account or user context.
    pub account_context: bool,
    /// It reads data of a user.
    pub user_data: bool,
    /// It calls a paid or quota-limited upstream.
    pub paid_upstream: bool,
    /// It calls a search.
    pub search: bool,
    /// It calls a language model.
    pub llm: bool,
    /// It calls a venue or market-data provider.
    pub venue: bool,
    /// What it changes.
    pub mutation: Mutation,
    /// It creates or reveals secrets.
    pub secrets: bool,
    /// Whether it trades.
    pub trade: Trade,
}

impl Behaviours {
    /// Looked at, and none of the nine holds.
    pub const NONE: Self = Self {
        account_context: false,
        user_data: false,
        paid_upstream: false,
        search: false,
        llm: false,
        venue: false,
        mutation: Mutation::None,
        secrets: false,
        trade: Trade::None,
    };

    /// The side effect that follows: the highest of what it does.
    pub fn side_effect(&self) -> SideEffect {
        let mutation = match self.mutation {
            Mutation::None => SideEffect::None,
            Mutation::AuthTelemetry => SideEffect::AuthTelemetryWrite,
            Mutation::UserState => SideEffect::UserWrite,
            Mutation::Runtime => SideEffect::Runtime,
        };
        let secrets = if self.secrets { SideEffect::Secret } else { SideEffect::None };
        let trade = match self.trade {
            Trade::None => SideEffect::None,
            Trade::Paper => SideEffect::PaperTrade,
            Trade::Live => SideEffect::LiveTrade,
        };
        mutation.max(secrets).max(trade)
    }

    /// The cost effect that follows: the highest of what it uses.
    pub fn cost_effect(&self) -> CostEffect {
        [
            (self.llm, CostEffect::LlmCost),
            (self.venue, CostEffect::VenueRequestCost),
            (self.search, CostEffect::SearchCost),
            (self.paid_upstream || self.user_data, CostEffect::ApiCost),
        ]
        .into_iter()
        .find_map(|(holds, effect)| holds.then_some(effect))
        .unwrap_or(CostEffect::None)
    }
}

#[cfg(test)]
#[path = "behaviour_tests.rs"]
mod tests;
