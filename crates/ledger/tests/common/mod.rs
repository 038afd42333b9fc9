//! What several test files need.

#![allow(dead_code, reason = "every test file uses another part of it")]

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use tollgate_contract::event::Event;
use tollgate_ledger::{Ledger, NewEvent, Reader, Subject, Sync};

/// Says to a test in a child process which folder it is to work in.
pub(crate) const CHILD: &str = "TOLLGATE_LEDGER_TEST_CHILD";

pub(crate) fn subject(tool: Option<&str>) -> Subject {
    Subject { tool: tool.map(Into::into), ..Subject::default() }
}

pub(crate) fn told(kind: Event, ts_ms: i64, tool: &str, payload: &Value) -> NewEvent {
    NewEvent::new(kind, ts_ms, subject(Some(tool)), payload).unwrap()
}

pub(crate) fn event(number: u64) -> NewEvent {
    told(Event::CallStarted, 1_700_000_000_000, "system.time", &json!({ "n": number }))
}

pub(crate) fn open(folder: &Path) -> Ledger {
    Ledger::open(folder, Sync::Process).unwrap()
}

/// The whole chain hangs together, and has this many events.
pub(crate) fn verified(reader: &Reader) -> u64 {
    let verified = reader.verify(None).unwrap();
    assert_eq!(verified.broken, None);
    verified.events
}

/// Runs the test `name` of this file in a process of its own.
pub(crate) fn child(name: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the child once it has said `word` for the `times`th time, and gives the number behind it.
pub(crate) fn kill_after(mut child: Child, word: &str, times: usize) -> u64 {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let seen = lines.filter(|line| line.contains(word)).nth(times).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    seen.split_whitespace().next_back().unwrap().parse().unwrap()
}
