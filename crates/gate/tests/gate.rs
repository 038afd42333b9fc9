//! The one path, with tools that really change something: what is let through, what is recorded, and
//! what happens when something breaks in the middle.

#![cfg(test)]

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_contract::{
    Behaviours, Call, Caller, CostEffect, Declaration, Error, ErrorCode, Identity, Mode, Mutation,
    Permission, Retry, Secret, SideEffect, Surface, Urgency, Violations, error::ToolFailed,
};
use tollgate_gate::{
    CallOptions, Clock, Gate, Health, ManualClock, Packs, Parts, RunEvent, Settings,
    ToolCallResult, Unfinished,
    keys::{Claims, KeySpec, PolicyRef, Role, TokenSpec},
};
use tollgate_governor::GovernorConfig;
use tollgate_ledger::{Ledger, NewEvent, Reader, StoredEvent, Subject, Sync};
use tollgate_policy::{Format, Policy, PolicySet};

const NOON: i64 = 1_800_000_000_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Line {
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Written {
    lines: usize,
}

/// What the test tools share: a file that they write to, and how often they ran.
#[derive(Clone)]
struct World {
    file: PathBuf,
    ran: Arc<AtomicUsize>,
    proceed: Arc<tokio::sync::Semaphore>,
    cancelled: Arc<tokio::sync::Notify>,
}

impl World {
    fn write(&self, text: &str) -> usize {
        use std::io::Write;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(&self.file).unwrap();
        writeln!(file, "{text}").unwrap();
        self.ran.fetch_add(1, Ordering::SeqCst);
        std::fs::read_to_string(&self.file).unwrap().lines().count()
    }

    fn times(&self) -> usize {
        self.ran.load(Ordering::SeqCst)
    }

    async fn has_run(&self) {
        while self.times() == 0 {
            tokio::task::yield_now().await;
        }
    }
}

fn writer(name: &'static str, retry: Retry) -> Result<Declaration<Line, Written>, Violations> {
    Declaration::new(name, "Adds a line to a file.")
        .permissions([Permission::WRITE])
        .behaviours(Behaviours { mutation: Mutation::UserState, ..Behaviours::NONE })
        .effects(SideEffect::UserWrite, CostEffect::None)
        .retry(retry)
        .build()
}

/// Tools that write a line: at once, slowly, and with every kind of trouble.
fn packs(world: &World) -> Packs {
    let echo = Declaration::<Line, Value>::new("demo.echo", "Says what it was told.")
        .permissions([Permission::READ])
        .behaviours(Behaviours::NONE)
        .effects(SideEffect::None, CostEffect::None)
        .build()
        .unwrap();
    let broken = Declaration::<Line, Value>::new("demo.broken", "Makes a mistake.")
        .permissions([Permission::READ])
        .behaviours(Behaviours::NONE)
        .effects(SideEffect::None, CostEffect::None)
        .build()
        .unwrap();
    let slowly = Declaration::<Line, Value>::new("demo.slow", "Takes a moment.")
        .permissions([Permission::READ])
        .behaviours(Behaviours::NONE)
        .effects(SideEffect::None, CostEffect::None)
        .build()
        .unwrap();
    let (one, again, slow) = (world.clone(), world.clone(), world.clone());
    let (fails, panics) = (world.clone(), world.clone());
    Packs::new()
        .add(echo, async |input: Line, _| Ok(json!({"said": input.text})))
        .add(slowly, async |_: Line, context| {
            if context.time_left() < Duration::from_secs(1) {
                std::future::pending::<()>().await;
            }
            Ok(Value::Null)
        })
        .add_reading(broken, |input: Line, _| {
            assert!(input.text.is_empty(), "a mistake");
            Ok(Value::Null)
        })
        .add(writer("note.add", Retry::Never).unwrap(), move |input: Line, _| {
            let lines = one.write(&input.text);
            async move { Ok(Written { lines }) }
        })
        .add(writer("note.put", Retry::Idempotent).unwrap(), move |input: Line, _| {
            let lines = again.write(&input.text);
            async move { Ok(Written { lines }) }
        })
        .add(writer("note.slow", Retry::Never).unwrap(), move |input: Line, context| {
            let world = slow.clone();
            async move {
                let lines = world.write(&input.text);
                tokio::select! {
                    permit = world.proceed.acquire() => permit.unwrap().forget(),
                    () = context.cancelled().cancelled() => {
                        world.cancelled.notify_one();
                        std::future::pending::<()>().await;
                    }
                }
                Ok(Written { lines })
            }
        })
        .add(writer("note.fails", Retry::Never).unwrap(), move |input: Line, context| {
            fails.write(&input.text);
            let error = ToolFailed::new(context.tool().name.clone(), "the upstream said no");
            async move { Err::<Written, _>(Error::from(error).into()) }
        })
        .add(writer("note.panics", Retry::Never).unwrap(), move |input: Line, _| {
            let world = panics.clone();
            async move {
                world.write(&input.text);
                assert!(input.text.is_empty(), "a mistake");
                Ok(Written { lines: 0 })
            }
        })
}

/// A gate in a folder of its own, with a key that may write.
struct Fixture {
    folder: Arc<TempDir>,
    gate: Gate,
    key: Secret,
    world: World,
    clock: Arc<ManualClock>,
}

fn may_write() -> KeySpec {
    let policy = Policy { max_side_effect: Some(SideEffect::UserWrite), ..Policy::default() };
    let policy = PolicyRef::Inline(Box::new(policy));
    KeySpec { policy, ..KeySpec::for_role("writer", Role::Agent) }
}

fn open(
    folder: &Path,
    world: &World,
    clock: &Arc<ManualClock>,
    change: impl FnOnce(Parts) -> Parts,
) -> Gate {
    let ledger = Ledger::open(folder, Sync::Process).unwrap();
    let registry = packs(world).build().unwrap();
    let settings = Settings {
        cancel_grace: Duration::from_millis(20),
        call_timeout: Duration::from_secs(10),
        ..Settings::new(folder)
    };
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    Gate::open(change(Parts { clock, ..Parts::new(ledger, registry, settings) })).unwrap()
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|parts| parts).await
    }

    async fn with(change: impl FnOnce(Parts) -> Parts) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let world = World {
            file: folder.path().join("notes.txt"),
            ran: Arc::default(),
            proceed: Arc::new(tokio::sync::Semaphore::new(0)),
            cancelled: Arc::default(),
        };
        let clock = Arc::new(ManualClock::at(NOON));
        let gate = open(folder.path(), &world, &clock, change);
        let (_, key) = gate.create_key(None, may_write()).await.unwrap();
        Self { folder, gate, key, world, clock }
    }

    fn of(&self, key: &Secret, tool: &str, text: &str) -> Call {
        Call {
            caller: Caller {
                surface: Surface::Agent,
                mode: Mode::Live,
                identity: self.gate.identify(Some(key)).identity(),
            },
            tool: tool.to_owned(),
            input: json!({"text": text}),
            scope: None,
            urgency: Urgency::Normal,
            session: None,
            idempotency_key: None,
        }
    }

    fn plain(&self, tool: &str, text: &str) -> Call {
        self.of(&self.key, tool, text)
    }

    fn keyed(&self, tool: &str, key: &str, text: &str) -> Call {
        Call { idempotency_key: Some(key.to_owned()), ..self.plain(tool, text) }
    }

    async fn call(&self, call: Call) -> Result<ToolCallResult, Box<Unfinished>> {
        self.gate.call(call, CallOptions::default()).await
    }

    /// Starts a call that goes on beside the test.
    fn spawn(
        &self,
        call: Call,
    ) -> tokio::task::JoinHandle<Result<ToolCallResult, Box<Unfinished>>> {
        let gate = self.gate.clone();
        tokio::spawn(async move { gate.call(call, CallOptions::default()).await })
    }

    /// The gate once more, with nothing of the old one left in memory.
    fn reborn(self) -> Self {
        let Self { folder, gate, key, world, clock } = self;
        drop(gate);
        let gate = open(folder.path(), &world, &clock, |parts| parts);
        Self { folder, gate, key, world, clock }
    }

    fn events(&self) -> Vec<StoredEvent> {
        self.gate.read(|reader: &Reader| reader.tail(0, 10_000)).unwrap()
    }

    fn kinds(&self) -> Vec<String> {
        let calls = |event: &StoredEvent| event.kind.starts_with("call_");
        self.events().into_iter().filter(calls).map(|event| event.kind).collect()
    }

    fn last(&self) -> Value {
        serde_json::from_str(&self.events().pop().unwrap().payload).unwrap()
    }
}

