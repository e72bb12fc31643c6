//! A byte stream that notes what its far end takes, and gives up on one that takes nothing.
//!
//! Owns: [`WriteDeadline`] and its write deadline, a timer that is there only while a write is being refused. Never: buffers
//! or looks into bytes. Written by whoever carries a connection; what it notes is read by the outboxes of the streams
//! that go over it.

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::WriteProgress;

/// A connection with a meter. Put its [`progress`](Self::progress) into the extensions of each request that comes over it, and
/// the streams that answer them take nothing from their outboxes while the connection is blocked.
#[derive(Debug)]
pub struct WriteDeadline<T> {
    inner: T,
    progress: Arc<WriteProgress>,
    write_timeout: Option<Duration>,
    /// There while writes are refused.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteDeadline<T> {
    /// Meters `inner`. Once its far end has taken nothing of what is written for `write_timeout`, writing fails with
    /// [`TimedOut`](io::ErrorKind::TimedOut); with none it waits for ever.
    pub fn new(inner: T, write_timeout: Option<Duration>) -> WriteDeadline<T> {
        WriteDeadline {
            inner,
            progress: Arc::default(),
            write_timeout,
            deadline: None,
        }
    }

    /// What it notes.
    pub fn progress(&self) -> &Arc<WriteProgress> {
        &self.progress
    }

    /// Whether writing is over.
    fn poll_fate(&mut self) -> io::Result<()> {
        if self.progress.is_cut() {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                "the connection was cut, since its session was ended and it takes nothing",
            ));
        }
        Ok(())
    }

    /// Notes what became of a write.
    fn note(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                self.deadline = None;
                if self.progress.took(bytes) {
                    // The stream that waits for this is polled by the task that writes.
                    cx.waker().wake_by_ref();
                }
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.noted(error))),
            Poll::Pending => {
                self.progress.refused();
                let Some(timeout) = self.write_timeout else {
                    return Poll::Pending;
                };
                let deadline = self
                    .deadline
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
                ready!(deadline.as_mut().poll(cx));
                let text = "the far end took nothing for the write time-out";
                Poll::Ready(Err(self.noted(io::Error::new(io::ErrorKind::TimedOut, text))))
            }
        }
    }

    /// The kernel gives up in the same way on what it holds itself (`TCP_USER_TIMEOUT`).
    fn noted(&self, error: io::Error) -> io::Error {
        if error.kind() == io::ErrorKind::TimedOut {
            self.progress.time_out();
        }
        error
    }
}

/// Returns true if a write that made no progress is what an error comes from: the deadline here, or the
/// kernel's `TCP_USER_TIMEOUT`.
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
        Poll::Ready(read.map_err(|error| stream.noted(error)))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        stream.poll_fate()?;
        let written = Pin::new(&mut stream.inner).poll_write(cx, bytes);
        stream.note(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        stream.poll_fate()?;
        let written = Pin::new(&mut stream.inner).poll_write_vectored(cx, slices);
        stream.note(cx, written)
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
    async fn a_far_end_that_takes_nothing_for_the_time_out_is_given_up_on() {
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
    async fn one_that_takes_a_byte_at_a_time_is_waited_for() {
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
