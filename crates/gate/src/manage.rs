//! Managing keys and policies. Every change is an event, and takes effect once it is stored.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tollgate_contract::{
    Error, KeyScope, Secret,
    error::{Conflict, Internal, InvalidRequest, NotFound, ScopeMissing},
    event::Event,
    id::KeyId,
    text::{Clean, hex, list},
};
use tollgate_ledger::{Batch, Beside, LedgerError, NewEvent, Reader, Subject};
use tollgate_policy::PolicySet;

use crate::{
    Gate, Principal, clock,
    consent::consent_left,
    gate::{Inner, KEYS, LAST_USE},
    keys::{KeyRecord, KeySpec, KeyText, PolicyRef, Role, SecretHash, TokenSpec, digest, label},
};

/// The most tokens of one key that live at a time.
const MOST_TOKENS: usize = 1000;
/// The most agents, and identities, that one key may claim.
const MOST_CLAIMS: usize = 100;
/// The most bytes of a policy that is written out.
const LARGEST_POLICY: usize = 16 * 1024;

/// Held while one change is made.
pub(crate) type Turn = tokio::sync::OwnedMutexGuard<()>;

impl Gate {
    /// Makes a key. This is the only moment at which it can be seen.
    pub async fn create_key(
        &self,
        by: Option<&Principal>,
        spec: KeySpec,
    ) -> Result<(KeyRecord, Secret), Error> {
        label("name", &spec.name)?;
        label("owner", &spec.owner)?;
        if spec.claims.agents.len().max(spec.claims.identities.len()) > MOST_CLAIMS {
            return Err(refuse(format!(
                "a key claims at most {MOST_CLAIMS} agents and identities"
            )));
        }
        for claimed in spec.claims.agents.iter().chain(&spec.claims.identities) {
            label("claim", claimed)?;
        }
        let mut scopes = spec.scopes;
        scopes.sort();
        scopes.dedup();
        if scopes.is_empty() {
            return Err(refuse(format!("a key needs a scope: {}", list(KeyScope::ALL))));
        }
        self.require_policy(&spec.policy)?;
        let now = self.inner.clock.now_ms();
        if spec.expires_ms.is_some_and(|end| end <= now) {
            return Err(refuse("the key would have expired already".to_owned()));
        }
        let (secret, hash) = new_secret(KeyText::Key, 1)?;
        let record = KeyRecord {
            key_id: self.new_id()?,
            name: spec.name,
            owner: spec.owner,
            scopes,
            policy: Some(spec.policy),
            claims: spec.claims,
            created_ms: now,
            expires_ms: spec.expires_ms,
            revoked_ms: None,
            parent: None,
            generation: 1,
            secrets: vec![hash],
        };
        let turn = self.turn().await;
        let by = self.who_may_make(by)?;
        self.store(turn, Event::KeyCreated, by, record.clone()).await?;
        Ok((record, secret))
    }

    /// Makes the key of the person who runs the gate, if there is none that may administer, or if `anew`.
    pub async fn ensure_admin(&self, anew: bool) -> Result<Option<(KeyRecord, Secret)>, Error> {
        let now = self.inner.clock.now_ms();
        let admin = self.inner.keys().admin(now);
        match admin {
            Some(id) if anew => self.rotate_key(None, id, 0).await.map(Some),
            Some(_) => Ok(None),
            None => self.create_key(None, KeySpec::for_role("admin", Role::Admin)).await.map(Some),
        }
    }

    /// Gives a key a new text. The old one counts for another `grace_ms`, and so do the tokens that were
    /// made with it.
    pub async fn rotate_key(
        &self,
        by: Option<&Principal>,
        id: KeyId,
        grace_ms: i64,
    ) -> Result<(KeyRecord, Secret), Error> {
        let turn = self.turn().await;
        let by = self.who_may_make(by)?;
        let mut record = self.active_key(id)?;
        if record.is_token() {
            return Err(refuse("a token is not made anew; make another".to_owned()));
        }
        let now = self.inner.clock.now_ms();
        let until = now + grace_ms.clamp(0, TokenSpec::LONGEST_MS);
        record.generation += 1;
        let (secret, hash) = new_secret(KeyText::Key, record.generation)?;
        for old in &mut record.secrets {
            old.until_ms = Some(old.until_ms.map_or(until, |earlier| earlier.min(until)));
        }
        record.secrets.retain(|old| old.until_ms.is_none_or(|end| end > now));
        record.secrets.push(hash);
        self.store(turn, Event::KeyCreated, by, record.clone()).await?;
        Ok((record, secret))
    }

