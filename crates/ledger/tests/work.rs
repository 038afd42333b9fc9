//! Work that is made on the writer's thread: in the order of the chain, and never apart from what is stored.

#![cfg(test)]

mod common;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use common::{event, open, subject, verified};
use proptest::{collection::vec, prelude::*};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_contract::event::Event;
use tollgate_ledger::{
    Appended, Batch, Beside, Head, Ledger, LedgerError, NewEvent, Reader, Subject, Work,
};

const SOON: Duration = Duration::from_secs(30);

/// Work made of two closures.
struct Closures<M, D>(M, D);

impl<M, D> Work for Closures<M, D>
where
    M: FnMut() -> Batch + Send + 'static,
    D: FnOnce(Result<&[Appended], LedgerError>) + Send + 'static,
{
    fn make(&mut self) -> Batch {
        (self.0)()
    }

    fn done(self: Box<Self>, result: Result<&[Appended], LedgerError>) {
        (self.1)(result);
    }
}

/// Hands work over, and sends what became of it under `number`.
fn hand_over(
    ledger: &Ledger,
    number: u64,
    told: &mpsc::Sender<(u64, Result<Vec<u64>, LedgerError>)>,
    make: impl FnMut() -> Batch + Send + 'static,
) {
    let told = told.clone();
    ledger.work(Box::new(Closures(make, move |result: Result<&[Appended], LedgerError>| {
        let seqs = result.map(|appended| appended.iter().map(|one| one.seq).collect());
        told.send((number, seqs)).unwrap();
    })));
}

/// Keeps the writer busy until the given end is dropped, so that what follows is committed together.
fn hold_up(ledger: &Ledger) -> mpsc::Sender<()> {
    let (go, wait) = mpsc::channel::<()>();
    let make = move || {
        let _ = wait.recv();
        Batch::default()
    };
    ledger.work(Box::new(Closures(make, |_: Result<&[Appended], LedgerError>| ())));
    go
}

fn failures(ledger: &Ledger) -> Arc<Mutex<Vec<Head>>> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&seen);
    ledger.on_failure(move |head| into.lock().unwrap().push(head));
    seen
}

/// Whoever stores an event of this kind fails, and everybody with him.
const POISON: &str = "CREATE TRIGGER poison BEFORE INSERT ON events WHEN NEW.kind = 'halted'
                      BEGIN SELECT RAISE(ABORT, 'poison'); END";

fn poison(number: u64) -> NewEvent {
    NewEvent::new(Event::Halted, 0, subject(None), &json!({ "n": number })).unwrap()
}

fn other(folder: &Path, sql: &str) {
    Connection::open(folder.join("tollgate.db")).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn work_is_made_in_the_order_in_which_it_came_among_plain_appends() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let (told, tell) = mpsc::channel();
    let made = Arc::new(Mutex::new(Vec::new()));
    for number in 1..=3000_u64 {
        if number % 3 == 0 {
            let told = told.clone();
            ledger.append_then(vec![event(number)], move |result| {
                let seqs = result.map(|appended| appended.iter().map(|one| one.seq).collect());
                told.send((number, seqs)).unwrap();
            });
        } else {
            let made = Arc::clone(&made);
            hand_over(&ledger, number, &told, move || {
                made.lock().unwrap().push(number);
                vec![event(number); usize::try_from(number % 3).unwrap()].into()
            });
        }
    }
    let mut next = 1;
    for number in 1..=3000 {
        let (who, seqs) = tell.recv_timeout(SOON).unwrap();
        assert_eq!(who, number, "they are told in the same order");
        let count = if number % 3 == 2 { 2 } else { 1 };
        assert_eq!(seqs.unwrap(), (next..next + count).collect::<Vec<_>>());
        next += count;
    }
    let made = made.lock().unwrap();
    assert!(made.is_sorted() && made.len() == 2000);
    assert_eq!(verified(&ledger.reader().unwrap()), next - 1);
}

#[test]
fn a_payload_that_is_written_already_is_stored_as_it_is() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let payload = r#"{"b" : 1,  "a":[]}"#;
    let made = NewEvent::from_json(Event::IntentDecided, 7, Subject::default(), payload.to_owned());
    ledger.append(vec![made.unwrap()]).unwrap();
    assert_eq!(ledger.reader().unwrap().tail(0, 1).unwrap()[0].payload, payload);
    let huge = format!("\"{}\"", "x".repeat(17 * 1024 * 1024));
    let refused = NewEvent::from_json(Event::IntentDecided, 7, Subject::default(), huge);
    assert!(matches!(refused, Err(LedgerError::TooLarge { .. })));
    let refused = NewEvent::from_json(Event::ModelDone, 7, Subject::default(), "{}".to_owned());
    assert!(matches!(refused, Err(LedgerError::Event(_))));
}

