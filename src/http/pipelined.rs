//! Pipelined `PUT`s: a client sends the next ones before the first is answered.
//!
//! The HTTP library serves the requests of a connection one after the other, so with a store each would wait
//! for a step of its own. A run of plain `PUT`s is therefore served at once, each by the library on a
//! connection in memory, and answered in order. The bus then gets all of them in one turn.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use percent_encoding::percent_decode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::debug;

use super::connection::Http1Service;
use super::server::RequestService;
use crate::metrics::{self, Limit};

/// The requests that are served at once; further ones are the next run.
const RUN_MAX: usize = 64;

/// The bytes that are read ahead. A request that does not fit is left to the library.
const AHEAD_MAX: usize = 64 << 10;

/// The bytes for which one read has room.
const READ_BYTES: usize = 16 << 10;

/// The path of a plain `PUT`, up to the URI.
const START: &str = "PUT /v1/resources/";

/// The headers of a plain `PUT` besides `Content-Length`. Others may change how it is framed or answered, or
/// make it depend on the request before.
const PLAIN_HEADERS: [&str; 9] = [
    "host",
    "content-type",
    "user-agent",
    "accept",
    "accept-encoding",
    "tidings-name",
    "tidings-title",
    "tidings-description",
    "tidings-subscribable",
];

/// The beginning of the bytes that were read ahead.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// A plain `PUT` of this length, with the decoded URI.
    Put(usize, Vec<u8>),
    /// Perhaps one, of which bytes are missing.
    Part,
    /// Something else, for the library.
    Other,
}

/// Serves runs of plain `PUT`s, as long as the connection brings nothing else; it begins with the bytes
/// `ahead`. Returns the bytes for the library; none if the connection has ended.
pub(super) async fn serve_runs<S, T>(
    stream: &mut T,
    mut ahead: Vec<u8>,
    header_timeout: Duration,
    mut closing: watch::Receiver<bool>,
    service: impl Fn() -> Http1Service<S>,
) -> io::Result<Option<Vec<u8>>>
where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut is_pipelining = false;
    let mut deadline = Instant::now() + header_timeout;
    loop {
        let (run, rest) = split_run(&ahead);
        let end = match run.last() {
            Some(end) => *end,
            None => 0,
        };
        // A single request is the library's, which serves it with less effort.
        is_pipelining |= run.len() > 1 || (run.len() == 1 && ahead.len() > end);
        if is_pipelining && !run.is_empty() {
            let (answers, is_whole) = answer_run(&ahead, &run, &service).await;
            stream.write_all(&answers).await?;
            stream.flush().await?;
            if !is_whole {
                return Ok(None);
            }
            ahead.drain(..end);
            deadline = Instant::now() + header_timeout;
            continue;
        }
        let reads_on = ahead.is_empty() || (is_pipelining && rest == Start::Part && ahead.len() < AHEAD_MAX);
        if !reads_on {
            return Ok(Some(ahead));
        }
        ahead.reserve(READ_BYTES);
        let read = tokio::select! {
            read = tokio::time::timeout_at(deadline, stream.read_buf(&mut ahead)) => read,
            _ = closing.wait_for(|closing| *closing) => return Ok(None),
        };
        match read {
            Ok(Ok(0)) => return Ok(None),
            Ok(read) => {
                read?;
            }
            // A request that comes in small parts: the library has a time for its head and one for its body.
            Err(_elapsed) if !ahead.is_empty() => return Ok(Some(ahead)),
            Err(_elapsed) => {
                metrics::limit_reached(Limit::HeaderTimeout);
                return Ok(None);
            }
        }
    }
}

/// Returns the ends of the plain `PUT`s at the beginning of `bytes`, and what comes after them.
fn split_run(bytes: &[u8]) -> (Vec<usize>, Start) {
    let mut ends = Vec::new();
    let mut uris = Vec::new();
    let mut end = 0;
    loop {
        match start_of(&bytes[end..]) {
            // Two changes of one resource keep their order, so the second one waits for the next run.
            Start::Put(len, uri) if ends.len() < RUN_MAX && !uris.contains(&uri) => {
                end += len;
                ends.push(end);
                uris.push(uri);
            }
            rest => return (ends, rest),
        }
    }
}

fn start_of(bytes: &[u8]) -> Start {
    let shared = bytes.len().min(START.len());
    if bytes[..shared] != START.as_bytes()[..shared] {
        return Start::Other;
    }
    let Some(head_len) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Start::Part;
    };
    let Some((body_len, uri)) = std::str::from_utf8(&bytes[..head_len]).ok().and_then(plain_head) else {
        return Start::Other;
    };
    match head_len + 4 + body_len {
        len if len <= bytes.len() => Start::Put(len, uri),
        len if len <= AHEAD_MAX => Start::Part,
        _ => Start::Other,
    }
}