fn code(ended: &Result<ToolCallResult, Box<Unfinished>>) -> ErrorCode {
    ended.as_ref().unwrap_err().code().unwrap()
}

#[tokio::test]
async fn the_start_of_an_effect_is_on_disk_before_it_happens() {
    let fixture = Fixture::new().await;
    let running = fixture.spawn(fixture.plain("note.slow", "a"));
    fixture.world.has_run().await;
    assert_eq!(fixture.kinds(), ["call_started"]);
    fixture.world.proceed.add_permits(1);
    assert_eq!(running.await.unwrap().unwrap().output, json!({"lines": 1}));
    assert_eq!(fixture.kinds(), ["call_started", "call_completed"]);
}

#[tokio::test]
async fn an_effect_that_a_crash_interrupted_is_unknown_and_never_runs_again() {
    let fixture = Fixture::new().await;
    let running = fixture.spawn(fixture.keyed("note.slow", "k", "a"));
    fixture.world.has_run().await;
    // As if the process had died: the folder as it is on disk at this moment.
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(fixture.folder.path()).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    running.abort();
    let world = World { ran: Arc::default(), ..fixture.world.clone() };
    let gate = open(copy.path(), &world, &fixture.clock, |parts| parts);
    let key = Secret::new(fixture.key.expose().to_owned());
    let clock = Arc::clone(&fixture.clock);
    let dead = Fixture { folder: Arc::new(copy), gate, key, world, clock };
    assert_eq!(dead.kinds(), ["call_started", "call_failed"]);
    let last = dead.last();
    assert_eq!(last["error"]["code"], "OUTCOME_UNKNOWN");
    assert_eq!(last["outcomeUnknown"], true);
    for _ in 0..2 {
        let again = dead.call(dead.keyed("note.slow", "k", "a")).await;
        assert_eq!(code(&again), ErrorCode::OutcomeUnknown);
    }
    assert_eq!(dead.world.times(), 0);
    // Another start does not tell it again.
    let before = dead.kinds();
    assert_eq!(dead.reborn().kinds(), before);
}

