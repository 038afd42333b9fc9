//! Asking before acting: intents, one by one or a few at a time, and what was used in the end.
//!
//! This is the protocol of ratelord's clients, snake_case and all. A denial is an answer like any other, with
//! the status 200; only what cannot be understood is an error.

use std::{fmt, sync::Arc};

use axum::{
    http::{Method, StatusCode},
    response::Response,
};
use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};
use tollgate_contract::{
    Error, KeyScope, Reason, Urgency,
    error::{InvalidRequest, MissingApiKey},
    id::IntentId,
    text::{Clean, is_plain, nearest},
};
use tollgate_gate::{Asked, Principal, UsageReport, observations, rfc3339};
use tollgate_governor::{
    Answer, Asker, Decision, Effect, Event, Expected, Intent, LARGEST_AMOUNT, duration,
    from_headers, whole,
};

use crate::{
    app::App,
    endpoint::{Access, Ask, Endpoint, Json, Nothing, ReadBody, SchemaOf, endpoint, from_value},
    reply::{Failed, Reply, json},
    request::refuse,
};

/// How many intents one request may bring.
const MOST_TOGETHER: usize = 10;

/// The longest name of an agent, an identity, a workload, a scope.
const LONGEST_NAME: usize = 200;

/// The most bytes of free text that come with an intent.
const LARGEST_CONTEXT: usize = 4096;

/// An intent. `null` counts as absent, and members that are not known are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(
    rename = "Intent",
    extend("required" = ["agent_id", "identity_id", "workload_id", "scope_id"], "additionalProperties" = true)
)]
struct IntentBody {
    /// Who asks, such as `crawler-01`.
    #[schemars(with = "Name")]
    agent_id: Option<String>,
    /// Whose credential will be used, such as `pat:me`. Its name, never the credential.
    #[schemars(with = "Name")]
    identity_id: Option<String>,
    /// What is to be done, such as `repo_scan`.
    #[schemars(with = "Name")]
    workload_id: Option<String>,
    /// Where, such as `repo:owner/name`.
    #[schemars(with = "Name")]
    scope_id: Option<String>,
    /// How much it matters; `normal` unless said otherwise.
    urgency: Option<Urgency>,
    /// What it will take: a number, or a text with units such as `100 points` or `1 call, 5000 tokens`.
    expected_cost: Option<Cost>,
    /// How long it will run: seconds, or a text such as `5m`.
    duration_hint: Option<Seconds>,
    /// Whatever the client wants to be kept with the decision, up to 4 KiB.
    client_context: Option<Map<String, Value>>,
    /// Every step of the decision is wanted.
    debug: Option<bool>,
    /// The client can use another credential.
    can_switch: Option<bool>,
    /// An earlier intent whose hold this one goes on with.
    renew: Option<String>,
    /// The client's own name for this ask: asking again with it gives the same answer for ten minutes.
    #[schemars(length(min = 1, max = 200))]
    request_id: Option<String>,
}

/// A short name.
#[derive(JsonSchema)]
#[schemars(inline)]
#[expect(dead_code, reason = "only its schema is used")]
struct Name(
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[^\x00-\x1f\x7f-\x9f]*$"))] String,
);

/// What something costs.
#[derive(Debug, Clone)]
struct Cost(Expected);

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;
        impl de::Visitor<'_> for Reads {
            type Value = Cost;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a number from 0 to {LARGEST_AMOUNT}, or a text such as \"100 points\"")
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Cost, E> {
                let wrong = || E::invalid_value(de::Unexpected::Float(number), &self);
                Expected::number(number).map(Cost).ok_or_else(wrong)
            }
            #[expect(
                clippy::cast_precision_loss,
                reason = "amounts are far below where that begins"
            )]
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Cost, E> {
                self.visit_f64(number as f64)
            }
            #[expect(clippy::cast_precision_loss, reason = "it is refused anyway")]
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Cost, E> {
                self.visit_f64(number as f64)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Cost, E> {
                let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
                Expected::parse(text).map(Cost).ok_or_else(wrong)
            }
        }
        deserializer.deserialize_any(Reads)
    }
}

