//! Writes a stream after its head: chunks (RFC 9112, 7.1) of the bytes of its source, straight to the socket.
//!
//! It takes no more from the source than one write carries. The rest stays in the source, where newer notices
//! replace older ones.
//!
//! A request that a client sends on such a connection cannot be answered before the stream ends, which is
//! also the end of the connection. The bytes are read, so that a client that goes away is noticed, and
//! dropped.

use std::cell::Cell;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::write_deadline::WriteDeadline;
use crate::http::stream_handover::{Appended, Stream};

/// The writes after which other streams of the thread have their turn.
const WRITES_PER_TURN: usize = 8;
/// The bytes that a client may send on a connection that carries a stream; at the limit the connection ends.
const IGNORED_MAX: usize = 64 * 1024;
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// The room for the head of a chunk: its size in hexadecimal digits and the end of that line.
const CHUNK_HEAD: usize = 2 * size_of::<usize>() + 2;
/// The capacity that a thread keeps of its buffer for chunks.
const CHUNK_KEPT: usize = 256 * 1024;

thread_local! {
    /// The buffer in which a chunk is made: one for all streams of a thread, as the kernel mostly takes a
    /// chunk whole.
    static CHUNK: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A stream on its way to the socket. The future ends with the stream or with the connection.
pub(super) struct StreamWriter<T> {
    socket: WriteDeadline<T>,
    source: Stream,
    /// The bytes that the kernel has not taken yet.
    rest: Vec<u8>,
    last: bool,
    ignored: usize,
}

impl<T: AsyncRead + AsyncWrite + Unpin> StreamWriter<T> {
    /// Makes a writer of the bytes of `source`.
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
        // First, so that nothing is taken from the source for a client that is gone.
        if self.poll_client_gone(cx)? {
            return Poll::Ready(Ok(()));
        }
        for _ in 0..WRITES_PER_TURN {
            let blocked = self.poll_rest(cx)?.is_pending();
            if self.last {
                return match blocked {
                    true => Poll::Pending,
                    // TLS says farewell, by which the client knows that nothing was cut off.
                    false => Pin::new(&mut self.socket).poll_shutdown(cx),
                };
            }
            // The source is polled while the connection is blocked, too: it gives nothing then, but wakes
            // this task when it is ended.
            let appended = std::task::ready!(self.poll_chunk(cx)?);
            self.last = appended == Appended::Finished;
            if blocked || (appended == Appended::Drained && self.rest.is_empty()) {
                return Poll::Pending;
            }
        }
        // The source may have more: this task goes to the end of the thread's queue.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes the next bytes of the source as one chunk, and the end after the last.
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
        // One large body must not hold its memory on every thread for good.
        chunk.shrink_to(CHUNK_KEPT);
        CHUNK.set(chunk);
        written?;
        appended.map(Ok)
    }

    /// Writes as much of `bytes` as the kernel takes, and keeps the rest. Earlier bytes come first.
    fn write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        // Kept bytes must be written before new ones.
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

    /// Writes the kept bytes.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.rest.is_empty() {
            let taken = std::task::ready!(Pin::new(&mut self.socket).poll_write(cx, &self.rest))?;
            self.rest.drain(..taken);
            if self.rest.is_empty() {
                // Frees the buffer: an idle stream holds none.
                self.rest = Vec::new();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and drops the bytes that the client sends. Returns true if the client is gone.
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
    /// An error is the usual end of the connection of a client that went away or was cut off.
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

/// Makes a chunk of the bytes after the room for its head, followed by the last chunk if it is the last.
/// Returns the index where it starts. No bytes make no chunk, as an empty one would end the stream.
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
    async fn frames_become_chunks_with_an_end() {
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
    async fn refused_bytes_are_written_later_in_order() {
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
    async fn client_that_goes_away_ends_its_stream() {
        let (client, server) = pair().await;
        let silent = silent();
        let writing = tokio::spawn(StreamWriter::new(server, silent));
        drop(client);
        writing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn received_bytes_are_ignored_up_to_a_limit() {
        let (mut client, server) = pair().await;
        let silent = silent();
        let writing = tokio::spawn(StreamWriter::new(server, silent));
        // Refused once the limit is passed and the connection is gone.
        while client.write_all(&[b'x'; 4096]).await.is_ok() {}
        writing.await.unwrap().unwrap_err();
    }
}
