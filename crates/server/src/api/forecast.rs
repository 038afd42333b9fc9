//! What is to be expected of pools: how fast they are used up, and whether they last.

use std::sync::Arc;

use axum::http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::KeyScope;
use tollgate_gate::{PoolForecast, rfc3339};
use tollgate_governor::{Basis, ConePoint, Forecast, LearnedCost};

use crate::{
    endpoint::{Access, Ask, Endpoint, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// How many meters an answer has unless said otherwise.
const USUAL: u32 = 200;

/// How many it has at most: everybody waits while they are worked out.
const MOST: u32 = 2000;

/// Which forecasts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Which {
    /// Only pools that begin like this.
    #[serde(default)]
    pool: Option<String>,
    /// At most so many; 200 unless said otherwise.
    #[serde(default)]
    #[schemars(range(min = 1, max = 2000))]
    limit: Option<u32>,
}

/// What is to be expected.
#[derive(Debug, Serialize, JsonSchema)]
struct Forecasts {
    /// When this was worked out.
    as_of: String,
    /// One for each key that a pool is counted for. Pools that nobody has used yet are left out.
    forecasts: Vec<Shown>,
    /// What work takes of pools that count more than calls, learned from what was used.
    learned_costs: Vec<Cost>,
}

/// What is to be expected of a pool, as it is counted for one key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Forecast")]
struct Shown {
    /// The pool.
    pool: Arc<str>,
    /// For whom it is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// What is counted.
    unit: Arc<str>,
    /// How much there is.
    limit: Option<u64>,
    /// What is left now.
    left: Option<u64>,
    /// What the forecast rests on: `none`, `little` or `enough` data; `not_applicable` where there is nothing to run
    /// out of, or nobody knows when it is full again.
    basis: &'static str,
    /// How much is taken in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    burn_per_second: Option<f64>,
    /// Until when it looks ahead: the reset, or as long as a sliding window or a bucket takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    /// How probable it is that nothing is left at some moment until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    p_exhaust: Option<f64>,
    /// For how many seconds it lasts at least, with a probability of 50 percent; null where it lasts until then.
    tte_p50_seconds: Option<f64>,
    /// With a probability of 90 percent.
    tte_p90_seconds: Option<f64>,
    /// With a probability of 99 percent.
    tte_p99_seconds: Option<f64>,
    /// How much more will be taken until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    will_take: Option<Interval>,
    /// What will be left, in equal steps from now on.
    cone: Vec<Point>,
}

/// A number that is not certain.
#[derive(Debug, Serialize, JsonSchema)]
struct Interval {
    /// With 5 percent it is less.
    p5: f64,
    /// As likely more as less.
    p50: f64,
    /// With 5 percent it is more.
    p95: f64,
}

/// What will be left at a moment.
#[derive(Debug, Serialize, JsonSchema)]
struct Point {
    /// In how many seconds.
    in_seconds: f64,
    /// With 95 percent it is more.
    p5: f64,
    /// As likely more as less.
    p50: f64,
    /// With 95 percent it is less.
    p95: f64,
}

/// What work takes of a pool.
#[derive(Debug, Serialize, JsonSchema)]
struct Cost {
    /// The work.
    workload_id: Arc<str>,
    /// The pool.
    pool: Arc<str>,
    /// How often it was seen.
    samples: u64,
    /// Half of it takes no more than this.
    p50: u64,
    /// What is held where nobody says what to expect; null while too little is known.
    p95: Option<u64>,
}

impl From<LearnedCost> for Cost {
    fn from(cost: LearnedCost) -> Self {
        let LearnedCost { workload, pool, samples, p50, p95 } = cost;
        Self { workload_id: workload, pool, samples, p50, p95 }
    }
}

impl From<ConePoint> for Point {
    fn from(point: ConePoint) -> Self {
        let ConePoint { in_ms, low, middle, high } = point;
        Self { in_seconds: seconds(in_ms), p5: low, p50: middle, p95: high }
    }
}

impl From<PoolForecast> for Shown {
    fn from(all: PoolForecast) -> Self {
        let PoolForecast { key, as_of, forecasted } = all;
        let (pool, reading) = (&forecasted.pool, &forecasted.reading);
        let forecast: Option<Forecast> = forecasted.forecast;
        let [p50, p90, p99] = forecast.map_or([None; 3], |forecast| forecast.exhausted_in);
        Self {
            pool: Arc::clone(&pool.id),
            key,
            unit: Arc::clone(&pool.unit),
            limit: reading.limit,
            left: reading.left,
            basis: match forecast.map(|forecast| forecast.basis) {
                None => "not_applicable",
                Some(Basis::None) => "none",
                Some(Basis::Little) => "little",
                Some(Basis::Enough) => "enough",
            },
            burn_per_second: forecast.map(|forecast| forecast.burn_per_second),
            until: forecast.map(|forecast| rfc3339(as_of.saturating_add(forecast.ahead_ms))),
            p_exhaust: forecast.map(|forecast| forecast.p_exhaust),
            tte_p50_seconds: p50.map(seconds),
            tte_p90_seconds: p90.map(seconds),
            tte_p99_seconds: p99.map(seconds),
            will_take: forecast.map(|forecast| {
                let [p5, p50, p95] = forecast.will_take;
                Interval { p5, p50, p95 }
            }),
            cone: forecasted.cone.into_iter().map(Point::from).collect(),
        }
    }
}

fn seconds(ms: i64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a second more or less in a hundred years")]
    let ms = ms as f64;
    ms / 1000.0
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        endpoint(
            Method::GET,
            "/v1/forecast",
            "forecast",
            "How fast pools are used up, and whether they last",
            Access::Scope(KeyScope::Read),
        )
        .serve(200, "What is to be expected", forecast),
    ]
}

async fn forecast(ask: Ask<Which, Nothing>) -> Result<Reply<Forecasts>, Failed> {
    let Which { pool, limit } = ask.query;
    let governing = ask.app.gate.governing();
    let wanted = |id: &str| pool.as_ref().is_none_or(|pool| id.starts_with(pool.as_str()));
    if limit.is_some_and(|limit| !(1..=MOST).contains(&limit)) {
        return Err(refuse("`limit` is from 1 to 2000").into());
    }
    let most = usize::try_from(limit.unwrap_or(USUAL)).unwrap_or(usize::MAX);
    let forecasts = governing.forecasts(wanted, most).into_iter().map(Shown::from).collect();
    let learned_costs = governing.learned_costs().into_iter().map(Cost::from).collect();
    let as_of = rfc3339(governing.now_ms());
    Ok(Reply::ok(Forecasts { as_of, forecasts, learned_costs }))
}
