//! Fake models, servers that answer with bytes, and a gate with the tools.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;
use tollgate_models::{
    ChatRequest, ChatResponse, Collector, Delta, Kind, Message, Model, ModelConfig, ModelError,
    Models, Role, ToolSpec,
    fake::{FakeModel, Script},
};

pub(crate) const KEY: &str = "a-key-that-nobody-may-see-0123456789";

pub(crate) fn script(replies: Value) -> Script {
    Script::parse(&json!({"replies": replies}).to_string()).unwrap()
}

/// A fake model that gives these replies.
pub(crate) async fn fake(replies: Value) -> FakeModel {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    FakeModel::start(script(replies), any).await.unwrap().1
}

pub(crate) fn openai(url: &str) -> ModelConfig {
    ModelConfig { model: Some("fake".to_owned()), ..ModelConfig::at(url) }
}

pub(crate) fn anthropic(url: &str) -> ModelConfig {
    ModelConfig { kind: Kind::Anthropic, ..openai(url) }
}

/// One model, and an environment with a key in `TEST_KEY`.
pub(crate) fn models(config: ModelConfig) -> Models {
    let configs = BTreeMap::from([("main".to_owned(), config)]);
    let environment = |name: &str| (name == "TEST_KEY").then(|| KEY.to_owned());
    Models::with_environment(configs, None, Arc::new(environment)).unwrap()
}

pub(crate) fn model(config: ModelConfig) -> Arc<Model> {
    models(config).get(None, None).unwrap()
}

pub(crate) fn says(text: &str) -> ChatRequest {
    let messages = vec![Message::new(Role::System, "be brief"), Message::new(Role::User, text)];
    ChatRequest { messages, max_tokens: 100, ..ChatRequest::default() }
}

pub(crate) fn tool(name: &str) -> ToolSpec {
    let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    ToolSpec { name: name.to_owned(), description: "reads".to_owned(), parameters }
}

/// All pieces of a streamed answer, and how it ended.
pub(crate) async fn streamed(
    model: &Model,
    request: ChatRequest,
) -> (Vec<Delta>, Result<ChatResponse, ModelError>) {
    let mut deltas = model.backend().stream_chat(request, CancellationToken::new());
    let mut collector = Collector::default();
    let mut pieces = Vec::new();
    while let Some(delta) = deltas.next().await {
        match delta.and_then(|delta| collector.push(&delta).map(|()| delta)) {
            Ok(delta) => pieces.push(delta),
            Err(error) => return (pieces, Err(error)),
        }
    }
    (pieces, Ok(collector.finish()))
}

/// What came of a question, streamed.
pub(crate) async fn ask(config: ModelConfig, text: &str) -> Result<ChatResponse, ModelError> {
    streamed(&model(config), says(text)).await.1
}

/// Waits until something holds.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it never happened");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A server that answers every request with the same bytes.
pub(crate) struct Raw {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    /// How many went away before the answer was over.
    pub(crate) left: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// What a server sends.
#[derive(Clone)]
pub(crate) enum Sends {
    /// These bytes, and the end.
    Bytes(Vec<u8>),
    /// These bytes, and then these others again and again.
    Endless(Vec<u8>, Vec<u8>),
    /// These bytes, and then nothing more.
    Silent(Vec<u8>),
}

impl Raw {
    pub(crate) async fn start(sends: Sends) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let left = Arc::new(AtomicUsize::new(0));
        let (seen, leaving) = (Arc::clone(&requests), Arc::clone(&left));
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(
                    stream,
                    sends.clone(),
                    Arc::clone(&seen),
                    Arc::clone(&leaving),
                ));
            }
        });
        Self { address, requests, left, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The head of an answer without a length, in which the end of the connection is the end.
pub(crate) fn head(status: u16, content_type: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n")
        .into_bytes()
}

/// An answer whose length is known.
pub(crate) fn reply(status: u16, headers: &str, body: impl AsRef<[u8]>) -> Sends {
    let body = body.as_ref();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n{headers}\r\n",
        body.len()
    );
    Sends::Bytes([head.as_bytes(), body].concat())
}

/// A stream of events whose length is known.
pub(crate) fn events(body: impl AsRef<[u8]>) -> Sends {
    reply(200, "content-type: text/event-stream\r\n", body)
}

async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(text);
            }
        }
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
            _ => return None,
        }
    }
}

async fn answer(
    mut stream: TcpStream,
    sends: Sends,
    requests: Arc<Mutex<Vec<String>>>,
    left: Arc<AtomicUsize>,
) {
    let Some(request) = read_request(&mut stream).await else { return };
    requests.lock().unwrap().push(request);
    let (head, piece) = match sends {
        Sends::Bytes(bytes) => {
            _ = stream.write_all(&bytes).await;
            _ = stream.shutdown().await;
            return;
        }
        Sends::Endless(head, piece) => (head, Some(piece)),
        Sends::Silent(head) => (head, None),
    };
    _ = stream.write_all(&head).await;
    let (mut reader, mut writer) = stream.into_split();
    let gone = async {
        let mut rest = Vec::new();
        _ = reader.read_to_end(&mut rest).await;
    };
    let more = async {
        match piece {
            Some(piece) => while writer.write_all(&piece).await.is_ok() {},
            None => std::future::pending().await,
        }
    };
    tokio::select! { () = gone => {}, () = more => {} }
    left.fetch_add(1, Ordering::SeqCst);
}
