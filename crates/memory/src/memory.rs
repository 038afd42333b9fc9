//! The memory: one file, one writer at a time, and as many readers as there are threads.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tollgate_contract::id::MemoryId;

use crate::{
    error::{Failure, MemoryError},
    near::Planes,
    record::{Added, COLUMNS, Limits, NewRecord, Record, read_id},
    schema,
    search::{self, Found, MOST_FOUND, Query},
    vector, write,
};

/// How many connections for reading stay open while nobody reads.
const IDLE_READERS: usize = 4;

/// What agents remember, in one file.
///
/// Several threads may use it at once, and several processes the same file: a write waits for the write before it,
/// and a read sees what was stored when it began. What was stored is there after the process ends, however it ends.
pub struct Memory {
    file: PathBuf,
    limits: Limits,
    planes: Planes,
    /// Connections that nobody uses at the moment. They end before the writer does, as whoever is last moves the log
    /// into the file, and one that only reads cannot.
    readers: Mutex<Vec<Connection>>,
    /// `None` if it was opened for reading.
    writer: Option<Mutex<Connection>>,
}

impl Memory {
    /// Opens the file, or makes it for its owner alone; its folder must be there. A file that is damaged, not ours or
    /// of a newer version is refused and left as it is.
    pub fn open(file: &Path) -> Result<Self, MemoryError> {
        Self::open_with(file, Limits::default())
    }

    /// Opens the file with other limits.
    pub fn open_with(file: &Path, limits: Limits) -> Result<Self, MemoryError> {
        let writer = schema::open(file)?;
        let readers = Mutex::new(vec![schema::open_to_read(file)?]);
        let planes = Planes::new(limits.index_bytes);
        Ok(Self {
            file: file.to_owned(),
            limits,
            writer: Some(Mutex::new(writer)),
            readers,
            planes,
        })
    }

    /// Opens a file that is there for reading alone. Another process may be writing to it.
    pub fn open_to_read(file: &Path) -> Result<Self, MemoryError> {
        let readers = Mutex::new(vec![schema::open_to_read(file)?]);
        let limits = Limits::default();
        let planes = Planes::new(limits.index_bytes);
        Ok(Self { file: file.to_owned(), limits, writer: None, readers, planes })
    }

    /// Stores records of a session, all or none, and drops the session's oldest where there are too many.
    ///
    /// The same text in the same session is one record: the id of the first is given back, and it has the tags of
    /// both. At most [`MOST_AT_ONCE`](crate::MOST_AT_ONCE) at a time.
    pub fn add(&self, session: &str, records: &[NewRecord]) -> Result<Added, MemoryError> {
        self.change(|change| write::add(change, session, records, self.limits))
    }

    /// The records that fit best, best first; of equals the one that was added last.
    ///
    /// The score lies between 0 and 1. Found by words alone, it is the record's share of the most that BM25 could give
    /// for the question. Found by nearness alone, it is the cosine. Where both find something, the two rankings
    /// are fused by reciprocal rank: 1 is the first in both.
    pub fn search(&self, query: &Query<'_>) -> Result<Vec<Found>, MemoryError> {
        if query.limit == 0 {
            return Ok(Vec::new());
        }
        self.read(|connection| search::search(connection, &self.planes, query))
    }

