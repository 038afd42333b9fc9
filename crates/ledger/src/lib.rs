//! The ledger: append-only events in SQLite, chained by hashes over the bytes as they are stored.
//!
//! One thread writes, and commits what came in together as one transaction ([`writer`]). Readers have
//! connections of their own ([`reader`]) and never stop it. An event that was acknowledged is on disk
//! for the process's death; with [`Sync::Full`] also for the machine's. When a commit fails, everything
//! that was in it fails, and the chain goes on from the last event that is really stored.
//!
//! What an event means is not known here. Deciding, folding and redacting happen before it is written.

mod chain;
mod error;
mod folder;
mod reader;
mod schema;
mod snapshot;
mod writer;

use std::{path::Path, sync::Arc};

pub use chain::{EventHash, Head, NewEvent, StoredEvent, Subject};
pub use error::LedgerError;
pub use reader::{Broken, Reader, Verified};
pub use snapshot::Snapshot;
pub use writer::Appended;

use crate::{folder::Folder, writer::Writer};

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
    // The writer comes first: it must have ended before the folder is given free.
    writer: Arc<Writer>,
    folder: Arc<Folder>,
}

impl Ledger {
    /// Opens the ledger in the data folder `data`, and makes both where they are missing.
    pub fn open(data: &Path, sync: Sync) -> Result<Self, LedgerError> {
        let folder = Folder::take(data)?;
        let writer = Writer::start(&folder.database(), sync)?;
        Ok(Self { writer: Arc::new(writer), folder: Arc::new(folder) })
    }

    /// Appends events, in order and together, and waits until they are stored.
    pub fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, LedgerError> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        self.append_then(events, move |result| {
            // Nobody waits any more only if the waiting thread is gone.
            let _ = send.send(result);
        });
        receive.recv().unwrap_or(Err(LedgerError::Closed))
    }

    /// Appends events, and calls `then` on the writer's thread once they are stored or have failed.
    pub fn append_then(
        &self,
        events: Vec<NewEvent>,
        then: impl FnOnce(Result<Vec<Appended>, LedgerError>) + Send + 'static,
    ) {
        self.writer.append(events, Box::new(then));
    }

    /// The last event that is stored.
    pub fn head(&self) -> Head {
        self.writer.head()
    }

    /// A connection to read with.
    pub fn reader(&self) -> Result<Reader, LedgerError> {
        Reader::open(&self.folder.database())
    }

    /// Keeps `snapshot`, so that a fold can start from it. It is a cache: losing it loses nothing.
    pub fn keep(&self, snapshot: Snapshot) -> Result<(), LedgerError> {
        self.writer.keep(snapshot)
    }
}
