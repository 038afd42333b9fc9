//! What can go wrong with a model, in words that say what to do next.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_contract::{
    Error, ToolName,
    error::{Cancelled, Timeout, ToolFailed},
    text::Clean,
};

/// Why a model gave no answer, or only half of one. No message holds a secret: what a server says is cleaned before it
/// gets here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The server does not want this request.
    #[error("the model server refused the request (status {status}): {said}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its words.
        said: Clean,
    },
    /// Too much was asked of the server.
    #[error("the model server says that its limit is reached: {said}; {}", again(*.retry_after))]
    RateLimited {
        /// Its words.
        said: Clean,
        /// How long to wait.
        retry_after: Option<Duration>,
    },
    /// The server has trouble of its own.
    #[error("the model server has trouble (status {status}): {said}; {}", again(*.retry_after))]
    Overloaded {
        /// The HTTP status.
        status: u16,
        /// Its words.
        said: Clean,
        /// How long to wait.
        retry_after: Option<Duration>,
    },
    /// Nobody is there.
    #[error("the model server cannot be reached ({0}); check that it runs, and its `url`")]
    Connect(Clean),
    /// The whole answer took too long.
    #[error("the model's answer was not complete within {} s; ask for less, or raise `timeout_seconds`", .0.as_secs_f64())]
    Timeout(Duration),
    /// Nothing came for too long.
    #[error("the model server said nothing for {} s; try again, or raise `{setting}`", .after.as_secs_f64())]
    Idle {
        /// How long it was silent.
        after: Duration,
        /// The setting that says how long it may be.
        setting: &'static str,
    },
    /// The connection ended before the answer did.
    #[error("the model's answer ended before it was finished ({0}); try again")]
    Dropped(Clean),
    /// It is not what such a server says.
    #[error("the model server's answer cannot be read: {0}")]
    Malformed(Clean),
    /// More than anybody needs.
    #[error("the model's answer is too large: {0}")]
    TooLarge(Clean),
    /// The caller gave up.
    #[error("the call was cancelled")]
    Cancelled,
    /// The request cannot be made as things are set up.
    #[error("the model cannot be used: {0}")]
    Unusable(Clean),
}

fn again(after: Option<Duration>) -> String {
    match after {
        Some(after) => format!("try again in {} s", after.as_millis().div_ceil(1_000)),
        None => "try again later".to_owned(),
    }
}

impl ModelError {
    /// Might the same request succeed later?
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Connect(_)
            | Self::Idle { .. }
            | Self::Dropped(_) => true,
            Self::Refused { .. }
            | Self::Timeout(_)
            | Self::Malformed(_)
            | Self::TooLarge(_)
            | Self::Cancelled
            | Self::Unusable(_) => false,
        }
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::RateLimited { retry_after, .. } | Self::Overloaded { retry_after, .. } => {
                *retry_after
            }
            _ => None,
        }
    }

    /// Its name, for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::Connect(_) => "connect",
            Self::Timeout(_) => "timeout",
            Self::Idle { .. } => "idle",
            Self::Dropped(_) => "dropped",
            Self::Malformed(_) => "malformed",
            Self::TooLarge(_) => "too_large",
            Self::Cancelled => "cancelled",
            Self::Unusable(_) => "unusable",
        }
    }

    /// Can it be that the model worked on the request, so that it is paid for?
    pub(crate) fn may_be_charged(&self) -> bool {
        !matches!(
            self,
            Self::Refused { .. }
                | Self::RateLimited { .. }
                | Self::Overloaded { .. }
                | Self::Connect(_)
                | Self::Unusable(_)
        )
    }

    /// The problem as an error of a tool.
    pub fn error(&self, tool: &ToolName) -> Error {
        match self {
            Self::Timeout(after) => {
                let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                Timeout::new(tool.clone(), after_ms).into()
            }
            Self::Cancelled => Cancelled::new(Some(tool.clone())).into(),
            other => ToolFailed::new(tool.clone(), Clean::already(other.to_string())).into(),
        }
    }

    /// What a program needs to decide whether to try again.
    pub fn failure(&self) -> Failure {
        let after = self.retry_after();
        Failure {
            kind: self.kind().to_owned(),
            retryable: self.is_retryable(),
            retry_after_ms: after.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// Why a call of a model failed, for a program. The contract's errors have no place for it, so it is the last piece of
/// the streamed answer: `{"failure": {…}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What went wrong, in one word.
    pub kind: String,
    /// Might the same request succeed later?
    pub retryable: bool,
    /// How long the server wants to be left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}
