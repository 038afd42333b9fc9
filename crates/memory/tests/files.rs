//! The file: who may read it, what is refused, several handles, threads and processes, and kill -9.

#![cfg(test)]

mod common;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use common::{Place, id, record};
use rusqlite::Connection;
use tollgate_memory::{Memory, MemoryError, Query};

fn found(memory: &Memory, session: &str, text: &str) -> usize {
    let query = Query { session: Some(session), text, limit: 1_000, ..Query::default() };
    memory.search(&query).unwrap().len()
}

#[test]
fn it_is_its_owners_alone() {
    let place = Place::new();
    place.add("s", 1, &["text"]);
    for entry in fs::read_dir(place.folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", entry.file_name());
    }
}

#[test]
fn what_was_stored_is_there_after_a_restart() {
    let place = Place::new();
    let file = place.file();
    place.add("s", 1, &["a zebra"]);
    let Place { folder, memory } = place;
    drop(memory);
    let memory = Memory::open(&file).unwrap();
    assert_eq!(found(&memory, "s", "zebras"), 1);
    assert_eq!(memory.get(id(1)).unwrap().unwrap().text, "a zebra");
    assert_eq!(memory.add("s", &[record(2, "a zebra")]).unwrap().ids, [id(1)]);
    drop(folder);
}

#[test]
fn a_record_is_found_by_another_handle_at_once() {
    let place = Place::new();
    let reader = Memory::open_to_read(&place.file()).unwrap();
    let writer = Memory::open(&place.file()).unwrap();
    assert_eq!(found(&reader, "s", "zebra"), 0);
    place.add("s", 1, &["zebra one"]);
    assert_eq!(found(&reader, "s", "zebra"), 1);
    writer.add("s", &[record(2, "zebra two")]).unwrap();
    assert_eq!(found(&reader, "s", "zebra"), 2);
    assert_eq!(found(&place.memory, "s", "zebra"), 2);
    for refused in [
        reader.add("s", &[record(3, "x")]).err(),
        reader.forget("s").err(),
        reader.forget_one(id(1)).err(),
        reader.set_vectors("m", &[]).err(),
        reader.compact().err(),
    ] {
        assert_eq!(refused, Some(MemoryError::ReadOnly));
    }
}

#[test]
fn what_is_not_there_is_not_made_by_reading() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.db");
    assert_eq!(Memory::open_to_read(&file).err(), Some(MemoryError::Missing(file.clone())));
    assert!(!file.exists());
    fs::write(&file, "").unwrap();
    assert_eq!(Memory::open_to_read(&file).err(), Some(MemoryError::Missing(file.clone())));
    // An empty file is what a first start that was killed leaves.
    Memory::open(&file).unwrap();
    Memory::open_to_read(&file).unwrap();
    let nowhere = folder.path().join("no/memory.db");
    let refused = Memory::open(&nowhere).err().unwrap();
    assert!(refused.to_string().contains("the folder is not there; make it first"), "{refused}");
    assert!(matches!(Memory::open(folder.path()).err(), Some(MemoryError::File { .. })));
}

/// Opens a file in both ways; it must be refused and stay as it is.
fn refused(file: &Path) -> Vec<MemoryError> {
    let before = fs::read(file).unwrap();
    let errors = vec![Memory::open(file).err().unwrap(), Memory::open_to_read(file).err().unwrap()];
    assert!(before == fs::read(file).unwrap(), "the file was changed");
    errors
}

#[test]
fn a_foreign_file_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "these are somebody's notes, and long enough to be anything. ".repeat(100))
        .unwrap();
    let short = folder.path().join("short.txt");
    fs::write(&short, "a line").unwrap();
    let database = folder.path().join("other.db");
    let other = Connection::open(&database).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);").unwrap();
    drop(other);
    for file in [text, short, database] {
        for error in refused(&file) {
            assert!(matches!(error, MemoryError::Foreign { .. }), "{error}");
        }
    }
}

