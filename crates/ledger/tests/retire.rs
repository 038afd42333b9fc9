//! Retired events go, and the chain still shows that nobody else removed anything.

#![cfg(test)]

mod common;

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use common::{CHILD, child, event, kill_after, open, subject, told, verified};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_contract::event::Event;
use tollgate_ledger::{
    Broken, CallQuery, EventQuery, Head, Ledger, LedgerError, NewEvent, Reader, TrendQuery,
};

const SOON: Duration = Duration::from_secs(30);

fn events(count: u64) -> Vec<NewEvent> {
    (1..=count).map(event).collect()
}

/// Waits until the first event is this one.
fn begins_with(ledger: &Ledger, first: u64) {
    let reader = ledger.reader().unwrap();
    let deadline = Instant::now() + SOON;
    while reader.first_seq().unwrap() != first {
        assert!(Instant::now() < deadline, "it begins with {}", reader.first_seq().unwrap());
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn state(head: Head) -> String {
    json!({ "after": head.seq }).to_string()
}

fn tamper(folder: &Path, sql: &str) {
    let connection = Connection::open(folder.join("tollgate.db")).unwrap();
    assert!(connection.execute(sql, []).unwrap() > 0, "{sql}");
}

fn seqs(reader: &Reader) -> Vec<u64> {
    reader.tail(0, u64::MAX).unwrap().iter().map(|event| event.seq).collect()
}

#[test]
fn events_are_retired_and_what_is_left_verifies() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let reader = ledger.reader().unwrap();
    assert_eq!((reader.first_seq().unwrap(), reader.last_checkpoint().unwrap()), (1, None));
    ledger.append(events(1000)).unwrap();
    let hash = reader.tail(699, 1).unwrap()[0].hash;
    let before = ledger.head();
    let checkpoint = ledger.retire(7, 700, state).unwrap();
    assert_eq!((checkpoint.seq, checkpoint.hash), (1001, ledger.head().hash));
    begins_with(&ledger, 701);
    ledger.append(events(2)).unwrap();

    let last = reader.last_checkpoint().unwrap().unwrap();
    assert_eq!((last.seq, last.ts_ms, last.kind.as_str()), (1001, 7, "checkpoint"));
    let payload: Value = serde_json::from_str(&last.payload).unwrap();
    let through = json!({ "seq": 700, "hash": hash.to_string() });
    assert_eq!(payload, json!({ "through": through, "state": { "after": 1000 } }));

    let verified = reader.verify(Some(before)).unwrap();
    assert_eq!(
        (verified.events, verified.retired, verified.head, verified.broken),
        (303, 700, ledger.head(), None)
    );
    assert_eq!(seqs(&reader), (701..=1003).collect::<Vec<_>>());
    assert_eq!(reader.newest(None, 1000).unwrap().len(), 303);
    let mut exported = Vec::new();
    assert_eq!(reader.export(&mut exported).unwrap(), 303);
    assert!(String::from_utf8(exported).unwrap().starts_with("{\"seq\":701,"));

    // A second time, over the first checkpoint, and after a new start.
    drop((reader, ledger));
    let ledger = open(folder.path());
    ledger.retire(8, 1002, |_| "null".to_owned()).unwrap();
    begins_with(&ledger, 1003);
    let reader = ledger.reader().unwrap();
    assert_eq!(reader.last_checkpoint().unwrap().unwrap().seq, 1004);
    let verified = reader.verify(None).unwrap();
    assert_eq!((verified.events, verified.retired, verified.broken), (2, 1002, None));
}

#[test]
fn an_earlier_head_is_compared_as_far_as_its_event_is_there() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let mut heads = vec![Head::EMPTY];
    for number in 1..=20 {
        ledger.append(vec![event(number)]).unwrap();
        heads.push(ledger.head());
    }
    ledger.retire(0, 10, state).unwrap();
    begins_with(&ledger, 11);
    let reader = ledger.reader().unwrap();
    let broken = |head: Head| reader.verify(Some(head)).unwrap().broken;
    // The last that was retired is known by its hash, and none before it.
    for (seq, head) in heads.iter().enumerate() {
        let seq = u64::try_from(seq).unwrap();
        let expected = (0 < seq && seq < 10).then_some(Broken::Retired { seq, first: 11 });
        assert_eq!(broken(*head), expected);
    }
    for seq in [10, 15] {
        let forged = Head { seq, hash: heads[3].hash };
        assert_eq!(broken(forged), Some(Broken::Rewritten { seq }));
    }
    let later = Head { seq: 22, hash: heads[3].hash };
    assert_eq!(broken(later), Some(Broken::Truncated { expected: 22, found: 21 }));
}

