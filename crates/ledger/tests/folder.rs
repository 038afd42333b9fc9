//! The data folder as others meet it: readers without a lock, older and foreign files, races, bad folders.

#![cfg(test)]

mod common;

use std::{
    io::{BufRead, BufReader},
    path::Path,
};

use common::{CHILD, child, event, kill_after, open, verified};
use rusqlite::Connection;
use tempfile::TempDir;
use tollgate_ledger::{Batch, Beside, Ledger, LedgerError, Reader, Sync};

fn refused<T>(result: Result<T, LedgerError>) -> LedgerError {
    match result {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[test]
fn a_ledger_can_be_read_while_a_daemon_has_it() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append(vec![event(1)]).unwrap();
    let reader = Reader::of_folder(folder.path()).unwrap();
    assert_eq!(verified(&reader), 1);
    ledger.append(vec![event(2)]).unwrap();
    assert_eq!(reader.head().unwrap(), ledger.head(), "it sees what comes later");
    drop(ledger);
    assert_eq!(verified(&reader), 2);
    assert_eq!(verified(&Reader::of_folder(folder.path()).unwrap()), 2, "nobody has it");
    assert_eq!(verified(&open(folder.path()).reader().unwrap()), 2, "readers did not take it");
}

/// Not a test of its own: what the test below kills.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let ledger = open(Path::new(&folder));
    for number in 0.. {
        println!("stored {}", ledger.append(vec![event(number)]).unwrap()[0].seq);
    }
}

#[test]
fn a_ledger_whose_daemon_was_killed_can_be_read() {
    let folder = TempDir::new().unwrap();
    let killed = child("child_that_appends_until_it_is_killed", folder.path());
    let stored = kill_after(killed, "stored ", 40);
    let log = folder.path().join("tollgate.db-wal");
    assert!(std::fs::metadata(&log).unwrap().len() > 0, "the log is left over");
    assert!(verified(&Reader::of_folder(folder.path()).unwrap()) >= stored);
    // Also when the index of the log is lost.
    std::fs::remove_file(folder.path().join("tollgate.db-shm")).unwrap();
    assert!(verified(&Reader::of_folder(folder.path()).unwrap()) >= stored);
}