#[test]
fn a_newer_file_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let file = place.file();
    let Place { folder, memory } = place;
    drop(memory);
    let connection = Connection::open(&file).unwrap();
    connection.pragma_update(None, "user_version", 7).unwrap();
    connection.pragma_update(None, "journal_mode", "delete").unwrap();
    drop(connection);
    for error in refused(&file) {
        let newer = MemoryError::Newer { file: file.clone(), found: 7, known: 1 };
        assert_eq!(error, newer);
    }
    drop(folder);
}

#[test]
fn damage_is_an_error_and_never_a_panic() {
    let place = Place::new();
    let texts: Vec<String> = (0..2_000).map(|number| format!("zebra number {number}")).collect();
    place.add("s", 0, &texts.iter().map(String::as_str).collect::<Vec<_>>());
    let file = place.file();
    let Place { folder, memory } = place;
    drop(memory);
    let sound = fs::read(&file).unwrap();
    let mut seen = BTreeSet::new();
    // Every page in turn is overwritten, and the file is cut at many places.
    for page in 0..sound.len() / 4_096 {
        let mut damaged = sound.clone();
        damaged[page * 4_096..][..4_096].fill(0xa5);
        fs::write(&file, &damaged).unwrap();
        seen.insert(used(&file));
        fs::write(&file, &sound[..page * 4_096 + 1_000]).unwrap();
        seen.insert(used(&file));
    }
    assert!(seen.contains("damaged"), "{seen:?}");
    assert!(seen.is_subset(&["damaged", "foreign", "sound"].into()), "{seen:?}");
    fs::write(&file, &sound).unwrap();
    assert_eq!(used(&file), "sound");
    drop(folder);
}

/// What becomes of everything that one does with a file.
fn used(file: &Path) -> &'static str {
    let uses = || -> Result<(), MemoryError> {
        let memory = Memory::open_to_read(file)?;
        let query = Query { session: Some("s"), text: "zebra 17", limit: 10, ..Query::default() };
        memory.search(&query)?;
        memory.search(&Query { session: None, ..query })?;
        memory.of_session("s", 1_000, None)?;
        memory.get(id(17))?;
        memory.count(None)?;
        let memory = Memory::open(file)?;
        memory.add("s", &[record(9_000, "new")])?;
        memory.forget_one(id(9_000))?;
        Ok(())
    };
    let outcome = match uses() {
        Ok(()) => "sound",
        Err(MemoryError::Damaged { .. }) => "damaged",
        Err(MemoryError::Foreign { .. }) => "foreign",
        Err(error) => panic!("{error}: {} bytes", fs::metadata(file).unwrap().len()),
    };
    for beside in ["memory.db-wal", "memory.db-shm"] {
        _ = fs::remove_file(file.with_file_name(beside));
    }
    outcome
}

#[test]
fn readers_see_whole_batches_while_others_write() {
    let place = Place::new();
    place.add("s", 1_000_000, &["zebra of the beginning"]);
    let ended = AtomicBool::new(false);
    let reader = Memory::open_to_read(&place.file()).unwrap();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer: u64| {
                let memory = &place.memory;
                scope.spawn(move || {
                    for batch in 0..30 {
                        let first = writer * 100_000 + batch * 10;
                        let records: Vec<_> = (first..first + 10)
                            .map(|number| record(number, &format!("zebra {number}")))
                            .collect();
                        memory.add("s", &records).unwrap();
                    }
                })
            })
            .collect();
        for memory in [&place.memory, &reader] {
            let ended = &ended;
            scope.spawn(move || {
                let mut last = 0;
                loop {
                    // Asked before looking: what was stored by then must be seen.
                    let is_last = ended.load(Ordering::SeqCst);
                    let now = found(memory, "s", "zebra");
                    assert_eq!((now - 1) % 10, 0, "half a batch");
                    assert!(now >= last);
                    last = now;
                    if is_last {
                        break;
                    }
                }
                assert_eq!(last, 601);
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        ended.store(true, Ordering::SeqCst);
    });
}

