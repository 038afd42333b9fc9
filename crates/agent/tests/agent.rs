//! The governed direct runner, as the RFC's test plan asks for it: what it needs, what it resolves, what
//! it refuses, and how it replays.

#![cfg(test)]

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_agent::{Agent, Recorder, Source, TraceFile};
use tollgate_contract::{
    Behaviours, Call, Caller, CostEffect, Declaration, ErrorCode, Identity, Mode, Mutation,
    Permission, Secret, SideEffect, Surface, Trade, Urgency,
};
use tollgate_gate::{
    CallOptions, Gate, Packs, Parts, Settings,
    keys::{KeySpec, PolicyRef, Role},
};
use tollgate_ledger::{Ledger, Sync};
use tollgate_policy::Policy;
use tollgate_trace::Trace;

#[derive(Deserialize, JsonSchema)]
struct Anything {}

/// A tool of a given kind that counts its calls.
struct Kind {
    name: &'static str,
    permissions: Vec<Permission>,
    behaviours: Behaviours,
    effects: (SideEffect, CostEffect),
    anonymous: bool,
}

fn kinds() -> Vec<Kind> {
    let none = Behaviours::NONE;
    let kind = |name, permissions, behaviours, effects| Kind {
        name,
        permissions,
        behaviours,
        effects,
        anonymous: false,
    };
    let free = (SideEffect::None, CostEffect::None);
    vec![
        kind(
            "world.read",
            vec![Permission::READ],
            Behaviours { paid_upstream: true, ..none },
            (SideEffect::None, CostEffect::ApiCost),
        ),
        kind("closed.read", vec![Permission::READ], none, free),
        Kind { anonymous: true, ..kind("public.read", vec![Permission::READ_PUBLIC], none, free) },
        kind(
            "search.run",
            vec![Permission::RESEARCH],
            Behaviours { search: true, ..none },
            (SideEffect::None, CostEffect::SearchCost),
        ),
        kind(
            "model.chat",
            vec![Permission::MODEL],
            Behaviours { llm: true, ..none },
            (SideEffect::None, CostEffect::LlmCost),
        ),
        kind(
            "account.read",
            vec![Permission::USER_DATA],
            Behaviours { account_context: true, user_data: true, ..none },
            (SideEffect::None, CostEffect::ApiCost),
        ),
        kind(
            "note.save",
            vec![Permission::WRITE],
            Behaviours { mutation: Mutation::UserState, ..none },
            (SideEffect::UserWrite, CostEffect::None),
        ),
        kind(
            "order.place",
            vec![Permission::TRADE],
            Behaviours { venue: true, trade: Trade::Live, ..none },
            (SideEffect::LiveTrade, CostEffect::VenueRequestCost),
        ),
    ]
}

struct Fixture {
    _folder: TempDir,
    gate: Gate,
    key: Secret,
    called: Arc<AtomicUsize>,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let called = Arc::new(AtomicUsize::new(0));
        let mut packs = tollgate_tools::plain_pack(Packs::new()).unwrap();
        for kind in kinds() {
            let mut draft = Declaration::<Anything, Value>::new(kind.name, "A tool of its kind.")
                .permissions(kind.permissions)
                .behaviours(kind.behaviours)
                .effects(kind.effects.0, kind.effects.1);
            if kind.anonymous {
                draft = draft.anonymous();
            }
            let called = Arc::clone(&called);
            packs = packs.add(draft.build().unwrap(), move |_: Anything, context| {
                let number = called.fetch_add(1, Ordering::SeqCst);
                let tool = context.tool().name.to_string();
                async move { Ok(json!({"tool": tool, "number": number})) }
            });
        }
        let ledger = Ledger::open(folder.path(), Sync::Process).unwrap();
        let registry = packs.build().unwrap();
        let gate = Gate::open(Parts::new(ledger, registry, Settings::new(folder.path()))).unwrap();
        let policy = Policy {
            max_side_effect: Some(SideEffect::PaperTrade),
            max_cost_effect: Some(CostEffect::LlmCost),
            ..Policy::default()
        };
        let policy = PolicyRef::Inline(Box::new(policy));
        let spec = KeySpec { policy, ..KeySpec::for_role("agent", Role::Agent) };
        let (_, key) = gate.create_key(None, spec).await.unwrap();
        Self { _folder: folder, gate, key, called }
    }

    fn agent(&self) -> Agent {
        Agent::new(Source::Gate(self.gate.clone()), Some(&self.key)).unwrap()
    }

    fn called(&self) -> usize {
        self.called.load(Ordering::SeqCst)
    }
}

