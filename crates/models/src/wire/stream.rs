//! A stream made of work that hands out pieces as it goes.

use std::pin::Pin;

use futures_util::stream::unfold;
use tokio::sync::mpsc;

use crate::{backend::Deltas, chat::Delta, error::ModelError};

/// How many pieces may wait to be taken.
const WAITING: usize = 64;

/// Where work hands out its pieces.
#[derive(Clone)]
pub(super) struct Out(mpsc::Sender<Delta>);

impl Out {
    /// Hands out a piece. When nobody wants it any more the work is dropped along with the stream.
    pub(super) async fn give(&self, delta: Delta) {
        _ = self.0.send(delta).await;
    }
}

type Work = Pin<Box<dyn Future<Output = Result<(), ModelError>> + Send>>;

struct State {
    work: Option<Work>,
    pieces: mpsc::Receiver<Delta>,
    error: Option<ModelError>,
}

/// The pieces that `work` hands out, and its error where it fails. The work goes on while the stream is asked for more,
/// and ends when the stream is dropped.
pub(super) fn stream<F>(work: impl FnOnce(Out) -> F) -> Deltas
where
    F: Future<Output = Result<(), ModelError>> + Send + 'static,
{
    let (out, pieces) = mpsc::channel(WAITING);
    let work: Work = Box::pin(work(Out(out)));
    let state = State { work: Some(work), pieces, error: None };
    Box::pin(unfold(state, |mut state| async move {
        let piece = state.next().await?;
        Some((piece, state))
    }))
}

impl State {
    async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        if let Some(work) = &mut self.work {
            tokio::select! {
                biased;
                Some(piece) = self.pieces.recv() => return Some(Ok(piece)),
                done = work => self.error = done.err(),
            }
            self.work = None;
        }
        match self.pieces.recv().await {
            Some(piece) => Some(Ok(piece)),
            None => self.error.take().map(Err),
        }
    }
}
