//! Sessions: a name that calls share, and that grants and workspaces hang on. A session belongs to the key that
//! used it first, so that nobody gets what another was granted by calling himself the same.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use serde_json::json;
use tollgate_contract::{
    Error, Quoted,
    error::{Conflict, InvalidRequest},
    event::Event,
    id::KeyId,
    redact::redact_text,
    text::Clean,
};
use tollgate_ledger::{Batch, Beside, NewEvent, Subject};

use crate::{Gate, Principal, consent::account, gate::Inner};

/// Where sessions are kept.
pub(crate) const SESSIONS: &str = "sessions";

/// How many are remembered without reading.
const MOST_REMEMBERED: usize = 10_000;

/// Whose sessions are whose, as far as it was looked up.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, KeyId>>);

impl Sessions {
    fn known(&self, session: &str) -> Option<KeyId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(session).copied()
    }

    fn remember(&self, session: &str, key: KeyId) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        known.insert(session.to_owned(), key);
    }
}

impl Inner {
    /// The key that a session belongs to; none if nobody has used it.
    pub(crate) fn owner_of(&self, session: &str) -> Result<Option<KeyId>, Error> {
        if let Some(key) = self.sessions.known(session) {
            return Ok(Some(key));
        }
        let kept = self.read(|reader| reader.kept(SESSIONS, session.as_bytes()))?;
        let key = kept.and_then(|kept| KeyId::parse(std::str::from_utf8(&kept.value).ok()?).ok());
        if let Some(key) = key {
            self.sessions.remember(session, key);
        }
        Ok(key)
    }

    /// Passes if the session is the caller's, which it becomes by its first use.
    pub(crate) async fn session(&self, by: &Principal, session: &str) -> Result<(), Error> {
        let (key, _) = account(by)?;
        if self.is_own(session, key)? {
            return Ok(());
        }
        // It is kept and shown as it is.
        if redact_text(session) != session {
            let problem = "the session's name looks like a secret; choose another";
            return Err(InvalidRequest::new(Clean::already(problem.to_owned()), Vec::new()).into());
        }
        // The name of a key stands for its calls outside of any session.
        if KeyId::parse(session).is_ok() {
            return Err(taken(session));
        }
        let _turn = self.changing.lock().await;
        if self.is_own(session, key)? {
            return Ok(());
        }
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
        self.sessions.remember(session, key);
        Ok(())
    }

    /// Is it the caller's? Not yet, if nobody has used it.
    fn is_own(&self, session: &str, key: KeyId) -> Result<bool, Error> {
        match self.owner_of(session)? {
            Some(owner) if owner == key => Ok(true),
            Some(_) => Err(taken(session)),
            None => Ok(false),
        }
    }
}

impl Gate {
    /// Does a session belong to this key?
    pub fn is_session_of(&self, session: &str, key: KeyId) -> bool {
        self.inner.owner_of(session).is_ok_and(|owner| owner == Some(key))
    }
}

fn taken(session: &str) -> Error {
    let session = Quoted::new(session);
    let problem = format!("the session {session} belongs to another key; choose another name");
    Conflict::new(Clean::already(problem)).into()
}
