//! What if: which recorded decisions would differ under other pools, routes and rules.

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tollgate_contract::{Error, KeyScope, error::Internal};
use tollgate_gate::{WhatIfSummary, answer_word, rfc3339, what_if};
use tollgate_governor::{Difference, Different, GovernorConfig};

use super::events::time;
use crate::{
    endpoint::{Access, Ask, Endpoint, Json, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// How many differences are told at most, and unless said otherwise.
const MOST: u32 = 10_000;
const USUAL: u32 = 100;

/// What to ask again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Question {
    /// `pools`, `routes`, `rules` and `governor`, as in the configuration file: all of it, since what is left out
    /// is not there. Without `config` the recorded ones hold, and nothing differs.
    #[serde(default)]
    config: Option<Map<String, Value>>,
    /// From when on: RFC 3339, or milliseconds since 1970; all that there is unless said otherwise.
    #[serde(default)]
    since: Option<String>,
    /// At most so many differences; 100 unless said otherwise.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10000))]
    limit: Option<u32>,
}

/// What would differ.
#[derive(Debug, Serialize, JsonSchema)]
struct Answered {
    /// How much, and of whom.
    summary: WhatIfSummary,
    /// The first of them.
    differences: Vec<Shown>,
}

/// A decision that would differ.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfDifference")]
struct Shown {
    /// When it was made.
    ts: String,
    /// The intent.
    intent_id: String,
    /// Who.
    agent_id: String,
    /// Whose credential, as events call it.
    identity_id: String,
    /// What.
    workload_id: String,
    /// Where.
    scope_id: String,
    /// What was decided.
    before: Side,
    /// What would have been.
    after: Side,
    /// Why.
    why: String,
}

/// What was decided, or would have been.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "WhatIfSide")]
struct Side {
    /// `approved`, `waits`, `switches` (another credential) or `denied`.
    decision: &'static str,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// The pool that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// How long to wait, in milliseconds.
    wait_ms: i64,
    /// The rules that matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rules: Vec<String>,
}

impl From<&Different> for Side {
    fn from(it: &Different) -> Self {
        Self {
            decision: answer_word(it.answer, it.wait_ms),
            reason: it.reason.map(|reason| reason.as_str()),
            pool: it.pool.as_deref().map(str::to_owned),
            wait_ms: it.wait_ms,
            rules: it.rules.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&Difference> for Shown {
    fn from(it: &Difference) -> Self {
        Self {
            ts: rfc3339(it.ts),
            intent_id: it.intent.to_string(),
            agent_id: it.agent.to_string(),
            identity_id: it.identity.to_string(),
            workload_id: it.workload.to_string(),
            scope_id: it.scope.to_string(),
            before: Side::from(&it.before),
            after: Side::from(&it.after),
            why: it.why.clone(),
        }
    }
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        endpoint(
            Method::POST,
            "/v1/what-if",
            "whatIf",
            "Ask the recorded history again of other pools, routes and rules",
            Access::Scope(KeyScope::Admin),
        )
        .serve(200, "What would differ", ask_again),
    ]
}

async fn ask_again(ask: Ask<Nothing, Json<Question>>) -> Result<Reply<Answered>, Failed> {
    let Question { config, since, limit } = ask.body.0;
    let config: Option<GovernorConfig> = config
        .map(|config| serde_json::from_value(Value::Object(config)))
        .transpose()
        .map_err(|error| refuse(&format!("`config`: {error}")))?;
    let since = since.map(|text| time(&text)).transpose()?.unwrap_or(i64::MIN);
    let most = limit.unwrap_or(USUAL);
    if most > MOST {
        return Err(refuse("`limit` is at most 10000").into());
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let gate = ask.app.gate.clone();
    let answered = tokio::task::spawn_blocking(move || -> Result<Answered, Error> {
        let reader = gate.ledger().reader()?;
        let mut differences = Vec::new();
        let config = config.map(GovernorConfig::or_usual);
        let summary = what_if(&reader, config, since, |one| {
            if differences.len() < most {
                differences.push(Shown::from(one));
            }
        })?;
        Ok(Answered { summary, differences })
    })
    .await;
    let ended = |_| Error::from(Internal::new("reading the ledger ended early"));
    Ok(Reply::ok(answered.map_err(ended)??))
}
