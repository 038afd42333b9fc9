//! Starting: a snapshot, if there is a good one, and the events behind it.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::mpsc,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tollgate_contract::{Error, error::Internal, id::IntentId, text::hex};
use tollgate_governor::{About, Effect, Event, Governor, GovernorConfig, Named, Snapshot};
use tollgate_ledger::{Head, LedgerError, Reader, StoredEvent, step_back};

use super::IDENTITIES;
use crate::secret_file;

/// The snapshot's file in the data folder. It is a cache: without it a start takes longer.
const FILE: &str = "governor.snapshot";

/// Counted up by whoever changes what a snapshot means. Another format is not read.
const FORMAT: u32 = 2;

/// How many events are read at a time.
const AT_A_TIME: u64 = 2000;

/// A snapshot, and the event that it was taken behind.
#[derive(Serialize, Deserialize)]
pub(crate) struct Taken {
    format: u32,
    seq: u64,
    hash: String,
    state: Snapshot,
}

impl Taken {
    pub(crate) fn new(state: Snapshot, head: Head) -> Self {
        Self { format: FORMAT, seq: head.seq, hash: head.hash.to_string(), state }
    }

    /// The file's content: a checksum, and behind it what it is of. A snapshot that was damaged would be
    /// believed otherwise.
    fn written(&self) -> serde_json::Result<Vec<u8>> {
        let state = serde_json::to_vec(self)?;
        let mut bytes = format!("{}\n", checksum(&state)).into_bytes();
        bytes.extend(state);
        Ok(bytes)
    }

    /// Reads what is in the folder, if it is sound; else it is as if there were none, and it is said why.
    fn read(folder: &Path) -> Option<Self> {
        let bytes = match fs::read(folder.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(error) => return unused(&error),
        };
        let line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
        let (sum, state) = bytes.split_at_checked(line)?;
        let state = state.strip_prefix(b"\n").unwrap_or(state);
        if sum != checksum(state).as_bytes() {
            return unused(&"it is damaged, or of another version");
        }
        match serde_json::from_slice::<Self>(state) {
            Ok(taken) if taken.format == FORMAT => Some(taken),
            Ok(_) => unused(&"it is of another version"),
            Err(error) => unused(&error),
        }
    }

    /// Is the event that it was taken behind really in this ledger?
    fn is_of(&self, reader: &Reader) -> Result<bool, LedgerError> {
        let Some(before) = self.seq.checked_sub(1) else { return Ok(false) };
        let found = reader.tail(before, 1)?;
        Ok(found.first().is_some_and(|e| e.seq == self.seq && e.hash.to_string() == self.hash))
    }
}

fn checksum(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)).to_string()
}

fn unused<T>(problem: &dyn std::fmt::Display) -> Option<T> {
    tracing::warn!(%problem, "the governor's snapshot is not used; all events are read instead");
    None
}

/// What a checkpoint says of the governor.
#[derive(Deserialize)]
struct Checkpoint {
    state: CheckpointState,
}

#[derive(Deserialize)]
struct CheckpointState {
    governor: Snapshot,
}

/// A thread that writes snapshots, and ends when nobody can send it one any more.
pub(crate) fn writer(folder: &Path) -> mpsc::SyncSender<Taken> {
    let (send, receive) = mpsc::sync_channel::<Taken>(1);
    let file: PathBuf = folder.join(FILE);
    // Without the thread there are no snapshots, and starts take longer.
    let _ = std::thread::Builder::new().name("governor-snapshots".to_owned()).spawn(move || {
        step_back(19);
        for taken in receive {
            let written = taken.written().map_err(std::io::Error::other);
            if let Err(error) = written.and_then(|bytes| secret_file::write(&file, &bytes)) {
                tracing::warn!(%error, "a snapshot of the governor cannot be written");
            }
        }
    });
    send
}

/// The oldest state that is known, and the event behind which the others are: the beginning, or what retired
/// events have left behind. What credentials are called is known.
pub(crate) fn oldest(reader: &Reader) -> Result<(Governor, u64), Error> {
    let usual = GovernorConfig::usual();
    let setup = usual
        .build(0)
        .map_err(|error| Internal::new(format!("the usual pool does not load: {error}")))?;
    let mut governor = Governor::new(usual, setup, 0);
    for kept in reader.kept_all(IDENTITIES)? {
        match serde_json::from_slice::<Named>(&kept.value) {
            Ok(named) => governor.identities_mut().put(named),
            Err(error) => tracing::error!(%error, "the name of an identity cannot be read"),
        }
    }
    // Events that were retired left their sum behind.
    let mut after = 0;
    if let Some(checkpoint) = reader.last_checkpoint()? {
        let told: Checkpoint = serde_json::from_str(&checkpoint.payload).map_err(|error| {
            Internal::new(format!("checkpoint {} cannot be read: {error}", checkpoint.seq))
        })?;
        after = checkpoint.seq;
        governor.restore(told.state.governor);
    }
    Ok((governor, after))
}

/// The state that the recorded events lead to, and the event behind which they had to be read.
pub(crate) fn state(reader: &Reader, folder: &Path) -> Result<(Governor, u64), Error> {
    let (mut governor, mut after) = oldest(reader)?;
    match Taken::read(folder) {
        Some(taken) if taken.seq > after && taken.is_of(reader)? => {
            after = taken.seq;
            governor.restore(taken.state);
        }
        Some(taken) if taken.seq > after => {
            tracing::warn!("the governor's snapshot is of another ledger, and is not used");
        }
        _ => {}
    }
    let begun = after;
    loop {
        let events = reader.tail(after, AT_A_TIME)?;
        let Some(last) = events.last() else { return Ok((governor, begun)) };
        after = last.seq;
        events.iter().filter_map(read).for_each(|event| governor.apply(&event));
    }
}

/// Reads an event of the governor; `None` for all others.
pub(crate) fn read(stored: &StoredEvent) -> Option<Event> {
    let effect = match Effect::read(&stored.kind, &stored.payload)? {
        Ok(effect) => effect,
        Err(error) => {
            tracing::error!(seq = stored.seq, %error, "an event of the governor cannot be read");
            return None;
        }
    };
    let subject = &stored.subject;
    let about = About {
        agent: subject.agent_id.clone(),
        identity: subject.identity_id.clone(),
        workload: subject.workload_id.clone(),
        scope: subject.scope_id.clone(),
        intent: subject.intent_id.as_deref().and_then(|id| IntentId::parse(id).ok()),
    };
    Some(Event { ts: stored.ts_ms, about, effect })
}
