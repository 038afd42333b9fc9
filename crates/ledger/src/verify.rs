//! The proof that nobody changed the chain.

use serde::Serialize;

use crate::{
    chain::{Head, StoredEvent},
    error::LedgerError,
    reader::Reader,
    retire,
};

/// What a check of the whole chain found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// How many events hang together from the first that is there on.
    pub events: u64,
    /// How many came before them and were retired: a checkpoint in the chain vouches for the last of them.
    pub retired: u64,
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
    /// The event of a head that was seen earlier is retired. It cannot be compared any more; the chain that is there
    /// hangs together.
    Retired {
        /// The event.
        seq: u64,
        /// The first event that is there.
        first: u64,
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
        loop {
            let first = self.first_seq_if_sound()?;
            let walked = self.walk(earlier);
            // What is retired meanwhile is no gap; then it begins again with what is left.
            let doubtful = match &walked {
                Ok(verified) => verified.broken.is_some(),
                Err(error) => matches!(error, LedgerError::Removed),
            };
            if !doubtful || self.first_seq_if_sound()? == first {
                return walked;
            }
        }
    }

    /// The first event; 0 when the file is damaged there, which the walk tells.
    fn first_seq_if_sound(&self) -> Result<u64, LedgerError> {
        match self.first_seq() {
            Err(LedgerError::Damaged(_)) => Ok(0),
            first => first,
        }
    }

    fn walk(&self, earlier: Option<Head>) -> Result<Verified, LedgerError> {
        let mut walk = Walk { at: Head::EMPTY, start: None, vouched: false };
        let mut broken = None;
        let read = self.each(|seq, event| {
            broken = match event {
                Ok(event) => walk.step(self, &event, earlier)?,
                // No event of ours has such bytes.
                Err(_) => Some(Broken::Changed { seq }),
            };
            Ok(broken.is_none())
        });
        match read {
            Err(LedgerError::Damaged(message)) => {
                broken = Some(Broken::Unreadable { after: walk.at.seq, message });
            }
            read => read?,
        }
        Ok(walk.verified(broken, earlier))
    }
}

/// A walk along the chain.
struct Walk {
    /// The last event that hangs together with those before it.
    at: Head,
    /// What the first event that is there says of the one before it; `None` when nothing was read.
    start: Option<Head>,
    /// A checkpoint vouches for what is not there.
    vouched: bool,
}

impl Walk {
    /// What is wrong with the next event.
    fn step(
        &mut self,
        reader: &Reader,
        event: &StoredEvent,
        earlier: Option<Head>,
    ) -> Result<Option<Broken>, LedgerError> {
        let before = match self.start {
            Some(_) => self.at,
            // What came before may be retired; a checkpoint has yet to say so.
            None if event.seq > 1 => Head { seq: event.seq - 1, hash: event.prev_hash },
            None => Head::EMPTY,
        };
        let broken = check(before, event, earlier);
        if broken.is_none() {
            self.at = event.head();
            self.start.get_or_insert(before);
            if let Some(through) = retire::through(event) {
                self.vouched = self.vouched || self.retires(reader, through)?;
            }
        }
        Ok(broken)
    }

    /// Whether what is not there comes before an event of this chain that was retired. The removal goes from the oldest
    /// on, and may be under way.
    fn retires(&self, reader: &Reader, through: Head) -> Result<bool, LedgerError> {
        match self.start {
            Some(start) if through.seq < start.seq => Ok(false),
            Some(start) if through.seq == start.seq => Ok(through == start),
            _ => Ok(reader.at(through.seq)?.is_some_and(|event| event.head() == through)),
        }
    }

    fn verified(self, broken: Option<Broken>, earlier: Option<Head>) -> Verified {
        let start = self.start.unwrap_or(Head::EMPTY);
        let Self { at, vouched, .. } = self;
        if broken.is_none() && start.seq > 0 && !vouched {
            let broken = Some(Broken::Gap { expected: 1, found: start.seq + 1 });
            return Verified { events: 0, retired: 0, head: Head::EMPTY, broken };
        }
        let against = || earlier.and_then(|earlier| compare(earlier, start, at));
        Verified {
            events: at.seq.saturating_sub(start.seq),
            retired: if vouched { start.seq } else { 0 },
            head: at,
            broken: broken.or_else(against),
        }
    }
}

/// What is wrong with a chain between these two against a head that was seen earlier. Those in it were compared already.
fn compare(earlier: Head, start: Head, at: Head) -> Option<Broken> {
    let seq = earlier.seq;
    if seq > at.seq {
        return Some(Broken::Truncated { expected: seq, found: at.seq });
    }
    if seq == start.seq && earlier != start {
        return Some(Broken::Rewritten { seq });
    }
    (0 < seq && seq < start.seq).then_some(Broken::Retired { seq, first: start.seq + 1 })
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
