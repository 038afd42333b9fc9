//! What a model looks like to whoever talks to it.

use std::pin::Pin;

use futures_util::Stream;
use tokio_util::sync::CancellationToken;

use crate::{
    chat::{ChatRequest, ChatResponse, Delta},
    error::ModelError,
};

/// An answer that is being waited for.
pub type Chatting = Pin<Box<dyn Future<Output = Result<ChatResponse, ModelError>> + Send>>;

/// The pieces of an answer as they come. The first error is the last item.
pub type Deltas = Pin<Box<dyn Stream<Item = Result<Delta, ModelError>> + Send>>;

/// A model that can be talked to.
pub trait Backend: Send + Sync {
    /// Asks, and waits for the whole answer. Dropping it closes the connection.
    fn chat(&self, request: ChatRequest) -> Chatting;

    /// Asks, and gives the answer as it comes. Cancelling ends it with [`ModelError::Cancelled`] at once; that and
    /// dropping it close the connection.
    fn stream_chat(&self, request: ChatRequest, cancel: CancellationToken) -> Deltas;
}
