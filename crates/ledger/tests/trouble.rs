//! What others do wrong harms themselves, and what is damaged is told.

#![cfg(test)]

mod common;

use std::{
    fs::File,
    io::{Read, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use common::{event, open, subject, verified};
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;
use tollgate_contract::event::Event;
use tollgate_ledger::{Broken, Head, Ledger, LedgerError, NewEvent, Reader, Sync};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_callback_that_panics_harms_nobody_else() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.on_commit(|_| panic!("a listener that panics"));
    let (send, receive) = mpsc::channel();
    for number in 1..=20 {
        let send = send.clone();
        ledger.append_then(vec![event(number)], move |result| {
            send.send(result.is_ok()).unwrap();
            assert!(number % 2 == 0, "somebody who panics");
        });
    }
    for _ in 0..20 {
        assert!(receive.recv_timeout(SOON).unwrap());
    }
    assert_eq!(ledger.append(vec![event(21)]).unwrap()[0].seq, 21);
    assert_eq!(verified(&ledger.reader().unwrap()), 21);
}

#[test]
fn the_last_to_let_go_of_a_ledger_may_be_a_callback() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let queries = ledger.queries().unwrap();
    let (send, receive) = mpsc::channel();
    let (go, wait) = mpsc::channel::<()>();
    let held = ledger.clone();
    ledger.append_then(vec![event(1)], move |result| {
        wait.recv().unwrap();
        drop(held);
        send.send(result).unwrap();
    });
    drop(ledger);
    go.send(()).unwrap();
    assert!(receive.recv_timeout(SOON).unwrap().is_ok());
    drop(queries);
    // The folder is given free when the writer has ended, which nobody could wait for.
    let deadline = Instant::now() + SOON;
    let again = loop {
        match tollgate_ledger::Ledger::open(folder.path(), tollgate_ledger::Sync::Process) {
            Ok(again) => break again,
            Err(LedgerError::InUse(_)) if Instant::now() < deadline => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(verified(&again.reader().unwrap()), 1);
}

#[test]
fn every_commit_is_told_with_its_head_to_everyone_who_wants_to_know() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let seen: [Arc<Mutex<Vec<Head>>>; 2] = Default::default();
    for seen in &seen {
        let seen = Arc::clone(seen);
        ledger.on_commit(move |head| seen.lock().unwrap().push(head));
    }
    let mut heads = Vec::new();
    for number in 1..=5 {
        ledger.append(vec![event(number), event(number)]).unwrap();
        heads.push(ledger.head());
    }
    let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(ledger.append(vec![event(6)]).is_err(), "of a failure nobody is told");
    drop(other);
    drop(ledger);
    for seen in seen {
        assert_eq!(*seen.lock().unwrap(), heads);
    }
}

#[test]
fn the_newest_events_can_be_read_from_any_place() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append((1..=10).map(event).collect::<Vec<_>>()).unwrap();
    let reader = ledger.reader().unwrap();
    let seqs = |before, limit| {
        let events = reader.newest(before, limit).unwrap();
        events.iter().map(|event| event.seq).collect::<Vec<_>>()
    };
    assert_eq!(seqs(None, 3), [10, 9, 8]);
    assert_eq!(seqs(Some(3), 100), [2, 1]);
    assert_eq!(seqs(Some(1), 100), [0; 0]);
    assert_eq!(seqs(Some(0), 100), [0; 0]);
    assert_eq!(seqs(Some(u64::MAX), 1), [10]);
    assert_eq!(seqs(None, 0), [0; 0]);
    assert_eq!(reader.newest(None, u64::MAX).unwrap().len(), 10);
}

#[test]
fn an_event_that_is_too_large_is_refused_before_it_can_harm_others() {
    let text = "x".repeat(17 * 1024 * 1024);
    let refused = NewEvent::new(Event::CallStarted, 0, subject(None), &json!({ "text": text }));
    assert!(matches!(refused, Err(LedgerError::TooLarge { .. })));
    let refused = NewEvent::new(Event::CallStarted, 0, subject(Some(&text)), &json!({}));
    assert!(matches!(refused, Err(LedgerError::TooLarge { .. })));
    // What is large but allowed is stored as it is.
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let large = json!({ "text": "y".repeat(15 * 1024 * 1024) });
    let large = NewEvent::new(Event::CallStarted, 0, subject(None), &large).unwrap();
    ledger.append(vec![large]).unwrap();
    assert_eq!(verified(&ledger.reader().unwrap()), 1);
}

#[test]
fn columns_that_no_event_of_ours_has_show_as_a_change() {
    for change in [
        "hash = x'00'",
        "prev_hash = x''",
        "payload = CAST(x'ff' AS TEXT)",
        "kind = CAST(x'c328' AS TEXT)",
    ] {
        let folder = TempDir::new().unwrap();
        let ledger = open(folder.path());
        ledger.append((1..=5).map(event).collect::<Vec<_>>()).unwrap();
        let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
        other.execute(&format!("UPDATE events SET {change} WHERE seq = 3"), []).unwrap();
        let verified = ledger.reader().unwrap().verify(None).unwrap();
        assert_eq!((verified.events, verified.broken), (2, Some(Broken::Changed { seq: 3 })));
        // An export says where it had to stop, and does not blame the storing.
        let error = ledger.reader().unwrap().export(Vec::new()).unwrap_err();
        assert!(matches!(error, LedgerError::Export(_)), "{error:?}");
        assert!(error.to_string().contains("event 3"), "{error}");
    }
}

