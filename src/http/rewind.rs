//! A stream of bytes whose beginning was looked at before anybody read it.
//!
//! Owns: [`Rewind`], which gives the bytes looked at to whoever reads first. Never: buffers beyond them, or writes by
//! itself. Made and read by the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// How much of the beginning is looked at: enough to tell a request for a WebSocket from all others.
const START_BYTES: usize = super::connection::UPGRADE_START.len();

/// A stream that begins with what was looked at of it.
#[derive(Debug)]
pub(super) struct Rewind<T> {
    inner: T,
    start: [u8; START_BYTES],
    /// Of those, where the ones begin that nobody has read, and where they end.
    unread: (u8, u8),
}

impl<T: AsyncRead + Unpin> Rewind<T> {
    /// Waits until the far end says something and looks at it; at nothing when the stream ends first.
    pub(super) async fn new(mut inner: T) -> io::Result<Rewind<T>> {
        let mut start = [0; START_BYTES];
        let end = inner.read(&mut start).await?;
        Ok(Rewind {
            inner,
            start,
            unread: (0, u8::try_from(end).unwrap_or(u8::MAX)),
        })
    }

    /// What nobody has read yet of what was looked at.
    pub(super) fn start(&self) -> &[u8] {
        let (begin, end) = self.unread;
        &self.start[usize::from(begin)..usize::from(end)]
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewind<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rewind = self.get_mut();
        let unread = rewind.start();
        if unread.is_empty() {
            return Pin::new(&mut rewind.inner).poll_read(cx, buffer);
        }
        let count = unread.len().min(buffer.remaining());
        buffer.put_slice(&unread[..count]);
        // At most `START_BYTES`.
        rewind.unread.0 += count as u8;
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewind<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, slices)
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
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn what_was_looked_at_is_read_first_and_once() {
        let (mut far, near) = tokio::io::duplex(64);
        far.write_all(b"GET /v1/ws HTTP/1.1").await.unwrap();
        let mut rewind = Rewind::new(near).await.unwrap();
        assert_eq!(rewind.start(), b"GET /v1/ws");
        far.shutdown().await.unwrap();
        let mut first = [0; 3];
        rewind.read_exact(&mut first).await.unwrap();
        assert_eq!(rewind.start(), b" /v1/ws");
        let mut rest = String::new();
        rewind.read_to_string(&mut rest).await.unwrap();
        assert_eq!((&first, rest.as_str()), (b"GET", " /v1/ws HTTP/1.1"));
    }

    #[tokio::test]
    async fn a_stream_that_ends_at_once_has_nothing_to_look_at() {
        let (far, near) = tokio::io::duplex(64);
        drop(far);
        assert_eq!(Rewind::new(near).await.unwrap().start(), b"");
    }
}
