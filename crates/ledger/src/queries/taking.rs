//! What is taken from the ledger for the file that queries are answered from.

use std::borrow::Cow;

use rusqlite::Row;

use super::{
    calls::CallEvent,
    index::BLOCK,
    trends::{Of, Sums},
};
use crate::{
    error::LedgerError,
    reader::{Reader, bounded, place},
};

/// Most events that are taken at once, and about the most bytes of them. The ledger's log cannot be begun anew while
/// somebody reads.
const TURN: (usize, usize) = (8192, 4 * 1024 * 1024);

/// What is taken at once.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) blocks: Vec<Block>,
    pub(super) calls: Vec<CallEvent>,
    pub(super) sums: Sums,
    /// The last event, and its hash as it is stored.
    pub(super) last_seq: u64,
    pub(super) hash: Vec<u8>,
}

/// What is in a block of events.
pub(super) struct Block {
    pub(super) number: u64,
    pub(super) first_seq: u64,
    pub(super) last_seq: u64,
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    /// Which kinds, about which tools.
    pub(super) found: Vec<(String, Option<String>)>,
}

impl Taken {
    /// The events behind `after`; `None` when there are none. Whatever stands there is taken: a ledger that was
    /// tampered with is for its verification to tell, and no reason to stop here.
    pub(super) fn from(ledger: &Reader, after: u64) -> Result<Option<Self>, LedgerError> {
        let mut statement = ledger.connection().prepare_cached(
            "SELECT seq, ts, kind, tool, payload, hash, agent_id, identity_id, workload_id
             FROM events WHERE seq > ?1 ORDER BY seq",
        )?;
        let mut rows = statement.query([bounded(after)])?;
        let mut taken = Self::default();
        let (mut count, mut bytes) = (0, 0);
        while count < TURN.0
            && bytes < TURN.1
            && let Some(row) = rows.next()?
        {
            count += 1;
            bytes += taken.take(row)?;
        }
        Ok((count > 0).then_some(taken))
    }

    /// Takes an event, and gives how many bytes its payload has.
    fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<usize> {
        let (seq, ts_ms) = (place(row.get(0)?), row.get(1)?);
        let kind = row.get_ref(2)?.as_bytes().unwrap_or_default();
        let tool = row.get_ref(3)?.as_bytes_or_null().ok().flatten();
        let payload = row.get_ref(4)?.as_bytes().unwrap_or_default();
        let hash = row.get_ref(5)?.as_bytes().unwrap_or_default();
        self.last_seq = seq;
        self.hash.clear();
        self.hash.extend_from_slice(hash);
        self.note(seq, ts_ms, kind, tool);
        self.calls.extend(CallEvent::read(seq, ts_ms, kind, tool, payload));
        let name =
            |column: usize| row.get_ref(column).and_then(|name| Ok(name.as_str_or_null()?)).ok();
        let name = |column: usize| name(column).flatten().unwrap_or_default();
        let of = Of { agent_id: name(6), identity_id: name(7), workload_id: name(8) };
        self.sums.note(ts_ms, kind, of, payload);
        Ok(payload.len())
    }

    fn note(&mut self, seq: u64, ts_ms: i64, kind: &[u8], tool: Option<&[u8]>) {
        let number = seq / BLOCK;
        match self.blocks.last_mut() {
            Some(block) if block.number == number => block.note(seq, ts_ms, kind, tool),
            _ => {
                let mut block = Block {
                    number,
                    first_seq: seq,
                    last_seq: seq,
                    first_ms: ts_ms,
                    last_ms: ts_ms,
                    found: Vec::new(),
                };
                block.note(seq, ts_ms, kind, tool);
                self.blocks.push(block);
            }
        }
    }
}

impl Block {
    fn note(&mut self, seq: u64, ts_ms: i64, kind: &[u8], tool: Option<&[u8]>) {
        self.last_seq = seq;
        self.first_ms = self.first_ms.min(ts_ms);
        self.last_ms = self.last_ms.max(ts_ms);
        let (kind, tool) = (String::from_utf8_lossy(kind), tool.map(String::from_utf8_lossy));
        // There are few, and the last ones come again.
        let same = |(one, its): &(String, Option<String>)| {
            *one == kind && its.as_deref() == tool.as_deref()
        };
        if !self.found.iter().rev().any(same) {
            self.found.push((kind.into_owned(), tool.map(Cow::into_owned)));
        }
    }
}