#[test]
fn a_batch_of_nothing_is_told_and_makes_no_commit() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let commits = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&commits);
    ledger.on_commit(move |head| seen.lock().unwrap().push(head.seq));
    let failures = failures(&ledger);
    let (told, tell) = mpsc::channel();
    hand_over(&ledger, 1, &told, Batch::default);
    assert_eq!(tell.recv_timeout(SOON).unwrap().1.unwrap(), [0; 0]);
    assert_eq!(ledger.append(Vec::new()).unwrap(), []);
    // Somebody else holds the database: a commit would be refused.
    let holding = Connection::open(folder.path().join("tollgate.db")).unwrap();
    holding.execute_batch("BEGIN IMMEDIATE").unwrap();
    hand_over(&ledger, 2, &told, Batch::default);
    assert_eq!(tell.recv_timeout(SOON).unwrap().1.unwrap(), [0; 0]);
    holding.execute_batch("ROLLBACK").unwrap();
    assert_eq!(*commits.lock().unwrap(), [0; 0]);
    // Among others it waits for them.
    let go = hold_up(&ledger);
    hand_over(&ledger, 3, &told, || vec![event(1)].into());
    hand_over(&ledger, 4, &told, Batch::default);
    drop(go);
    assert_eq!(tell.recv_timeout(SOON).unwrap().1.unwrap(), [1]);
    assert_eq!(tell.recv_timeout(SOON).unwrap().1.unwrap(), [0; 0]);
    assert_eq!(*failures.lock().unwrap(), []);
}

#[test]
fn when_a_commit_fails_everything_in_it_fails_after_the_listeners_know() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append(vec![event(1)]).unwrap();
    let before = ledger.head();
    other(folder.path(), POISON);
    let order = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&order);
    ledger.on_failure(move |head| noted.lock().unwrap().push(format!("failed at {}", head.seq)));
    ledger.on_failure(|_| panic!("a listener that panics"));
    let failures = failures(&ledger);
    let go = hold_up(&ledger);
    let note = |text: String| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(text.clone())
    };
    for (number, batch) in
        [(2, vec![event(2)]), (3, vec![poison(3)]), (4, vec![event(4)]), (5, vec![])]
    {
        let (made, told) = (note(format!("made {number}")), note(format!("told {number}")));
        let make = move || {
            made();
            batch.clone().into()
        };
        let done = move |result: Result<&[Appended], LedgerError>| {
            assert!(matches!(result, Err(LedgerError::Database(_))));
            told();
        };
        ledger.work(Box::new(Closures(make, done)));
    }
    drop(go);
    let after = ledger.append(vec![event(6)]);
    let order = order.lock().unwrap();
    let (made, rest) = order.split_at(4);
    assert_eq!(made, ["made 2", "made 3", "made 4", "made 5"]);
    // What was appended while they failed may have been in the same commit.
    assert_eq!(rest, ["failed at 1", "told 2", "told 3", "told 4", "told 5"]);
    drop(order);
    assert_eq!(*failures.lock().unwrap(), [before]);
    assert!(after.is_err() || ledger.head().seq == 2);
    assert!(ledger.append(vec![event(7)]).is_ok());
    verified(&ledger.reader().unwrap());
}

#[test]
fn who_panics_while_making_fails_alone_and_the_others_are_stored() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let failures = failures(&ledger);
    let (told, tell) = mpsc::channel();
    let go = hold_up(&ledger);
    for number in 1..=6_u64 {
        hand_over(&ledger, number, &told, move || {
            assert!(number % 3 != 0, "somebody who panics");
            vec![event(number)].into()
        });
    }
    drop(go);
    let results: Vec<_> = (1..=6).map(|_| tell.recv_timeout(SOON).unwrap()).collect();
    let seqs: Vec<_> = results.iter().map(|(_, result)| result.as_ref().ok().cloned()).collect();
    let stored = |seq: u64| Some(vec![seq]);
    assert_eq!(seqs, [stored(1), stored(2), None, stored(3), stored(4), None]);
    assert!(matches!(results[2].1, Err(LedgerError::Unmade)));
    // With what was made before it, which is stored.
    let heads: Vec<_> = failures.lock().unwrap().iter().map(|head| head.seq).collect();
    assert_eq!(heads, [2, 4]);
    assert_eq!(verified(&ledger.reader().unwrap()), 4);
}

#[test]
fn what_is_made_too_large_fails_alone_too() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    let failures = failures(&ledger);
    let (told, tell) = mpsc::channel();
    let go = hold_up(&ledger);
    hand_over(&ledger, 1, &told, || vec![event(1)].into());
    hand_over(&ledger, 2, &told, || Batch {
        events: vec![event(2)],
        beside: vec![Beside::Put {
            space: "s",
            key: b"k".to_vec(),
            value: vec![0; 17 * 1024 * 1024],
            expires_ms: None,
        }],
    });
    hand_over(&ledger, 3, &told, || vec![event(3)].into());
    drop(go);
    let results: Vec<_> = (1..=3).map(|_| tell.recv_timeout(SOON).unwrap().1).collect();
    assert!(results[0].is_ok() && results[2].is_ok());
    assert!(matches!(results[1], Err(LedgerError::TooLarge { .. })));
    assert_eq!(failures.lock().unwrap().len(), 1);
    assert_eq!(verified(&ledger.reader().unwrap()), 2);
}

