//! kill -9 in the middle of calls that really change something. A child process runs them, tells what was
//! acknowledged, and is killed; what is on disk must then hold together.

#![cfg(test)]

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tollgate_contract::{
    Behaviours, Call, Caller, CostEffect, Declaration, ErrorCode, Mode, Mutation, Permission,
    Secret, SideEffect, Surface, Urgency,
};
use tollgate_gate::{
    CallOptions, Gate, Packs, Parts, Settings,
    keys::{KeySpec, PolicyRef, Role},
};
use tollgate_ledger::{Ledger, Sync};
use tollgate_policy::Policy;

/// How many calls the child makes, if it lives that long.
const CALLS: usize = 2_000;
/// How many of them at a time.
const AT_A_TIME: usize = 16;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Line {
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Written {
    text: String,
}

/// A gate whose one tool adds a line to `notes.txt`: the effect that must not happen twice.
fn gate(folder: &Path) -> Gate {
    let declared = Declaration::<Line, Written>::new("note.add", "Adds a line to a file.")
        .permissions([Permission::WRITE])
        .behaviours(Behaviours { mutation: Mutation::UserState, ..Behaviours::NONE })
        .effects(SideEffect::UserWrite, CostEffect::None)
        .build()
        .unwrap();
    let file = folder.join("notes.txt");
    let packs = Packs::new().add(declared, move |input: Line, _| {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(&file).unwrap();
        async move {
            // Between what is recorded and what is done the process may die at any moment.
            tokio::task::yield_now().await;
            file.write_all(format!("{}\n", input.text).as_bytes()).unwrap();
            tokio::task::yield_now().await;
            Ok(Written { text: input.text })
        }
    });
    let ledger = Ledger::open(folder, Sync::Process).unwrap();
    Gate::open(Parts::new(ledger, packs.build().unwrap(), Settings::new(folder))).unwrap()
}

fn call(gate: &Gate, key: &Secret, name: &str) -> Call {
    Call {
        caller: Caller {
            surface: Surface::Agent,
            mode: Mode::Live,
            identity: gate.identify(Some(key)).identity(),
        },
        tool: "note.add".to_owned(),
        input: json!({"text": name}),
        scope: None,
        urgency: Urgency::Normal,
        session: None,
        idempotency_key: Some(name.to_owned()),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// The child: not a test of its own.
#[test]
#[ignore = "it is started by the test below, and killed by it"]
fn the_child_calls_until_it_is_killed() {
    let folder = std::path::PathBuf::from(std::env::var("TOLLGATE_TEST_FOLDER").unwrap());
    let round = std::env::var("TOLLGATE_TEST_ROUND").unwrap();
    let key = Secret::new(std::fs::read_to_string(folder.join("key")).unwrap());
    runtime().block_on(async {
        let gate = gate(&folder);
        let key = Arc::new(key);
        let room = Arc::new(tokio::sync::Semaphore::new(AT_A_TIME));
        for number in 0..CALLS {
            let permit = Arc::clone(&room).acquire_owned().await.unwrap();
            let (gate, key, name) = (gate.clone(), Arc::clone(&key), format!("{round}-{number}"));
            tokio::spawn(async move {
                let result = gate.call(call(&gate, &key, &name), CallOptions::default()).await;
                let id = result.unwrap().call_id;
                // One write: the parent reads whole lines or nothing.
                std::io::stdout().write_all(format!("ack {name} {id}\n").as_bytes()).unwrap();
                drop(permit);
            });
        }
    });
}

#[test]
fn an_effect_never_happens_twice_and_nothing_that_was_acknowledged_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let key = {
        let gate = gate(folder.path());
        let policy = Policy { max_side_effect: Some(SideEffect::UserWrite), ..Policy::default() };
        let policy = PolicyRef::Inline(Box::new(policy));
        let spec = KeySpec { policy, ..KeySpec::for_role("writer", Role::Agent) };
        runtime().block_on(gate.create_key(None, spec)).unwrap().1
    };
    std::fs::write(folder.path().join("key"), key.expose()).unwrap();
    let mut acknowledged: BTreeMap<String, String> = BTreeMap::new();
    // Killed after so many acknowledgements: early, late, and in between.
    for (round, after) in [1, 40, 7, 300, 25, 900, 3, 120].into_iter().enumerate() {
        acknowledged.extend(until_killed(folder.path(), round, after));
    }
    let lines = || -> BTreeMap<String, usize> {
        let text = std::fs::read_to_string(folder.path().join("notes.txt")).unwrap();
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        counts
    };
    let before = lines();
    assert!(before.values().all(|count| *count == 1), "something was written twice: {before:?}");
    let gate = gate(folder.path());
    let events = gate.read(|reader| {
        assert_eq!(reader.verify(None)?.broken, None);
        reader.tail(0, 1_000_000)
    });
    let events = events.unwrap();
    let of_kind = |kind: &str| -> BTreeSet<String> {
        let payload = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
        let id = |value: &Value| value["callId"].as_str().unwrap().to_owned();
        events.iter().filter(|e| e.kind == kind).map(|e| id(&payload(&e.payload))).collect()
    };
    let (started, completed, failed) =
        (of_kind("call_started"), of_kind("call_completed"), of_kind("call_failed"));
    for (name, id) in &acknowledged {
        assert!(completed.contains(id), "{name} was acknowledged and is not recorded");
        assert_eq!(before.get(name), Some(&1), "{name} was acknowledged and did not happen");
    }
    // Every start has one end, and what was interrupted is unknown.
    assert!(completed.is_disjoint(&failed));
    assert_eq!(started, completed.union(&failed).cloned().collect());
    assert!(!failed.is_empty(), "no kill hit a running call; the test shows nothing");
    // Every line has a start before it: nothing happened without a record.
    assert!(before.len() <= started.len());
    runtime().block_on(async {
        for name in before.keys() {
            match gate.call(call(&gate, &key, name), CallOptions::default()).await {
                Ok(result) => assert!(result.replayed, "{name} ran again"),
                Err(failure) => {
                    assert_eq!(failure.code(), Some(ErrorCode::OutcomeUnknown), "{name}")
                }
            }
        }
        for (name, id) in &acknowledged {
            let result = gate.call(call(&gate, &key, name), CallOptions::default()).await.unwrap();
            assert_eq!(result.call_id.to_string(), *id);
        }
    });
    assert_eq!(lines(), before);
}

/// Runs the child until it has acknowledged `after` calls, and kills it.
fn until_killed(folder: &Path, round: usize, after: usize) -> BTreeMap<String, String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child_calls_until_it_is_killed", "--ignored", "--nocapture"])
        .env("TOLLGATE_TEST_FOLDER", folder)
        .env("TOLLGATE_TEST_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = BTreeMap::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The harness writes on the same line, before the first.
        let Some((_, told)) = line.split_once("ack ") else { continue };
        let (name, id) = told.split_once(' ').unwrap();
        acknowledged.insert(name.to_owned(), id.to_owned());
        if acknowledged.len() == after {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(acknowledged.len() >= after, "the child ended early");
    acknowledged
}