#[test]
fn a_folder_without_a_ledger_says_what_to_do() {
    let folder = TempDir::new().unwrap();
    let said = |path: &Path| {
        let error = refused(Reader::of_folder(path));
        assert!(matches!(error, LedgerError::Missing(_)), "{error:?}");
        assert_eq!(
            error.to_string(),
            format!(
                "there is no ledger in `{}`; start one with tollgate serve, or choose another folder with --data",
                path.display()
            )
        );
    };
    said(folder.path());
    said(&folder.path().join("nowhere"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
    // A daemon that died before it had made its tables.
    std::fs::write(folder.path().join("tollgate.db"), "").unwrap();
    said(folder.path());
    drop(open(folder.path()));
    assert!(Reader::of_folder(folder.path()).is_ok());
}

#[test]
fn what_is_newer_foreign_or_no_database_is_refused_for_reading_too() {
    let newer = TempDir::new().unwrap();
    drop(open(newer.path()));
    let connection = Connection::open(newer.path().join("tollgate.db")).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(
        refused(Reader::of_folder(newer.path())),
        LedgerError::Newer { found: 99, .. }
    ));

    let foreign = TempDir::new().unwrap();
    let connection = Connection::open(foreign.path().join("tollgate.db")).unwrap();
    connection.execute_batch("CREATE TABLE mine (x)").unwrap();
    assert!(matches!(refused(Reader::of_folder(foreign.path())), LedgerError::NotALedger { .. }));

    let text = TempDir::new().unwrap();
    std::fs::write(text.path().join("tollgate.db"), "a text, and no database\n".repeat(99))
        .unwrap();
    assert!(matches!(refused(Reader::of_folder(text.path())), LedgerError::NotALedger { .. }));
}

#[test]
fn a_path_that_cannot_be_a_folder_is_named_in_the_error() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let below = file.join("data");
    let check = |error: LedgerError, path: &Path| {
        assert!(matches!(error, LedgerError::Folder { .. }), "{error:?}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    };
    check(refused(Ledger::open(&below, Sync::Process)), &below);
    check(refused(Reader::of_folder(&below)), &below);
    // A database that is a folder cannot be opened either.
    let odd = TempDir::new().unwrap();
    std::fs::create_dir(odd.path().join("tollgate.db")).unwrap();
    check(refused(Ledger::open(odd.path(), Sync::Process)), odd.path());
    check(refused(Reader::of_folder(odd.path())), odd.path());
}

/// The first format, as it was written before there was a second.
const FORMAT_1: &str = "
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY, ts INTEGER NOT NULL, kind TEXT NOT NULL, agent_id TEXT,
        identity_id TEXT, workload_id TEXT, scope_id TEXT, tool TEXT, intent_id TEXT,
        payload TEXT NOT NULL, prev_hash BLOB NOT NULL, hash BLOB NOT NULL
    ) STRICT;
    CREATE TABLE snapshots (
        name TEXT PRIMARY KEY, format INTEGER NOT NULL, seq INTEGER NOT NULL, state BLOB NOT NULL
    ) STRICT;
    PRAGMA application_id = 0x544f4c4c;
    PRAGMA user_version = 1;
    PRAGMA journal_mode = wal;";

#[test]
fn a_ledger_of_the_first_format_is_brought_to_the_present_one_and_still_verifies() {
    let (old, new) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let head = {
        let ledger = open(new.path());
        ledger.append((1..=50).map(event).collect::<Vec<_>>()).unwrap();
        ledger.head()
    };
    let connection = Connection::open(old.path().join("tollgate.db")).unwrap();
    connection.execute_batch(FORMAT_1).unwrap();
    connection
        .execute("ATTACH ?1 AS new", [new.path().join("tollgate.db").to_str().unwrap()])
        .unwrap();
    connection.execute("INSERT INTO events SELECT * FROM new.events", []).unwrap();
    drop(connection);

    // A reader does not change it, and finds nothing beside the chain.
    let reader = Reader::of_folder(old.path()).unwrap();
    assert_eq!(reader.verify(Some(head)).unwrap().broken, None);
    assert_eq!((reader.kept("s", b"k").unwrap(), reader.kept_all("s").unwrap()), (None, vec![]));
    drop(reader);

    let ledger = open(old.path());
    assert_eq!(ledger.head(), head);
    let beside = vec![Beside::Put {
        space: "s",
        key: b"k".to_vec(),
        value: b"v".to_vec(),
        expires_ms: None,
    }];
    ledger.append(Batch { events: vec![event(51)], beside }).unwrap();
    let reader = ledger.reader().unwrap();
    assert_eq!(reader.verify(Some(head)).unwrap().broken, None);
    assert_eq!((verified(&reader), reader.kept_all("s").unwrap().len()), (51, 1));
}

/// Not a test of its own: opens the folder, says how that went, and waits to be told to end.
#[test]
fn child_that_opens_and_waits() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let opened = Ledger::open(Path::new(&folder), Sync::Process);
    let said = match &opened {
        Ok(ledger) => ledger.append(vec![event(1)]).map_or("lost", |_| "has it"),
        Err(LedgerError::InUse(_)) => "in use",
        Err(_) => "other error",
    };
    println!("answer: {said}");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn of_processes_that_open_a_new_folder_at_once_one_gets_it() {
    for _ in 0..4 {
        let parent = TempDir::new().unwrap();
        let folder = parent.path().join("a/data");
        let mut racing: Vec<_> =
            (0..6).map(|_| child("child_that_opens_and_waits", &folder)).collect();
        let mut answers: Vec<String> = racing
            .iter_mut()
            .map(|child| {
                let lines = BufReader::new(child.stdout.take().unwrap()).lines();
                let said = lines.map(Result::unwrap).find(|line| line.contains("answer: "));
                said.unwrap().rsplit(": ").next().unwrap().to_owned()
            })
            .collect();
        for mut child in racing {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
        answers.sort();
        assert_eq!(answers, ["has it", "in use", "in use", "in use", "in use", "in use"]);
        assert_eq!(verified(&Reader::of_folder(&folder).unwrap()), 1);
    }
}

#[cfg(unix)]
#[test]
fn what_is_in_the_ledger_is_for_its_owner_alone_even_in_a_folder_that_others_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let ledger = open(folder.path());
    let queries = ledger.queries().unwrap();
    let seq = ledger.append(vec![event(1)]).unwrap()[0].seq;
    assert!(queries.wait_for(seq, std::time::Duration::from_secs(30)));
    let mut seen = 0;
    for file in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        let name = file.file_name().into_string().unwrap();
        if name.contains(".db") {
            seen += 1;
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{name}");
        }
    }
    assert!(seen >= 4, "both databases and their logs");
}
