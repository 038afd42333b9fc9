//! The proof that nobody changed the chain.

use serde::Serialize;

use crate::{
    chain::{Head, StoredEvent},
    error::LedgerError,
    reader::Reader,
};

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
    /// The file is damaged, and what follows this event cannot be read.
    Unreadable {
        /// The last event that could be read; 0 when none could.
        after: u64,
        /// What the database says.
        message: String,
    },
}

impl Reader {
    /// Follows the whole chain, as far as it went when this began. `earlier` is a head that was exported
    /// before: a ledger that was cut or written anew still hangs together in itself, and only that shows it.
    pub fn verify(&self, earlier: Option<Head>) -> Result<Verified, LedgerError> {
        let mut at = Head::EMPTY;
        let mut broken = None;
        let read = self.each(|seq, event| {
            broken = match event {
                Ok(event) => {
                    let broken = check(at, &event, earlier);
                    if broken.is_none() {
                        at = event.head();
                    }
                    broken
                }
                // No event of ours has such bytes.
                Err(_) => Some(Broken::Changed { seq }),
            };
            Ok(broken.is_none())
        });
        match read {
            Err(LedgerError::Damaged(message)) => {
                broken = Some(Broken::Unreadable { after: at.seq, message });
            }
            read => read?,
        }
        if broken.is_none()
            && let Some(earlier) = earlier.filter(|earlier| earlier.seq > at.seq)
        {
            broken = Some(Broken::Truncated { expected: earlier.seq, found: at.seq });
        }
        Ok(Verified { events: at.seq, head: at, broken })
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
