//! The keys of a gate, in memory.

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicI64, Ordering},
    },
};

use subtle::ConstantTimeEq;
use tollgate_contract::{
    Error, Identity, InvalidKey, KeyFacts, KeyScope, Secret, Urgency,
    error::{InvalidApiKey, MissingApiKey, ScopeMissing},
    id::KeyId,
    text::hex,
};
use tollgate_governor::Asker;
use tollgate_policy::{Layers, Policy, PolicySet};

use super::{
    KeyText, digest,
    record::{Claims, KeyRecord, PolicyRef},
};

/// A caller whose key was looked up: who it is, and which policies apply. Only the gate makes one.
#[derive(Debug, Clone)]
pub struct Principal(Who);

#[derive(Debug, Clone)]
enum Who {
    Anonymous,
    Invalid(InvalidKey),
    /// A key, and the generation of the text that was presented.
    Key(Arc<Held>, u32),
}

/// A key in the ring.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) record: KeyRecord,
    facts: Arc<KeyFacts>,
    layers: Arc<Layers>,
    /// Who it is for the governor: what its holder may claim, and what the gate itself asks for it.
    askers: (Arc<Asker>, Arc<Asker>),
    last_used_ms: AtomicI64,
    /// The last use that is on disk.
    kept_use_ms: AtomicI64,
}

impl Held {
    fn shown(&self) -> (KeyRecord, Option<i64>) {
        let used = self.last_used_ms.load(Ordering::Relaxed);
        (self.record.clone(), (used > 0).then_some(used))
    }
}

impl Principal {
    /// A caller without a key.
    pub(crate) const ANONYMOUS: Self = Self(Who::Anonymous);

    /// A caller whose key does not count.
    pub(crate) fn invalid(why: InvalidKey) -> Self {
        Self(Who::Invalid(why))
    }

    /// Was a key presented that does not count?
    pub fn is_invalid(&self) -> bool {
        matches!(self.0, Who::Invalid(_))
    }

    /// Who it is for the governor.
    pub fn asker(&self) -> Arc<Asker> {
        self.held().map_or_else(|| Arc::clone(&LOCAL), |held| Arc::clone(&held.askers.0))
    }

    /// Who it is when the gate asks for one of its calls: the gate says the truth about who calls.
    pub(crate) fn gate_asker(&self) -> Arc<Asker> {
        self.held().map_or_else(|| Arc::clone(&LOCAL), |held| Arc::clone(&held.askers.1))
    }

    /// Who it is, as the policy sees it.
    pub fn identity(&self) -> Identity {
        match &self.0 {
            Who::Anonymous => Identity::Anonymous,
            Who::Invalid(why) => Identity::Invalid(*why),
            Who::Key(held, generation) => {
                Identity::Key(KeyFacts { generation: *generation, ..held.facts.as_ref().clone() })
            }
        }
    }

    /// What is known of its key.
    pub fn key(&self) -> Option<&Arc<KeyFacts>> {
        self.held().map(|held| &held.facts)
    }

    /// The record of its key.
    pub fn record(&self) -> Option<&KeyRecord> {
        self.held().map(|held| &held.record)
    }

    /// The policies of its key, the server's included.
    pub fn layers(&self) -> Option<&Layers> {
        self.held().map(|held| held.layers.as_ref())
    }

    /// Is it a long-lived key, which no page may send?
    pub fn has_long_lived_key(&self) -> bool {
        self.held().is_some_and(|held| !held.record.is_token())
    }

    /// The generation of the text that was presented.
    pub(crate) fn generation(&self) -> u32 {
        match &self.0 {
            Who::Key(_, generation) => *generation,
            _ => 0,
        }
    }

    /// Who its holder may say to be.
    pub fn claims(&self) -> Option<&Claims> {
        self.held().map(|held| &held.record.claims)
    }

    /// The key that it counts as: a token is its key.
    pub fn account(&self) -> Option<KeyId> {
        self.record().map(KeyRecord::account)
    }

