//! The database's format, and how an older one becomes the present one.

use std::{fs, io::ErrorKind, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags};

use crate::error::LedgerError;

/// What marks a file as ours, so that somebody else's database is not written to ("TOLL").
const APPLICATION_ID: u32 = 0x544f_4c4c;

/// How long a reader waits while the log is being recovered or emptied.
const READER_PATIENCE: Duration = Duration::from_secs(5);

/// Each step leads from the format of its place to the next one. Steps are never changed, only added.
const STEPS: [&str; 2] = [
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
    "CREATE TABLE beside (
        space TEXT NOT NULL,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        expires INTEGER,
        PRIMARY KEY (space, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX beside_by_expiry ON beside (expires) WHERE expires IS NOT NULL;",
];

/// The first format with something beside the chain.
pub(crate) const WITH_BESIDE: u32 = 2;

/// The newest format that is known here.
pub(crate) fn known() -> u32 {
    u32::try_from(STEPS.len()).unwrap_or(u32::MAX)
}

/// Opens the database for writing and brings it to the present format.
pub(crate) fn open(file: &Path) -> Result<Connection, LedgerError> {
    create_for_owner(file)?;
    let mut connection = read_write(file).map_err(|error| LedgerError::unusable(file, error))?;
    if connection.is_readonly("main")? {
        return Err(LedgerError::unusable(file, "its database cannot be written"));
    }
    let found = examine(&connection, file)?.unwrap_or(0);
    if found < known() {
        let change = connection.transaction()?;
        for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(usize::MAX)) {
            change.execute_batch(step)?;
        }
        change.pragma_update(None, "application_id", APPLICATION_ID)?;
        change.pragma_update(None, "user_version", known())?;
        change.commit()?;
    }
    connection.pragma_update(None, "journal_mode", "wal")?;
    Ok(connection)
}

/// A connection that can write to the file that is there. A path is never taken for a URI.
pub(crate) fn read_write(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(file, flags)
}

/// Opens a ledger that is there for reading alone, and gives its format, which may be an older one.
pub(crate) fn open_to_read(file: &Path) -> Result<(Connection, u32), LedgerError> {
    let missing = || LedgerError::Missing(file.parent().unwrap_or(file).to_owned());
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing()),
        Err(error) => return Err(LedgerError::unusable(file, error)),
        Ok(_) => {}
    }
    let connection = read_only(file).map_err(|error| LedgerError::unusable(file, error))?;
    let format = examine(&connection, file)?.ok_or_else(missing)?;
    Ok((connection, format))
}

/// A connection that cannot write.
pub(crate) fn read_only(file: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(READER_PATIENCE)?;
    Ok(connection)
}

/// The format of the ledger in this file; `None` when the file is empty. What is not ours, or too new
/// for us, is refused.
fn examine(connection: &Connection, file: &Path) -> Result<Option<u32>, LedgerError> {
    use rusqlite::ErrorCode::{CannotOpen, NotADatabase, ReadOnly};
    let not_ours = |problem: &str| LedgerError::NotALedger {
        file: file.to_owned(),
        problem: problem.to_owned(),
    };
    let number = |sql: &str| {
        connection.query_row(sql, [], |row| row.get::<_, u32>(0)).map_err(|error| {
            match error.sqlite_error_code() {
                Some(NotADatabase) => not_ours(&error.to_string()),
                Some(CannotOpen | ReadOnly) => {
                    let problem = "the database needs files beside it that cannot be made";
                    LedgerError::unusable(file, format!("{problem} ({error})"))
                }
                _ => error.into(),
            }
        })
    };
    let owner = number("PRAGMA application_id")?;
    let found = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if owner != APPLICATION_ID && (owner != 0 || tables > 0) {
        return Err(not_ours("it belongs to another program"));
    }
    if found > known() {
        return Err(LedgerError::Newer { found, known: known() });
    }
    Ok((tables > 0).then_some(found))
}

/// Makes the file where it is missing, so that only its owner reads it. What SQLite puts beside it gets
/// the same permissions.
pub(crate) fn create_for_owner(file: &Path) -> Result<(), LedgerError> {
    let mut options = fs::OpenOptions::new();
    options.create_new(true).write(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    match options.open(file) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(LedgerError::unusable(file, error))
        }
        _ => Ok(()),
    }
}
