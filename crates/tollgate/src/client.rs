//! Talking to a running gate.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tollgate_contract::{Secret, error::ErrorObject, json as strict};

use crate::{output::Failure, place::GateArgs};

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
        self.answer(self.with_body(path, body)).await
    }

    /// Asks for a call, under a key of the caller's own.
    pub(crate) async fn post_once(
        &self,
        path: &str,
        body: &Value,
        idempotency_key: Option<&str>,
    ) -> Result<Value, Failure> {
        let mut request = self.with_body(path, body);
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
        let response = self.sent(self.with_body(path, body)).await?;
        let mut events = crate::sse::Events::default();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.broken(&error))?;
            let whole = events.push(&chunk);
            let whole = whole
                .ok_or_else(|| Failure::interrupted(&self.address, "an event is too large"))?;
            for data in whole {
                let event = strict::parse(data.as_bytes())
                    .map_err(|error| Failure::interrupted(&self.address, &error.to_string()))?;
                hear(event)?;
            }
        }
        Ok(())
    }

    fn with_body(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path)
            .header("content-type", "application/json")
            .body(body.to_string())
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
        // The cause stands at the end of the chain, and says most.
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        let problem = cause.to_string();
        if error.is_connect() {
            Failure::unreachable(&self.address, &problem)
        } else {
            Failure::interrupted(&self.address, &problem)
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
