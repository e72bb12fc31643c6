//! A byte stream that counts the bytes that its far end takes, and fails when the far end takes none for too
//! long.

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::WriteProgress;

/// A connection with a deadline for writes. Put its [`progress`](Self::progress) into the extensions of each
/// request that comes over it; the streams that answer then take nothing from their outboxes while the
/// connection is blocked.
#[derive(Debug)]
pub struct WriteDeadline<T> {
    inner: T,
    progress: Arc<WriteProgress>,
    write_timeout: Option<Duration>,
    /// Set while writes are refused, so a connection that keeps up has no timer.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteDeadline<T> {
    /// Wraps `inner`. When its far end takes no byte for `write_timeout`, writing fails with
    /// [`TimedOut`](io::ErrorKind::TimedOut); without a time-out it waits for ever.
    pub fn new(inner: T, write_timeout: Option<Duration>) -> WriteDeadline<T> {
        WriteDeadline {
            inner,
            progress: Arc::default(),
            write_timeout,
            deadline: None,
        }
    }

    /// Returns the write progress of the connection.
    pub fn progress(&self) -> &Arc<WriteProgress> {
        &self.progress
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        &mut self.inner
    }

    /// Fails if the connection was cut.
    fn check_cut(&mut self) -> io::Result<()> {
        if self.progress.is_cut() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the connection was cut, since its session was ended and it takes nothing",
            ));
        }
        Ok(())
    }

    /// Notes the result of a write, and starts or stops the deadline.
    fn note_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                // Any progress counts, so the next refused write gets the whole time again.
                self.deadline = None;
                if self.progress.took(bytes) {
                    // The stream that waits for the connection is polled by the task that writes.
                    cx.waker().wake_by_ref();
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.note_error(error))),
            Poll::Pending => {
                self.progress.refused();
                // Without a time-out the wait is still noted, so that outboxes hold their entries back.
                let Some(timeout) = self.write_timeout else {
                    return Poll::Pending;
                };
                let deadline = self
                    .deadline
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                ready!(deadline.as_mut().poll(cx));
                let text = "the far end took nothing for the write time-out";
                Poll::Ready(Err(self.note_error(io::Error::new(io::ErrorKind::TimedOut, text))))
            }
        }
    }

    /// Notes a time-out: of the deadline here, or of the kernel (`TCP_USER_TIMEOUT`).
    fn note_error(&self, error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::TimedOut {
            self.progress.time_out();
        }
        error
    }
}

/// Returns true if an error comes from a write that made no progress, by the deadline here or by the kernel's
/// `TCP_USER_TIMEOUT`.
pub(crate) fn is_write_timeout(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>()
            && io.kind() == io::ErrorKind::TimedOut
        {
            return true;
        }
        cause = error.source();
    }
    false
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteDeadline<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let read = ready!(Pin::new(&mut stream.inner).poll_read(cx, buffer));
        Poll::Ready(read.map_err(|error| stream.note_error(error)))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        stream.check_cut()?;
        let written = Pin::new(&mut stream.inner).poll_write(cx, bytes);
        stream.note_write(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        stream.check_cut()?;
        let written = Pin::new(&mut stream.inner).poll_write_vectored(cx, slices);
        stream.note_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn far_end_that_takes_nothing_times_out() {
        let (near, _far) = tokio::io::duplex(8);
        let mut stream = WriteDeadline::new(near, Some(MINUTE));
        let progress = stream.progress().clone();
        let started = tokio::time::Instant::now();
        let error = stream.write_all(&[0; 9]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(started.elapsed(), MINUTE);
        assert!(progress.timed_out() && progress.written() == 8);
    }

    #[tokio::test(start_paused = true)]
    async fn far_end_that_takes_single_bytes_is_awaited() {
        let (near, mut far) = tokio::io::duplex(1);
        let mut stream = WriteDeadline::new(near, Some(MINUTE));
        let progress = stream.progress().clone();
        let read = tokio::spawn(async move {
            for _ in 0..5 {
                tokio::time::sleep(MINUTE - Duration::from_secs(1)).await;
                far.read_u8().await.unwrap();
            }
            far
        });
        stream.write_all(&[0; 6]).await.unwrap();
        drop(read.await.unwrap());
        assert!(!progress.timed_out() && !progress.is_blocked());
        assert_eq!(progress.written(), 6);
    }
}
