//! The server: what its handlers share, how it starts, and how it stops.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tollgate_agent::runtime::Runtime;
use tollgate_contract::{Error, error::NotFound, id::RequestId};
use tollgate_gate::Gate;
use tollgate_ledger::Queries;
use tollgate_outbound::AddressGuard;

use crate::{
    api,
    endpoint::{Endpoint, router},
    listen::{self, Listening},
    openapi,
    reply::Failed,
    request::{Transport, decoded, principal, refuse},
    webhooks,
};

/// How long the answers to cancelled calls may take.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How much of one client is borne, and who is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Most bytes of a body.
    pub max_body_bytes: usize,
    /// Most bytes of the headers.
    pub max_header_bytes: usize,
    /// Most connections at a time.
    pub max_connections: usize,
    /// How long the headers of a request may take.
    pub header_timeout: Duration,
    /// How long its body may take.
    pub body_timeout: Duration,
    /// How long a client may stop reading what it asked for.
    pub stalled_after: Duration,
    /// How long calls may go on when the server stops.
    pub stop_grace: Duration,
    /// Names of this gate beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Origins of pages that may use this gate beside its own.
    pub allowed_origins: Vec<String>,
    /// Where webhooks may go.
    pub webhook_guard: AddressGuard,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_body_bytes: 1024 * 1024,
            max_header_bytes: 16 * 1024,
            max_connections: 1024,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            stalled_after: Duration::from_secs(30),
            stop_grace: Duration::from_secs(30),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            webhook_guard: AddressGuard::default(),
        }
    }
}

/// Asks whoever owns the configuration to read it again; the answer says what is wrong with it.
pub type Reload = mpsc::Sender<oneshot::Sender<Result<(), String>>>;

/// What every handler has.
pub(crate) struct App {
    pub(crate) reload: Option<Reload>,
    // Before the gate, whose ledger closes the database last.
    pub(crate) queries: Queries,
    pub(crate) gate: Gate,
    pub(crate) agents: Runtime,
    /// Whoever changes what a session runs with has it.
    pub(crate) settings_turn: Arc<tokio::sync::Mutex<()>>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) since: Instant,
    /// The last event that is stored.
    pub(crate) head: watch::Receiver<u64>,
    pub(crate) stopping: CancellationToken,
    pub(crate) metrics: Registry,
    pub(crate) manifest: api::ServedManifest,
    pub(crate) openapi: Vec<u8>,
    requests: Family<RequestLabels, Counter>,
    pub(crate) streams: Gauge,
    ids: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: &'static str,
    status: u16,
}

impl App {
    /// A name for the next request.
    pub(crate) fn request_id(&self) -> RequestId {
        // It need not be a secret, only unique: time, this process's start, and a number.
        let at = u64::try_from(self.gate.clock().now_ms()).unwrap_or_default();
        let [a, b, c, d, e, f, g, h] = self.ids.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let [.., y, z] = std::process::id().to_be_bytes();
        RequestId::from_parts(at, [y, z, a, b, c, d, e, f, g, h])
    }
}

/// A server that is ready to serve.
pub struct Server {
    app: Arc<App>,
    router: Router,
    head: watch::Sender<u64>,
}

impl Server {
    /// A server over this gate and its agents. Without `reload` nobody can ask for the configuration to be read again.
    pub fn new(
        gate: Gate,
        agents: Runtime,
        settings: Settings,
        reload: Option<Reload>,
    ) -> Result<Self, Error> {
        let mut metrics = Registry::default();
        gate.metrics().register(&mut metrics);
        let requests = Family::default();
        metrics.register(
            "tollgate_http_requests",
            "HTTP requests by method, route and status",
            Family::clone(&requests),
        );
        let streams = Gauge::default();
        metrics.register("tollgate_streams", "Event streams that are open", streams.clone());
        let (head, heard) = watch::channel(gate.ledger().head().seq);
        let endpoints = api::endpoints();
        let queries = gate.ledger().queries()?;
        let app = Arc::new(App {
            reload,
            manifest: api::ServedManifest::of(gate.manifest()),
            queries,
            gate,
            agents,
            settings_turn: Arc::default(),
            settings: Arc::new(settings),
            since: Instant::now(),
            head: heard,
            stopping: CancellationToken::new(),
            metrics,
            openapi: serde_json::to_vec(&openapi::document(&endpoints)).unwrap_or_default(),
            requests,
            streams,
            ids: AtomicU64::new(1),
        });
        let router = whole(&endpoints, &app);
        Ok(Self { app, router, head })
    }

