//! What an operator can say about a model.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use tollgate_contract::{Quoted, redact::is_sensitive_field};
use url::Url;

use crate::{openai::MaxTokensField, price::Price, tokens::Tokenizer, wire::Limits};

/// Where keys are read from: the value of an environment variable.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The environment of this process.
pub(crate) fn environment() -> Environment {
    Arc::new(|name| std::env::var(name).ok())
}

/// How much longer than between two pieces it is waited for the first.
const FIRST: u64 = 5;

/// Headers that say how a request is sent, and are not for the operator to choose.
const OURS: [&str; 8] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// What kind of server it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One that speaks as OpenAI's does: llama.cpp, Ollama, vLLM, OpenAI.
    #[default]
    Openai,
    /// Anthropic's.
    Anthropic,
    /// None: a script is played.
    Scripted,
}

/// How a model is told of tools and calls them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolMode {
    /// In its text.
    #[default]
    Text,
    /// By its server's function calling.
    Native,
}

/// One model, the table `[models.NAME]`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelConfig {
    /// `openai`, `anthropic` or `scripted`.
    pub kind: Kind,
    /// Where the server is, such as `http://127.0.0.1:8080/v1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// What the server calls the model; the first that it has where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The environment variable that holds the API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// How many tokens the model can take, its answer included.
    pub context_tokens: u32,
    /// The most tokens of an answer.
    pub max_output_tokens: u32,
    /// What the server calls that bound: `max_tokens` or `max_completion_tokens`.
    pub max_tokens_field: MaxTokensField,
    /// How it calls tools: `text` or `native`.
    pub tools: ToolMode,
    /// How its tokens are counted: `o200k`, `cl100k` or `estimate`; by the name of the model without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<Tokenizer>,
    /// What it costs; unknown without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// How long an answer may take.
    pub timeout_seconds: u64,
    /// How long the server may be silent within an answer.
    pub idle_timeout_seconds: u64,
    /// How long it may take to the first piece of an answer; five times as long without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_timeout_seconds: Option<u64>,
    /// The most bytes of an answer.
    pub max_answer_bytes: u64,
    /// The script that a scripted model plays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<PathBuf>,
    /// Headers that go along.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// What the server calls the model that makes embeddings. A model with it is one that `model.embed` can use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_model: Option<String>,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            kind: Kind::Openai,
            url: None,
            model: None,
            api_key_env: None,
            context_tokens: 32_768,
            max_output_tokens: 4_096,
            max_tokens_field: MaxTokensField::MaxTokens,
            tools: ToolMode::Text,
            tokenizer: None,
            price: None,
            timeout_seconds: 600,
            idle_timeout_seconds: 60,
            first_timeout_seconds: None,
            max_answer_bytes: 16 * 1024 * 1024,
            script: None,
            headers: BTreeMap::new(),
            embedding_model: None,
        }
    }
}

// Written out, because the value of a header may be a secret after all.
impl fmt::Debug for ModelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&String> = self.headers.keys().collect();
        f.debug_struct("ModelConfig")
            .field("kind", &self.kind)
            .field("url", &self.url.as_deref().map(Quoted::new))
            .field("model", &self.model)
            .field("api_key_env", &self.api_key_env)
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

impl ModelConfig {
    /// A server that speaks as OpenAI's does, at an address. One without a path has its version added.
    pub fn at(url: &str) -> Self {
        let mut url = url.trim().trim_end_matches('/').to_owned();
        if Url::parse(&url).is_ok_and(|parsed| parsed.path() == "/") {
            url.push_str("/v1");
        }
        Self { url: Some(url), ..Self::default() }
    }

    /// A model that plays a script.
    pub fn scripted(script: impl Into<PathBuf>) -> Self {
        Self { kind: Kind::Scripted, script: Some(script.into()), ..Self::default() }
    }

