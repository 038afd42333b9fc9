//! The table of routes. An endpoint is declared once, with the types that it reads and writes; the
//! router and the OpenAPI description are both made from it.

use std::{collections::HashMap, future::Future, sync::Arc};

use axum::{
    Router,
    extract::{FromRequestParts, RawPathParams, Request},
    http::{HeaderMap, Method, request::Parts},
    response::Response,
    routing::{MethodFilter, MethodRouter, on},
};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tollgate_contract::{
    Error, KeyScope,
    error::{InvalidRequest, MissingApiKey, PayloadTooLarge},
    json,
    text::{Clean, nearest, plain_shape},
};
use tollgate_gate::Principal;

use crate::{
    app::App,
    reply::{Failed, Reply, named},
    request::{self, Transport, is_from_elsewhere, refuse},
};

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Everyone, from everywhere.
    Open,
    /// Everyone on this machine; from elsewhere with a key.
    Local,
    /// Whoever has a key with this scope.
    Scope(KeyScope),
    /// Whoever has a key with this scope; on this machine also without one, unless that is switched off.
    Keyless(KeyScope),
    /// Whoever has any key: the gate itself decides what it is good for.
    Gate,
}

pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What an endpoint answers when all is well. There is no schema for what is no JSON.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) what: &'static str,
    pub(crate) content: &'static str,
    pub(crate) schema: Option<SchemaOf>,
}

/// One route.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) access: Access,
    pub(crate) takes_idempotency_key: bool,
    pub(crate) query: Option<SchemaOf>,
    pub(crate) body: Option<SchemaOf>,
    pub(crate) answers: Vec<Answer>,
    serve: MethodRouter<Arc<App>>,
}

/// What a request asks, once it has been understood.
pub(crate) struct Ask<Q, B> {
    pub(crate) app: Arc<App>,
    pub(crate) principal: Principal,
    pub(crate) path: HashMap<String, String>,
    pub(crate) query: Q,
    pub(crate) body: B,
    pub(crate) headers: HeaderMap,
}

impl<Q, B> Ask<Q, B> {
    /// A part of the path.
    pub(crate) fn part(&self, name: &str) -> &str {
        self.path.get(name).map_or("", String::as_str)
    }

    /// A header, where it is there once and is text.
    pub(crate) fn header(&self, name: &str) -> Result<Option<String>, Error> {
        let mut all = self.headers.get_all(name).iter();
        match (all.next(), all.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value
                .to_str()
                .map(|text| Some(text.to_owned()))
                .map_err(|_| refuse(&format!("the header `{name}` is not plain text"))),
            _ => Err(refuse(&format!("the header `{name}` is there twice"))),
        }
    }
}

/// Nothing in the query, or no body.
#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// What an endpoint reads as its body.
pub(crate) trait ReadBody: Sized + Send {
    /// Its schema; `None` where no body is read.
    fn schema() -> Option<SchemaOf>;
    /// Reads it.
    fn read(bytes: &Bytes) -> Result<Self, Error>;
}

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned + JsonSchema + Send> ReadBody for Json<T> {
    fn schema() -> Option<SchemaOf> {
        Some(|generator| generator.subschema_for::<T>())
    }

    fn read(bytes: &Bytes) -> Result<Self, Error> {
        let value = json::parse(bytes).map_err(|error| {
            let problem = Clean::already(format!("the body is not acceptable JSON: {error}"));
            InvalidRequest::new(problem, Vec::new())
        })?;
        from_value(value).map(Json)
    }
}

impl ReadBody for Nothing {
    fn schema() -> Option<SchemaOf> {
        None
    }

    fn read(_: &Bytes) -> Result<Self, Error> {
        Ok(Self {})
    }
}

/// Reads a value, and says what is wrong with it in words.
pub(crate) fn from_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, Error> {
    if !value.is_object() {
        return Err(refuse("the body must be a JSON object"));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        shape(&path, &error.inner().to_string())
    })
}

