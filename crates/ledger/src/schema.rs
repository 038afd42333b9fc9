//! The database's format, and how an older one becomes the present one.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::error::LedgerError;

/// What marks a file as ours, so that somebody else's database is not written to ("TOLL").
const APPLICATION_ID: u32 = 0x544f_4c4c;

/// Each step leads from the format of its place to the next one. Steps are never changed, only added.
const STEPS: [&str; 1] = [
    // No index but the key on the table that every decision waits for.
    "CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        ts INTEGER NOT NULL,
        kind TEXT NOT NULL,
        agent_id TEXT,
        identity_id TEXT,
        workload_id TEXT,
        scope_id TEXT,
        tool TEXT,
        intent_id TEXT,
        payload TEXT NOT NULL,
        prev_hash BLOB NOT NULL,
        hash BLOB NOT NULL
    ) STRICT;
    CREATE TABLE snapshots (
        name TEXT PRIMARY KEY,
        format INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        state BLOB NOT NULL
    ) STRICT;",
];

/// The newest format that is known here.
pub(crate) fn known() -> u32 {
    u32::try_from(STEPS.len()).unwrap_or(u32::MAX)
}

/// Opens the database for writing and brings it to the present format.
pub(crate) fn open(file: &Path) -> Result<Connection, LedgerError> {
    let mut connection = Connection::open(file)?;
    let not_ours = |problem: String| LedgerError::NotALedger { file: file.to_owned(), problem };
    let version = |name: &str| {
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, u32>(0))
    };
    let (owner, found) = (version("application_id"), version("user_version"));
    let (owner, found) = (owner.map_err(|error| not_ours(error.to_string()))?, found?);
    let tables: u32 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if owner != APPLICATION_ID && (owner != 0 || tables > 0) {
        return Err(not_ours("it belongs to another program".to_owned()));
    }
    if found > known() {
        return Err(LedgerError::Newer { found, known: known() });
    }
    let change = connection.transaction()?;
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(usize::MAX)) {
        change.execute_batch(step)?;
    }
    change.pragma_update(None, "application_id", APPLICATION_ID)?;
    change.pragma_update(None, "user_version", known())?;
    change.commit()?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    Ok(connection)
}

/// Opens the database for reading alone.
pub(crate) fn open_to_read(file: &Path) -> Result<Connection, LedgerError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}