    /// Withdraws a key, and with it every token that was made from it.
    pub async fn revoke_key(&self, by: Option<&Principal>, id: KeyId) -> Result<KeyRecord, Error> {
        let turn = self.turn().await;
        let by = self.who_may_change(by)?;
        let mut record = self.key(id)?;
        let now = self.inner.clock.now_ms();
        if record.revoked_ms.is_some() {
            return Ok(record);
        }
        let is_last_admin =
            record.may_administer(now) && !self.inner.keys().has_other_admin(id, now);
        if is_last_admin {
            let problem =
                "this is the last key that may administer; make another first, or rotate it";
            return Err(Conflict::new(Clean::already(problem.to_owned())).into());
        }
        record.revoked_ms = Some(now);
        self.store(turn, Event::KeyRevoked, by, record.clone()).await?;
        Ok(record)
    }

    /// Makes a short-lived token from the caller's own key. It can only narrow that key.
    pub async fn mint_token(
        &self,
        principal: &Principal,
        spec: TokenSpec,
    ) -> Result<(KeyRecord, Secret), Error> {
        let key = principal.require_key()?;
        if !principal.has_long_lived_key() {
            return Err(refuse("a token is made from a key, not from another token".to_owned()));
        }
        let scopes = spec.scopes.unwrap_or_else(|| key.scopes.clone());
        if let Some(beyond) = scopes.iter().find(|scope| !key.scopes.contains(scope)) {
            return Err(ScopeMissing::new(*beyond, key.scopes.clone()).into());
        }
        if scopes.is_empty() {
            return Err(refuse("a token needs at least one scope".to_owned()));
        }
        if let Some(policy) = &spec.policy {
            self.require_policy(policy)?;
        }
        if !(1..=TokenSpec::LONGEST_MS).contains(&spec.lives_ms) {
            let most = TokenSpec::LONGEST_MS / 1000;
            return Err(refuse(format!("a token lives from 1 to {most} seconds")));
        }
        let now = self.inner.clock.now_ms();
        let end = now + spec.lives_ms;
        let (secret, hash) = new_secret(KeyText::Token, principal.generation())?;
        let record = KeyRecord {
            key_id: self.new_id()?,
            name: key.name.clone(),
            owner: key.owner.clone(),
            scopes,
            policy: spec.policy,
            claims: key.claims.clone(),
            created_ms: now,
            expires_ms: Some(key.expires_ms.map_or(end, |own| own.min(end))),
            revoked_ms: None,
            parent: Some(key.key_id),
            // It counts as long as the text of the key that asks for it.
            generation: principal.generation(),
            secrets: vec![hash],
        };
        let turn = self.turn().await;
        self.again(principal).require_key()?;
        if self.inner.keys().live_tokens(key.key_id, now) >= MOST_TOKENS {
            let problem =
                format!("this key has {MOST_TOKENS} tokens that live; wait until some have ended");
            return Err(Conflict::new(Clean::already(problem)).into());
        }
        self.store(turn, Event::KeyCreated, Some(key.key_id), record.clone()).await?;
        Ok((record, secret))
    }

    /// Every key with its last use, tokens included.
    pub fn keys(&self) -> Vec<(KeyRecord, Option<i64>)> {
        self.inner.keys().list()
    }

    /// The key with this id and its last use, whatever its state.
    pub fn key_and_use(&self, id: KeyId) -> Result<(KeyRecord, Option<i64>), Error> {
        let found = self.inner.keys().get(id);
        found.ok_or_else(|| NotFound::new("key", id.to_string()).into())
    }

    /// The key with this id, whatever its state.
    pub fn key(&self, id: KeyId) -> Result<KeyRecord, Error> {
        self.key_and_use(id).map(|(record, _)| record)
    }

    fn active_key(&self, id: KeyId) -> Result<KeyRecord, Error> {
        let record = self.key(id)?;
        if record.is_active(self.inner.clock.now_ms()) {
            return Ok(record);
        }
        let problem = format!("{id} is withdrawn or has expired; make a new key");
        Err(Conflict::new(Clean::already(problem)).into())
    }

