//! The first bytes of a connection: they tell its protocol, and are then read by the code that speaks it.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::Instant;

use super::Protocol;
use crate::metrics::{self, Limit};

/// The bytes with which a client begins HTTP/2 (RFC 9113, 3.4). No request of HTTP/1.1 begins so.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes for which one read has room: most requests are shorter.
const READ_BYTES: usize = 4 << 10;

/// The beginning of a connection.
#[derive(Debug)]
pub(super) struct FirstBytes {
    pub(super) protocol: Protocol,
    /// The bytes that were read, which belong to the first request.
    pub(super) bytes: Vec<u8>,
}

/// Reads until the protocol is known. Returns none if the connection ended or said nothing within `timeout`.
pub(super) async fn read<T: AsyncRead + Unpin>(
    stream: &mut T,
    timeout: Duration,
    mut closing: watch::Receiver<bool>,
) -> io::Result<Option<FirstBytes>> {
    let mut bytes = Vec::new();
    let deadline = Instant::now() + timeout;
    loop {
        let reading = poll_fn(|cx| poll_more(stream, cx, &mut bytes));
        let read = tokio::select! {
            read = tokio::time::timeout_at(deadline, reading) => read,
            _ = closing.wait_for(|closing| *closing) => return Ok(None),
        };
        match read {
            Ok(Ok(0)) => return Ok(None),
            Ok(read) => read?,
            Err(_elapsed) => {
                metrics::limit_reached(Limit::HeaderTimeout);
                return Ok(None);
            }
        };
        if let Some(protocol) = protocol_of(&bytes) {
            return Ok(Some(FirstBytes { protocol, bytes }));
        }
    }
}

/// Reads once, and appends the bytes. Their room is on the stack, since a client may be silent for long after
/// it has connected, and then holds no memory for them.
fn poll_more<T: AsyncRead + Unpin>(
    stream: &mut T,
    cx: &mut Context<'_>,
    bytes: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    let mut room = [MaybeUninit::uninit(); READ_BYTES];
    let mut buffer = ReadBuf::uninit(&mut room);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    bytes.extend_from_slice(buffer.filled());
    Poll::Ready(Ok(buffer.filled().len()))
}

/// Returns the protocol of a connection that begins with `bytes`; none if more of them are needed.
fn protocol_of(bytes: &[u8]) -> Option<Protocol> {
    let shared = bytes.len().min(PREFACE.len());
    if bytes[..shared] != PREFACE[..shared] {
        return Some(Protocol::Http1);
    }
    (shared == PREFACE.len()).then_some(Protocol::Http2)
}

/// A stream that returns bytes which were read ahead first.
#[derive(Debug)]
pub(super) struct Prefixed<T> {
    prefix: Bytes,
    inner: T,
}

impl<T> Prefixed<T> {
    pub(super) fn new(inner: T) -> Prefixed<T> {
        Prefixed {
            prefix: Bytes::new(),
            inner,
        }
    }

    /// Gives bytes back, to be read again.
    pub(super) fn unread(&mut self, bytes: Vec<u8>) {
        self.prefix = bytes.into();
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Prefixed<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if stream.prefix.is_empty() {
            return Pin::new(&mut stream.inner).poll_read(cx, buffer);
        }
        let part = stream
            .prefix
            .split_to(stream.prefix.len().min(buffer.remaining()));
        buffer.put_slice(&part);
        if stream.prefix.is_empty() {
            // Frees the bytes, which a long stream would keep otherwise.
            stream.prefix = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Prefixed<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn whole_preface_alone_is_http2() {
        for (bytes, protocol) in [
            (&b"P"[..], None),
            (&PREFACE[..PREFACE.len() - 1], None),
            (PREFACE, Some(Protocol::Http2)),
            (&[PREFACE, b"\0\0\0\x04"].concat(), Some(Protocol::Http2)),
            (b"PUT", Some(Protocol::Http1)),
            (b"G", Some(Protocol::Http1)),
            (b"PRI * HTTP/1.1", Some(Protocol::Http1)),
        ] {
            assert_eq!(protocol_of(bytes), protocol, "{bytes:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn part_of_the_preface_is_awaited_and_kept() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let (_closing, closed) = watch::channel(false);
        let (told, ()) = tokio::join!(read(&mut near, SECOND, closed), async {
            for part in PREFACE.chunks(5) {
                far.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        let first = told.unwrap().unwrap();
        assert_eq!(first.protocol, Protocol::Http2);
        let mut stream = Prefixed::new(near);
        stream.unread(first.bytes);
        let mut again = vec![0; PREFACE.len()];
        stream.read_exact(&mut again).await.unwrap();
        assert_eq!(again, PREFACE);
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connection_ends_in_time() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let (_closing, closed) = watch::channel(false);
        far.write_all(b"PRI").await.unwrap();
        let begin = Instant::now();
        assert!(read(&mut near, SECOND, closed).await.unwrap().is_none());
        assert_eq!(begin.elapsed(), SECOND);
    }
}
