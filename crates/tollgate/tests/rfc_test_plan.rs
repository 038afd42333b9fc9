//! The test plan of the governed-execution RFC, line by line, through the binary. A test has the name
//! of its line; `docs/conformance.md` says which lines wait for later work.

#![cfg(test)]

mod common;

use common::{root, run, run_with};
use serde_json::{Value, json};

/// Every active tool, of the built-in pack and of the example manifest.
fn active_tools() -> Vec<Value> {
    let built_in = run(&["tools", "--json"]).json();
    let example = run(&["tools", "--manifest", "examples/markets.json", "--json"]).json();
    let tools: Vec<Value> = [built_in, example]
        .iter()
        .flat_map(|envelope| envelope["data"]["tools"].as_array().unwrap().clone())
        .collect();
    assert!(tools.len() > 10);
    tools
}

/// The first entry of the example manifest with some members changed, loaded through the binary.
fn load_with(change: impl FnOnce(&mut Value)) -> common::Ran {
    let text = std::fs::read_to_string(root().join("examples/markets.json")).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    change(&mut document["tools"][0]);
    run_with(&["tools", "--manifest", "-"], document.to_string().as_bytes())
}

struct Check {
    policy: Value,
    tool: &'static str,
    caller: &'static str,
    surface: &'static str,
    input: Value,
}

impl Check {
    fn of(tool: &'static str) -> Self {
        Self { policy: json!({}), tool, caller: "key", surface: "agent", input: json!({}) }
    }

    /// The decision and the code.
    fn answer(&self) -> (String, Option<String>) {
        let ran = run_with(
            &[
                "policy",
                "check",
                "-",
                "--manifest",
                "examples/markets.json",
                "--tool",
                self.tool,
                "--as",
                self.caller,
                "--surface",
                self.surface,
                "--input",
                &self.input.to_string(),
                "--json",
            ],
            self.policy.to_string().as_bytes(),
        );
        let verdict = ran.json()["data"]["verdict"].clone();
        let code = verdict.get("code").and_then(Value::as_str).map(str::to_owned);
        (verdict["decision"].as_str().unwrap().to_owned(), code)
    }

    fn is_denied_with(&self, code: &str) {
        assert_eq!(self.answer(), ("deny".to_owned(), Some(code.to_owned())), "{}", self.tool);
    }

    fn is_approved(&self) {
        assert_eq!(self.answer(), ("approve".to_owned(), None), "{}", self.tool);
    }
}

// Contract tests

#[test]
fn contracts_have_schema_version_0_3_0_draft() {
    assert_eq!(run(&["tools", "--json"]).json()["data"]["schemaVersion"], "0.3.0-draft");
}

#[test]
fn every_active_implemented_tool_has_side_effect() {
    assert!(active_tools().iter().all(|tool| tool["sideEffect"].is_string()));
    let ran = load_with(|tool| drop(tool.as_object_mut().unwrap().remove("sideEffect")));
    assert!(ran.code == 3 && ran.err.contains("sideEffect"), "{}", ran.err);
}

#[test]
fn every_active_implemented_tool_has_cost_effect() {
    assert!(active_tools().iter().all(|tool| tool["costEffect"].is_string()));
    let ran = load_with(|tool| drop(tool.as_object_mut().unwrap().remove("costEffect")));
    assert!(ran.code == 3 && ran.err.contains("costEffect"), "{}", ran.err);
}

#[test]
fn every_active_implemented_tool_has_access_anonymous_allowed() {
    assert!(active_tools().iter().all(|tool| tool["access"]["anonymousAllowed"].is_boolean()));
    let ran = load_with(|tool| tool["access"] = json!({}));
    assert!(ran.code == 3 && ran.err.contains("access.anonymousAllowed"), "{}", ran.err);
}

#[test]
fn anonymous_allowed_implies_no_auth_no_effects_no_user_data() {
    for tool in active_tools().iter().filter(|tool| tool["access"]["anonymousAllowed"] == true) {
        assert_eq!(tool["authRequired"], false);
        assert_eq!((&tool["sideEffect"], &tool["costEffect"]), (&json!("none"), &json!("none")));
        assert!(!tool["permissions"].as_array().unwrap().contains(&json!("user_data")));
    }
    for (member, value) in [
        ("costEffect", json!("api_cost")),
        ("sideEffect", json!("user_write")),
        ("authRequired", json!(true)),
        ("permissions", json!(["user_data"])),
    ] {
        let ran = load_with(|tool| {
            tool["access"]["anonymousAllowed"] = json!(true);
            tool["costEffect"] = json!("none");
            tool[member] = value;
        });
        assert!(ran.code == 3 && ran.err.contains(member), "{member}: {}", ran.err);
    }
}

