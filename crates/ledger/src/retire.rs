//! Retiring events: a `checkpoint` event at the head of the chain says what the oldest events led to and vouches for the
//! last of them by its hash; then they are removed, the oldest first, in steps between which others' events are stored.
//!
//! What is to be removed follows from the checkpoint, so that the removal goes on after a crash at any moment. Where the
//! last checkpoint is stands beside the chain, so that it is found in a long ledger.

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, params};
use serde::Deserialize;
use serde_json::value::RawValue;
use tollgate_contract::event::Event;

use crate::{
    beside::{Batch, Beside, Kept},
    chain::{EventHash, Head, NewEvent, StoredEvent, Subject},
    error::LedgerError,
    reader::{self, bounded, place},
};

/// The kind of the events that vouch for what is retired.
pub(crate) const KIND: &str = "checkpoint";

/// Where the place of the last checkpoint is kept.
const SPACE: &str = "ledger.checkpoint";
const KEY: &[u8] = b"last";

/// Most events that one step removes, and how long it is from one step to the next: others' events come first.
const STEP: i64 = 256;
const PAUSE: Duration = Duration::from_millis(10);

/// How long it is until a step that failed is tried again.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Makes a state as JSON text, when the chain stands at this head.
pub(crate) type MakeState = Box<dyn FnOnce(Head) -> String + Send>;

/// What a checkpoint event says.
#[derive(Deserialize)]
struct Told {
    through: ToldThrough,
}

#[derive(Deserialize)]
struct ToldThrough {
    seq: u64,
    hash: String,
}

/// The last event that a checkpoint retires. `None` when the event is no checkpoint, or says nothing of the kind.
pub(crate) fn through(event: &StoredEvent) -> Option<Head> {
    if event.kind != KIND {
        return None;
    }
    let told: Told = serde_json::from_str(&event.payload).ok()?;
    let through = Head::parse(told.through.seq, &told.through.hash)?;
    // Nothing can vouch for what comes after it.
    (through.seq < event.seq).then_some(through)
}

/// Whether events up to this one can be retired, and which event it is. Those up to `already` are on their way out.
pub(crate) fn can_retire(
    connection: &Connection,
    through: u64,
    already: u64,
    head: Head,
) -> Result<Head, LedgerError> {
    if through <= already {
        let problem = format!("events up to {already} are being retired already");
        return Err(LedgerError::Retire(problem));
    }
    if through >= head.seq {
        let problem = format!(
            "event {through} cannot be retired: the last one is {}, and it stays",
            head.seq
        );
        return Err(LedgerError::Retire(problem));
    }
    let event = reader::at(connection, through)?
        .ok_or_else(|| LedgerError::Retire(format!("event {through} is not there")))?;
    if event.hash != event.computed_hash() {
        return Err(LedgerError::Damaged(format!("event {through} was changed")));
    }
    Ok(event.head())
}

/// The checkpoint event that follows `head`, and where it is.
pub(crate) fn checkpoint(
    now_ms: i64,
    through: Head,
    head: Head,
    state: &str,
) -> Result<Batch, LedgerError> {
    if let Err(error) = serde_json::from_str::<&RawValue>(state) {
        return Err(LedgerError::Event(format!("the state of a checkpoint is no JSON: {error}")));
    }
    let Head { seq, hash } = through;
    let payload = format!(r#"{{"through":{{"seq":{seq},"hash":"{hash}"}},"state":{state}}}"#);
    let event = NewEvent::from_json(Event::Checkpoint, now_ms, Subject::default(), payload)?;
    let place = Beside::Put {
        space: SPACE,
        key: KEY.to_vec(),
        value: (head.seq + 1).to_be_bytes().to_vec(),
        expires_ms: None,
    };
    Ok(Batch { events: vec![event], beside: vec![place] })
}

/// The last checkpoint.
pub(crate) fn last(connection: &Connection) -> Result<Option<StoredEvent>, LedgerError> {
    let Some(kept) = Kept::load(connection, SPACE, KEY)? else { return Ok(None) };
    let seq = kept.value.try_into().map(u64::from_be_bytes).unwrap_or_default();
    let event = reader::at(connection, seq)?.filter(|event| event.kind == KIND);
    match event {
        Some(event) if event.hash == event.computed_hash() => Ok(Some(event)),
        _ => Err(LedgerError::Damaged(format!("event {seq} should be the last checkpoint"))),
    }
}

/// A removal that is under way.
pub(crate) struct Removal {
    through: Head,
    due: Instant,
}

impl Removal {
    pub(crate) fn new(through: Head) -> Self {
        Self { through, due: Instant::now() }
    }

    /// What an earlier process had not removed yet. What cannot be read is left to verification.
    pub(crate) fn pending(connection: &Connection) -> Option<Self> {
        let through = last(connection).ok().flatten().as_ref().and_then(through)?;
        let first = first_seq(connection).ok()?;
        (first <= through.seq).then(|| Self::new(through))
    }

    /// The last event that goes.
    pub(crate) fn through(&self) -> u64 {
        self.through.seq
    }

    /// How long it is until the next step.
    pub(crate) fn rest(&self) -> Duration {
        self.due.saturating_duration_since(Instant::now())
    }

    /// Removes some of the events, the oldest first, but none behind `known`. True when all are gone.
    pub(crate) fn step(
        &mut self,
        connection: &Connection,
        known: u64,
    ) -> Result<bool, LedgerError> {
        self.due = Instant::now() + PAUSE_AFTER_FAILURE;
        let first = first_seq(connection)?;
        if first > self.through.seq {
            return Ok(true);
        }
        self.vouched(connection)?;
        let last = bounded(first).saturating_add(STEP - 1);
        let last = last.min(bounded(self.through.seq)).min(bounded(known));
        if last < bounded(first) {
            // Queries do not know it yet.
            return Ok(false);
        }
        connection.prepare_cached("DELETE FROM events WHERE seq <= ?1")?.execute(params![last])?;
        self.due = Instant::now() + PAUSE;
        Ok(last >= bounded(self.through.seq))
    }

    /// Passes if the event that the checkpoint vouches for is the one that is there. It goes last.
    fn vouched(&self, connection: &Connection) -> Result<(), LedgerError> {
        let hash: Option<Vec<u8>> = connection
            .prepare_cached("SELECT hash FROM events WHERE seq = ?1")?
            .query_row([bounded(self.through.seq)], |row| row.get(0))
            .optional()?;
        match hash.as_deref().and_then(EventHash::from_bytes) {
            Some(hash) if hash == self.through.hash => Ok(()),
            _ => Err(LedgerError::Damaged(format!(
                "event {} is not the one that its checkpoint retires",
                self.through.seq
            ))),
        }
    }
}

/// The place of the first event that is there; 1 when there is none.
pub(crate) fn first_seq(connection: &Connection) -> Result<u64, LedgerError> {
    let first: Option<i64> = connection
        .prepare_cached("SELECT min(seq) FROM events")?
        .query_row([], |row| row.get(0))?;
    Ok(first.map_or(1, place))
}