    /// Passes if it has a key that counts, whatever it is for.
    pub fn require_key(&self) -> Result<&KeyRecord, Error> {
        match &self.0 {
            Who::Anonymous => Err(MissingApiKey::new(None).into()),
            Who::Invalid(why) => Err(InvalidApiKey::new(*why).into()),
            Who::Key(held, _) => Ok(&held.record),
        }
    }

    /// Passes if its key is for `needed`.
    pub fn require(&self, needed: KeyScope) -> Result<&KeyRecord, Error> {
        let key = self.require_key()?;
        if key.scopes.contains(&needed) {
            return Ok(key);
        }
        Err(ScopeMissing::new(needed, key.scopes.clone()).into())
    }

    fn held(&self) -> Option<&Held> {
        match &self.0 {
            Who::Key(held, _) => Some(held),
            _ => None,
        }
    }
}

/// Whoever asks without a key.
static LOCAL: LazyLock<Arc<Asker>> = LazyLock::new(|| Arc::new(Asker::local()));

/// Who the holder of a key is for the governor, and who the gate is when it asks for it.
fn askers(record: &KeyRecord) -> (Arc<Asker>, Arc<Asker>) {
    // Nobody with a key is taken for those without one.
    let account = match record.owner.as_str() {
        tollgate_governor::LOCAL => "key:local",
        owner => owner,
    };
    let claims = &record.claims;
    let own = Asker {
        account: account.into(),
        key: record.account().to_string().into(),
        is_keyless: false,
        agents: claims.agents.clone().into(),
        identities: claims.identities.clone().into(),
        max_urgency: claims.max_urgency,
        is_vouched: claims.max_urgency == Urgency::High,
    };
    let anyone: Arc<[String]> = Arc::new(["*".to_owned()]);
    let gate = Asker { agents: Arc::clone(&anyone), identities: anyone, ..own.clone() };
    (Arc::new(own), Arc::new(gate))
}

/// Every key, by what it is found by.
#[derive(Debug, Default)]
pub(crate) struct KeyRing {
    by_id: HashMap<KeyId, Arc<Held>>,
    by_hash: HashMap<[u8; 32], KeyId>,
}

impl KeyRing {
    /// The caller that presents this text.
    pub(crate) fn identify(&self, presented: Option<&Secret>, now_ms: i64) -> Principal {
        let Some(presented) = presented else { return Principal::ANONYMOUS };
        if KeyText::of(presented.expose()).is_none() {
            return Principal(Who::Invalid(InvalidKey::Malformed));
        }
        let hash = digest(presented);
        let unknown = Principal(Who::Invalid(InvalidKey::Unknown));
        let Some(held) = self.by_hash.get(&hash).and_then(|id| self.by_id.get(id)) else {
            return unknown;
        };
        // The map's own comparison is not made for secrets; what decides is this one.
        let text = hex(&hash).to_string();
        let is_this = |known: &str| bool::from(known.as_bytes().ct_eq(text.as_bytes()));
        match held.record.secrets.iter().find(|secret| is_this(&secret.sha256)) {
            None => unknown,
            Some(secret) if secret.until_ms.is_some_and(|until| until <= now_ms) => {
                Principal(Who::Invalid(InvalidKey::Revoked))
            }
            Some(secret) => self.principal(held, secret.generation, now_ms),
        }
    }

    /// The caller who presented this text of the key with this id, as it counts now.
    pub(crate) fn by_id(&self, id: KeyId, generation: u32, now_ms: i64) -> Principal {
        match self.by_id.get(&id) {
            // A text that was replaced meanwhile does not count, although its key does.
            Some(held) if !held.record.has_generation(generation, now_ms) => {
                Principal(Who::Invalid(InvalidKey::Revoked))
            }
            Some(held) => self.principal(held, generation, now_ms),
            None => Principal(Who::Invalid(InvalidKey::Unknown)),
        }
    }

