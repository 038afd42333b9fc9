//! The question that all engines answer: one manifest, two layers of rules, and a mix of calls.
//!
//! Half of the calls pass. The others are refused, each kind by another step, and every call says
//! which step that is: a mix that stopped half of its refusals at the first step would time nothing.

use std::error::Error;

use serde_json::{Value, json};
use tollgate_contract::{
    Caller, CostEffect, Identity, InvalidKey, KeyFacts, KeyScope, Manifest, Mode, SideEffect, Step,
    Surface, id::KeyId,
};
use tollgate_policy::{Format, Layers, PolicySet};

use super::tools::{KINDS, Kind};

/// What one layer says, in the words that all engines share.
pub(crate) struct LayerRules {
    pub(crate) allow: &'static [&'static str],
    pub(crate) deny: &'static [&'static str],
    pub(crate) max_side_effect: SideEffect,
    pub(crate) max_cost_effect: CostEffect,
}

/// The server's layer.
pub(crate) const SERVER: LayerRules = LayerRules {
    allow: &[
        "read.public",
        "market_data",
        "read",
        "research",
        "net",
        "user_data",
        "write",
        "model",
        "fs",
        "shell",
        "runtime",
        "paper_trade",
        "trade",
    ],
    deny: &["secret", "execution"],
    max_side_effect: SideEffect::PaperTrade,
    max_cost_effect: CostEffect::VenueRequestCost,
};

/// The key's layer.
pub(crate) const KEY: LayerRules = LayerRules {
    allow: &[
        "read.public",
        "market_data",
        "read",
        "research",
        "net",
        "user_data",
        "write",
        "model",
        "runtime",
        "paper_trade",
        "trade",
    ],
    deny: &["shell"],
    max_side_effect: SideEffect::Runtime,
    max_cost_effect: CostEffect::SearchCost,
};

/// One call of the mix.
pub(crate) struct Call {
    pub(crate) tool: String,
    /// Which of [`Scenario::callers`].
    pub(crate) caller: usize,
    /// Only our trade guardrails and `ask` entries look at it.
    pub(crate) input: Value,
    /// The step of ours that refuses it; `None` when it passes.
    pub(crate) refused_at: Option<Step>,
}

impl Call {
    pub(crate) fn passes(&self) -> bool {
        self.refused_at.is_none()
    }

    pub(crate) fn names_no_tool(&self) -> bool {
        self.refused_at == Some(Step::Existence)
    }
}

/// The whole question.
pub(crate) struct Scenario {
    pub(crate) manifest: Manifest,
    /// Who calls, by a name that the engines can use as an id.
    pub(crate) callers: Vec<(&'static str, Caller)>,
    pub(crate) layers: Layers,
    pub(crate) calls: Vec<Call>,
}

const TRADER: usize = 0;
const WATCHER: usize = 1;
const STRANGER: usize = 2;
const REVOKED: usize = 3;

impl Scenario {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let entries: Vec<Value> =
            KINDS.iter().flat_map(|kind| kind.names().map(|name| kind.entry(&name))).collect();
        let document =
            json!({ "schemaVersion": "0.3.0-draft", "mode": "review", "tools": entries });
        let manifest = Manifest::parse(document.to_string().as_bytes())?;
        Ok(Self { manifest, callers: callers(), layers: layers()?, calls: calls() })
    }
}

/// All on the agent surface and live, where every call needs a key. The rule that user data needs one
/// is evaluated, but never decides alone.
fn callers() -> Vec<(&'static str, Caller)> {
    let caller = |identity| Caller { surface: Surface::Agent, mode: Mode::Live, identity };
    let key = |name: &str, scopes: &[KeyScope]| {
        Identity::Key(KeyFacts {
            id: KeyId::from_parts(1_767_225_600_000, [7; 10]),
            name: name.to_owned(),
            owner: "acme".to_owned(),
            scopes: scopes.to_vec(),
            generation: 1,
        })
    };
    vec![
        ("trader", caller(key("trader", &[KeyScope::Read, KeyScope::Call]))),
        ("watcher", caller(key("watcher", &[KeyScope::Read]))),
        ("stranger", caller(Identity::Anonymous)),
        ("revoked", caller(Identity::Invalid(InvalidKey::Revoked))),
    ]
}

