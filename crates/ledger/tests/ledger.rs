//! The ledger as its users meet it: it keeps what it acknowledged, in order, and shows every change.

#![cfg(test)]

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex, mpsc},
    thread,
};

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_contract::event::Event;
use tollgate_ledger::{
    Broken, EventHash, Head, Ledger, LedgerError, NewEvent, Snapshot, Subject, Sync,
};

fn event(number: u64) -> NewEvent {
    let subject = Subject { tool: Some("system.time".into()), ..Subject::default() };
    NewEvent::new(Event::CallStarted, 1_700_000_000_000, subject, &json!({"n": number})).unwrap()
}

fn open(folder: &TempDir) -> Ledger {
    Ledger::open(folder.path(), Sync::Process).unwrap()
}

/// Changes the stored bytes behind the ledger's back.
fn tamper(folder: &TempDir, sql: &str) {
    let connection = Connection::open(folder.path().join("tollgate.db")).unwrap();
    assert!(connection.execute(sql, []).unwrap() > 0);
}

fn numbers(ledger: &Ledger) -> Vec<u64> {
    let read = ledger.reader().unwrap().tail(0, u64::MAX).unwrap();
    read.iter()
        .map(|event| serde_json::from_str::<Value>(&event.payload).unwrap()["n"].as_u64().unwrap())
        .collect()
}

#[test]
fn what_was_acknowledged_is_there_after_closing_and_opening() {
    let folder = TempDir::new().unwrap();
    let ledger = open(&folder);
    assert_eq!(ledger.head(), Head::EMPTY);
    let first = ledger.append(vec![event(1), event(2)]).unwrap();
    assert_eq!(first.iter().map(|a| a.seq).collect::<Vec<_>>(), [1, 2]);
    let head = ledger.head();
    drop(ledger);
    let again = open(&folder);
    assert_eq!(again.head(), head);
    assert_eq!(again.append(vec![event(3)]).unwrap()[0].seq, 3);
    assert_eq!(numbers(&again), [1, 2, 3]);
    let verified = again.reader().unwrap().verify(Some(head)).unwrap();
    assert_eq!((verified.events, verified.broken, verified.head), (3, None, again.head()));
}

#[test]
fn many_writers_at_once_lose_and_mix_nothing() {
    let folder = TempDir::new().unwrap();
    let ledger = open(&folder);
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    thread::scope(|scope| {
        for writer in 0..8_u64 {
            let (ledger, seen) = (ledger.clone(), Arc::clone(&seen));
            scope.spawn(move || {
                for turn in 0..50 {
                    let pair = vec![event(writer * 1000 + turn), event(writer * 1000 + turn)];
                    let appended = ledger.append(pair).unwrap();
                    // Events that are handed over together stand together.
                    assert_eq!(appended[0].seq + 1, appended[1].seq);
                    let mut seen = seen.lock().unwrap();
                    assert!(appended.iter().all(|a| seen.insert(a.seq)), "no place is given twice");
                }
            });
        }
    });
    assert_eq!(ledger.head().seq, 800);
    let verified = ledger.reader().unwrap().verify(None).unwrap();
    assert_eq!((verified.events, verified.broken), (800, None));
}

#[test]
fn one_process_at_a_time_has_a_data_folder() {
    let folder = TempDir::new().unwrap();
    let ledger = open(&folder);
    let Err(error) = Ledger::open(folder.path(), Sync::Process) else { panic!("opened twice") };
    assert!(matches!(error, LedgerError::InUse(_)), "{error}");
    assert!(error.to_string().contains("in use by another tollgate"), "{error}");
    drop(ledger);
    assert!(Ledger::open(folder.path(), Sync::Process).is_ok());
}

#[test]
fn every_change_of_a_stored_event_shows() {
    for (column, value) in [
        ("ts", "ts + 1"),
        ("kind", "'call_failed'"),
        ("agent_id", "'somebody'"),
        ("identity_id", "''"),
        ("workload_id", "'w'"),
        ("scope_id", "'s'"),
        ("tool", "NULL"),
        ("intent_id", "'i'"),
        ("payload", "'{\"n\":7}'"),
    ] {
        let folder = TempDir::new().unwrap();
        let ledger = open(&folder);
        ledger.append((1..=5).map(event).collect::<Vec<_>>()).unwrap();
        tamper(&folder, &format!("UPDATE events SET {column} = {value} WHERE seq = 3"));
        let verified = ledger.reader().unwrap().verify(None).unwrap();
        assert_eq!(verified.broken, Some(Broken::Changed { seq: 3 }), "{column}");
        assert_eq!(verified.events, 2, "{column}");
    }
}