    /// Serves until `stop` is cancelled. Then nothing new is taken, what runs may finish for a while, and
    /// what still runs after that is cancelled and recorded as such.
    pub async fn serve(self, listening: Vec<Listening>, stop: CancellationToken) {
        let head = self.head;
        self.app.gate.ledger().on_commit(move |at| {
            head.send_replace(at.seq);
        });
        let settings = Arc::clone(&self.app.settings);
        let delivering = tokio::spawn(webhooks::deliver(Arc::clone(&self.app)));
        let connections = listen::serve(listening, self.router, Arc::clone(&self.app), stop).await;
        // Streams of events have no end of their own.
        self.app.stopping.cancel();
        let finishing = connections.shutdown();
        tokio::pin!(finishing);
        // Every call belongs to a request, and every request to a connection. Turns are cancelled and saved, so that
        // they can be gone on with.
        let agents = self.app.agents.clone();
        let both = async { tokio::join!(agents.drain(), &mut finishing) };
        let in_time = tokio::time::timeout(settings.stop_grace, both).await.is_ok();
        self.app.gate.drain(Duration::ZERO).await;
        let _ = tokio::time::timeout(LAST_ANSWERS, delivering).await;
        if !in_time {
            // The calls were cancelled; their answers are on their way.
            let _ = tokio::time::timeout(LAST_ANSWERS, finishing).await;
        }
    }
}

/// Every route, and what surrounds them.
fn whole(endpoints: &[Endpoint], app: &Arc<App>) -> Router {
    let router = router(endpoints).method_not_allowed_fallback(not_allowed).fallback(not_found);
    let router = if app.settings.allowed_origins.is_empty() {
        router
    } else {
        router.layer(middleware::from_fn_with_state(Arc::clone(app), cross_origin))
    };
    router.with_state(Arc::clone(app))
}

/// Tells a browser that pages of an allowed origin may use the gate. Other pages are told nothing, and are
/// refused besides.
async fn cross_origin(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut origins = request.headers().get_all(header::ORIGIN).iter();
    let origin = origins.next().filter(|_| origins.next().is_none()).cloned();
    let is_allowed = |origin: &HeaderValue| {
        app.settings.allowed_origins.iter().any(|allowed| allowed.as_bytes() == origin.as_bytes())
    };
    let Some(origin) = origin.filter(is_allowed) else { return next.run(request).await };
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight {
        let (parts, _) = request.into_parts();
        if let Err(error) = principal(&parts, Transport::of(&parts), &app.gate, &app.settings) {
            return Failed::from(error).response(app.request_id());
        }
        let allowed = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE"),
            (
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                "authorization, content-type, idempotency-key, last-event-id",
            ),
            (header::ACCESS_CONTROL_MAX_AGE, "600"),
        ];
        (StatusCode::NO_CONTENT, allowed).into_response()
    } else {
        next.run(request).await
    };
    let shown = HeaderValue::from_static(
        "x-request-id, retry-after, idempotency-replayed, x-tollgate-call-id, x-tollgate-run-id",
    );
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, shown);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

impl App {
    /// Counts an answer.
    pub(crate) fn count(&self, method: &Method, route: &'static str, response: &Response) {
        let method = match *method {
            Method::GET => "GET",
            Method::POST => "POST",
            Method::PUT => "PUT",
            Method::DELETE => "DELETE",
            // A caller can make up methods; it cannot make up labels.
            _ => "OTHER",
        };
        let status = response.status().as_u16();
        self.requests.get_or_create(&RequestLabels { method, route, status }).inc();
    }
}

/// Checks what every request is checked for, and gives the error that it then gets.
fn checked(app: &App, request: Request, failed: Failed) -> Response {
    let (parts, _) = request.into_parts();
    let method = parts.method.clone();
    let failed = match principal(&parts, Transport::of(&parts), &app.gate, &app.settings) {
        Ok(_) => failed,
        Err(error) => error.into(),
    };
    let response = failed.response(app.request_id());
    app.count(&method, "none", &response);
    response
}

async fn not_found(State(app): State<Arc<App>>, request: Request) -> Response {
    // As it is meant, so that a secret in it has the form of one.
    let path = NotFound::new("path", decoded(request.uri().path()));
    checked(&app, request, Error::from(path).into())
}

async fn not_allowed(State(app): State<Arc<App>>, request: Request) -> Response {
    let problem = "this path does not know this method; the header `Allow` says which it knows";
    let failed = Failed::from(refuse(problem)).with_status(StatusCode::METHOD_NOT_ALLOWED);
    checked(&app, request, failed)
}
