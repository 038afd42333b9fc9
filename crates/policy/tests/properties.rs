//! What holds for every policy, caller, tool and input: restrictions restrict, layers narrow, and the
//! record ends in the step that decided.

#![cfg(test)]

use proptest::prelude::*;
use serde_json::{Value, json};
use tollgate_contract::{
    Caller, CostEffect, Decision, Identity, KeyFacts, KeyScope, Manifest, Mode, Outcome,
    SideEffect, Step, Surface, ToolPattern, id::KeyId,
};
use tollgate_policy::{
    AskRule, ConfirmToken, Evaluation, Layers, Policy, Region, Request, Selector, TradeGuardrails,
    evaluate,
};

const NAMES: [&str; 8] = [
    "world.read",
    "fs.write_text",
    "shell.exec",
    "intents.create",
    "intents.cancel",
    "runtime.ensure",
    "execution.paper",
    "execution.place",
];

/// A manifest with one tool, drawn from everything that a checked manifest may hold.
fn manifests() -> impl Strategy<Value = (Manifest, String)> {
    let side = prop::sample::select(SideEffect::ALL);
    let cost = prop::sample::select(CostEffect::ALL);
    let permissions = prop::sample::subsequence(
        vec!["read", "write", "trade", "execution", "user_data", "runtime"],
        1..4,
    );
    let status = prop_oneof![9 => Just("implemented"), 1 => Just("deferred")];
    let risk = prop_oneof![9 => Just(json!([])), 1 => Just(json!(["unconfined_execution"]))];
    (prop::sample::select(&NAMES), side, cost, permissions, status, risk, any::<bool>()).prop_filter_map(
        "holds the invariants",
        |(name, side, cost, permissions, status, risk, callable)| {
            let tool = json!({
                "name": name, "status": status, "stability": "beta", "authRequired": true,
                "permissions": permissions, "access": {"anonymousAllowed": false},
                "sideEffect": side, "costEffect": cost, "risk": risk, "schema": "X",
                "agent": {"callable": callable || name != "world.read", "defaultEnabled": false, "name": name},
                "traceEvents": [], "replay": {"replayable": true, "match": "tool+inputHash"}
            });
            let document = json!({"schemaVersion": "0.3.0-draft", "mode": "review", "tools": [tool]});
            let manifest = Manifest::parse(document.to_string().as_bytes()).ok()?;
            Some((manifest, name.to_owned()))
        },
    )
}

fn selectors() -> impl Strategy<Value = Selector> {
    let words = vec![
        "read",
        "write",
        "trade",
        "execution",
        "user_data",
        "runtime",
        "world.*",
        "tool:fs.write_text",
        "execution.place",
        "execution.*",
        "intents.*",
        "shell",
    ];
    prop::sample::select(words).prop_map(|word| Selector::parse(word).unwrap())
}

fn ask_rules() -> impl Strategy<Value = AskRule> {
    let tool = proptest::option::of(prop::sample::select(&NAMES));
    let side = proptest::option::of(prop::sample::select(SideEffect::ALL));
    let above = proptest::option::of(0..20_i64);
    (tool, side, above).prop_filter_map("asks about something", |(tool, side, above)| {
        let mut entry = serde_json::Map::new();
        if let Some(tool) = tool {
            ToolPattern::parse(tool).ok()?;
            entry.insert("tool".to_owned(), json!(tool));
        }
        if let Some(side) = side {
            entry.insert("sideEffect".to_owned(), json!(side));
        }
        if let Some(above) = above {
            entry.insert("input".to_owned(), json!({"pointer": "/quantity", "above": above}));
        }
        serde_json::from_value(Value::Object(entry)).ok()
    })
}

fn guardrails() -> impl Strategy<Value = TradeGuardrails> {
    let flag = || proptest::option::of(any::<bool>());
    let place = || proptest::option::of(prop::sample::select(vec!["US", "US-NY", "DE"]));
    let venues =
        proptest::option::of(prop::sample::subsequence(vec!["kalshi", "polymarket"], 0..=2));
    (
        (
            venues,
            proptest::option::of(0..2000_u64),
            proptest::option::of(0..20_u64),
            flag(),
            flag(),
        ),
        (flag(), flag(), flag(), place(), place(), flag()),
    )
        .prop_map(
            |((venues, cost, quantity, limit, auto), (start, dry, need, place, block, confirm))| {
                TradeGuardrails {
                    allowed_venues: venues.map(|all| all.into_iter().map(str::to_owned).collect()),
                    allowed_tickers: None,
                    max_order_cost_cents: cost,
                    max_quantity: quantity,
                    require_limit_price: limit,
                    allow_auto_execute: auto,
                    allow_runtime_start: start,
                    dry_run_only: dry,
                    require_jurisdiction: need,
                    jurisdiction: place.map(|place| Region::parse(place).unwrap()),
                    blocked_jurisdictions: block.map(|place| vec![Region::parse(place).unwrap()]),
                    confirm_token: (confirm == Some(true)).then(|| ConfirmToken::of("go")),
                }
            },
        )
}