#[test]
fn user_data_permission_implies_auth_required() {
    for tool in active_tools()
        .iter()
        .filter(|tool| tool["permissions"].as_array().unwrap().contains(&json!("user_data")))
    {
        assert_eq!(tool["authRequired"], true, "{}", tool["name"]);
    }
    let ran = load_with(|tool| tool["permissions"] = json!(["user_data"]));
    assert!(ran.code == 3 && ran.err.contains("authRequired"), "{}", ran.err);
}

#[test]
fn live_trade_is_active_only_behind_explicit_policy_guardrails() {
    let open = json!({"maxSideEffect": "live_trade"});
    let order = json!({"venue": "kalshi", "action": "buy", "direction": "yes", "quantity": 1});
    let check = |policy: Value| Check {
        policy,
        caller: "k",
        input: order.clone(),
        ..Check::of("execution.place")
    };
    check(json!({"policies": {"k": {}}})).is_denied_with("SIDE_EFFECT_EXCEEDED");
    check(json!({"policies": {"k": open}})).is_denied_with("SIDE_EFFECT_EXCEEDED");
    check(json!({"server": open, "policies": {"k": open}})).is_denied_with("TRADE_GUARDRAIL");
    let guarded = json!({"maxSideEffect": "live_trade", "trade": {"maxQuantity": 1}});
    check(json!({"server": open, "policies": {"k": guarded}})).is_approved();
    for built_in in ["readonly", "operator"] {
        Check {
            policy: json!({"server": open}),
            caller: built_in,
            input: order.clone(),
            ..Check::of("execution.place")
        }
        .answer()
        .1
        .expect("no built-in policy reaches live_trade");
    }
}

#[test]
fn events_are_not_active_or_callable() {
    Check::of("events.search").is_denied_with("UNKNOWN_TOOL");
    let ran = load_with(|tool| {
        tool["name"] = json!("events.search");
        tool["agent"]["name"] = json!("events.search");
        tool["status"] = json!("deferred");
    });
    assert!(ran.code == 3 && ran.err.contains("reserved"), "{}", ran.err);
}

#[test]
fn get_world_state_is_not_canonical() {
    Check::of("get_world_state").is_denied_with("UNKNOWN_TOOL");
    assert!(
        run(&["tools", "--manifest", "examples/markets.json", "get_world_state"])
            .err
            .contains("did you mean `world.read`?")
    );
}

#[test]
fn get_regime_history_is_not_canonical() {
    Check::of("get_regime_history").is_denied_with("UNKNOWN_TOOL");
}

// SDK tests: the preflight that every SDK asks

fn without_key(tool: &'static str) -> Check {
    Check { caller: "anonymous", surface: "sdk", ..Check::of(tool) }
}

