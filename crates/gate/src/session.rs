//! Sessions: a name that calls share, and that grants and workspaces hang on. A session belongs to the key that
//! used it first, so that nobody gets what another was granted by calling himself the same.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::json;
use tollgate_contract::{
    Error, Quoted,
    error::{Conflict, Internal, InvalidRequest},
    event::Event,
    id::KeyId,
    redact::redact_text,
    text::{Clean, is_plain},
};
use tollgate_ledger::{Batch, Beside, NewEvent, Reader, Subject};

use crate::{Gate, Principal, admit::LONGEST_LABEL, consent::account, gate::Inner};

/// Where sessions are kept.
pub(crate) const SESSIONS: &str = "sessions";

/// The most sessions of a gate, and of one key. Each has a name that is kept, files, and a line in every checkpoint.
const MOST: usize = 50_000;
const MOST_OF_ONE: usize = 10_000;

/// Whose sessions are whose.
pub(crate) struct Sessions(Mutex<HashMap<String, KeyId>>);

impl Sessions {
    /// Reads what is kept. A record that cannot be read would make a session nobody's.
    pub(crate) fn read(reader: &Reader) -> Result<Self, Error> {
        let mut known = HashMap::new();
        for kept in reader.kept_all(SESSIONS)? {
            let key = std::str::from_utf8(&kept.value).ok().and_then(|id| KeyId::parse(id).ok());
            let session = String::from_utf8(kept.key).ok();
            let (Some(session), Some(key)) = (session, key) else {
                return Err(Internal::new("the record of a session cannot be read").into());
            };
            known.insert(session, key);
        }
        Ok(Self(Mutex::new(known)))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, KeyId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes if this can be the name of a session: short, plain, and no secret. It is kept and shown as it is.
pub(crate) fn check_session(session: &str) -> Result<(), Error> {
    let length = session.chars().count();
    if !(1..=LONGEST_LABEL).contains(&length) || !session.chars().all(is_plain) {
        let problem = format!(
            "`session` has 1 to {LONGEST_LABEL} characters, none that a terminal would act on"
        );
        return Err(InvalidRequest::new(Clean::already(problem), Vec::new()).into());
    }
    if redact_text(session) != session {
        let problem = "the session's name looks like a secret; choose another";
        return Err(InvalidRequest::new(Clean::already(problem.to_owned()), Vec::new()).into());
    }
    Ok(())
}

impl Inner {
    /// The key that a session belongs to; none if nobody has used it.
    pub(crate) fn owner_of(&self, session: &str) -> Option<KeyId> {
        self.sessions.known().get(session).copied()
    }

    /// Passes if the session is the caller's, which it becomes by its first use.
    pub(crate) async fn session(&self, by: &Principal, session: &str) -> Result<(), Error> {
        let (key, _) = account(by)?;
        if self.is_own(session, key)? {
            return Ok(());
        }
        check_session(session)?;
        // The name of a key stands for its calls outside of any session.
        if KeyId::parse(session).is_ok() {
            return Err(taken(session));
        }
        let _turn = self.changing.lock().await;
        if self.is_own(session, key)? {
            return Ok(());
        }
        self.has_room(key)?;
        let now = self.clock.now_ms();
        let payload = json!({"session": session, "keyId": key});
        let event = NewEvent::new(Event::SessionOpened, now, Subject::default(), &payload)?;
        let put = Beside::Put {
            space: SESSIONS,
            key: session.as_bytes().to_vec(),
            value: key.to_string().into_bytes(),
            expires_ms: None,
        };
        self.append(Batch { events: vec![event], beside: vec![put] }).await?;
        self.sessions.known().insert(session.to_owned(), key);
        Ok(())
    }

    /// Records what an operator did to a session.
    pub(crate) async fn session_changed(
        &self,
        by: &Principal,
        session: &str,
        what: &str,
        details: serde_json::Value,
    ) -> Result<(), Error> {
        let (key, _) = account(by)?;
        let payload = json!({"session": session, "keyId": key, "what": what, "details": details});
        let now = self.clock.now_ms();
        let event = NewEvent::new(Event::SessionChanged, now, Subject::default(), &payload)?;
        self.append(Batch { events: vec![event], beside: Vec::new() }).await?;
        Ok(())
    }

    /// Is it the caller's? Not yet, if nobody has used it.
    fn is_own(&self, session: &str, key: KeyId) -> Result<bool, Error> {
        match self.owner_of(session) {
            Some(owner) if owner == key => Ok(true),
            Some(_) => Err(taken(session)),
            None => Ok(false),
        }
    }

    fn has_room(&self, key: KeyId) -> Result<(), Error> {
        let known = self.sessions.known();
        let own = known.values().filter(|owner| **owner == key).count();
        if known.len() < MOST && own < MOST_OF_ONE {
            return Ok(());
        }
        let problem = format!(
            "this key has {own} sessions, and there are {} in all; go on in one of them",
            known.len()
        );
        Err(Conflict::new(Clean::already(problem)).into())
    }
}

impl Gate {
    /// The key that a session belongs to; none if nobody has used it.
    pub fn session_owner(&self, session: &str) -> Option<KeyId> {
        self.inner.owner_of(session)
    }

    /// Does a session belong to this key?
    pub fn is_session_of(&self, session: &str, key: KeyId) -> bool {
        self.inner.owner_of(session) == Some(key)
    }
}

fn taken(session: &str) -> Error {
    let session = Quoted::new(session);
    let problem = format!("the session {session} belongs to another key; choose another name");
    Conflict::new(Clean::already(problem)).into()
}
