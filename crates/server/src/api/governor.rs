//! What the governor owns: pools, identities, and what is stopped.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tollgate_contract::{
    Error, KeyScope,
    error::{Internal, NotFound},
    id::KeyId,
};
use tollgate_gate::{Gate, HaltDone, HaltTarget, MetCall, PoolReading, Principal, rfc3339};
use tollgate_governor::{Halt, Named, Target, Window};

use crate::{
    endpoint::{Access, Ask, Endpoint, Json, Nothing, endpoint},
    reply::{Failed, Reply},
    request::refuse,
};

/// All pools.
#[derive(Debug, Serialize, JsonSchema)]
struct Pools {
    /// One for each key that a pool is counted for; a pool that nobody has used yet once.
    pools: Vec<PoolShown>,
}

/// A pool, as it is counted for one key.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Pool")]
struct PoolShown {
    /// The pool.
    id: Arc<str>,
    /// For whom it is counted: the credential, agent, scope or account.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    /// `global`, `identity`, `agent`, `scope` or `account`.
    per: &'static str,
    /// What is counted.
    unit: Arc<str>,
    /// `fixed`, `sliding`, `bucket`, `calendar`, `concurrency` or `provider`.
    window: &'static str,
    /// Is it never over?
    hard: bool,
    /// How much there is; unknown while a provider has not said.
    limit: Option<u64>,
    /// What was spent and still counts.
    used: u64,
    /// What of it nobody has confirmed.
    estimated: u64,
    /// What is held now by approvals that are not settled.
    held: u64,
    /// What is held for later.
    booked: u64,
    /// What is left now.
    left: Option<u64>,
    /// When the window ends; for a bucket, when it is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_at: Option<String>,
    /// When the provider has last reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    reported_at: Option<String>,
}

impl From<PoolReading> for PoolShown {
    fn from(PoolReading { pool, key, reading }: PoolReading) -> Self {
        let window = match pool.window {
            Window::Fixed { .. } => "fixed",
            Window::Sliding { .. } => "sliding",
            Window::Bucket { .. } => "bucket",
            Window::Calendar(_) => "calendar",
            Window::Concurrency => "concurrency",
            Window::Provider { .. } => "provider",
        };
        Self {
            id: Arc::clone(&pool.id),
            key,
            per: pool.per.as_str(),
            unit: Arc::clone(&pool.unit),
            window,
            hard: pool.hard,
            limit: reading.limit,
            used: reading.used,
            estimated: reading.estimated,
            held: reading.held,
            booked: reading.booked,
            left: reading.left,
            reset_at: reading.reset_at.map(rfc3339),
            reported_at: reading.reported_at.map(rfc3339),
        }
    }
}

/// A credential that is to be known.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewIdentity {
    /// Its name, such as `pat:me`. Never the credential itself.
    #[schemars(length(min = 1, max = 200), regex(pattern = r"^[^\x00-\x1f\x7f-\x9f]*$"))]
    identity_id: String,
    /// `user`, `service` or `bot`.
    #[serde(default)]
    kind: Option<IdentityKind>,
    /// Credentials of one group can stand in for each other.
    #[serde(default)]
    #[schemars(length(min = 1, max = 200))]
    group: Option<String>,
    /// Whatever should be kept with it, up to 4 KiB.
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

/// What a credential belongs to.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum IdentityKind {
    User,
    Service,
    Bot,
}

/// A credential.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Identity")]
struct IdentityShown {
    /// Its name.
    identity_id: String,
    /// How it is called in events.
    pseudonym: Arc<str>,
    /// `user`, `service` or `bot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Credentials of one group can stand in for each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// What is kept with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Value>,
    /// When it was first named.
    since: String,
}

impl From<&Named> for IdentityShown {
    fn from(named: &Named) -> Self {
        Self {
            identity_id: named.name.clone(),
            pseudonym: Arc::clone(&named.pseudonym),
            kind: named.kind.clone(),
            group: named.group.clone(),
            metadata: named.metadata.clone(),
            since: rfc3339(named.since_ms),
        }
    }
}

/// A credential that was registered.
#[derive(Debug, Serialize, JsonSchema)]
struct Registered {
    /// The credential.
    #[serde(flatten)]
    identity: IdentityShown,
    /// `registered`.
    status: &'static str,
}