#[test]
fn a_gap_that_no_checkpoint_vouches_for_is_one() {
    let broken = |change: &dyn Fn(&Path)| {
        let folder = TempDir::new().unwrap();
        let ledger = open(folder.path());
        ledger.append(events(100)).unwrap();
        ledger.retire(0, 50, state).unwrap();
        begins_with(&ledger, 51);
        assert_eq!(ledger.reader().unwrap().verify(None).unwrap().broken, None);
        change(folder.path());
        let verified = ledger.reader().unwrap().verify(None).unwrap();
        assert_eq!(verified.retired, if verified.broken.is_some() { 0 } else { 50 });
        verified.broken
    };
    let gap = |expected, found| Some(Broken::Gap { expected, found });
    assert_eq!(broken(&|folder| tamper(folder, "DELETE FROM events WHERE seq = 51")), gap(1, 52));
    assert_eq!(broken(&|folder| tamper(folder, "DELETE FROM events WHERE seq < 90")), gap(1, 90));
    assert_eq!(broken(&|folder| tamper(folder, "DELETE FROM events WHERE seq = 60")), gap(60, 61));
    // Without the checkpoint nobody vouches.
    assert_eq!(broken(&|folder| tamper(folder, "DELETE FROM events WHERE seq > 100")), gap(1, 51));
    // A checkpoint that was changed is an event that was changed.
    assert_eq!(
        broken(&|folder| {
            tamper(
                folder,
                "UPDATE events SET payload = replace(payload, '\"seq\":50', '\"seq\":51') WHERE seq = 101",
            );
            tamper(folder, "DELETE FROM events WHERE seq = 51");
        }),
        Some(Broken::Changed { seq: 101 })
    );
    // The event that is vouched for is known by its hash: another one that says so is found out.
    assert_eq!(
        broken(&|folder| tamper(
            folder,
            "UPDATE events SET prev_hash = zeroblob(32) WHERE seq = 51"
        )),
        Some(Broken::Changed { seq: 51 })
    );
}

#[test]
fn a_checkpoint_that_lies_about_what_it_retires_vouches_for_nothing() {
    for through in [
        json!({ "seq": 10, "hash": "0".repeat(64) }),
        json!({ "seq": 9, "hash": "0".repeat(64) }),
        json!({ "seq": 1000, "hash": "0".repeat(64) }),
        json!({ "seq": 10 }),
        json!("10"),
    ] {
        let folder = TempDir::new().unwrap();
        let ledger = open(folder.path());
        ledger.append(events(20)).unwrap();
        let payload = json!({ "through": through, "state": null });
        let lie = NewEvent::new(Event::Checkpoint, 0, subject(None), &payload).unwrap();
        ledger.append(vec![lie]).unwrap();
        tamper(folder.path(), "DELETE FROM events WHERE seq <= 10");
        assert_eq!(
            ledger.reader().unwrap().verify(None).unwrap().broken,
            Some(Broken::Gap { expected: 1, found: 11 })
        );
    }
}

#[test]
fn what_cannot_be_retired_is_refused_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append(events(10)).unwrap();
    let failures = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&failures);
    ledger.on_failure(move |head| seen.lock().unwrap().push(head.seq));
    for through in [0, 10, 11, u64::MAX] {
        let refused = ledger.retire(0, through, state);
        assert!(matches!(refused, Err(LedgerError::Retire(_))), "{through}: {refused:?}");
    }
    let refused = ledger.retire(0, 5, |_| "{no json".to_owned());
    assert!(matches!(refused, Err(LedgerError::Event(_))));
    let refused = ledger.retire(0, 5, |_| format!("\"{}\"", "x".repeat(17 * 1024 * 1024)));
    assert!(matches!(refused, Err(LedgerError::TooLarge { .. })));
    assert_eq!(*failures.lock().unwrap(), [0; 0]);
    let refused = ledger.retire(0, 5, |_| panic!("somebody who panics"));
    assert!(matches!(refused, Err(LedgerError::Unmade)));
    assert_eq!(*failures.lock().unwrap(), [10]);
    assert_eq!(ledger.head().seq, 10);
    assert_eq!(verified(&ledger.reader().unwrap()), 10);

    // A commit that fails retires nothing.
    let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(matches!(ledger.retire(0, 5, state), Err(LedgerError::Database(_))));
    other.execute_batch("ROLLBACK").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(ledger.reader().unwrap().first_seq().unwrap(), 1);
    ledger.retire(0, 5, state).unwrap();
    begins_with(&ledger, 6);
    assert!(matches!(ledger.retire(0, 5, state), Err(LedgerError::Retire(_))));
}

