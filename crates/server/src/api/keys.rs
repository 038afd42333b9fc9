//! Keys and tokens. The text of a key is in the answer that makes it, and nowhere else ever again.

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tollgate_contract::{Error, KeyScope, Secret, Urgency, error::NotFound, id::KeyId};
use tollgate_gate::{
    keys::{Claims, KeyRecord, KeySpec, PolicyRef, Role, TokenSpec},
    rfc3339,
};
use tollgate_policy::Policy;

use crate::{
    endpoint::{Access, Ask, Endpoint, Json, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// A key that is to be made. What is not said comes from the role.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewKey {
    /// What to call it. Shown and recorded.
    #[schemars(length(min = 1, max = 100))]
    name: String,
    /// What it is for; `agent` unless said otherwise.
    #[serde(default)]
    role: Option<Role>,
    /// The account that it belongs to; `local` unless said otherwise.
    #[serde(default)]
    #[schemars(length(min = 1, max = 100))]
    owner: Option<String>,
    /// What it may be used for, in place of the role's scopes.
    #[serde(default)]
    scopes: Option<Vec<KeyScope>>,
    /// The name of a policy, or a policy.
    #[serde(default)]
    policy: Option<PolicyBody>,
    /// The agents that its holder may say to be; `*` for any.
    #[serde(default)]
    #[schemars(inner(length(min = 1, max = 100)))]
    agents: Option<Vec<String>>,
    /// The identities whose credentials it may use; `*` for any.
    #[serde(default)]
    #[schemars(inner(length(min = 1, max = 100)))]
    identities: Option<Vec<String>>,
    /// The highest urgency that it may claim.
    #[serde(default)]
    max_urgency: Option<Urgency>,
    /// When it ends, in seconds from now; never unless said.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3_153_600_000_i64))]
    expires_in_seconds: Option<i64>,
}

/// The name of a policy, or a policy.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
enum PolicyBody {
    /// A name.
    Named(String),
    /// A policy.
    Inline(serde_json::Map<String, Value>),
}

impl PolicyBody {
    fn read(self) -> Result<PolicyRef, Error> {
        match self {
            Self::Named(name) => Ok(PolicyRef::Named(name)),
            Self::Inline(members) => Policy::from_json(&Value::Object(members))
                .map(|policy| PolicyRef::Inline(Box::new(policy)))
                .map_err(|error| refuse(&format!("`policy`: {error}"))),
        }
    }
}

/// How a key is given a new text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rotation {
    /// For how many seconds the old text still counts; 0 unless said otherwise.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86400))]
    grace_seconds: Option<i64>,
}

/// A token that is to be made. It can only narrow the key that asks for it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewToken {
    /// Some of the key's scopes; all of them unless said otherwise.
    #[serde(default)]
    scopes: Option<Vec<KeyScope>>,
    /// A policy that narrows the key's.
    #[serde(default)]
    policy: Option<PolicyBody>,
    /// How long it lives; 900 unless said otherwise.
    #[serde(default)]
    #[schemars(range(min = 1, max = 86400))]
    expires_in_seconds: Option<i64>,
}

/// A key as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Key")]
struct Shown {
    /// Its public name.
    id: String,
    /// What its owner calls it.
    name: String,
    /// The account that it belongs to.
    owner: String,
    /// `active`, `revoked` or `expired`.
    status: &'static str,
    /// What it may be used for.
    scopes: Vec<KeyScope>,
    /// The name of its policy, or the policy.
    policy: Value,
    /// Who its holder may say to be.
    claims: Claims,
    /// When it was made.
    created_at: String,
    /// When it ends.
    expires_at: Option<String>,
    /// When it was withdrawn.
    revoked_at: Option<String>,
    /// When it was last used.
    last_used_at: Option<String>,
    /// The key that a token was made from.
    parent: Option<String>,
    /// How often it was made anew.
    generation: u32,
}

/// A key that was just made. Its text cannot be seen again.
#[derive(Debug, Serialize, JsonSchema)]
struct Made {
    /// The key.
    key: Shown,
    /// Its text. Keep it now.
    secret: String,
    /// Is it the key that asked?
    own: bool,
}

/// All keys.
#[derive(Debug, Serialize, JsonSchema)]
struct All {
    /// The keys.
    keys: Vec<Shown>,
}

/// Which keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Tokens as well.
    #[serde(default)]
    tokens: Option<bool>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let admin = Access::Scope(KeyScope::Admin);
    vec![
        endpoint(Method::GET, "/v1/keys", "listKeys", "The keys", admin)
            .serve(200, "The keys", list),
        endpoint(Method::POST, "/v1/keys", "createKey", "Make a key", admin).serve(
            201,
            "The key, and its text for the only time",
            create,
        ),
        endpoint(Method::GET, "/v1/keys/{id}", "getKey", "One key", admin)
            .serve(200, "The key", get),
        endpoint(
            Method::DELETE,
            "/v1/keys/{id}",
            "revokeKey",
            "Withdraw a key, and every token that was made from it",
            admin,
        )
        .serve(200, "The key", revoke),
        endpoint(Method::POST, "/v1/keys/{id}/rotate", "rotateKey", "Give a key a new text", admin)
            .serve(200, "The key, and its text for the only time", rotate),
        endpoint(
            Method::POST,
            "/v1/tokens",
            "createToken",
            "Make a short-lived token that narrows the key that asks",
            Access::Gate,
        )
        .serve(201, "The token, and its text for the only time", mint),
    ]
}

