//! Every way in which a call can fail, as one enum.
//!
//! A variant is one struct with private fields; the struct knows two messages. `Display` is for the
//! caller and holds nothing that a caller should not know. [`Error::operator`] is for the person who
//! runs the gate. Whatever came from outside passes through [`Quoted`] or [`Clean`], so that no error
//! carries a key, a header or a payload.

mod code;
mod problems;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use code::{ErrorCode, ErrorStatus};
pub use problems::*;

use crate::{id::RequestId, reason::Reason};

/// The body of an error on the wire: `{"error": {…}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorObject,
}

/// An error on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorObject {
    /// The code.
    pub code: ErrorCode,
    /// The message for the caller.
    pub message: String,
    /// What a program needs to act on it.
    pub details: Value,
    /// The request that it answers, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub request_id: Option<RequestId>,
}

impl Error {
    /// Why a verdict with this error is what it is; `None` for what no verdict says.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::BudgetDenied(denied) => Some(denied.reason()),
            other => Reason::ALL.iter().copied().find(|reason| reason.code() == Some(other.code())),
        }
    }

    /// The error as it goes over the wire.
    pub fn body(&self, request_id: Option<RequestId>) -> ErrorBody {
        ErrorBody { error: self.object(request_id) }
    }

    /// The error without the wrapping of an HTTP body.
    pub fn object(&self, request_id: Option<RequestId>) -> ErrorObject {
        ErrorObject {
            code: self.code(),
            message: self.to_string(),
            details: self.details(),
            request_id,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.caller())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
#[path = "../error_tests.rs"]
mod tests;
