//! Talking to a running gate.

use std::{collections::VecDeque, pin::Pin, time::Duration};

use futures_util::{Stream, StreamExt};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tollgate_contract::{Secret, error::ErrorObject, json as strict};

use crate::{
    output::Failure,
    place::{GateArgs, own_addresses},
};

/// A gate that can be asked.
pub(crate) struct Client {
    http: reqwest::Client,
    address: String,
    base: String,
    key: Option<Secret>,
}

/// How long a gate may say nothing. Calls may take long; streams are kept alive.
const PATIENCE: Duration = Duration::from_secs(600);

/// Most bytes of one answer.
const LARGEST: usize = 256 * 1024 * 1024;

impl Client {
    /// The gate that the command line means, asked with this key.
    pub(crate) fn new(args: &GateArgs, key: Option<Secret>) -> Result<Self, Failure> {
        Self::with_patience(args, key, PATIENCE)
    }

    /// The gate that was named or that runs on the data folder, asked with the key for it; nothing where none does.
    pub(crate) fn running(args: &GateArgs) -> Result<Option<Self>, Failure> {
        if args.url.is_none() && own_addresses(&args.data.folder()?).is_empty() {
            return Ok(None);
        }
        Self::new(args, args.key()?).map(Some)
    }

    /// The same, for whoever waits no longer than `patience` for a sign of life.
    pub(crate) fn with_patience(
        args: &GateArgs,
        key: Option<Secret>,
        patience: Duration,
    ) -> Result<Self, Failure> {
        let address = args.address()?;
        let mut http = tollgate_outbound::plain_client()
            .map_err(|problem| Failure::unreachable(&address, &problem))?
            // A proxy of the environment would see the key.
            .no_proxy()
            .connect_timeout(Duration::from_secs(5))
            .read_timeout(patience)
            .redirect(reqwest::redirect::Policy::none());
        let base = match address.strip_prefix("unix:") {
            Some(path) => {
                http = http.unix_socket(std::path::PathBuf::from(path));
                "http://localhost".to_owned()
            }
            None if address.starts_with("http://") => address.trim_end_matches('/').to_owned(),
            None => {
                return Err(Failure::usage(format!(
                    "{} is not the address of a gate",
                    tollgate_contract::Quoted::new(&address)
                ))
                .with_help("it is http://HOST:PORT or unix:/path/to/socket"));
            }
        };
        let http =
            http.build().map_err(|error| Failure::unreachable(&address, &error.to_string()))?;
        Ok(Self { http, address, base, key })
    }