#[test]
fn a_missing_a_moved_and_a_forged_event_show() {
    let broken = |sql: &str| {
        let folder = TempDir::new().unwrap();
        let ledger = open(&folder);
        ledger.append((1..=5).map(event).collect::<Vec<_>>()).unwrap();
        tamper(&folder, sql);
        ledger.reader().unwrap().verify(None).unwrap().broken
    };
    assert_eq!(
        broken("DELETE FROM events WHERE seq = 2"),
        Some(Broken::Gap { expected: 2, found: 3 })
    );
    assert_eq!(
        broken("DELETE FROM events WHERE seq = 1"),
        Some(Broken::Gap { expected: 1, found: 2 })
    );
    assert_eq!(
        broken("UPDATE events SET prev_hash = zeroblob(32) WHERE seq = 4"),
        Some(Broken::Unchained { seq: 4 })
    );
    assert_eq!(
        broken("UPDATE events SET hash = zeroblob(32) WHERE seq = 4"),
        Some(Broken::Changed { seq: 4 })
    );
}

#[test]
fn a_ledger_that_was_cut_or_written_anew_shows_against_an_earlier_head() {
    let folder = TempDir::new().unwrap();
    let ledger = open(&folder);
    ledger.append((1..=5).map(event).collect::<Vec<_>>()).unwrap();
    let earlier = ledger.head();
    tamper(&folder, "DELETE FROM events WHERE seq > 3");
    let reader = ledger.reader().unwrap();
    assert_eq!(reader.verify(None).unwrap().broken, None, "it hangs together in itself");
    assert_eq!(
        reader.verify(Some(earlier)).unwrap().broken,
        Some(Broken::Truncated { expected: 5, found: 3 })
    );

    let other = TempDir::new().unwrap();
    let rewritten = open(&other);
    rewritten.append((11..=16).map(event).collect::<Vec<_>>()).unwrap();
    let reader = rewritten.reader().unwrap();
    assert_eq!(reader.verify(Some(earlier)).unwrap().broken, Some(Broken::Rewritten { seq: 5 }));
}

#[test]
fn a_failed_commit_fails_everything_in_it_and_the_chain_goes_on() {
    let folder = TempDir::new().unwrap();
    let ledger = open(&folder);
    ledger.append(vec![event(1)]).unwrap();
    let before = ledger.head();
    // Somebody else holds the database: the writer gets a refusal at once.
    let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (send, receive) = mpsc::channel();
    for number in [2, 3] {
        let send = send.clone();
        ledger.append_then(vec![event(number)], move |result| send.send(result).unwrap());
    }
    for _ in 0..2 {
        assert!(matches!(receive.recv().unwrap(), Err(LedgerError::Database(_))));
    }
    assert_eq!(ledger.head(), before);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(ledger.append(vec![event(4)]).unwrap()[0].seq, 2);
    assert_eq!(numbers(&ledger), [1, 4]);
    assert_eq!(ledger.reader().unwrap().verify(Some(before)).unwrap().broken, None);
}

#[test]
fn the_tail_can_be_read_from_any_place() {
    let folder = TempDir::new().unwrap();
    let ledger = open(&folder);
    ledger.append((1..=10).map(event).collect::<Vec<_>>()).unwrap();
    let reader = ledger.reader().unwrap();
    let seqs =
        |after, limit| reader.tail(after, limit).unwrap().iter().map(|e| e.seq).collect::<Vec<_>>();
    assert_eq!(seqs(0, 3), [1, 2, 3]);
    assert_eq!(seqs(8, 100), [9, 10]);
    assert_eq!(seqs(10, 100), [0; 0]);
    assert_eq!(seqs(u64::MAX, u64::MAX), [0; 0]);
}

