//! What was asked, given and used over time: as JSON, or as CSV for a spreadsheet.

use std::sync::Arc;

use axum::{
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::{Error, KeyScope};
use tollgate_gate::rfc3339;
use tollgate_ledger::{TrendBy, TrendQuery, TrendRow, TrendStep, TrendSums};

use super::events::{blocking, time};
use crate::{
    app::App,
    endpoint::{Access, Ask, Endpoint, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// Most rows of an answer.
const MOST_ROWS: u64 = 100_000;

/// Which trends.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Not before this time: RFC 3339, or milliseconds since 1970.
    #[serde(default)]
    from: Option<String>,
    /// Before this time.
    #[serde(default)]
    to: Option<String>,
    /// Only of this pool.
    #[serde(default)]
    pool: Option<String>,
    /// Only of this agent.
    #[serde(default)]
    agent_id: Option<String>,
    /// Only of this credential.
    #[serde(default)]
    identity_id: Option<String>,
    /// Only of this work.
    #[serde(default)]
    workload_id: Option<String>,
    /// How long a stretch of time is; an hour unless said otherwise.
    #[serde(default)]
    step: Option<Step>,
    /// What is told apart, separated by commas: `pool`, `agent`, `identity`, `workload`. `pool` unless said
    /// otherwise.
    #[serde(default)]
    by: Option<String>,
    /// At most so many rows; 1000 unless said otherwise.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100000))]
    limit: Option<u64>,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Step {
    Minute,
    Hour,
    Day,
}

/// Sums over time.
#[derive(Debug, Serialize, JsonSchema)]
struct Trends {
    /// In the order of time.
    rows: Vec<Row>,
}

/// The sums of a stretch of time.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Trend")]
struct Row {
    /// When it begins.
    start: String,
    /// The pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<String>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<String>,
    /// The credential; by its pseudonym if it was forgotten.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity_id: Option<String>,
    /// The work.
    #[serde(skip_serializing_if = "Option::is_none")]
    workload_id: Option<String>,
    /// The sums.
    #[serde(flatten)]
    sums: TrendSums,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let read = Access::Scope(KeyScope::Read);
    vec![
        endpoint(
            Method::GET,
            "/v1/trends",
            "trends",
            "What was asked, given and used over time",
            read,
        )
        .serve(200, "The sums", trends),
        endpoint(Method::GET, "/v1/reports", "reports", "The same as CSV", read)
            .answers(200, "The sums, one line each", "text/csv")
            .serve_raw(report),
    ]
}

async fn trends(ask: Ask<Which, Nothing>) -> Result<Reply<Trends>, Failed> {
    Ok(Reply::ok(Trends { rows: rows(ask.app, ask.query).await? }))
}

async fn rows(app: Arc<App>, which: Which) -> Result<Vec<Row>, Error> {
    let limit = which.limit.unwrap_or(1000);
    if !(1..=MOST_ROWS).contains(&limit) {
        return Err(refuse("`limit` is from 1 to 100000"));
    }
    let mut by = TrendBy::default();
    for word in which.by.as_deref().unwrap_or("pool").split(',') {
        match word {
            "pool" => by.pool = true,
            "agent" => by.agent = true,
            "identity" => by.identity = true,
            "workload" => by.workload = true,
            _ => return Err(refuse("`by` names pool, agent, identity and workload, with commas")),
        }
    }
    let governing = app.gate.governing().clone();
    // A name that nobody has leads nowhere.
    let identity_id = which
        .identity_id
        .map(|name| governing.pseudonym(&name).map_or(name, |pseudonym| pseudonym.to_string()));
    let query = TrendQuery {
        from_ms: which.from.as_deref().map(time).transpose()?,
        to_ms: which.to.as_deref().map(time).transpose()?,
        pool: which.pool,
        agent_id: which.agent_id,
        identity_id,
        workload_id: which.workload_id,
        step: match which.step.unwrap_or(Step::Hour) {
            Step::Minute => TrendStep::Minute,
            Step::Hour => TrendStep::Hour,
            Step::Day => TrendStep::Day,
        },
        by,
        limit,
    };
    let found = blocking(move || app.queries.trends(&query)).await?;
    let row = |row: TrendRow| Row {
        start: rfc3339(row.start_ms),
        pool: row.pool,
        agent_id: row.agent_id,
        identity_id: row.identity_id.map(|id| governing.identity_name(&id).unwrap_or(id)),
        workload_id: row.workload_id,
        sums: row.sums,
    };
    Ok(found.into_iter().map(row).collect())
}

async fn report(ask: Ask<Which, Nothing>) -> Result<Response, Failed> {
    let rows = rows(ask.app, ask.query).await?;
    let mut csv = String::from(
        "start,pool,agent_id,identity_id,workload_id,asks,approved,waited,denied,held,used,ghost,expired,released\r\n",
    );
    for row in rows {
        let texts = [Some(row.start), row.pool, row.agent_id, row.identity_id, row.workload_id];
        let mut cells: Vec<String> =
            texts.into_iter().map(|text| cell(&text.unwrap_or_default())).collect();
        let TrendSums { asks, approved, waited, denied, held, used, ghost, expired, released } =
            row.sums;
        let numbers = [asks, approved, waited, denied, held, used, ghost, expired, released];
        cells.extend(numbers.iter().map(ToString::to_string));
        csv.push_str(&cells.join(","));
        csv.push_str("\r\n");
    }
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"tollgate-report.csv\""),
    ];
    Ok((StatusCode::OK, headers, csv).into_response())
}

/// A text in a cell. A spreadsheet must not take it for a formula, whoever chose the name.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) || is_formula {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_neither_two_cells_nor_a_formula() {
        assert_eq!(cell("plain"), "plain");
        assert_eq!(cell("a,b"), "\"a,b\"");
        assert_eq!(cell("say \"hi\""), "\"say \"\"hi\"\"\"");
        assert_eq!(cell("=HYPERLINK(1)"), "\"'=HYPERLINK(1)\"");
    }
}
