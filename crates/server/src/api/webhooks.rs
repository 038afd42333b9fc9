//! Webhooks: where events are sent, signed.

use axum::{
    http::{Method, StatusCode},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::{KeyScope, Quoted, Secret, event::Event, text::nearest};
use tollgate_gate::{Webhook, rfc3339};

use crate::{
    endpoint::{Access, Ask, Endpoint, Json, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// A webhook that is to be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewHook {
    /// Where events are sent: http or https, no address of this machine or its network unless the
    /// configuration allows it.
    #[schemars(length(min = 1, max = 2048))]
    url: String,
    /// Which kinds of events, such as `drift_detected`; all unless said otherwise.
    #[serde(default)]
    kinds: Vec<String>,
    /// What deliveries are signed with, 16 to 256 characters; one is made unless said otherwise.
    #[serde(default)]
    #[schemars(length(min = 16, max = 256))]
    secret: Option<String>,
}

/// A webhook.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Webhook")]
struct Shown {
    /// Its name.
    id: String,
    /// Where events are sent.
    url: String,
    /// Which kinds; all where none is named.
    kinds: Vec<String>,
    /// `active`, or `paused` since its receiver said that it is gone.
    status: &'static str,
    /// The last event that it is done with.
    sent_through: u64,
    /// Why the last attempt failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// When it was made.
    created_at: String,
}

impl From<Webhook> for Shown {
    fn from(hook: Webhook) -> Self {
        Self {
            id: hook.id,
            url: hook.url,
            kinds: hook.kinds,
            status: if hook.paused { "paused" } else { "active" },
            sent_through: hook.after,
            problem: hook.problem,
            created_at: rfc3339(hook.created_ms),
        }
    }
}

/// A webhook that was just made.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WebhookMade")]
struct Made {
    /// The webhook.
    webhook: Shown,
    /// What its deliveries are signed with. Keep it now: it cannot be seen again.
    secret: String,
}

/// All webhooks.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Webhooks")]
struct All {
    /// In the order of their names.
    webhooks: Vec<Shown>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let admin = Access::Scope(KeyScope::Admin);
    vec![
        endpoint(Method::GET, "/v1/webhooks", "listWebhooks", "All webhooks", admin).serve(
            200,
            "The webhooks",
            list,
        ),
        endpoint(
            Method::POST,
            "/v1/webhooks",
            "createWebhook",
            "Have events sent to an address, signed",
            admin,
        )
        .serve(201, "The webhook and its secret", create),
        endpoint(Method::DELETE, "/v1/webhooks/{id}", "deleteWebhook", "Remove a webhook", admin)
            .answers(204, "It is removed", "")
            .serve_raw(delete),
    ]
}

async fn list(ask: Ask<Nothing, Nothing>) -> Result<Reply<All>, Failed> {
    let webhooks = ask.app.gate.webhooks().into_iter().map(Shown::from).collect();
    Ok(Reply::ok(All { webhooks }))
}

async fn create(ask: Ask<Nothing, Json<NewHook>>) -> Result<Reply<Made>, Failed> {
    let NewHook { url, kinds, secret } = ask.body.0;
    let known = || Event::ALL.iter().filter_map(|event| event.ledger_kind());
    for kind in &kinds {
        if !known().any(|name| name == kind) {
            let near = nearest(kind, known()).map(|near| format!("; did you mean `{near}`?"));
            let problem =
                format!("{} is no kind of event{}", Quoted::new(kind), near.unwrap_or_default());
            return Err(refuse(&problem).into());
        }
    }
    if secret.as_ref().is_some_and(|secret| !(16..=256).contains(&secret.chars().count())) {
        return Err(refuse("`secret` has 16 to 256 characters").into());
    }
    // Last, since it may take a while to find out where a name leads.
    ask.app
        .settings
        .webhook_guard
        .check(&url)
        .await
        .map_err(|refused| refuse(&format!("`url`: {refused}")))?;
    let hook = ask.app.gate.create_webhook(url, kinds, secret.map(Secret::new)).await?;
    let secret = hook.secret.expose().to_owned();
    Ok(Reply::created(Made { webhook: hook.into(), secret }))
}

async fn delete(ask: Ask<Nothing, Nothing>) -> Result<Response, Failed> {
    ask.app.gate.delete_webhook(ask.part("id")).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
