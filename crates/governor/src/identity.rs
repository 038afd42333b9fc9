//! Credentials: what they are called in events, and what their owners call them.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::effect::Registered;

/// What is known of a credential beside the chain. Without it, events name nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// What its owner calls it, such as `pat:me`.
    pub name: String,
    /// How it is called in events.
    pub pseudonym: Arc<str>,
    /// What the hash of its name in the chain was salted with.
    pub salt: String,
    /// `user`, `service` or `bot`, where somebody said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Credentials of one group can stand in for each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// What somebody wrote about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
    /// When it was first named, in milliseconds since 1970.
    pub since_ms: i64,
}

/// The credentials.
#[derive(Debug, Clone, Default)]
pub struct Identities {
    registered: HashMap<Arc<str>, Registered>,
    by_name: HashMap<String, Arc<Named>>,
    by_pseudonym: HashMap<Arc<str>, Arc<Named>>,
    by_group: HashMap<String, Vec<Arc<Named>>>,
    keyless: usize,
}

impl Identities {
    /// The credential of this name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Named>> {
        self.by_name.get(name)
    }

    /// What the owner of a credential calls it.
    pub fn name_of(&self, pseudonym: &str) -> Option<&str> {
        self.by_pseudonym.get(pseudonym).map(|named| named.name.as_str())
    }

    /// All that have names.
    pub fn named(&self) -> impl Iterator<Item = &Arc<Named>> {
        self.by_name.values()
    }

    /// Those that can stand in for each other.
    pub(crate) fn group(&self, group: &str) -> &[Arc<Named>] {
        self.by_group.get(group).map_or(&[], Vec::as_slice)
    }

    /// How many callers without a key have named.
    pub(crate) fn keyless(&self) -> usize {
        self.keyless
    }

    /// Puts a name to a credential.
    pub fn put(&mut self, named: Named) {
        self.drop_name(&named.name.clone());
        let named = Arc::new(named);
        if let Some(group) = &named.group {
            self.by_group.entry(group.clone()).or_default().push(Arc::clone(&named));
        }
        self.by_pseudonym.insert(Arc::clone(&named.pseudonym), Arc::clone(&named));
        self.by_name.insert(named.name.clone(), named);
    }

    fn drop_name(&mut self, name: &str) {
        let Some(named) = self.by_name.remove(name) else { return };
        self.by_pseudonym.remove(&named.pseudonym);
        if let Some(group) = &named.group
            && let Some(members) = self.by_group.get_mut(group)
        {
            members.retain(|member| member.name != name);
        }
    }

    pub(crate) fn register(&mut self, registered: &Registered) {
        let before = self.registered.insert(Arc::clone(&registered.pseudonym), registered.clone());
        let was_keyless = before.is_some_and(|before| before.keyless);
        self.keyless += usize::from(registered.keyless);
        self.keyless = self.keyless.saturating_sub(usize::from(was_keyless));
    }

    pub(crate) fn forget(&mut self, pseudonym: &str) {
        if let Some(registered) = self.registered.remove(pseudonym)
            && registered.keyless
        {
            self.keyless = self.keyless.saturating_sub(1);
        }
        if let Some(name) = self.name_of(pseudonym).map(str::to_owned) {
            self.drop_name(&name);
        }
    }

    pub(crate) fn registered(&self) -> Vec<Registered> {
        let mut all: Vec<Registered> = self.registered.values().cloned().collect();
        all.sort_by(|a, b| a.pseudonym.cmp(&b.pseudonym));
        all
    }
}
