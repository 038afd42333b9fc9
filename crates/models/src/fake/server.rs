//! A script as a server, for the clients that talk to real ones.

use std::{io, net::SocketAddr};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    script::Script,
    stage::{Seen, Stage, What},
};

/// The largest request.
const LARGEST: usize = 32 * 1024 * 1024;

/// A server that plays a script. It ends when this is dropped.
pub struct FakeModel {
    address: SocketAddr,
    stage: Stage,
    task: JoinHandle<io::Result<()>>,
}

impl FakeModel {
    /// Starts a server at an address; port 0 is one that is free.
    pub async fn start(script: Script, address: SocketAddr) -> io::Result<(SocketAddr, Self)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let stage = Stage::new(script, CancellationToken::new());
        let task = tokio::spawn(play(stage.clone(), listener));
        Ok((address, Self { address, stage, task }))
    }

    /// Where it is reached, as a model of the kind `openai` has it.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What it was asked, newest last.
    pub fn requests(&self) -> Vec<Seen> {
        self.stage.seen()
    }

    /// Ends it, and everything that hangs.
    pub async fn stop(mut self) {
        self.stage.over().cancel();
        _ = (&mut self.task).await;
    }
}

impl Drop for FakeModel {
    fn drop(&mut self) {
        self.stage.over().cancel();
    }
}

/// Plays a script for whoever comes, until it is told to end.
pub async fn serve(
    script: Script,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> io::Result<()> {
    play(Stage::new(script, shutdown), listener).await
}

async fn play(stage: Stage, listener: TcpListener) -> io::Result<()> {
    let over = stage.over().clone();
    let routes = Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/messages", post(messages))
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/models", get(models))
        .route("/requests", get(requests))
        .with_state(stage);
    tokio::select! {
        served = async { axum::serve(listener, routes).await } => served,
        () = over.cancelled() => Ok(()),
    }
}

async fn chat(State(stage): State<Stage>, request: Request) -> Response {
    answered(&stage, What::Chat, request).await
}

async fn messages(State(stage): State<Stage>, request: Request) -> Response {
    answered(&stage, What::Messages, request).await
}

async fn embeddings(State(stage): State<Stage>, request: Request) -> Response {
    answered(&stage, What::Embeddings, request).await
}

async fn models(State(stage): State<Stage>) -> Response {
    let list = json!({"object": "list", "data": [{"id": stage.model(), "object": "model"}]});
    plain(StatusCode::OK, &list)
}

async fn requests(State(stage): State<Stage>) -> Response {
    match serde_json::to_value(stage.seen()) {
        Ok(seen) => plain(StatusCode::OK, &seen),
        Err(error) => no(&error.to_string()),
    }
}

async fn answered(stage: &Stage, what: What, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(bytes) = to_bytes(body, LARGEST).await else { return no("the request is too large") };
    let body: Value = match serde_json::from_slice(&bytes) {
        Ok(body) => body,
        Err(error) => return no(&format!("the request is no JSON: {error}")),
    };
    let key = ["authorization", "x-api-key"].iter().any(|name| head.headers.contains_key(*name));
    let performance = stage.play(what, head.uri.path(), body, key);
    tokio::time::sleep(performance.delay).await;
    let mut response = Response::builder().status(performance.status);
    let named = |name: &str| performance.headers.iter().any(|(known, _)| known == name);
    if !named(CONTENT_TYPE.as_str()) {
        response = response.header(CONTENT_TYPE, performance.content_type);
    }
    for (name, value) in &performance.headers {
        response = response.header(name, value);
    }
    let body = Body::from_stream(performance.body.stream());
    response.body(body).unwrap_or_else(|error| no(&error.to_string()))
}

fn no(problem: &str) -> Response {
    plain(StatusCode::BAD_REQUEST, &json!({"error": {"message": problem}}))
}

fn plain(status: StatusCode, body: &Value) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}
