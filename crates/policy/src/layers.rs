//! The layers of a decision, in order, each able only to narrow.

use tollgate_contract::{ContractTool, CostEffect, Layer, SideEffect, verdict::Ceiling};

use crate::policy::Policy;

/// The policies that apply to one call: the server's, and where they are given the key's, the
/// session's and the call's. An absent layer adds nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Layers(Vec<(Layer, Policy)>);

impl Layers {
    /// The ceilings of a server that says nothing of its own. Real money takes a person's word.
    pub const SERVER_CEILING: (SideEffect, CostEffect) =
        (SideEffect::PaperTrade, CostEffect::LlmCost);

    /// The server's policy alone. Ceilings that it does not state are [`Layers::SERVER_CEILING`].
    pub fn of_server(mut server: Policy) -> Self {
        let (side, cost) = Self::SERVER_CEILING;
        server.max_side_effect.get_or_insert(side);
        server.max_cost_effect.get_or_insert(cost);
        Self(vec![(Layer::Server, server)])
    }

    /// Adds the layer of a key. A key without a policy of its own is `readonly`, and one whose policy
    /// states no ceiling does not reach real money: that takes the key's own word.
    pub fn with_key(self, policy: Option<Policy>) -> Self {
        let mut policy = policy.unwrap_or_else(Policy::readonly);
        policy.max_side_effect.get_or_insert(Self::SERVER_CEILING.0);
        self.with(Layer::Key, policy)
    }

    /// Adds the layer of a session.
    pub fn with_session(self, policy: Policy) -> Self {
        self.with(Layer::Session, policy)
    }

    /// Adds the layer of a call.
    pub fn with_call(self, policy: Policy) -> Self {
        self.with(Layer::Call, policy)
    }

    /// Adds a layer in its place. A second one for the same layer narrows as well: nothing replaces.
    fn with(mut self, layer: Layer, policy: Policy) -> Self {
        self.0.push((layer, policy));
        self.0.sort_by_key(|(layer, _)| *layer);
        self
    }

    /// The layers, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Layer, &Policy)> {
        self.0.iter().map(|(layer, policy)| (*layer, policy))
    }

    /// Every layer's ceiling for side effects, where it has one.
    pub(crate) fn side_effect_ceilings(&self) -> Vec<Ceiling<SideEffect>> {
        self.ceilings(|policy| policy.max_side_effect)
    }

    /// Every layer's ceiling for cost effects, where it has one.
    pub(crate) fn cost_effect_ceilings(&self) -> Vec<Ceiling<CostEffect>> {
        self.ceilings(|policy| policy.max_cost_effect)
    }

    fn ceilings<E>(&self, of: impl Fn(&Policy) -> Option<E>) -> Vec<Ceiling<E>> {
        self.iter()
            .filter_map(|(layer, policy)| of(policy).map(|max| Ceiling { layer, max }))
            .collect()
    }

    /// Does every ceiling reach real money?
    pub(crate) fn opts_into_live_trade(&self) -> bool {
        self.side_effect_ceilings().iter().all(|ceiling| ceiling.max >= SideEffect::LiveTrade)
    }

    /// May whoever these layers are for see `tool`: does no layer deny it, and does every allow list cover it?
    pub fn shows(&self, tool: &ContractTool) -> bool {
        self.iter().all(|(_, policy)| {
            let is_denied = policy.deny.iter().any(|entry| entry.refuses(tool));
            !is_denied && policy.uncovered(tool).is_none_or(|missing| missing.is_empty())
        })
    }

    /// Do the ceilings of every layer let its effects through?
    pub fn reaches(&self, tool: &ContractTool) -> bool {
        self.side_effect_ceilings().iter().all(|ceiling| tool.side_effect <= ceiling.max)
            && self.cost_effect_ceilings().iter().all(|ceiling| tool.cost_effect <= ceiling.max)
    }

    /// Is `tool` offered in tool lists: by default, or because a layer enables it by name?
    pub fn offers(&self, tool: &ContractTool) -> bool {
        tool.agent.default_enabled || self.iter().any(|(_, policy)| policy.enables_by_name(tool))
    }
}