#[tokio::test]
async fn a_contract_that_says_how_runs_again_where_the_outcome_is_unknown() {
    let fixture = Fixture::new().await;
    for (tool, runs_again) in [("note.put", true), ("note.add", false)] {
        let call = || fixture.keyed(tool, "k", "a");
        assert!(!fixture.call(call()).await.unwrap().replayed);
        assert!(fixture.call(call()).await.unwrap().replayed);
        let ran = fixture.world.times();
        // A start without an end, as a crash leaves it.
        let db = rusqlite::Connection::open(fixture.folder.path().join("tollgate.db")).unwrap();
        let kept: Vec<u8> = db
            .query_row("SELECT value FROM beside WHERE space = 'idempotency'", [], |row| row.get(0))
            .unwrap();
        let head = kept.iter().position(|byte| *byte == b'\n').unwrap() + 1 + 32;
        let sql = "UPDATE beside SET value = ?1 WHERE space = 'idempotency'";
        db.execute(sql, [&kept[..head]]).unwrap();
        let again = fixture.call(call()).await;
        if runs_again {
            assert!(!again.unwrap().replayed);
            assert_eq!(fixture.world.times(), ran + 1);
        } else {
            assert_eq!(code(&again), ErrorCode::OutcomeUnknown);
            assert_eq!(fixture.world.times(), ran);
        }
        // What cannot be read any more may have happened: nothing runs.
        db.execute(sql, [b"damaged".as_slice()]).unwrap();
        let ran = fixture.world.times();
        assert_eq!(code(&fixture.call(call()).await), ErrorCode::Internal);
        assert_eq!(fixture.world.times(), ran);
        db.execute("DELETE FROM beside WHERE space = 'idempotency'", []).unwrap();
    }
}

#[tokio::test]
async fn the_same_key_with_the_same_input_runs_once_even_at_the_same_time() {
    let fixture = Arc::new(Fixture::new().await);
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let fixture = Arc::clone(&fixture);
        running.spawn(async move { fixture.call(fixture.keyed("note.add", "k", "a")).await });
    }
    let all: Vec<ToolCallResult> =
        running.join_all().await.into_iter().map(Result::unwrap).collect();
    assert_eq!(all.iter().filter(|result| !result.replayed).count(), 1);
    for result in &all {
        assert_eq!((result.call_id, &result.output), (all[0].call_id, &json!({"lines": 1})));
    }
    assert_eq!(fixture.world.times(), 1);
    let other = fixture.call(fixture.keyed("note.add", "k", "b")).await;
    assert_eq!(code(&other), ErrorCode::Conflict);
    // The key is the caller's own, and for one tool.
    let (_, second) = fixture.gate.create_key(None, may_write()).await.unwrap();
    let stranger = fixture.of(&second, "note.add", "b");
    let stranger = Call { idempotency_key: Some("k".to_owned()), ..stranger };
    assert!(!fixture.call(stranger).await.unwrap().replayed);
    assert!(!fixture.call(fixture.keyed("note.put", "k", "c")).await.unwrap().replayed);
    for wrong in ["", "a\nb", "é", &"x".repeat(256)] {
        let refused = fixture.call(fixture.keyed("note.add", wrong, "a")).await;
        assert_eq!(code(&refused), ErrorCode::InvalidRequest, "{wrong}");
    }
}

