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

use super::turn_queue::{READS, Turns, yield_to_sockets};

/// The bytes of one turn: some hundreds of the smallest frames.
const READ_MAX: usize = 8 << 10;

/// The turns in which a socket is read.
pub(super) struct ReadTurns {
    /// The bytes that may be read in the present turn.
    left: Rc<Cell<usize>>,
    /// True if the connection has its turns in a row: it is new, or had more to read than one turn has.
    is_in_row: bool,
    /// False while it waits in the row.
    may_read: bool,
    row: Turns,
}

impl ReadTurns {
    /// Makes the turns of a new connection.
    pub(super) fn new() -> ReadTurns {
        ReadTurns {
            left: Rc::default(),
            is_in_row: true,
            may_read: false,
            row: Turns::new(&READS),
        }
    }

    /// Begins a turn, in which nothing is read while the connection waits in the row.
    pub(super) fn begin(&mut self, cx: &Context<'_>) {
        self.may_read = !self.is_in_row || self.row.ask(cx);
        self.left.set(if self.may_read { READ_MAX } else { 0 });
    }

    /// Ends a turn. Where more may have come, the connection has its next one after those that wait.
    pub(super) fn end(&mut self, cx: &mut Context<'_>) {
        if !self.may_read {
            return;
        }
        self.row.end();
        self.is_in_row = self.left.get() == 0;
        if self.is_in_row && self.row.ask(cx) {
            yield_to_sockets(cx);
        }
    }
}

/// The socket.
#[derive(Debug)]
pub(super) struct Http2Io<T> {
    inner: T,
    left: Rc<Cell<usize>>,
}

impl<T> Http2Io<T> {
    pub(super) fn new(inner: T, turns: &ReadTurns) -> Http2Io<T> {
        let left = turns.left.clone();
        Http2Io { inner, left }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Http2Io<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let left = stream.left.get();
        if left == 0 {
            // The task is polled again with its next turn.
            return Poll::Pending;
        }
        let filled = buffer.filled().len();
        ready!(Pin::new(&mut stream.inner).poll_read(cx, buffer))?;
        let read = buffer.filled().len() - filled;
        stream.left.set(left.saturating_sub(read));
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
    use tokio::io::{AsyncWriteExt, DuplexStream};

    struct Scene {
        turns: ReadTurns,
        socket: Http2Io<DuplexStream>,
        far: DuplexStream,
        wakes: Arc<CountWakes>,
    }

    impl Scene {
        /// Makes a connection with this many bytes to read.
        async fn of(bytes: usize) -> Scene {
            let (near, mut far) = tokio::io::duplex(4 * READ_MAX);
            far.write_all(&vec![0; bytes]).await.unwrap();
            let turns = ReadTurns::new();
            Scene {
                socket: Http2Io::new(near, &turns),
                turns,
                far,
                wakes: Arc::default(),
            }
        }

        /// Returns the bytes that one turn reads.
        fn read(&mut self) -> usize {
            let waker = Waker::from(self.wakes.clone());
            let mut cx = Context::from_waker(&waker);
            self.turns.begin(&cx);
            let mut read = 0;
            let mut room = [0; READ_MAX / 8];
            loop {
                let mut buffer = ReadBuf::new(&mut room);
                match Pin::new(&mut self.socket).poll_read(&mut cx, &mut buffer) {
                    Poll::Ready(done) => done.unwrap(),
                    Poll::Pending => break,
                }
                read += buffer.filled().len();
            }
            self.turns.end(&mut cx);
            read
        }
    }

    #[tokio::test]
    async fn connections_with_more_than_a_turn_take_turns() {
        let mut scenes = Vec::new();
        for _ in 0..3 {
            scenes.push(Scene::of(2 * READ_MAX + 1).await);
        }
        let mut round = || scenes.iter_mut().map(Scene::read).collect::<Vec<_>>();
        // Two read at a time, and the third one has its turn when the first has had its own.
        assert_eq!(round(), [READ_MAX, READ_MAX, 0]);
        assert_eq!(round(), [READ_MAX; 3]);
        assert_eq!(round(), [1, 1, READ_MAX]);
        assert_eq!(round(), [0, 0, 1]);
        for scene in &mut scenes {
            // One that has little to read waits for nobody.
            scene.far.write_all(b"more").await.unwrap();
            assert_eq!(scene.read(), 4);
        }
    }

    #[tokio::test]
    async fn connection_is_woken_when_it_may_read_on() {
        let mut scenes = Vec::new();
        for _ in 0..3 {
            scenes.push(Scene::of(READ_MAX).await);
        }
        let turns: Vec<Turns> = (0..2).map(|_| Turns::new(&READS)).collect();
        let cx = Context::from_waker(Waker::noop());
        assert!(turns.iter().all(|turn| turn.ask(&cx)));
        let last = &mut scenes[2];
        assert_eq!((last.read(), last.wakes.count()), (0, 0));
        drop(turns);
        assert_eq!(last.wakes.count(), 1);
        assert_eq!(last.read(), READ_MAX);
        tokio::task::yield_now().await;
        assert_eq!(last.wakes.count(), 2);
        assert_eq!(last.read(), 0);
        tokio::task::yield_now().await;
        assert_eq!(last.wakes.count(), 2, "it waits for its client");
    }
}
