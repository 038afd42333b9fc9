//! What is known of a key.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::{
    Error, KeyScope, Urgency,
    error::InvalidRequest,
    id::KeyId,
    redact::redact_text,
    text::{Clean, is_plain},
};
use tollgate_policy::Policy;

/// What a key is to be.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeySpec {
    /// What its owner calls it.
    pub name: String,
    /// The account that it belongs to.
    pub owner: String,
    /// What it is for.
    pub scopes: Vec<KeyScope>,
    /// What it may do.
    pub policy: PolicyRef,
    /// Who its holder may say to be.
    pub claims: Claims,
    /// When it ends, in milliseconds since 1970.
    pub expires_ms: Option<i64>,
}

/// What a short-lived token is to be. It can only narrow the key that it is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenSpec {
    /// What it is for: some of the key's scopes, or all of them where none are named.
    pub scopes: Option<Vec<KeyScope>>,
    /// What it may do of what the key may do.
    pub policy: Option<PolicyRef>,
    /// How long it lives.
    pub lives_ms: i64,
}

impl TokenSpec {
    /// How long a token lives where nothing is said.
    pub const USUAL_MS: i64 = 15 * 60 * 1000;
    /// How long a token may live.
    pub const LONGEST_MS: i64 = 24 * 60 * 60 * 1000;
}

/// A policy by its name, or written out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PolicyRef {
    /// The name of a policy: of the configuration, or a built-in one.
    Named(String),
    /// The policy itself.
    Inline(Box<Policy>),
}

/// Who the holder of a key may say to be. `*` stands for anyone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Claims {
    /// The agents.
    pub agents: Vec<String>,
    /// The identities: whose credentials are used.
    pub identities: Vec<String>,
    /// The highest urgency.
    pub max_urgency: Urgency,
}

impl Default for Claims {
    fn default() -> Self {
        let anyone = || vec!["*".to_owned()];
        Self { agents: anyone(), identities: anyone(), max_urgency: Urgency::Normal }
    }
}

/// A key for a purpose: the scopes and the policy that go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Calls tools and asks the governor; changes nothing.
    Agent,
    /// Looks at pools, events and calls.
    Reader,
    /// Answers approvals, and sees what it decides about.
    Approver,
    /// Does all that a person at the controls does, keys included.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Agent, Self::Reader, Self::Approver, Self::Admin];

    /// Its scopes.
    pub fn scopes(self) -> Vec<KeyScope> {
        match self {
            Self::Agent => vec![KeyScope::Call, KeyScope::Ask],
            Self::Reader => vec![KeyScope::Read],
            Self::Approver => vec![KeyScope::Read, KeyScope::Approve],
            Self::Admin => KeyScope::ALL.to_vec(),
        }
    }

    /// Its policy.
    pub fn policy(self) -> PolicyRef {
        let name = if self == Self::Admin { "operator" } else { "readonly" };
        PolicyRef::Named(name.to_owned())
    }

    /// Who its holder may say to be.
    pub fn claims(self) -> Claims {
        let max_urgency = if self == Self::Admin { Urgency::High } else { Urgency::Normal };
        Claims { max_urgency, ..Claims::default() }
    }
}

/// A key as it is kept. Never the key itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyRecord {
    /// Its public name.
    pub key_id: KeyId,
    /// What its owner calls it.
    pub name: String,
    /// The account that it belongs to.
    pub owner: String,
    /// What it is for.
    pub scopes: Vec<KeyScope>,
    /// What it may do; for a token, of what its key may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRef>,
    /// Who its holder may say to be.
    pub claims: Claims,
    /// When it was made.
    pub created_ms: i64,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    /// When it was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_ms: Option<i64>,
    /// The key that a token was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<KeyId>,
    /// How often it was made anew; for a token, the generation of the key that it was made with.
    pub generation: u32,
    /// SHA-256 of the texts that count as this key: the present one, and an earlier one while it may
    /// still be used.
    pub(crate) secrets: Vec<SecretHash>,
}

/// The hash of one text of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SecretHash {
    pub(crate) sha256: String,
    /// The generation of the key that it belongs to.
    pub(crate) generation: u32,
    /// Until when it counts; for ever where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until_ms: Option<i64>,
}

impl KeyRecord {
    /// Is it over?
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms)
    }

    /// The key that it counts as: a token is its key.
    pub fn account(&self) -> KeyId {
        self.parent.unwrap_or(self.key_id)
    }

    /// Is it a short-lived token?
    pub fn is_token(&self) -> bool {
        self.parent.is_some()
    }

    /// Is it a key with which everything can be changed?
    pub(crate) fn may_administer(&self, now_ms: i64) -> bool {
        !self.is_token() && self.scopes.contains(&KeyScope::Admin) && self.is_active(now_ms)
    }

    /// Does the text of this generation still count?
    pub(crate) fn has_generation(&self, generation: u32, now_ms: i64) -> bool {
        let counts = |secret: &SecretHash| secret.until_ms.is_none_or(|until| until > now_ms);
        self.secrets.iter().any(|secret| secret.generation == generation && counts(secret))
    }

    /// May it be used, as far as it alone says?
    pub fn is_active(&self, now_ms: i64) -> bool {
        self.revoked_ms.is_none() && !self.is_expired(now_ms)
    }
}

/// The longest name of a key, an owner, a session.
const LONGEST_NAME: usize = 100;

/// Accepts a label that a person gives: short, on one line, and no secret.
pub(crate) fn label(what: &str, text: &str) -> Result<(), Error> {
    let refuse = |problem: &str| {
        let sentence = Clean::already(format!("the {what} {problem}"));
        Err(InvalidRequest::new(sentence, Vec::new()).into())
    };
    if text.trim().is_empty() {
        return refuse("is empty");
    }
    if text.chars().count() > LONGEST_NAME {
        return refuse(&format!("is longer than {LONGEST_NAME} characters"));
    }
    if !text.chars().all(is_plain) {
        return refuse("has characters that a terminal or a page would act on");
    }
    if redact_text(text) != text {
        return refuse("looks like a secret; names are shown and recorded");
    }
    Ok(())
}