impl JsonSchema for Cost {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cost".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "number", "minimum": 0, "maximum": LARGEST_AMOUNT},
            {"type": "string", "pattern": "^[0-9]{1,9}( [a-z_]{1,20})?(, [0-9]{1,9} [a-z_]{1,20}){0,7}$"},
        ]})
    }
}

/// A length of time, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Seconds(i64);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reads;
        impl de::Visitor<'_> for Reads {
            type Value = Seconds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of seconds from 0 to 31622400, or a text such as \"5m\"")
            }
            fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Seconds, E> {
                let ms = whole(seconds * 1000.0).and_then(|ms| i64::try_from(ms).ok());
                let wrong = || E::invalid_value(de::Unexpected::Float(seconds), &self);
                ms.filter(|ms| *ms <= 31_622_400_000).map(Seconds).ok_or_else(wrong)
            }
            #[expect(clippy::cast_precision_loss, reason = "what is that large is refused")]
            fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Seconds, E> {
                self.visit_f64(seconds as f64)
            }
            #[expect(clippy::cast_precision_loss, reason = "it is refused anyway")]
            fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Seconds, E> {
                self.visit_f64(seconds as f64)
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Seconds, E> {
                duration(text).map(Seconds).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Reads)
    }
}

impl JsonSchema for Seconds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Seconds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"anyOf": [
            {"type": "number", "minimum": 0, "maximum": 31_622_400},
            {"type": "string", "pattern": "^[1-9][0-9]{0,3}(ms|s|m|h)$"},
        ]})
    }
}

const MEMBERS: [&str; 12] = [
    "agent_id",
    "identity_id",
    "workload_id",
    "scope_id",
    "urgency",
    "expected_cost",
    "duration_hint",
    "client_context",
    "debug",
    "can_switch",
    "renew",
    "request_id",
];

/// An intent that is read as fast as it can be, and as kindly as it must be.
struct IntentJson(IntentBody);

impl ReadBody for IntentJson {
    fn schema() -> Option<SchemaOf> {
        Some(|generator| generator.subschema_for::<IntentBody>())
    }

    fn read(bytes: &Bytes) -> Result<Self, Error> {
        let is_object = bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
        match serde_json::from_slice(bytes) {
            Ok(body) if is_object => Ok(Self(body)),
            // Members that are not known, or a mistake that deserves a good word.
            _ => {
                let Json(value) = Json::<Map<String, Value>>::read(bytes)?;
                leniently(value).map(Self)
            }
        }
    }
}

/// Reads an intent that may have members of which nothing is known here.
fn leniently(mut members: Map<String, Value>) -> Result<IntentBody, Error> {
    let unknown: Vec<String> =
        members.keys().filter(|name| !MEMBERS.contains(&name.as_str())).cloned().collect();
    for name in unknown {
        if let Some(near) = nearest(&name, MEMBERS) {
            let problem = format!("unknown field `{name}`; did you mean `{near}`?");
            return Err(InvalidRequest::new(Clean::new(&problem), Vec::new()).into());
        }
        members.remove(&name);
    }
    from_value(Value::Object(members))
}

impl IntentBody {
    fn asked(self, asker: Arc<Asker>) -> Result<Asked, Error> {
        let [agent_id, identity_id, workload_id, scope_id] =
            names([self.agent_id, self.identity_id, self.workload_id, self.scope_id])?;
        let renew = match self.renew {
            Some(text) => Some(intent_id("renew", &text)?),
            None => None,
        };
        if self.request_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > LONGEST_NAME) {
            return Err(refuse("`request_id` has 1 to 200 bytes"));
        }
        let context = self.client_context.filter(|context| !context.is_empty()).map(Value::Object);
        if context.as_ref().is_some_and(|context| context.to_string().len() > LARGEST_CONTEXT) {
            return Err(refuse("`client_context` has at most 4096 bytes"));
        }
        Ok(Asked {
            asker,
            intent: Intent {
                agent_id,
                identity_id,
                workload_id,
                scope_id,
                urgency: self.urgency.unwrap_or(Urgency::Normal),
                expected: self.expected_cost.map_or(Expected::UNKNOWN, |cost| cost.0),
                duration_ms: self.duration_hint.map(|hint| hint.0),
                can_switch: self.can_switch.unwrap_or(false),
                renew,
                patience_ms: None,
                named_only: false,
            },
            request_id: self.request_id,
            context,
            wants_trace: self.debug.unwrap_or(false),
        })
    }
}