fn trace(file: &Path) -> Trace {
    Trace::parse(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[tokio::test]
async fn a_live_agent_without_a_key_is_refused_in_the_constructor() {
    let fixture = Fixture::new().await;
    let without = Agent::new(Source::Gate(fixture.gate.clone()), None);
    assert_eq!(without.err().unwrap().code(), ErrorCode::MissingApiKey);
    let wrong = Secret::new("tg_key_nope".to_owned());
    let wrong = Agent::new(Source::Gate(fixture.gate.clone()), Some(&wrong));
    assert_eq!(wrong.err().unwrap().code(), ErrorCode::InvalidApiKey);
}

#[tokio::test]
async fn an_inspecting_agent_needs_no_key_and_calls_nothing() {
    let fixture = Fixture::new().await;
    let agent = Agent::new(Source::Manifest(Arc::clone(fixture.gate.manifest())), None).unwrap();
    assert_eq!(agent.mode(), Mode::InspectOnly);
    assert_eq!(agent.describe("world.read").unwrap().cost_effect, CostEffect::ApiCost);
    assert_eq!(agent.describe("get_world_state").unwrap_err().code(), ErrorCode::UnknownTool);
    let refused = agent.call("world.read", json!({})).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::InvalidRequest);
    assert_eq!(fixture.called(), 0);
}

#[tokio::test]
async fn a_replaying_agent_needs_no_key_and_calls_nothing() {
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.ndjson");
    let recorder = Recorder::new(TraceFile::open(&file).unwrap());
    let live = fixture.agent().with_recorder(recorder).call("world.read", json!({})).await.unwrap();
    let agent = Agent::new(Source::Trace(trace(&file)), None).unwrap();
    assert_eq!(agent.mode(), Mode::ReplayOnly);
    let replayed = agent.call("world.read", json!({})).await.unwrap();
    assert_eq!((replayed.output, replayed.replayed), (live.output, true));
    assert_eq!((replayed.run_id, replayed.call_id), (live.run_id, live.call_id));
    assert_eq!(fixture.called(), 1);
}

#[tokio::test]
async fn a_live_call_with_a_key_resolves_the_canonical_name() {
    let fixture = Fixture::new().await;
    let result = fixture.agent().call("world.read", json!({})).await.unwrap();
    assert_eq!(result.tool.as_str(), "world.read");
    assert_eq!(result.output["tool"], "world.read");
    assert!(!result.replayed);
    assert_eq!(result.verdict.to_value()["decision"], "approve");
}

#[tokio::test]
async fn an_agent_resolves_nothing_but_canonical_names() {
    let fixture = Fixture::new().await;
    let names = [
        "get_world_state",
        "get_regime_history",
        "events.search",
        "world_read",
        "World.Read",
        "auth.status",
        "",
    ];
    for name in names {
        let refused = fixture.agent().call(name, json!({})).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::UnknownTool, "{name}");
    }
    assert_eq!(fixture.called(), 0);
}

#[tokio::test]
async fn an_agents_policy_deny_list_wins() {
    let fixture = Fixture::new().await;
    let policy = Policy::from_json(&json!({"allow": ["read"], "deny": ["read"]})).unwrap();
    let refused =
        fixture.agent().with_policy(policy).call("world.read", json!({})).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PermissionDenied);
    let narrow = Policy::from_json(&json!({"allow": ["read.public"]})).unwrap();
    let refused =
        fixture.agent().with_policy(narrow).call("world.read", json!({})).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::PermissionNotGranted);
    assert_eq!(fixture.called(), 0);
}

#[tokio::test]
async fn an_agents_ceilings_block_writes_and_llm_costs() {
    let fixture = Fixture::new().await;
    let policy = json!({"maxSideEffect": "none", "maxCostEffect": "api_cost"});
    let agent = fixture.agent().with_policy(Policy::from_json(&policy).unwrap());
    let write = agent.call("note.save", json!({})).await.unwrap_err();
    assert_eq!(write.code, ErrorCode::SideEffectExceeded);
    let llm = agent.call("model.chat", json!({})).await.unwrap_err();
    assert_eq!(llm.code, ErrorCode::CostEffectExceeded);
    assert_eq!(fixture.called(), 0);
    assert!(agent.call("world.read", json!({})).await.is_ok());
}

#[tokio::test]
async fn an_agent_never_trades_unless_its_policy_opts_in() {
    let fixture = Fixture::new().await;
    let wide = json!({"maxSideEffect": "live_trade", "maxCostEffect": "llm_cost"});
    let agents = [
        fixture.agent(),
        // What an agent says of itself cannot widen what its key and the server allow.
        fixture.agent().with_policy(Policy::from_json(&wide).unwrap()),
    ];
    for agent in agents {
        let refused = agent.call("order.place", json!({})).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::SideEffectExceeded);
    }
    assert_eq!(fixture.called(), 0);
}

#[tokio::test]
async fn a_replay_miss_is_an_error_and_nothing_is_called() {
    let fixture = Fixture::new().await;
    let agent = Agent::new(Source::Trace(Trace::parse("").unwrap()), None).unwrap();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let ear = Arc::clone(&heard);
    let hear =
        move |event: Value| ear.lock().unwrap().push(event["type"].as_str().unwrap().to_owned());
    let miss = agent.stream("world.read", json!({}), hear).await.unwrap_err();
    assert_eq!(miss.code, ErrorCode::ReplayMiss);
    assert_eq!(heard.lock().unwrap().as_slice(), ["run.started", "run.failed"]);
    assert_eq!(fixture.called(), 0);
}

