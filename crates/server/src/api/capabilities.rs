//! Capabilities: who was granted what, and asking for one.

use axum::{
    http::Method,
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_consent::{Change, Grant, Holder, Item, ItemState, Requested};
use tollgate_contract::{
    Capability, Error, KeyScope,
    error::NotFound,
    id::{GrantId, KeyId},
};
use tollgate_gate::{Gate, rfc3339};

use super::{
    approvals::{ItemShown, lasts},
    governor::key_named,
};
use crate::{
    endpoint::{Access, Ask, Endpoint, Json, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// A capability that was granted.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Grant")]
struct GrantShown {
    /// Its name.
    id: String,
    /// What.
    capability: String,
    /// Only in this session.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    /// Only for this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    key_id: Option<String>,
    /// What that key is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// What the key is called that granted it.
    by: String,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Since when.
    granted_at: String,
    /// Until when; until it is withdrawn where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

impl GrantShown {
    fn new(gate: &Gate, grant: &Grant) -> Self {
        let name = |id: KeyId| gate.key(id).ok().map(|key| key.name);
        Self {
            id: grant.id.to_string(),
            capability: grant.capability.to_string(),
            session: grant.to.session.clone(),
            key_id: grant.to.key.map(|id| id.to_string()),
            key: grant.to.key.and_then(name),
            by: grant.by_name.clone(),
            reason: grant.reason.clone(),
            granted_at: rfc3339(grant.since_ms),
            expires_at: grant.until_ms.map(rfc3339),
        }
    }
}

/// Whose.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Whose {
    /// Only what counts in this session.
    #[serde(default)]
    session: Option<String>,
    /// Only what counts for this key, by its id or its name.
    #[serde(default)]
    key: Option<String>,
}

/// What was granted, and what waits to be.
#[derive(Debug, Serialize, JsonSchema)]
struct Capabilities {
    /// What was granted and counts now.
    granted: Vec<GrantShown>,
    /// What was asked for and waits. Never anything that is granted.
    pending: Vec<ItemShown>,
}

/// A capability that is to be granted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewGrant {
    /// `net`, `net:<host>` or `net:*.<domain>`.
    capability: String,
    /// To this session.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    session: Option<String>,
    /// To this key, by its id or its name.
    #[serde(default)]
    #[schemars(length(min = 1, max = 100))]
    key: Option<String>,
    /// For how many seconds; until it is withdrawn where nothing is said.
    #[serde(default)]
    #[schemars(range(min = 1, max = 315_360_000))]
    for_seconds: Option<u64>,
    /// Why.
    #[serde(default)]
    #[schemars(length(max = 500))]
    reason: Option<String>,
}

/// A capability that is asked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewRequest {
    /// `net`, `net:<host>` or `net:*.<domain>`.
    capability: String,
    /// For this session; for the key as such where none is named.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    session: Option<String>,
    /// What it is for; whoever answers is told.
    #[serde(default)]
    #[schemars(length(max = 500))]
    reason: Option<String>,
}

/// What a request came to: the grant that there is already, or what waits.
#[derive(Debug, Serialize, JsonSchema)]
struct Asked {
    /// It is granted already.
    #[serde(skip_serializing_if = "Option::is_none")]
    granted: Option<GrantShown>,
    /// It waits for a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ItemShown>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let approve = Access::Scope(KeyScope::Approve);
    vec![
        endpoint(
            Method::GET,
            "/v1/capabilities",
            "listCapabilities",
            "What was granted and what waits to be; a key without the scope `approve` or `read` sees its own",
            Access::Gate,
        )
        .serve(200, "The capabilities", list),
        endpoint(
            Method::POST,
            "/v1/capabilities",
            "grantCapability",
            "Grant a capability to a session or a key; nobody grants for themselves",
            approve,
        )
        .serve(201, "It is granted", grant),
        endpoint(
            Method::DELETE,
            "/v1/capabilities/{id}",
            "revokeCapability",
            "Withdraw a grant",
            approve,
        )
        .answers(204, "It is withdrawn", "")
        .serve_raw(revoke),
        endpoint(
            Method::POST,
            "/v1/capabilities/requests",
            "requestCapability",
            "Ask for a capability",
            Access::Scope(KeyScope::Call),
        )
        .gives::<Asked>(200, "It is granted already")
        .serve(202, "It waits for a person", request),
    ]
}

fn capability(text: &str) -> Result<Capability, Error> {
    Capability::parse(text).map_err(|error| refuse(&error.to_string()))
}

async fn list(ask: Ask<Whose, Nothing>) -> Result<Reply<Capabilities>, Failed> {
    let gate = &ask.app.gate;
    ask.principal.require_key()?;
    let may = |scope| ask.principal.require(scope).is_ok();
    let sees_all = may(KeyScope::Approve) || may(KeyScope::Read);
    let wanted = ask.query.key.as_deref().map(|key| key_named(gate, key)).transpose();
    let wanted = match (sees_all, ask.principal.account()) {
        (true, _) => wanted?,
        // Whoever may not look at others looks at themselves.
        (false, own) => own,
    };
    let session = ask.query.session.as_deref();
    let of_grant = |grant: &Grant| {
        let of_key = match (wanted, grant.to.key) {
            (Some(wanted), Some(key)) => wanted == key,
            // A grant to a session is its owner's, whoever that is.
            (Some(key), None) => {
                grant.to.session.as_deref().is_some_and(|session| gate.is_session_of(session, key))
            }
            (None, _) => true,
        };
        let of_session = grant.to.session.is_none()
            || session.is_none()
            || grant.to.session.as_deref() == session;
        of_key && of_session
    };
    let granted = gate.grants();
    let granted = granted.iter().filter(|grant| of_grant(grant));
    let of_item = |item: &Item| {
        item.capability().is_some()
            && wanted.is_none_or(|key| item.asked.key == key)
            && (session.is_none() || item.asked.session.as_deref() == session)
    };
    let pending = gate.approvals();
    let pending = pending
        .iter()
        .filter(|(item, state)| *state == ItemState::Pending && of_item(item))
        .map(|(item, state)| ItemShown::new(item, *state));
    Ok(Reply::ok(Capabilities {
        granted: granted.map(|grant| GrantShown::new(gate, grant)).collect(),
        pending: pending.collect(),
    }))
}

async fn grant(ask: Ask<Nothing, Json<NewGrant>>) -> Result<Reply<GrantShown>, Failed> {
    let gate = &ask.app.gate;
    let NewGrant { capability: text, session, key, for_seconds, reason } = ask.body.0;
    let capability = capability(&text)?;
    let key = key.as_deref().map(|key| key_named(gate, key)).transpose()?;
    let lasts = for_seconds.map(lasts).transpose()?;
    let to = Holder { key, session };
    let granted = gate.grant_capability(&ask.principal, capability, to, lasts, reason).await?;
    Ok(Reply::created(GrantShown::new(gate, &granted)))
}

async fn revoke(ask: Ask<Nothing, Nothing>) -> Result<Response, Failed> {
    let text = ask.part("id").to_owned();
    let id = GrantId::parse(&text).map_err(|_| Error::from(NotFound::new("grant", text)))?;
    ask.app.gate.revoke_capability(&ask.principal, id).await?;
    Ok(axum::http::StatusCode::NO_CONTENT.into_response())
}

async fn request(ask: Ask<Nothing, Json<NewRequest>>) -> Result<Reply<Asked>, Failed> {
    let gate = &ask.app.gate;
    let NewRequest { capability: text, session, reason } = ask.body.0;
    let capability = capability(&text)?;
    let requested = gate.request_capability(&ask.principal, capability, session, reason).await?;
    let waits = |item: &Item| {
        let approval = Some(ItemShown::new(item, ItemState::Pending));
        Reply::accepted(Asked { granted: None, approval })
            .header("location", format!("/v1/approvals/{}", item.asked.id))
    };
    Ok(match requested {
        Requested::Granted(grant) => {
            Reply::ok(Asked { granted: Some(GrantShown::new(gate, &grant)), approval: None })
        }
        Requested::Waits(item) => waits(&item),
        Requested::New(Change::Asked(asked)) => waits(&Item::new(asked)),
        Requested::New(_) => return Err(refuse("nothing was asked for").into()),
    })
}