#[test]
fn the_state_of_a_checkpoint_is_that_of_everything_before_it() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append(events(10)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for number in 0..200 {
                    ledger.append(vec![event(number); 3]).unwrap();
                }
            });
        }
        for through in 1..=20 {
            let deadline = Instant::now() + SOON;
            loop {
                match ledger.retire(0, through * 5, state) {
                    Ok(_) => break,
                    Err(_) => assert!(Instant::now() < deadline),
                }
            }
        }
    });
    let mut checkpoints = 0;
    for event in ledger.reader().unwrap().tail(0, u64::MAX).unwrap() {
        if event.kind == "checkpoint" {
            let payload: Value = serde_json::from_str(&event.payload).unwrap();
            assert_eq!(payload["state"]["after"], event.seq - 1);
            checkpoints += 1;
        }
    }
    assert!(checkpoints > 0);
    begins_with(&ledger, 101);
    assert_eq!(ledger.reader().unwrap().verify(None).unwrap().broken, None);
}

#[test]
fn what_is_retired_is_read_and_verified_at_any_moment_of_its_removal() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append(events(6000)).unwrap();
    ledger.retire(0, 5500, state).unwrap();
    let reader = ledger.reader().unwrap();
    let mut seen = 0;
    while reader.first_seq().unwrap() <= 5500 {
        let verified = reader.verify(None).unwrap();
        assert_eq!((verified.broken, verified.head), (None, ledger.head()));
        assert_eq!(verified.events + verified.retired, 6001);
        seen += 1;
        let mut lines = Vec::new();
        match reader.export(&mut lines) {
            Ok(count) => assert!(count >= 501),
            Err(error) => assert!(matches!(error, LedgerError::Removed), "{error:?}"),
        }
        ledger.append(vec![]).unwrap();
    }
    assert!(seen > 1, "it went in steps");
    begins_with(&ledger, 5501);
}

