//! One HTTP answer, taken apart as its bytes arrive.
//!
//! Owns the state between two reads: the head, and where in the body the last read stopped. It hands the bytes of the
//! body on without keeping them, and says how many bytes belonged to the answer, so that several may follow each
//! other on one connection. It never reads from a socket and knows nothing of what a body means.

use std::str::from_utf8;

/// A head or the line of a chunk's size beyond this is no HTTP.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What came is no HTTP answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server does not answer in HTTP/1.1: {0}")]
pub(crate) struct Malformed(&'static str);

/// What the head says, as far as anybody here asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) is_stream: bool,
    pub(crate) session: Option<String>,
    pub(crate) etag: Option<String>,
    /// The connection ends with this answer.
    pub(crate) closes: bool,
    pub(crate) length: Option<usize>,
    pub(crate) chunked: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// This many bytes of the body are left.
    Counted(usize),
    Size,
    Chunk(usize),
    ChunkEnd,
    Trailer,
    /// The body ends with the connection.
    Open,
    Done,
}

/// An answer that is arriving.
#[derive(Debug, Default)]
pub(crate) struct Response {
    state: State,
    /// The head, or a line of the framing, as far as it has come.
    part: Vec<u8>,
    head: Head,
}

impl Response {
    /// The head, once it is complete.
    pub(crate) fn head(&self) -> Option<&Head> {
        (self.state != State::Head).then_some(&self.head)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the end of the connection is the end of this answer's body.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.state == State::Open
    }

    /// Takes bytes until the answer is complete; hands its body to `body`. Answers how many bytes belonged to it.
    pub(crate) fn read(&mut self, bytes: &[u8], mut body: impl FnMut(&[u8])) -> Result<usize, Malformed> {
        let mut rest = bytes;
        loop {
            match self.state {
                State::Done => return Ok(bytes.len() - rest.len()),
                _ if rest.is_empty() => return Ok(bytes.len()),
                State::Head => {
                    let Some(line) = self.line(&mut rest)? else {
                        continue;
                    };
                    self.take_head_line(&line)?;
                }
                State::Counted(left) | State::Chunk(left) => {
                    let now = take(&mut rest, left);
                    body(now);
                    self.state = match (self.state, left - now.len()) {
                        (State::Counted(_), 0) => State::Done,
                        (State::Counted(_), left) => State::Counted(left),
                        (_, 0) => State::ChunkEnd,
                        (_, left) => State::Chunk(left),
                    };
                }
                State::Open => {
                    body(rest);
                    rest = &[];
                }
                State::Size => {
                    let Some(line) = self.line(&mut rest)? else {
                        continue;
                    };
                    self.state = match size(&line)? {
                        0 => State::Trailer,
                        size => State::Chunk(size),
                    };
                }
                State::ChunkEnd => {
                    let Some(line) = self.line(&mut rest)? else {
                        continue;
                    };
                    if !line.is_empty() {
                        return Err(Malformed("a chunk is longer than its size"));
                    }
                    self.state = State::Size;
                }
                State::Trailer => {
                    let Some(line) = self.line(&mut rest)? else {
                        continue;
                    };
                    if line.is_empty() {
                        self.state = State::Done;
                    }
                }
            }
        }
    }

    /// The next line without its end, once it is complete.
    fn line(&mut self, rest: &mut &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let now = take(rest, end.map_or(rest.len(), |end| end + 1));
        self.part.extend_from_slice(now);
        if self.part.len() > HEAD_BYTES_MAX {
            return Err(Malformed("a line has no end"));
        }
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.part);
        while matches!(line.last(), Some(b'\n' | b'\r')) {
            line.pop();
        }
        Ok(Some(line))
    }

    fn take_head_line(&mut self, line: &[u8]) -> Result<(), Malformed> {
        if self.head.status == 0 {
            self.head.status = status(line).ok_or(Malformed("its first line names no status"))?;
            return Ok(());
        }
        if !line.is_empty() {
            self.take_header(line);
            return Ok(());
        }
        let head = &self.head;
        if head.status < 200 {
            // An interim answer: the real one follows.
            self.head = Head::default();
            return Ok(());
        }
        self.state = match (head.chunked, head.length) {
            _ if matches!(head.status, 204 | 304) => State::Done,
            (true, _) => State::Size,
            (false, Some(0)) => State::Done,
            (false, Some(length)) => State::Counted(length),
            (false, None) => State::Open,
        };
        if self.state == State::Open {
            self.head.closes = true;
        }
        Ok(())
    }

    fn take_header(&mut self, line: &[u8]) {
        // A header that is no text is none that is asked for.
        let Some((name, value)) = from_utf8(line).ok().and_then(|line| line.split_once(':')) else {
            return;
        };
        let (value, head) = (value.trim(), &mut self.head);
        match name.to_ascii_lowercase().as_str() {
            "content-length" => head.length = value.parse().ok(),
            "transfer-encoding" => head.chunked = value.to_ascii_lowercase().contains("chunked"),
            "connection" => head.closes = value.eq_ignore_ascii_case("close"),
            "content-type" => head.is_stream = value.to_ascii_lowercase().starts_with("text/event-stream"),
            "mcp-session-id" => head.session = Some(value.to_owned()),
            "etag" => head.etag = Some(value.trim_matches('"').to_owned()),
            _ => {}
        }
    }
}