/// The layers, with guardrails and an `ask` list that only we evaluate; no call of the mix is stopped
/// by them, so that all verdicts can be compared.
fn layers() -> Result<Layers, Box<dyn Error>> {
    let set = json!({
        "server": {
            "allow": SERVER.allow,
            "deny": SERVER.deny,
            "maxSideEffect": SERVER.max_side_effect,
            "maxCostEffect": SERVER.max_cost_effect,
            "trade": {
                "allowedVenues": ["kalshi", "polymarket"],
                "allowedTickers": ["KX*"],
                "maxOrderCostCents": 10_000,
                "requireLimitPrice": true,
                "blockedJurisdictions": ["US"],
            },
        },
        "policies": {
            "trader": {
                "allow": KEY.allow,
                "deny": KEY.deny,
                "maxSideEffect": KEY.max_side_effect,
                "maxCostEffect": KEY.max_cost_effect,
                "trade": { "maxQuantity": 100, "jurisdiction": "DE" },
                "ask": [
                    { "sideEffect": "live_trade", "reason": "real money" },
                    { "tool": "intent.*", "input": { "pointer": "/quantity", "above": 50 } },
                    { "permission": "fs", "reason": "writes files" },
                ],
            },
        },
    });
    let set = PolicySet::parse(&set.to_string(), Format::Json)?;
    let key = set.named("trader").ok_or("no policy for the key")?;
    Ok(Layers::of_server(set.server).with_key(Some(key)))
}

/// 48 calls that pass and 48 that do not, in an order that no branch predictor can learn as two runs.
fn calls() -> Vec<Call> {
    let passing: Vec<String> = names(|kind| kind.refused_at.is_none());
    let mut calls: Vec<Call> =
        passing.iter().cycle().take(48).map(|tool| call(tool, TRADER, None)).collect();

    for kind in KINDS.iter().filter(|kind| kind.refused_at.is_some()) {
        let tools: Vec<String> = kind.names().collect();
        let three = tools.iter().cycle().take(3);
        calls.extend(three.map(|tool| call(tool, TRADER, kind.refused_at)));
    }
    for caller in [WATCHER, STRANGER, REVOKED] {
        let three = passing.iter().skip(caller).step_by(7).take(3);
        calls.extend(three.map(|tool| call(tool, caller, Some(Step::Identity))));
    }
    // As a host without dots writes it, with a typing error, and out of the blue.
    for name in ["market_read_1", "reserch.search_2", "get_world_state"] {
        calls.push(call(name, TRADER, Some(Step::Existence)));
    }
    shuffled(calls)
}

fn names(wanted: impl Fn(&Kind) -> bool) -> Vec<String> {
    let kinds = KINDS.iter().filter(|kind| wanted(kind));
    kinds.flat_map(Kind::names).collect()
}

fn call(tool: &str, caller: usize, refused_at: Option<Step>) -> Call {
    let input = if tool.starts_with("intent.") {
        json!({
            "venue": "kalshi", "ticker": "KXRAIN-26", "action": "buy", "quantity": 20,
            "limitPrice": 45, "jurisdiction": "DE", "autoExecute": false,
        })
    } else {
        json!({ "query": "rain in Berlin", "limit": 20 })
    };
    Call { tool: tool.to_owned(), caller, input, refused_at }
}

/// Sorts by a fixed scramble of the place.
fn shuffled(calls: Vec<Call>) -> Vec<Call> {
    let mut placed: Vec<(u64, Call)> = calls
        .into_iter()
        .zip(1_u64..)
        .map(|(call, place)| (place.wrapping_mul(0x9E37_79B9_7F4A_7C15), call))
        .collect();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, call)| call).collect()
}