fn policies() -> impl Strategy<Value = Policy> {
    (
        proptest::option::of(proptest::collection::vec(selectors(), 0..8)),
        proptest::collection::vec(selectors(), 0..2),
        proptest::option::of(prop::sample::select(SideEffect::ALL)),
        proptest::option::of(prop::sample::select(CostEffect::ALL)),
        proptest::collection::vec(ask_rules(), 0..2),
        proptest::option::of(guardrails()),
    )
        .prop_map(|(allow, deny, max_side_effect, max_cost_effect, ask, trade)| Policy {
            allow,
            deny,
            max_side_effect,
            max_cost_effect,
            ask,
            trade,
        })
}

/// A policy that lets most things through, so that approvals are drawn as often as refusals.
fn generous() -> impl Strategy<Value = Policy> {
    let trade = proptest::option::of(guardrails().prop_map(|trade| TradeGuardrails {
        max_quantity: Some(1000),
        allow_auto_execute: Some(true),
        allow_runtime_start: Some(true),
        ..trade
    }));
    trade.prop_map(|trade| Policy {
        max_side_effect: Some(SideEffect::LiveTrade),
        max_cost_effect: Some(CostEffect::LlmCost),
        trade,
        ..Policy::default()
    })
}

fn any_policy() -> BoxedStrategy<Policy> {
    // Boxed, because the types of the draws together would not fit on a test thread's stack.
    prop_oneof![policies().boxed(), generous().boxed()].boxed()
}

fn callers() -> impl Strategy<Value = Caller> {
    let key = |scopes: Vec<KeyScope>| {
        Identity::Key(KeyFacts {
            id: KeyId::from_parts(0, [0; 10]),
            name: "k".to_owned(),
            owner: "o".to_owned(),
            scopes,
            generation: 1,
        })
    };
    let identity = prop_oneof![
        8 => Just(key(vec![KeyScope::Call])),
        1 => Just(key(vec![KeyScope::Read])),
        1 => Just(Identity::Anonymous),
    ];
    (prop::sample::select(Surface::ALL), prop::sample::select(Mode::ALL), identity)
        .prop_map(|(surface, mode, identity)| Caller { surface, mode, identity })
}

fn inputs() -> impl Strategy<Value = Value> {
    let quantity =
        prop_oneof![Just(Value::Null), (0..30_i64).prop_map(Value::from), Just(json!("5"))];
    let price = prop_oneof![Just(Value::Null), (0..110_i64).prop_map(Value::from)];
    let place = prop::sample::select(vec![Value::Null, json!("US-NY"), json!("DE")]);
    let flag = || prop::sample::select(vec![Value::Null, json!(true), json!(false)]);
    let word = prop::sample::select(vec![Value::Null, json!("go"), json!("stop")]);
    (quantity, price, place, flag(), flag(), word).prop_map(
        |(quantity, price, place, auto, dry, word)| {
            json!({
                "venue": "kalshi", "action": "buy", "quantity": quantity, "limitPrice": price,
                "jurisdiction": place, "autoExecute": auto, "dryRun": dry, "confirm": word
            })
        },
    )
}

#[derive(Debug, Clone)]
struct Scene {
    manifest: Manifest,
    tool: String,
    caller: Caller,
    server: Policy,
    key: Policy,
    input: Value,
}

fn scenes() -> BoxedStrategy<Scene> {
    (manifests().boxed(), callers().boxed(), any_policy(), any_policy(), inputs().boxed())
        .prop_map(|((manifest, tool), caller, server, key, input)| Scene {
            manifest,
            tool,
            caller,
            server,
            key,
            input,
        })
        .boxed()
}

impl Scene {
    fn layers(&self) -> Layers {
        Layers::of_server(self.server.clone()).with_key(Some(self.key.clone()))
    }

    fn under(&self, layers: &Layers) -> Evaluation {
        let request =
            Request { manifest: &self.manifest, tool: &self.tool, caller: &self.caller, layers };
        evaluate(&request, &self.input)
    }
}