const REQUIRED: [&str; 4] = ["agent_id", "identity_id", "workload_id", "scope_id"];

/// The four names that say whose work it is. All that are missing are told at once.
fn names(given: [Option<String>; 4]) -> Result<[String; 4], Error> {
    let is_missing = |name: &Option<String>| name.as_ref().is_none_or(String::is_empty);
    if given.iter().any(is_missing) {
        let missing = REQUIRED.iter().zip(&given).filter(|(_, name)| is_missing(name));
        let missing: Vec<String> = missing.map(|(what, _)| (*what).to_owned()).collect();
        let problem = Clean::already("required fields are missing".to_owned());
        return Err(InvalidRequest::new(problem, missing).into());
    }
    let given = given.map(Option::unwrap_or_default);
    for (what, name) in REQUIRED.iter().zip(&given) {
        if name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
            return Err(refuse(&format!(
                "`{what}` has 1 to {LONGEST_NAME} bytes, none that a terminal would act on"
            )));
        }
    }
    Ok(given)
}

pub(super) fn intent_id(what: &str, text: &str) -> Result<IntentId, Error> {
    IntentId::parse(text).map_err(|error| {
        InvalidRequest::new(Clean::new(&format!("`{what}`: {error}")), Vec::new()).into()
    })
}

/// A decision.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Decision")]
struct DecisionBody {
    /// The name of the intent; what was used is reported under it.
    intent_id: IntentIdText,
    /// The answer.
    #[schemars(with = "AnswerWord")]
    decision: &'static str,
    /// The same word.
    #[schemars(with = "AnswerWord")]
    status: &'static str,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    /// Can asking again help?
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    /// When it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<String>,
    /// What to do before acting.
    #[serde(skip_serializing_if = "Option::is_none")]
    modifications: Option<Modifications>,
    /// Until when to act.
    #[serde(skip_serializing_if = "Option::is_none")]
    valid_until: Option<String>,
    /// What was asked of each pool, and what is left in it.
    pools: Vec<PoolBody>,
    /// How it was decided.
    evaluation: Evaluation,
    /// What rules say that only warn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// Every step, where `debug` asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Vec<TraceBody>>,
}

