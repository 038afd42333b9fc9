//! Reading a body within its bounds.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::time::timeout;
use tollgate_contract::text::Clean;

use super::{Answer, Hide, Limits, Pieces, refusal::refused};
use crate::error::ModelError;

/// A body that is being read.
pub(super) struct Incoming {
    body: Pieces,
    limits: Limits,
    read: u64,
    begun: bool,
    pub(super) hide: Hide,
}

impl Incoming {
    pub(super) fn new(answer: Answer, limits: Limits) -> Self {
        Self { body: answer.body, limits, read: 0, begun: false, hide: answer.hide }
    }

    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, ModelError> {
        let (after, setting) = match self.begun {
            true => (self.limits.idle, "idle_timeout_seconds"),
            false => (self.limits.first, "first_timeout_seconds"),
        };
        self.next_within(after).await.unwrap_or(Err(ModelError::Idle { after, setting }))
    }

    /// The next piece, if it comes in time.
    pub(super) async fn next_within(
        &mut self,
        time: Duration,
    ) -> Option<Result<Option<Bytes>, ModelError>> {
        let piece = match timeout(time, self.body.next()).await.ok()? {
            None => return Some(Ok(None)),
            Some(Err(why)) => return Some(Err(ModelError::Dropped(why))),
            Some(Ok(piece)) => piece,
        };
        self.begun = true;
        self.read = self.read.saturating_add(piece.len() as u64);
        if self.read > self.limits.most_bytes {
            let problem = format!("it has more than {} bytes", self.limits.most_bytes);
            return Some(Err(ModelError::TooLarge(Clean::already(problem))));
        }
        Some(Ok(Some(piece)))
    }

    /// All of it.
    pub(super) async fn rest(mut self) -> Result<Vec<u8>, ModelError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// As much of it as comes without trouble: the words of a refusal.
    pub(super) async fn words(mut self, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (patience, since) = (WORDS.min(self.limits.idle), Instant::now());
        let left = || patience.saturating_sub(since.elapsed());
        while let Some(Ok(Some(piece))) = self.next_within(left()).await {
            let room = most.saturating_sub(bytes.len());
            bytes.extend(piece.iter().take(room));
            if bytes.len() >= most {
                break;
            }
        }
        bytes
    }
}

/// How much of a refusal is read.
pub(super) const REFUSAL: usize = 64 * 1024;

/// How long the words of a refusal are waited for. That it is one is known.
const WORDS: Duration = Duration::from_secs(5);

/// The error for an answer that is no success.
pub(crate) async fn refused_answer(answer: Answer, limits: Limits) -> ModelError {
    let (status, headers) = (answer.status, answer.headers.clone());
    let incoming = Incoming::new(answer, limits);
    let hide = incoming.hide.clone();
    refused(status, &headers, &incoming.words(REFUSAL).await, &hide)
}

/// A body that is JSON.
pub(crate) async fn whole(answer: Answer, limits: Limits) -> Result<Value, ModelError> {
    let content_type = answer.content_type.clone();
    let incoming = Incoming::new(answer, limits);
    let hide = incoming.hide.clone();
    let bytes = incoming.rest().await?;
    serde_json::from_slice(&bytes).map_err(|error| no_json(&content_type, &error, &hide))
}

fn no_json(content_type: &str, error: &serde_json::Error, hide: &Hide) -> ModelError {
    let problem = if content_type.contains("html") {
        "it is a web page; check that `url` is the address of a model server".to_owned()
    } else {
        format!("it is no JSON ({error}); check that `url` is the address of a model server")
    };
    ModelError::Malformed(hide.clean(&problem))
}
