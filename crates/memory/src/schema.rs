//! The database's format, and opening it: a file that is not ours, is damaged or is too new is refused before
//! anything is written to it.

use std::{
    fs::{self, OpenOptions},
    io::ErrorKind,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, TransactionBehavior};

use crate::error::MemoryError;

/// What marks a file as ours ("TOLM").
const APPLICATION_ID: u32 = 0x544f_4c4d;

/// How long another process's write is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait before the next attempt where SQLite does not wait by itself.
const PAUSE: Duration = Duration::from_millis(5);

/// One thread of a process makes a file at a time: when a file is closed, the system drops all locks that the process
/// has on it, those of another thread's connection too.
static MAKING: Mutex<()> = Mutex::new(());

/// What a connection keeps of the file in memory, in KiB.
const CACHE_KIB: i64 = 16 * 1024;

/// Each step leads from the format of its place to the next one. Steps are never changed, only added.
const STEPS: [&str; 1] = [
    // A session's number is never given twice, so that nothing of a forgotten one is taken for another's.
    // `words` holds terms that were made here (see `term`) and belong to one session each, and for every one
    // only the records it is in: the table keeps no text, no positions and no counts.
    "CREATE TABLE sessions (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        records INTEGER NOT NULL,
        words INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE records (
        place INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        id TEXT NOT NULL UNIQUE,
        digest BLOB NOT NULL,
        words INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        tags TEXT NOT NULL,
        text TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX records_by_text ON records (session, digest);
    CREATE INDEX records_by_session ON records (session);
    CREATE VIRTUAL TABLE words USING fts5 (
        terms, content = '', contentless_delete = 1, detail = none, tokenize = \"ascii tokenchars '.:;#'\"
    );
    CREATE TABLE models (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        dimension INTEGER NOT NULL,
        vectors INTEGER NOT NULL,
        removed INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE vectors (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        model INTEGER NOT NULL,
        session INTEGER NOT NULL,
        place INTEGER NOT NULL,
        vector BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX vectors_by_place ON vectors (place, model);
    CREATE INDEX vectors_by_session ON vectors (model, session);
    CREATE TABLE removals (
        model INTEGER NOT NULL,
        session INTEGER NOT NULL,
        removed INTEGER NOT NULL,
        PRIMARY KEY (model, session)
    ) STRICT, WITHOUT ROWID;",
];

/// The newest format that is known here.
fn known() -> u32 {
    u32::try_from(STEPS.len()).unwrap_or(u32::MAX)
}

/// Opens the file for writing, makes it where it is missing, and brings it to the present format.
pub(crate) fn open(file: &Path) -> Result<Connection, MemoryError> {
    let _alone = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
    create_for_owner(file)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection =
        Connection::open_with_flags(file, flags).map_err(|error| MemoryError::file(file, error))?;
    let refused = |error| MemoryError::of_database(file, &error);
    connection.busy_timeout(PATIENCE).map_err(refused)?;
    examine(&connection, file)?;
    set_up(&connection).map_err(refused)?;
    if connection.is_readonly("main").map_err(refused)? {
        return Err(MemoryError::file(file, "it cannot be written"));
    }
    // What is forgotten is overwritten, not only unlinked.
    connection.pragma_update(None, "secure_delete", true).map_err(refused)?;
    keep_a_log(&connection).map_err(refused)?;
    // A commit survives the end of the process; the log is brought to the disk when it is moved.
    connection.pragma_update(None, "synchronous", "normal").map_err(refused)?;
    advance(&mut connection, file)?;
    Ok(connection)
}

/// Switches to a write-ahead log. SQLite does not wait for another process that does the same.
fn keep_a_log(connection: &Connection) -> rusqlite::Result<()> {
    let begun = Instant::now();
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && begun.elapsed() < PATIENCE =>
            {
                thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

/// Brings the file to the present format. Of several processes that start at once, one does it.
fn advance(connection: &mut Connection, file: &Path) -> Result<(), MemoryError> {
    let refused = |error| MemoryError::of_database(file, &error);
    if examine(connection, file)? == Some(known()) {
        return Ok(());
    }
    let change =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(refused)?;
    let found = examine(&change, file)?.unwrap_or(0);
    for step in STEPS.iter().skip(usize::try_from(found).unwrap_or(usize::MAX)) {
        change.execute_batch(step).map_err(refused)?;
    }
    change.pragma_update(None, "application_id", APPLICATION_ID).map_err(refused)?;
    change.pragma_update(None, "user_version", known()).map_err(refused)?;
    change.commit().map_err(refused)
}

/// A connection that cannot write, to a file that is there.
pub(crate) fn open_to_read(file: &Path) -> Result<Connection, MemoryError> {
    match fs::metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(MemoryError::Missing(file.to_owned()));
        }
        Err(error) => return Err(MemoryError::file(file, error)),
        Ok(_) => {}
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection =
        Connection::open_with_flags(file, flags).map_err(|error| MemoryError::file(file, error))?;
    let refused = |error| MemoryError::of_database(file, &error);
    connection.busy_timeout(PATIENCE).map_err(refused)?;
    if examine(&connection, file)?.is_none() {
        return Err(MemoryError::Missing(file.to_owned()));
    }
    set_up(&connection).map_err(refused)?;
    Ok(connection)
}

fn set_up(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(64);
    connection.pragma_update(None, "cache_size", -CACHE_KIB)
}

/// The format of the memory in this file; `None` when the file is empty. What is not ours, or too new for us, is
/// refused.
fn examine(connection: &Connection, file: &Path) -> Result<Option<u32>, MemoryError> {
    let bytes = fs::metadata(file).map_err(|error| MemoryError::file(file, error))?.len();
    // In one statement: another process may be making the file.
    let sql = "SELECT (SELECT application_id FROM pragma_application_id),
        (SELECT user_version FROM pragma_user_version), (SELECT count(*) FROM sqlite_schema),
        (SELECT page_size FROM pragma_page_size)";
    type Seen = (u32, u32, u32, u64);
    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let seen: rusqlite::Result<Seen> = connection.query_row(sql, [], row);
    let (owner, found, tables, page) = seen.map_err(|error| unreadable(file, &error))?;
    // SQLite takes a file that is shorter than its first page for an empty one, whatever is in it.
    if owner != APPLICATION_ID && 0 < bytes && bytes < page {
        return Err(MemoryError::foreign(file, "it is too short for a database"));
    }
    if owner != APPLICATION_ID && (owner != 0 || tables > 0) {
        return Err(MemoryError::foreign(file, "it belongs to another program"));
    }
    if found > known() {
        return Err(MemoryError::Newer { file: file.to_owned(), found, known: known() });
    }
    // The three are set together.
    if (owner != 0, found != 0) != (tables > 0, tables > 0) {
        return Err(MemoryError::damaged(file, "its tables are not those of its format"));
    }
    Ok((tables > 0).then_some(found))
}

/// What it means that not even the format can be read.
fn unreadable(file: &Path, error: &rusqlite::Error) -> MemoryError {
    use ErrorCode::{CannotOpen, NotADatabase, ReadOnly};
    match error.sqlite_error_code() {
        Some(NotADatabase) => MemoryError::foreign(file, error),
        Some(CannotOpen | ReadOnly) => {
            let problem = "the database needs files beside it that cannot be made";
            MemoryError::file(file, format!("{problem} ({error})"))
        }
        _ => MemoryError::of_database(file, error),
    }
}

/// Makes the file where it is missing, so that only its owner reads it. What SQLite puts beside it gets the same
/// permissions.
fn create_for_owner(file: &Path) -> Result<(), MemoryError> {
    match OpenOptions::new().create_new(true).write(true).mode(0o600).open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(MemoryError::file(file, "the folder is not there; make it first"))
        }
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(MemoryError::file(file, error))
        }
        _ => Ok(()),
    }
}