/// An error of shape, with the field that is missing or the name that was probably meant.
fn shape(path: &str, message: &str) -> Error {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let (true, Some(field)) = (message.starts_with("missing field"), quoted.first()) {
        let field = if path == "." { (*field).to_owned() } else { format!("{path}.{field}") };
        let problem = Clean::already("required fields are missing".to_owned());
        return InvalidRequest::new(problem, vec![field]).into();
    }
    let hint = match quoted.split_first() {
        Some((wrong, known)) if message.starts_with("unknown") => {
            nearest(wrong, known.iter().copied()).map(|near| format!("; did you mean `{near}`?"))
        }
        _ => None,
    };
    // The message names the field already, where the field itself is what is wrong.
    let names_it = quoted.first().is_some_and(|name| path == *name);
    let at = if path == "." || names_it { String::new() } else { format!("`{path}`: ") };
    let problem = format!("{at}{}{}", plain_shape(message), hint.unwrap_or_default());
    InvalidRequest::new(Clean::new(&problem), Vec::new()).into()
}

/// An endpoint that is being declared.
pub(crate) fn endpoint(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    access: Access,
) -> Draft {
    Draft { method, path, id, summary, access, answers: Vec::new(), takes_idempotency_key: false }
}

pub(crate) struct Draft {
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    access: Access,
    answers: Vec<Answer>,
    takes_idempotency_key: bool,
}

impl Draft {
    /// It gives something that is no JSON; nothing at all where no content is named.
    pub(crate) fn answers(
        mut self,
        status: u16,
        what: &'static str,
        content: &'static str,
    ) -> Self {
        self.answers.push(Answer { status, what, content, schema: None });
        self
    }

    /// It gives JSON of this type.
    pub(crate) fn gives<R: JsonSchema>(mut self, status: u16, what: &'static str) -> Self {
        let schema: SchemaOf = |generator| generator.subschema_for::<R>();
        let content = "application/json";
        self.answers.push(Answer { status, what, content, schema: Some(schema) });
        self
    }

    /// It reads the header Idempotency-Key.
    pub(crate) fn idempotent(mut self) -> Self {
        self.takes_idempotency_key = true;
        self
    }

