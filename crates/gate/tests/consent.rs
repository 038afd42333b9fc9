//! Approvals, capabilities and halts, through the one path: who may answer, what an answer is good for, and what
//! is left of it after races, restarts and changes of mind.

#![cfg(test)]

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_consent::{Holder, ItemState, Requested};
use tollgate_contract::{
    Behaviours, Call, Caller, Capability, CostEffect, Declaration, ErrorCode, HostName, Mode,
    Mutation, Permission, Secret, SideEffect, Surface, ToolName, Urgency, id::ApprovalId,
    schema::InputProblem,
};
use tollgate_gate::{
    CallOptions, Clock, Gate, HaltTarget, ManualClock, Packs, Parts, Principal, Settings,
    ToolCallResult, Unfinished, check_kept,
    keys::{KeySpec, PolicyRef, Role, TokenSpec},
};
use tollgate_governor::Target;
use tollgate_ledger::{Ledger, Sync};
use tollgate_policy::{Policy, PolicySet};

const NOON: i64 = 1_800_000_000_000;
const HOUR: i64 = 60 * 60 * 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Line {
    text: String,
}

type Ended = Result<ToolCallResult, Box<Unfinished>>;

/// A gate whose policy wants a person for `note.add`, and two for `note.twice`.
struct Fixture {
    folder: Arc<TempDir>,
    gate: Gate,
    clock: Arc<ManualClock>,
    ran: Arc<AtomicUsize>,
    writer: Secret,
    approver: Secret,
    second: Secret,
}

fn packs(ran: &Arc<AtomicUsize>) -> Packs {
    let writes = |name: &'static str| {
        Declaration::<Line, Value>::new(name, "Writes a line.")
            .permissions([Permission::WRITE])
            .behaviours(Behaviours { mutation: Mutation::UserState, ..Behaviours::NONE })
            .effects(SideEffect::UserWrite, CostEffect::None)
            .build()
            .unwrap()
    };
    let reads = |name: &'static str| {
        Declaration::<Line, Value>::new(name, "Reads something.")
            .permissions([Permission::READ])
            .behaviours(Behaviours::NONE)
            .effects(SideEffect::None, CostEffect::None)
            .build()
            .unwrap()
    };
    let (add, twice) = (Arc::clone(ran), Arc::clone(ran));
    let (waiting, blocking) = (Arc::clone(ran), Arc::clone(ran));
    let count = |ran: &AtomicUsize| json!(ran.fetch_add(1, Ordering::SeqCst) + 1);
    Packs::new()
        .add(writes("note.add"), move |_: Line, _| std::future::ready(Ok(count(&add))))
        .add(writes("note.twice"), move |_: Line, _| std::future::ready(Ok(count(&twice))))
        .add(reads("demo.waits"), move |_: Line, context| {
            waiting.fetch_add(1, Ordering::SeqCst);
            async move {
                context.cancelled().cancelled().await;
                Ok(json!("stopped by itself"))
            }
        })
        .add(reads("demo.blocks"), move |_: Line, _| {
            blocking.fetch_add(1, Ordering::SeqCst);
            async {
                // It holds its thread and hears nothing.
                std::thread::sleep(Duration::from_secs(4));
                Ok(Value::Null)
            }
        })
        .add(reads("demo.fetch"), async |input: Line, context| {
            let host = HostName::parse(&input.text).unwrap();
            Ok(json!(context.reach(&host).map(|reach| format!("{reach:?}"))))
        })
        .needing(ToolName::parse("demo.fetch").unwrap(), |input| {
            let text = input["text"].as_str().unwrap_or_default();
            let host = HostName::parse(text).ok_or_else(|| InputProblem {
                pointer: "/text".to_owned(),
                message: "is no host".to_owned(),
            })?;
            Ok(vec![Capability::NetHost(host)])
        })
}

fn policies() -> PolicySet {
    let server = json!({"ask": [
        {"tool": "note.add", "reason": "it writes"},
        {"tool": "note.twice", "approvers": 2},
    ]});
    PolicySet { server: Policy::from_json(&server).unwrap(), ..PolicySet::default() }
}