    /// Puts other policies in place of the running ones. They apply to the next call.
    pub async fn apply_policies(&self, policies: PolicySet) -> Result<(), Error> {
        let turn = self.turn().await;
        let now = self.inner.clock.now_ms();
        let event = NewEvent::new(Event::PolicyUpdated, now, Subject::default(), &policies)?;
        self.whole(turn, async move |inner| {
            inner.append(vec![event]).await?;
            inner.keys_mut().apply(&policies);
            *inner.policies.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policies);
            Ok(())
        })
        .await
    }

    /// The policies that apply.
    pub fn policies(&self) -> Arc<PolicySet> {
        self.inner.policies()
    }

    /// Names of policies that keys refer to and that are not there. Such keys may do nothing.
    pub fn missing_policies(&self) -> Vec<(String, String)> {
        let policies = self.inner.policies();
        let now = self.inner.clock.now_ms();
        let missing = |record: &KeyRecord| match &record.policy {
            Some(PolicyRef::Named(name)) if policies.named(name).is_none() => Some(name.clone()),
            _ => None,
        };
        self.keys()
            .into_iter()
            .filter(|(record, _)| record.is_active(now))
            .filter_map(|(record, _)| missing(&record).map(|policy| (record.name, policy)))
            .collect()
    }

    /// Does what is due from time to time: keeps the last uses, and forgets what is over.
    pub async fn housekeeping(&self) {
        self.keep_last_use().await;
        self.forget_consent().await;
        let now = self.inner.clock.now_ms();
        self.inner.keys_mut().forget_tokens(now);
        let ledger = self.inner.ledger.clone();
        let forgotten = tokio::task::spawn_blocking(move || ledger.forget_expired(now)).await;
        if let Ok(Err(error)) = forgotten {
            tracing::warn!(%error, "what has expired cannot be removed now");
        }
    }

    /// Retires events that are older than this: what they led to is summed up in a `checkpoint` event, which is
    /// chained as every event is, and then they are removed; nothing happens for fewer than `at_least`.
    /// Says how many go.
    pub async fn retire_before(&self, before_ms: i64, at_least: u64) -> Result<u64, Error> {
        // Keys change one after the other; none changes while they are summed up.
        let _turn = self.turn().await;
        let gate = self.clone();
        let retired =
            tokio::task::spawn_blocking(move || gate.retire_now(before_ms, at_least)).await;
        retired.unwrap_or_else(|_| Err(Internal::new("retiring events ended early").into()))
    }

    fn retire_now(&self, before_ms: i64, at_least: u64) -> Result<u64, Error> {
        let (first, through) = self.inner.read(|reader| {
            let first = reader.first_seq()?;
            Ok((first, last_before(reader, first, before_ms)?))
        })?;
        let Some(through) = through.filter(|through| through + 1 - first >= at_least) else {
            return Ok(0);
        };
        let keys = self.inner.read(told_keys)?;
        let keys = serde_json::to_string(&keys)
            .map_err(|error| Internal::new(format!("the keys are no JSON: {error}")))?;
        let governor = self.inner.governing.state_json();
        let consent = self.inner.read(consent_left)?;
        let state =
            move |_| format!(r#"{{"keys":{keys},"consent":{consent},"governor":{}}}"#, governor());
        self.inner.ledger.retire(self.inner.clock.now_ms(), through, state)?;
        Ok(through + 1 - first)
    }

    /// Keeps when each key was last used, in one write for all that were used since the last time.
    pub(crate) async fn keep_last_use(&self) {
        let used = self.inner.keys().newly_used();
        let put = |(id, at): &(KeyId, i64)| Beside::Put {
            space: LAST_USE,
            key: id.to_string().into_bytes(),
            value: at.to_le_bytes().to_vec(),
            expires_ms: None,
        };
        let beside: Vec<Beside> = used.iter().map(put).collect();
        if beside.is_empty() {
            return;
        }
        // It is a convenience: what cannot be written now is written the next time.
        if self.inner.append(Batch { events: Vec::new(), beside }).await.is_ok() {
            self.inner.keys().kept_use(&used);
        }
    }

    fn require_policy(&self, policy: &PolicyRef) -> Result<(), Error> {
        let PolicyRef::Named(name) = policy else {
            let size = serde_json::to_vec(policy).map_or(usize::MAX, |written| written.len());
            if size > LARGEST_POLICY {
                return Err(refuse(format!("a policy has at most {LARGEST_POLICY} bytes")));
            }
            return Ok(());
        };
        let policies = self.inner.policies();
        if policies.named(name).is_some() {
            return Ok(());
        }
        let known = list(policies.names());
        let problem = format!(
            "there is no policy {}; there is {known}",
            tollgate_contract::Quoted::new(name)
        );
        Err(refuse(problem))
    }

    fn new_id(&self) -> Result<KeyId, Error> {
        let at = u64::try_from(self.inner.clock.now_ms()).unwrap_or_default();
        Ok(KeyId::from_parts(at, clock::random()?))
    }

    /// Writes the change of a key, and then lets it count.
    async fn store(
        &self,
        turn: Turn,
        event: Event,
        by: Option<KeyId>,
        record: KeyRecord,
    ) -> Result<(), Error> {
        let now = self.inner.clock.now_ms();
        let kept = serde_json::to_vec(&record).unwrap_or_default();
        let mut payload = serde_json::to_value(&record).unwrap_or_default();
        if let Some(payload) = payload.as_object_mut() {
            // Whoever reads events has no use for the hashes of keys.
            payload.remove("secrets");
            payload.insert("by".to_owned(), by.map_or(Value::Null, |id| json!(id)));
            let change = match (event, record.parent) {
                (Event::KeyRevoked, _) => "revoked",
                (_, Some(_)) => "token",
                (_, None) if record.generation > 1 => "rotated",
                (_, None) => "created",
            };
            payload.insert("change".to_owned(), change.into());
            payload.insert("record".to_owned(), record_hash(&kept).into());
        }
        let events = vec![NewEvent::new(event, now, Subject::default(), &payload)?];
        let kept = Beside::Put {
            space: KEYS,
            key: record.key_id.to_string().into_bytes(),
            value: kept,
            // A token that is over needs no memory; a key's stays, so that whoever uses it learns why.
            expires_ms: record.expires_ms.filter(|_| record.is_token()),
        };
        let batch = Batch { events, beside: vec![kept] };
        self.whole(turn, async move |inner| {
            inner.append(batch).await?;
            let policies = inner.policies();
            inner.keys_mut().put(record, &policies);
            Ok(())
        })
        .await
    }

    /// The caller as it counts now: a request may have waited while its key was withdrawn.
    pub fn again(&self, principal: &Principal) -> Principal {
        let now = self.inner.clock.now_ms();
        self.inner.keys().again(principal, now)
    }

    /// Passes if whoever asks may change keys at this moment. The gate itself may.
    fn who_may_change(&self, by: Option<&Principal>) -> Result<Option<KeyId>, Error> {
        let Some(by) = by else { return Ok(None) };
        Ok(Some(self.again(by).require(KeyScope::Admin)?.key_id))
    }

    /// Passes if whoever asks may make keys. A token may not: it would outlive itself.
    fn who_may_make(&self, by: Option<&Principal>) -> Result<Option<KeyId>, Error> {
        let id = self.who_may_change(by)?;
        if by.is_some_and(|by| !by.has_long_lived_key()) {
            return Err(refuse("a key is made with a key, not with a token".to_owned()));
        }
        Ok(id)
    }

    /// Waits until no other change is being made.
    pub(crate) async fn turn(&self) -> Turn {
        Arc::clone(&self.inner.changing).lock_owned().await
    }

    /// Makes a change to its end, even if whoever asked for it goes away: what is recorded counts, and the
    /// next change sees it.
    pub(crate) async fn whole<F>(
        &self,
        turn: Turn,
        change: impl FnOnce(Arc<Inner>) -> F,
    ) -> Result<(), Error>
    where
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let change = change(Arc::clone(&self.inner));
        let task = self.inner.tasks.spawn(async move {
            let changed = change.await;
            drop(turn);
            changed
        });
        task.await.unwrap_or_else(|_| Err(Internal::new("a change ended early").into()))
    }
}

