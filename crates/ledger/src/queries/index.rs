//! The file that queries are answered from: its tables, how an event gets into them, and how they are
//! asked. The events themselves stay in the ledger; here is only where to find them.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter};
use serde::Deserialize;

use super::{CallQuery, CallRow, EventQuery};
use crate::{
    error::LedgerError,
    reader::{bounded, place},
    schema,
};

/// What marks the file as ours ("TOLQ").
const APPLICATION_ID: u32 = 0x544f_4c51;

/// Whoever changes the tables, or what is put into them, counts this up: a file of another format is
/// made anew.
const FORMAT: u32 = 1;

const TABLES: &str = "
    CREATE TABLE progress (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        projected_seq INTEGER NOT NULL,
        hash BLOB NOT NULL
    ) STRICT;
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        ts INTEGER NOT NULL,
        kind TEXT NOT NULL,
        tool TEXT
    ) STRICT;
    CREATE INDEX events_by_kind ON events (kind, seq);
    CREATE INDEX events_by_tool ON events (tool, seq) WHERE tool IS NOT NULL;
    CREATE INDEX events_by_time ON events (ts, seq);
    CREATE TABLE calls (
        seq INTEGER PRIMARY KEY,
        call_id TEXT NOT NULL UNIQUE,
        run_id TEXT,
        tool TEXT,
        key_id TEXT,
        session TEXT,
        ended_seq INTEGER,
        started_ms INTEGER NOT NULL,
        ended_ms INTEGER,
        outcome TEXT NOT NULL,
        code TEXT,
        duration_ms INTEGER
    ) STRICT;
    CREATE INDEX calls_by_tool ON calls (tool, seq) WHERE tool IS NOT NULL;
    CREATE INDEX calls_by_key ON calls (key_id, seq) WHERE key_id IS NOT NULL;
    CREATE INDEX calls_by_outcome ON calls (outcome, seq);
    INSERT INTO progress (one, projected_seq, hash) VALUES (1, 0, zeroblob(32));";

/// How far the file has come: the last event in it, and that event's hash, which tells whether it is of
/// this ledger. The hash is as it is stored, whatever that is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) seq: u64,
    pub(super) hash: Vec<u8>,
}

/// What the file needs to know of an event.
pub(super) struct Noted {
    pub(super) seq: u64,
    pub(super) ts_ms: i64,
    pub(super) kind: String,
    pub(super) tool: Option<String>,
    /// Only of the events of calls.
    pub(super) payload: Option<String>,
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

/// Puts events into the tables, and says in the same transaction how far that leads.
pub(super) fn add(connection: &mut Connection, events: &[Noted]) -> rusqlite::Result<()> {
    let Some(last) = events.last() else { return Ok(()) };
    let change = connection.transaction()?;
    {
        let mut insert = change
            .prepare_cached("INSERT INTO events (seq, ts, kind, tool) VALUES (?1, ?2, ?3, ?4)")?;
        for event in events {
            insert.execute(params![bounded(event.seq), event.ts_ms, event.kind, event.tool])?;
            add_call(&change, event)?;
        }
        change
            .prepare_cached("UPDATE progress SET projected_seq = ?1, hash = ?2 WHERE one = 1")?
            .execute(params![bounded(last.seq), last.hash])?;
    }
    change.commit()
}

/// What the events of a call say of it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    call_id: String,
    run_id: Option<String>,
    key_id: Option<String>,
    session: Option<String>,
    duration_ms: Option<i64>,
    error: Option<ToldError>,
    outcome_unknown: Option<bool>,
}

#[derive(Deserialize)]
struct ToldError {
    code: Option<String>,
}

/// Makes or ends the call that an event tells of. The first end counts. What cannot be read as the event
/// of a call says nothing of one.
fn add_call(connection: &Connection, event: &Noted) -> rusqlite::Result<()> {
    let Some(payload) = &event.payload else { return Ok(()) };
    let Ok(told) = serde_json::from_str::<Told>(payload) else { return Ok(()) };
    // How it ends when it had started, and when this is its first event.
    let (ended, unstarted) = match (event.kind.as_str(), told.outcome_unknown) {
        ("call_started", _) => return start_call(connection, event, &told),
        ("call_completed", _) => ("completed", "completed"),
        ("call_failed", Some(true)) => ("unknown", "unknown"),
        ("call_failed", _) => ("failed", "denied"),
        _ => return Ok(()),
    };
    connection
        .prepare_cached(
            "INSERT INTO calls (seq, call_id, run_id, tool, key_id, session,
                                ended_seq, started_ms, ended_ms, outcome, code, duration_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?1, ?7, ?7, ?8, ?9, ?10)
             ON CONFLICT (call_id) DO UPDATE SET
                run_id = coalesce(run_id, excluded.run_id), tool = coalesce(tool, excluded.tool),
                key_id = coalesce(key_id, excluded.key_id),
                session = coalesce(session, excluded.session),
                ended_seq = excluded.ended_seq, ended_ms = excluded.ended_ms, outcome = ?11,
                code = excluded.code, duration_ms = excluded.duration_ms
             WHERE outcome = 'running'",
        )?
        .execute(params![
            bounded(event.seq),
            told.call_id,
            told.run_id,
            event.tool,
            told.key_id,
            told.session,
            event.ts_ms,
            unstarted,
            told.error.and_then(|error| error.code),
            told.duration_ms,
            ended,
        ])?;
    Ok(())
}

