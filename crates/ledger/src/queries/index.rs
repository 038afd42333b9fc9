//! The file that queries are answered from: its tables, and where in the ledger the events are that are asked for.
//!
//! The events stay in the ledger, and there are many of them. So the file does not list each, but says of every block of
//! them, which kinds and tools are in it and of what time they are. A query reads the blocks that can have what it wants.

use std::path::Path;

use rusqlite::{Connection, ToSql, params, params_from_iter};

use super::{EventQuery, calls, taking::Taken, trends};
use crate::{
    error::LedgerError,
    reader::{bounded, place},
    schema,
};

/// What marks the file as ours ("TOLQ").
const APPLICATION_ID: u32 = 0x544f_4c51;

/// Whoever changes the tables, or what is put into them, counts this up: a file of another format is
/// made anew.
const FORMAT: u32 = 3;

/// How many places a block has.
pub(super) const BLOCK: u64 = 512;

/// How many blocks are read at once. The ledger's log cannot be begun anew while somebody reads.
const TOGETHER: u64 = 16;

const TABLES: &str = "
    CREATE TABLE progress (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        projected_seq INTEGER NOT NULL,
        hash BLOB NOT NULL
    ) STRICT;
    CREATE TABLE blocks (
        block INTEGER PRIMARY KEY,
        last_seq INTEGER NOT NULL,
        first_ms INTEGER NOT NULL,
        last_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE found (
        block INTEGER NOT NULL,
        kind TEXT NOT NULL,
        tool TEXT
    ) STRICT;
    CREATE INDEX found_by_kind ON found (kind, tool, block);
    CREATE INDEX found_by_tool ON found (tool, block) WHERE tool IS NOT NULL;
    INSERT INTO progress (one, projected_seq, hash) VALUES (1, 0, zeroblob(32));";

/// How far the file has come: the last event in it, and that event's hash, which tells whether it is of
/// this ledger. The hash is as it is stored, whatever that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) seq: u64,
    pub(super) hash: Vec<u8>,
}

/// Opens the file that is there; `None` when it is of another format.
pub(super) fn open(file: &Path) -> rusqlite::Result<Option<(Connection, Progress)>> {
    let connection = connect(file)?;
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0));
    if (number("PRAGMA application_id")?, number("PRAGMA user_version")?)
        != (APPLICATION_ID, FORMAT)
    {
        return Ok(None);
    }
    let progress = connection.query_row(
        "SELECT projected_seq, hash FROM progress WHERE one = 1",
        [],
        |row| Ok(Progress { seq: place(row.get(0)?), hash: row.get(1)? }),
    )?;
    Ok(Some((connection, progress)))
}

/// Makes the tables in a file that is empty.
pub(super) fn create(file: &Path) -> Result<Connection, LedgerError> {
    schema::create_for_owner(file)?;
    let mut connection = connect(file)?;
    let change = connection.transaction()?;
    change.execute_batch(TABLES)?;
    change.execute_batch(calls::TABLES)?;
    change.execute_batch(trends::TABLES)?;
    change.pragma_update(None, "application_id", APPLICATION_ID)?;
    change.pragma_update(None, "user_version", FORMAT)?;
    change.commit()?;
    Ok(connection)
}

fn connect(file: &Path) -> rusqlite::Result<Connection> {
    let connection = schema::read_write(file)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    // What a loss of power takes is made again.
    connection.pragma_update(None, "synchronous", "normal")?;
    Ok(connection)
}

/// Puts what was taken from the ledger into the tables, and says in the same transaction how far that leads.
pub(super) fn add(connection: &mut Connection, taken: &Taken) -> rusqlite::Result<()> {
    let change = connection.transaction()?;
    for block in &taken.blocks {
        // A block that has these events already is of a file that says wrongly how far it has come.
        let changed = change
            .prepare_cached(
                "INSERT INTO blocks (block, last_seq, first_ms, last_ms) VALUES (?1, ?3, ?4, ?5)
                 ON CONFLICT (block) DO UPDATE SET last_seq = ?3,
                    first_ms = min(first_ms, ?4), last_ms = max(last_ms, ?5)
                 WHERE last_seq < ?2",
            )?
            .execute(params![
                bounded(block.number),
                bounded(block.first_seq),
                bounded(block.last_seq),
                block.first_ms,
                block.last_ms
            ])?;
        if changed != 1 {
            return Err(rusqlite::Error::QueryReturnedNoRows);
        }
        let mut insert = change.prepare_cached(
            "INSERT INTO found (block, kind, tool) SELECT ?1, ?2, ?3 WHERE NOT EXISTS
             (SELECT 1 FROM found WHERE kind = ?2 AND tool IS ?3 AND block = ?1)",
        )?;
        for (kind, tool) in &block.found {
            insert.execute(params![bounded(block.number), kind, tool])?;
        }
    }
    for call in &taken.calls {
        call.add(&change)?;
    }
    taken.sums.store(&change)?;
    change
        .prepare_cached("UPDATE progress SET projected_seq = ?1, hash = ?2 WHERE one = 1")?
        .execute(params![bounded(taken.last_seq), taken.hash])?;
    change.commit()
}