fn shown(record: KeyRecord, last_used: Option<i64>, now_ms: i64) -> Shown {
    let status = match &record {
        record if record.revoked_ms.is_some() => "revoked",
        record if record.is_expired(now_ms) => "expired",
        _ => "active",
    };
    Shown {
        id: record.key_id.to_string(),
        status,
        policy: serde_json::to_value(&record.policy).unwrap_or_default(),
        name: record.name,
        owner: record.owner,
        scopes: record.scopes,
        claims: record.claims,
        created_at: rfc3339(record.created_ms),
        expires_at: record.expires_ms.map(rfc3339),
        revoked_at: record.revoked_ms.map(rfc3339),
        last_used_at: last_used.map(rfc3339),
        parent: record.parent.map(|id| id.to_string()),
        generation: record.generation,
    }
}

fn made(record: KeyRecord, secret: &Secret, own: bool, now_ms: i64) -> Made {
    Made { key: shown(record, None, now_ms), secret: secret.expose().to_owned(), own }
}

/// The key that a path names.
fn id<Q, B>(ask: &Ask<Q, B>) -> Result<KeyId, Error> {
    KeyId::parse(ask.part("id")).map_err(|_| NotFound::new("key", ask.part("id")).into())
}

async fn list(ask: Ask<Which, Nothing>) -> Result<Reply<All>, Failed> {
    let now = ask.app.gate.clock().now_ms();
    let tokens = ask.query.tokens.unwrap_or(false);
    let keys = ask.app.gate.keys().into_iter();
    let keys = keys.filter(|(record, _)| tokens || !record.is_token());
    Ok(Reply::ok(All { keys: keys.map(|(record, used)| shown(record, used, now)).collect() }))
}

async fn get(ask: Ask<Nothing, Nothing>) -> Result<Reply<Shown>, Failed> {
    let wanted = id(&ask)?;
    let now = ask.app.gate.clock().now_ms();
    let (record, used) = ask.app.gate.key_and_use(wanted)?;
    Ok(Reply::ok(shown(record, used, now)))
}

async fn create(ask: Ask<Nothing, Json<NewKey>>) -> Result<Reply<Made>, Failed> {
    let body = ask.body.0;
    let now = ask.app.gate.clock().now_ms();
    let usual = KeySpec::for_role(body.name, body.role.unwrap_or(Role::Agent));
    let policy = body.policy.map(PolicyBody::read).transpose()?;
    let expires_ms = body.expires_in_seconds.map(|seconds| expiry(now, seconds)).transpose()?;
    let spec = KeySpec {
        owner: body.owner.unwrap_or(usual.owner),
        scopes: body.scopes.unwrap_or(usual.scopes),
        policy: policy.unwrap_or(usual.policy),
        claims: Claims {
            agents: body.agents.unwrap_or(usual.claims.agents),
            identities: body.identities.unwrap_or(usual.claims.identities),
            max_urgency: body.max_urgency.unwrap_or(usual.claims.max_urgency),
        },
        expires_ms,
        name: usual.name,
    };
    let (record, secret) = ask.app.gate.create_key(Some(&ask.principal), spec).await?;
    Ok(Reply::created(made(record, &secret, false, now)))
}

/// The longest that a key can be made for: a hundred years.
const LONGEST_SECONDS: i64 = 3_153_600_000;

fn expiry(now_ms: i64, seconds: i64) -> Result<i64, Error> {
    if !(1..=LONGEST_SECONDS).contains(&seconds) {
        return Err(refuse(&format!("`expiresInSeconds` is from 1 to {LONGEST_SECONDS}")));
    }
    Ok(now_ms + seconds * 1000)
}

async fn revoke(ask: Ask<Nothing, Nothing>) -> Result<Reply<Shown>, Failed> {
    let wanted = id(&ask)?;
    let record = ask.app.gate.revoke_key(Some(&ask.principal), wanted).await?;
    Ok(Reply::ok(shown(record, None, ask.app.gate.clock().now_ms())))
}

async fn rotate(ask: Ask<Nothing, Json<Rotation>>) -> Result<Reply<Made>, Failed> {
    let wanted = id(&ask)?;
    let grace = ask.body.0.grace_seconds.unwrap_or(0);
    if !(0..=86400).contains(&grace) {
        return Err(refuse("`graceSeconds` is from 0 to 86400").into());
    }
    let by = Some(&ask.principal);
    let own = ask.principal.key().map(|key| key.id) == Some(wanted);
    let (record, secret) = ask.app.gate.rotate_key(by, wanted, grace * 1000).await?;
    Ok(Reply::ok(made(record, &secret, own, ask.app.gate.clock().now_ms())))
}

async fn mint(ask: Ask<Nothing, Json<NewToken>>) -> Result<Reply<Made>, Failed> {
    let body = ask.body.0;
    let usual = TokenSpec::default();
    let seconds = body.expires_in_seconds.unwrap_or(usual.lives_ms / 1000);
    let spec = TokenSpec {
        scopes: body.scopes,
        policy: body.policy.map(PolicyBody::read).transpose()?,
        lives_ms: seconds.saturating_mul(1000),
    };
    let (record, secret) = ask.app.gate.mint_token(&ask.principal, spec).await?;
    Ok(Reply::created(made(record, &secret, false, ask.app.gate.clock().now_ms())))
}