    /// What is wrong with it: the setting, and what it should be.
    pub fn check(&self) -> Result<(), (String, String)> {
        let bad = |name: &str, problem: &str| Err((name.to_owned(), problem.to_owned()));
        match self.kind {
            Kind::Scripted if self.script.is_none() => {
                return bad("script", "is the file that a model of the kind `scripted` plays");
            }
            Kind::Scripted => {}
            Kind::Openai | Kind::Anthropic => {
                self.address()?;
                if self.script.is_some() {
                    return bad("script", "is for models of the kind `scripted`");
                }
            }
        }
        if self.kind == Kind::Anthropic && self.model.is_none() {
            return bad("model", "is the name of a model that the server has");
        }
        let names = [
            ("model", &self.model),
            ("embedding_model", &self.embedding_model),
            ("api_key_env", &self.api_key_env),
        ];
        for (name, value) in names {
            let is_bad = |text: &String| text.trim().is_empty() || text.len() > 200;
            if value.as_ref().is_some_and(is_bad) {
                return bad(name, "has from 1 to 200 characters");
            }
        }
        let is_variable = |name: &String| {
            let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            begins && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if !self.api_key_env.as_ref().is_none_or(is_variable) {
            let problem = "is the name of an environment variable, not the key itself";
            return bad("api_key_env", problem);
        }
        self.check_numbers()?;
        self.extra_headers().map(|_| ())?;
        let price = self.price.map_or(Ok(()), |price| price.check());
        price.map_err(|(name, problem)| (name.to_owned(), problem))
    }

    fn check_numbers(&self) -> Result<(), (String, String)> {
        let first = self.first_timeout_seconds.unwrap_or(1);
        let bounds = [
            ("context_tokens", u64::from(self.context_tokens), 256, 100_000_000),
            ("max_output_tokens", u64::from(self.max_output_tokens), 1, 10_000_000),
            ("timeout_seconds", self.timeout_seconds, 1, 24 * 3600),
            ("idle_timeout_seconds", self.idle_timeout_seconds, 1, 24 * 3600),
            ("first_timeout_seconds", first, 1, 24 * 3600),
            ("max_answer_bytes", self.max_answer_bytes, 1, 1 << 30),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err((name.to_owned(), format!("is from {least} to {most}")));
            }
        }
        if self.max_output_tokens >= self.context_tokens {
            let problem = "is smaller than `context_tokens`, which has room for both sides";
            return Err(("max_output_tokens".to_owned(), problem.to_owned()));
        }
        Ok(())
    }

    /// Where the server is.
    pub(crate) fn address(&self) -> Result<Url, (String, String)> {
        let bad = |problem: &str| ("url".to_owned(), problem.to_owned());
        let text = self
            .url
            .as_deref()
            .ok_or_else(|| bad("is where the model server is, such as http://127.0.0.1:8080/v1"))?;
        let url = Url::parse(text).map_err(|error| {
            bad(&format!("is no address ({error}); one is http://127.0.0.1:8080/v1"))
        })?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(bad("begins with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("has no user name and no password; `api_key_env` is for the key"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("has no `?` and no `#`; `headers` and `api_key_env` go along"));
        }
        Ok(url)
    }

    /// The headers that go along.
    pub(crate) fn extra_headers(&self) -> Result<HeaderMap, (String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let bad = |problem: &str| (format!("headers.{name}"), problem.to_owned());
            let lower = name.to_ascii_lowercase();
            if OURS.contains(&lower.as_str()) {
                return Err(bad("is chosen by the gate"));
            }
            if is_sensitive_field(&lower) || lower == "cookie" {
                return Err(bad("would hold a secret; `api_key_env` is for the key"));
            }
            let name = HeaderName::try_from(lower).map_err(|_| bad("is no name of a header"))?;
            let value = HeaderValue::try_from(value).map_err(|_| bad("cannot be sent"))?;
            headers.insert(name, value);
        }
        Ok(headers)
    }

    pub(crate) fn limits(&self) -> Limits {
        let timeout = Duration::from_secs(self.timeout_seconds);
        let idle = Duration::from_secs(self.idle_timeout_seconds);
        let first = self.idle_timeout_seconds.saturating_mul(FIRST);
        let first = Duration::from_secs(self.first_timeout_seconds.unwrap_or(first));
        Limits { timeout, idle, first, most_bytes: self.max_answer_bytes }
    }
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