#[tokio::test]
async fn a_result_is_kept_for_a_day_and_over_a_restart() {
    let fixture = Fixture::new().await;
    let first = fixture.call(fixture.keyed("note.add", "k", "a")).await.unwrap();
    fixture.clock.advance(24 * 60 * 60 * 1000 - 1);
    let fixture = fixture.reborn();
    let again = fixture.call(fixture.keyed("note.add", "k", "a")).await.unwrap();
    assert_eq!((again.call_id, again.output, again.replayed), (first.call_id, first.output, true));
    fixture.clock.advance(2);
    fixture.gate.housekeeping().await;
    assert!(!fixture.call(fixture.keyed("note.add", "k", "other")).await.unwrap().replayed);
}

#[tokio::test]
async fn a_failure_of_the_tool_is_a_result_and_is_not_tried_again() {
    let fixture = Fixture::new().await;
    for _ in 0..2 {
        let ended = fixture.call(fixture.keyed("note.fails", "k", "a")).await;
        assert_eq!(code(&ended), ErrorCode::ToolFailed);
    }
    assert_eq!(fixture.world.times(), 1);
    // The second time it was only told again.
    assert_eq!(fixture.kinds(), ["call_started", "call_failed", "call_failed"]);
    assert!(fixture.last()["replayOf"].is_string());
}

#[tokio::test]
async fn a_panic_ends_one_call_and_nothing_else() {
    let fixture = Fixture::new().await;
    let ended = fixture.call(fixture.keyed("note.panics", "k", "a")).await;
    assert_eq!(code(&ended), ErrorCode::Internal);
    // It may have changed something before it fell.
    let again = fixture.call(fixture.keyed("note.panics", "k", "a")).await;
    assert_eq!(code(&again), ErrorCode::OutcomeUnknown);
    assert!(fixture.call(fixture.plain("note.add", "b")).await.is_ok());
    let ended = fixture.call(fixture.plain("demo.broken", "a")).await;
    assert_eq!(code(&ended), ErrorCode::Internal);
    assert_eq!(fixture.kinds().last().unwrap(), "call_failed");
}

#[tokio::test]
async fn a_token_that_was_renewed_is_the_same_caller() {
    let fixture = Fixture::new().await;
    let principal = fixture.gate.identify(Some(&fixture.key));
    fixture.call(fixture.keyed("note.add", "k", "a")).await.unwrap();
    for _ in 0..2 {
        let minted = fixture.gate.mint_token(&principal, TokenSpec::default()).await;
        let (_, token) = minted.unwrap();
        let call = fixture.of(&token, "note.add", "a");
        let call = Call { idempotency_key: Some("k".to_owned()), ..call };
        assert!(fixture.call(call).await.unwrap().replayed);
    }
    assert_eq!(fixture.world.times(), 1);
}

#[tokio::test]
async fn a_call_that_was_stopped_and_changed_nothing_may_be_made_again() {
    let fixture = Fixture::new().await;
    let never = Some(Duration::ZERO);
    let options = CallOptions { timeout: never, ..CallOptions::default() };
    let call = || fixture.keyed("demo.slow", "k", "a");
    let ended = fixture.gate.call(call(), options).await;
    assert_eq!(code(&ended), ErrorCode::Timeout);
    assert!(!fixture.call(call()).await.unwrap().replayed);
}