/// An id as it is written.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
struct IntentIdText(#[schemars(with = "String")] IntentId);

/// The three answers.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[expect(dead_code, reason = "only its schema is used")]
enum AnswerWord {
    Approve,
    ApproveWithModifications,
    DenyWithReason,
}

/// What to do before acting.
#[derive(Debug, Serialize, JsonSchema)]
struct Modifications {
    /// Sleep for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait_seconds: Option<f64>,
    /// Use this credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    identity_switch: Option<String>,
}

/// What was asked of a pool, and what is left in it.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PoolHeld")]
struct PoolBody {
    /// The pool.
    pool: Arc<str>,
    /// How much was asked of it; held if the answer is an approval.
    amount: u64,
    /// Of what.
    unit: Arc<str>,
    /// What is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    /// Of how much.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// When the window ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_at: Option<String>,
}

/// How it was decided.
#[derive(Debug, Serialize, JsonSchema)]
struct Evaluation {
    /// When.
    as_of_ts: String,
    /// Why.
    risk_summary: String,
}

/// One step of a decision.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DecisionStep")]
struct TraceBody {
    /// What was looked at: `halt`, `claims`, `conduct`, `routes`, or a pool.
    policy_id: String,
    /// The rule within it.
    rule_index: Option<usize>,
    /// What was asked of it.
    condition: String,
    /// What it came to.
    result: &'static str,
    /// Why.
    reason: String,
}

impl From<Decision> for DecisionBody {
    fn from(decision: Decision) -> Self {
        let is_denied = decision.answer == Answer::DenyWithReason;
        #[expect(clippy::cast_precision_loss, reason = "a wait of minutes, in milliseconds")]
        let wait_seconds = (decision.wait_ms > 0).then_some(decision.wait_ms as f64 / 1000.0);
        let (summary, retryable) = (decision.summary(), decision.is_retryable());
        let identity_switch = decision.identity_switch;
        let modified = wait_seconds.is_some() || identity_switch.is_some();
        Self {
            intent_id: IntentIdText(decision.intent),
            decision: decision.answer.as_str(),
            status: decision.answer.as_str(),
            reason: decision.reason,
            retryable: is_denied.then_some(retryable),
            retry_at: decision.retry_at.map(rfc3339),
            modifications: modified.then_some(Modifications { wait_seconds, identity_switch }),
            valid_until: decision.valid_until.map(rfc3339),
            pools: decision
                .pools
                .into_iter()
                .map(|pool| PoolBody {
                    pool: pool.id,
                    amount: pool.amount,
                    unit: pool.unit,
                    remaining: pool.remaining,
                    limit: pool.limit,
                    reset_at: pool.reset_at.map(rfc3339),
                })
                .collect(),
            evaluation: Evaluation { as_of_ts: rfc3339(decision.as_of), risk_summary: summary },
            warnings: decision.warnings,
            trace: decision.trace.map(|steps| {
                let step = |step: tollgate_governor::TraceStep| TraceBody {
                    policy_id: step.policy_id,
                    rule_index: step.rule_index,
                    condition: step.condition,
                    result: step.result,
                    reason: step.reason,
                };
                steps.into_iter().map(step).collect()
            }),
        }
    }
}

/// A few intents.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct IntentBatch {
    /// At most ten. They are decided one by one, and others are served in between.
    #[schemars(with = "Vec<IntentBody>", length(min = 1, max = 10))]
    intents: Vec<Map<String, Value>>,
}

/// The decisions, in the order of the intents.
#[derive(Debug, Serialize, JsonSchema)]
struct Decisions {
    /// One for each intent.
    decisions: Vec<DecisionBody>,
}

/// What was really used.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Usage {
    /// The intent that was acted on. Without it, nobody had asked: then it is charged all the same, and the
    /// four names must say whose work it was.
    intent_id: Option<String>,
    /// What it took: a number, a text with units, or an amount for each pool. What was held, unless said.
    actual_cost: Option<Actual>,
    /// Nothing was done.
    cancelled: Option<bool>,
    /// The headers that the provider answered with.
    response_headers: Option<Map<String, Value>>,
    /// When the request to the provider began: milliseconds since 1970.
    began_at: Option<i64>,
    /// Who did it.
    agent_id: Option<String>,
    /// With whose credential.
    identity_id: Option<String>,
    /// What.
    workload_id: Option<String>,
    /// Where.
    scope_id: Option<String>,
}

/// What was used: as a cost, or pool by pool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "a number, a text such as \"100 points\", or whole amounts by pool such as {\"github:core\": 3}"
)]
enum Actual {
    /// By pool.
    ByPool(std::collections::BTreeMap<String, u64>),
    /// A number, or a text with units.
    Cost(Cost),
}

/// What was counted.
#[derive(Debug, Serialize, JsonSchema)]
struct Counted {
    /// The intent.
    #[serde(skip_serializing_if = "Option::is_none")]
    intent_id: Option<String>,
    /// Nobody had asked before.
    ghost: bool,
    /// Its time was over; what it held had been counted as spent.
    late: bool,
    /// What was counted in each pool.
    pools: Vec<CountedPool>,
}

