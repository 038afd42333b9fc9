//! Moving the write-ahead log into the database, so that it stays small and no decision waits for it.

use std::{
    fs::OpenOptions,
    path::Path,
    sync::{
        Weak,
        atomic::Ordering,
        mpsc::{Receiver, RecvTimeoutError, Sender},
    },
    time::Duration,
};

use rusqlite::{Connection, TransactionBehavior};

use crate::{
    error::LedgerError,
    schema,
    writer::{Chore, Job, Shared},
};

/// How often the log is moved.
const EVERY: Duration = Duration::from_secs(1);

/// From how many pages on the log must be begun anew (16 MiB). While events keep coming, a log that is
/// moved beside the writer is never moved completely, and would grow for ever.
const MOST_PAGES: i64 = 4096;

/// Moves the log from time to time until `stopped`.
pub(crate) fn run(file: &Path, stopped: &Receiver<()>, shared: &Shared, jobs: &Weak<Sender<Job>>) {
    let mut connection = None;
    while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
        if connection.is_none() {
            connection = schema::read_write(file).ok();
        }
        // Whatever it cannot do now it does the next time, with a new connection.
        let Some(pages) = connection.as_ref().and_then(passive) else {
            connection = None;
            continue;
        };
        let long = pages > MOST_PAGES;
        if long || shared.untidy.load(Ordering::Acquire) {
            if long {
                // What came in meanwhile is moved too, so that the writer has little left to do.
                connection.as_ref().and_then(passive);
            }
            if let Some(jobs) = jobs.upgrade() {
                let _ = jobs.send(Job::Chore(Chore::Tidy));
            }
        }
    }
}

/// Moves what can be moved without stopping anybody, and gives how many pages the log has.
fn passive(connection: &Connection) -> Option<i64> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1)).ok()
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