fn open(folder: &TempDir, clock: &Arc<ManualClock>, ran: &Arc<AtomicUsize>) -> Gate {
    let ledger = Ledger::open(folder.path(), Sync::Process).unwrap();
    let registry = packs(ran).build().unwrap();
    let settings = Settings {
        cancel_grace: Duration::from_millis(50),
        call_timeout: Duration::from_secs(30),
        ..Settings::new(PathBuf::from(folder.path()))
    };
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    let parts = Parts::new(ledger, registry, settings);
    Gate::open(Parts { clock, policies: policies(), ..parts }).unwrap()
}

impl Fixture {
    async fn new() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let clock = Arc::new(ManualClock::at(NOON));
        let ran = Arc::default();
        let gate = open(&folder, &clock, &ran);
        let policy = Policy { max_side_effect: Some(SideEffect::UserWrite), ..Policy::default() };
        let policy = PolicyRef::Inline(Box::new(policy));
        let scopes = tollgate_contract::KeyScope::ALL.to_vec();
        let spec = KeySpec { policy, scopes, ..KeySpec::for_role("writer", Role::Agent) };
        let (_, writer) = gate.create_key(None, spec).await.unwrap();
        let approves = |name: &str| KeySpec::for_role(name, Role::Approver);
        let (_, approver) = gate.create_key(None, approves("ann")).await.unwrap();
        let (_, second) = gate.create_key(None, approves("bob")).await.unwrap();
        Self { folder, gate, clock, ran, writer, approver, second }
    }

    fn reborn(self) -> Self {
        let Self { folder, gate, clock, ran, writer, approver, second } = self;
        drop(gate);
        let gate = open(&folder, &clock, &ran);
        Self { folder, gate, clock, ran, writer, approver, second }
    }

    fn who(&self, key: &Secret) -> Principal {
        self.gate.identify(Some(key))
    }

    fn of(&self, key: &Secret, tool: &str, text: &str, session: Option<&str>) -> Call {
        let identity = self.who(key).identity();
        Call {
            caller: Caller { surface: Surface::Agent, mode: Mode::Live, identity },
            tool: tool.to_owned(),
            input: json!({"text": text}),
            scope: None,
            urgency: Urgency::Normal,
            session: session.map(str::to_owned),
            idempotency_key: None,
        }
    }

    async fn call(&self, tool: &str, text: &str) -> Ended {
        self.with(tool, text, CallOptions::default()).await
    }

    async fn with(&self, tool: &str, text: &str, options: CallOptions) -> Ended {
        self.gate.call(self.of(&self.writer, tool, text, None), options).await
    }

    fn spawn(&self, call: Call, options: CallOptions) -> tokio::task::JoinHandle<Ended> {
        let gate = self.gate.clone();
        tokio::spawn(async move { gate.call(call, options).await })
    }

    async fn answer(
        &self,
        key: &Secret,
        id: ApprovalId,
        yes: bool,
    ) -> Result<ItemState, ErrorCode> {
        let reason = Some("because".to_owned());
        let answered = self.gate.answer(&self.who(key), id, yes, reason, None).await;
        answered.map(|item| item.state(self.clock.now_ms())).map_err(|error| error.code())
    }

    fn ran(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }

    async fn until_something_waits(&self) -> ApprovalId {
        loop {
            let waiting = self.gate.approvals();
            let mut waiting = waiting.iter().filter(|(_, state)| *state == ItemState::Pending);
            if let Some((item, _)) = waiting.next() {
                return item.asked.id;
            }
            tokio::task::yield_now().await;
        }
    }
}

fn patient() -> CallOptions {
    CallOptions { wait: Duration::from_secs(600), ..CallOptions::default() }
}

#[track_caller]
fn waits(ended: &Ended) -> ApprovalId {
    match ended.as_ref().map_err(AsRef::as_ref) {
        Err(Unfinished::Waits(waits)) => waits.item.asked.id,
        other => panic!("it does not wait: {other:?}"),
    }
}

#[track_caller]
fn code(ended: &Ended) -> ErrorCode {
    ended.as_ref().unwrap_err().code().expect("it waits")
}

