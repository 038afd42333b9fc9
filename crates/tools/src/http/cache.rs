//! Answers that were fetched before, in a SQLite file of their own beside the ledger, outside every workspace.
//!
//! It is a cache and nothing more: whatever is wrong with it costs a fetch and never a call. A row carries a hash
//! over everything in it, so that a damaged one is not served; a damaged file is set aside and begun anew.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tracing::warn;

use super::Page;

/// The file in the data folder.
const FILE: &str = "http_cache.db";

/// Marks the shape of the table. Another one is begun anew.
const VERSION: i64 = 1;

/// How long another process's write is waited for.
const PATIENCE: Duration = Duration::from_millis(250);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS pages (
    key TEXT PRIMARY KEY, stored_ms INTEGER NOT NULL, until_ms INTEGER NOT NULL, size INTEGER NOT NULL,
    body BLOB NOT NULL, hash BLOB NOT NULL) STRICT;
    CREATE INDEX IF NOT EXISTS by_age ON pages (stored_ms, size);";

/// What a row counts at least. It bounds how many there are, and with that what looking over them costs.
const LEAST: usize = 4_096;

/// What is kept of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) page: Page,
    /// Every host on the way, and whether it was reached where only one granted by name is.
    pub(super) hosts: Vec<Passed>,
}

/// A host on the way to an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Passed {
    /// The address whose host it is.
    pub(super) url: String,
    /// Did it take a grant of this very host?
    pub(super) named: bool,
}

/// The cache.
pub(super) struct Cache {
    path: PathBuf,
    most: u64,
    /// `None` once the file cannot be used at all.
    open: Mutex<Option<Connection>>,
}

impl Cache {
    /// Opens the cache in the data folder. A file that cannot be used is set aside.
    pub(super) fn open(data: &Path, most: u64) -> Self {
        let path = data.join(FILE);
        let open = opened(&path).or_else(|error| {
            warn!("the cache of http.get cannot be read and is begun anew: {error}");
            set_aside(&path);
            opened(&path)
        });
        let open = open.inspect_err(|error| warn!("http.get goes without a cache: {error}")).ok();
        Self { path, most, open: Mutex::new(open) }
    }

    /// The answer that is kept for `key` and still fresh, and when it was fetched.
    pub(super) fn get(&self, key: &str, now_ms: i64) -> Option<(Kept, i64)> {
        let mut open = self.lock();
        let connection = open.as_ref()?;
        match read(connection, key, now_ms) {
            Ok(found) => found,
            Err(error) => {
                self.failed(&mut open, &error);
                None
            }
        }
    }

    /// Keeps an answer until `until_ms`, and drops the oldest ones if there are too many.
    pub(super) fn put(&self, key: &str, kept: &Kept, now_ms: i64, until_ms: i64) {
        let Ok(body) = serde_json::to_vec(kept) else {
            return;
        };
        if size(key, &body) > self.most {
            return;
        }
        let mut open = self.lock();
        let Some(connection) = open.as_mut() else {
            return;
        };
        if let Err(error) = write(connection, key, &body, now_ms, until_ms, self.most) {
            self.failed(&mut open, &error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew if the file is damaged. Anything else passes.
    fn failed(&self, open: &mut Option<Connection>, error: &rusqlite::Error) {
        warn!("the cache of http.get failed: {error}");
        let damaged = matches!(
            error.sqlite_error_code(),
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        ) || error.sqlite_error_code().is_none();
        if damaged {
            *open = None;
            set_aside(&self.path);
            *open = opened(&self.path).ok();
        }
    }
}

fn opened(path: &Path) -> Result<Connection, rusqlite::Error> {
    // What agents read is nobody else's business; SQLite gives its other files the mode of this one.
    let made = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
    made.map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != 0 && version != VERSION {
        connection.execute_batch("DROP TABLE IF EXISTS pages;")?;
    }
    connection.execute_batch(TABLE)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    Ok(connection)
}

/// Moves a damaged file out of the way. The last one is kept, for whoever wants to know what happened.
fn set_aside(path: &Path) {
    let beside = |ending: &str| path.with_file_name(format!("{FILE}{ending}"));
    let moved = fs::rename(path, beside(".broken"));
    for ending in ["-wal", "-shm"] {
        _ = fs::remove_file(beside(ending));
    }
    if let Err(error) = moved
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!("the damaged cache of http.get cannot be moved: {error}");
    }
}

fn read(
    connection: &Connection,
    key: &str,
    now_ms: i64,
) -> Result<Option<(Kept, i64)>, rusqlite::Error> {
    let mut query = connection
        .prepare_cached("SELECT stored_ms, until_ms, body, hash FROM pages WHERE key = ?1")?;
    type Row = (i64, i64, Vec<u8>, Vec<u8>);
    let found: Option<Row> = query
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .optional()?;
    let Some((stored_ms, until_ms, body, hash)) = found else {
        return Ok(None);
    };
    let whole = hash == sealed(key, stored_ms, until_ms, &body);
    let kept = serde_json::from_slice(&body).ok().filter(|_| whole);
    // A clock that was set back makes answers look as if they came from the future.
    let fresh = stored_ms <= now_ms && now_ms < until_ms;
    match kept {
        Some(kept) if fresh => Ok(Some((kept, stored_ms))),
        _ => {
            connection.execute("DELETE FROM pages WHERE key = ?1", [key])?;
            Ok(None)
        }
    }
}

fn write(
    connection: &mut Connection,
    key: &str,
    body: &[u8],
    now_ms: i64,
    until_ms: i64,
    most: u64,
) -> Result<(), rusqlite::Error> {
    let hash = sealed(key, now_ms, until_ms, body);
    let size = i64::try_from(size(key, body)).unwrap_or(i64::MAX);
    let change = connection.transaction()?;
    change.execute(
        "INSERT OR REPLACE INTO pages (key, stored_ms, until_ms, size, body, hash) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![key, now_ms, until_ms, size, body, hash],
    )?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let all: i64 = change.query_row("SELECT SUM(size) FROM pages", [], |row| row.get(0))?;
    if all <= most {
        return change.commit();
    }
    // Oldest first, until what is left fits.
    change.execute(
        "DELETE FROM pages WHERE key IN (SELECT key FROM (SELECT key, SUM(size) OVER (
            ORDER BY stored_ms DESC, key = ?2 DESC, rowid DESC ROWS UNBOUNDED PRECEDING) AS upto FROM pages)
            WHERE upto > ?1)",
        params![most, key],
    )?;
    change.commit()
}

/// What a row takes, roughly.
fn size(key: &str, body: &[u8]) -> u64 {
    (key.len() + body.len()).max(LEAST) as u64
}

fn sealed(key: &str, stored_ms: i64, until_ms: i64, body: &[u8]) -> Vec<u8> {
    let mut hash = Sha256::new();
    hash.update((key.len() as u64).to_le_bytes());
    hash.update(key.as_bytes());
    hash.update(stored_ms.to_le_bytes());
    hash.update(until_ms.to_le_bytes());
    hash.update(body);
    hash.finalize().to_vec()
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