/// All credentials.
#[derive(Debug, Serialize, JsonSchema)]
struct Identities {
    /// In the order of their names.
    identities: Vec<IdentityShown>,
}

/// What to stop, or to let go on: one of these, or everything where none is named.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct What {
    /// An agent.
    #[serde(deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    agent: Option<String>,
    /// An API key, by its id or its name.
    #[serde(deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    key: Option<String>,
    /// A tool.
    #[serde(deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    tool: Option<String>,
    /// A credential.
    #[serde(deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    identity: Option<String>,
    /// A kind of work, or a tool.
    #[serde(deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    workload: Option<String>,
    /// A place.
    #[serde(deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    scope: Option<String>,
    /// A pool.
    #[serde(deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1, max = 200))]
    pool: Option<String>,
    /// Why, for whoever asks later.
    #[schemars(length(max = 200))]
    reason: Option<String>,
}

/// A name that is there is a name: one that is null would stop everything.
fn said<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    String::deserialize(deserializer).map(Some)
}

/// What came of it.
#[derive(Debug, Serialize, JsonSchema)]
struct Halted {
    /// False if it was so already.
    changed: bool,
    /// All that is stopped now.
    halts: Vec<HaltShown>,
    /// Calls that were under way and were stopped.
    stopped: Vec<MetCall>,
    /// Calls that were under way and would not stop.
    not_stopped: Vec<MetCall>,
}

/// Something that is stopped.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Halt")]
struct HaltShown {
    /// What: `all`, or a kind and a name such as `agent:crawler-01`.
    what: String,
    /// The key that wanted it.
    by: Arc<str>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let (read, admin) = (Access::Scope(KeyScope::Read), Access::Scope(KeyScope::Admin));
    vec![
        endpoint(
            Method::GET,
            "/v1/pools",
            "listPools",
            "What is used, held, booked and left",
            read,
        )
        .serve(200, "The pools", pools),
        endpoint(Method::GET, "/v1/identities", "listIdentities", "All credentials", read).serve(
            200,
            "The credentials",
            identities,
        ),
        endpoint(
            Method::POST,
            "/v1/identities",
            "registerIdentity",
            "Make a credential known, or change what is known of it",
            admin,
        )
        .gives::<Registered>(200, "What is known of it was changed")
        .serve(201, "It is known now", register),
        endpoint(
            Method::DELETE,
            "/v1/identities/{id}",
            "deleteIdentity",
            "Forget a credential: its name, and all free text that came with its intents",
            admin,
        )
        .answers(204, "It is forgotten", "")
        .serve_raw(delete),
        endpoint(Method::GET, "/v1/halts", "listHalts", "What is stopped", read).serve(
            200,
            "All that is stopped",
            halts,
        ),
        endpoint(
            Method::POST,
            "/v1/reload",
            "reload",
            "Read policies, pools, routes and rules again; what does not load changes nothing",
            admin,
        )
        .serve(200, "They hold now", reload),
        endpoint(Method::POST, "/v1/halt", "halt", "Stop everything, or one thing", admin).serve(
            200,
            "It is stopped",
            async |ask| halt(ask, false).await,
        ),
        endpoint(Method::POST, "/v1/resume", "resume", "Let it go on", admin).serve(
            200,
            "It goes on",
            async |ask| halt(ask, true).await,
        ),
    ]
}

async fn pools(ask: Ask<Nothing, Nothing>) -> Result<Reply<Pools>, Failed> {
    let pools = ask.app.gate.governing().pools().into_iter().map(PoolShown::from).collect();
    Ok(Reply::ok(Pools { pools }))
}

async fn identities(ask: Ask<Nothing, Nothing>) -> Result<Reply<Identities>, Failed> {
    let all = ask.app.gate.governing().identities();
    Ok(Reply::ok(Identities { identities: all.iter().map(|named| (&**named).into()).collect() }))
}

