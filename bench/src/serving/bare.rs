//! The server to compare with: the product's axum and hyper, one handler that reads the body and one
//! that reads nothing, and answers that were made beforehand. No key, no record, no limits.

use std::{error::Error, fs, io::Write, path::Path, sync::Arc};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use hyper::{Request, body::Incoming, server::conn::http1, service::Service, service::service_fn};
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::net::TcpListener;

use super::answer::Answer;

/// What a call's body holds.
#[derive(Deserialize)]
struct NewCall {
    input: Map<String, Value>,
}

/// What an intent's body holds, as somebody would write it down who knows it.
#[derive(Deserialize)]
#[expect(dead_code, reason = "read and not used, as a handler that does nothing would")]
struct NewIntent {
    agent_id: String,
    identity_id: String,
    workload_id: String,
    scope_id: String,
    urgency: Option<String>,
    expected_cost: Option<f64>,
}

/// An answer that is ready to be sent, head and body.
#[derive(Clone)]
struct Ready {
    headers: HeaderMap,
    body: Bytes,
}

impl Ready {
    fn read(file: &Path) -> Result<Self, Box<dyn Error>> {
        let answer = Answer::read(&fs::read(file)?)?;
        let mut headers = HeaderMap::new();
        for (name, value) in answer.headers {
            // These two hyper writes itself.
            if !["content-length", "date"].contains(&name.as_str()) {
                headers.insert(HeaderName::try_from(name)?, HeaderValue::try_from(value)?);
            }
        }
        Ok(Self { headers, body: answer.body.into() })
    }
}

impl IntoResponse for Ready {
    fn into_response(self) -> Response {
        (self.headers, Body::from(self.body)).into_response()
    }
}

/// Serves until it is killed. It says on the standard output where it listens, as the product does.
pub(crate) fn serve(call: &Path, manifest: &Path) -> Result<(), Box<dyn Error>> {
    let (call, manifest) = (Ready::read(call)?, Ready::read(manifest)?);
    let called = async move |body: Bytes| match serde_json::from_slice::<NewCall>(&body) {
        Ok(asked) if asked.input.is_empty() => call.clone().into_response(),
        _ => StatusCode::BAD_REQUEST.into_response(),
    };
    let router = Router::new()
        .route("/v1/tools/{name}/call", post(called))
        .route("/api/contracts/tools", get(async move || manifest.clone()));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(accept(router))
}

/// The same for intents: each is answered with what is in the file that has the name of its work.
pub(crate) fn serve_intents(answers: &Path) -> Result<(), Box<dyn Error>> {
    let mut ready = Vec::new();
    for file in fs::read_dir(answers)? {
        let file = file?;
        let name = file.file_name().into_string().map_err(|_| "a file without a name")?;
        ready.push((name, Ready::read(&file.path())?));
    }
    let ready = Arc::new(ready);
    let asked = async move |body: Bytes| {
        let Ok(intent) = serde_json::from_slice::<NewIntent>(&body) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        match ready.iter().find(|(name, _)| *name == intent.workload_id) {
            Some((_, answer)) => answer.clone().into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    };
    let router = Router::new().route("/v1/intent", post(asked));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(accept(router))
}

async fn accept(router: Router) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let router = router.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            TowerToHyperService::new(router.clone()).call(request.map(Body::new))
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // A client that goes away is none of our business here.
        tokio::spawn(async move { drop(connection.await) });
    }
}