#[tokio::test]
async fn a_call_waits_for_a_yes_and_a_yes_is_good_for_one_call() {
    let fixture = Fixture::new().await;
    let id = waits(&fixture.call("note.add", "a").await);
    assert_eq!(waits(&fixture.call("note.add", "a").await), id, "the same call is asked once");
    assert_ne!(waits(&fixture.call("note.add", "b").await), id);
    assert_eq!(fixture.ran(), 0);
    assert_eq!(fixture.answer(&fixture.approver, id, true).await, Ok(ItemState::Approved));
    let done = fixture.call("note.add", "a").await.unwrap();
    let steps = done.verdict.to_value()["explain"].as_array().unwrap().clone();
    let approval = steps.iter().find(|step| step["step"] == "approval").unwrap().clone();
    assert_eq!(approval["because"], format!("a person has approved it ({id})"));
    assert_ne!(waits(&fixture.call("note.add", "a").await), id, "it was used up");
    assert_eq!(fixture.ran(), 1);
    // Coming back with its name does not help either.
    let options = CallOptions { approval: Some(id), ..CallOptions::default() };
    assert_eq!(code(&fixture.with("note.add", "a", options).await), ErrorCode::ApprovalDenied);
    let kinds: Vec<String> = fixture
        .gate
        .read(|reader| reader.tail(0, 1000))
        .unwrap()
        .into_iter()
        .map(|event| event.kind)
        .filter(|kind| kind.starts_with("approval_") || kind.starts_with("call_"))
        .collect();
    let wanted = [
        "approval_requested",
        "approval_requested",
        "approval_decided",
        "call_started",
        "approval_used",
        "call_completed",
        "approval_requested",
        "call_failed",
    ];
    assert_eq!(kinds, wanted);
}

#[tokio::test]
async fn a_patient_call_runs_when_it_is_answered_and_an_impatient_one_gets_a_name() {
    let fixture = Fixture::new().await;
    let call = fixture.of(&fixture.writer, "note.add", "a", None);
    let waiting = fixture.spawn(call.clone(), patient());
    let id = fixture.until_something_waits().await;
    assert_eq!(waits(&fixture.call("note.add", "a").await), id);
    fixture.answer(&fixture.approver, id, true).await.unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(fixture.ran(), 1);
    // And a no ends the wait, with what was said.
    let waiting = fixture.spawn(call, patient());
    let id = fixture.until_something_waits().await;
    fixture.answer(&fixture.approver, id, false).await.unwrap();
    let ended = waiting.await.unwrap();
    assert_eq!(code(&ended), ErrorCode::ApprovalDenied);
    let message = ended.unwrap_err().failure().unwrap().error.message.clone();
    assert!(message.contains("ann said no: because"), "{message}");
}

#[tokio::test]
async fn an_answer_is_bound_to_the_caller_the_session_the_tool_and_the_exact_input() {
    let fixture = Fixture::new().await;
    let id = waits(&fixture.call("note.add", "a").await);
    fixture.answer(&fixture.approver, id, true).await.unwrap();
    let with = |call: Call| {
        let options = CallOptions { approval: Some(id), ..CallOptions::default() };
        fixture.gate.call(call, options)
    };
    let changed = fixture.of(&fixture.writer, "note.add", "a ", None);
    assert_eq!(code(&with(changed).await), ErrorCode::ApprovalDenied);
    let elsewhere = fixture.of(&fixture.writer, "note.add", "a", Some("s1"));
    assert_eq!(code(&with(elsewhere).await), ErrorCode::ApprovalDenied);
    let other_tool = fixture.of(&fixture.writer, "note.twice", "a", None);
    assert_eq!(code(&with(other_tool).await), ErrorCode::ApprovalDenied);
    let spec = KeySpec {
        policy: PolicyRef::Inline(Box::default()),
        ..KeySpec::for_role("other", Role::Agent)
    };
    let (_, other) = fixture.gate.create_key(None, spec).await.unwrap();
    let stranger = fixture.of(&other, "note.add", "a", None);
    assert_eq!(code(&with(stranger).await), ErrorCode::ApprovalDenied);
    assert_eq!(fixture.ran(), 0);
    // All of that has not used it up.
    with(fixture.of(&fixture.writer, "note.add", "a", None)).await.unwrap();
}

#[tokio::test]
async fn nobody_answers_for_themselves_not_even_by_a_token() {
    let fixture = Fixture::new().await;
    let id = waits(&fixture.call("note.add", "a").await);
    assert_eq!(fixture.answer(&fixture.writer, id, true).await, Err(ErrorCode::Conflict));
    let spec = TokenSpec::default();
    let (_, token) = fixture.gate.mint_token(&fixture.who(&fixture.writer), spec).await.unwrap();
    assert_eq!(fixture.answer(&token, id, true).await, Err(ErrorCode::Conflict));
    // Nor does a token's call count as somebody else's.
    let call = fixture.of(&token, "note.add", "t", None);
    let id = waits(&fixture.gate.call(call, CallOptions::default()).await);
    assert_eq!(fixture.answer(&fixture.writer, id, true).await, Err(ErrorCode::Conflict));
    assert_eq!(fixture.ran(), 0);
}