    /// The record with this id.
    pub fn get(&self, id: MemoryId) -> Result<Option<Record>, MemoryError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM records r JOIN sessions s ON s.number = r.session WHERE r.id = ?1"
        );
        self.read(|connection| {
            let mut query = connection.prepare_cached(&sql)?;
            let mut rows = query.query([id.to_string()])?;
            rows.next()?.map(Record::of_row).transpose()
        })
    }

    /// The records of a session, the last added first, at most `limit` (and 1,000); with `before` those that were
    /// added before that one.
    pub fn of_session(
        &self,
        session: &str,
        limit: usize,
        before: Option<MemoryId>,
    ) -> Result<Vec<Record>, MemoryError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM records r JOIN sessions s ON s.number = r.session
            WHERE s.name = ?1 AND r.place < ?2 ORDER BY r.place DESC LIMIT ?3"
        );
        self.read(|connection| {
            let before = match before {
                Some(id) => place_of(connection, id)?.ok_or(MemoryError::Unknown(id))?,
                None => i64::MAX,
            };
            let mut query = connection.prepare_cached(&sql)?;
            let mut rows = query.query(params![session, before, limit.min(MOST_FOUND)])?;
            let mut records = Vec::new();
            while let Some(row) = rows.next()? {
                records.push(Record::of_row(row)?);
            }
            Ok(records)
        })
    }

    /// How many records there are, in a session or in all.
    pub fn count(&self, session: Option<&str>) -> Result<u64, MemoryError> {
        self.read(|connection| match session {
            Some(name) => {
                let sql = "SELECT coalesce(sum(records), 0) FROM sessions WHERE name = ?1";
                Ok(connection.prepare_cached(sql)?.query_row([name], |row| row.get(0))?)
            }
            None => count_all(connection),
        })
    }

    /// Forgets a session, and gives how many records it had.
    pub fn forget(&self, session: &str) -> Result<u64, MemoryError> {
        self.change(|change| write::forget(change, session))
    }

    /// Forgets a record, and says whether it was there.
    pub fn forget_one(&self, id: MemoryId) -> Result<bool, MemoryError> {
        self.change(|change| write::forget_one(change, id))
    }

    /// Forgets a record, and gives it for the last time; nothing where it was not there.
    pub fn take_back(&self, id: MemoryId) -> Result<Option<Record>, MemoryError> {
        let record = self.get(id)?;
        // Somebody else may have been faster.
        let was_there = record.is_some() && self.forget_one(id)?;
        if was_there {
            // It leaves the log as well, unless somebody reads there at the moment; then with the next one that does.
            let _ = self.compact();
        }
        Ok(record.filter(|_| was_there))
    }

    /// Records that have no vector of this model yet, with their texts, the last added first; at most `limit` (and
    /// 1,000).
    pub fn without_vector(
        &self,
        session: Option<&str>,
        model: &str,
        limit: usize,
    ) -> Result<Vec<(MemoryId, String)>, MemoryError> {
        self.read(|connection| without_vector(connection, session, model, limit.min(MOST_FOUND)))
    }

    /// Stores what a model made of records, all or none, in place of what it made of them before, and gives how many.
    /// Records that were forgotten meanwhile are passed over. The first vector of a model decides how many numbers its
    /// vectors have.
    pub fn set_vectors(
        &self,
        model: &str,
        vectors: &[(MemoryId, Vec<f32>)],
    ) -> Result<usize, MemoryError> {
        self.change(|change| write::set_vectors(change, model, vectors))
    }

    /// Puts the index in order, and empties the log. Searches are a little faster then, and of what was forgotten
    /// no trace is left in the file: until then the index may still have the words of forgotten records, though
    /// neither their text nor their order. It takes seconds for a million records.
    pub fn compact(&self) -> Result<(), MemoryError> {
        self.change(|change| {
            change.execute("INSERT INTO words (words) VALUES ('optimize')", [])?;
            Ok(())
        })?;
        let writer = self.writer.as_ref().ok_or(MemoryError::ReadOnly)?;
        let writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let emptied = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        emptied.map_err(|error| MemoryError::of_database(&self.file, &error))
    }

    /// Runs a change as one transaction.
    fn change<T>(
        &self,
        change: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, MemoryError> {
        let writer = self.writer.as_ref().ok_or(MemoryError::ReadOnly)?;
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let in_one = |writer: &mut Connection| {
            // From the beginning as a writer, so that two of them wait for each other instead of failing.
            let whole = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = change(&whole)?;
            whole.commit()?;
            Ok(done)
        };
        in_one(&mut writer).map_err(|failure: Failure| failure.in_file(&self.file))
    }

    /// Reads, as everything is at one moment.
    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, MemoryError> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::open_to_read(&self.file)?,
        };
        let at_once = |connection: &Connection| {
            let moment = connection.unchecked_transaction()?;
            let found = read(&moment)?;
            moment.rollback()?;
            Ok(found)
        };
        let found = at_once(&connection).map_err(|failure: Failure| failure.in_file(&self.file));
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if readers.len() < IDLE_READERS {
            readers.push(connection);
        }
        found
    }
}

fn place_of(connection: &Connection, id: MemoryId) -> Result<Option<i64>, Failure> {
    let mut query = connection.prepare_cached("SELECT place FROM records WHERE id = ?1")?;
    Ok(query.query_row([id.to_string()], |row| row.get(0)).optional()?)
}

fn count_all(connection: &Connection) -> Result<u64, Failure> {
    let sql = "SELECT coalesce(sum(records), 0) FROM sessions";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

fn without_vector(
    connection: &Connection,
    session: Option<&str>,
    model: &str,
    limit: usize,
) -> Result<Vec<(MemoryId, String)>, Failure> {
    let model = vector::model(connection, model)?;
    let known = model.as_ref().map_or(0, |model| model.vectors);
    let records = count_all(connection)?;
    // The search through the records ends with the last that has none, not with the last of all.
    let missing = usize::try_from(records.saturating_sub(known)).unwrap_or(usize::MAX);
    let sql = "SELECT id, text FROM records r
        WHERE NOT EXISTS (SELECT 1 FROM vectors v WHERE v.place = r.place AND v.model = ?1)
        AND (?3 IS NULL OR r.session = (SELECT number FROM sessions WHERE name = ?3))
        ORDER BY place DESC LIMIT ?2";
    let mut query = connection.prepare_cached(sql)?;
    let number = model.map_or(0, |model| model.number);
    let mut rows = query.query(params![number, limit.min(missing), session])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let id = read_id(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?)?;
        found.push((id, row.get(1)?));
    }
    Ok(found)
}