    /// Served by a handler that gives JSON.
    pub(crate) fn serve<Q, B, R, H, F>(
        self,
        status: u16,
        what: &'static str,
        handler: H,
    ) -> Endpoint
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        B: ReadBody + 'static,
        R: Serialize + JsonSchema + 'static,
        H: Fn(Ask<Q, B>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Reply<R>, Failed>> + Send + 'static,
    {
        self.gives::<R>(status, what).serve_raw(move |ask| {
            let answer = handler(ask);
            async move { answer.await.map(Reply::response) }
        })
    }

    /// Served by a handler that gives a whole response.
    pub(crate) fn serve_raw<Q, B, H, F>(self, handler: H) -> Endpoint
    where
        Q: DeserializeOwned + JsonSchema + Send + 'static,
        B: ReadBody + 'static,
        H: Fn(Ask<Q, B>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Result<Response, Failed>> + Send + 'static,
    {
        let access = self.access;
        let method = self.method.clone();
        let filter = MethodFilter::try_from(method).unwrap_or(MethodFilter::GET);
        let has_body = B::schema().is_some();
        let (route, counted) = (self.path, self.method.clone());
        let serve = on(
            filter,
            move |axum::extract::State(app): axum::extract::State<Arc<App>>, request: Request| {
                let (handler, counted) = (handler.clone(), counted.clone());
                async move {
                    let id = app.request_id();
                    let answered = async {
                        let app = Arc::clone(&app);
                        let ask = understand::<Q, B>(app, request, access, has_body).await?;
                        handler(ask).await
                    };
                    let response = match answered.await {
                        Ok(response) => named(response, id),
                        Err(failed) => failed.response(id),
                    };
                    app.count(&counted, route, &response);
                    response
                }
            },
        );
        Endpoint {
            method: self.method,
            path: self.path,
            id: self.id,
            summary: self.summary,
            access: self.access,
            takes_idempotency_key: self.takes_idempotency_key,
            query: Some(|generator| Q::json_schema(generator)),
            body: B::schema(),
            answers: self.answers,
            serve,
        }
    }
}

/// Reads a request: who, whether they may, and what they want.
async fn understand<Q, B>(
    app: Arc<App>,
    request: Request,
    access: Access,
    has_body: bool,
) -> Result<Ask<Q, B>, Failed>
where
    Q: DeserializeOwned,
    B: ReadBody,
{
    let (mut parts, body) = request.into_parts();
    let transport = Transport::of(&parts);
    let principal = request::principal(&parts, transport, &app.gate, &app.settings)?;
    admit(access, &principal, transport, &app)?;
    if has_body {
        request::check_content_type(&parts.method, &parts.headers)?;
    }
    let path = path(&mut parts).await?;
    let query = query(&parts)?;
    let bytes = if has_body { read(&app, body).await? } else { Bytes::new() };
    let body = B::read(&bytes)?;
    // The body may have taken its time.
    let principal = app.gate.again(&principal);
    admit(access, &principal, transport, &app)?;
    Ok(Ask { app, principal, path, query, body, headers: parts.headers })
}

/// Passes if whoever asks may ask this.
pub(crate) fn admit(
    access: Access,
    principal: &Principal,
    transport: Transport,
    app: &App,
) -> Result<(), Error> {
    let has_key = principal.key().is_some() || principal.is_invalid();
    match access {
        Access::Keyless(_) if !has_key => {
            if is_from_elsewhere(transport) || !app.gate.governing().is_keyless() {
                return Err(MissingApiKey::new(None).into());
            }
            Ok(())
        }
        Access::Keyless(scope) => principal.require(scope).map(drop),
        Access::Open | Access::Gate => Ok(()),
        Access::Scope(scope) => principal.require(scope).map(drop),
        Access::Local if principal.key().is_some() => Ok(()),
        // A key that does not count is told so, even where none is needed.
        Access::Local if principal.is_invalid() => principal.require_key().map(drop),
        Access::Local if is_from_elsewhere(transport) => Err(MissingApiKey::new(None).into()),
        Access::Local => Ok(()),
    }
}

async fn path(parts: &mut Parts) -> Result<HashMap<String, String>, Error> {
    let params = RawPathParams::from_request_parts(parts, &()).await;
    let params = params.map_err(|_| refuse("the path is not valid UTF-8"))?;
    Ok(params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn query<Q: DeserializeOwned>(parts: &Parts) -> Result<Q, Error> {
    let read = axum::extract::Query::<Q>::try_from_uri(&parts.uri);
    read.map(|query| query.0).map_err(|rejection| {
        let text = rejection.body_text();
        let plain = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
        match plain.split_once(": ") {
            Some((name, problem)) if !name.contains(' ') => shape(name, problem),
            _ => shape(".", plain),
        }
    })
}

/// Reads a body, within bounds of size and time.
pub(crate) async fn read<B>(app: &App, body: B) -> Result<Bytes, Error>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let limit = app.settings.max_body_bytes;
    let reading = whole(Limited::new(body, limit));
    match tokio::time::timeout(app.settings.body_timeout, reading).await {
        Ok(Ok(whole)) => Ok(whole),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(PayloadTooLarge::new(u64::try_from(limit).unwrap_or(u64::MAX)).into())
        }
        Ok(Err(_)) => Err(refuse("the body ended early")),
        Err(_) => Err(refuse("the body did not arrive in time")),
    }
}

/// All of a body. Most come in one piece, which is not copied.
async fn whole<B>(body: B) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>>
where
    B: hyper::body::Body<Data = Bytes, Error = Box<dyn std::error::Error + Send + Sync>>,
{
    let mut body = std::pin::pin!(body);
    let mut first = Bytes::new();
    let mut rest: Option<Vec<u8>> = None;
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame?.into_data() else { continue };
        match &mut rest {
            None if first.is_empty() => first = piece,
            None => rest = Some([&first[..], &piece[..]].concat()),
            Some(rest) => rest.extend_from_slice(&piece),
        }
    }
    Ok(rest.map_or(first, Bytes::from))
}

/// The router of all endpoints.
pub(crate) fn router(endpoints: &[Endpoint]) -> Router<Arc<App>> {
    let mut router = Router::new();
    for endpoint in endpoints {
        router = router.route(endpoint.path, endpoint.serve.clone());
    }
    router
}
