//! Answers: JSON with a status, and errors in their one form.

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use tollgate_contract::{
    Error, ErrorCode,
    error::{ErrorBody, ErrorObject},
    id::RequestId,
};

/// The header that names a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Puts the name of its request on an answer.
pub(crate) fn named(mut response: Response, request: RequestId) -> Response {
    if let Ok(value) = request.to_string().try_into() {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// A success.
pub(crate) struct Reply<T> {
    pub(crate) status: StatusCode,
    pub(crate) body: T,
    pub(crate) headers: Vec<(HeaderName, String)>,
}

impl<T> Reply<T> {
    pub(crate) fn ok(body: T) -> Self {
        Self { status: StatusCode::OK, body, headers: Vec::new() }
    }

    pub(crate) fn created(body: T) -> Self {
        Self { status: StatusCode::CREATED, ..Self::ok(body) }
    }

    pub(crate) fn accepted(body: T) -> Self {
        Self { status: StatusCode::ACCEPTED, ..Self::ok(body) }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((HeaderName::from_static(name), value.into()));
        self
    }
}

impl<T: Serialize> Reply<T> {
    pub(crate) fn response(self) -> Response {
        match serde_json::to_vec(&self.body) {
            Ok(bytes) => with_headers(json(self.status, bytes), self.headers),
            Err(error) => {
                tracing::error!(%error, "an answer cannot be written");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

fn with_headers(mut response: Response, headers: Vec<(HeaderName, String)>) -> Response {
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// JSON that is ready to be sent. Nothing on the way may keep it: it may be for one caller alone.
pub(crate) fn json(status: StatusCode, bytes: impl Into<Body>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (status, headers, bytes.into()).into_response()
}

/// A failure, on its way out.
#[derive(Debug)]
pub(crate) struct Failed {
    error: Box<ErrorObject>,
    /// What the operator is told.
    operator: Option<String>,
    status: Option<StatusCode>,
    headers: Vec<(HeaderName, String)>,
}

impl Failed {
    pub(crate) fn object(error: ErrorObject) -> Self {
        Self { error: Box::new(error), operator: None, status: None, headers: Vec::new() }
    }

    /// The same failure with another status, where HTTP has one of its own for it.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// Tells the operator more than the caller.
    pub(crate) fn for_operator(mut self, text: String) -> Self {
        self.operator = Some(text);
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((HeaderName::from_static(name), value.into()));
        self
    }

    pub(crate) fn response(mut self, request: RequestId) -> Response {
        self.error.request_id = Some(request);
        self.log(request);
        let code = self.error.code;
        let status = self
            .status
            .or_else(|| code.status().and_then(|status| StatusCode::from_u16(status.get()).ok()));
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = self.headers;
        if let Some(seconds) = retry_after(&self.error) {
            headers.push((header::RETRY_AFTER, seconds.to_string()));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.push((header::WWW_AUTHENTICATE, "Bearer".to_owned()));
        }
        let bytes = serde_json::to_vec(&ErrorBody { error: *self.error }).unwrap_or_default();
        named(with_headers(json(status, bytes), headers), request)
    }
}

/// When it makes sense to ask again.
fn retry_after(error: &ErrorObject) -> Option<u64> {
    match error.code {
        ErrorCode::BudgetDenied => error.details.get("retryAfterSeconds")?.as_u64(),
        ErrorCode::LedgerUnavailable => Some(1),
        _ => None,
    }
}

impl Failed {
    /// What is a fault of ours is told to the operator in full, under the id that the caller has.
    fn log(&self, request: RequestId) {
        let operator = self.operator.as_ref().unwrap_or(&self.error.message);
        match self.error.code {
            ErrorCode::Internal | ErrorCode::LedgerUnavailable => {
                tracing::error!(%request, operator, "a request failed");
            }
            code => tracing::debug!(%request, %code, operator, "a request was refused"),
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::object(error.object(None)).for_operator(error.operator())
    }
}
