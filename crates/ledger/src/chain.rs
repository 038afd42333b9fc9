//! Events and the chain: what is hashed, and how.

use std::{fmt, sync::Arc};

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use tollgate_contract::{event::Event, text::hex};

use crate::error::LedgerError;

/// Set apart from every other use of the hash, and from a later format.
const DOMAIN: &[u8] = b"tollgate-event-1";

/// Largest event, and largest value beside the chain, in bytes. Far above what is sensible, and far below
/// what the database refuses.
pub(crate) const MOST_BYTES: usize = 16 * 1024 * 1024;

/// SHA-256 over an event and the hash of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventHash([u8; 32]);

impl EventHash {
    /// What stands before the first event.
    pub const GENESIS: Self = Self([0; 32]);

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for EventHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for EventHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventHash({self})")
    }
}

impl Serialize for EventHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where the chain stands: the last event and its hash. Kept elsewhere, it shows a ledger that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Head {
    /// The last event; 0 when there is none.
    pub seq: u64,
    /// Its hash.
    pub hash: EventHash,
}

impl Head {
    /// A chain without events.
    pub const EMPTY: Self = Self { seq: 0, hash: EventHash::GENESIS };

    /// A head from its number and the hex digits of its hash.
    pub fn parse(seq: u64, hash: &str) -> Option<Self> {
        let hash = tollgate_contract::InputHash::parse(hash)?;
        Some(Self { seq, hash: EventHash(*hash.as_bytes()) })
    }
}

/// Whom and what an event is about. Identities are named by their pseudonym.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subject {
    /// The agent.
    pub agent_id: Option<Arc<str>>,
    /// The credential.
    pub identity_id: Option<Arc<str>>,
    /// The work.
    pub workload_id: Option<Arc<str>>,
    /// The place.
    pub scope_id: Option<Arc<str>>,
    /// The tool.
    pub tool: Option<Arc<str>>,
    /// The intent.
    pub intent_id: Option<Arc<str>>,
}

impl Subject {
    fn fields(&self) -> [Option<&str>; 6] {
        [
            self.agent_id.as_deref(),
            self.identity_id.as_deref(),
            self.workload_id.as_deref(),
            self.scope_id.as_deref(),
            self.tool.as_deref(),
            self.intent_id.as_deref(),
        ]
    }
}

/// An event that is to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub(crate) kind: &'static str,
    pub(crate) ts_ms: i64,
    pub(crate) subject: Subject,
    pub(crate) payload: String,
}

impl NewEvent {
    /// An event of this kind at this time, in milliseconds since 1970. The payload is stored as it is:
    /// whoever makes it has redacted it.
    pub fn new(
        event: Event,
        ts_ms: i64,
        subject: Subject,
        payload: &impl Serialize,
    ) -> Result<Self, LedgerError> {
        let payload = serde_json::to_string(payload)
            .map_err(|error| LedgerError::Event(format!("its payload is no JSON: {error}")))?;
        Self::from_json(event, ts_ms, subject, payload)
    }

    /// The same with a payload that is written already. It must be JSON, which is not checked again here: an
    /// export stops at an event whose payload is none.
    pub fn from_json(
        event: Event,
        ts_ms: i64,
        subject: Subject,
        payload: String,
    ) -> Result<Self, LedgerError> {
        let kind = event
            .ledger_kind()
            .ok_or_else(|| LedgerError::Event(format!("{event:?} is not kept in the ledger")))?;
        let event = Self { kind, ts_ms, subject, payload };
        match event.bytes() {
            bytes if bytes > MOST_BYTES => Err(LedgerError::TooLarge { bytes, most: MOST_BYTES }),
            _ => Ok(event),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let subject = self.subject.fields().into_iter().flatten().map(str::len);
        subject.fold(self.payload.len(), usize::saturating_add)
    }

    /// Where the chain stands when this event comes behind `head`.
    pub(crate) fn after(&self, head: Head) -> Head {
        let seq = head.seq + 1;
        let hash =
            hash(head.hash, seq, self.ts_ms, self.kind, self.subject.fields(), &self.payload);
        Head { seq, hash }
    }
}

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its place, from 1.
    pub seq: u64,
    /// When it happened, in milliseconds since 1970.
    pub ts_ms: i64,
    /// Its kind.
    pub kind: String,
    /// Whom and what it is about.
    pub subject: Subject,
    /// What happened: JSON, byte for byte as it was written.
    pub payload: String,
    /// The hash of the event before.
    pub prev_hash: EventHash,
    /// Its hash.
    pub hash: EventHash,
}

impl StoredEvent {
    /// Where the chain stands with this event.
    pub fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash }
    }

    /// The hash that these fields must have.
    pub(crate) fn computed_hash(&self) -> EventHash {
        let subject = self.subject.fields();
        hash(self.prev_hash, self.seq, self.ts_ms, &self.kind, subject, &self.payload)
    }
}

/// The hash of an event. Every field is hashed with its length before it, and an absent one differs from an
/// empty one, so that no two events are hashed from the same bytes.
fn hash(
    prev_hash: EventHash,
    seq: u64,
    ts_ms: i64,
    kind: &str,
    subject: [Option<&str>; 6],
    payload: &str,
) -> EventHash {
    let mut hasher = Sha256::new();
    hasher.update(DOMAIN);
    hasher.update(prev_hash.0);
    hasher.update(seq.to_le_bytes());
    hasher.update(ts_ms.to_le_bytes());
    let mut field = |text: Option<&str>| match text {
        None => hasher.update([0]),
        Some(text) => {
            hasher.update([1]);
            hasher.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(text.as_bytes());
        }
    };
    field(Some(kind));
    subject.into_iter().for_each(&mut field);
    field(Some(payload));
    EventHash(hasher.finalize().into())
}

impl Serialize for StoredEvent {
    /// One event as it is exported and streamed; the payload is written as it is stored.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error, SerializeMap};
        let payload: &serde_json::value::RawValue =
            serde_json::from_str(&self.payload).map_err(S::Error::custom)?;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("seq", &self.seq)?;
        map.serialize_entry("ts", &self.ts_ms)?;
        map.serialize_entry("kind", &self.kind)?;
        let names = ["agent_id", "identity_id", "workload_id", "scope_id", "tool", "intent_id"];
        for (name, value) in names.into_iter().zip(self.subject.fields()) {
            map.serialize_entry(name, &value)?;
        }
        map.serialize_entry("payload", payload)?;
        map.serialize_entry("prev_hash", &self.prev_hash)?;
        map.serialize_entry("hash", &self.hash)?;
        map.end()
    }
}
