//! Snapshots: the state that a fold had reached, so that a start need not read every event.

use rusqlite::{Connection, OptionalExtension, params};

use crate::error::LedgerError;

/// A fold's state after an event. A cache: what it holds can be made again from the events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Which fold.
    pub name: String,
    /// The format of its state. A fold that changed does not read what an older one wrote.
    pub format: u32,
    /// The last event that it has seen.
    pub seq: u64,
    /// Its state.
    pub state: Vec<u8>,
}

impl Snapshot {
    /// Stores it in place of an earlier one.
    pub(crate) fn store(&self, connection: &Connection) -> Result<(), LedgerError> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO snapshots (name, format, seq, state) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (name) DO UPDATE SET format = ?2, seq = ?3, state = ?4",
        )?;
        let seq =
            i64::try_from(self.seq).map_err(|_| LedgerError::Event("seq too large".to_owned()))?;
        statement.execute(params![self.name, self.format, seq, self.state])?;
        Ok(())
    }

    /// The snapshot of this fold in this format, if there is one.
    pub(crate) fn load(
        connection: &Connection,
        name: &str,
        format: u32,
    ) -> Result<Option<Self>, LedgerError> {
        let found = connection
            .query_row(
                "SELECT seq, state FROM snapshots WHERE name = ?1 AND format = ?2",
                params![name, format],
                |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)),
            )
            .optional()?;
        Ok(found.map(|(seq, state)| Self {
            name: name.to_owned(),
            format,
            seq: u64::try_from(seq).unwrap_or_default(),
            state,
        }))
    }
}
