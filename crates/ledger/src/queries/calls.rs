//! The list of calls: a row for each, made and ended by its events.

use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use serde::Deserialize;

use super::{CallQuery, CallRow, index::Select};
use crate::reader::{bounded, place};

pub(super) const TABLES: &str = "
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
    CREATE INDEX calls_by_outcome ON calls (outcome, seq);";

/// An event of a call.
pub(super) struct CallEvent {
    seq: u64,
    ts_ms: i64,
    step: Step,
    tool: Option<String>,
    told: Told,
}

/// What it tells.
enum Step {
    Started,
    Completed,
    Failed,
}

impl CallEvent {
    /// The event of a call; `None` when it is another one, or cannot be read as one: then it says nothing of a call.
    pub(super) fn read(
        seq: u64,
        ts_ms: i64,
        kind: &[u8],
        tool: Option<&[u8]>,
        payload: &[u8],
    ) -> Option<Self> {
        let step = match kind {
            b"call_started" => Step::Started,
            b"call_completed" => Step::Completed,
            b"call_failed" => Step::Failed,
            _ => return None,
        };
        let told = serde_json::from_slice(payload).ok()?;
        let tool = tool.map(|tool| String::from_utf8_lossy(tool).into_owned());
        Some(Self { seq, ts_ms, step, tool, told })
    }

    /// Makes or ends the call that it tells of. The first end counts.
    pub(super) fn add(&self, connection: &Connection) -> rusqlite::Result<()> {
        match self.step {
            Step::Started => self.start(connection),
            Step::Completed => self.end(connection, "completed", "completed"),
            Step::Failed if self.told.outcome_unknown == Some(true) => {
                self.end(connection, "unknown", "unknown")
            }
            Step::Failed => self.end(connection, "failed", "denied"),
        }
    }

    fn start(&self, connection: &Connection) -> rusqlite::Result<()> {
        let told = &self.told;
        connection
            .prepare_cached(
                "INSERT INTO calls (seq, call_id, run_id, tool, key_id, session, started_ms, outcome)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'running') ON CONFLICT (call_id) DO NOTHING",
            )?
            .execute(params![
                bounded(self.seq),
                told.call_id,
                told.run_id,
                self.tool,
                told.key_id,
                told.session,
                self.ts_ms,
            ])?;
        Ok(())
    }

    /// `ended` is how it ends when it had started, `unstarted` when this is its first event.
    fn end(&self, connection: &Connection, ended: &str, unstarted: &str) -> rusqlite::Result<()> {
        let told = &self.told;
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
                bounded(self.seq),
                told.call_id,
                told.run_id,
                self.tool,
                told.key_id,
                told.session,
                self.ts_ms,
                unstarted,
                told.error.as_ref().and_then(|error| error.code.as_ref()),
                told.duration_ms,
                ended,
            ])?;
        Ok(())
    }
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

const CALL: &str = "call_id, run_id, tool, key_id, session, seq, ended_seq, started_ms, ended_ms, outcome, code, duration_ms";

/// The calls that are wanted.
pub(super) fn calls(connection: &Connection, wanted: &CallQuery) -> rusqlite::Result<Vec<CallRow>> {
    let mut select = Select::default();
    select.only("tool = ?", &wanted.tool);
    select.only("key_id = ?", &wanted.key_id);
    select.only("outcome = ?", &wanted.outcome);
    select.only("seq < ?", &wanted.before.map(bounded));
    let (sql, values) = select.finish(&format!("{CALL} FROM calls"), "seq DESC", wanted.limit);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), call_row)?;
    rows.collect()
}

/// The call with this id.
pub(super) fn call(connection: &Connection, call_id: &str) -> rusqlite::Result<Option<CallRow>> {
    let sql = format!("SELECT {CALL} FROM calls WHERE call_id = ?1");
    connection.prepare_cached(&sql)?.query_row([call_id], call_row).optional()
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
