//! A connection whose other side stops reading is closed after a while, whatever waits to be sent.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep},
};

/// A stream whose writes fail when they make no progress for too long.
pub(crate) struct Stalled<S> {
    stream: S,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalled<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    /// Passes progress on, and turns waiting for too long into an error.
    fn judge<T>(&mut self, cx: &mut Context<'_>, poll: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if poll.is_ready() {
            self.waiting = None;
            return poll;
        }
        let end = Instant::now() + self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
        match waiting.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalled<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalled<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.judge(cx, poll)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_flush(cx);
        self.judge(cx, poll)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let poll = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.judge(cx, poll)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_fails_after_a_while() {
        let (mut other, own) = tokio::io::duplex(16);
        let mut own = Stalled::new(own, PATIENCE);
        let since = Instant::now();
        let error = own.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(since.elapsed() >= PATIENCE);
        // What was taken before is there all the same.
        let mut piece = [0; 16];
        other.read_exact(&mut piece).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_that_goes_on_reading_is_served() {
        let (mut other, own) = tokio::io::duplex(16);
        let mut own = Stalled::new(own, PATIENCE);
        let reading = tokio::spawn(async move {
            let mut piece = [0; 16];
            for _ in 0..20 {
                tokio::time::sleep(PATIENCE / 2).await;
                other.read_exact(&mut piece).await.unwrap();
            }
        });
        own.write_all(&[0; 320]).await.unwrap();
        reading.await.unwrap();
    }
}