/// What was counted in a pool.
#[derive(Debug, Serialize, JsonSchema)]
struct CountedPool {
    /// The pool.
    pool: Arc<str>,
    /// What was held.
    held: u64,
    /// What is counted.
    used: u64,
    /// What was reported, where it is not believed that less was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    reported: Option<u64>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let access = Access::Keyless(KeyScope::Ask);
    vec![
        endpoint(Method::POST, "/v1/intent", "submitIntent", "Ask before acting", access)
            .gives::<DecisionBody>(
                200,
                "The decision: approve, approve and wait or switch, or deny",
            )
            .serve_raw(submit),
        endpoint(
            Method::POST,
            "/v1/intents/batch",
            "submitIntents",
            "Ask for up to ten things, decided one by one",
            access,
        )
        .serve(200, "The decisions", batch),
        endpoint(Method::POST, "/v1/usage", "reportUsage", "Say what was really used", access)
            .serve(200, "What was counted", usage),
    ]
}

async fn submit(ask: Ask<Nothing, IntentJson>) -> Result<Response, Failed> {
    decide(&ask.app, &ask.principal, ask.body.0).await
}

async fn decide(app: &App, principal: &Principal, body: IntentBody) -> Result<Response, Failed> {
    let asked = body.asked(principal.asker())?;
    app.gate.governing().check_names(&asked.intent)?;
    let decision = app.gate.governing().ask(asked).await?;
    let body = serde_json::to_vec(&DecisionBody::from(decision)).unwrap_or_default();
    Ok(json(StatusCode::OK, body))
}

/// The way of an intent past the router. The same is checked in the same order as everywhere else.
pub(crate) mod direct {
    use axum::http::{Request, header};
    use hyper::body::Incoming;

    use super::{
        Access, App, Arc, Failed, IntentJson, KeyScope, Method, ReadBody, Response, decide,
    };
    use crate::{
        endpoint::{admit, read},
        reply::named,
        request::{Transport, check_content_type, principal},
    };

    const PATH: &str = "/v1/intent";

    /// Is it an intent, and nothing unusual about it? Pages go the long way.
    pub(crate) fn is_intent(request: &Request<Incoming>) -> bool {
        request.uri().path() == PATH
            && request.uri().query().is_none()
            && request.method() == Method::POST
            && !request.headers().contains_key(header::ORIGIN)
    }

    /// Answers it.
    pub(crate) async fn intent(
        app: &Arc<App>,
        request: Request<Incoming>,
        transport: Transport,
    ) -> Response {
        let id = app.request_id();
        let response = match answered(app, request, transport).await {
            Ok(response) => named(response, id),
            Err(failed) => failed.response(id),
        };
        app.count(&Method::POST, PATH, &response);
        response
    }

    async fn answered(
        app: &App,
        request: Request<Incoming>,
        transport: Transport,
    ) -> Result<Response, Failed> {
        let access = Access::Keyless(KeyScope::Ask);
        let (parts, body) = request.into_parts();
        let caller = principal(&parts, transport, &app.gate, &app.settings)?;
        admit(access, &caller, transport, app)?;
        check_content_type(&parts.method, &parts.headers)?;
        let bytes = read(app, body).await?;
        let intent = IntentJson::read(&bytes)?;
        // The body may have taken its time.
        let caller = app.gate.again(&caller);
        admit(access, &caller, transport, app)?;
        decide(app, &caller, intent.0).await
    }
}

