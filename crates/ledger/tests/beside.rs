//! What is kept beside the chain comes and goes with the events of its batch, and with nothing else.

#![cfg(test)]

mod common;

use std::{path::Path, sync::mpsc};

use common::{CHILD, child, event, kill_after, open, verified};
use rusqlite::Connection;
use tempfile::TempDir;
use tollgate_ledger::{Batch, Beside, Kept, LedgerError, Reader};

fn put(space: &'static str, key: &[u8], value: &[u8], expires_ms: Option<i64>) -> Beside {
    Beside::Put { space, key: key.to_vec(), value: value.to_vec(), expires_ms }
}

fn delete(space: &'static str, key: &[u8]) -> Beside {
    Beside::Delete { space, key: key.to_vec() }
}

fn only(beside: Vec<Beside>) -> Batch {
    Batch { events: Vec::new(), beside }
}

fn kept(key: &[u8], value: &[u8], expires_ms: Option<i64>) -> Kept {
    Kept { key: key.to_vec(), value: value.to_vec(), expires_ms }
}

#[test]
fn what_is_put_is_kept_until_it_is_replaced_or_deleted() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let batch = Batch {
        events: vec![event(1)],
        beside: vec![
            put("names", b"b", b"Berta", None),
            put("names", b"a", b"Anna", Some(5)),
            put("keys", b"a", b"other", None),
        ],
    };
    assert_eq!(ledger.append(batch).unwrap().len(), 1);
    let reader = ledger.reader().unwrap();
    assert_eq!(reader.kept("names", b"a").unwrap(), Some(kept(b"a", b"Anna", Some(5))));
    assert_eq!(reader.kept("names", b"c").unwrap(), None);
    assert_eq!(
        reader.kept_all("names").unwrap(),
        [kept(b"a", b"Anna", Some(5)), kept(b"b", b"Berta", None)]
    );
    // In order: what is put and deleted in one batch is gone.
    let changes = vec![
        put("names", b"a", b"", None),
        put("names", b"x", b"X", None),
        delete("names", b"x"),
        delete("names", b"b"),
        delete("names", b"never"),
    ];
    assert_eq!(ledger.append(only(changes)).unwrap(), []);
    assert_eq!(reader.kept_all("names").unwrap(), [kept(b"a", b"", None)]);
    assert_eq!(reader.kept_all("keys").unwrap(), [kept(b"a", b"other", None)]);
    assert_eq!(verified(&reader), 1, "it is no part of the chain");
}

#[test]
fn a_failed_commit_leaves_neither_events_nor_what_is_beside_them() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append(only(vec![put("s", b"old", b"1", None)])).unwrap();
    let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let changes = vec![put("s", b"new", b"2", None), delete("s", b"old")];
    let error = ledger.append(Batch { events: vec![event(1)], beside: changes.clone() });
    assert!(matches!(error, Err(LedgerError::Database(_))));
    other.execute_batch("ROLLBACK").unwrap();
    let reader = ledger.reader().unwrap();
    assert_eq!(reader.kept_all("s").unwrap(), [kept(b"old", b"1", None)]);
    assert_eq!(verified(&reader), 0);
    ledger.append(Batch { events: vec![event(1)], beside: changes }).unwrap();
    assert_eq!(reader.kept_all("s").unwrap(), [kept(b"new", b"2", None)]);
}

#[test]
fn a_change_that_fails_takes_its_events_with_it() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    // The events come first in the transaction; then the change beside them is refused.
    let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
    other.execute_batch("DROP TABLE beside").unwrap();
    let batch = Batch { events: vec![event(1)], beside: vec![put("s", b"k", b"v", None)] };
    assert!(ledger.append(batch).is_err());
    assert_eq!(verified(&ledger.reader().unwrap()), 0);
    assert_eq!(ledger.append(vec![event(2)]).unwrap()[0].seq, 1);
}

