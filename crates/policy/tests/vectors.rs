//! The golden vectors of the policy crate, run against the product.

#![cfg(test)]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_contract::{
    Caller, Identity, InvalidKey, KeyFacts, KeyScope, Manifest, Mode, Surface, id::KeyId,
};
use tollgate_policy::{Layers, Policy, Request, evaluate, needs_key};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Suite<C> {
    #[serde(rename = "suite")]
    _suite: String,
    #[serde(rename = "version")]
    _version: u32,
    tools: Vec<Value>,
    cases: Vec<C>,
}

impl<C> Suite<C> {
    fn manifest(&self) -> Manifest {
        let document =
            json!({"schemaVersion": "0.3.0-draft", "mode": "review", "tools": self.tools});
        Manifest::parse(document.to_string().as_bytes()).unwrap()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PreflightCase {
    name: String,
    tool: String,
    surface: Surface,
    mode: Mode,
    has_key: bool,
    error: Option<String>,
}

#[test]
fn preflight_vectors() {
    let suite: Suite<PreflightCase> =
        serde_json::from_str(include_str!("../../../spec/vectors/preflight.json")).unwrap();
    let manifest = suite.manifest();
    assert!(!suite.cases.is_empty());
    for case in &suite.cases {
        let tool = manifest.resolve(&case.tool).unwrap();
        let refused = needs_key(tool, case.surface, case.mode) && !case.has_key;
        assert_eq!(refused.then_some("MISSING_API_KEY"), case.error.as_deref(), "{}", case.name);
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyCase {
    name: String,
    tool: String,
    caller: CallerCase,
    layers: BTreeMap<String, Policy>,
    input: Value,
    decision: String,
    code: Option<String>,
    guardrail: Option<String>,
    explain: Vec<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallerCase {
    surface: Surface,
    mode: Mode,
    identity: IdentityCase,
}

#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum IdentityCase {
    Word(String),
    Invalid { invalid: InvalidKey },
    Key { scopes: Vec<KeyScope> },
}

impl CallerCase {
    fn caller(&self) -> Caller {
        let identity = match &self.identity {
            IdentityCase::Word(word) => {
                assert_eq!(word, "anonymous");
                Identity::Anonymous
            }
            IdentityCase::Invalid { invalid } => Identity::Invalid(*invalid),
            IdentityCase::Key { scopes } => Identity::Key(KeyFacts {
                id: KeyId::from_parts(0, [0; 10]),
                name: "test".to_owned(),
                owner: "test".to_owned(),
                scopes: scopes.clone(),
                generation: 1,
            }),
        };
        Caller { surface: self.surface, mode: self.mode, identity }
    }
}

fn layers(case: &PolicyCase, caller: &Caller) -> Layers {
    let named = |name: &str| case.layers.get(name).cloned();
    let known = ["server", "key", "session", "call"];
    assert!(case.layers.keys().all(|name| known.contains(&name.as_str())), "{}", case.name);
    let mut layers = Layers::of_server(named("server").unwrap_or_default());
    if matches!(caller.identity, Identity::Key(_)) {
        layers = layers.with_key(named("key"));
    }
    if let Some(session) = named("session") {
        layers = layers.with_session(session);
    }
    if let Some(call) = named("call") {
        layers = layers.with_call(call);
    }
    layers
}

#[test]
fn policy_vectors() {
    let suite: Suite<PolicyCase> =
        serde_json::from_str(include_str!("../../../spec/vectors/policy.json")).unwrap();
    let manifest = suite.manifest();
    assert!(!suite.cases.is_empty());
    for case in &suite.cases {
        let caller = case.caller.caller();
        let layers = layers(case, &caller);
        let request =
            Request { manifest: &manifest, tool: &case.tool, caller: &caller, layers: &layers };
        let evaluation = evaluate(&request, &case.input);
        let verdict = &evaluation.verdict;
        let explain: Vec<Vec<String>> = verdict
            .explain
            .steps()
            .iter()
            .map(|record| {
                let mut words = vec![record.step().to_string(), record.outcome().to_string()];
                words.extend(record.layer().map(|layer| layer.to_string()));
                words
            })
            .collect();
        let error = evaluation.error.as_ref();
        let guardrail = error.and_then(|error| error.details().get("guardrail").cloned());
        let found = (
            verdict.decision.to_string(),
            error.map(|error| error.code().to_string()),
            guardrail.as_ref().and_then(Value::as_str).map(str::to_owned),
            explain,
        );
        let expected = (
            case.decision.clone(),
            case.code.clone(),
            case.guardrail.clone(),
            case.explain.clone(),
        );
        assert_eq!(found, expected, "{}", case.name);
        // What is served says the same as what was decided.
        let served = serde_json::to_value(verdict).unwrap();
        assert_eq!(served["decision"], case.decision.as_str());
        assert_eq!(served.get("code").and_then(Value::as_str), case.code.as_deref());
        assert_eq!(served["explain"].as_array().unwrap().len(), case.explain.len());
    }
}
