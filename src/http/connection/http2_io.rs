//! The socket of an HTTP/2 connection, as the library sees it: little is read at a time, and the parts of
//! what is written are joined.
//!
//! A client that floods a connection with frames, or opens its windows byte by byte, always has more to read.
//! The library reads until nothing is left, and would keep the other connections of the thread waiting.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use crate::metrics::{self, Limit};

/// The time for which the library is given more to read in one turn. A part of a body takes a few
/// microseconds, and as many bytes of small frames a hundred times that.
const READ_TIME: Duration = Duration::from_micros(100);

/// The bytes of the first read in a turn: some forty requests, or more of the smallest frames. The library
/// takes all their frames before the time is looked at again. Each further read has twice as many, so that a
/// large body takes few.
const READ_BYTES_MIN: u64 = 2 << 10;

/// The bytes of one read at most.
const READ_BYTES_MAX: u64 = 64 << 10;

/// The turns in which a socket is read.
#[derive(Debug, Clone)]
pub(super) struct ReadTurns(Rc<Cell<Reading>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Until then, so many bytes with the next read.
    Until(Instant, u64),
    /// There may be more to read than was read: the connection is new, or its time was over.
    Interrupted,
    /// Not in this turn, which was for something else.
    Later,
}

impl ReadTurns {
    /// Makes the turns of a new connection.
    pub(super) fn new() -> ReadTurns {
        ReadTurns(Rc::new(Cell::new(Reading::Interrupted)))
    }

    /// Returns true if the connection has to be polled again, with a turn, before it is woken by its socket.
    pub(super) fn is_interrupted(&self) -> bool {
        self.0.get() == Reading::Interrupted
    }

    /// Begins a turn in which the client is read from.
    pub(super) fn begin(&self) {
        self.0
            .set(Reading::Until(Instant::now() + READ_TIME, READ_BYTES_MIN));
    }

    /// Returns true if the connection has to be polled again, with a turn for reading, before it is woken by
    /// its socket.
    pub(super) fn is_put_off(&self) -> bool {
        self.0.get() == Reading::Later
    }

    /// Begins a turn for something else.
    pub(super) fn pass(&self) {
        if !self.is_interrupted() {
            self.0.set(Reading::Later);
        }
    }
}

/// The turns in a row with more to read and no new request after which a connection rests. They take some
/// 0.3 ms, and the kernel lets a thread that works for longer keep its core before others that are ready.
const REST_AFTER: u32 = 2;

/// The time of a rest. A timer knows no less.
const REST: Duration = Duration::from_millis(1);

/// The rests of a connection whose client sends frames without requests all the time. A busy client has
/// requests among its frames, and a large body takes most of a turn's bytes in less than its time.
#[derive(Debug, Default)]
pub(super) struct ReadRests {
    turns: u32,
    /// The number of requests at the last turn.
    requests: u64,
    present: Option<Pin<Box<Sleep>>>,
}

impl ReadRests {
    /// Notes a turn of reading, and the requests that have come so far.
    pub(super) fn note_turn(&mut self, was_interrupted: bool, requests: u64) {
        let is_more = was_interrupted && requests == self.requests;
        self.requests = requests;
        self.turns = if is_more { self.turns + 1 } else { 0 };
        if self.turns == REST_AFTER {
            self.turns = 0;
            self.present = Some(Box::pin(sleep(REST)));
            metrics::limit_reached(Limit::Http2Frames);
        }
    }

    /// Returns true while the connection rests; its task is woken at the end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(present) = &mut self.present
            && present.as_mut().poll(cx).is_ready()
        {
            self.present = None;
        }
        self.present.is_some()
    }
}

/// The socket of a connection, which its owner keeps when the library drops it.
#[derive(Debug)]
pub(super) struct Socket<T>(Rc<RefCell<T>>);

impl<T: AsyncRead + AsyncWrite + Unpin> Socket<T> {
    pub(super) fn new(stream: T) -> Socket<T> {
        Socket(Rc::new(RefCell::new(stream)))
    }

    /// Returns the socket as the library sees it.
    pub(super) fn for_library(&self, turns: ReadTurns) -> Http2Io<T> {
        Http2Io {
            socket: self.0.clone(),
            turns,
        }
    }

    /// Ends the side of the service.
    pub(super) async fn shut_down(self) -> io::Result<()> {
        poll_fn(|cx| Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(cx)).await
    }
}

/// The socket, as the library sees it.
#[derive(Debug)]
pub(super) struct Http2Io<T> {
    /// Borrowed for single calls, so never twice at once.
    socket: Rc<RefCell<T>>,
    turns: ReadTurns,
}

impl<T: AsyncRead + Unpin> AsyncRead for Http2Io<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.turns.0.get() {
            Reading::Until(end, bytes) if Instant::now() < end => {
                let next = Reading::Until(end, (2 * bytes).min(READ_BYTES_MAX));
                self.turns.0.set(next);
                let mut socket = self.socket.borrow_mut();
                Pin::new(&mut (&mut *socket).take(bytes)).poll_read(cx, buffer)
            }
            // The task is polled again in its next turn.
            Reading::Later => Poll::Pending,
            _ => {
                self.turns.0.set(Reading::Interrupted);
                Poll::Pending
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Http2Io<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_write(cx, bytes)
    }

    /// The library then joins frames of up to 1 KiB, and the notices of many streams leave in one write.
    fn is_write_vectored(&self) -> bool {
        false
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.socket.borrow_mut()).poll_flush(cx)
    }

    /// Has no effect: when the library is at its end, the owner of the socket says when that is closed.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::io::AsyncWriteExt;

    #[tokio::test(start_paused = true)]
    async fn reading_is_interrupted_after_its_time() {
        let (near, mut far) = tokio::io::duplex(100);
        far.write_all(&[0; 20]).await.unwrap();
        let turns = ReadTurns::new();
        let mut socket = Socket::new(near).for_library(turns.clone());
        let mut read = || {
            let mut cx = Context::from_waker(Waker::noop());
            let mut room = [0; 10];
            let mut buffer = ReadBuf::new(&mut room);
            let read = Pin::new(&mut socket).poll_read(&mut cx, &mut buffer);
            read.is_ready()
        };
        assert!(!read() && turns.is_interrupted(), "a new one waits for its turn");
        turns.begin();
        assert!(read());
        tokio::time::advance(READ_TIME).await;
        assert!(!turns.is_interrupted(), "it may have read all");
        assert!(!read() && turns.is_interrupted());
        turns.begin();
        assert!(read() && !read());
        assert!(!turns.is_interrupted(), "it waits for its client");
    }

    #[tokio::test(start_paused = true)]
    async fn frames_without_requests_bring_rests() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut rests = ReadRests::default();
        for turn in 0..10 * u64::from(REST_AFTER) {
            rests.note_turn(true, turn / 4);
            rests.note_turn(turn % 4 > 0, turn);
        }
        assert!(!rests.poll(&mut cx));
        for _ in 0..=REST_AFTER {
            assert!(!rests.poll(&mut cx));
            rests.note_turn(true, 7);
        }
        assert!(rests.poll(&mut cx));
        tokio::time::advance(REST).await;
        assert!(!rests.poll(&mut cx));
    }
}
