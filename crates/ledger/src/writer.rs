//! The one writer. What comes in while a commit runs is committed together with the next one.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use rusqlite::{Connection, params};

use crate::{
    Sync,
    chain::{EventHash, Head, NewEvent, StoredEvent},
    error::LedgerError,
    reader, schema,
    snapshot::Snapshot,
};

/// Most events in one commit: what waits longer would wait for others' events too.
const MOST_TOGETHER: usize = 1024;

/// How long a commit waits for a lock that should not be there.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often the write-ahead log is moved into the database.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

/// An event that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its place.
    pub seq: u64,
    /// Its hash.
    pub hash: EventHash,
}

type Then = Box<dyn FnOnce(Result<Vec<Appended>, LedgerError>) + Send>;

enum Job {
    Append(Vec<NewEvent>, Then),
    Keep(Snapshot, Sender<Result<(), LedgerError>>),
}

/// The writer's thread, and the way to it.
pub(crate) struct Writer {
    jobs: Option<Sender<Job>>,
    head: Arc<Mutex<Head>>,
    threads: Vec<JoinHandle<()>>,
}

impl Writer {
    pub(crate) fn start(file: &Path, sync: Sync) -> Result<Self, LedgerError> {
        let connection = schema::open(file)?;
        let synchronous = match sync {
            // In write-ahead mode a commit is in the hands of the system without waiting for the disk.
            Sync::Process => "normal",
            Sync::Full => "full",
        };
        connection.pragma_update(None, "synchronous", synchronous)?;
        // Nobody else writes; whoever does all the same is waited for briefly, and then it is a failure.
        connection.busy_timeout(PATIENCE)?;
        // Checkpoints are another thread's work, so that no decision waits for one.
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        let head = Arc::new(Mutex::new(reader::head(&connection)?));
        let (jobs, queue) = channel();
        let (stop, stopped) = channel::<()>();
        let shared = Arc::clone(&head);
        let writer = spawn("ledger-writer", move || {
            Writing { connection, head: shared, queue }.run();
            drop(stop);
        })?;
        let file = file.to_owned();
        let checkpoints = spawn("ledger-checkpoints", move || checkpoints(&file, &stopped))?;
        Ok(Self { jobs: Some(jobs), head, threads: vec![writer, checkpoints] })
    }

    pub(crate) fn append(&self, events: Vec<NewEvent>, then: Then) {
        let Some(jobs) = &self.jobs else { return then(Err(LedgerError::Closed)) };
        if let Err(unsent) = jobs.send(Job::Append(events, then))
            && let Job::Append(_, then) = unsent.0
        {
            then(Err(LedgerError::Closed));
        }
    }

    pub(crate) fn keep(&self, snapshot: Snapshot) -> Result<(), LedgerError> {
        let (done, wait) = channel();
        let jobs = self.jobs.as_ref().ok_or(LedgerError::Closed)?;
        jobs.send(Job::Keep(snapshot, done)).map_err(|_| LedgerError::Closed)?;
        wait.recv().unwrap_or(Err(LedgerError::Closed))
    }

    pub(crate) fn head(&self) -> Head {
        *self.head.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writer {
    /// Everything that was handed over before is still written; then the threads end.
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LedgerError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| LedgerError::Database(format!("cannot start a thread: {error}")))
}

/// Moves the write-ahead log into the database from time to time, without stopping the writer.
fn checkpoints(file: &Path, stopped: &Receiver<()>) {
    // Without a connection of its own the log grows, and the last connection to close empties it.
    let Ok(connection) = Connection::open(file) else { return };
    while stopped.recv_timeout(CHECKPOINT_EVERY) == Err(RecvTimeoutError::Timeout) {
        // Whatever it cannot do now it does the next time.
        let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }
}

struct Writing {
    connection: Connection,
    head: Arc<Mutex<Head>>,
    queue: Receiver<Job>,
}

impl Writing {
    fn run(mut self) {
        while let Ok(first) = self.queue.recv() {
            let mut batch = Vec::new();
            let mut count = 0;
            let mut next = Some(first);
            while let Some(job) = next.take() {
                match job {
                    Job::Append(events, then) => {
                        count += events.len();
                        batch.push((events, then));
                    }
                    Job::Keep(snapshot, done) => {
                        let _ = done.send(snapshot.store(&self.connection));
                    }
                }
                if count < MOST_TOGETHER {
                    next = self.queue.try_recv().ok();
                }
            }
            if !batch.is_empty() {
                self.commit(batch);
            }
        }
    }

    /// Stores a batch as one transaction, and tells everyone who waits for a part of it.
    fn commit(&mut self, batch: Vec<(Vec<NewEvent>, Then)>) {
        let before = *self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = before;
        let mut waiting = Vec::with_capacity(batch.len());
        let mut chained = Vec::new();
        for (events, then) in batch {
            let mut appended = Vec::with_capacity(events.len());
            for event in events {
                let stored = event.chained(at);
                at = stored.head();
                appended.push(Appended { seq: at.seq, hash: at.hash });
                chained.push(stored);
            }
            waiting.push((appended, then));
        }
        match self.store(&chained) {
            Ok(()) => {
                *self.head.lock().unwrap_or_else(PoisonError::into_inner) = at;
                waiting.into_iter().for_each(|(appended, then)| then(Ok(appended)));
            }
            Err(error) => {
                // What is really stored decides where the chain goes on.
                let stored = reader::head(&self.connection).unwrap_or(before);
                *self.head.lock().unwrap_or_else(PoisonError::into_inner) = stored;
                waiting.into_iter().for_each(|(_, then)| then(Err(error.clone())));
            }
        }
    }

    fn store(&mut self, events: &[StoredEvent]) -> Result<(), LedgerError> {
        let change = self.connection.transaction()?;
        {
            let mut insert = change.prepare_cached(
                "INSERT INTO events (seq, ts, kind, agent_id, identity_id, workload_id, scope_id, tool, intent_id, payload, prev_hash, hash)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?;
            for event in events {
                let seq = i64::try_from(event.seq)
                    .map_err(|_| LedgerError::Event("seq too large".to_owned()))?;
                let subject = &event.subject;
                insert.execute(params![
                    seq,
                    event.ts_ms,
                    event.kind,
                    subject.agent_id,
                    subject.identity_id,
                    subject.workload_id,
                    subject.scope_id,
                    subject.tool,
                    subject.intent_id,
                    event.payload,
                    event.prev_hash.as_bytes(),
                    event.hash.as_bytes(),
                ])?;
            }
        }
        change.commit()?;
        Ok(())
    }
}