#[tokio::test]
async fn two_approvers_must_be_two() {
    let fixture = Fixture::new().await;
    let id = waits(&fixture.call("note.twice", "a").await);
    assert_eq!(fixture.answer(&fixture.approver, id, true).await, Ok(ItemState::Pending));
    assert_eq!(fixture.answer(&fixture.approver, id, true).await, Err(ErrorCode::Conflict));
    let spec = TokenSpec::default();
    let (_, token) = fixture.gate.mint_token(&fixture.who(&fixture.approver), spec).await.unwrap();
    assert_eq!(fixture.answer(&token, id, true).await, Err(ErrorCode::Conflict));
    assert_eq!(waits(&fixture.call("note.twice", "a").await), id);
    assert_eq!(fixture.answer(&fixture.second, id, true).await, Ok(ItemState::Approved));
    fixture.call("note.twice", "a").await.unwrap();
    // One no is a no.
    let id = waits(&fixture.call("note.twice", "b").await);
    fixture.answer(&fixture.approver, id, true).await.unwrap();
    assert_eq!(fixture.answer(&fixture.second, id, false).await, Ok(ItemState::Denied));
    assert_eq!(code(&fixture.call("note.twice", "b").await), ErrorCode::ApprovalDenied);
}

#[tokio::test]
async fn a_no_holds_for_the_same_call_until_its_time_is_over() {
    let fixture = Fixture::new().await;
    let id = waits(&fixture.call("note.add", "a").await);
    fixture.answer(&fixture.approver, id, false).await.unwrap();
    for _ in 0..3 {
        assert_eq!(code(&fixture.call("note.add", "a").await), ErrorCode::ApprovalDenied);
    }
    assert_ne!(waits(&fixture.call("note.add", "b").await), id);
    fixture.clock.advance(HOUR);
    assert_ne!(waits(&fixture.call("note.add", "a").await), id);
}

