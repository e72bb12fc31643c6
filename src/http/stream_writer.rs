//! Writes a stream after its head: chunks (RFC 9112, 7.1) of what its source has, straight to the socket.
//!
//! Owns: the socket of one stream, and what the kernel has not taken of its last chunk. Never: takes more from the source
//! than one write carries, so what is not taken stays with the source, which conflates it. Receives a connection from the
//! HTTP server; polled on the thread that carries it.
//!
//! Nothing that a client sends on a connection that carries a stream can be answered before the stream ends, which is
//! also the end of the connection; it is read, so that a client that goes away is noticed, and dropped.

use std::cell::Cell;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::write_deadline::WriteDeadline;
use crate::http::stream_handover::{Appended, Stream};

/// Writes before other streams of the thread have their turn.
const WRITES_PER_TURN: usize = 8;
/// What a client may send on a connection that carries a stream; at the limit the connection ends.
const IGNORED_MAX: usize = 64 * 1024;
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Room for the head of a chunk: its size in hexadecimal digits and the end of that line.
const CHUNK_HEAD: usize = 2 * size_of::<usize>() + 2;
/// What a thread keeps of the place where chunks are put together.
const CHUNK_KEPT: usize = 256 * 1024;

thread_local! {
    /// Where a chunk is put together: one for all streams of a thread, since a chunk that the kernel takes whole, the
    /// rule, leaves nothing behind.
    static CHUNK: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// One stream on its way to the socket; ends with the stream or the client.
pub(super) struct StreamWriter<T> {
    socket: WriteDeadline<T>,
    source: Stream,
    /// What the kernel has not taken yet.
    rest: Vec<u8>,
    last: bool,
    ignored: usize,
}

impl<T: AsyncRead + AsyncWrite + Unpin> StreamWriter<T> {
    /// A writer of what `source` has.
    pub(super) fn new(socket: WriteDeadline<T>, source: Stream) -> StreamWriter<T> {
        StreamWriter {
            socket,
            source,
            rest: Vec::new(),
            last: false,
            ignored: 0,
        }
    }

    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.poll_client_gone(cx)? {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..WRITES_PER_TURN {
            let blocked = self.poll_rest(cx)?.is_pending();
            if self.last {
                return if blocked {
                    Poll::Pending
                } else {
                    Poll::Ready(Ok(()))
                };
            }
            // Also while the connection is blocked: the source then gives nothing, but wakes this when it is ended.
            let appended = std::task::ready!(self.poll_chunk(cx)?);
            self.last = appended == Appended::Finished;
            if blocked || (appended == Appended::Drained && self.rest.is_empty()) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes what the source has as one chunk; after its last, the end.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Appended>> {
        let mut chunk = CHUNK.take();
        chunk.clear();
        chunk.resize(CHUNK_HEAD, 0);
        let appended = self.source.poll_append(cx, &mut chunk);
        let written = match appended {
            Poll::Ready(appended) => {
                let start = close_chunk(&mut chunk, appended == Appended::Finished);
                self.write(cx, &chunk[start..])
            }
            Poll::Pending => Ok(()),
        };
        chunk.shrink_to(CHUNK_KEPT);
        CHUNK.set(chunk);
        written?;
        appended.map(Ok)
    }

    /// Writes what the kernel takes of `bytes` after everything before them, and keeps the rest.
    fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        let taken = if self.rest.is_empty() && !bytes.is_empty() {
            match Pin::new(&mut self.socket).poll_write(cx, bytes) {
                Poll::Ready(taken) => taken?,
                Poll::Pending => 0,
            }
        } else {
            0
        };
        self.rest.extend_from_slice(&bytes[taken..]);
        Ok(())
    }

    /// Writes what was kept.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.rest.is_empty() {
            let taken = std::task::ready!(Pin::new(&mut self.socket).poll_write(cx, &self.rest))?;
            self.rest.drain(..taken);
            if self.rest.is_empty() {
                // An idle stream holds no buffer.
                self.rest = Vec::new();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the client has gone; reads what it sends.
    fn poll_client_gone(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        let mut scratch = [0; 512];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.socket).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(false),
                Poll::Ready(read) => read?,
            }
            if buffer.filled().is_empty() {
                return Ok(true);
            }
            self.ignored += buffer.filled().len();
            if self.ignored > IGNORED_MAX {
                let text = "the client sends requests on a connection that carries a stream";
                return Err(io::Error::other(text));
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for StreamWriter<T> {
    /// An error is how the connection of a client that went away, or was cut off, ends.
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_stream(cx)
    }
}

impl<T> std::fmt::Debug for StreamWriter<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamWriter").finish_non_exhaustive()
    }
}

/// Makes a chunk of what was appended after the room for its head, and adds the last chunk if it is the last; answers
/// where it starts. Nothing appended makes no chunk, since an empty one would end the stream.
fn close_chunk(chunk: &mut Vec<u8>, last: bool) -> usize {
    let size = chunk.len() - CHUNK_HEAD;
    let mut start = CHUNK_HEAD;
    if size > 0 {
        let mut head = [0; CHUNK_HEAD];
        let mut room = &mut head[..];
        write!(room, "{size:x}\r\n").expect("the head of a chunk fits: it has room for the largest size");
        let length = CHUNK_HEAD - room.len();
        start -= length;
        chunk[start..CHUNK_HEAD].copy_from_slice(&head[..length]);
        chunk.extend_from_slice(b"\r\n");
    }
    if last {
        chunk.extend_from_slice(LAST_CHUNK);
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::stream_handover::BodyStream;
    use bytes::Bytes;
    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    async fn pair() -> (TcpStream, WriteDeadline<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        (client.unwrap(), WriteDeadline::new(server.unwrap().0, None))
    }

    fn body(frames: Vec<Bytes>) -> Stream {
        let frames = frames
            .into_iter()
            .map(|data| Ok::<_, Infallible>(Frame::data(data)));
        Box::new(BodyStream(StreamBody::new(stream::iter(
            frames.collect::<Vec<_>>(),
        ))))
    }

    fn silent() -> Stream {
        let frames = stream::pending::<Result<Frame<Bytes>, Infallible>>();
        Box::new(BodyStream(StreamBody::new(frames)))
    }

    #[tokio::test]
    async fn frames_become_chunks_and_the_end_is_told() {
        let (mut client, server) = pair().await;
        let frames = vec![
            Bytes::from("hello"),
            Bytes::new(),
            Bytes::from("0123456789abcdef"),
        ];
        StreamWriter::new(server, body(frames)).await.unwrap();
        let mut read = String::new();
        client.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n");
    }

    #[tokio::test]
    async fn what_the_kernel_does_not_take_at_once_is_written_later_and_in_order() {
        let (mut client, server) = pair().await;
        let frames: Vec<_> = (0..40_u8)
            .map(|n| Bytes::from(vec![b'a' + n % 26; 256 * 1024]))
            .collect();
        let expected: usize = frames
            .iter()
            .map(|frame| frame.len() + "40000\r\n\r\n".len())
            .sum();
        let writing = tokio::spawn(StreamWriter::new(server, body(frames.clone())));
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.unwrap();
        writing.await.unwrap().unwrap();
        assert_eq!(read.len(), expected + LAST_CHUNK.len());
        let mut rest = &read[..];
        for frame in &frames {
            rest = rest.strip_prefix(b"40000\r\n").unwrap();
            rest = rest.strip_prefix(&frame[..]).unwrap();
            rest = rest.strip_prefix(b"\r\n").unwrap();
        }
        assert_eq!(rest, LAST_CHUNK);
    }

    #[tokio::test]
    async fn a_client_that_goes_away_ends_its_stream() {
        let (client, server) = pair().await;
        let silent = silent();
        let writing = tokio::spawn(StreamWriter::new(server, silent));
        drop(client);
        writing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_a_client_sends_is_ignored_up_to_a_limit() {
        let (mut client, server) = pair().await;
        let silent = silent();
        let writing = tokio::spawn(StreamWriter::new(server, silent));
        // Refused once the limit is passed and the connection is gone.
        while client.write_all(&[b'x'; 4096]).await.is_ok() {}
        writing.await.unwrap().unwrap_err();
    }
}