#[test]
fn what_is_too_large_fails_alone() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let (send, receive) = mpsc::channel();
    let huge = vec![0; 17 * 1024 * 1024];
    let batches = [
        Batch::from(vec![event(1)]),
        Batch { events: vec![event(2)], beside: vec![put("s", b"k", &huge, None)] },
        Batch::from(vec![event(3)]),
    ];
    for (number, batch) in batches.into_iter().enumerate() {
        let send = send.clone();
        ledger.append_then(batch, move |result| send.send((number, result)).unwrap());
    }
    let mut results: Vec<_> = (0..3).map(|_| receive.recv().unwrap()).collect();
    results.sort_by_key(|(number, _)| *number);
    assert!(results[0].1.is_ok() && results[2].1.is_ok());
    assert!(matches!(results[1].1, Err(LedgerError::TooLarge { .. })));
    let reader = ledger.reader().unwrap();
    assert_eq!((verified(&reader), reader.kept_all("s").unwrap()), (2, vec![]));
}

#[test]
fn what_has_expired_is_forgotten_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    // More than one commit forgets.
    let many = (0..1234_u32).map(|n| put("many", &n.to_be_bytes(), b"v", Some(100)));
    ledger.append(only(many.collect())).unwrap();
    ledger
        .append(only(vec![
            put("s", b"at", b"v", Some(100)),
            put("s", b"later", b"v", Some(101)),
            put("s", b"never", b"v", None),
        ]))
        .unwrap();
    assert_eq!(ledger.forget_expired(99).unwrap(), 0);
    assert_eq!(ledger.forget_expired(100).unwrap(), 1235);
    assert_eq!(ledger.forget_expired(100).unwrap(), 0);
    let reader = ledger.reader().unwrap();
    assert_eq!(reader.kept_all("many").unwrap(), []);
    let left: Vec<_> = reader.kept_all("s").unwrap().into_iter().map(|kept| kept.key).collect();
    assert_eq!(left, [b"later".to_vec(), b"never".to_vec()]);
}

/// Whether any file in the folder has these bytes.
fn on_disk(folder: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|file| {
        let content = std::fs::read(file.unwrap().path()).unwrap();
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

#[test]
fn what_is_forgotten_disappears_from_the_disk_while_the_ledger_is_open() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let secrets = [b"name-of-a-person-1".as_slice(), b"name-of-a-person-2"];
    ledger
        .append(only(vec![
            put("names", b"1", secrets[0], Some(1)),
            put("names", b"2", secrets[1], None),
            put("names", b"3", b"somebody else", None),
        ]))
        .unwrap();
    assert!(secrets.iter().all(|secret| on_disk(folder.path(), secret)));
    ledger.forget_expired(1).unwrap();
    ledger.append(only(vec![delete("names", b"2")])).unwrap();
    // The log is emptied a moment later, without being asked.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while secrets.iter().any(|secret| on_disk(folder.path(), secret)) {
        assert!(std::time::Instant::now() < deadline, "still on the disk");
        std::thread::yield_now();
    }
    assert!(on_disk(folder.path(), b"somebody else"));
}

/// Not a test of its own: what the test below kills.
#[test]
fn child_that_keeps_things_until_it_is_killed() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let ledger = open(Path::new(&folder));
    for _ in 0.. {
        let next = ledger.head().seq + 1;
        let mut beside = vec![put("s", &next.to_be_bytes(), b"v", None)];
        if let Some(gone) = next.checked_sub(10) {
            beside.push(delete("s", &gone.to_be_bytes()));
        }
        ledger.append(Batch { events: vec![event(next)], beside }).unwrap();
        println!("kept {next}");
    }
}

#[test]
fn kill_9_leaves_both_an_event_and_what_is_beside_it_or_neither() {
    let folder = TempDir::new().unwrap();
    for round in 1..=5 {
        let killed = child("child_that_keeps_things_until_it_is_killed", folder.path());
        let acknowledged = kill_after(killed, "kept ", round * 13);
        // Once as a reader meets it, with the log left over, and once after the next start.
        for reader in
            [Reader::of_folder(folder.path()).unwrap(), open(folder.path()).reader().unwrap()]
        {
            let events = verified(&reader);
            assert!(events >= acknowledged, "round {round}");
            let keys: Vec<_> =
                reader.kept_all("s").unwrap().into_iter().map(|kept| kept.key).collect();
            let first = events.saturating_sub(9).max(1);
            let expected: Vec<_> = (first..=events).map(|n| n.to_be_bytes().to_vec()).collect();
            assert_eq!(keys, expected, "round {round}");
        }
    }
}
