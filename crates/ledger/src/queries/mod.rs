//! Queries over the events: which of a kind, of a tool, of a time, the list of calls, and trends.
//!
//! They are answered from a file of their own, `queries.db`, which a thread ([`projection`]) fills from
//! the ledger in transactions of its own ([`taking`], [`index`]). So the ledger's writer never waits for a query or
//! for an index. Under load it follows in large steps, some of a second behind; whoever asks is waited for, until it
//! has come to where the ledger was when he asked. The file is a cache: it says how far it has come, and it is made anew from the ledger
//! when it is missing, damaged, of another format, or of another ledger.

mod calls;
mod index;
mod projection;
mod taking;
mod trends;

use std::{
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use rusqlite::{Connection, params_from_iter};
use serde::Serialize;

pub(crate) use projection::Projection;
pub use trends::{TrendBy, TrendQuery, TrendRow, TrendStep, TrendSums};

use self::index::{Range, Select};

use crate::{
    chain::StoredEvent,
    error::LedgerError,
    reader::{COLUMNS, Reader, bounded},
    schema,
    writer::Shared as Written,
};

/// How many pairs of connections are kept open for the next query.
const MOST_IDLE: usize = 4;

/// How long a query waits for the file to come to where the ledger is. Then it is answered as of where the file is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most events that are read at once. The ledger's log cannot be begun anew while somebody reads.
const MOST_AT_ONCE: u64 = 8192;

/// How many rows a query gives that does not say it.
const DEFAULT_LIMIT: u64 = 100;

/// Which events are wanted. What is `None` does not restrict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventQuery {
    /// Of this kind.
    pub kind: Option<String>,
    /// About this tool.
    pub tool: Option<String>,
    /// At this time or later, in milliseconds since 1970.
    pub from_ms: Option<i64>,
    /// Before this time.
    pub to_ms: Option<i64>,
    /// Behind this event.
    pub after: Option<u64>,
    /// Before this event.
    pub before: Option<u64>,
    /// In falling order of their places, instead of rising.
    pub newest_first: bool,
    /// At most so many.
    pub limit: u64,
}

impl Default for EventQuery {
    fn default() -> Self {
        Self {
            kind: None,
            tool: None,
            from_ms: None,
            to_ms: None,
            after: None,
            before: None,
            newest_first: false,
            limit: DEFAULT_LIMIT,
        }
    }
}

/// Which calls are wanted, newest first. What is `None` does not restrict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallQuery {
    /// Of this tool.
    pub tool: Option<String>,
    /// Made with this key.
    pub key_id: Option<String>,
    /// With this outcome.
    pub outcome: Option<String>,
    /// Whose first event is before this one.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: u64,
}

impl Default for CallQuery {
    fn default() -> Self {
        Self { tool: None, key_id: None, outcome: None, before: None, limit: DEFAULT_LIMIT }
    }
}

/// A call, as its events tell it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallRow {
    /// The call.
    pub call_id: String,
    /// The run that it belongs to.
    pub run_id: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// The key that it was made with.
    pub key_id: Option<String>,
    /// The session that it was made in.
    pub session: Option<String>,
    /// Its first event.
    pub seq: u64,
    /// The event that ended it.
    pub ended_seq: Option<u64>,
    /// When its first event happened, in milliseconds since 1970.
    pub started_ms: i64,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// `running`, `completed`, `failed`, `denied` (it never started) or `unknown` (nobody can say whether
    /// it took effect).
    pub outcome: String,
    /// The code of its error.
    pub code: Option<String>,
    /// How long the tool worked.
    pub duration_ms: Option<i64>,
}

/// The way to ask. Clones share it. It may outlive the ledger, and then answers as of its end.
#[derive(Clone)]
pub struct Queries {
    shared: Arc<Shared>,
}

impl Queries {
    /// The last event that queries know of.
    pub fn caught_up_to(&self) -> u64 {
        self.shared.state().projected
    }

    /// Waits until queries know of this event. False when they do not in time, or never will because
    /// the ledger is closed.
    pub fn wait_for(&self, seq: u64, timeout: Duration) -> bool {
        self.shared.change(|state| state.waiters += 1);
        let waiting = |state: &mut State| state.projected < seq && !state.stop;
        let (mut state, _) = self
            .shared
            .changed
            .wait_timeout_while(self.shared.state(), timeout, waiting)
            .unwrap_or_else(PoisonError::into_inner);
        state.waiters -= 1;
        state.projected >= seq
    }

    /// The events that are wanted, as they are stored.
    pub fn events(&self, wanted: &EventQuery) -> Result<Vec<StoredEvent>, LedgerError> {
        self.ask(
            |index| index::places(index, wanted),
            |ledger, places| {
                let mut found = Vec::new();
                for range in places {
                    read(ledger, wanted, range, &mut found)?;
                }
                Ok(found)
            },
        )
    }