#[tokio::test]
async fn a_session_has_a_name_that_can_be_shown() {
    let fixture = Fixture::new().await;
    let who = fixture.who(&fixture.writer);
    let long = "x".repeat(201);
    let secret = format!("tg_key_{}", "ab12".repeat(16));
    for wrong in ["", "a\u{1b}[2J", "a\nb", long.as_str(), secret.as_str()] {
        let asked =
            fixture.gate.request_capability(&who, capability("net"), Some(wrong.to_owned()), None);
        assert_eq!(asked.await.unwrap_err().code(), ErrorCode::InvalidRequest, "{wrong:?}");
        let call = fixture.of(&fixture.writer, "demo.fetch", "a.example", Some(wrong));
        let ended = fixture.gate.call(call, CallOptions::default()).await;
        assert_eq!(code(&ended), ErrorCode::InvalidRequest, "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_answers_that_race_one_wins_and_of_calls_that_race_for_a_yes_one_runs() {
    let fixture = Fixture::new().await;
    let id = waits(&fixture.call("note.add", "a").await);
    let mut racing = Vec::new();
    for number in 0..20 {
        let gate = fixture.gate.clone();
        let key = if number % 2 == 0 { &fixture.approver } else { &fixture.second };
        let who = fixture.who(key);
        racing.push(tokio::spawn(async move {
            gate.answer(&who, id, number % 3 != 0, None, None).await.is_ok()
        }));
    }
    let mut won = 0;
    for one in racing {
        won += usize::from(one.await.unwrap());
    }
    assert_eq!(won, 1);
    let id = waits(&fixture.call("note.add", "b").await);
    fixture.answer(&fixture.approver, id, true).await.unwrap();
    let racing: Vec<_> = (0..12)
        .map(|_| {
            let call = fixture.of(&fixture.writer, "note.add", "b", None);
            fixture.spawn(call, CallOptions::default())
        })
        .collect();
    let mut ran = 0;
    for one in racing {
        ran += usize::from(one.await.unwrap().is_ok());
    }
    assert_eq!((ran, fixture.ran()), (1, 1));
}

#[tokio::test]
async fn the_same_call_twice_takes_two_answers() {
    let fixture = Fixture::new().await;
    let start = || fixture.spawn(fixture.of(&fixture.writer, "note.add", "a", None), patient());
    let (one, two) = (start(), start());
    let first = fixture.until_something_waits().await;
    fixture.answer(&fixture.approver, first, true).await.unwrap();
    let second = fixture.until_something_waits().await;
    assert_ne!(first, second);
    assert_eq!(fixture.ran(), 1);
    fixture.answer(&fixture.approver, second, true).await.unwrap();
    one.await.unwrap().unwrap();
    two.await.unwrap().unwrap();
    assert_eq!(fixture.ran(), 2);
}

#[tokio::test]
async fn a_gate_that_stops_keeps_nobody_waiting_for_a_person() {
    let fixture = Fixture::new().await;
    let waiting = fixture.spawn(fixture.of(&fixture.writer, "note.add", "a", None), patient());
    let id = fixture.until_something_waits().await;
    fixture.gate.drain(Duration::from_secs(600)).await;
    assert_eq!(waits(&waiting.await.unwrap()), id);
}

#[tokio::test]
async fn what_nobody_answers_in_time_is_over_and_an_answer_afterwards_comes_too_late() {
    let fixture = Fixture::new().await;
    let id = waits(&fixture.call("note.add", "a").await);
    let waiting = fixture.spawn(fixture.of(&fixture.writer, "note.add", "a", None), patient());
    tokio::task::yield_now().await;
    fixture.clock.advance(HOUR);
    assert_eq!(fixture.answer(&fixture.approver, id, true).await, Err(ErrorCode::Conflict));
    fixture.gate.expire_approvals().await.unwrap();
    assert_eq!(code(&waiting.await.unwrap()), ErrorCode::ApprovalDenied);
    // So is a yes that is not used in time.
    let id = waits(&fixture.call("note.add", "a").await);
    fixture.answer(&fixture.approver, id, true).await.unwrap();
    fixture.clock.advance(HOUR);
    assert_ne!(waits(&fixture.call("note.add", "a").await), id);
    assert_eq!(fixture.ran(), 0);
}

#[tokio::test]
async fn what_waits_what_was_said_and_what_was_used_survive_a_restart() {
    let fixture = Fixture::new().await;
    let (asked, said, used) = (
        waits(&fixture.call("note.add", "asked").await),
        waits(&fixture.call("note.add", "said").await),
        waits(&fixture.call("note.add", "used").await),
    );
    fixture.answer(&fixture.approver, said, true).await.unwrap();
    fixture.answer(&fixture.approver, used, true).await.unwrap();
    fixture.call("note.add", "used").await.unwrap();
    let fixture = fixture.reborn();
    assert_eq!(waits(&fixture.call("note.add", "asked").await), asked);
    fixture.call("note.add", "said").await.unwrap();
    assert_ne!(waits(&fixture.call("note.add", "used").await), used);
    fixture.answer(&fixture.approver, asked, true).await.unwrap();
    fixture.call("note.add", "asked").await.unwrap();
    assert_eq!(fixture.ran(), 3);
    assert_eq!(fixture.gate.read(check_kept).unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn behind_a_wait_everything_is_asked_again() {
    let fixture = Fixture::new().await;
    let wait =
        |text: &str| fixture.spawn(fixture.of(&fixture.writer, "note.add", text, None), patient());
    // A policy that forbids it meanwhile.
    let waiting = wait("policy");
    let id = fixture.until_something_waits().await;
    let mut stricter = policies();
    stricter.server = Policy::from_json(&json!({
        "deny": ["note.add"], "ask": [{"tool": "note.add"}],
    }))
    .unwrap();
    fixture.gate.apply_policies(stricter).await.unwrap();
    fixture.answer(&fixture.approver, id, true).await.unwrap();
    assert_eq!(code(&waiting.await.unwrap()), ErrorCode::PermissionDenied);
    // More people than have answered.
    fixture.gate.apply_policies(policies()).await.unwrap();
    let waiting = wait("more");
    let id = fixture.until_something_waits().await;
    let mut more = policies();
    more.server =
        Policy::from_json(&json!({"ask": [{"tool": "note.add", "approvers": 2}]})).unwrap();
    fixture.gate.apply_policies(more).await.unwrap();
    fixture.answer(&fixture.approver, id, true).await.unwrap();
    assert_eq!(code(&waiting.await.unwrap()), ErrorCode::ApprovalDenied);
    // A key that is withdrawn.
    fixture.gate.apply_policies(policies()).await.unwrap();
    let waiting = wait("key");
    let id = fixture.until_something_waits().await;
    let key = fixture.who(&fixture.writer).key().unwrap().id;
    fixture.gate.create_key(None, KeySpec::for_role("admin", Role::Admin)).await.unwrap();
    fixture.gate.revoke_key(None, key).await.unwrap();
    fixture.answer(&fixture.approver, id, true).await.unwrap();
    assert_eq!(code(&waiting.await.unwrap()), ErrorCode::InvalidApiKey);
    assert_eq!(fixture.ran(), 0);
}

fn capability(text: &str) -> Capability {
    Capability::parse(text).unwrap()
}

fn to_session(session: &str) -> Holder {
    Holder { key: None, session: Some(session.to_owned()) }
}

#[tokio::test]
async fn a_capability_counts_for_whom_it_was_granted_and_until_it_ends() {
    let fixture = Fixture::new().await;
    let fetch = async |session: Option<&str>, host: &str| {
        let call = fixture.of(&fixture.writer, "demo.fetch", host, session);
        fixture.gate.call(call, CallOptions::default()).await.map(|result| result.output)
    };
    let missing = fetch(Some("s1"), "Example.com").await.unwrap_err();
    assert_eq!(missing.code(), Some(ErrorCode::CapabilityMissing));
    let details = &missing.failure().unwrap().error.details;
    assert_eq!(details["grant"], "tollgate grant net:example.com --session s1 --for 1h");
    let ann = fixture.who(&fixture.approver);
    let grant = |text: &str, to: Holder, lasts| {
        fixture.gate.grant_capability(&ann, capability(text), to, lasts, None)
    };
    grant("net:example.com", to_session("s1"), Some(HOUR)).await.unwrap();
    assert_eq!(fetch(Some("s1"), "EXAMPLE.com.").await.unwrap(), json!("Named"));
    assert!(fetch(Some("s2"), "example.com").await.is_err());
    assert!(fetch(None, "example.com").await.is_err());
    assert!(fetch(Some("s1"), "api.example.com").await.is_err());
    let key = fixture.who(&fixture.writer).account();
    let wide = grant("net:*.example.com", Holder { key, session: None }, None).await.unwrap();
    assert_eq!(fetch(None, "api.example.com").await.unwrap(), json!("Public"));
    fixture.clock.advance(HOUR);
    assert!(fetch(Some("s1"), "example.com").await.is_err(), "its hour is over");
    fixture.gate.revoke_capability(&ann, wide.id).await.unwrap();
    assert!(fetch(None, "api.example.com").await.is_err(), "it was withdrawn");
}

#[tokio::test]
async fn a_session_belongs_to_the_key_that_used_it_first() {
    let fixture = Fixture::new().await;
    let ann = fixture.who(&fixture.approver);
    let granted = fixture.gate.grant_capability(
        &ann,
        capability("net:example.com"),
        to_session("s1"),
        None,
        None,
    );
    granted.await.unwrap();
    let call = fixture.of(&fixture.writer, "demo.fetch", "example.com", Some("s1"));
    fixture.gate.call(call, CallOptions::default()).await.unwrap();
    let spec = KeySpec {
        policy: PolicyRef::Inline(Box::default()),
        ..KeySpec::for_role("thief", Role::Agent)
    };
    let (_, thief) = fixture.gate.create_key(None, spec).await.unwrap();
    let fixture = fixture.reborn();
    let call = fixture.of(&thief, "demo.fetch", "example.com", Some("s1"));
    let stolen = fixture.gate.call(call, CallOptions::default()).await;
    assert_eq!(code(&stolen), ErrorCode::Conflict);
    let who = fixture.who(&thief);
    let asked =
        fixture.gate.request_capability(&who, capability("net"), Some("s1".to_owned()), None);
    assert_eq!(asked.await.unwrap_err().code(), ErrorCode::Conflict);
    // Nor does calling a session by the name of a key help.
    let key = fixture.who(&fixture.writer).account().unwrap().to_string();
    let call = fixture.of(&thief, "demo.fetch", "example.com", Some(&key));
    assert_eq!(code(&fixture.gate.call(call, CallOptions::default()).await), ErrorCode::Conflict);
}

#[tokio::test]
async fn a_request_waits_until_it_is_granted_and_nobody_grants_for_themselves() {
    let fixture = Fixture::new().await;
    let (writer, ann) = (fixture.who(&fixture.writer), fixture.who(&fixture.approver));
    let ask = async |text: &str| {
        let session = Some("s1".to_owned());
        fixture.gate.request_capability(&writer, capability(text), session, None).await.unwrap()
    };
    let Requested::New(_) = ask("net:example.com").await else { panic!("it is not new") };
    let Requested::Waits(item) = ask("net:EXAMPLE.com").await else { panic!("it does not wait") };
    let own = fixture.answer(&fixture.writer, item.asked.id, true).await;
    assert_eq!(own, Err(ErrorCode::Conflict));
    let account = writer.account();
    let to_itself = [to_session("s1"), Holder { key: account, session: None }];
    for to in to_itself {
        let granted = fixture.gate.grant_capability(&writer, capability("net"), to, None, None);
        assert_eq!(granted.await.unwrap_err().code(), ErrorCode::Conflict);
    }
    // A session that nobody has used yet may turn out to be one's own: the grant does not count then.
    let granted =
        fixture.gate.grant_capability(&writer, capability("net"), to_session("s9"), None, None);
    granted.await.unwrap();
    let call = fixture.of(&fixture.writer, "demo.fetch", "example.com", Some("s9"));
    let ended = fixture.gate.call(call, CallOptions::default()).await;
    assert_eq!(code(&ended), ErrorCode::CapabilityMissing);
    // A grant answers what waits for it.
    let granted = fixture.gate.grant_capability(
        &ann,
        capability("net:example.com"),
        to_session("s1"),
        None,
        None,
    );
    granted.await.unwrap();
    let state = fixture.gate.approval(item.asked.id).unwrap().state(NOON);
    assert_eq!(state, ItemState::Approved);
    let Requested::Granted(_) = ask("net:example.com").await else { panic!("it is granted") };
}

/// Looks at the records of a space, and gives another text for one of them.
type Edit<'a> = &'a dyn Fn(&[(Vec<u8>, String)]) -> (usize, String);

#[tokio::test]
async fn an_edited_record_is_found_out() {
    let fixture = Fixture::new().await;
    let ann = fixture.who(&fixture.approver);
    let granted = fixture.gate.grant_capability(
        &ann,
        capability("net:example.com"),
        to_session("s1"),
        Some(HOUR),
        None,
    );
    granted.await.unwrap();
    let call = fixture.of(&fixture.writer, "demo.fetch", "example.com", Some("s1"));
    fixture.gate.call(call, CallOptions::default()).await.unwrap();
    let used = waits(&fixture.call("note.add", "used").await);
    fixture.answer(&fixture.approver, used, true).await.unwrap();
    fixture.call("note.add", "used").await.unwrap();
    waits(&fixture.call("note.add", "one").await);
    waits(&fixture.call("note.add", "two").await);
    let sound = |when: &str| {
        assert_eq!(fixture.gate.read(check_kept).unwrap(), Vec::<String>::new(), "{when}");
    };
    sound("at first");
    let database = fixture.folder.path().join("tollgate.db");
    let edit = rusqlite::Connection::open(database).unwrap();
    let rows = |space: &str| -> Vec<(Vec<u8>, String)> {
        let mut found = edit
            .prepare("SELECT key, CAST(value AS TEXT) FROM beside WHERE space = ?1 ORDER BY key")
            .unwrap();
        let rows = found.query_map([space], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let mut rows: Vec<(Vec<u8>, String)> = rows.map(Result::unwrap).collect();
        // What was used comes first, whatever its name.
        rows.sort_by_key(|(_, value)| !value.contains("\"used\""));
        rows
    };
    let put = |space: &str, key: &[u8], value: &str| {
        let sql = "UPDATE beside SET value = ?3 WHERE space = ?1 AND key = ?2";
        assert_eq!(edit.execute(sql, (space, key, value.as_bytes())).unwrap(), 1);
    };
    let tried = |space: &str, change: Edit<'_>| {
        let before = rows(space);
        let (at, value) = change(&before);
        assert_ne!(value, before[at].1, "nothing was changed in {space}");
        put(space, &before[at].0, &value);
        assert_ne!(fixture.gate.read(check_kept).unwrap(), Vec::<String>::new(), "{space}");
        put(space, &before[at].0, &before[at].1);
        sound(space);
    };
    tried("grants", &|rows| (0, rows[0].1.replace("net:example.com", "net")));
    tried("approvals", &|rows| (0, rows[0].1.replace("\"used\"", "\"approved\"")));
    tried("approvals", &|rows| (1, rows[1].1.replace("\"pending\"", "\"approved\"")));
    let binding = |text: &str| {
        let record: Value = serde_json::from_str(text).unwrap();
        record["binding"].as_str().unwrap().to_owned()
    };
    tried("approvals", &|rows| (1, rows[1].1.replace(&binding(&rows[1].1), &binding(&rows[2].1))));
    let other = fixture.who(&fixture.second).account().unwrap().to_string();
    tried("sessions", &|_| (0, other.clone()));
    // Also when the events that made it so are gone.
    fixture.clock.advance(10 * HOUR);
    fixture.call("demo.fetch", "example.com").await.unwrap_err();
    assert!(fixture.gate.retire_before(NOON + 9 * HOUR, 1).await.unwrap() > 5);
    sound("after old events were retired");
    tried("approvals", &|rows| (0, rows[0].1.replace("\"used\"", "\"approved\"")));
    tried("sessions", &|_| (0, other.clone()));
}

#[tokio::test]
async fn people_see_the_call_and_are_told_what_they_do_not_see() {
    let fixture = Fixture::new().await;
    let shown = |id| {
        let item = fixture.gate.approval(id).unwrap();
        let tollgate_consent::What::Call { input, hidden, .. } = item.asked.what else {
            panic!("it is no call")
        };
        (input["text"].as_str().unwrap().to_owned(), hidden)
    };
    let plain = waits(&fixture.call("note.add", "a").await);
    assert_eq!(shown(plain), ("a".to_owned(), false));
    let long = waits(&fixture.call("note.add", &"x".repeat(100_000)).await);
    let (text, hidden) = shown(long);
    assert!(hidden && text.ends_with("… (100000 characters in all)") && text.len() < 3000);
    let secret = waits(&fixture.call("note.add", "password=hunter2 and more").await);
    let (text, hidden) = shown(secret);
    assert!(hidden && !text.contains("hunter2"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_halt_stops_what_can_be_stopped_and_says_what_could_not() {
    let fixture = Fixture::new().await;
    let start = |tool: &str| {
        fixture.spawn(fixture.of(&fixture.writer, tool, "a", None), CallOptions::default())
    };
    let (waits, blocks) = (start("demo.waits"), start("demo.blocks"));
    let asks = fixture.spawn(fixture.of(&fixture.writer, "note.add", "a", None), patient());
    fixture.until_something_waits().await;
    // Both must be inside their executors.
    while fixture.ran() < 2 {
        tokio::task::yield_now().await;
    }
    let by: Arc<str> = "test".into();
    let target = |target| HaltTarget::Target(target);
    let other = fixture.gate.halt(target(Target::Workload("note.twice".into())), by.clone(), None);
    let other = other.await.unwrap();
    assert_eq!((other.changed, other.stopped.len(), other.not_stopped.len()), (true, 0, 0));
    let key = fixture.who(&fixture.writer).account().unwrap().to_string();
    let halted = fixture.gate.halt(target(Target::Key(key.as_str().into())), by.clone(), None);
    let halted = halted.await.unwrap();
    let tools = |calls: &[tollgate_gate::MetCall]| {
        let mut tools: Vec<String> = calls.iter().map(|call| call.tool.clone()).collect();
        tools.sort();
        tools
    };
    assert_eq!(tools(&halted.stopped), ["demo.waits", "note.add"]);
    assert_eq!(tools(&halted.not_stopped), ["demo.blocks"]);
    assert_eq!(code(&asks.await.unwrap()), ErrorCode::Halted);
    // It may end by itself; what it must not do is go on.
    let _ = waits.await.unwrap();
    assert_eq!(code(&blocks.await.unwrap()), ErrorCode::Halted);
    assert_eq!(code(&fixture.call("demo.waits", "a").await), ErrorCode::Halted);
    let resumed = fixture.gate.governing().halt(target(Target::Key(key.into())), by, None, true);
    assert!(resumed.await.unwrap());
    assert!(matches!(
        fixture.call("note.add", "b").await.unwrap_err().as_ref(),
        Unfinished::Waits(_)
    ));
}