fn start_call(connection: &Connection, event: &Noted, told: &Told) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO calls (seq, call_id, run_id, tool, key_id, session, started_ms, outcome)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'running') ON CONFLICT (call_id) DO NOTHING",
        )?
        .execute(params![
            bounded(event.seq),
            told.call_id,
            told.run_id,
            event.tool,
            told.key_id,
            told.session,
            event.ts_ms,
        ])?;
    Ok(())
}

/// The places of the events that are wanted.
pub(super) fn events(connection: &Connection, wanted: &EventQuery) -> rusqlite::Result<Vec<u64>> {
    let mut select = Select::default();
    select.only("kind = ?", &wanted.kind);
    select.only("tool = ?", &wanted.tool);
    select.only("ts >= ?", &wanted.from_ms);
    select.only("ts < ?", &wanted.to_ms);
    select.only("seq > ?", &wanted.after.map(bounded));
    select.only("seq < ?", &wanted.before.map(bounded));
    let order = if wanted.newest_first { "DESC" } else { "ASC" };
    let (sql, values) = select.finish("seq FROM events", order, wanted.limit);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| row.get(0).map(place))?;
    rows.collect()
}

const CALL: &str = "call_id, run_id, tool, key_id, session, seq, ended_seq, started_ms, ended_ms, outcome, code, duration_ms";

/// The calls that are wanted.
pub(super) fn calls(connection: &Connection, wanted: &CallQuery) -> rusqlite::Result<Vec<CallRow>> {
    let mut select = Select::default();
    select.only("tool = ?", &wanted.tool);
    select.only("key_id = ?", &wanted.key_id);
    select.only("outcome = ?", &wanted.outcome);
    select.only("seq < ?", &wanted.before.map(bounded));
    let (sql, values) = select.finish(&format!("{CALL} FROM calls"), "DESC", wanted.limit);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), call_row)?;
    rows.collect()
}

/// The call with this id.
pub(super) fn call(connection: &Connection, call_id: &str) -> rusqlite::Result<Option<CallRow>> {
    let sql = format!("SELECT {CALL} FROM calls WHERE call_id = ?1");
    connection.prepare_cached(&sql)?.query_row([call_id], call_row).optional()
}

/// A query of those conditions that are given, so that the database sees which index serves it.
#[derive(Default)]
struct Select {
    conditions: Vec<&'static str>,
    values: Vec<Box<dyn ToSql>>,
}

impl Select {
    fn only<T: ToSql + Clone + 'static>(&mut self, condition: &'static str, value: &Option<T>) {
        if let Some(value) = value {
            self.conditions.push(condition);
            self.values.push(Box::new(value.clone()));
        }
    }

    fn finish(mut self, what: &str, order: &str, limit: u64) -> (String, Vec<Box<dyn ToSql>>) {
        let conditions = match self.conditions.as_slice() {
            [] => String::new(),
            some => format!("WHERE {}", some.join(" AND ")),
        };
        self.values.push(Box::new(bounded(limit)));
        (format!("SELECT {what} {conditions} ORDER BY seq {order} LIMIT ?"), self.values)
    }
}

fn call_row(row: &Row<'_>) -> rusqlite::Result<CallRow> {
    Ok(CallRow {
        call_id: row.get(0)?,
        run_id: row.get(1)?,
        tool: row.get(2)?,
        key_id: row.get(3)?,
        session: row.get(4)?,
        seq: place(row.get(5)?),
        ended_seq: row.get::<_, Option<i64>>(6)?.map(place),
        started_ms: row.get(7)?,
        ended_ms: row.get(8)?,
        outcome: row.get(9)?,
        code: row.get(10)?,
        duration_ms: row.get(11)?,
    })
}
