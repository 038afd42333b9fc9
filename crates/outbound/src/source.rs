//! Which providers are polled, and how: this part of the configuration file.

use std::{path::PathBuf, time::Duration};

use reqwest::{Url, header::HeaderName};
use serde::{Deserialize, Serialize};
use tollgate_contract::Quoted;

/// A provider to ask, again and again, how much is left.
///
/// Its address is the operator's own choice, so it may lead anywhere, but a redirect is not followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PollSource {
    /// GitHub, which answers with all of its limits at once.
    Github(GithubPoll),
    /// Anything that answers with JSON.
    Json(JsonPoll),
}

/// How GitHub is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GithubPoll {
    /// What to ask.
    #[serde(default = "github_url")]
    pub url: String,
    /// The environment variable that holds the token.
    #[serde(default)]
    pub token_env: Option<String>,
    /// The file that holds the token; it is read anew for each poll.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// How long from one poll to the next.
    #[serde(default = "every_seconds")]
    pub every_seconds: u64,
    /// How long a poll may take.
    #[serde(default = "timeout_seconds")]
    pub timeout_seconds: u64,
}

/// How a provider with JSON of its own is asked. `limit`, `remaining`, `used` and `reset` are JSON pointers, such
/// as `/data/requests_left`; there is at least `remaining` or `used`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JsonPoll {
    /// What to ask.
    pub url: String,
    /// What the limit is called.
    #[serde(default)]
    pub name: Option<String>,
    /// Where the limit stands.
    #[serde(default)]
    pub limit: Option<String>,
    /// Where it stands how much is left.
    #[serde(default)]
    pub remaining: Option<String>,
    /// Where it stands how much is used.
    #[serde(default)]
    pub used: Option<String>,
    /// Where it stands when the window ends.
    #[serde(default)]
    pub reset: Option<String>,
    /// How that is written.
    #[serde(default)]
    pub reset_is: ResetIs,
    /// The environment variable that holds the token.
    #[serde(default)]
    pub token_env: Option<String>,
    /// The file that holds the token; it is read anew for each poll.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// The header that carries the token.
    #[serde(default = "header")]
    pub header: String,
    /// What stands before the token in it; empty for nothing.
    #[serde(default = "scheme")]
    pub scheme: String,
    /// How long from one poll to the next.
    #[serde(default = "every_seconds")]
    pub every_seconds: u64,
    /// How long a poll may take.
    #[serde(default = "timeout_seconds")]
    pub timeout_seconds: u64,
}

/// How a provider writes the end of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetIs {
    /// Seconds since 1970.
    #[default]
    Unix,
    /// Milliseconds since 1970.
    UnixMs,
    /// Seconds from now.
    Seconds,
    /// A date with time and offset.
    Rfc3339,
}

/// What is wrong with a poll in the configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadSource {
    /// The address is none.
    #[error("`url` is not an address to ask; it looks like https://api.example.com/limits")]
    Url,
    /// A password would be kept and shown where addresses are.
    #[error("`url` holds a user name or a password; use `token_env` or `token_file` instead")]
    Userinfo,
    /// Both say where the token is.
    #[error("`token_env` and `token_file` are both given; keep one")]
    TwoTokens,
    /// Asking that often costs more than it tells.
    #[error("`every_seconds` is {0}; at least {SHORTEST_EVERY} is needed")]
    TooOften(u64),
    /// A poll that may take no time, or that outlasts the next.
    #[error("`timeout_seconds` is {0}; it is from 1 to {LONGEST_TIMEOUT}")]
    Timeout(u64),
    /// There would be nothing to report.
    #[error(
        "neither `remaining` nor `used` is given; say where in the answer at least one of them stands"
    )]
    NothingToRead,
    /// It does not say where something stands.
    #[error("`{member}` is {pointer}, which is no JSON pointer; one looks like /data/left")]
    Pointer {
        /// The member of the configuration.
        member: &'static str,
        /// What it says.
        pointer: Quoted,
    },
    /// A header of that name cannot be sent.
    #[error("`header` is {0}, which is no name of a header")]
    Header(Quoted),
    /// The client could not be made.
    #[error("{0}")]
    Client(String),
}

/// The shortest time from one poll to the next, in seconds.
const SHORTEST_EVERY: u64 = 5;

/// The longest time that a poll may take, in seconds.
const LONGEST_TIMEOUT: u64 = 300;

impl PollSource {
    /// Is this a poll that can be made? Says what to change if not.
    pub fn check(&self) -> Result<(), BadSource> {
        let (every, timeout) = (self.every().as_secs(), self.timeout().as_secs());
        let (env, file) = self.token();
        let url = Url::parse(self.url()).map_err(|_| BadSource::Url)?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
            return Err(BadSource::Url);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadSource::Userinfo);
        }
        if env.is_some() && file.is_some() {
            return Err(BadSource::TwoTokens);
        }
        if every < SHORTEST_EVERY {
            return Err(BadSource::TooOften(every));
        }
        if !(1..=LONGEST_TIMEOUT).contains(&timeout) {
            return Err(BadSource::Timeout(timeout));
        }
        match self {
            Self::Github(_) => Ok(()),
            Self::Json(poll) => poll.check(),
        }
    }

    /// What to ask.
    pub fn url(&self) -> &str {
        match self {
            Self::Github(poll) => &poll.url,
            Self::Json(poll) => &poll.url,
        }
    }

    /// How long from one poll to the next.
    pub fn every(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Github(poll) => poll.every_seconds,
            Self::Json(poll) => poll.every_seconds,
        })
    }

    /// How long a poll may take.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Github(poll) => poll.timeout_seconds,
            Self::Json(poll) => poll.timeout_seconds,
        })
    }

    /// The environment variable or the file that holds the token.
    pub(crate) fn token(&self) -> (Option<&String>, Option<&PathBuf>) {
        match self {
            Self::Github(poll) => (poll.token_env.as_ref(), poll.token_file.as_ref()),
            Self::Json(poll) => (poll.token_env.as_ref(), poll.token_file.as_ref()),
        }
    }

    /// The header that carries the token, and what stands before it there.
    pub(crate) fn header(&self) -> (&str, &str) {
        match self {
            Self::Github(_) => ("authorization", "Bearer"),
            Self::Json(poll) => (&poll.header, &poll.scheme),
        }
    }
}

impl JsonPoll {
    fn check(&self) -> Result<(), BadSource> {
        if self.remaining.is_none() && self.used.is_none() {
            return Err(BadSource::NothingToRead);
        }
        let pointers = [
            ("limit", &self.limit),
            ("remaining", &self.remaining),
            ("used", &self.used),
            ("reset", &self.reset),
        ];
        for (member, pointer) in pointers {
            if let Some(pointer) = pointer
                && !pointer.is_empty()
                && !pointer.starts_with('/')
            {
                return Err(BadSource::Pointer { member, pointer: Quoted::new(pointer) });
            }
        }
        match self.header.parse::<HeaderName>() {
            Ok(_) => Ok(()),
            Err(_) => Err(BadSource::Header(Quoted::new(&self.header))),
        }
    }
}

fn github_url() -> String {
    "https://api.github.com/rate_limit".to_owned()
}

fn every_seconds() -> u64 {
    60
}

fn timeout_seconds() -> u64 {
    10
}

fn header() -> String {
    "authorization".to_owned()
}

fn scheme() -> String {
    "Bearer".to_owned()
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