#[tokio::test]
async fn keys_and_rows_are_compared_at_one_moment() {
    let fixture = Fixture::new().await;
    let minting = {
        let (gate, key) = (fixture.gate.clone(), Secret::new(fixture.key.expose().to_owned()));
        tokio::spawn(async move {
            let principal = gate.identify(Some(&key));
            for _ in 0..200 {
                gate.mint_token(&principal, TokenSpec::default()).await.unwrap();
            }
        })
    };
    while !minting.is_finished() {
        let problems = fixture.gate.read(tollgate_gate::check_keys).unwrap();
        assert_eq!(problems, Vec::<String>::new());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_deadline_stops_the_executor_and_leaves_the_outcome_open() {
    let fixture = Fixture::new().await;
    let timeout = Some(Duration::from_millis(30));
    let options = CallOptions { timeout, ..CallOptions::default() };
    let ended = fixture.gate.call(fixture.keyed("note.slow", "k", "a"), options).await;
    assert_eq!(code(&ended), ErrorCode::Timeout);
    assert_eq!(fixture.last()["outcomeUnknown"], true);
    let again = fixture.call(fixture.keyed("note.slow", "k", "a")).await;
    assert_eq!(code(&again), ErrorCode::OutcomeUnknown);
    assert_eq!(fixture.world.times(), 1);
}

#[tokio::test]
async fn a_caller_who_goes_away_cancels_the_executor_and_it_is_recorded() {
    let fixture = Fixture::new().await;
    {
        let call = fixture.call(fixture.plain("note.slow", "a"));
        tokio::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("it cannot end"),
            () = fixture.world.has_run() => {}
        }
    }
    fixture.world.cancelled.notified().await;
    while fixture.gate.calls_under_way() > 0 {
        tokio::task::yield_now().await;
    }
    let last = fixture.last();
    assert_eq!(
        (&last["error"]["code"], &last["outcomeUnknown"]),
        (&json!("CANCELLED"), &json!(true))
    );
}

#[tokio::test]
async fn a_stop_waits_for_what_runs() {
    let fixture = Fixture::new().await;
    let slow = fixture.spawn(fixture.plain("note.slow", "a"));
    fixture.world.has_run().await;
    let draining = fixture.gate.drain(Duration::from_secs(60));
    tokio::pin!(draining);
    tokio::select! {
        biased;
        () = &mut draining => panic!("a call still runs"),
        () = tokio::task::yield_now() => {}
    }
    fixture.world.proceed.add_permits(1);
    draining.await;
    assert!(slow.await.unwrap().is_ok());
    assert_eq!(fixture.kinds(), ["call_started", "call_completed"]);
}

#[tokio::test]
async fn a_stop_cancels_what_does_not_end_and_records_it() {
    let fixture = Fixture::new().await;
    let slow = fixture.spawn(fixture.plain("note.slow", "a"));
    fixture.world.has_run().await;
    fixture.gate.drain(Duration::from_millis(10)).await;
    assert_eq!(code(&slow.await.unwrap()), ErrorCode::Cancelled);
    assert_eq!(fixture.kinds().last().unwrap(), "call_failed");
}

#[tokio::test]
async fn a_key_that_was_withdrawn_a_moment_ago_does_not_count() {
    let fixture = Fixture::new().await;
    let call = fixture.plain("note.add", "a");
    let Identity::Key(facts) = call.caller.identity.clone() else { panic!("a key") };
    fixture.gate.revoke_key(None, facts.id).await.unwrap();
    assert_eq!(code(&fixture.call(call).await), ErrorCode::InvalidApiKey);
    assert_eq!(fixture.world.times(), 0);
}

#[tokio::test]
async fn a_change_of_a_key_that_is_recorded_counts_whoever_went_away() {
    let fixture = Fixture::new().await;
    for _ in 0..50 {
        let (record, key) = fixture.gate.create_key(None, may_write()).await.unwrap();
        {
            let revoking = fixture.gate.revoke_key(None, record.key_id);
            tokio::pin!(revoking);
            // It is asked for, and given up at once.
            let _ = futures_poll_once(revoking.as_mut()).await;
        }
        while fixture.gate.calls_under_way() > 0 {
            tokio::task::yield_now().await;
        }
        let recorded = fixture.events().last().is_some_and(|event| event.kind == "key_revoked");
        assert!(recorded, "the change was not under way; the test shows nothing");
        assert!(fixture.gate.identify(Some(&key)).is_invalid());
    }
}

/// Lets a future go as far as it can without waiting.
async fn futures_poll_once<F: Future + Unpin>(mut future: F) -> bool {
    std::future::poll_fn(|cx| {
        let ready = std::pin::Pin::new(&mut future).poll(cx).is_ready();
        std::task::Poll::Ready(ready)
    })
    .await
}

#[tokio::test]
async fn what_a_door_claims_of_a_key_is_not_believed() {
    let fixture = Fixture::new().await;
    let spec = KeySpec::for_role("reader", Role::Reader);
    let (_, reader) = fixture.gate.create_key(None, spec).await.unwrap();
    let mut call = fixture.of(&reader, "note.add", "a");
    let Identity::Key(facts) = &mut call.caller.identity else { panic!("a key") };
    facts.scopes = Role::Admin.scopes();
    assert_eq!(code(&fixture.call(call).await), ErrorCode::ScopeMissing);
    assert_eq!(fixture.world.times(), 0);
}

#[tokio::test]
async fn keys_expire_rotate_with_grace_and_take_their_tokens_with_them() {
    let fixture = Fixture::new().await;
    let gate = &fixture.gate;
    let spec = KeySpec { expires_ms: Some(NOON + 1000), ..may_write() };
    let (record, key) = gate.create_key(None, spec).await.unwrap();
    let principal = gate.identify(Some(&key));
    let (token, text) = gate.mint_token(&principal, TokenSpec::default()).await.unwrap();
    assert_eq!(token.expires_ms, Some(NOON + 1000), "a token ends with its key");
    let (_, next) = gate.rotate_key(None, record.key_id, 500).await.unwrap();
    let counts = |secret: &Secret| gate.identify(Some(secret)).key().is_some();
    let principal = gate.identify(Some(&next));
    let (_, newer) = gate.mint_token(&principal, TokenSpec::default()).await.unwrap();
    assert!(counts(&key) && counts(&next) && counts(&text) && counts(&newer));
    fixture.clock.advance(501);
    // What was made with the old text ends with it: whoever stole it has nothing left.
    assert!(!counts(&key) && counts(&next) && !counts(&text) && counts(&newer));
    fixture.clock.advance(500);
    assert!(!counts(&next) && !counts(&newer));
    let again = gate.rotate_key(None, record.key_id, 0).await;
    assert_eq!(again.unwrap_err().code(), ErrorCode::Conflict);
    let fixture = fixture.reborn();
    assert!(fixture.gate.identify(Some(&next)).is_invalid());
    assert!(fixture.gate.identify(Some(&fixture.key)).key().is_some());
}

#[tokio::test]
async fn the_last_use_of_a_key_survives_a_restart_without_a_write_per_request() {
    let fixture = Fixture::new().await;
    let head = fixture.gate.ledger().head();
    for _ in 0..100 {
        fixture.clock.advance(1);
        fixture.gate.identify(Some(&fixture.key));
    }
    fixture.gate.housekeeping().await;
    assert_eq!(fixture.gate.ledger().head(), head);
    let fixture = fixture.reborn();
    let keys = fixture.gate.keys();
    let (_, used) = keys.iter().find(|(record, _)| record.name == "writer").unwrap();
    assert_eq!(*used, Some(NOON + 100));
}

#[tokio::test]
async fn names_that_look_like_secrets_and_policies_that_are_not_there_are_refused() {
    let fixture = Fixture::new().await;
    let create = async |spec: KeySpec| {
        fixture.gate.create_key(None, spec).await.map(drop).map_err(|error| error.code())
    };
    let usual = || KeySpec::for_role("name", Role::Agent);
    let refused = Err(ErrorCode::InvalidRequest);
    let secret = fixture.key.expose().to_owned();
    assert_eq!(create(KeySpec { name: secret, ..usual() }).await, refused);
    assert_eq!(create(KeySpec { name: String::new(), ..usual() }).await, refused);
    assert_eq!(create(KeySpec { name: "a\nb".to_owned(), ..usual() }).await, refused);
    let nowhere = PolicyRef::Named("nope".to_owned());
    assert_eq!(create(KeySpec { policy: nowhere, ..usual() }).await, refused);
    assert_eq!(create(KeySpec { scopes: Vec::new(), ..usual() }).await, refused);
    assert_eq!(create(KeySpec { expires_ms: Some(NOON), ..usual() }).await, refused);
    assert_eq!(create(usual()).await, Ok(()));
}

#[tokio::test]
async fn a_key_may_not_claim_more_urgency_than_it_has() {
    let fixture = Fixture::new().await;
    let high = Call { urgency: Urgency::High, ..fixture.plain("demo.echo", "a") };
    let refused = fixture.call(high).await;
    assert_eq!(code(&refused), ErrorCode::PermissionDenied);
    let verdict = refused.unwrap_err().failure().unwrap().verdict.clone().unwrap().to_value();
    let last = verdict["explain"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["because"], "urgency high is above the key's highest, normal");
    let claims = Claims { max_urgency: Urgency::High, ..Claims::default() };
    let (_, key) = fixture.gate.create_key(None, KeySpec { claims, ..may_write() }).await.unwrap();
    let high = Call { urgency: Urgency::High, ..fixture.of(&key, "demo.echo", "a") };
    assert!(fixture.call(high).await.is_ok());
}

/// Pools for the notes: so many in an hour.
fn notes(limit: u64) -> GovernorConfig {
    serde_json::from_value(json!({
        "pools": [{"id": "test:calls", "limit": limit, "window": {"kind": "fixed", "every": "1h"}}],
        "routes": [{"workload": "note.*", "pools": [{"id": "test:calls"}]}],
    }))
    .unwrap()
}

#[tokio::test]
async fn the_budget_is_asked_held_and_settled_and_a_repeat_costs_nothing() {
    let fixture = Fixture::with(|parts| Parts { governor: notes(1), ..parts }).await;
    let first = fixture.call(fixture.keyed("note.add", "k", "a")).await.unwrap();
    assert!(fixture.call(fixture.keyed("note.add", "k", "a")).await.unwrap().replayed);
    let steps = first.verdict.to_value()["explain"].as_array().unwrap().clone();
    assert_eq!(steps.last().unwrap()["because"], "room is held in test:calls");
    let refused = fixture.call(fixture.plain("note.add", "b")).await;
    assert_eq!(code(&refused), ErrorCode::BudgetDenied);
    let refused = refused.unwrap_err();
    let refused = refused.failure().unwrap();
    assert_eq!(refused.error.details["pool"], "test:calls");
    assert!(refused.error.details["retryAfterSeconds"].as_u64().unwrap() > 1);
    let verdict = refused.verdict.as_ref().unwrap().to_value();
    let last = verdict["explain"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["because"], "no room is left in test:calls");
    let kinds: Vec<String> = fixture.events().into_iter().map(|event| event.kind).collect();
    let count = |kind: &str| kinds.iter().filter(|known| *known == kind).count();
    assert_eq!((count("intent_decided"), count("usage_observed")), (2, 1));
    assert_eq!(fixture.world.times(), 1);
}

#[tokio::test]
async fn a_start_from_a_snapshot_is_the_start_from_all_events() {
    let fixture = Fixture::with(|parts| Parts { governor: notes(5), ..parts }).await;
    for text in ["a", "b", "c"] {
        fixture.call(fixture.plain("note.add", text)).await.unwrap();
    }
    // Events of all kinds count for when a snapshot is due.
    let event = |number: u64| {
        let payload = json!({"n": number});
        NewEvent::new(
            tollgate_contract::event::Event::SystemStarted,
            NOON,
            Subject::default(),
            &payload,
        )
        .unwrap()
    };
    for start in (0..100_000).step_by(1000) {
        fixture.gate.ledger().append((start..start + 1000).map(event).collect::<Vec<_>>()).unwrap();
    }
    let file = fixture.folder.path().join("governor.snapshot");
    while !file.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fixture.call(fixture.plain("note.add", "after it")).await.unwrap();
    let used =
        |gate: &Gate| gate.governing().pools().iter().map(|pool| pool.reading.used).sum::<u64>();
    assert_eq!(used(&fixture.gate), 4);
    let Fixture { folder, gate, world, clock, .. } = fixture;
    drop(gate);
    let again =
        || open(folder.path(), &world, &clock, |parts| Parts { governor: notes(5), ..parts });
    assert_eq!(used(&again()), 4);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(used(&again()), 4);
    // One that is of another ledger, or damaged, is not believed.
    std::fs::write(&file, b"{}").unwrap();
    assert_eq!(used(&again()), 4);
}

#[tokio::test]
async fn the_record_is_redacted_and_the_caller_gets_the_raw_output() {
    let fixture = Fixture::new().await;
    let secret = format!("sk-ant-{}", "a1B2".repeat(12));
    let result = fixture.call(fixture.plain("demo.echo", &secret)).await.unwrap();
    assert_eq!(result.output["said"], secret.as_str());
    for event in fixture.events() {
        assert!(!event.payload.contains(&secret), "{}", event.payload);
    }
    fixture.call(fixture.plain("demo.echo", &"x".repeat(100_000))).await.unwrap();
    assert!(fixture.last()["output"]["omitted"]["sha256"].is_string());
}

#[tokio::test]
async fn what_somebody_without_a_key_sends_is_not_kept() {
    let fixture = Fixture::new().await;
    let mut call = fixture.plain("note.add", "a great deal of text");
    call.caller.identity = Identity::Anonymous;
    assert_eq!(code(&fixture.call(call).await), ErrorCode::MissingApiKey);
    let last = fixture.last();
    assert_eq!(last["error"]["code"], "MISSING_API_KEY");
    assert!(!last.to_string().contains("a great deal"), "{last}");
}

#[tokio::test]
async fn events_come_in_the_order_of_the_rfc() {
    let fixture = Fixture::new().await;
    let names = async |call: Call| -> Vec<&'static str> {
        let heard: Arc<Mutex<Vec<RunEvent>>> = Arc::default();
        let ear = Arc::clone(&heard);
        let observer = Arc::new(move |event| ear.lock().unwrap().push(event));
        let options = CallOptions { observer: Some(observer), ..CallOptions::default() };
        let _ = fixture.gate.call(call, options).await;
        let heard = heard.lock().unwrap();
        assert!(heard.iter().all(|event| event.call_id == heard[0].call_id));
        heard.iter().map(|event| event.name).collect()
    };
    let before = ["run.started", "tool.resolved", "policy.checked", "tool.started"];
    let whole = [&before[..], &["tool.completed", "run.completed"]].concat();
    assert_eq!(names(fixture.plain("note.add", "a")).await, whole);
    let failed = [&before[..], &["tool.failed", "run.failed"]].concat();
    assert_eq!(names(fixture.plain("note.fails", "a")).await, failed);
    let unknown = names(fixture.plain("get_world_state", "a")).await;
    assert_eq!(unknown, ["run.started", "run.failed"]);
    let mut anonymous = fixture.plain("note.add", "a");
    anonymous.caller.identity = Identity::Anonymous;
    assert_eq!(names(anonymous).await, ["run.started", "tool.resolved", "run.failed"]);
}

