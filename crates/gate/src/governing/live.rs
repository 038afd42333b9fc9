//! The governor's state while it lives: with a clock, randomness, and a way to start again.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tollgate_contract::{Error, id::IntentId, text::hex};
use tollgate_governor::{Event, Fresh, Governor, Named, SteadyTime};
use tollgate_ledger::{Beside, LedgerError, NewEvent, Subject};

use super::IDENTITIES;
use crate::clock::{self, Clock};

/// How much randomness is fetched at a time.
const RANDOM: usize = 2048;

/// The state, and what belongs to it.
pub(crate) struct Live {
    pub(crate) governor: Governor,
    time: SteadyTime,
    /// Why nothing can be decided, if that is so.
    broken: Option<String>,
    random: Vec<u8>,
    hash_key: [u8; 32],
}

impl Live {
    pub(crate) fn new(governor: Governor, wall: i64, counted: i64, hash_key: [u8; 32]) -> Self {
        let time = SteadyTime::new(wall, counted, governor.now());
        Self { governor, time, broken: None, random: Vec::new(), hash_key }
    }

    pub(crate) fn read_time(&mut self, clock: &dyn Clock) -> i64 {
        self.time.read(clock.now_ms(), clock.counted_ms())
    }

    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Nothing is decided any more until the state was made again.
    pub(crate) fn breaks(&mut self, problem: &impl ToString) {
        let problem = problem.to_string();
        tracing::error!(problem, "the governor's state cannot be trusted; nothing is approved");
        self.broken = Some(problem);
    }

    /// Goes on with a state that was made from what is stored.
    pub(crate) fn starts_again(&mut self, governor: Governor) {
        self.governor = governor;
        self.broken = None;
    }

    /// What hashes in the chain are made with that nobody else should be able to make.
    pub(crate) fn hash_key(&self) -> &[u8; 32] {
        &self.hash_key
    }

    /// Random bytes, fetched many at a time.
    pub(crate) fn random<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        if self.random.len() < N {
            self.random = clock::random::<RANDOM>()?.to_vec();
        }
        let at = self.random.len() - N;
        let mut bytes = [0; N];
        for (to, from) in bytes.iter_mut().zip(self.random.drain(at..)) {
            *to = from;
        }
        Ok(bytes)
    }

    /// A name for an intent.
    pub(crate) fn intent_id(&mut self, now: i64) -> Result<IntentId, Error> {
        let random = self.random()?;
        Ok(IntentId::from_parts(u64::try_from(now).unwrap_or_default(), random))
    }

    /// What a credential is called from now on.
    pub(crate) fn fresh(&mut self, name: &str) -> Result<Fresh, Error> {
        let (pseudonym, salt): ([u8; 16], [u8; 16]) = (self.random()?, self.random()?);
        let salt = hex(&salt).to_string();
        Ok(Fresh {
            pseudonym: format!("idn_{}", hex(&pseudonym)).into(),
            name_hash: salted(&salt, name),
            salt,
        })
    }

    /// How a credential is called in events; one that is not known yet is named first.
    pub(crate) fn known_or_named(
        &mut self,
        name: &str,
        keyless: bool,
        now: i64,
    ) -> Result<Known, Error> {
        if let Some(known) = self.governor.identities().by_name(name) {
            return Ok((Arc::clone(&known.pseudonym), None, None));
        }
        let fresh = self.fresh(name)?;
        let named = Named {
            name: name.to_owned(),
            pseudonym: Arc::clone(&fresh.pseudonym),
            salt: fresh.salt.clone(),
            kind: None,
            group: None,
            metadata: None,
            since_ms: now,
        };
        let put = keep_name(&named)?;
        let event = self.governor.register(named, &fresh, keyless, now);
        Ok((fresh.pseudonym, Some(put), Some(event)))
    }
}

/// How a credential is called in events; and, if it was named just now, what keeps its name and what tells of it.
type Known = (Arc<str>, Option<Beside>, Option<Event>);

/// The hash of a text with its salt. Without the salt it says nothing.
pub(crate) fn salted(salt: &str, text: &str) -> Box<str> {
    let hash = Sha256::new().chain_update(salt).chain_update([0]).chain_update(text).finalize();
    hex(&hash).to_string().into()
}

/// Keeps the name of a credential beside the chain.
pub(crate) fn keep_name(named: &Named) -> Result<Beside, LedgerError> {
    let value = serde_json::to_vec(named)
        .map_err(|error| LedgerError::Event(format!("an identity is no JSON: {error}")))?;
    let key = named.name.clone().into_bytes();
    Ok(Beside::Put { space: IDENTITIES, key, value, expires_ms: None })
}

/// An event of the governor as it is recorded.
pub fn written(event: &Event) -> Result<NewEvent, LedgerError> {
    let subject = Subject {
        agent_id: event.about.agent.clone(),
        identity_id: event.about.identity.clone(),
        workload_id: event.about.workload.clone(),
        scope_id: event.about.scope.clone(),
        tool: None,
        intent_id: event.about.intent.map(|intent| intent.to_string().into()),
    };
    let payload = event
        .effect
        .payload()
        .map_err(|error| LedgerError::Event(format!("its payload is no JSON: {error}")))?;
    NewEvent::from_json(event.effect.kind(), event.ts, subject, payload)
}
