//! At most once: what is remembered of a call that came with an Idempotency-Key.
//!
//! The memory of a key is written beside the chain, in the same commit as the start and the end of its
//! call, and holds nothing that can be read: the key and the raw input as keyed hashes, the result sealed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tollgate_contract::{
    Error, ToolName, canonical,
    error::{Conflict, ErrorObject, InvalidRequest},
    id::{CallId, KeyId, RunId},
    text::Clean,
};
use tollgate_ledger::Beside;

use crate::{outcome::WrittenVerdict, seal::Seal};

/// Where it is kept.
pub(crate) const SPACE: &str = "idempotency";

/// How long a result is kept.
pub(crate) const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// The most bytes of a result that are kept.
const LARGEST_KEPT: usize = 8 * 1024 * 1024;

/// The longest key that a caller may choose.
const LONGEST: usize = 255;

/// What a call is remembered by: its caller, its tool and the caller's own key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name([u8; 32]);

/// What is remembered.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Memory {
    pub(crate) call: CallId,
    pub(crate) run: RunId,
    /// The keyed hash of the raw input.
    input: [u8; 32],
    /// What came of it, sealed; `None` while nothing has.
    ended: Option<Vec<u8>>,
}

/// What came of a call, as it is told again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Ended {
    Output { output: Value, verdict: WrittenVerdict, duration_ms: u64 },
    Failed { error: ErrorObject, verdict: WrittenVerdict },
}

/// One claim on a name: whoever holds it is the only one who may run the call.
pub(crate) struct Claim {
    pub(crate) name: Name,
    input: [u8; 32],
}

impl Claim {
    /// The claim that a call makes with the key `text`.
    pub(crate) fn new(
        seal: &Seal,
        caller: Option<KeyId>,
        tool: &ToolName,
        text: &str,
        input: &Value,
    ) -> Result<Self, Error> {
        check_key(text)?;
        let caller = caller.map(|id| id.to_string()).unwrap_or_default();
        let parts = [b"idempotency", caller.as_bytes(), tool.as_str().as_bytes(), text.as_bytes()];
        let parts: Vec<&[u8]> = parts.iter().map(AsRef::as_ref).collect();
        // The input was accepted before this, so it has a canonical form.
        let canonical = canonical::canonical(input).unwrap_or_default();
        Ok(Self {
            name: Name(seal.hash(&parts)),
            input: seal.hash(&[b"input", canonical.as_bytes()]),
        })
    }

    /// Is the remembered call the same call?
    pub(crate) fn is_same_input(&self, memory: &Memory) -> bool {
        self.input == memory.input
    }

    /// What to remember while the call runs.
    pub(crate) fn started(&self, call: CallId, run: RunId, now_ms: i64) -> Beside {
        self.put(&Memory { call, run, input: self.input, ended: None }, now_ms)
    }

    /// What to remember once it has ended.
    pub(crate) fn ended(
        &self,
        seal: &Seal,
        (call, run): (CallId, RunId),
        ended: &Ended,
        now_ms: i64,
    ) -> Result<Beside, Error> {
        let mut bytes = serde_json::to_vec(ended).unwrap_or_default();
        if bytes.len() > LARGEST_KEPT {
            let problem = "the first call was completed, and its result was too large to be kept";
            let error = Error::from(Conflict::new(Clean::already(problem.to_owned()))).object(None);
            let (Ended::Output { verdict, .. } | Ended::Failed { verdict, .. }) = ended;
            let too_large = Ended::Failed { error, verdict: verdict.clone() };
            bytes = serde_json::to_vec(&too_large).unwrap_or_default();
        }
        let sealed = seal.seal(&self.name.0, &bytes)?;
        Ok(self.put(&Memory { call, run, input: self.input, ended: Some(sealed) }, now_ms))
    }

    fn put(&self, memory: &Memory, now_ms: i64) -> Beside {
        Beside::Put {
            space: SPACE,
            key: self.name.0.to_vec(),
            value: memory.written(),
            expires_ms: Some(now_ms + KEPT_MS),
        }
    }
}

/// Passes if a caller may choose this Idempotency-Key.
pub(crate) fn check_key(text: &str) -> Result<(), Error> {
    let is_plain = text.bytes().all(|b| (0x20..0x7f).contains(&b));
    if is_plain && (1..=LONGEST).contains(&text.len()) {
        return Ok(());
    }
    let problem = format!("an Idempotency-Key has 1 to {LONGEST} visible ASCII characters");
    Err(InvalidRequest::new(Clean::already(problem), Vec::new()).into())
}

impl Name {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Memory {
    /// Both ids on a line, the hash of the input, and what is sealed.
    fn written(&self) -> Vec<u8> {
        let ids = format!("{} {}\n", self.call, self.run);
        [ids.as_bytes(), &self.input, self.ended.as_deref().unwrap_or_default()].concat()
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (ids, rest) = bytes.split_at_checked(end)?;
        let (call, run) = std::str::from_utf8(ids).ok()?.split_once(' ')?;
        let (input, sealed) = rest.get(1..)?.split_at_checked(32)?;
        Some(Self {
            call: CallId::parse(call).ok()?,
            run: RunId::parse(run).ok()?,
            input: input.try_into().ok()?,
            ended: (!sealed.is_empty()).then(|| sealed.to_vec()),
        })
    }

    /// What came of it; `None` if nothing did, or it cannot be opened any more.
    pub(crate) fn outcome(&self, seal: &Seal, name: Name) -> Option<Ended> {
        let bytes = seal.open(&name.0, self.ended.as_deref()?)?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// The names whose calls run now, in this process.
#[derive(Default)]
pub(crate) struct Running(Mutex<HashMap<Name, watch::Receiver<()>>>);

/// Held while a call with a name runs. When it is dropped, whoever waits looks again.
pub(crate) struct Turn {
    running: Arc<Running>,
    name: Name,
    _done: watch::Sender<()>,
}

impl Running {
    /// Takes the name, or waits for its holder to finish.
    pub(crate) fn take(self: &Arc<Self>, name: Name) -> Result<Turn, watch::Receiver<()>> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = running.get(&name) {
            return Err(holder.clone());
        }
        let (done, waiting) = watch::channel(());
        running.insert(name, waiting);
        Ok(Turn { running: Arc::clone(self), name, _done: done })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.running.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}