async fn register(ask: Ask<Nothing, Json<NewIdentity>>) -> Result<Reply<Registered>, Failed> {
    let governing = ask.app.gate.governing();
    let NewIdentity { identity_id, kind, group, metadata } = ask.body.0;
    name("identity_id", &identity_id)?;
    governing.check_name("identity_id", &identity_id)?;
    if let Some(group) = &group {
        name("group", group)?;
        governing.check_name("group", group)?;
    }
    let metadata = metadata.map(Value::Object);
    if metadata.as_ref().is_some_and(|metadata| metadata.to_string().len() > 4096) {
        return Err(refuse("`metadata` has at most 4096 bytes").into());
    }
    let metadata =
        metadata.map(|metadata| tollgate_contract::redact::redacted(&metadata).into_owned());
    let kind = kind.map(|kind| {
        let word = match kind {
            IdentityKind::User => "user",
            IdentityKind::Service => "service",
            IdentityKind::Bot => "bot",
        };
        word.to_owned()
    });
    let (named, is_new) = governing.register(identity_id, kind, group, metadata).await?;
    let body = Registered { identity: (&*named).into(), status: "registered" };
    Ok(if is_new { Reply::created(body) } else { Reply::ok(body) })
}

fn name(what: &str, text: &str) -> Result<(), Error> {
    let is_plain = text.chars().all(tollgate_contract::text::is_plain);
    if text.is_empty() || text.len() > 200 || !is_plain {
        let problem = format!("`{what}` has 1 to 200 bytes, none that a terminal would act on");
        return Err(refuse(&problem));
    }
    Ok(())
}

/// Who wants something, as events name it.
fn by(principal: &Principal) -> Arc<str> {
    Arc::clone(&principal.asker().key)
}

async fn delete(ask: Ask<Nothing, Nothing>) -> Result<axum::response::Response, Failed> {
    let id = ask.part("id").to_owned();
    ask.app.gate.governing().delete_identity(id, by(&ask.principal)).await?;
    Ok(axum::response::IntoResponse::into_response(StatusCode::NO_CONTENT))
}

/// What holds now.
#[derive(Debug, Serialize, JsonSchema)]
struct Reloaded {
    /// How many pools there are.
    pools: usize,
    /// How many rules.
    rules: usize,
}

async fn reload(ask: Ask<Nothing, Nothing>) -> Result<Reply<Reloaded>, Failed> {
    let Some(reload) = &ask.app.reload else {
        return Err(refuse("this gate has no configuration that could be read again").into());
    };
    let (tell, told) = oneshot::channel();
    let gone = || Internal::new("the configuration's owner is gone");
    reload.send(tell).await.map_err(|_| Error::from(gone()))?;
    told.await.map_err(|_| Error::from(gone()))?.map_err(|problem| refuse(&problem))?;
    let setup = ask.app.gate.governing().setup();
    let (pools, rules) = (setup.pools().len(), setup.rules().all().len());
    Ok(Reply::ok(Reloaded { pools, rules }))
}

async fn halts(ask: Ask<Nothing, Nothing>) -> Result<Reply<Halted>, Failed> {
    Ok(Reply::ok(Halted::now(&ask.app.gate, HaltDone::default())))
}

fn shown(gate: &tollgate_gate::Gate) -> Vec<HaltShown> {
    let governing = gate.governing();
    let word = |target: &Target| match target {
        Target::All => "all".to_owned(),
        Target::Agent(name) => format!("agent:{name}"),
        Target::Key(id) => {
            let named = KeyId::parse(id).ok().and_then(|id| gate.key(id).ok());
            format!("key:{}", named.map_or(id.to_string(), |key| key.name))
        }
        Target::Identity(pseudonym) => {
            let name = governing.identity_name(pseudonym);
            format!("identity:{}", name.unwrap_or_else(|| pseudonym.to_string()))
        }
        Target::Workload(name) => format!("workload:{name}"),
        Target::Scope(name) => format!("scope:{name}"),
        Target::Pool(name) => format!("pool:{name}"),
    };
    let shown = |halt: Halt| HaltShown {
        what: word(&halt.target),
        by: halt.by,
        reason: halt.why.map(Into::into),
    };
    governing.halts().into_iter().map(shown).collect()
}

impl Halted {
    fn now(gate: &Gate, done: HaltDone) -> Self {
        let HaltDone { changed, stopped, not_stopped } = done;
        Self { changed, halts: shown(gate), stopped, not_stopped }
    }
}