#[test]
fn a_removed_file_fails_what_was_made_and_says_where_the_chain_stood() {
    let folder = TempDir::new().unwrap();
    let ledger = open(folder.path());
    ledger.append(vec![event(1)]).unwrap();
    let (head, failures) = (ledger.head(), failures(&ledger));
    std::fs::remove_file(folder.path().join("tollgate.db")).unwrap();
    let (told, tell) = mpsc::channel();
    hand_over(&ledger, 2, &told, || vec![event(2)].into());
    assert!(matches!(tell.recv_timeout(SOON).unwrap().1, Err(LedgerError::Database(_))));
    assert_eq!(*failures.lock().unwrap(), [head]);
}

/// A pool that must not be overdrawn: the state that decides, and that must never leave the chain.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Pool {
    spent: u64,
    decided: u64,
}

const LIMIT: u64 = 400;

impl Pool {
    fn fold(&mut self, payload: &str) {
        let payload: Value = serde_json::from_str(payload).unwrap();
        let number = |name: &str| payload[name].as_u64().unwrap();
        assert_eq!((number("spent"), number("decided")), (self.spent, self.decided));
        self.spent += number("amount");
        self.decided += 1;
    }

    /// The state that the stored events lead to.
    fn of(reader: &Reader, through: u64) -> Self {
        let mut pool = Self::default();
        for event in reader.tail(0, through).unwrap() {
            pool.fold(&event.payload);
        }
        pool
    }
}

#[derive(Debug, Clone, Copy)]
enum Ask {
    Spend(u64),
    /// Nothing is to be stored.
    Look,
    /// The commit with this in it fails.
    Poison(u64),
    /// Panics when the state is half changed.
    Panic,
}

struct Deciding {
    ask: Ask,
    pool: Arc<Mutex<Pool>>,
    told: mpsc::Sender<bool>,
}

impl Work for Deciding {
    fn make(&mut self) -> Batch {
        let mut pool = self.pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (kind, asked) = match self.ask {
            Ask::Look => return Batch::default(),
            Ask::Spend(amount) => (Event::IntentDecided, amount),
            Ask::Poison(amount) => (Event::Halted, amount),
            Ask::Panic => {
                pool.spent += 1;
                panic!("half way");
            }
        };
        let amount = if pool.spent + asked <= LIMIT { asked } else { 0 };
        let payload = json!({
            "spent": pool.spent, "decided": pool.decided, "amount": amount,
        });
        pool.spent += amount;
        pool.decided += 1;
        vec![NewEvent::new(kind, 0, Subject::default(), &payload).unwrap()].into()
    }

    fn done(self: Box<Self>, result: Result<&[Appended], LedgerError>) {
        let _ = self.told.send(result.is_ok_and(|appended| !appended.is_empty()));
    }
}

/// A pool whose state is made again from the chain after each failure.
fn pool(ledger: &Ledger, folder: PathBuf) -> Arc<Mutex<Pool>> {
    let pool = Arc::new(Mutex::new(Pool::default()));
    let rebuilt = Arc::clone(&pool);
    ledger.on_failure(move |head| {
        let reader = Reader::of_folder(&folder).unwrap();
        assert_eq!(reader.head().unwrap(), head);
        *rebuilt.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Pool::of(&reader, head.seq);
    });
    pool
}

fn some_ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        12 => (0..20_u64).prop_map(Ask::Spend),
        2 => Just(Ask::Look),
        1 => (0..20_u64).prop_map(Ask::Poison),
        1 => Just(Ask::Panic),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However commits fail and makers panic: every event was decided by the state that the events before it lead
    /// to, and the state that is left is that of the chain.
    #[test]
    fn a_state_that_is_rebuilt_after_failures_never_leaves_the_chain(
        asks in vec((some_ask(), prop::bool::weighted(0.1)), 1..120),
    ) {
        let folder = TempDir::new().unwrap();
        let ledger = open(folder.path());
        other(folder.path(), POISON);
        let pool = pool(&ledger, folder.path().to_owned());
        let (told, tell) = mpsc::channel();
        for (ask, wait) in &asks {
            let deciding = Deciding { ask: *ask, pool: Arc::clone(&pool), told: told.clone() };
            ledger.work(Box::new(deciding));
            if *wait {
                ledger.append(Vec::new()).ok();
            }
        }
        let stored = asks.iter().filter(|_| tell.recv_timeout(SOON).unwrap()).count();
        let head = ledger.head();
        prop_assert_eq!(verified(&ledger.reader().unwrap()), head.seq);
        prop_assert_eq!(u64::try_from(stored).unwrap(), head.seq);
        let folded = Pool::of(&ledger.reader().unwrap(), head.seq);
        prop_assert!(folded.spent <= LIMIT);
        prop_assert_eq!(folded, *pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }
}
