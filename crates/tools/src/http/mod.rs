//! `http.get`: a page of the web as text an agent can read, from where it is allowed to read.
//!
//! Whether a host may be reached is asked from the caller: for the address given and for every redirect, before
//! the cache and before its name is resolved. The name is resolved once, what it leads to is checked, and the
//! connection goes to that address. Everything that a server sends is bounded: headers, body, time.

mod cache;
mod charset;
mod decode;
mod fetch;
mod html;
mod problem;
mod readable;
mod target;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tollgate_contract::{
    Behaviours, CostEffect, Declaration, Permission, SideEffect, Stability, Violations,
};

pub use fetch::{Fetched, Fetcher, Get, Reaches};
pub use problem::HttpProblem;
pub use target::Host;

/// The longest address.
pub const LONGEST_URL: usize = 8_192;

const GET: &str = "http.get";

/// How far one call may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// How long all of it may take, redirects and body included.
    pub timeout_seconds: u64,
    /// How much of a body is read, after it is decompressed.
    pub most_bytes: u64,
    /// How many characters of text are given.
    pub most_characters: u64,
    /// How many redirects are followed.
    pub redirects: u32,
    /// How long an answer is served from the cache. 0 switches the cache off.
    pub cache_seconds: u64,
    /// How much the cache keeps.
    pub cache_bytes: u64,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            timeout_seconds: 20,
            most_bytes: 2 * 1024 * 1024,
            most_characters: 200_000,
            redirects: 5,
            cache_seconds: 3_600,
            cache_bytes: 64 * 1024 * 1024,
        }
    }
}

impl HttpConfig {
    /// What is wrong with it: the setting, and what it should be.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let bounds = [
            ("timeout_seconds", self.timeout_seconds, 1, 600),
            ("most_bytes", self.most_bytes, 1, 1 << 30),
            ("most_characters", self.most_characters, 1, 1 << 30),
            ("redirects", u64::from(self.redirects), 0, 20),
            ("cache_seconds", self.cache_seconds, 0, 366 * 24 * 3600),
            ("cache_bytes", self.cache_bytes, 0, 1 << 40),
        ];
        for (name, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err((name, format!("is from {least} to {most}")));
            }
        }
        Ok(())
    }
}

/// How far a caller may reach a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// Not at all, and why.
    No(String),
    /// At public addresses: what a grant for the network as a whole, or for a pattern of names, gives.
    Public,
    /// This very host was granted, so it may also be on this machine or in a private network. Where clouds
    /// hand out credentials (link-local addresses) only an address that was itself granted is reached: whoever
    /// owns a name could otherwise point it there.
    Named,
}

/// What `http.get` takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetInput {
    /// The address, with http:// or https://.
    #[schemars(length(min = 1, max = LONGEST_URL))]
    pub url: String,
    /// May an earlier answer be given, and this one be kept?
    #[serde(default = "yes")]
    pub use_cache: bool,
}

fn yes() -> bool {
    true
}

/// What `http.get` gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "HttpPage")]
pub struct Page {
    /// Where the text comes from, after redirects.
    pub url: String,
    /// The status. One that is no success is an answer too.
    pub status: u16,
    /// What the server says that it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The title of a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The text; empty for what is none.
    pub text: String,
    /// Is there more than `text`?
    pub truncated: bool,
    /// How much of the body was read, decompressed.
    pub bytes: u64,
    /// What else there is to know, such as why there is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The addresses that led here.
    pub redirects: Vec<String>,
    /// Where the answer was.
    pub metadata: Metadata,
}

/// Where an answer was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "HttpMetadata")]
pub struct Metadata {
    /// Was it in the cache?
    pub cache_hit: bool,
    /// When it was fetched, in UTC.
    pub fetched_at: String,
    /// How long ago that was.
    pub age_s: u64,
}

/// The host of an address, in the form in which permissions name it.
pub fn host_of(url: &str) -> Result<Host, HttpProblem> {
    target::Target::parse(url).map(|target| target.host)
}

/// Declares `http.get`.
pub fn get_declaration() -> Result<Declaration<GetInput, Page>, Violations> {
    let behaviours = Behaviours { paid_upstream: true, ..Behaviours::NONE };
    Declaration::new(GET, "A page of the web as text; hosts must be granted.")
        .stability(Stability::Stable)
        .permissions([Permission::NET, Permission::READ])
        .behaviours(behaviours)
        .effects(SideEffect::None, CostEffect::ApiCost)
        .build()
}