#[test]
fn an_export_has_every_field_and_the_payload_as_it_is_stored() {
    let folder = TempDir::new().unwrap();
    let ledger = open(&folder);
    ledger.append(vec![event(1), event(2)]).unwrap();
    let mut bytes = Vec::new();
    assert_eq!(ledger.reader().unwrap().export(&mut bytes).unwrap(), 2);
    let lines: Vec<Value> = String::from_utf8(bytes)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let keys: Vec<&String> = lines[0].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "seq",
            "ts",
            "kind",
            "agent_id",
            "identity_id",
            "workload_id",
            "scope_id",
            "tool",
            "intent_id",
            "payload",
            "prev_hash",
            "hash"
        ]
    );
    assert_eq!(lines[0]["prev_hash"], EventHash::GENESIS.to_string());
    assert_eq!(lines[1]["prev_hash"], lines[0]["hash"]);
    assert_eq!(lines[1]["payload"], json!({"n": 2}));
}

#[test]
fn a_snapshot_is_read_by_the_format_that_wrote_it() {
    let folder = TempDir::new().unwrap();
    let ledger = open(&folder);
    let snapshot = |seq, state: &[u8]| Snapshot {
        name: "pools".to_owned(),
        format: 1,
        seq,
        state: state.to_vec(),
    };
    ledger.keep(snapshot(5, b"old")).unwrap();
    ledger.keep(snapshot(9, b"new")).unwrap();
    let reader = ledger.reader().unwrap();
    assert_eq!(reader.snapshot("pools", 1).unwrap(), Some(snapshot(9, b"new")));
    assert_eq!(reader.snapshot("pools", 2).unwrap(), None);
    assert_eq!(reader.snapshot("keys", 1).unwrap(), None);
}

fn refused(folder: &Path) -> LedgerError {
    match Ledger::open(folder, Sync::Process) {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[test]
fn a_folder_that_is_newer_foreign_or_unusable_is_refused_and_left_alone() {
    let folder = TempDir::new().unwrap();
    drop(open(&folder));
    let file = folder.path().join("tollgate.db");
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(refused(folder.path()), LedgerError::Newer { found: 99, .. }));

    let foreign = TempDir::new().unwrap();
    let connection = Connection::open(foreign.path().join("tollgate.db")).unwrap();
    connection.execute_batch("CREATE TABLE mine (x)").unwrap();
    drop(connection);
    assert!(matches!(refused(foreign.path()), LedgerError::NotALedger { .. }));

    let garbage = TempDir::new().unwrap();
    std::fs::write(
        garbage.path().join("tollgate.db"),
        "this is no database, it is a text file\n".repeat(100),
    )
    .unwrap();
    assert!(matches!(refused(garbage.path()), LedgerError::NotALedger { .. }));

    let file = garbage.path().join("tollgate.db");
    assert!(matches!(refused(&file), LedgerError::Folder { .. }), "a file is no folder");
}

#[cfg(unix)]
#[test]
fn a_new_data_folder_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let parent = TempDir::new().unwrap();
    let folder = parent.path().join("a/b");
    drop(Ledger::open(&folder, Sync::Full).unwrap());
    let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn what_is_not_kept_in_the_ledger_cannot_be_appended() {
    assert!(NewEvent::new(Event::ModelRequested, 0, Subject::default(), &json!({})).is_err());
}

/// Not a test of its own: what the test below kills. It appends for ever and says what was acknowledged.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let ledger = Ledger::open(Path::new(&folder), Sync::Process).unwrap();
    for number in 0.. {
        let head = ledger.append(vec![event(number), event(number)]).unwrap()[1];
        println!("acknowledged {} {}", head.seq, head.hash);
    }
}

const CHILD: &str = "TOLLGATE_LEDGER_TEST_CHILD";

#[test]
fn kill_9_loses_nothing_that_was_acknowledged() {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    let folder = TempDir::new().unwrap();
    let mut last = Head::EMPTY;
    for round in 1..=6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_appends_until_it_is_killed", "--nocapture"])
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // Killed in the middle of it, after another number of acknowledgements each time.
        let seen = lines.filter(|line| line.contains("acknowledged ")).nth(round * 17).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged: u64 = seen.split_whitespace().rev().nth(1).unwrap().parse().unwrap();

        let ledger = open(&folder);
        assert!(ledger.head().seq >= acknowledged && acknowledged > last.seq, "round {round}");
        let reader = ledger.reader().unwrap();
        let verified = reader.verify(Some(last)).unwrap();
        assert_eq!((verified.broken, verified.head), (None, ledger.head()), "round {round}");
        let kept = &reader.tail(acknowledged - 1, 1).unwrap()[0];
        assert!(seen.ends_with(&kept.hash.to_string()), "round {round}: {seen}");
        last = ledger.head();
    }
}
