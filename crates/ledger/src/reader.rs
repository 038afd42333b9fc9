//! Reading: both ends of the ledger, what is kept beside it, and a copy of it.

use std::{io::Write, path::Path};

use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use crate::{
    beside::Kept,
    chain::{EventHash, Head, StoredEvent, Subject},
    error::LedgerError,
    folder, retire, schema,
    snapshot::Snapshot,
};

pub(crate) const COLUMNS: &str = "seq, ts, kind, agent_id, identity_id, workload_id, scope_id, tool, intent_id, payload, prev_hash, hash";

/// How much of a long reading is held at once: this many events, or a little more than these bytes.
const TURN: (usize, usize) = (1000, 1 << 20);

/// A connection that only reads.
pub struct Reader {
    connection: Connection,
    /// The format of the ledger, which an older tollgate may have written.
    format: u32,
}

impl Reader {
    /// Opens the ledger in the data folder `data` for reading, without taking the folder: a daemon may
    /// be running there, or may have been killed.
    pub fn of_folder(data: &Path) -> Result<Self, LedgerError> {
        Self::open(&folder::database(data))
    }

    pub(crate) fn open(file: &Path) -> Result<Self, LedgerError> {
        let (connection, format) = schema::open_to_read(file)?;
        Ok(Self { connection, format })
    }

    /// The events behind `after`, in order, at most `limit` of them.
    pub fn tail(&self, after: u64, limit: u64) -> Result<Vec<StoredEvent>, LedgerError> {
        let sql = format!("SELECT {COLUMNS} FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        self.select(&sql, params![bounded(after), bounded(limit)])
    }

    /// Reads several things as they are at one moment, whatever is written meanwhile.
    pub fn at_once<T>(
        &self,
        read: impl FnOnce(&Self) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let moment = self.connection.unchecked_transaction()?;
        let found = read(self)?;
        moment.rollback()?;
        Ok(found)
    }

    /// The events before `before`, or all of them, newest first, at most `limit` of them.
    pub fn newest(&self, before: Option<u64>, limit: u64) -> Result<Vec<StoredEvent>, LedgerError> {
        let Some(last) = before.unwrap_or(u64::MAX).checked_sub(1) else { return Ok(Vec::new()) };
        let sql = format!(
            "SELECT {COLUMNS} FROM events WHERE seq > 0 AND seq <= ?1 ORDER BY seq DESC LIMIT ?2"
        );
        self.select(&sql, params![bounded(last), bounded(limit)])
    }

    /// The events of a query for [`COLUMNS`].
    pub(crate) fn select(
        &self,
        sql: &str,
        values: impl Params,
    ) -> Result<Vec<StoredEvent>, LedgerError> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let rows = statement.query_map(values, stored)?;
        rows.collect::<Result<_, _>>().map_err(LedgerError::from)
    }

    /// The event at this place.
    pub(crate) fn at(&self, seq: u64) -> Result<Option<StoredEvent>, LedgerError> {
        at(&self.connection, seq)
    }

    /// The place of the first event that is there: 1 until events were retired, and when there is none.
    pub fn first_seq(&self) -> Result<u64, LedgerError> {
        retire::first_seq(&self.connection)
    }

    /// The last checkpoint, if events were ever retired. Where the first event is not there and this is `None`,
    /// somebody has removed it.
    pub fn last_checkpoint(&self) -> Result<Option<StoredEvent>, LedgerError> {
        if self.format < schema::WITH_BESIDE {
            return Ok(None);
        }
        retire::last(&self.connection)
    }

    /// Where the chain stands.
    pub fn head(&self) -> Result<Head, LedgerError> {
        head(&self.connection)
    }

    /// What is kept beside the chain under this key, whatever its expiry: the caller judges that.
    pub fn kept(&self, space: &str, key: &[u8]) -> Result<Option<Kept>, LedgerError> {
        if self.format < schema::WITH_BESIDE {
            return Ok(None);
        }
        Kept::load(&self.connection, space, key).map_err(LedgerError::from)
    }

    /// Everything that is kept in this space, in the order of the keys, whatever its expiry.
    pub fn kept_all(&self, space: &str) -> Result<Vec<Kept>, LedgerError> {
        if self.format < schema::WITH_BESIDE {
            return Ok(Vec::new());
        }
        Kept::load_all(&self.connection, space).map_err(LedgerError::from)
    }

    /// Writes every event that is stored when this begins as one line of JSON, and gives how many there
    /// were.
    pub fn export(&self, mut into: impl Write) -> Result<u64, LedgerError> {
        let mut count = 0;
        self.each(|seq, event| {
            let cannot = |problem: &str| LedgerError::Export(format!("event {seq}: {problem}"));
            let event = event.map_err(|error| cannot(&error.to_string()))?;
            let line = serde_json::to_string(&event).map_err(|error| cannot(&error.to_string()))?;
            writeln!(into, "{line}").map_err(|error| LedgerError::Export(error.to_string()))?;
            count += 1;
            Ok(true)
        })?;
        into.flush().map_err(|error| LedgerError::Export(error.to_string()))?;
        Ok(count)
    }

