//! The ledger: append-only events in SQLite, chained by hashes over the bytes as they are stored.
//!
//! One thread writes, and commits what came in together as one transaction (`writer`). What is to be decided in
//! the order in which it is stored is decided there, right before (`work`). Readers have
//! connections of their own (`reader`) and never stop it. An event that was acknowledged is on disk
//! for the process's death; with [`Sync::Full`] also for the machine's. When a commit fails, everything
//! that was in it fails, and the chain goes on from the last event that is really stored.
//!
//! Old events can be retired: a checkpoint at the head of the chain vouches for them, and they go (`retire`).
//!
//! Beside the chain things can be kept that change in the same commit as the events that tell of it
//! (`beside`). Queries are answered from a file of their own, which follows the ledger and can be made
//! again from it at any time (`queries`).
//!
//! What an event means is not known here, except for the list of calls and the trends among the queries. Deciding,
//! folding and redacting happen before an event is written.

mod beside;
mod chain;
mod checkpoints;
mod error;
mod folder;
mod queries;
mod reader;
mod retire;
mod schema;
mod snapshot;
mod verify;
mod work;
mod writer;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

pub use beside::{Batch, Beside, Kept};
pub use chain::{EventHash, Head, NewEvent, StoredEvent, Subject};
pub use error::LedgerError;
pub use folder::is_taken;
pub use queries::{
    CallQuery, CallRow, EventQuery, Queries, TrendBy, TrendQuery, TrendRow, TrendStep, TrendSums,
};
pub use reader::Reader;
pub use snapshot::Snapshot;
pub use verify::{Broken, Verified};
pub use work::Work;
pub use writer::{Appended, step_back};

use crate::{folder::Folder, queries::Projection, work::Ready, writer::Writer};

/// What an acknowledged event survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sync {
    /// The death of this process, `kill -9` included.
    #[default]
    Process,
    /// The loss of power as well: every commit waits for the disk.
    Full,
}

/// An open ledger. One process at a time has it; clones share it.
#[derive(Clone)]
pub struct Ledger {
    open: Arc<Open>,
}

/// What the clones share. It closes with the last of them, in this order.
struct Open {
    projection: Mutex<Option<Projection>>,
    writer: Writer,
    folder: Arc<Folder>,
    sync: Sync,
}

impl Ledger {
    /// Opens the ledger in the data folder `data`, and makes both where they are missing.
    pub fn open(data: &Path, sync: Sync) -> Result<Self, LedgerError> {
        let folder = Arc::new(Folder::take(data)?);
        let writer = Writer::start(&folder, sync)?;
        Ok(Self { open: Arc::new(Open { projection: Mutex::default(), writer, folder, sync }) })
    }

    /// Appends events, in order and together with what changes beside them, and waits until they are
    /// stored. It waits for the writer's thread, so it must not be called there.
    pub fn append(&self, batch: impl Into<Batch>) -> Result<Vec<Appended>, LedgerError> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        self.append_then(batch, move |result| {
            // Nobody waits any more only if the waiting thread is gone.
            let _ = send.send(result);
        });
        receive.recv().unwrap_or(Err(LedgerError::Closed))
    }

    /// Appends events, and calls `then` on the writer's thread once they are stored or have failed.
    pub fn append_then(
        &self,
        batch: impl Into<Batch>,
        then: impl FnOnce(Result<Vec<Appended>, LedgerError>) + Send + 'static,
    ) {
        self.work(Box::new(Ready::new(batch.into(), then)));
    }

    /// Has a batch made on the writer's thread, behind everything that was handed over before, and stores it.
    pub fn work(&self, work: Box<dyn Work>) {
        self.open.writer.work(work);
    }

    /// Calls `f` on the writer's thread after each commit of a batch, with the head that it led to. The
    /// next commit waits for it, so it should only wake somebody. It must not own this ledger, which
    /// would then never close. Whoever registers first and reads the head then misses nothing.
    pub fn on_commit(&self, f: impl Fn(Head) + Send + std::marker::Sync + 'static) {
        self.open.writer.on_commit(Box::new(f));
    }

    /// Calls `f` on the writer's thread after a commit has failed, or work could not be made: before anybody is
    /// told, before the next batch is made, with the last event that is really stored. Whoever keeps a state that
    /// [`Work::make`] changes rebuilds it here. It must not own this ledger, nor wait for the writer.
    pub fn on_failure(&self, f: impl Fn(Head) + Send + std::marker::Sync + 'static) {
        self.open.writer.on_failure(Box::new(f));
    }

    /// What its events survive.
    pub fn sync(&self) -> Sync {
        self.open.sync
    }

    /// The last event that is stored.
    pub fn head(&self) -> Head {
        self.open.writer.shared().head()
    }

    /// A connection to read with.
    pub fn reader(&self) -> Result<Reader, LedgerError> {
        Reader::open(&self.open.folder.database())
    }

    /// Answers to queries. The first use starts a thread that follows the ledger; it ends with it.
    pub fn queries(&self) -> Result<Queries, LedgerError> {
        let mut projection = self.open.projection.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*projection {
            return Ok(running.queries());
        }
        let started = Projection::start(&self.open.folder, Arc::clone(self.open.writer.shared()))?;
        self.open.writer.on_commit(started.listener());
        // What was committed before the listener was there is found without being told.
        started.wake();
        Ok(projection.insert(started).queries())
    }

    /// Forgets what is kept beside the chain and whose time has come: everything that expires at
    /// `now_ms` or before. Gives how much went. Others' events are stored in between.
    pub fn forget_expired(&self, now_ms: i64) -> Result<u64, LedgerError> {
        self.open.writer.forget(now_ms)
    }

    /// Retires the events up to `through_seq`, which must come before the head: appends a `checkpoint` event with the
    /// state that `state` gives as JSON text, and removes them then. `state` runs on the writer's thread with the last
    /// event before the checkpoint, between two commits; if it panics, that is a failure as in [`Work::make`].
    ///
    /// It waits until the checkpoint is stored; the events go in the writer's spare time, oldest first, and after a
    /// crash that goes on at the next start. If queries follow the ledger, no event goes before they know of it.
    pub fn retire(
        &self,
        now_ms: i64,
        through_seq: u64,
        state: impl FnOnce(Head) -> String + Send + 'static,
    ) -> Result<Appended, LedgerError> {
        self.open.writer.retire(now_ms, through_seq, Box::new(state))
    }

    /// Keeps `snapshot`, so that a fold can start from it. It is a cache: losing it loses nothing.
    pub fn keep(&self, snapshot: Snapshot) -> Result<(), LedgerError> {
        self.open.writer.keep(snapshot)
    }
}
