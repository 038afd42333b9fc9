//! Work for the writer's thread: batches that are made there, in the order of the chain, right before they are
//! stored. Whoever decides by a state, and records what he decided, keeps both in step that way.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{
    beside::{Batch, Beside},
    chain::{Head, NewEvent},
    error::LedgerError,
    writer::Appended,
};

/// Most events in one commit: what waits longer would wait for others' events too.
const MOST_TOGETHER: usize = 1024;

/// Most bytes in one commit, for the same reason. A batch that is larger alone is a commit of its own.
const MOST_BYTES_TOGETHER: usize = 4 * 1024 * 1024;

/// Something that is decided on the writer's thread and stored in the commit that comes next.
pub trait Work: Send + 'static {
    /// Makes the batch. Runs on the writer's thread, in the order of the chain, right before it is stored;
    /// everybody waits meanwhile. If it panics, nothing of it is stored and it has failed.
    fn make(&mut self) -> Batch;

    /// Told on the writer's thread once it is stored, or has failed (with everything that was in the same commit).
    /// A batch of nothing is told too, when what was made before it is stored.
    fn done(self: Box<Self>, result: Result<&[Appended], LedgerError>);
}

/// A batch that is there already, and whom to tell.
pub(crate) struct Ready<F> {
    batch: Batch,
    /// It was found to be too large before it could harm others.
    refused: Option<LedgerError>,
    then: F,
}

impl<F> Ready<F> {
    pub(crate) fn new(batch: Batch, then: F) -> Self {
        match batch.check() {
            Ok(()) => Self { batch, refused: None, then },
            Err(refused) => Self { batch: Batch::default(), refused: Some(refused), then },
        }
    }
}

impl<F> Work for Ready<F>
where
    F: FnOnce(Result<Vec<Appended>, LedgerError>) + Send + 'static,
{
    fn make(&mut self) -> Batch {
        std::mem::take(&mut self.batch)
    }

    fn done(self: Box<Self>, result: Result<&[Appended], LedgerError>) {
        let Self { refused, then, .. } = *self;
        then(refused.map_or_else(|| result.map(<[Appended]>::to_vec), Err));
    }
}

/// Work that could not be made, and why.
pub(crate) type Fallen = (Box<dyn Work>, LedgerError);

/// What is committed together. Its room is used again for the next one.
#[derive(Default)]
pub(crate) struct Group {
    made: Vec<(Box<dyn Work>, Batch)>,
    appended: Vec<Appended>,
    /// How much of it there is, for the limits.
    count: usize,
    bytes: usize,
    stores: bool,
}

impl Group {
    /// Makes what comes next. What cannot be made, or cannot be stored as it was made, comes back.
    pub(crate) fn make(&mut self, mut work: Box<dyn Work>) -> Result<(), Fallen> {
        let Ok(batch) = catch_unwind(AssertUnwindSafe(|| work.make())) else {
            return Err((work, LedgerError::Unmade));
        };
        if let Err(error) = batch.check() {
            return Err((work, error));
        }
        // A batch without events is work too.
        self.count += batch.events.len().max(1);
        self.bytes = self.bytes.saturating_add(batch.bytes());
        self.stores |= !batch.events.is_empty() || !batch.beside.is_empty();
        self.made.push((work, batch));
        Ok(())
    }

    /// Whether more can be committed with it.
    pub(crate) fn has_room(&self) -> bool {
        self.count < MOST_TOGETHER && self.bytes < MOST_BYTES_TOGETHER
    }

    /// Whether there is anything in it to be stored.
    pub(crate) fn stores(&self) -> bool {
        self.stores
    }

    /// About how many bytes there are in it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives every event its place behind `head`, and says where that leads.
    pub(crate) fn chain(&mut self, head: Head) -> Head {
        let mut at = head;
        for event in self.made.iter().flat_map(|(_, batch)| &batch.events) {
            at = event.after(at);
            self.appended.push(Appended { seq: at.seq, hash: at.hash });
        }
        at
    }

    /// The events with their places.
    pub(crate) fn events(&self) -> impl Iterator<Item = (&NewEvent, &Appended)> {
        self.made.iter().flat_map(|(_, batch)| &batch.events).zip(&self.appended)
    }

    /// What changes beside the chain.
    pub(crate) fn beside(&self) -> impl Iterator<Item = &Beside> {
        self.made.iter().flat_map(|(_, batch)| &batch.beside)
    }

    /// Tells everyone how it ended, and is empty then.
    pub(crate) fn tell(&mut self, result: &Result<(), LedgerError>) {
        let mut left = self.appended.as_slice();
        for (work, batch) in self.made.drain(..) {
            let (mine, others) = left.split_at_checked(batch.events.len()).unwrap_or_default();
            left = others;
            tell(|| work.done(result.as_ref().map(|()| mine).map_err(Clone::clone)));
        }
        self.appended.clear();
        (self.count, self.bytes, self.stores) = (0, 0, false);
    }
}

/// Calls somebody else's code. If it panics, that is its own end and not the writer's.
pub(crate) fn tell(f: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(f));
}