/// Returns the length of the body and the decoded URI, if the head is that of a plain `PUT`. Stricter than
/// HTTP requires: the library must find the same end of the request.
fn plain_head(head: &str) -> Option<(usize, Vec<u8>)> {
    let mut lines = head.split("\r\n");
    let target = lines.next()?.strip_prefix(START)?.strip_suffix(" HTTP/1.1")?;
    if target.is_empty()
        || !target
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"/?#".contains(&byte))
    {
        return None;
    }
    let mut body_len = None;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if value.bytes().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        let name = name.to_ascii_lowercase();
        let value = value.trim_matches(' ');
        if name == "content-length" {
            let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            if body_len.is_some() || !is_number {
                return None;
            }
            body_len = Some(value.parse::<u32>().ok()? as usize);
        } else if !PLAIN_HEADERS.contains(&name.as_str()) {
            return None;
        }
    }
    Some((body_len?, percent_decode(target.as_bytes()).collect()))
}

/// Serves the requests that end at `run`. Returns their answers, and false if one of them has none.
async fn answer_run<S: RequestService>(
    bytes: &[u8],
    run: &[usize],
    service: &impl Fn() -> Http1Service<S>,
) -> (Vec<u8>, bool) {
    let mut builder = http1::Builder::new();
    // The whole request is there, so its head cannot be late.
    builder.header_read_timeout(None);
    let mut served = Vec::with_capacity(run.len());
    let mut start = 0;
    for end in run {
        let answer = Rc::default();
        let io = OneRequest {
            request: Bytes::copy_from_slice(&bytes[start..*end]),
            answer: Rc::clone(&answer),
        };
        served.push((builder.serve_connection(io, service()), answer, false));
        start = *end;
    }
    poll_fn(|cx| {
        let mut waits = false;
        // Polled in order, so that the bus gets the changes in order.
        for (connection, answer, done) in &mut served {
            if !*done {
                let ended = Pin::new(connection).poll(cx);
                // The library writes an answer of the API in one piece, since its body is there as a whole.
                *done = ended.is_ready() || !answer.borrow().is_empty();
                waits |= !*done;
            }
        }
        match waits {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
    let mut answers = Vec::new();
    for (_, answer, _) in &served {
        let answer = answer.borrow();
        if answer.is_empty() {
            debug!("a pipelined request has no answer; the connection ends");
            return (answers, false);
        }
        answers.extend_from_slice(&answer);
    }
    (answers, true)
}

/// A connection in memory that brings one request and keeps its answer.
struct OneRequest {
    request: Bytes,
    answer: Rc<RefCell<Vec<u8>>>,
}

impl Read for OneRequest {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let request = &mut self.get_mut().request;
        if request.is_empty() {
            // An end would be taken for that of the client, and the request given up.
            return Poll::Pending;
        }
        let part = request.split_to(request.len().min(buffer.remaining()));
        buffer.put_slice(&part);
        Poll::Ready(Ok(()))
    }
}

impl Write for OneRequest {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.answer.borrow_mut().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(uri: &str, headers: &str, body: &str) -> String {
        format!("PUT /v1/resources/{uri} HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}")
    }

    #[test]
    fn run_ends_before_anything_unusual() {
        let a = put("a%3Ab", "Content-Length: 2\r\n", "xy");
        let c = put("a%3Ac", "content-length:0\r\nTidings-Title: T\r\n", "");
        for (rest, start) in [
            ("", Start::Part),
            ("PUT /v1/re", Start::Part),
            ("GET / HTTP/1.1\r\n\r\n", Start::Other),
            (&put("d", "Content-Length: 9\r\n", "x"), Start::Part),
            (&put("d", "Content-Length: 99999999\r\n", "x"), Start::Other),
            (&put("d", "Transfer-Encoding: chunked\r\n", ""), Start::Other),
            (
                &put("d", "Content-Length: 1\r\nContent-Length: 1\r\n", "x"),
                Start::Other,
            ),
            (&put("d", "Content-Length: +1\r\n", "x"), Start::Other),
            (&put("d", "Content-Length : 1\r\n", "x"), Start::Other),
            (
                &put("d", "Content-Length: 1\r\n Folded: x\r\n", "x"),
                Start::Other,
            ),
            (
                &put("d", "Content-Length: 1\r\nIf-Match: *\r\n", "x"),
                Start::Other,
            ),
            (
                &put("d", "Content-Length: 1\r\nExpect: 100-continue\r\n", "x"),
                Start::Other,
            ),
            (
                &put("d", "Content-Length: 1\r\nConnection: close\r\n", "x"),
                Start::Other,
            ),
            (&put("d/touch", "Content-Length: 1\r\n", "x"), Start::Other),
            (&put("d", "", "x"), Start::Other),
        ] {
            let bytes = format!("{a}{c}{rest}");
            let expected = (vec![a.len(), a.len() + c.len()], start);
            assert_eq!(split_run(bytes.as_bytes()), expected, "{rest}");
        }
    }

    #[test]
    fn resource_stands_once_in_a_run() {
        let one = put("a%3Ab", "Content-Length: 1\r\n", "1");
        let two = put("a:b", "Content-Length: 1\r\n", "2");
        let (ends, rest) = split_run(format!("{one}{two}").as_bytes());
        assert_eq!(ends, [one.len()]);
        assert!(matches!(rest, Start::Put(..)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_break_split(
            start in any::<bool>(),
            bytes in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let prefix = if start { START } else { "" };
            let (ends, _) = split_run(&[prefix.as_bytes(), &bytes].concat());
            prop_assert!(ends.len() <= 1);
        }
    }
}