#[test]
fn no_key_sdk_can_call_manifest_list_and_manifest_get() {
    for (tool, input) in [("manifest.list", "{}"), ("manifest.get", r#"{"name": "world.read"}"#)] {
        let ran = run_with(
            &[
                "policy",
                "check",
                "-",
                "--tool",
                tool,
                "--as",
                "anonymous",
                "--surface",
                "sdk",
                "--input",
                input,
            ],
            b"{}",
        );
        assert_eq!(ran.code, 0, "{}", ran.out);
    }
}

#[test]
fn no_key_sdk_call_to_auth_required_tool_is_missing_api_key() {
    without_key("theses.create").is_denied_with("MISSING_API_KEY");
}

#[test]
fn no_key_sdk_call_to_llm_cost_is_missing_api_key() {
    without_key("theses.evaluate").is_denied_with("MISSING_API_KEY");
}

#[test]
fn no_key_sdk_call_to_search_cost_is_missing_api_key() {
    without_key("markets.search").is_denied_with("MISSING_API_KEY");
}

#[test]
fn no_key_sdk_call_to_side_effecting_tool_is_missing_api_key() {
    without_key("execution.paper").is_denied_with("MISSING_API_KEY");
}

#[test]
fn no_key_sdk_call_to_user_data_tool_is_missing_api_key() {
    without_key("portfolio.state").is_denied_with("MISSING_API_KEY");
}

#[test]
fn no_key_sdk_call_to_free_public_read_succeeds_only_when_anonymous_allowed() {
    let text = std::fs::read_to_string(root().join("examples/markets.json")).unwrap();
    for anonymous in [false, true] {
        let mut document: Value = serde_json::from_str(&text).unwrap();
        document["tools"][0]["costEffect"] = json!("none");
        document["tools"][0]["access"]["anonymousAllowed"] = json!(anonymous);
        let ran = run_with(
            &[
                "policy",
                "check",
                "examples/policy.toml",
                "--manifest",
                "-",
                "--tool",
                "world.read",
                "--as",
                "anonymous",
                "--surface",
                "sdk",
            ],
            document.to_string().as_bytes(),
        );
        assert_eq!(ran.code, if anonymous { 0 } else { 4 }, "{}", ran.out);
    }
}

// Agent tests: what the policy decides

#[test]
fn live_call_with_key_resolves_world_read() {
    Check::of("world.read").is_approved();
}

#[test]
fn live_call_without_key_is_missing_api_key_even_for_public_tools() {
    Check { caller: "anonymous", ..Check::of("world.read") }.is_denied_with("MISSING_API_KEY");
}

#[test]
fn live_call_rejects_get_world_state_get_regime_history_and_events_search() {
    for tool in ["get_world_state", "get_regime_history", "events.search"] {
        Check { policy: json!({"allow": ["tool:world.read"]}), ..Check::of(tool) }
            .is_denied_with("UNKNOWN_TOOL");
    }
}

#[test]
fn live_call_rejects_live_trade_unless_policy_explicitly_opts_in() {
    Check { policy: json!({"allow": ["execution.*"]}), ..Check::of("execution.place") }
        .is_denied_with("SIDE_EFFECT_EXCEEDED");
}

#[test]
fn policy_deny_list_wins() {
    let policy = json!({"allow": ["read.public", "market_data", "read", "tool:world.read"], "deny": ["market_data"]});
    Check { policy, ..Check::of("world.read") }.is_denied_with("PERMISSION_DENIED");
}

#[test]
fn max_side_effect_blocks_user_write() {
    let policy = json!({"maxSideEffect": "none", "maxCostEffect": "llm_cost"});
    Check { policy, ..Check::of("theses.create") }.is_denied_with("SIDE_EFFECT_EXCEEDED");
}

#[test]
fn max_cost_effect_blocks_llm_cost_when_max_is_api_cost() {
    Check { policy: json!({"maxCostEffect": "api_cost"}), ..Check::of("theses.evaluate") }
        .is_denied_with("COST_EFFECT_EXCEEDED");
}

#[test]
fn allow_omitted_leaves_the_gates_and_allow_given_must_cover() {
    Check { policy: json!({"maxSideEffect": "none"}), ..Check::of("world.read") }.is_approved();
    Check { policy: json!({"allow": ["read"]}), ..Check::of("world.read") }
        .is_denied_with("PERMISSION_NOT_GRANTED");
}

/// The order of evaluation: a call that would fail at every step fails at the first.
#[test]
fn evaluation_order_is_deterministic() {
    let text = std::fs::read_to_string(root().join("examples/markets.json")).unwrap();
    let mut document: Value = serde_json::from_str(&text).unwrap();
    let tool = &mut document["tools"][0];
    tool["status"] = json!("deferred");
    tool["agent"]["callable"] = json!(false);
    tool["risk"] = json!(["unconfined_execution"]);
    tool["sideEffect"] = json!("runtime");
    tool["costEffect"] = json!("llm_cost");
    // Each change mends the step that refused, and the next one refuses.
    let policy = |parts: &[(&str, Value)]| -> Value {
        parts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let deny = ("deny", json!(["read"]));
    let allow = ("allow", json!([]));
    let side = ("maxSideEffect", json!("none"));
    let cost = ("maxCostEffect", json!("none"));
    let all = policy(&[deny, allow.clone(), side.clone(), cost.clone()]);
    let mut seen = Vec::new();
    let mut ask = |document: &Value, policy: &Value, caller: &str, tool: &str| {
        // The manifest and the policy both come from outside the binary; one of them is a file.
        let folder = std::env::temp_dir().join(format!(
            "tollgate-order-{}-{}",
            std::process::id(),
            seen.len()
        ));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("manifest.json");
        std::fs::write(&file, document.to_string()).unwrap();
        let ran = run_with(
            &[
                "policy",
                "check",
                "-",
                "--manifest",
                file.to_str().unwrap(),
                "--tool",
                tool,
                "--as",
                caller,
                "--json",
            ],
            policy.to_string().as_bytes(),
        );
        std::fs::remove_dir_all(&folder).unwrap();
        let explain = ran.json()["data"]["verdict"]["explain"].clone();
        seen.push(explain.as_array().unwrap().last().unwrap()["step"].as_str().unwrap().to_owned());
    };
    ask(&document, &all, "anonymous", "world.reed");
    ask(&document, &all, "anonymous", "world.read");
    document["tools"][0]["status"] = json!("implemented");
    ask(&document, &all, "anonymous", "world.read");
    document["tools"][0]["agent"]["callable"] = json!(true);
    ask(&document, &all, "anonymous", "world.read");
    ask(&document, &all, "key", "world.read");
    document["tools"][0]["risk"] = json!([]);
    ask(&document, &all, "key", "world.read");
    ask(&document, &policy(&[allow, side.clone(), cost.clone()]), "key", "world.read");
    ask(&document, &policy(&[side, cost.clone()]), "key", "world.read");
    ask(&document, &policy(&[cost]), "key", "world.read");
    assert_eq!(
        seen,
        [
            "existence",
            "status",
            "agent_callable",
            "identity",
            "forbidden_risk",
            "deny",
            "allow",
            "max_side_effect",
            "max_cost_effect"
        ]
    );
}
