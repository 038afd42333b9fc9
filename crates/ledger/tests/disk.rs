//! Disks that are full or cannot be written, made by mounting small ones.

#![cfg(test)]
#![cfg(target_os = "linux")]

mod common;

use std::{
    path::Path,
    process::Command,
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

use common::{open, told, verified};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_contract::event::Event;
use tollgate_ledger::{Appended, Batch, Beside, Ledger, LedgerError, NewEvent, Reader, Sync, Work};

const SOON: Duration = Duration::from_secs(30);

/// Set in a process that has a name space of its own to mount in.
const INSIDE: &str = "TOLLGATE_LEDGER_TEST_INSIDE";

/// A disk of two MiB. It goes with this value, also when the test fails.
struct Disk(TempDir);

impl Disk {
    /// Mounts it; `None` when this process may not.
    fn mount() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        mount(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"], folder.path()).then(|| Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        for how in [&[][..], &["-l"]] {
            let unmounted = Command::new("umount").args(how).arg(self.path()).status();
            if unmounted.is_ok_and(|status| status.success()) {
                return;
            }
        }
    }
}

fn mount(arguments: &[&str], folder: &Path) -> bool {
    let mounted = Command::new("mount").args(arguments).arg(folder).output();
    mounted.is_ok_and(|output| output.status.success())
}