#[test]
fn of_many_that_start_at_once_each_gets_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.db");
    thread::scope(|scope| {
        for number in 0..8 {
            let file = &file;
            scope.spawn(move || {
                let memory = Memory::open(file).unwrap();
                memory.add("s", &[record(number, &format!("zebra {number}"))]).unwrap();
            });
        }
    });
    assert_eq!(found(&Memory::open(&file).unwrap(), "s", "zebra"), 8);
}

/// The child: not a test of its own.
#[test]
#[ignore = "it is started by the tests below, and killed by one of them"]
fn the_child_adds_until_it_is_killed() {
    let file = PathBuf::from(std::env::var("TOLLGATE_TEST_FILE").unwrap());
    let first: u64 = std::env::var("TOLLGATE_TEST_FIRST").unwrap().parse().unwrap();
    let count: u64 = std::env::var("TOLLGATE_TEST_COUNT").unwrap().parse().unwrap();
    let memory = Memory::open(&file).unwrap();
    for number in (first..first + count).step_by(2) {
        let pair = [number, number + 1].map(|one| record(one, &format!("zebra {one}")));
        memory.add("s", &pair).unwrap();
        // One write: the parent reads whole lines or nothing.
        std::io::stdout().write_all(format!("ack {number}\n").as_bytes()).unwrap();
    }
}

fn child(file: &Path, first: u64, count: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child_adds_until_it_is_killed", "--ignored", "--nocapture"])
        .env("TOLLGATE_TEST_FILE", file)
        .env("TOLLGATE_TEST_FIRST", first.to_string())
        .env("TOLLGATE_TEST_COUNT", count.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a child says it has stored, until it ends or there are so many.
fn acknowledged(child: &mut Child, most: usize) -> Vec<u64> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acks = lines.map_while(Result::ok).filter_map(|line| {
        // The test's own first line may stand in front of it.
        line.rsplit_once("ack ").map(|(_, number)| number.parse().unwrap())
    });
    acks.take(most).collect()
}

#[test]
fn nothing_that_was_acknowledged_is_lost_by_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.db");
    let mut stored = Vec::new();
    for (round, most) in [1, 40, 7, 150].into_iter().enumerate() {
        let mut child = child(&file, round as u64 * 1_000_000, 900_000);
        let acks = acknowledged(&mut child, most);
        assert_eq!(acks.len(), most);
        child.kill().unwrap();
        child.wait().unwrap();
        stored.extend(acks);
        let memory = Memory::open(&file).unwrap();
        for number in stored.iter().flat_map(|number| [*number, *number + 1]) {
            assert!(memory.get(id(number)).unwrap().is_some(), "{number} is lost");
            assert_eq!(found(&memory, "s", &number.to_string()), 1, "{number} is not found");
        }
        // Pairs are stored as pairs, and what is counted is there.
        let count = memory.count(Some("s")).unwrap();
        assert_eq!(count % 2, 0);
        let all = memory.of_session("s", 1_000, None).unwrap();
        assert_eq!(all.len() as u64, count.min(1_000));
    }
    let connection = Connection::open(&file).unwrap();
    let check: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

#[test]
fn two_processes_write_to_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.db");
    let mut children = [child(&file, 0, 200), child(&file, 1_000, 200)];
    let memory = Memory::open(&file).unwrap();
    for number in 2_000..2_100 {
        memory.add("s", &[record(number, &format!("zebra {number}"))]).unwrap();
    }
    for child in &mut children {
        assert_eq!(acknowledged(child, usize::MAX).len(), 100);
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(memory.count(Some("s")).unwrap(), 500);
    assert_eq!(found(&memory, "s", "zebra"), 500);
}