/// Forgets the blocks all of whose events come before the first that is in the ledger.
pub(super) fn forget_blocks(connection: &Connection, first: u64) -> rusqlite::Result<()> {
    let block = bounded(first / BLOCK);
    connection.execute("DELETE FROM blocks WHERE block < ?1", [block])?;
    connection.execute("DELETE FROM found WHERE block < ?1", [block])?;
    Ok(())
}

/// Places in the ledger, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// Where the events can be that are wanted, in the order in which they are wanted.
pub(super) fn places(connection: &Connection, wanted: &EventQuery) -> rusqlite::Result<Vec<Range>> {
    let known: i64 =
        connection
            .query_row("SELECT projected_seq FROM progress WHERE one = 1", [], |row| row.get(0))?;
    let first = wanted.after.map_or(1, |after| after.saturating_add(1));
    let last = wanted.before.map_or(u64::MAX, |before| before.saturating_sub(1)).min(place(known));
    if first > last {
        return Ok(Vec::new());
    }
    if (&wanted.kind, &wanted.tool, wanted.from_ms, wanted.to_ms) == (&None, &None, None, None) {
        return Ok(vec![Range { first, last }]);
    }
    let mut select = Select::default();
    select.only("kind = ?", &wanted.kind);
    select.only("tool = ?", &wanted.tool);
    select.only("last_ms >= ?", &wanted.from_ms);
    select.only("first_ms < ?", &wanted.to_ms);
    select.only("block >= ?", &Some(bounded(first / BLOCK)));
    select.only("block <= ?", &Some(bounded(last / BLOCK)));
    let tables =
        match (wanted.kind.is_some() || wanted.tool.is_some(), wanted.from_ms.or(wanted.to_ms)) {
            (false, _) => "blocks",
            (true, None) => "found",
            (true, Some(_)) => "found JOIN blocks USING (block)",
        };
    let order = if wanted.newest_first { "block DESC" } else { "block" };
    let (sql, values) = select.finish(&format!("DISTINCT block FROM {tables}"), order, u64::MAX);
    let mut statement = connection.prepare_cached(&sql)?;
    let blocks = statement.query_map(params_from_iter(values), |row| row.get(0).map(place))?;
    let mut ranges = Vec::new();
    for block in blocks {
        let start = block?.saturating_mul(BLOCK);
        let end = start.saturating_add(BLOCK - 1);
        join(&mut ranges, Range { first: start.max(first), last: end.min(last) });
    }
    Ok(ranges)
}

/// Adds a block to the one before it where they meet, so that both are read at once.
fn join(ranges: &mut Vec<Range>, next: Range) {
    if let Some(before) = ranges.last_mut()
        && before.last.max(next.last) - before.first.min(next.first) < TOGETHER * BLOCK
        && (before.last + 1 == next.first || next.last + 1 == before.first)
    {
        *before = Range { first: before.first.min(next.first), last: before.last.max(next.last) };
    } else {
        ranges.push(next);
    }
}

/// A query of those conditions that are given, so that the database sees which index serves it.
#[derive(Default)]
pub(super) struct Select {
    conditions: Vec<&'static str>,
    values: Vec<Box<dyn ToSql>>,
}

impl Select {
    pub(super) fn only<T: ToSql + Clone + 'static>(
        &mut self,
        condition: &'static str,
        value: &Option<T>,
    ) {
        if let Some(value) = value {
            self.conditions.push(condition);
            self.values.push(Box::new(value.clone()));
        }
    }

    pub(super) fn finish(
        mut self,
        what: &str,
        order: &str,
        limit: u64,
    ) -> (String, Vec<Box<dyn ToSql>>) {
        let conditions = match self.conditions.as_slice() {
            [] => String::new(),
            some => format!("WHERE {}", some.join(" AND ")),
        };
        self.values.push(Box::new(bounded(limit)));
        (format!("SELECT {what} {conditions} ORDER BY {order} LIMIT ?"), self.values)
    }
}