/// Runs `test`, called `name`, on a small disk: here if we may mount, else in a name space of our own.
fn on_a_small_disk(name: &str, test: impl FnOnce(&Disk)) {
    if let Some(disk) = Disk::mount() {
        return test(&disk);
    }
    assert!(std::env::var_os(INSIDE).is_none(), "nothing can be mounted, even in a name space");
    let output = Command::new("unshare")
        .arg("-rm")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Four events and a value that belong together, all of them with this number.
fn batch(number: u64) -> Batch {
    let payload =
        json!({ "callId": format!("call_{number}"), "n": number, "text": "x".repeat(2000) });
    let event = || told(Event::CallStarted, 0, "system.time", &payload);
    let put = Beside::Put {
        space: "s",
        key: number.to_be_bytes().to_vec(),
        value: vec![7; 500],
        expires_ms: None,
    };
    Batch { events: (0..4).map(|_| event()).collect(), beside: vec![put] }
}

/// Exactly the batches with these numbers are there, whole and in order.
fn holds(reader: &Reader, numbers: &[u64]) {
    let number = |payload: &str| serde_json::from_str::<Value>(payload).unwrap()["n"].as_u64();
    let events: Vec<_> = reader
        .tail(0, u64::MAX)
        .unwrap()
        .iter()
        .map(|event| number(&event.payload).unwrap())
        .collect();
    let expected: Vec<_> = numbers.iter().flat_map(|number| [*number; 4]).collect();
    assert_eq!(events, expected);
    let kept: Vec<_> = reader.kept_all("s").unwrap().into_iter().map(|kept| kept.key).collect();
    let expected: Vec<_> = numbers.iter().map(|number| number.to_be_bytes().to_vec()).collect();
    assert_eq!(kept, expected);
    assert_eq!(verified(reader), u64::try_from(numbers.len() * 4).unwrap());
}

#[test]
fn a_full_disk_refuses_whole_batches_and_loses_nothing() {
    on_a_small_disk("a_full_disk_refuses_whole_batches_and_loses_nothing", |disk| {
        let filler = disk.path().join("filler");
        std::fs::write(&filler, vec![0; 700 * 1024]).unwrap();
        let ledger = open(disk.path());
        let queries = ledger.queries().unwrap();
        let reader = ledger.reader().unwrap();
        let (mut stored, mut refused, mut number) = (Vec::new(), 0, 0);
        while refused < 20 {
            number += 1;
            match ledger.append(batch(number)) {
                Ok(_) => stored.push(number),
                Err(LedgerError::Database(_)) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(stored.len() > 10, "{stored:?}");
        holds(&reader, &stored);
        holds(&Reader::of_folder(disk.path()).unwrap(), &stored);
        assert_eq!(ledger.head(), reader.head().unwrap());

        std::fs::remove_file(filler).unwrap();
        for _ in 0..5 {
            number += 1;
            ledger.append(batch(number)).unwrap();
            stored.push(number);
        }
        holds(&reader, &stored);
        assert!(queries.wait_for(ledger.head().seq, SOON), "queries catch up as well");
        assert_eq!(queries.call(&format!("call_{number}")).unwrap().unwrap().outcome, "running");
        drop((reader, queries, ledger));
        holds(&open(disk.path()).reader().unwrap(), &stored);
    });
}

#[test]
fn a_refused_batch_stays_absent_after_a_new_start_on_the_full_disk() {
    let name = "a_refused_batch_stays_absent_after_a_new_start_on_the_full_disk";
    on_a_small_disk(name, |disk| {
        let filler = disk.path().join("filler");
        std::fs::write(&filler, vec![0; 1300 * 1024]).unwrap();
        let mut stored = Vec::new();
        let mut number = 0;
        for _ in 0..3 {
            let ledger = open(disk.path());
            let mut refused = 0;
            while refused < 3 {
                number += 1;
                match ledger.append(batch(number)) {
                    Ok(_) => stored.push(number),
                    Err(_) => refused += 1,
                }
            }
            drop(ledger);
            holds(&Reader::of_folder(disk.path()).unwrap(), &stored);
        }
        std::fs::remove_file(filler).unwrap();
        let ledger = open(disk.path());
        ledger.append(batch(number + 1)).unwrap();
        stored.push(number + 1);
        holds(&ledger.reader().unwrap(), &stored);
    });
}

#[test]
fn a_folder_that_cannot_be_written_is_refused_with_its_name() {
    on_a_small_disk("a_folder_that_cannot_be_written_is_refused_with_its_name", |disk| {
        open(disk.path()).append(batch(1)).unwrap();
        assert!(mount(&["-o", "remount,ro"], disk.path()));
        let refused = |error: LedgerError| {
            assert!(matches!(error, LedgerError::Folder { .. }), "{error:?}");
            assert!(error.to_string().contains(disk.path().to_str().unwrap()), "{error}");
        };
        refused(Ledger::open(disk.path(), Sync::Process).err().unwrap());
        refused(Ledger::open(&disk.path().join("new"), Sync::Process).err().unwrap());
        refused(Reader::of_folder(disk.path()).err().unwrap());
        assert!(mount(&["-o", "remount,rw"], disk.path()));
        holds(&open(disk.path()).reader().unwrap(), &[1]);
    });
}

#[test]
fn a_disk_that_becomes_unwritable_refuses_and_the_chain_goes_on_when_it_is_back() {
    let name = "a_disk_that_becomes_unwritable_refuses_and_the_chain_goes_on_when_it_is_back";
    on_a_small_disk(name, |disk| {
        // A limit that is lowered below what is used: every new page is refused from now on.
        let ledger = open(disk.path());
        ledger.append(batch(1)).unwrap();
        assert!(mount(&["-o", "remount,size=200k"], disk.path()));
        let deadline = Instant::now() + SOON;
        let mut stored = vec![1];
        let mut number = 1;
        let mut refused = false;
        while !refused && Instant::now() < deadline {
            number += 1;
            match ledger.append(batch(number)) {
                Ok(_) => stored.push(number),
                Err(_) => refused = true,
            }
        }
        assert!(refused);
        assert!(mount(&["-o", "remount,size=2m"], disk.path()));
        ledger.append(vec![one(1)]).unwrap();
        assert_eq!(
            verified(&ledger.reader().unwrap()),
            u64::try_from(stored.len() * 4 + 1).unwrap()
        );
    });
}

/// Decides what comes next by a state, and changes it.
struct Counting {
    count: Arc<Mutex<u64>>,
    told: mpsc::Sender<bool>,
}

impl Work for Counting {
    fn make(&mut self) -> Batch {
        let mut count = self.count.lock().unwrap();
        *count += 1;
        let payload = json!({ "count": *count, "text": "x".repeat(3000) });
        vec![told(Event::IntentDecided, 0, "t", &payload)].into()
    }

    fn done(self: Box<Self>, result: Result<&[Appended], LedgerError>) {
        self.told.send(result.is_ok()).unwrap();
    }
}

#[test]
fn a_state_that_is_made_again_after_each_failure_stays_with_the_chain_on_a_full_disk() {
    let name = "a_state_that_is_made_again_after_each_failure_stays_with_the_chain_on_a_full_disk";
    on_a_small_disk(name, |disk| {
        let filler = disk.path().join("filler");
        std::fs::write(&filler, vec![0; 1000 * 1024]).unwrap();
        let ledger = open(disk.path());
        let count = Arc::new(Mutex::new(0));
        let rebuilt = Arc::clone(&count);
        ledger.on_failure(move |head| *rebuilt.lock().unwrap() = head.seq);
        let (told, tell) = mpsc::channel();
        let ask = |times: usize| {
            for _ in 0..times {
                let work = Counting { count: Arc::clone(&count), told: told.clone() };
                ledger.work(Box::new(work));
            }
            (0..times).filter(|_| tell.recv_timeout(SOON).unwrap()).count()
        };
        let mut stored = 0;
        while stored < 1000 {
            let now = ask(50);
            stored += now;
            if now == 0 {
                break;
            }
        }
        assert!(stored > 0 && stored < 1000, "{stored}");
        // Fewer together may find room still.
        stored += ask(20);
        std::fs::remove_file(filler).unwrap();
        stored += ask(50);
        let events = ledger.reader().unwrap().tail(0, u64::MAX).unwrap();
        assert_eq!(events.len(), stored);
        for event in events {
            let payload: Value = serde_json::from_str(&event.payload).unwrap();
            assert_eq!(payload["count"], event.seq);
        }
        assert_eq!(*count.lock().unwrap(), ledger.head().seq);
    });
}

fn one(number: u64) -> NewEvent {
    told(Event::CallCompleted, 0, "system.time", &json!({ "n": number }))
}

/// Copies what a crash would leave at this moment.
fn crash_image(of: &Path) -> TempDir {
    let image = TempDir::new().unwrap();
    for name in ["tollgate.db", "tollgate.db-wal"] {
        std::fs::copy(of.join(name), image.path().join(name)).unwrap();
    }
    image
}

/// The disk has room for a commit in the log, but not for the index of the log, which grows at this very
/// page: the database has written the commit when it finds that out.
#[test]
fn a_commit_that_was_refused_after_it_was_written_does_not_come_back_after_a_crash() {
    let name = "a_commit_that_was_refused_after_it_was_written_does_not_come_back_after_a_crash";
    on_a_small_disk(name, |disk| {
        assert!(mount(&["-o", "remount,size=40m"], disk.path()));
        let ledger = open(disk.path());
        let log = disk.path().join("tollgate.db-wal");
        let pages = || std::fs::metadata(&log).unwrap().len().saturating_sub(32) / (4096 + 24);
        ledger.append(vec![one(1)]).unwrap();
        // Somebody who reads keeps the log from being begun anew.
        let reading = Connection::open(disk.path().join("tollgate.db")).unwrap();
        reading.execute_batch("BEGIN; SELECT count(*) FROM events").unwrap();
        let text = "x".repeat(4096 * 30);
        while pages() < 4056 {
            let number = ledger.head().seq;
            ledger
                .append(match pages() {
                    ..4000 => vec![told(Event::CallStarted, 0, "t", &json!({ "text": text }))],
                    _ => vec![one(number)],
                })
                .unwrap();
        }
        assert!(pages() <= 4060, "{}", pages());
        fill(disk.path(), 7);
        while ledger.append(vec![one(2)]).is_ok() {}
        let stored = ledger.head().seq;
        assert_eq!(verified(&ledger.reader().unwrap()), stored);
        let image = crash_image(disk.path());
        assert_eq!(verified(&Reader::of_folder(image.path()).unwrap()), stored);
        std::fs::remove_file(disk.path().join("filler")).unwrap();
        ledger.append(vec![one(3)]).unwrap();
        drop((reading, ledger));
        assert_eq!(verified(&open(disk.path()).reader().unwrap()), stored + 1);
    });
}

/// Fills the disk so that this many pages are left.
fn fill(disk: &Path, pages: usize) {
    use std::io::Write;
    let mut filler = std::fs::File::create(disk.join("filler")).unwrap();
    while filler.write_all(&[0; 4096]).is_ok() {}
    let size = filler.metadata().unwrap().len();
    filler.set_len(size / 4096 * 4096 - u64::try_from(pages * 4096).unwrap()).unwrap();
}