#[tokio::test]
async fn a_policy_that_a_key_names_and_that_is_gone_lets_nothing_through() {
    let fixture = Fixture::new().await;
    let mine = "[policies.mine]\nmaxSideEffect = \"user_write\"\n";
    fixture.gate.apply_policies(PolicySet::parse(mine, Format::Toml).unwrap()).await.unwrap();
    let spec = KeySpec { policy: PolicyRef::Named("mine".to_owned()), ..may_write() };
    let (_, key) = fixture.gate.create_key(None, spec).await.unwrap();
    assert!(fixture.call(fixture.of(&key, "note.add", "a")).await.is_ok());
    fixture.gate.apply_policies(PolicySet::default()).await.unwrap();
    let refused = fixture.call(fixture.of(&key, "note.add", "a")).await;
    assert_eq!(code(&refused), ErrorCode::PermissionNotGranted);
    assert_eq!(fixture.gate.missing_policies(), [("writer".to_owned(), "mine".to_owned())]);
}

/// Somebody who holds the database and does not let go.
fn occupy(fixture: &Fixture) -> rusqlite::Connection {
    let other = rusqlite::Connection::open(fixture.folder.path().join("tollgate.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

#[tokio::test]
async fn without_a_ledger_nothing_is_let_through_and_it_recovers() {
    let fixture = Fixture::new().await;
    let other = occupy(&fixture);
    let effect = fixture.call(fixture.plain("note.add", "a")).await;
    assert_eq!(code(&effect), ErrorCode::LedgerUnavailable);
    assert_eq!(fixture.world.times(), 0);
    let read = fixture.call(fixture.plain("demo.echo", "a")).await;
    assert_eq!(code(&read), ErrorCode::LedgerUnavailable);
    let refused = fixture.call(fixture.plain("no.such", "a")).await;
    assert_eq!(code(&refused), ErrorCode::UnknownTool);
    assert_eq!(fixture.gate.health(), Health::Degraded);
    other.execute_batch("ROLLBACK").unwrap();
    assert!(fixture.call(fixture.plain("note.add", "a")).await.is_ok());
    assert_eq!(fixture.gate.health(), Health::Ok);
    assert_eq!(fixture.gate.read(|reader| reader.verify(None)).unwrap().broken, None);
}

#[tokio::test]
async fn an_effect_whose_end_cannot_be_recorded_is_unknown_to_its_caller() {
    let fixture = Fixture::new().await;
    let running = fixture.spawn(fixture.keyed("note.slow", "k", "a"));
    fixture.world.has_run().await;
    let other = occupy(&fixture);
    fixture.world.proceed.add_permits(1);
    assert_eq!(code(&running.await.unwrap()), ErrorCode::OutcomeUnknown);
    other.execute_batch("ROLLBACK").unwrap();
    let again = fixture.call(fixture.keyed("note.slow", "k", "a")).await;
    assert_eq!(code(&again), ErrorCode::OutcomeUnknown);
    assert_eq!(fixture.world.times(), 1);
}
