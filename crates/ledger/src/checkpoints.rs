//! Moving the write-ahead log into the database, so that it stays small and no decision waits for it.

use std::{
    fs::{File, OpenOptions},
    path::Path,
    sync::{
        Arc, Weak,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use rusqlite::{Connection, TransactionBehavior};

use crate::{
    error::LedgerError,
    folder, schema,
    writer::{Chore, Job, Shared},
};

/// How often the log is moved.
const EVERY: Duration = Duration::from_secs(1);

/// How soon it is moved when so many bytes came in: then there is less to be moved at once, and the disk is not asked to
/// take it all in one go.
const SOONER: Duration = Duration::from_millis(250);
const MUCH: usize = 1024 * 1024;

/// From how many pages on the log must be begun anew (64 MiB). While events keep coming, a log that is
/// moved beside the writer is never moved completely, and would grow for ever.
const MOST_PAGES: i64 = 16_384;

/// A log with something in it that was forgotten is emptied at once when it is this short, in pages (1 MiB), and else at
/// most so often: to give a long one back to the disk takes milliseconds, and the next commits have to ask for room again.
const SHORT: i64 = 256;
const WIPE_EVERY: Duration = Duration::from_secs(10);

/// The writer moves the rest when it begins the log anew, and everybody waits for that. This is few enough pages, and
/// so often it is tried to leave no more.
const FEW: i64 = 64;
const TRIES: usize = 8;

/// Moves the log from time to time until `stopped`.
pub(crate) fn run(file: &Path, stopped: &Receiver<()>, shared: &Shared, jobs: &Weak<Sender<Job>>) {
    let mut database = None;
    let mut moved = Instant::now();
    let mut wiped = Instant::now();
    while stopped.recv_timeout(SOONER) == Err(RecvTimeoutError::Timeout) {
        if moved.elapsed() < EVERY && shared.unmoved.load(Ordering::Relaxed) < MUCH {
            continue;
        }
        moved = Instant::now();
        shared.unmoved.store(0, Ordering::Relaxed);
        // Whatever it cannot do now it does the next time, with a new connection.
        let Some(mut open) = database.take().or_else(|| Database::open(file)) else { continue };
        if open.passive().is_none() {
            continue;
        }
        let due = open.pages <= SHORT || wiped.elapsed() >= WIPE_EVERY;
        let wipe = shared.refused.load(Ordering::Acquire)
            || (due && shared.untidy.load(Ordering::Acquire));
        if wipe || open.pages > MOST_PAGES {
            if wipe {
                wiped = Instant::now();
            }
            open.move_the_rest();
            if let Some(jobs) = jobs.upgrade() {
                let _ = jobs.send(Job::Chore(Chore::Tidy { wipe }));
            }
        }
        database = Some(open);
    }
}

/// What the log is moved into.
struct Database {
    connection: Connection,
    file: Option<Arc<File>>,
    /// How many pages the log has.
    pages: i64,
    /// How many of them are moved.
    done: i64,
}

impl Database {
    fn open(file: &Path) -> Option<Self> {
        let connection = schema::read_write(file).ok()?;
        Some(Self { connection, file: folder::kept_open(file), pages: 0, done: 0 })
    }

    /// Moves what can be moved without stopping anybody, brings it to the disk, and gives how many pages it was. SQLite
    /// itself brings it there only once the whole log is moved, and under load that is when the writer begins it anew:
    /// all of it would be waited for then.
    fn passive(&mut self) -> Option<i64> {
        let numbers = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
        let (pages, done): (i64, i64) =
            self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], numbers).ok()?;
        // A log that was begun anew counts from its beginning.
        let moved = if done < self.done { done } else { done - self.done };
        (self.pages, self.done) = (pages, done);
        if let Some(file) = self.file.as_ref().filter(|_| moved > 0) {
            // If it fails here, it fails again where it counts.
            let _ = file.sync_data();
        }
        Some(moved)
    }

    /// Moves what came in while the log was being moved, and what came in while that was, until it is little.
    fn move_the_rest(&mut self) {
        for _ in 0..TRIES {
            if self.passive().is_none_or(|moved| moved <= FEW) {
                return;
            }
        }
    }
}

/// Moves what is left and begins the log anew, if nobody is reading from it at this moment. With `wipe`
/// what was in it goes from the disk too; without, the file is written over, which is faster. The writer
/// alone may do this: everybody else would have to lock it out.
pub(crate) fn restart(connection: &Connection, wipe: bool, patience: Duration) -> bool {
    let how = if wipe { "TRUNCATE" } else { "RESTART" };
    let restarted = connection.busy_timeout(Duration::ZERO).is_ok()
        && connection
            .query_row(&format!("PRAGMA wal_checkpoint({how})"), [], |row| row.get::<_, i64>(0))
            .is_ok_and(|busy| busy == 0);
    let _ = connection.busy_timeout(patience);
    restarted
}

/// Cuts the log behind its last commit. A commit can fail after it was written: when the disk does not
/// confirm it, or has no room for the log's index. It then stands behind the end, where this process does
/// not see it, but a start after a crash would, and what was refused would be stored after all.
pub(crate) fn cut(connection: &mut Connection, log: &Path, patience: Duration) -> bool {
    let done = connection.busy_timeout(Duration::ZERO).is_ok() && try_cut(connection, log).is_ok();
    let _ = connection.busy_timeout(patience);
    done
}

fn try_cut(connection: &mut Connection, log: &Path) -> Result<(), LedgerError> {
    // The sizes of the log's head, and of what stands before each page in it.
    let (head, before_page) = (32, 24);
    let number = |connection: &Connection, pragma: &str, column: usize| {
        connection.query_row(&format!("PRAGMA {pragma}"), [], |row| {
            row.get::<_, u32>(column).map(u64::from)
        })
    };
    let version = number(connection, "data_version", 0)?;
    let pages = number(connection, "wal_checkpoint(NOOP)", 1)?;
    // Nobody else is to write meanwhile, nor to have written since the pages were counted.
    let locked = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if number(&locked, "data_version", 0)? != version {
        return Err(LedgerError::Database("somebody else has written".to_owned()));
    }
    let page = number(&locked, "page_size", 0)?;
    let end = match pages {
        0 => 0,
        pages => head + pages * (before_page + page),
    };
    let unusable = |error: std::io::Error| LedgerError::unusable(log, error);
    let file = OpenOptions::new().write(true).open(log).map_err(unusable)?;
    if file.metadata().map_err(unusable)?.len() > end {
        file.set_len(end).and_then(|()| file.sync_data()).map_err(unusable)?;
    }
    Ok(locked.rollback()?)
}