/// From most open to most closed.
fn strictness(evaluation: &Evaluation) -> u8 {
    match evaluation.verdict.decision {
        Decision::Approve | Decision::ApproveWithModifications => 0,
        Decision::Pending => 1,
        Decision::Deny => 2,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn adding_a_deny_an_ask_or_a_lower_ceiling_never_opens_anything(
        scene in scenes(), entry in selectors(), ask in ask_rules(),
        side in prop::sample::select(SideEffect::ALL), cost in prop::sample::select(CostEffect::ALL),
        to_server: bool, which in 0..4,
    ) {
        let before = scene.under(&scene.layers());
        let mut stricter = scene.clone();
        let policy = if to_server { &mut stricter.server } else { &mut stricter.key };
        match which {
            0 => policy.deny.push(entry),
            1 => policy.ask.push(ask),
            // An absent ceiling is not the highest: the server has a default one, and for a key to name `live_trade` is
            // the opt-in that real money takes, which is no lower ceiling.
            2 => {
                let old = policy.max_side_effect.unwrap_or(SideEffect::PaperTrade);
                policy.max_side_effect = Some(old.min(side));
            }
            _ => policy.max_cost_effect = Some(policy.max_cost_effect.map_or(cost, |old| old.min(cost))),
        }
        let after = stricter.under(&stricter.layers());
        prop_assert!(strictness(&after) >= strictness(&before), "{before:?}\n{after:?}");
    }

    #[test]
    fn a_shorter_allow_list_never_opens_anything(scene in scenes(), at: prop::sample::Index) {
        let before = scene.under(&scene.layers());
        let mut stricter = scene.clone();
        if let Some(list) = stricter.key.allow.as_mut().filter(|list| !list.is_empty()) {
            list.remove(at.index(list.len()));
        }
        prop_assert!(strictness(&stricter.under(&stricter.layers())) >= strictness(&before));
    }

    #[test]
    fn a_layer_never_widens(scene in scenes(), extra in any_policy(), second in any_policy(), as_session: bool) {
        let before = scene.under(&scene.layers());
        let layers = if as_session { scene.layers().with_session(extra) } else { scene.layers().with_call(extra) };
        let one = scene.under(&layers);
        prop_assert!(strictness(&one) >= strictness(&before), "{before:?}\n{one:?}");
        let two = scene.under(&layers.with_call(second));
        prop_assert!(strictness(&two) >= strictness(&one), "{one:?}\n{two:?}");
    }

    #[test]
    fn explain_ends_in_the_step_that_decided(scene in scenes(), extra in any_policy()) {
        let evaluation = scene.under(&scene.layers().with_session(extra));
        let steps = evaluation.verdict.explain.steps();
        let last = evaluation.verdict.explain.decided_by().unwrap();
        // Steps come in their order, each at most once, and all but the last one passed.
        prop_assert!(steps.windows(2).all(|pair| pair[0].step() < pair[1].step()));
        prop_assert!(steps[..steps.len() - 1].iter().all(|record| record.outcome() == Outcome::Pass));
        prop_assert_eq!(steps[0].step(), Step::Existence);
        match evaluation.verdict.decision {
            Decision::Deny => {
                prop_assert_eq!(last.outcome(), Outcome::Refuse);
                let error = evaluation.error.as_ref().unwrap();
                prop_assert_eq!(evaluation.verdict.code, Some(error.code()));
                prop_assert_eq!(evaluation.verdict.reason.and_then(|r| r.code()), Some(error.code()));
            }
            Decision::Pending => {
                prop_assert_eq!((last.step(), last.outcome()), (Step::Approval, Outcome::Ask));
                prop_assert!(evaluation.error.is_none());
            }
            _ => {
                prop_assert_eq!((last.step(), last.outcome()), (Step::Approval, Outcome::Pass));
                prop_assert!(evaluation.error.is_none());
            }
        }
    }

    #[test]
    fn the_same_question_has_the_same_answer(scene in scenes()) {
        prop_assert_eq!(scene.under(&scene.layers()), scene.under(&scene.layers()));
    }

    #[test]
    fn real_money_takes_the_word_of_server_and_key_and_a_guardrail(scene in scenes(), extra in any_policy()) {
        let evaluation = scene.under(&scene.layers().with_session(extra));
        let tool = scene.manifest.resolve(&scene.tool).unwrap();
        if tool.side_effect == SideEffect::LiveTrade && strictness(&evaluation) < 2 {
            prop_assert_eq!(scene.server.max_side_effect, Some(SideEffect::LiveTrade));
            prop_assert!(scene.key.max_side_effect.is_none_or(|max| max == SideEffect::LiveTrade));
            prop_assert!(scene.server.trade.is_some() || scene.key.trade.is_some());
            prop_assert!(scene.caller.mode != Mode::Live || matches!(scene.caller.identity, Identity::Key(_)));
        }
    }
}

/// The draws above are only worth something if they reach every kind of answer.
#[test]
fn the_scenes_reach_approvals_questions_and_every_refusal() {
    use std::collections::BTreeSet;

    use proptest::{strategy::ValueTree, test_runner::TestRunner};

    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    let mut decided_by = BTreeSet::new();
    for _ in 0..4_000 {
        let scene = scenes().new_tree(&mut runner).unwrap().current();
        let evaluation = scene.under(&scene.layers());
        seen.insert(evaluation.verdict.decision);
        decided_by.insert(evaluation.verdict.explain.decided_by().unwrap().step());
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    let expected: BTreeSet<Step> = [
        Step::Status,
        Step::AgentCallable,
        Step::Identity,
        Step::ForbiddenRisk,
        Step::Deny,
        Step::Allow,
        Step::MaxSideEffect,
        Step::MaxCostEffect,
        Step::TradeGuardrails,
        Step::Approval,
    ]
    .into();
    assert!(decided_by.is_superset(&expected), "{decided_by:?}");
}