async fn batch(ask: Ask<Nothing, Json<IntentBatch>>) -> Result<Reply<Decisions>, Failed> {
    let intents = ask.body.0.intents;
    if intents.is_empty() || intents.len() > MOST_TOGETHER {
        return Err(refuse("`intents` has 1 to 10 of them").into());
    }
    let governing = ask.app.gate.governing();
    let mut all = Vec::with_capacity(intents.len());
    for (number, members) in intents.into_iter().enumerate() {
        let read = leniently(members)
            .and_then(|body| body.asked(ask.principal.asker()))
            .and_then(|asked| governing.check_names(&asked.intent).map(|()| asked));
        all.push(read.map_err(|error| in_batch(number, &error))?);
    }
    let mut decisions = Vec::with_capacity(all.len());
    for asked in all {
        decisions.push(governing.ask(asked).await?.into());
    }
    Ok(Reply::ok(Decisions { decisions }))
}

/// Says which of several intents is wrong.
fn in_batch(number: usize, error: &Error) -> Error {
    let object = error.object(None);
    let missing = object.details.get("missing_required_fields").and_then(Value::as_array);
    let missing = missing.into_iter().flatten().filter_map(Value::as_str);
    let missing: Vec<String> = missing.map(|name| format!("intents[{number}].{name}")).collect();
    let problem = if missing.is_empty() {
        format!("intents[{number}]: {}", object.message)
    } else {
        "required fields are missing".to_owned()
    };
    InvalidRequest::new(Clean::new(&problem), missing).into()
}

async fn usage(ask: Ask<Nothing, Json<Usage>>) -> Result<Reply<Counted>, Failed> {
    let governing = ask.app.gate.governing();
    let report = ask.body.0.report(&ask.principal, governing.now_ms())?;
    for (what, name) in report.work.iter().flat_map(|names| REQUIRED.iter().zip(names)) {
        governing.check_name(what, name)?;
    }
    let event = governing.report(report).await?;
    Ok(Reply::ok(Counted::of(&event)))
}

impl Usage {
    fn report(self, principal: &Principal, now: i64) -> Result<UsageReport, Error> {
        let asker = principal.asker();
        let intent = match &self.intent_id {
            Some(text) => Some(intent_id("intent_id", text)?),
            None => None,
        };
        // Whoever has no key cannot charge others for what nobody asked.
        if intent.is_none() && asker.is_keyless {
            return Err(MissingApiKey::new(None).into());
        }
        let work = match intent {
            Some(_) => None,
            None => {
                Some(names([self.agent_id, self.identity_id, self.workload_id, self.scope_id])?)
            }
        };
        if let Some([agent, identity, ..]) = &work
            && !(asker.may_be(agent) && asker.may_use(identity))
        {
            return Err(refuse("the key may not speak for this agent or identity"));
        }
        let (by_pool, actual) = match self.actual_cost {
            Some(Actual::ByPool(pools)) => (pools.into_iter().collect(), Expected::UNKNOWN),
            Some(Actual::Cost(cost)) => (Vec::new(), cost.0),
            None => (Vec::new(), Expected::UNKNOWN),
        };
        if by_pool.iter().any(|(_, amount)| *amount > LARGEST_AMOUNT) {
            return Err(refuse(&format!("an amount is at most {LARGEST_AMOUNT}")));
        }
        let headers = self.response_headers.unwrap_or_default();
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let headers: Vec<(&str, String)> = headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str(), text(value)?)))
            .collect();
        let learned =
            from_headers(headers.iter().map(|(name, value)| (*name, value.as_str())), now);
        Ok(UsageReport {
            asker,
            is_trusted: false,
            intent,
            work,
            by_pool,
            actual,
            nothing: self.cancelled.unwrap_or(false),
            seen: observations(&learned),
            began_at: self.began_at,
        })
    }
}

impl Counted {
    fn of(event: &Event) -> Self {
        let intent_id = event.about.intent.map(|intent| intent.to_string());
        let Effect::Used(used) = &event.effect else {
            return Self { intent_id, ghost: false, late: false, pools: Vec::new() };
        };
        let pools = used
            .pools
            .iter()
            .map(|spent| CountedPool {
                pool: Arc::clone(&spent.pool),
                held: spent.held,
                used: spent.used,
                reported: spent.reported,
            })
            .collect();
        Self { intent_id, ghost: used.ghost, late: used.late, pools }
    }
}
