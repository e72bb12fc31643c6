//! The socket of an HTTP/2 connection, as the library sees it: little is read at a time, and the parts of
//! what is written are joined.
//!
//! A client that floods a connection with frames, or opens its windows byte by byte, always has more to read.
//! The library reads until nothing is left, and would keep the other connections of the thread waiting.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes after which the connection waits for its next turn: about a thousand of the smallest frames.
const READ_MAX: usize = 8 << 10;

/// The bytes that may be read in the present turn.
#[derive(Debug, Clone)]
pub(super) struct ReadTurn(Rc<Cell<usize>>);

impl ReadTurn {
    /// Makes the turns of a socket, of which the first has begun.
    pub(super) fn new() -> ReadTurn {
        ReadTurn(Rc::new(Cell::new(READ_MAX)))
    }

    /// Begins the next turn.
    pub(super) fn begin(&self) {
        self.0.set(READ_MAX);
    }
}

/// The socket.
#[derive(Debug)]
pub(super) struct Http2Io<T> {
    inner: T,
    turn: ReadTurn,
}

impl<T> Http2Io<T> {
    pub(super) fn new(inner: T, turn: ReadTurn) -> Http2Io<T> {
        Http2Io { inner, turn }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Http2Io<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let left = stream.turn.0.get();
        if left == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let filled = buffer.filled().len();
        ready!(Pin::new(&mut stream.inner).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - filled;
        stream.turn.0.set(left.saturating_sub(read));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Http2Io<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
    }

    /// The library then joins frames of up to 1 KiB, and the notices of many streams leave in one write.
    fn is_write_vectored(&self) -> bool {
        false
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
    use crate::http::connection::count_wakes::CountWakes;
    use std::sync::Arc;
    use std::task::Waker;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn turn_ends_after_its_bytes() {
        let (near, mut far) = tokio::io::duplex(4 * READ_MAX);
        far.write_all(&[0; 2 * READ_MAX]).await.unwrap();
        let turn = ReadTurn::new();
        let mut stream = Http2Io::new(near, turn.clone());
        let wakes = Arc::new(CountWakes::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        let mut read_all = || {
            let mut read = 0;
            let mut room = [0; 1_000];
            loop {
                let mut buffer = ReadBuf::new(&mut room);
                match Pin::new(&mut stream).poll_read(&mut cx, &mut buffer) {
                    Poll::Ready(done) => done.unwrap(),
                    Poll::Pending => return read,
                }
                read += buffer.filled().len();
            }
        };
        let first = read_all();
        assert!((READ_MAX..READ_MAX + 1_000).contains(&first), "{first}");
        assert_eq!((read_all(), wakes.count()), (0, 2));
        turn.begin();
        assert_eq!(first + read_all(), 2 * READ_MAX);
        assert_eq!(wakes.count(), 2, "it waits for its client");
    }
}
