//! The way to a model server and back, whatever it speaks.
//!
//! A [`Transport`] carries a request there; [`Talker`] asks, reads the answer within its bounds and hands on what a
//! [`Protocol`] makes of it. What a protocol is about is how a request is written and how an answer is read, and
//! nothing else.

mod http;
mod read;
mod refusal;
mod stream;
mod talk;

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::Stream;
use serde_json::Value;
use tollgate_contract::{Secret, redact::Kind, text::Clean};

pub(crate) use http::{Http, KeyHeader, is_about_limits};
pub(crate) use read::{refused_answer, whole};
pub(crate) use refusal::refused_by_word;
pub(crate) use talk::{Talker, count_of, model_name};

use crate::{
    chat::{ChatRequest, Delta},
    error::ModelError,
    names::Names,
    sse::Event,
};

/// How much of an answer is read, and how long it is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// For all of it.
    pub(crate) timeout: Duration,
    /// Between two pieces.
    pub(crate) idle: Duration,
    /// Until the first piece: the model reads what it was sent.
    pub(crate) first: Duration,
    /// The most bytes.
    pub(crate) most_bytes: u64,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// Behind the address of the server.
    pub(crate) path: &'static str,
    /// What is sent; a request without it only reads.
    pub(crate) body: Option<Value>,
}

/// The pieces of a body; an error says why there are no more.
pub(crate) type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, Clean>> + Send>>;

/// An answer whose body is still to come.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// What it says of the server's limits.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) content_type: String,
    pub(crate) body: Pieces,
    pub(crate) hide: Hide,
}

/// An answer that is waited for.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Result<Answer, ModelError>> + Send>>;

/// Carries requests to a server.
pub(crate) trait Transport: Send + Sync {
    /// Sends a request.
    fn ask(&self, ask: Ask) -> Answering;
}

/// What must not be repeated, whoever says it: the key that went along.
#[derive(Clone, Default)]
pub(crate) struct Hide(Option<Arc<Secret>>);

impl Hide {
    pub(crate) fn new(secret: Arc<Secret>) -> Self {
        Self(Some(secret))
    }

    /// What a server says, fit to be shown. It must be whole: of a key that was cut, the beginning would stay.
    pub(crate) fn clean(&self, text: &str) -> Clean {
        let secret = self.0.as_ref().map(|secret| secret.expose()).filter(|it| !it.is_empty());
        match secret {
            Some(secret) => Clean::new(&text.replace(secret, Kind::Field.placeholder())),
            None => Clean::new(text),
        }
    }

    /// The first of what a server says, without the key.
    pub(crate) fn shown(&self, text: &str) -> String {
        self.clean(text).as_str().chars().take(MOST_WORDS).collect()
    }
}

/// How much of a server's words is shown.
const MOST_WORDS: usize = 2_000;

/// How far an answer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// More is to come.
    Going,
    /// The model has stopped; the server may still say what was used.
    Finished,
    /// Nothing follows.
    Over,
}

/// How a kind of server is spoken to.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// Where requests go, behind the address of the server.
    fn path(&self) -> &'static str;

    /// A request as the server reads it.
    fn request(&self, request: &ChatRequest, names: &Names, model: &str, stream: bool) -> Value;

    /// Changes a request that the server refused with these words, if another form of it may be taken.
    fn again(&self, said: &str, body: &mut Value) -> bool;

    /// What reads an answer to it.
    fn decoder(&self, names: Names, hide: Hide) -> Box<dyn Decoder>;
}

/// Reads an answer.
pub(crate) trait Decoder: Send {
    /// Reads an event of a stream.
    fn event(&mut self, event: &Event, out: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// Reads an answer that came in one piece.
    fn whole(&mut self, answer: &Value, out: &mut Vec<Delta>) -> Result<(), ModelError>;

    /// How far the answer has come.
    fn progress(&self) -> Progress;
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;
