//! The thread that follows the ledger into the file that queries are answered from.

use std::{
    fs, io,
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode};

use super::{
    Queries, Shared, State,
    index::{self, Progress},
    taking::Taken,
};
use crate::{
    chain::EventHash,
    error::LedgerError,
    folder::Folder,
    reader::{Reader, bounded},
    writer::{Listener, Shared as Written, spawn, step_back},
};

/// How long events are gathered that come soon after others. Most of what an event costs here is the
/// transaction that it comes in; what comes after a rest, or is waited for, is taken over at once.
const GATHER: Duration = Duration::from_millis(500);

/// How long it waits before it tries again what went wrong.
const RETRY: Duration = Duration::from_millis(250);

/// The thread, and what it has in common with those who ask.
pub(crate) struct Projection {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Projection {
    /// Starts to follow. A file that cannot be opened is no error here: it is tried again.
    pub(crate) fn start(folder: &Arc<Folder>, written: Arc<Written>) -> Result<Self, LedgerError> {
        let shared = Arc::new(Shared {
            ledger: folder.database(),
            written,
            file: folder.queries(),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            idle: Mutex::default(),
        });
        // Until it is known how far the file has come, nothing that is retired goes.
        shared.knows(0);
        let opened = Following::open(&shared).ok();
        // The folder stays taken until the thread has closed what it has open in it.
        let (following, taken) = (Arc::clone(&shared), Arc::clone(folder));
        let thread = spawn("ledger-queries", move || {
            step_back(19);
            follow(&following, opened);
            drop(taken);
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(crate) fn queries(&self) -> Queries {
        Queries { shared: Arc::clone(&self.shared) }
    }

    /// Says that something was committed.
    pub(crate) fn wake(&self) {
        self.shared.change(|state| state.woken = true);
    }

    /// Says so after every commit.
    pub(crate) fn listener(&self) -> Listener {
        let shared = Arc::clone(&self.shared);
        Box::new(move |_| {
            // While it is busy it looks again by itself, and need not be told twice.
            let mut state = shared.state();
            if !std::mem::replace(&mut state.woken, true) {
                drop(state);
                shared.changed.notify_all();
            }
        })
    }
}

impl Drop for Projection {
    fn drop(&mut self) {
        self.shared.change(|state| state.stop = true);
        // Whoever closes a database last tidies it up, and a reader cannot.
        self.shared.forget_idle();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Why it cannot go on.
enum Trouble {
    /// The file is not to be trusted any more.
    Spoilt,
    /// Something that can pass: a full disk, a ledger that cannot be read.
    Passing,
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Self {
        if spoilt(&error) { Self::Spoilt } else { Self::Passing }
    }
}

impl From<LedgerError> for Trouble {
    fn from(_: LedgerError) -> Self {
        Self::Passing
    }
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Self {
        Self::Passing
    }
}

/// Whether such an error of the file can only be mended by making it anew. What the machine lacks at this
/// moment is no fault of the file.
pub(super) fn spoilt(error: &rusqlite::Error) -> bool {
    use ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, FileLockingProtocolFailed,
        OperationInterrupted, OutOfMemory, PermissionDenied, ReadOnly, SystemIoFailure,
    };
    !matches!(
        error.sqlite_error_code(),
        Some(
            CannotOpen
                | DatabaseBusy
                | DatabaseLocked
                | DiskFull
                | FileLockingProtocolFailed
                | OperationInterrupted
                | OutOfMemory
                | PermissionDenied
                | ReadOnly
                | SystemIoFailure
        )
    )
}

/// Follows until the ledger is closed, whatever goes wrong.
fn follow(shared: &Shared, mut opened: Option<Following>) {
    while !shared.state().stop {
        let ended = match opened.take() {
            Some(mut following) => following.run(shared),
            None => match Following::open(shared) {
                Ok(following) => {
                    opened = Some(following);
                    continue;
                }
                Err(trouble) => Err(trouble),
            },
        };
        let Err(trouble) = ended else { continue };
        if matches!(trouble, Trouble::Spoilt) {
            shared.change(|state| state.rebuild = true);
        }
        let waiting = |state: &mut State| !state.stop;
        let _ = shared
            .changed
            .wait_timeout_while(shared.state(), RETRY, waiting)
            .unwrap_or_else(PoisonError::into_inner);
    }
}

/// Both ends of the way, and how far it has gone.
struct Following {
    ledger: Reader,
    index: Connection,
    at: u64,
    /// The first event of the ledger, as far as it is known.
    first: u64,
}

impl Following {
    /// Opens the file, or makes it anew where it cannot be gone on with.
    fn open(shared: &Shared) -> Result<Self, Trouble> {
        let ledger = Reader::open(&shared.ledger)?;
        if !shared.state().rebuild && shared.file.exists() {
            match index::open(&shared.file) {
                Ok(Some((index, progress))) if of_this_ledger(&ledger, &progress)? => {
                    shared.knows(progress.seq);
                    return Ok(Self { ledger, index, at: progress.seq, first: 1 });
                }
                Err(error) if !spoilt(&error) => return Err(Trouble::Passing),
                _ => {}
            }
        }
        remove(&shared.file)?;
        let index = index::create(&shared.file)?;
        shared.knows(0);
        shared.change(|state| {
            state.generation += 1;
            state.rebuild = false;
        });
        Ok(Self { ledger, index, at: 0, first: 1 })
    }

    /// Goes on until the ledger is closed or the file is to be made anew.
    fn run(&mut self, shared: &Shared) -> Result<(), Trouble> {
        loop {
            // Before it reads, so that what is committed meanwhile wakes it again.
            shared.state().woken = false;
            while self.step(shared)? {}
            let worked = Instant::now();
            let waiting = |state: &mut State| !state.woken && !state.stop && !state.rebuild;
            let state = shared
                .changed
                .wait_while(shared.state(), waiting)
                .unwrap_or_else(PoisonError::into_inner);
            // Nobody is kept waiting for it.
            let gathering = |state: &mut State| state.waiters == 0 && !state.stop && !state.rebuild;
            let left = GATHER.saturating_sub(worked.elapsed());
            let (state, _) = shared
                .changed
                .wait_timeout_while(state, left, gathering)
                .unwrap_or_else(PoisonError::into_inner);
            if state.stop || state.rebuild {
                return Ok(());
            }
        }
    }

    /// Takes over what comes next. False when there is nothing, or it is to end.
    fn step(&mut self, shared: &Shared) -> Result<bool, Trouble> {
        let Some(taken) = Taken::from(&self.ledger, self.at)? else { return Ok(false) };
        index::add(&mut self.index, &taken)?;
        self.at = taken.last_seq;
        shared.knows(taken.last_seq);
        let first = self.ledger.first_seq()?;
        if first > self.first {
            index::forget_blocks(&self.index, first)?;
            self.first = first;
        }
        let state = shared.state();
        Ok(!state.stop && !state.rebuild)
    }
}

/// Whether what is in the file comes from this ledger: the last event in it is there, with its hash, or was the last to be
/// retired. The ledger may have been replaced by a shorter one, or by another one.
fn of_this_ledger(ledger: &Reader, progress: &Progress) -> Result<bool, LedgerError> {
    let first = ledger.first_seq()?;
    if progress.seq == 0 {
        return Ok(first == 1 && progress.hash == EventHash::GENESIS.as_bytes());
    }
    let (column, seq) =
        if progress.seq < first { ("prev_hash", progress.seq + 1) } else { ("hash", progress.seq) };
    let found = ledger.connection().query_row(
        &format!("SELECT count(*) FROM events WHERE seq = ?1 AND {column} = ?2"),
        rusqlite::params![bounded(seq), progress.hash],
        |row| row.get::<_, u32>(0),
    )?;
    Ok(found == 1)
}

/// Removes the file and what the database keeps beside it. The log goes first: with a new file it would
/// be taken for that one's.
fn remove(file: &Path) -> io::Result<()> {
    for suffix in ["-wal", "-shm", ""] {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