    /// The same caller, as it counts now.
    pub(crate) fn again(&self, principal: &Principal, now_ms: i64) -> Principal {
        match &principal.0 {
            Who::Key(held, generation) => self.by_id(held.record.key_id, *generation, now_ms),
            _ => principal.clone(),
        }
    }

    fn principal(&self, held: &Arc<Held>, generation: u32, now_ms: i64) -> Principal {
        let parent = held.record.parent.map(|id| self.by_id.get(&id).map(|parent| &parent.record));
        let why = match (&held.record, parent) {
            (own, _) if own.revoked_ms.is_some() => Some(InvalidKey::Revoked),
            (own, _) if own.is_expired(now_ms) => Some(InvalidKey::Expired),
            // A token lives no longer than its key.
            (_, Some(None)) => Some(InvalidKey::Revoked),
            (_, Some(Some(parent))) if !parent.is_active(now_ms) => Some(InvalidKey::Revoked),
            // Nor longer than the text of its key that it was made with.
            (own, Some(Some(parent))) if !parent.has_generation(own.generation, now_ms) => {
                Some(InvalidKey::Revoked)
            }
            _ => None,
        };
        if let Some(why) = why {
            return Principal(Who::Invalid(why));
        }
        held.last_used_ms.fetch_max(now_ms, Ordering::Relaxed);
        Principal(Who::Key(Arc::clone(held), generation))
    }

    /// Puts a key into the ring, in place of an earlier record of it.
    pub(crate) fn put(&mut self, record: KeyRecord, policies: &PolicySet) {
        let id = record.key_id;
        let before = self.by_id.get(&id);
        let last_used = before.map_or(0, |held| held.last_used_ms.load(Ordering::Relaxed));
        for secret in before.into_iter().flat_map(|held| &held.record.secrets) {
            if let Some(hash) = bytes(&secret.sha256) {
                self.by_hash.remove(&hash);
            }
        }
        for hash in record.secrets.iter().filter_map(|secret| bytes(&secret.sha256)) {
            self.by_hash.insert(hash, id);
        }
        let held = self.held(record, policies, last_used);
        self.by_id.insert(id, Arc::new(held));
    }

    fn held(&self, record: KeyRecord, policies: &PolicySet, last_used_ms: i64) -> Held {
        let facts = Arc::new(KeyFacts {
            id: record.key_id,
            name: record.name.clone(),
            owner: record.owner.clone(),
            scopes: record.scopes.clone(),
            generation: record.generation,
        });
        let server = Layers::of_server(policies.server.clone());
        let layers = match record.parent {
            None => server.with_key(policy(record.policy.as_ref(), policies)),
            Some(parent) => {
                let of_parent =
                    self.by_id.get(&parent).and_then(|held| held.record.policy.as_ref());
                let layers = server.with_key(policy(of_parent, policies));
                match policy(record.policy.as_ref(), policies) {
                    Some(narrower) => layers.with_session(narrower),
                    None => layers,
                }
            }
        };
        let (last_used_ms, kept_use_ms) = (AtomicI64::new(last_used_ms), AtomicI64::new(0));
        let askers = askers(&record);
        Held { record, facts, layers: Arc::new(layers), askers, last_used_ms, kept_use_ms }
    }

    /// Reads every key's policy again.
    pub(crate) fn apply(&mut self, policies: &PolicySet) {
        // Keys before their tokens, whose layers are made from them.
        let mut all: Vec<Arc<Held>> = self.by_id.values().cloned().collect();
        all.sort_by_key(|held| held.record.is_token());
        for held in all {
            let last_used = held.last_used_ms.load(Ordering::Relaxed);
            let anew = self.held(held.record.clone(), policies, last_used);
            self.by_id.insert(held.record.key_id, Arc::new(anew));
        }
    }

    /// A key and its last use.
    pub(crate) fn get(&self, id: KeyId) -> Option<(KeyRecord, Option<i64>)> {
        self.by_id.get(&id).map(|held| held.shown())
    }