impl Default for TokenSpec {
    fn default() -> Self {
        Self { scopes: None, policy: None, lives_ms: Self::USUAL_MS }
    }
}

impl KeySpec {
    /// A key for a purpose.
    pub fn for_role(name: impl Into<String>, role: Role) -> Self {
        Self {
            name: name.into(),
            owner: "local".to_owned(),
            scopes: role.scopes(),
            policy: role.policy(),
            claims: role.claims(),
            expires_ms: None,
        }
    }
}

/// The last of the events before a time, found by halving: times do not go back in a ledger, or only so little
/// that it does not matter here. The newest events stay.
fn last_before(reader: &Reader, first: u64, before_ms: i64) -> Result<Option<u64>, LedgerError> {
    let head = reader.head()?.seq;
    let is_old = |seq: u64| -> Result<bool, LedgerError> {
        let found = reader.tail(seq - 1, 1)?;
        Ok(found.first().is_some_and(|event| event.ts_ms < before_ms))
    };
    let (mut old, mut new) = (first.saturating_sub(1), head);
    while new > old + 1 {
        let middle = old + (new - old) / 2;
        if is_old(middle)? { old = middle } else { new = middle }
    }
    Ok((old >= first && old < head).then_some(old))
}

/// What binds the record of a key, which lies beside the chain, to the chain.
fn record_hash(kept: &[u8]) -> String {
    hex(&Sha256::digest(kept)).to_string()
}

