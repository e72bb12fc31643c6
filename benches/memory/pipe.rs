//! A connection in memory.
//!
//! It keeps no buffer that is empty, so that the memory of a connection is the server's and not the pipe's.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The limit on the bytes that wait in one direction.
const ROOM: usize = 64 * 1024;

/// One end of a connection.
pub(super) struct Pipe {
    shared: Arc<[Mutex<Direction>; 2]>,
    /// The direction that it writes to; it reads the other one.
    side: usize,
}

#[derive(Default)]
struct Direction {
    bytes: Vec<u8>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    closed: bool,
}

impl Direction {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

impl Pipe {
    /// Returns both ends of a new connection.
    pub(super) fn pair() -> (Pipe, Pipe) {
        let shared = Arc::<[Mutex<Direction>; 2]>::default();
        let near = Pipe {
            shared: shared.clone(),
            side: 0,
        };
        (near, Pipe { shared, side: 1 })
    }

    fn direction(&self, side: usize) -> MutexGuard<'_, Direction> {
        self.shared[side].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut direction = self.direction(1 - self.side);
        if direction.bytes.is_empty() && !direction.closed {
            direction.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = direction.bytes.len().min(buffer.remaining());
        buffer.put_slice(&direction.bytes[..count]);
        direction.bytes.drain(..count);
        if direction.bytes.is_empty() {
            // Frees the buffer, which clearing it would not.
            direction.bytes = Vec::new();
        }
        if let Some(writer) = direction.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut direction = self.direction(self.side);
        if direction.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(ROOM - direction.bytes.len());
        if count == 0 {
            direction.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        direction.bytes.extend_from_slice(&bytes[..count]);
        if let Some(reader) = direction.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut direction = self.direction(self.side);
        direction.closed = true;
        direction.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for side in [0, 1] {
            let mut direction = self.direction(side);
            direction.closed = true;
            direction.wake();
        }
    }
}