#[test]
fn places_before_the_first_and_at_the_end_of_numbers_show() {
    for (to, found) in [(0, 0), (-7, 0), (i64::MIN, 0), (i64::MAX, i64::MAX as u64)] {
        let folder = TempDir::new().unwrap();
        let ledger = open(folder.path());
        ledger.append((1..=3).map(event).collect::<Vec<_>>()).unwrap();
        let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
        let sql = "INSERT INTO events SELECT ?1, ts, kind, agent_id, identity_id, workload_id,
                   scope_id, tool, intent_id, payload, prev_hash, hash FROM events WHERE seq = 3";
        other.execute(sql, [to]).unwrap();
        let expected = if to > 0 { 4 } else { 1 };
        assert_eq!(
            ledger.reader().unwrap().verify(None).unwrap().broken,
            Some(Broken::Gap { expected, found })
        );
    }
}

#[test]
fn a_last_event_that_was_changed_is_not_built_upon() {
    let folder = TempDir::new().unwrap();
    open(folder.path()).append(vec![event(1)]).unwrap();
    let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
    other.execute("UPDATE events SET seq = ?1", [i64::MAX]).unwrap();
    drop(other);
    let opened = Ledger::open(folder.path(), Sync::Process);
    assert!(matches!(opened, Err(LedgerError::Damaged(_))));
    // It can still be read, and checked.
    let reader = Reader::of_folder(folder.path()).unwrap();
    assert!(reader.verify(None).unwrap().broken.is_some());
}

#[test]
fn a_damaged_file_shows_as_broken_wherever_it_is_damaged() {
    let folder = TempDir::new().unwrap();
    {
        let ledger = open(folder.path());
        ledger.append((1..=2000).map(event).collect::<Vec<_>>()).unwrap();
    }
    let file = folder.path().join("tollgate.db");
    let sound = std::fs::read(&file).unwrap();
    let page = 4096;
    let pages = sound.len() / page;
    assert!(pages > 20);
    let mut unreadable = 0;
    // Not the first pages: they hold the tables' names, and without them it is no ledger.
    for damaged in (8..pages).step_by(7) {
        let mut bytes = sound.clone();
        bytes[damaged * page..(damaged + 1) * page].fill(0xa5);
        std::fs::write(&file, bytes).unwrap();
        let reader = Reader::of_folder(folder.path()).unwrap();
        let verified = reader.verify(None).unwrap();
        assert!(verified.broken.is_some(), "page {damaged}");
        assert!(verified.events < 2000, "page {damaged}");
        unreadable += usize::from(matches!(verified.broken, Some(Broken::Unreadable { .. })));
    }
    assert!(unreadable > 0);
}

/// A pipe that nobody empties: it blocks the one who writes until it is told to go on.
struct Stuck {
    written: mpsc::Sender<()>,
    go: mpsc::Receiver<()>,
    bytes: Vec<u8>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.bytes.is_empty() {
            self.written.send(()).unwrap();
            self.go.recv().unwrap();
        }
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_export_that_nobody_reads_does_not_keep_the_log_from_being_emptied() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append((1..=3000).map(event).collect::<Vec<_>>()).unwrap();
    let (written, begun) = mpsc::channel();
    let (go, wait) = mpsc::channel();
    std::thread::scope(|scope| {
        let reader = Reader::of_folder(folder.path()).unwrap();
        let exporting = scope.spawn(move || {
            let mut pipe = Stuck { written, go: wait, bytes: Vec::new() };
            let count = reader.export(&mut pipe).unwrap();
            (count, pipe.bytes.iter().filter(|byte| **byte == b'\n').count())
        });
        begun.recv_timeout(SOON).unwrap();
        ledger.append(vec![event(3001)]).unwrap();
        let other = Connection::open(folder.path().join("tollgate.db")).unwrap();
        let deadline = Instant::now() + SOON;
        let mut emptied = false;
        while !emptied && Instant::now() < deadline {
            emptied = other
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, u32>(0))
                .is_ok_and(|busy| busy == 0);
        }
        go.send(()).unwrap();
        assert!(emptied, "the export holds the log");
        // What came after the export had begun is not in it: it would never end otherwise.
        assert_eq!(exporting.join().unwrap(), (3000, 3000));
    });
}

#[test]
fn the_log_is_begun_anew_while_events_never_stop_coming() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let log = folder.path().join("tollgate.db-wal");
    // How often it was begun anew stands in its head.
    let begun = || {
        let mut head = [0; 16];
        File::open(&log).and_then(|mut log| log.read_exact(&mut head)).unwrap();
        u32::from_be_bytes(head[12..].try_into().unwrap())
    };
    ledger.append(vec![event(1)]).unwrap();
    let before = begun();
    let payload = json!({ "text": "z".repeat(30_000) });
    let large = || NewEvent::new(Event::CallStarted, 0, subject(None), &payload).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Several at once, so that the writer always has something to do.
        for _ in 0..3 {
            scope.spawn(|| {
                while !ended.load(Ordering::Acquire) {
                    ledger.append(vec![large(); 4]).unwrap();
                }
            });
        }
        let deadline = Instant::now() + SOON;
        while begun() == before && Instant::now() < deadline {
            std::thread::yield_now();
        }
        ended.store(true, Ordering::Release);
    });
    assert_ne!(begun(), before, "it has {} bytes", std::fs::metadata(&log).unwrap().len());
    assert_eq!(verified(&ledger.reader().unwrap()), ledger.head().seq);
}
