//! Reading: the tail of the ledger, a copy of it, and the proof that nobody changed it.

use std::{io::Write, path::Path};

use rusqlite::{Connection, Row, params};
use serde::Serialize;

use crate::{
    chain::{EventHash, Head, StoredEvent, Subject},
    error::LedgerError,
    schema,
    snapshot::Snapshot,
};

const COLUMNS: &str = "seq, ts, kind, agent_id, identity_id, workload_id, scope_id, tool, intent_id, payload, prev_hash, hash";

/// A connection that only reads.
pub struct Reader {
    connection: Connection,
}

/// What a check of the whole chain found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// How many events hang together from the first on.
    pub events: u64,
    /// Where the chain stands.
    pub head: Head,
    /// What is wrong; `None` when nothing is.
    pub broken: Option<Broken>,
}

/// How a chain is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
pub enum Broken {
    /// An event is missing: the next one that is there has this number.
    Gap {
        /// The event that should be there.
        expected: u64,
        /// The one that is.
        found: u64,
    },
    /// An event was changed: its hash is not that of its bytes.
    Changed {
        /// The event.
        seq: u64,
    },
    /// An event does not follow the one before it.
    Unchained {
        /// The event.
        seq: u64,
    },
    /// The ledger ends before a head that was seen earlier.
    Truncated {
        /// The last event of that head.
        expected: u64,
        /// The last event that is there.
        found: u64,
    },
    /// The event of a head that was seen earlier is another one now.
    Rewritten {
        /// The event.
        seq: u64,
    },
}

impl Reader {
    pub(crate) fn open(file: &Path) -> Result<Self, LedgerError> {
        Ok(Self { connection: schema::open_to_read(file)? })
    }

    /// The events behind `after`, in order, at most `limit` of them.
    pub fn tail(&self, after: u64, limit: u64) -> Result<Vec<StoredEvent>, LedgerError> {
        let sql = format!("SELECT {COLUMNS} FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let bounded = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![bounded(after), bounded(limit)], stored)?;
        rows.collect::<Result<_, _>>().map_err(LedgerError::from)
    }

    /// Where the chain stands.
    pub fn head(&self) -> Result<Head, LedgerError> {
        head(&self.connection)
    }

    /// Writes every event as one line of JSON, and gives how many there were.
    pub fn export(&self, mut into: impl Write) -> Result<u64, LedgerError> {
        let mut count = 0;
        self.each(|event| {
            let line = serde_json::to_string(&event)
                .map_err(|error| LedgerError::Event(error.to_string()))?;
            writeln!(into, "{line}")
                .map_err(|error| LedgerError::Event(format!("cannot write: {error}")))?;
            count += 1;
            Ok(true)
        })?;
        Ok(count)
    }

    /// Follows the whole chain. `earlier` is a head that was exported before: a ledger that was cut or
    /// written anew still hangs together in itself, and only that shows it.
    pub fn verify(&self, earlier: Option<Head>) -> Result<Verified, LedgerError> {
        let mut at = Head::EMPTY;
        let mut broken = None;
        self.each(|event| {
            broken = check(at, &event, earlier);
            if broken.is_none() {
                at = event.head();
            }
            Ok(broken.is_none())
        })?;
        if broken.is_none()
            && let Some(earlier) = earlier.filter(|earlier| earlier.seq > at.seq)
        {
            broken = Some(Broken::Truncated { expected: earlier.seq, found: at.seq });
        }
        Ok(Verified { events: at.seq, head: at, broken })
    }

    /// The snapshot of the fold `name` in this format, if there is one.
    pub fn snapshot(&self, name: &str, format: u32) -> Result<Option<Snapshot>, LedgerError> {
        Snapshot::load(&self.connection, name, format)
    }

    /// Calls `f` with each event in order, until it says false. Events are not held all at once.
    fn each(
        &self,
        mut f: impl FnMut(StoredEvent) -> Result<bool, LedgerError>,
    ) -> Result<(), LedgerError> {
        let sql = format!("SELECT {COLUMNS} FROM events ORDER BY seq");
        let mut statement = self.connection.prepare_cached(&sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if !f(stored(row)?)? {
                break;
            }
        }
        Ok(())
    }
}

/// What is wrong with an event that should follow `before`.
fn check(before: Head, event: &StoredEvent, earlier: Option<Head>) -> Option<Broken> {
    let seq = event.seq;
    if seq != before.seq + 1 {
        return Some(Broken::Gap { expected: before.seq + 1, found: seq });
    }
    if event.prev_hash != before.hash {
        return Some(Broken::Unchained { seq });
    }
    if event.hash != event.computed_hash() {
        return Some(Broken::Changed { seq });
    }
    earlier
        .filter(|earlier| earlier.seq == seq && earlier.hash != event.hash)
        .map(|_| Broken::Rewritten { seq })
}

/// Where the chain stands.
pub(crate) fn head(connection: &Connection) -> Result<Head, LedgerError> {
    let sql = format!("SELECT {COLUMNS} FROM events ORDER BY seq DESC LIMIT 1");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([])?;
    match rows.next()? {
        Some(row) => Ok(stored(row)?.head()),
        None => Ok(Head::EMPTY),
    }
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
        seq: u64::try_from(row.get::<_, i64>(0)?).unwrap_or_default(),
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