/// Holds the keys that are kept beside the chain against the events that made them so, and tells every
/// difference. Somebody who can write the database could give himself a key; the chain would not show it.
pub fn check_keys(reader: &Reader) -> Result<Vec<String>, LedgerError> {
    reader.at_once(|reader| {
        let mut told = told_keys(reader)?;
        let mut problems = Vec::new();
        for kept in reader.kept_all(KEYS)? {
            let id = String::from_utf8_lossy(&kept.key).into_owned();
            match told.remove(&id) {
                None => problems.push(format!("{id} is in use and was never made")),
                Some(told) if told.record != record_hash(&kept.value) => {
                    problems.push(format!("{id} is not what its last event says"));
                }
                Some(told) if told.is_long_lived && kept.expires_ms.is_some() => {
                    problems.push(format!("{id} would be forgotten"));
                }
                Some(_) => {}
            }
        }
        // Tokens are forgotten when they are over; keys never are.
        let gone = told.into_iter().filter(|(_, told)| told.is_long_lived);
        problems.extend(gone.map(|(id, _)| format!("{id} was made and is gone")));
        Ok(problems)
    })
}

/// What the last event about a key says.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToldKey {
    record: String,
    is_long_lived: bool,
}

#[derive(serde::Deserialize)]
struct CheckpointKeys {
    state: KeysLeft,
}

#[derive(serde::Deserialize)]
struct KeysLeft {
    keys: BTreeMap<String, ToldKey>,
}

fn told_keys(reader: &Reader) -> Result<BTreeMap<String, ToldKey>, LedgerError> {
    // Events that were retired left behind what they say of the keys.
    let mut told = BTreeMap::new();
    let mut at = 0;
    if let Some(checkpoint) = reader.last_checkpoint()? {
        let left: CheckpointKeys = serde_json::from_str(&checkpoint.payload).map_err(|error| {
            LedgerError::Damaged(format!("checkpoint {} cannot be read: {error}", checkpoint.seq))
        })?;
        told = left.state.keys;
        at = checkpoint.seq;
    }
    loop {
        let events = reader.tail(at, 1000)?;
        let Some(last) = events.last() else { return Ok(told) };
        at = last.seq;
        for event in events.iter().filter(|event| event.kind.starts_with("key_")) {
            let payload: Value = serde_json::from_str(&event.payload).unwrap_or_default();
            let word = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
            if let (Some(id), Some(record)) = (word("keyId"), word("record")) {
                let is_long_lived = word("parent").is_none();
                told.insert(id, ToldKey { record, is_long_lived });
            }
        }
    }
}

fn new_secret(kind: KeyText, generation: u32) -> Result<(Secret, SecretHash), Error> {
    let secret = kind.make()?;
    let sha256 = hex(&digest(&secret)).to_string();
    Ok((secret, SecretHash { sha256, generation, until_ms: None }))
}

fn refuse(problem: String) -> Error {
    InvalidRequest::new(Clean::already(problem), Vec::new()).into()
}