    /// Every key with its last use, the oldest first.
    pub(crate) fn list(&self) -> Vec<(KeyRecord, Option<i64>)> {
        let mut all: Vec<_> = self.by_id.values().map(|held| held.shown()).collect();
        all.sort_by_key(|(record, _)| (record.created_ms, record.key_id));
        all
    }

    /// How many tokens of a key live.
    pub(crate) fn live_tokens(&self, key: KeyId, now_ms: i64) -> usize {
        let of_key = |held: &&Arc<Held>| held.record.parent == Some(key);
        self.by_id.values().filter(of_key).filter(|held| held.record.is_active(now_ms)).count()
    }

    /// Notes a use that was known before this start.
    pub(crate) fn set_last_used(&self, id: KeyId, at_ms: i64) {
        if let Some(held) = self.by_id.get(&id) {
            held.last_used_ms.fetch_max(at_ms, Ordering::Relaxed);
            held.kept_use_ms.fetch_max(at_ms, Ordering::Relaxed);
        }
    }

    /// The keys that were used since their last use was kept.
    pub(crate) fn newly_used(&self) -> Vec<(KeyId, i64)> {
        let keys = self.by_id.values().filter(|held| !held.record.is_token());
        keys.filter_map(|held| {
            let used = held.last_used_ms.load(Ordering::Relaxed);
            (used > held.kept_use_ms.load(Ordering::Relaxed)).then_some((held.record.key_id, used))
        })
        .collect()
    }

    /// Notes that these uses are on disk.
    pub(crate) fn kept_use(&self, used: &[(KeyId, i64)]) {
        for (id, at_ms) in used {
            if let Some(held) = self.by_id.get(id) {
                held.kept_use_ms.fetch_max(*at_ms, Ordering::Relaxed);
            }
        }
    }

    /// Takes out tokens that are over. Keys stay: whoever uses an old one is told why.
    pub(crate) fn forget_tokens(&mut self, now_ms: i64) {
        let over: Vec<KeyId> = self
            .by_id
            .values()
            .filter(|held| held.record.is_token() && held.record.is_expired(now_ms))
            .map(|held| held.record.key_id)
            .collect();
        for id in over {
            let held = self.by_id.remove(&id);
            for secret in held.iter().flat_map(|held| &held.record.secrets) {
                if let Some(hash) = bytes(&secret.sha256) {
                    self.by_hash.remove(&hash);
                }
            }
        }
    }

    /// The oldest key that may administer.
    pub(crate) fn admin(&self, now_ms: i64) -> Option<KeyId> {
        let admins = self.by_id.values().filter(|held| held.record.may_administer(now_ms));
        admins.map(|held| held.record.key_id).min()
    }

    /// Whoever holds that key.
    pub(crate) fn owner(&self, now_ms: i64) -> Principal {
        let held = self.admin(now_ms).and_then(|id| self.by_id.get(&id));
        held.map_or(Principal::ANONYMOUS, |held| {
            self.principal(held, held.record.generation, now_ms)
        })
    }

    /// Is there another key that may administer, but for `but`?
    pub(crate) fn has_other_admin(&self, but: KeyId, now_ms: i64) -> bool {
        let mut others = self.by_id.values().filter(|held| held.record.key_id != but);
        others.any(|held| held.record.may_administer(now_ms))
    }
}

/// The policy that a reference means. A name that is not there any more lets nothing through.
fn policy(reference: Option<&PolicyRef>, policies: &PolicySet) -> Option<Policy> {
    match reference? {
        PolicyRef::Inline(policy) => Some(policy.as_ref().clone()),
        PolicyRef::Named(name) => Some(
            policies
                .named(name)
                .unwrap_or_else(|| Policy { allow: Some(Vec::new()), ..Policy::default() }),
        ),
    }
}

fn bytes(sha256: &str) -> Option<[u8; 32]> {
    tollgate_contract::InputHash::parse(sha256).map(|hash| *hash.as_bytes())
}