/// Whether any file in the folder has these bytes.
fn on_disk(folder: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|file| {
        let content = std::fs::read(file.unwrap().path()).unwrap();
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn what_is_retired_disappears_from_the_disk() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let secret = |text: &str| told(Event::CallStarted, 0, "t", &json!({ "text": text }));
    ledger.append(vec![secret("what-was-said-long-ago"), secret("what-was-said-now")]).unwrap();
    assert!(on_disk(folder.path(), b"what-was-said-long-ago"));
    ledger.retire(0, 1, state).unwrap();
    let deadline = Instant::now() + SOON;
    while on_disk(folder.path(), b"what-was-said-long-ago") {
        assert!(Instant::now() < deadline, "still on the disk");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(on_disk(folder.path(), b"what-was-said-now"));
}

#[test]
fn queries_keep_calls_and_trends_of_what_is_retired() {
    let folder = TempDir::new().unwrap();
    let calls = |from: u64, to: u64| {
        let call = |n| told(Event::CallStarted, 5, "t", &json!({ "callId": format!("call_{n}") }));
        (from..to).map(call).collect::<Vec<_>>()
    };
    let payload = json!({ "decision": "approve", "pools": [{ "pool": "p", "amount": 2 }] });
    let intent = || NewEvent::new(Event::IntentDecided, 5, subject(None), &payload).unwrap();
    let ledger = open(folder.path());
    let queries = ledger.queries().unwrap();
    ledger.append(calls(0, 1000)).unwrap();
    ledger.append((0..1000).map(|_| intent()).collect::<Vec<_>>()).unwrap();
    ledger.append(calls(1000, 1100)).unwrap();
    ledger.retire(0, 2050, state).unwrap();
    begins_with(&ledger, 2051);
    // Something new, so that the blocks are looked at.
    ledger.append(calls(1100, 1101)).unwrap();
    let everything = EventQuery { limit: u64::MAX, ..EventQuery::default() };
    let check = |ledger: &Ledger| {
        let queries = ledger.queries().unwrap();
        let all = ledger.reader().unwrap().tail(0, u64::MAX).unwrap();
        assert_eq!(all.len(), 52);
        assert_eq!(queries.events(&everything).unwrap(), all);
        let started = EventQuery { kind: Some("call_started".to_owned()), ..everything.clone() };
        assert_eq!(queries.events(&started).unwrap().len(), 51);
        let intents = EventQuery { kind: Some("intent_decided".to_owned()), ..everything.clone() };
        assert_eq!(queries.events(&intents).unwrap(), []);
        let calls = CallQuery { limit: 5000, ..CallQuery::default() };
        assert_eq!(queries.calls(&calls).unwrap().len(), 1101);
        assert_eq!(queries.trends(&TrendQuery::default()).unwrap()[0].sums.held, 2000);
    };
    check(&ledger);
    drop((queries, ledger));
    let ledger = open(folder.path());
    check(&ledger);
    drop(ledger);
    let blocks: u32 = Connection::open(folder.path().join("queries.db"))
        .unwrap()
        .query_row("SELECT count(*) FROM blocks", [], |row| row.get(0))
        .unwrap();
    assert_eq!(blocks, 1);
    // Made anew it knows what is left.
    std::fs::remove_file(folder.path().join("queries.db")).unwrap();
    let ledger = open(folder.path());
    let queries = ledger.queries().unwrap();
    assert_eq!(queries.events(&everything).unwrap().len(), 52);
    assert_eq!(queries.trends(&TrendQuery::default()).unwrap(), []);
}

#[test]
fn nothing_is_removed_that_queries_do_not_know_yet() {
    let folder = TempDir::new().unwrap();
    drop(open(folder.path()).queries().unwrap());
    let ledger = open(folder.path());
    let payload = json!({ "decision": "approve", "pools": [{ "pool": "p", "amount": 1 }] });
    let intent = || NewEvent::new(Event::IntentDecided, 5, subject(None), &payload).unwrap();
    ledger.append((0..900).map(|_| intent()).collect::<Vec<_>>()).unwrap();
    // Nobody follows, but there is a file that somebody will follow with.
    ledger.retire(0, 899, state).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(ledger.reader().unwrap().first_seq().unwrap(), 1);
    let queries = ledger.queries().unwrap();
    begins_with(&ledger, 900);
    assert_eq!(queries.trends(&TrendQuery::default()).unwrap()[0].sums.held, 900);
}

/// Not a test of its own: what the test below kills.
#[test]
fn child_that_retires_until_it_is_killed() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let ledger = open(Path::new(&folder));
    let reader = ledger.reader().unwrap();
    loop {
        ledger.append(events(1000)).unwrap();
        let head = ledger.head().seq;
        let _ = ledger.retire(0, head - 100, state);
        for _ in 0..3 {
            ledger.append(vec![event(1)]).unwrap();
            println!("began with {}", reader.first_seq().unwrap());
            std::thread::sleep(Duration::from_millis(4));
        }
    }
}

#[test]
fn a_removal_that_was_killed_goes_on_and_the_chain_holds_at_every_moment() {
    let folder = TempDir::new().unwrap();
    let mut between = 0;
    for round in 1..=8 {
        let killed = child("child_that_retires_until_it_is_killed", folder.path());
        kill_after(killed, "began with ", round * 2 % 7);
        let reader = Reader::of_folder(folder.path()).unwrap();
        let found = reader.verify(None).unwrap();
        assert_eq!(found.broken, None, "round {round}");
        let first = reader.first_seq().unwrap();
        assert_eq!((found.retired, found.events + found.retired), (first - 1, found.head.seq));
        let Some(checkpoint) = reader.last_checkpoint().unwrap() else { continue };
        let payload: Value = serde_json::from_str(&checkpoint.payload).unwrap();
        let through = payload["through"]["seq"].as_u64().unwrap();
        between += usize::from(first <= through);
        drop(reader);
        let ledger = open(folder.path());
        begins_with(&ledger, through + 1);
        let found = ledger.reader().unwrap().verify(None).unwrap();
        assert_eq!((found.broken, found.retired), (None, through), "round {round}");
    }
    assert!(between > 0, "at least once it was killed between the steps");
}
