//! How the gate is: health, metrics, and the description of the API.

use axum::{
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use tollgate_contract::KeyScope;
use tollgate_gate::Health;

use crate::{
    endpoint::{Access, Ask, Endpoint, Nothing, endpoint},
    reply::{Failed, Reply, json},
};

/// How the gate is.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Health")]
struct Report {
    /// `ok`; `degraded` while the ledger cannot write and nothing is let through; `halted` while a person has
    /// stopped everything.
    status: Status,
    /// The version of the gate.
    version: &'static str,
    /// How long it has been running.
    uptime_seconds: u64,
}

/// The words of ratelord's health.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    Degraded,
    Halted,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let health = |path, id| {
        endpoint(Method::GET, path, id, "How the gate is", Access::Open).serve(
            200,
            "Its health",
            health,
        )
    };
    vec![
        health("/health", "health"),
        health("/v1/health", "healthV1"),
        endpoint(
            Method::GET,
            "/metrics",
            "metrics",
            "What the gate counts, for Prometheus",
            Access::Scope(KeyScope::Read),
        )
        .answers(200, "The metrics", "application/openmetrics-text")
        .serve_raw(metrics),
        endpoint(Method::GET, "/openapi.json", "openapi", "This description", Access::Local)
            .answers(200, "The description", "application/json")
            .serve_raw(openapi),
    ]
}

async fn health(ask: Ask<Nothing, Nothing>) -> Result<Reply<Report>, Failed> {
    let status = match ask.app.gate.health() {
        Health::Ok if ask.app.gate.governing().is_halted() => Status::Halted,
        Health::Ok => Status::Ok,
        Health::Degraded => Status::Degraded,
    };
    let uptime_seconds = ask.app.since.elapsed().as_secs();
    Ok(Reply::ok(Report { status, version: env!("CARGO_PKG_VERSION"), uptime_seconds }))
}

async fn metrics(ask: Ask<Nothing, Nothing>) -> Result<Response, Failed> {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &ask.app.metrics);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, kind)], text).into_response())
}

async fn openapi(ask: Ask<Nothing, Nothing>) -> Result<Response, Failed> {
    Ok(json(StatusCode::OK, Bytes::copy_from_slice(&ask.app.openapi)))
}