    /// Asks for something.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.answer(self.request(Method::GET, path)).await
    }

    /// Asks for something to be done.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.answer(self.with_body(Method::POST, path, body)).await
    }

    /// Asks for a call, under a key of the caller's own.
    pub(crate) async fn post_once(
        &self,
        path: &str,
        body: &Value,
        idempotency_key: Option<&str>,
    ) -> Result<Value, Failure> {
        let mut request = self.with_body(Method::POST, path, body);
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        self.answer(request).await
    }

    /// Asks for something to be removed.
    pub(crate) async fn delete(&self, path: &str) -> Result<Value, Failure> {
        self.answer(self.request(Method::DELETE, path)).await
    }

    /// Asks for a stream of events, and passes each on as it comes.
    pub(crate) async fn stream(
        &self,
        path: &str,
        body: &Value,
        mut hear: impl FnMut(Value) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut events = self.events(path, body).await?;
        while let Some((_, event)) = events.next().await? {
            hear(event)?;
        }
        Ok(())
    }

    /// Asks for a stream of events, to be heard one by one.
    pub(crate) async fn events(&self, path: &str, body: &Value) -> Result<EventStream, Failure> {
        let request = self.with_body(Method::POST, path, body);
        let response = self.sent(request.header("accept", "text/event-stream")).await?;
        let chunks = response.bytes_stream().map(|chunk| chunk.map(|bytes| bytes.to_vec()));
        Ok(EventStream {
            address: self.address.clone(),
            chunks: Box::pin(chunks),
            events: crate::sse::Events::default(),
            ready: VecDeque::new(),
        })
    }

    /// Asks for something to be so.
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.answer(self.with_body(Method::PUT, path, body)).await
    }

    fn with_body(&self, method: Method, path: &str, body: &Value) -> RequestBuilder {
        self.request(method, path).header("content-type", "application/json").body(body.to_string())
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.key {
            Some(key) => request.bearer_auth(key.expose()),
            None => request,
        }
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let response = self.sent(request).await?;
        let has_nothing_to_say = response.status() == reqwest::StatusCode::NO_CONTENT;
        let bytes = self.whole(response).await?;
        if has_nothing_to_say {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&bytes)
            .map_err(|_| Failure::interrupted(&self.address, "it does not answer as a gate does"))
    }

    async fn sent(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = self.whole(response).await?;
        let told: Option<ErrorObject> = serde_json::from_slice::<Value>(&bytes)
            .ok()
            .and_then(|body| serde_json::from_value(body.get("error")?.clone()).ok());
        Err(match told {
            Some(error) => Failure::of(error),
            None => Failure::interrupted(
                &self.address,
                &format!("it answers {status}, but not as a gate does"),
            ),
        })
    }

    async fn whole(&self, response: Response) -> Result<Vec<u8>, Failure> {
        let mut whole = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            whole.extend_from_slice(&chunk.map_err(|error| self.broken(&error))?);
            if whole.len() > LARGEST {
                return Err(Failure::interrupted(&self.address, "its answer is too large"));
            }
        }
        Ok(whole)
    }

    fn broken(&self, error: &reqwest::Error) -> Failure {
        let problem = cause(error);
        if error.is_connect() {
            Failure::unreachable(&self.address, &problem)
        } else {
            Failure::interrupted(&self.address, &problem)
        }
    }
}

/// The cause of an error: it stands at the end of the chain, and says most.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Events as they come.
pub(crate) struct EventStream {
    address: String,
    chunks: Pin<Box<dyn Stream<Item = reqwest::Result<Vec<u8>>>>>,
    events: crate::sse::Events,
    ready: VecDeque<crate::sse::Event>,
}

impl EventStream {
    /// It did not end as it should.
    pub(crate) fn broke(&self, problem: &str) -> Failure {
        Failure::interrupted(&self.address, problem)
    }

    /// The next event, its name and its data; nothing at the end. Whoever stops waiting for it misses none.
    pub(crate) async fn next(&mut self) -> Result<Option<(String, Value)>, Failure> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                let data = strict::parse(event.data.as_bytes())
                    .map_err(|error| Failure::interrupted(&self.address, &error.to_string()))?;
                return Ok(Some((event.name, data)));
            }
            let Some(chunk) = self.chunks.next().await else { return Ok(None) };
            let chunk =
                chunk.map_err(|error| Failure::interrupted(&self.address, &cause(&error)))?;
            let whole = self.events.push(&chunk);
            let whole = whole
                .ok_or_else(|| Failure::interrupted(&self.address, "an event is too large"))?;
            self.ready.extend(whole);
        }
    }
}

/// Runs a conversation with a gate to its end.
pub(crate) fn wait<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::bad_input(format!("cannot start: {error}")))?;
    runtime.block_on(work)
}

/// The path of a tool's call, whatever its name was typed as.
pub(crate) fn tool_path(name: &str, what: &str) -> String {
    format!("/v1/tools/{}/{what}", in_path(name))
}

/// A name as a part of a path.
pub(crate) fn in_path(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut path = String::new();
    for c in name.chars() {
        if plain(c) {
            path.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                path.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    // A name that is nothing, or only dots, would be another path.
    if name.chars().all(|c| c == '.') {
        path.push_str("%20");
    }
    path
}

/// The body of a call.
pub(crate) fn call_body(input: Value) -> Value {
    json!({"input": input})
}