#[tokio::test]
async fn without_a_key_the_sdk_surface_serves_only_what_is_free_for_everyone() {
    let fixture = Fixture::new().await;
    let call = async |tool: &str, surface: Surface, input: Value| {
        let call = Call {
            caller: Caller { surface, mode: Mode::Live, identity: Identity::Anonymous },
            tool: tool.to_owned(),
            input,
            scope: None,
            urgency: Urgency::Normal,
            session: None,
            idempotency_key: None,
        };
        fixture.gate.call(call, CallOptions::default()).await.map(drop).map_err(|f| f.code())
    };
    let sdk = Surface::Sdk;
    assert_eq!(call("manifest.list", sdk, json!({})).await, Ok(()));
    assert_eq!(call("manifest.get", sdk, json!({"name": "world.read"})).await, Ok(()));
    assert_eq!(call("public.read", sdk, json!({})).await, Ok(()));
    let needs_key = [
        "closed.read",
        "world.read",
        "model.chat",
        "search.run",
        "note.save",
        "account.read",
        "order.place",
    ];
    for tool in needs_key {
        assert_eq!(call(tool, sdk, json!({})).await, Err(Some(ErrorCode::MissingApiKey)), "{tool}");
    }
    // An agent needs a key even for what is free.
    for tool in ["manifest.list", "public.read"] {
        let refused = call(tool, Surface::Agent, json!({})).await;
        assert_eq!(refused, Err(Some(ErrorCode::MissingApiKey)), "{tool}");
    }
    assert_eq!(fixture.called(), 1);
}

#[tokio::test]
async fn a_recorded_run_replays_with_the_same_bytes_both_ways() {
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.ndjson");
    let live = fixture.agent().with_recorder(Recorder::new(TraceFile::open(&file).unwrap()));
    // The same call twice gives two results; a refusal is recorded too, a name that is no tool is not.
    let first = live.call("world.read", json!({})).await.unwrap().output;
    let second = live.call("world.read", json!({})).await.unwrap().output;
    assert_ne!(first, second);
    let refused = live.call("order.place", json!({})).await.unwrap_err();
    let _ = live.call("get_world_state", json!({})).await;
    live.call("note.save", json!({})).await.unwrap();
    let trace = trace(&file);
    assert_eq!(trace.entries().iter().map(|entry| entry.seq).collect::<Vec<_>>(), [1, 2, 3, 5]);
    let replay = async || {
        let agent = Agent::new(Source::Trace(trace.clone()), None).unwrap();
        let told: Arc<Mutex<String>> = Arc::default();
        let ear = Arc::clone(&told);
        let hear = move |event: Value| ear.lock().unwrap().push_str(&format!("{event}\n"));
        assert_eq!(
            agent.stream("order.place", json!({}), hear.clone()).await.unwrap_err().code,
            refused.code
        );
        assert_eq!(
            agent.stream("world.read", json!({}), hear.clone()).await.unwrap().output,
            first
        );
        assert_eq!(
            agent.stream("world.read", json!({}), hear.clone()).await.unwrap().output,
            second
        );
        let third = agent.stream("world.read", json!({}), hear).await.unwrap_err();
        assert_eq!(third.code, ErrorCode::ReplayMiss);
        let unused: Vec<String> =
            agent.unused().iter().map(|entry| entry.tool.to_string()).collect();
        assert_eq!(unused, ["note.save"]);
        Mutex::new(told.lock().unwrap().clone())
    };
    let (one, two) = (replay().await, replay().await);
    assert_eq!(one.into_inner().unwrap(), two.into_inner().unwrap());
    assert_eq!(fixture.called(), 3);
}

#[tokio::test]
async fn the_trace_is_written_before_the_end_is_told() {
    let fixture = Fixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.ndjson");
    let agent = fixture.agent().with_recorder(Recorder::new(TraceFile::open(&file).unwrap()));
    let seen: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
    let ear = Arc::clone(&seen);
    let hear = move |event: Value| {
        let is_written = !std::fs::read_to_string(&file).unwrap().is_empty();
        ear.lock().unwrap().push((event["type"].as_str().unwrap().to_owned(), is_written));
    };
    agent.stream("world.read", json!({}), hear).await.unwrap();
    let seen = seen.lock().unwrap().clone();
    let expected = [
        ("run.started", false),
        ("tool.resolved", false),
        ("policy.checked", false),
        ("tool.started", false),
        ("tool.completed", true),
        ("run.completed", true),
    ];
    assert_eq!(seen, expected.map(|(name, is_written)| (name.to_owned(), is_written)));
}