    /// The snapshot of the fold `name` in this format, if there is one.
    pub fn snapshot(&self, name: &str, format: u32) -> Result<Option<Snapshot>, LedgerError> {
        Snapshot::load(&self.connection, name, format)
    }

    /// Calls `f` with each event that is stored now, in order, until it says false. An event whose
    /// columns cannot be read comes as an error with its place.
    ///
    /// It reads in turns, and is between two of them while `f` works: whoever reads without an end, as
    /// an export into a pipe that nobody empties does, keeps the write-ahead log from being reused.
    pub(crate) fn each(
        &self,
        mut f: impl FnMut(u64, rusqlite::Result<StoredEvent>) -> Result<bool, LedgerError>,
    ) -> Result<(), LedgerError> {
        let last: Option<i64> =
            self.connection.query_row("SELECT max(seq) FROM events", [], |row| row.get(0))?;
        let mut next = Some(i64::MIN);
        while let (Some(from), Some(last)) = (next, last) {
            let turn = self.turn(from, last)?;
            let found = turn.first().map(|(seq, _)| *seq);
            if found.is_none_or(|found| found > from)
                && from > 1
                && from <= last
                && self.first_seq()? > place(from)
            {
                return Err(LedgerError::Removed);
            }
            next = turn.last().and_then(|(seq, _)| seq.checked_add(1));
            for (seq, event) in turn {
                if !f(place(seq), event)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn turn(
        &self,
        from: i64,
        last: i64,
    ) -> Result<Vec<(i64, rusqlite::Result<StoredEvent>)>, LedgerError> {
        let sql =
            format!("SELECT {COLUMNS} FROM events WHERE seq >= ?1 AND seq <= ?2 ORDER BY seq");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([from, last])?;
        let (mut read, mut bytes) = (Vec::new(), 0);
        while read.len() < TURN.0
            && bytes < TURN.1
            && let Some(row) = rows.next()?
        {
            let event = stored(row);
            bytes += event.as_ref().map_or(0, |event| event.payload.len());
            read.push((row.get(0)?, event));
        }
        Ok(read)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// As the database counts. What is beyond its numbers is beyond every event.
pub(crate) fn bounded(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// As we count. The database could hold places before the first; no event of ours is there.
pub(crate) fn place(seq: i64) -> u64 {
    u64::try_from(seq).unwrap_or_default()
}

/// The event at this place.
pub(crate) fn at(connection: &Connection, seq: u64) -> Result<Option<StoredEvent>, LedgerError> {
    let sql = format!("SELECT {COLUMNS} FROM events WHERE seq = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_row([bounded(seq)], stored).optional().map_err(LedgerError::from)
}

/// Where the chain stands.
pub(crate) fn head(connection: &Connection) -> Result<Head, LedgerError> {
    Ok(last(connection)?.map_or(Head::EMPTY, |event| event.head()))
}

/// Where the chain stands, if its last event is sound. To go on behind a damaged one would hide the damage.
pub(crate) fn sound_head(connection: &Connection) -> Result<Head, LedgerError> {
    match last(connection)? {
        Some(event) if event.hash != event.computed_hash() => Err(LedgerError::Damaged(format!(
            "event {} was changed; `tollgate ledger verify` says more",
            event.seq
        ))),
        last => Ok(last.map_or(Head::EMPTY, |event| event.head())),
    }
}

fn last(connection: &Connection) -> Result<Option<StoredEvent>, LedgerError> {
    let sql = format!("SELECT {COLUMNS} FROM events ORDER BY seq DESC LIMIT 1");
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row([], stored).optional()?)
}

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredEvent> {
    let hash = |column: usize| -> rusqlite::Result<EventHash> {
        let bytes = row.get_ref(column)?.as_blob()?;
        EventHash::from_bytes(bytes).ok_or_else(|| {
            rusqlite::Error::FromSqlConversionFailure(
                column,
                rusqlite::types::Type::Blob,
                "a hash has 32 bytes".into(),
            )
        })
    };
    Ok(StoredEvent {
        seq: place(row.get(0)?),
        ts_ms: row.get(1)?,
        kind: row.get(2)?,
        subject: Subject {
            agent_id: row.get(3)?,
            identity_id: row.get(4)?,
            workload_id: row.get(5)?,
            scope_id: row.get(6)?,
            tool: row.get(7)?,
            intent_id: row.get(8)?,
        },
        payload: row.get(9)?,
        prev_hash: hash(10)?,
        hash: hash(11)?,
    })
}
