//! Requests over HTTP, to an address that the operator chose.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::StreamExt;
use reqwest::{
    Client, RequestBuilder, Response,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use tollgate_contract::{Quoted, Secret, text::Clean};
use tollgate_outbound::{client_builder, problem};
use url::Url;

use super::{Answer, Answering, Ask, Hide, Transport};
use crate::{config::Environment, error::ModelError};

/// How many headers an answer may have, and how long they may be together.
const MOST_HEADERS: usize = 100;
const HEADERS: usize = 64 * 1024;

/// How a server takes its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// `Authorization: Bearer …`
    Bearer,
    /// `x-api-key: …`
    ApiKey,
}

/// A server that is reached over HTTP.
pub(crate) struct Http {
    url: Url,
    /// The variable that holds the key, read when it is needed, and where the key goes.
    key: Option<(String, KeyHeader)>,
    environment: Environment,
    headers: HeaderMap,
    timeout: Duration,
    /// Made when it is first needed: certificates take a while to read.
    client: OnceLock<Result<Client, String>>,
}

impl Http {
    pub(crate) fn new(
        url: Url,
        key: Option<(String, KeyHeader)>,
        environment: Environment,
        headers: HeaderMap,
        timeout: Duration,
    ) -> Self {
        Self { url, key, environment, headers, timeout, client: OnceLock::new() }
    }

    fn client(&self) -> Result<Client, ModelError> {
        let made = self.client.get_or_init(|| {
            // Our own deadline comes first, and says what it is.
            let timeout = self.timeout + Duration::from_secs(5);
            client_builder(self.url.scheme() == "https", timeout)?
                .http1_max_headers(MOST_HEADERS)
                .build()
                .map_err(problem)
        });
        made.clone().map_err(|why| ModelError::Unusable(Clean::new(&why)))
    }

    /// The key, if one is needed, and the header that carries it.
    fn key(&self) -> Result<Option<(Arc<Secret>, HeaderName, HeaderValue)>, ModelError> {
        let Some((variable, header)) = &self.key else { return Ok(None) };
        let unusable = |problem: &str| {
            let problem = format!("the environment variable {} {problem}", Quoted::new(variable));
            ModelError::Unusable(Clean::already(problem))
        };
        let key = (self.environment)(variable).map(|key| key.trim().to_owned());
        let key = key.filter(|key| !key.is_empty()).ok_or_else(|| {
            unusable("is to hold its API key and is not set; set it where the gate is started")
        })?;
        let key = Secret::new(key);
        let (name, text) = match header {
            KeyHeader::Bearer => {
                (reqwest::header::AUTHORIZATION, format!("Bearer {}", key.expose()))
            }
            KeyHeader::ApiKey => (HeaderName::from_static("x-api-key"), key.expose().to_owned()),
        };
        let value = HeaderValue::from_str(&text);
        let mut value = value.map_err(|_| unusable("holds no API key: it has other characters"))?;
        value.set_sensitive(true);
        Ok(Some((Arc::new(key), name, value)))
    }

    fn request(&self, ask: &Ask) -> Result<(RequestBuilder, Hide), ModelError> {
        let client = self.client()?;
        let url = below(&self.url, ask.path);
        let request = match &ask.body {
            Some(body) => client.post(url).json_body(body),
            None => client.get(url),
        };
        let mut request = request.headers(self.headers.clone());
        request = request.header(ACCEPT, "application/json, text/event-stream");
        match self.key()? {
            Some((key, name, value)) => Ok((request.header(name, value), Hide::new(key))),
            None => Ok((request, Hide::default())),
        }
    }
}

/// `reqwest` is built without its own JSON.
trait JsonBody {
    fn json_body(self, body: &serde_json::Value) -> Self;
}

impl JsonBody for RequestBuilder {
    fn json_body(self, body: &serde_json::Value) -> Self {
        self.header(CONTENT_TYPE, "application/json").body(body.to_string())
    }
}

/// An address with a path behind its own.
fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let kept = url.path().trim_end_matches('/').to_owned();
    // Some give the address with the version, some without.
    let path = match kept.ends_with("/v1") {
        true => path.strip_prefix("v1/").unwrap_or(path),
        false => path,
    };
    url.set_path(&format!("{kept}/{path}"));
    url
}

impl Transport for Http {
    fn ask(&self, ask: Ask) -> Answering {
        let request = self.request(&ask);
        Box::pin(async move {
            let (request, hide) = request?;
            let response = request.send().await.map_err(|error| failed(error, &hide))?;
            answer(response, hide)
        })
    }
}

fn failed(error: reqwest::Error, hide: &Hide) -> ModelError {
    let is_connect = error.is_connect();
    let is_request = error.is_builder();
    let why = hide.clean(&problem(error));
    match (is_connect, is_request) {
        (true, _) => ModelError::Connect(why),
        (_, true) => ModelError::Unusable(why),
        _ => ModelError::Dropped(why),
    }
}

fn answer(response: Response, hide: Hide) -> Result<Answer, ModelError> {
    let headers = response.headers();
    let length: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if length > HEADERS {
        let problem = format!("its headers have more than {HEADERS} bytes");
        return Err(ModelError::TooLarge(Clean::already(problem)));
    }
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
    let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
    let about_limits = headers.iter().filter(|(name, _)| is_about_limits(name.as_str()));
    let headers =
        about_limits.filter_map(|(name, value)| Some((name.to_string(), text(value)?))).collect();
    let status = response.status().as_u16();
    let hidden = hide.clone();
    let body = response.bytes_stream();
    let body = body.map(move |piece| piece.map_err(|error| hidden.clean(&problem(error))));
    Ok(Answer { status, headers, content_type, body: Box::pin(body), hide })
}

/// The rest is nobody's business.
pub(crate) fn is_about_limits(name: &str) -> bool {
    name.starts_with("retry-after") || name.contains("ratelimit") || name.contains("rate-limit")
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