async fn halt(ask: Ask<Nothing, Json<What>>, resumes: bool) -> Result<Reply<Halted>, Failed> {
    let (app, principal) = (ask.app, ask.principal);
    let (target, reason) = target(&app.gate, ask.body.0, resumes)?;
    let gate = &app.gate;
    let done = if resumes {
        let changed = gate.governing().halt(target, by(&principal), reason, true).await?;
        HaltDone { changed, ..HaltDone::default() }
    } else {
        gate.halt(target, by(&principal), reason).await?
    };
    Ok(Reply::ok(Halted::now(gate, done)))
}

/// One thing that a request names.
enum NamedThing {
    Agent(String),
    Key(String),
    Tool(String),
    Identity(String),
    Workload(String),
    Scope(String),
    Pool(String),
}

impl NamedThing {
    /// What kind of thing it is, and its name.
    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Agent(name) => ("agent", name),
            Self::Key(name) => ("key", name),
            Self::Tool(name) => ("tool", name),
            Self::Identity(name) => ("identity", name),
            Self::Workload(name) => ("workload", name),
            Self::Scope(name) => ("scope", name),
            Self::Pool(name) => ("pool", name),
        }
    }

    /// The same, as the governor knows it.
    fn target(self, gate: &Gate, resumes: bool) -> Result<HaltTarget, Error> {
        Ok(HaltTarget::Target(match self {
            Self::Agent(name) => Target::Agent(name.into()),
            Self::Key(name) => Target::Key(key_named(gate, &name)?.to_string().into()),
            // A name that is no tool would stop nothing, and nobody would notice.
            Self::Tool(name) => {
                Target::Workload(gate.manifest().resolve(&name)?.name.as_str().into())
            }
            Self::Identity(name) => return Ok(HaltTarget::IdentityNamed(name)),
            Self::Workload(name) => Target::Workload(name.into()),
            Self::Scope(name) => Target::Scope(name.into()),
            Self::Pool(name) => {
                if gate.governing().setup().by_id(&name).is_none() && !resumes {
                    return Err(refuse("there is no such pool; `tollgate pools` lists them"));
                }
                Target::Pool(name.into())
            }
        }))
    }
}

/// What is meant, and why.
fn target(gate: &Gate, what: What, resumes: bool) -> Result<(HaltTarget, Option<String>), Error> {
    let What { agent, key, tool, identity, workload, scope, pool, reason } = what;
    if let Some(reason) = &reason {
        name("reason", reason)?;
    }
    let reason = reason.map(|text| tollgate_contract::redact::redact_text(&text).into_owned());
    let named = [
        agent.map(NamedThing::Agent),
        key.map(NamedThing::Key),
        tool.map(NamedThing::Tool),
        identity.map(NamedThing::Identity),
        workload.map(NamedThing::Workload),
        scope.map(NamedThing::Scope),
        pool.map(NamedThing::Pool),
    ];
    let mut given = named.into_iter().flatten();
    let Some(thing) = given.next() else {
        return Ok((HaltTarget::Target(Target::All), reason));
    };
    if given.next().is_some() {
        return Err(refuse(
            "one thing at a time: name one of agent, key, tool, identity, workload, scope, pool, or none for everything",
        ));
    }
    let (kind, text) = thing.parts();
    name(kind, text)?;
    gate.governing().check_name(kind, text)?;
    Ok((thing.target(gate, resumes)?, reason))
}

/// The key that goes by this id or name.
pub(super) fn key_named(gate: &Gate, text: &str) -> Result<KeyId, Error> {
    if let Ok(id) = KeyId::parse(text) {
        return gate.key(id).map(|key| key.account());
    }
    let now = gate.clock().now_ms();
    let keys = gate.keys();
    let mut named = keys
        .iter()
        .map(|(key, _)| key)
        .filter(|key| key.name == text && !key.is_token() && key.is_active(now));
    match (named.next(), named.next()) {
        (Some(only), None) => Ok(only.key_id),
        (None, _) => Err(NotFound::new("key", text.to_owned()).into()),
        _ => Err(refuse("several keys have this name; use the id that `tollgate key list` shows")),
    }
}
