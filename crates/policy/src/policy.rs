//! One layer's policy.

use serde::{Deserialize, Serialize};
use tollgate_contract::{ContractTool, CostEffect, Permission, SideEffect};

use crate::{ask::AskRule, selector::Selector, trade::TradeGuardrails};

/// What one layer lets through. Whatever is absent adds nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// If given, every permission of a tool must be covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<Selector>>,
    /// What is refused, whatever else allows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<Selector>,
    /// The highest side effect that passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_side_effect: Option<SideEffect>,
    /// The highest cost effect that passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_effect: Option<CostEffect>,
    /// What needs a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<AskRule>,
    /// What holds for trades.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trade: Option<TradeGuardrails>,
}

impl Policy {
    /// The names of the built-in policies.
    pub const BUILT_IN: [&'static str; 2] = ["readonly", "operator"];

    /// The built-in policy of this name.
    pub fn built_in(name: &str) -> Option<Self> {
        match name {
            "readonly" => Some(Self::readonly()),
            "operator" => Some(Self::operator()),
            _ => None,
        }
    }

    /// What a key without a policy gets: nothing is changed, and no more than an API call is used.
    pub fn readonly() -> Self {
        Self {
            max_side_effect: Some(SideEffect::None),
            max_cost_effect: Some(CostEffect::ApiCost),
            ..Self::default()
        }
    }

    /// What the first admin key gets: everything but secrets and execution, short of real money.
    pub fn operator() -> Self {
        let allow = Permission::BUILT_IN
            .iter()
            .filter_map(|text| Permission::parse(text).ok())
            .filter(|p| ![Permission::SECRET, Permission::EXECUTION].contains(p))
            .map(Selector::Permission)
            .collect();
        Self {
            allow: Some(allow),
            max_side_effect: Some(SideEffect::PaperTrade),
            max_cost_effect: Some(CostEffect::LlmCost),
            ..Self::default()
        }
    }

    /// Does this policy enable the tool by its own name, as tools that are off by default need?
    pub fn enables_by_name(&self, tool: &ContractTool) -> bool {
        self.allow.iter().flatten().any(|entry| entry.grants(tool))
    }

    /// The permissions of `tool` that the allow list does not cover; `None` without a list.
    pub(crate) fn uncovered(&self, tool: &ContractTool) -> Option<Vec<Permission>> {
        let allow = self.allow.as_ref()?;
        if self.enables_by_name(tool) {
            return Some(Vec::new());
        }
        let is_covered = |wanted: &Permission| allow.iter().any(|entry| entry.covers(wanted));
        Some(tool.permissions.iter().filter(|wanted| !is_covered(wanted)).cloned().collect())
    }
}