    /// The calls that are wanted, newest first.
    pub fn calls(&self, wanted: &CallQuery) -> Result<Vec<CallRow>, LedgerError> {
        self.ask(|index| calls::calls(index, wanted), |_, calls| Ok(calls))
    }

    /// The call with this id.
    pub fn call(&self, call_id: &str) -> Result<Option<CallRow>, LedgerError> {
        self.ask(|index| calls::call(index, call_id), |_, call| Ok(call))
    }

    /// The trends that are wanted, in the order of time.
    pub fn trends(&self, wanted: &TrendQuery) -> Result<Vec<TrendRow>, LedgerError> {
        self.ask(|index| trends::trends(index, wanted), |_, trends| Ok(trends))
    }

    /// Asks the index, and then the ledger for what the index found there.
    fn ask<F, T>(
        &self,
        find: impl FnOnce(&Connection) -> rusqlite::Result<F>,
        read: impl FnOnce(&Reader, F) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let head = self.shared.written.head().seq;
        if self.caught_up_to() < head {
            self.wait_for(head, PATIENCE);
        }
        let idle = self.shared.idle_connections();
        let generation = match &idle {
            Some(connections) => connections.generation,
            None => self.shared.state().generation,
        };
        let doubted = |error: rusqlite::Error| {
            let doubtful = projection::spoilt(&error) || !self.shared.file.exists();
            // A file that was made anew meanwhile is not the one that failed.
            self.shared.change(|state| {
                state.rebuild |= doubtful && state.generation == generation;
            });
            LedgerError::from(error)
        };
        let connections = match idle {
            Some(connections) => connections,
            None => Connections {
                generation,
                index: schema::read_only(&self.shared.file).map_err(doubted)?,
                ledger: Reader::open(&self.shared.ledger)?,
            },
        };
        let found = find(&connections.index).map_err(doubted)?;
        let read = read(&connections.ledger, found)?;
        let closing = self.shared.state().stop;
        let mut idle = self.shared.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if !closing && idle.len() < MOST_IDLE {
            idle.push(connections);
        }
        Ok(read)
    }
}

/// Reads what is wanted of a part of the ledger behind what was found already.
fn read(
    ledger: &Reader,
    wanted: &EventQuery,
    mut range: Range,
    found: &mut Vec<StoredEvent>,
) -> Result<(), LedgerError> {
    loop {
        let count = u64::try_from(found.len()).unwrap_or(u64::MAX);
        let most = wanted.limit.saturating_sub(count).min(MOST_AT_ONCE);
        if most == 0 {
            return Ok(());
        }
        let mut select = Select::default();
        select.only("seq >= ?", &Some(bounded(range.first)));
        select.only("seq <= ?", &Some(bounded(range.last)));
        select.only("kind = ?", &wanted.kind);
        select.only("tool = ?", &wanted.tool);
        select.only("ts >= ?", &wanted.from_ms);
        select.only("ts < ?", &wanted.to_ms);
        let order = if wanted.newest_first { "seq DESC" } else { "seq" };
        let (sql, values) = select.finish(&format!("{COLUMNS} FROM events"), order, most);
        let events = ledger.select(&sql, params_from_iter(values))?;
        let (last, full) = (events.last().map(|event| event.seq), events.len() as u64 == most);
        found.extend(events);
        match last.filter(|_| full) {
            Some(last) if wanted.newest_first => range.last = last - 1,
            Some(last) => range.first = last + 1,
            None => return Ok(()),
        }
    }
}

/// What the thread and those who ask have in common.
struct Shared {
    /// The ledger's database.
    ledger: PathBuf,
    /// Where the ledger stands.
    written: Arc<Written>,
    /// The file that is asked.
    file: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
    idle: Mutex<Vec<Connections>>,
}

#[derive(Default)]
struct State {
    /// The last event that is in the file.
    projected: u64,
    /// How many wait for the file to come further.
    waiters: u32,
    /// Something was committed since the thread last looked.
    woken: bool,
    /// The file is not to be trusted.
    rebuild: bool,
    /// The ledger is closing.
    stop: bool,
    /// Which file it is: one more with each that was made anew.
    generation: u64,
}

/// The connections of one query.
struct Connections {
    generation: u64,
    index: Connection,
    ledger: Reader,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, f: impl FnOnce(&mut State)) {
        f(&mut self.state());
        self.changed.notify_all();
    }

    /// The file has come to this event. What the ledger retires may go up to there.
    fn knows(&self, seq: u64) {
        self.change(|state| state.projected = seq);
        self.written.followed.store(seq, Ordering::Release);
    }

    /// Closes the connections of earlier queries.
    fn forget_idle(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Connections of an earlier query, unless the file was made anew since.
    fn idle_connections(&self) -> Option<Connections> {
        let generation = self.state().generation;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connections| connections.generation == generation);
        idle.pop()
    }
}
