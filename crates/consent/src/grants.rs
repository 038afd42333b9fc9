//! Capabilities that were granted, and who has them.

use serde::{Deserialize, Serialize};
use tollgate_contract::{
    Capability,
    id::{GrantId, KeyId},
};

/// Who has a capability, or asks for one: a key, a session, or a session of a key. A token is its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Holder {
    /// Only calls of this key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// Only calls in this session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl Holder {
    /// Does it include whoever calls with this key in this session?
    pub fn includes(&self, key: KeyId, session: Option<&str>) -> bool {
        // One that names nobody is nobody's.
        (self.key.is_some() || self.session.is_some())
            && self.key.is_none_or(|own| own == key)
            && self.session.as_deref().is_none_or(|own| Some(own) == session)
    }

    /// Is everyone in `other` in this one too?
    pub fn holds(&self, other: &Self) -> bool {
        (self.key.is_none() || self.key == other.key)
            && (self.session.is_none() || self.session == other.session)
    }
}

/// A capability that was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Its name.
    pub id: GrantId,
    /// What.
    pub capability: Capability,
    /// To whom.
    pub to: Holder,
    /// By whom.
    pub by: KeyId,
    /// What that key was called.
    pub by_name: String,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when, in milliseconds since 1970.
    pub since_ms: i64,
    /// Until when; until it is withdrawn where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
}

impl Grant {
    /// Does it count at this moment?
    pub fn counts(&self, now_ms: i64) -> bool {
        self.until_ms.is_none_or(|until| now_ms < until)
    }

    /// Does it count for whoever calls with this key in this session? Never for the key that granted it.
    pub fn counts_for(&self, key: KeyId, session: Option<&str>, now_ms: i64) -> bool {
        self.by != key && self.to.includes(key, session) && self.counts(now_ms)
    }
}
