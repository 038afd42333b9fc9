//! What is kept beside the chain: things that must be forgotten one day, or that only their newest value
//! matters of. They change in the same commit as the events that tell of it, and are no part of the hashes.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    chain::{MOST_BYTES, NewEvent},
    error::LedgerError,
};

/// Most rows that one commit forgets, so that no append waits long for it.
pub(crate) const MOST_FORGOTTEN: u64 = 500;

/// A change of what is kept beside the chain, made in the same commit as the events of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Beside {
    /// Keeps a value, in place of an earlier one.
    Put {
        /// Whose keys these are: one word for each use.
        space: &'static str,
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// From when on it may be forgotten, in milliseconds since 1970; `None` for never.
        expires_ms: Option<i64>,
    },
    /// Forgets a value. It is no error when there is none.
    Delete {
        /// Whose keys these are.
        space: &'static str,
        /// The key.
        key: Vec<u8>,
    },
    /// Forgets every value whose key begins like this.
    DeleteUnder {
        /// Whose keys these are.
        space: &'static str,
        /// How the keys begin. With nothing here, nothing is forgotten.
        prefix: Vec<u8>,
    },
}

impl Beside {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len().saturating_add(value.len()),
            Self::Delete { key, .. } | Self::DeleteUnder { prefix: key, .. } => key.len(),
        }
    }

    /// Makes the change within the transaction that is open.
    pub(crate) fn apply(&self, connection: &Connection) -> rusqlite::Result<()> {
        match self {
            Self::Put { space, key, value, expires_ms } => connection
                .prepare_cached(
                    "INSERT INTO beside (space, key, value, expires) VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (space, key) DO UPDATE SET value = ?3, expires = ?4",
                )?
                .execute(params![space, key, value, expires_ms]),
            Self::Delete { space, key } => connection
                .prepare_cached("DELETE FROM beside WHERE space = ?1 AND key = ?2")?
                .execute(params![space, key]),
            Self::DeleteUnder { space, prefix } => connection
                .prepare_cached(
                    "DELETE FROM beside WHERE space = ?1 AND key >= ?2 AND substr(key, 1, ?3) = ?2 AND ?3 > 0",
                )?
                .execute(params![space, prefix, i64::try_from(prefix.len()).unwrap_or_default()]),
        }?;
        Ok(())
    }
}

/// Events that are stored together, and what changes beside the chain with them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Batch {
    /// The events, in order.
    pub events: Vec<NewEvent>,
    /// What changes beside the chain, in order.
    pub beside: Vec<Beside>,
}

impl Batch {
    /// Refuses what the database would refuse, so that nobody else's events fail with it.
    pub(crate) fn check(&self) -> Result<(), LedgerError> {
        match self.beside.iter().map(Beside::bytes).find(|bytes| *bytes > MOST_BYTES) {
            Some(bytes) => Err(LedgerError::TooLarge { bytes, most: MOST_BYTES }),
            None => Ok(()),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let events = self.events.iter().map(NewEvent::bytes);
        events.chain(self.beside.iter().map(Beside::bytes)).fold(0, usize::saturating_add)
    }
}

impl From<Vec<NewEvent>> for Batch {
    fn from(events: Vec<NewEvent>) -> Self {
        Self { events, beside: Vec::new() }
    }
}

/// What is kept under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// From when on it may be forgotten, in milliseconds since 1970; `None` for never.
    pub expires_ms: Option<i64>,
}

impl Kept {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { key: row.get(0)?, value: row.get(1)?, expires_ms: row.get(2)? })
    }

    pub(crate) fn load(
        connection: &Connection,
        space: &str,
        key: &[u8],
    ) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached("SELECT key, value, expires FROM beside WHERE space = ?1 AND key = ?2")?
            .query_row(params![space, key], Self::read)
            .optional()
    }

    pub(crate) fn load_all(connection: &Connection, space: &str) -> rusqlite::Result<Vec<Self>> {
        connection
            .prepare_cached("SELECT key, value, expires FROM beside WHERE space = ?1 ORDER BY key")?
            .query_map(params![space], Self::read)?
            .collect()
    }
}

/// Forgets at most [`MOST_FORGOTTEN`] rows whose time has come by `now_ms`, and gives how many went.
pub(crate) fn forget_some(connection: &Connection, now_ms: i64) -> Result<u64, LedgerError> {
    let most = i64::try_from(MOST_FORGOTTEN).unwrap_or(i64::MAX);
    let gone = connection
        .prepare_cached(
            "DELETE FROM beside WHERE (space, key) IN
             (SELECT space, key FROM beside WHERE expires <= ?1 ORDER BY expires LIMIT ?2)",
        )?
        .execute(params![now_ms, most])?;
    Ok(u64::try_from(gone).unwrap_or(u64::MAX))
}