fn take<'b>(rest: &mut &'b [u8], length: usize) -> &'b [u8] {
    let (now, later) = rest.split_at(length.min(rest.len()));
    *rest = later;
    now
}

fn status(line: &[u8]) -> Option<u16> {
    let line = from_utf8(line).ok()?;
    let rest = line.strip_prefix("HTTP/1.")?;
    rest.split_whitespace()
        .nth(1)?
        .parse()
        .ok()
        .filter(|status| (100..600).contains(status))
}

fn size(line: &[u8]) -> Result<usize, Malformed> {
    let text = from_utf8(line).unwrap_or_default();
    let size = text.split(';').next().unwrap_or_default().trim();
    usize::from_str_radix(size, 16).map_err(|_| Malformed("a chunk has no size"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(response: &mut Response, bytes: &[u8]) -> (usize, Vec<u8>) {
        let mut body = Vec::new();
        let used = response.read(bytes, |part| body.extend_from_slice(part)).unwrap();
        (used, body)
    }

    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\
        MCP-Session-Id: abc\r\n\r\n5;x=y\r\nhello\r\nA\r\n, my world\r\n0\r\nTrailer: 1\r\n\r\n";

    #[test]
    fn one_answer_ends_where_the_next_begins() {
        let two = b"HTTP/1.1 204 No Content\r\nETag: \"v3-7\"\r\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nokHTTP";
        let mut first = Response::default();
        let (used, body) = read(&mut first, two);
        assert!(first.is_done() && body.is_empty());
        assert_eq!(first.head().unwrap().etag.as_deref(), Some("v3-7"));
        let mut second = Response::default();
        let (more, body) = read(&mut second, &two[used..]);
        assert_eq!(
            (second.head().unwrap().status, body.as_slice()),
            (202, &b"ok"[..])
        );
        assert_eq!(&two[used + more..], b"HTTP");
    }

    #[test]
    fn interim_answers_are_passed_over_and_open_bodies_last() {
        let mut response = Response::default();
        let (_, body) = read(
            &mut response,
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabc",
        );
        assert_eq!(body, b"abc");
        assert!(response.ends_with_connection() && response.head().unwrap().closes && !response.is_done());
    }

    #[test]
    fn nonsense_is_refused() {
        for bytes in [
            &b"hello\r\n"[..],
            b"HTTP/1.1 abc\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        ] {
            assert!(
                Response::default().read(bytes, |_| ()).is_err(),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
        assert!(
            Response::default()
                .read(&vec![b'x'; HEAD_BYTES_MAX + 1], |_| ())
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn where_it_is_cut_does_not_matter(mut cuts in prop::collection::vec(0..CHUNKED.len(), 0..12)) {
            cuts.extend([0, CHUNKED.len()]);
            cuts.sort_unstable();
            let (mut response, mut all) = (Response::default(), Vec::new());
            for pair in cuts.windows(2) {
                let (used, body) = read(&mut response, &CHUNKED[pair[0]..pair[1]]);
                prop_assert_eq!(used, pair[1] - pair[0]);
                all.extend(body);
            }
            prop_assert_eq!(all, b"hello, my world");
            prop_assert!(response.is_done());
            let head = response.head().unwrap();
            prop_assert!(head.is_stream && head.session.as_deref() == Some("abc"));
        }
    }
}
