//! HTTP/1.1 as a client sees it: requests as bytes, and an incremental reader of responses.

use std::net::SocketAddr;

use httparse::{EMPTY_HEADER, ParserConfig, Status};

use super::header_lines::HeaderLines;
use super::tls::TlsTarget;

/// A head, or a line of the framing, beyond this many bytes is no HTTP.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// A head with more headers than this is refused.
const HEADERS_MAX: usize = 100;

/// A server that speaks HTTP, and the path of its endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// The address that connections are opened to.
    pub address: SocketAddr,
    /// The value of the `Host` header.
    pub authority: String,
    /// The path of the endpoint, such as `/mcp`.
    pub path: String,
    /// Headers of every request.
    pub headers: HeaderLines,
    /// The TLS in front of the server; none where it speaks plain HTTP.
    pub tls: Option<TlsTarget>,
}

impl HttpTarget {
    /// Returns the MCP endpoint of a service at `address`.
    pub fn mcp(address: SocketAddr) -> HttpTarget {
        HttpTarget {
            address,
            authority: address.to_string(),
            path: "/mcp".to_owned(),
            headers: HeaderLines::default(),
            tls: None,
        }
    }

    /// Begins a request to the endpoint.
    pub fn request(&self, method: &str) -> RequestBuilder {
        self.request_to(method, &self.path)
    }

    /// Begins a request to another path of the same server.
    pub fn request_to(&self, method: &str, path: &str) -> RequestBuilder {
        let mut request = RequestBuilder::new(method, path, &self.authority);
        self.headers.write_to(&mut request.bytes);
        request
    }

    /// Writes a resource through the HTTP API of the service.
    pub fn put_resource(&self, uri: &str, text: &str) -> Vec<u8> {
        self.request_to("PUT", &resource_path(uri))
            .body("text/plain", text.as_bytes())
    }
}

/// Returns the path of a resource in the HTTP API of the service.
pub fn resource_path(uri: &str) -> String {
    let mut path = "/v1/resources/".to_owned();
    for byte in uri.bytes() {
        match byte.is_ascii_alphanumeric() {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

/// A request that is being written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestBuilder {
    bytes: Vec<u8>,
}

impl RequestBuilder {
    /// Writes the request line and the `Host` header.
    pub fn new(method: &str, path: &str, authority: &str) -> RequestBuilder {
        // Most requests of a load fit, so that one allocation serves the whole request.
        let mut bytes = Vec::with_capacity(256);
        for part in [method, " ", path, " HTTP/1.1\r\nHost: ", authority, "\r\n"] {
            bytes.extend_from_slice(part.as_bytes());
        }
        RequestBuilder { bytes }
    }

    /// Adds a header; the name and the value must be free of line ends.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> RequestBuilder {
        for part in [name, ": ", value, "\r\n"] {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self
    }

    /// Adds several headers.
    #[must_use]
    pub fn headers(self, headers: &[(&'static str, String)]) -> RequestBuilder {
        headers
            .iter()
            .fold(self, |request, (name, value)| request.header(name, value))
    }

    /// Ends the request with a body of this type.
    pub fn body(self, content_type: &str, body: &[u8]) -> Vec<u8> {
        let length = body.len().to_string();
        let head = self
            .header("Content-Type", content_type)
            .header("Content-Length", &length);
        let mut bytes = head.finish();
        bytes.extend_from_slice(body);
        bytes
    }

    /// Ends the request without a body.
    pub fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes
    }
}

/// The error for bytes that are no HTTP response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the server does not answer in HTTP/1.1: {0}")]
pub struct MalformedResponse(String);

/// The head of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status code.
    pub status: u16,
    /// True if the body is a stream of server-sent events.
    pub is_stream: bool,
    /// True if the connection ends with this response.
    pub closes: bool,
    chunked: bool,
    length: Option<usize>,
    text: String,
}

impl ResponseHead {
    /// Returns true for the statuses 200 to 299.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the headers in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.text.lines().skip(1);
        let pairs = lines.flat_map(|line| line.split_once(':'));
        pairs.map(|(name, value)| (name, value.trim()))
    }

    /// Returns the value of the first header of that name, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        // Names have no case (RFC 9110, section 5.1).
        let mut headers = self.headers();
        let (_, value) = headers.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// Returns the value of the `ETag` header, without its quotes.
    pub fn etag(&self) -> Option<&str> {
        self.header("etag").map(|etag| etag.trim_matches('"'))
    }

    /// Returns the id of the MCP session that this response opened.
    pub fn session(&self) -> Option<&str> {
        self.header(super::dialect::SESSION_HEADER)
    }

    /// Returns the number of bytes of the head, its final empty line included.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    fn take_header(&mut self, name: &str, value: &[u8]) {
        // A value that is not text is treated as one that is missing.
        let value = std::str::from_utf8(value).unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            self.length = value.parse().ok();
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.chunked = value.to_ascii_lowercase().contains("chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            self.closes = value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("content-type") {
            self.is_stream = value.to_ascii_lowercase().starts_with("text/event-stream");
        }
    }
}

/// The part of a response that the next byte belongs to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Framing {
    #[default]
    Head,
    /// This many bytes of the body are left.
    Counted(usize),
    ChunkSize,
    Chunk(usize),
    ChunkEnd,
    Trailer,
    /// The body ends with the connection.
    UntilClose,
    Done,
}

/// Reads one response as its bytes arrive.
///
/// The body is handed on without a copy, and no allocation is made per chunk, since the load generator reads
/// hundreds of thousands of small chunks per second with it.
#[derive(Debug, Default)]
pub struct ResponseReader {
    framing: Framing,
    /// The head, or a line of the framing, as far as it has come.
    partial: Vec<u8>,
    head: ResponseHead,
}

impl ResponseReader {
    /// Returns the head once it is complete.
    pub fn head(&self) -> Option<&ResponseHead> {
        match self.framing {
            Framing::Head => None,
            _ => Some(&self.head),
        }
    }

    /// Returns the head of a response whose head is complete, and gives up the rest.
    pub fn into_head(self) -> Option<ResponseHead> {
        match self.framing {
            Framing::Head => None,
            _ => Some(self.head),
        }
    }

    /// Returns true once the last byte of the response was read.
    pub fn is_done(&self) -> bool {
        self.framing == Framing::Done
    }

    /// Returns true if the end of the connection is the end of this response's body.
    pub fn ends_with_connection(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// Reads bytes until the response is complete and hands its body to `on_body`.
    ///
    /// Returns how many bytes belonged to this response; the rest is the beginning of the next one.
    ///
    /// # Errors
    /// [`MalformedResponse`] when the bytes are no HTTP/1.1; the reader cannot be used any further.
    pub fn read(&mut self, bytes: &[u8], mut on_body: impl FnMut(&[u8])) -> Result<usize, MalformedResponse> {
        let mut rest = bytes;
        while self.framing != Framing::Done && !rest.is_empty() {
            match self.framing {
                Framing::Head => self.read_head(&mut rest)?,
                Framing::Counted(left) => {
                    let part = split_off(&mut rest, left);
                    on_body(part);
                    self.framing = match left - part.len() {
                        0 => Framing::Done,
                        left => Framing::Counted(left),
                    };
                }
                Framing::Chunk(left) => {
                    let part = split_off(&mut rest, left);
                    on_body(part);
                    self.framing = match left - part.len() {
                        0 => Framing::ChunkEnd,
                        left => Framing::Chunk(left),
                    };
                }
                Framing::UntilClose => on_body(std::mem::take(&mut rest)),
                Framing::ChunkSize | Framing::ChunkEnd | Framing::Trailer => self.read_line(&mut rest)?,
                Framing::Done => {}
            }
        }
        Ok(bytes.len() - rest.len())
    }

    fn read_head(&mut self, rest: &mut &[u8]) -> Result<(), MalformedResponse> {
        let before = self.partial.len();
        // A head that comes in one read, as nearly all do, is parsed where it lies.
        let parsed = if before == 0 {
            parse_head(rest)?
        } else {
            self.partial.extend_from_slice(rest);
            parse_head(&self.partial)?
        };
        let Some((head, length)) = parsed else {
            if before == 0 {
                self.partial.extend_from_slice(rest);
            }
            *rest = &[];
            return match self.partial.len() > HEAD_BYTES_MAX {
                true => Err(malformed("a head has no end")),
                false => Ok(()),
            };
        };
        // The part that came with earlier reads is not in `rest`.
        *rest = &rest[length - before..];
        self.partial.clear();
        if head.status < 200 {
            // An interim response, such as 100 Continue: the final one follows.
            return Ok(());
        }
        self.begin_body(head);
        Ok(())
    }

    fn begin_body(&mut self, mut head: ResponseHead) {
        self.framing = match (head.chunked, head.length) {
            // RFC 9112, section 6.3: these two never have a body, in spite of any header.
            _ if matches!(head.status, 204 | 304) => Framing::Done,
            // RFC 9112, section 6.3: chunks override a length.
            (true, _) => Framing::ChunkSize,
            (false, Some(0)) => Framing::Done,
            (false, Some(length)) => Framing::Counted(length),
            (false, None) => Framing::UntilClose,
        };
        head.closes |= self.framing == Framing::UntilClose;
        self.head = head;
    }

    /// Reads a line of the framing, which may come in several reads.
    fn read_line(&mut self, rest: &mut &[u8]) -> Result<(), MalformedResponse> {
        let Some(end) = memchr::memchr(b'\n', rest) else {
            self.partial.extend_from_slice(std::mem::take(rest));
            return match self.partial.len() > HEAD_BYTES_MAX {
                true => Err(malformed("a line has no end")),
                false => Ok(()),
            };
        };
        let line = split_off(rest, end + 1);
        if self.partial.is_empty() {
            return self.take_line(line);
        }
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(line);
        let taken = self.take_line(&whole);
        // The buffer is put back, so that chunks cut in two cost no allocation each.
        whole.clear();
        self.partial = whole;
        taken
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), MalformedResponse> {
        let line = line.trim_ascii_end();
        self.framing = match self.framing {
            Framing::ChunkSize => match chunk_size(line)? {
                0 => Framing::Trailer,
                size => Framing::Chunk(size),
            },
            Framing::ChunkEnd if line.is_empty() => Framing::ChunkSize,
            Framing::ChunkEnd => return Err(malformed("a chunk is longer than its size")),
            // Trailers are dropped: no reader asks for one.
            Framing::Trailer if line.is_empty() => Framing::Done,
            framing => framing,
        };
        Ok(())
    }
}

/// Splits off up to `length` bytes.
fn split_off<'b>(rest: &mut &'b [u8], length: usize) -> &'b [u8] {
    let (part, later) = rest.split_at(length.min(rest.len()));
    *rest = later;
    part
}

fn malformed(reason: &str) -> MalformedResponse {
    MalformedResponse(reason.to_owned())
}

/// Parses a head; returns it with its length, or none while it is incomplete.
fn parse_head(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, MalformedResponse> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let mut config = ParserConfig::default();
    // Servers under test may be sloppy, and a header that no test asks for is no reason to refuse the others.
    config.ignore_invalid_headers_in_responses(true);
    let parsed = config.parse_response(&mut response, bytes);
    let parsed = parsed.map_err(|error| MalformedResponse(error.to_string()))?;
    let Status::Complete(length) = parsed else {
        return Ok(None);
    };
    let status = response.code.unwrap_or_default();
    if !(100..600).contains(&status) {
        return Err(malformed("its first line names no status"));
    }
    let mut head = ResponseHead {
        status,
        text: String::from_utf8_lossy(&bytes[..length]).into_owned(),
        ..ResponseHead::default()
    };
    for header in response.headers.iter() {
        head.take_header(header.name, header.value);
    }
    Ok(Some((head, length)))
}

fn chunk_size(line: &[u8]) -> Result<usize, MalformedResponse> {
    let text = std::str::from_utf8(line).unwrap_or_default();
    // Extensions after the size may be ignored (RFC 9112, section 7.1.1).
    let size = text.split(';').next().unwrap_or_default().trim();
    usize::from_str_radix(size, 16).map_err(|_| malformed("a chunk has no size"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_is_put_at_its_encoded_path() {
        assert_eq!(
            resource_path("demo://a/é"),
            "/v1/resources/demo%3A%2F%2Fa%2F%C3%A9"
        );
        let target = HttpTarget::mcp("127.0.0.1:9".parse().unwrap());
        let put = String::from_utf8(target.put_resource("x:", "né")).unwrap();
        assert!(put.starts_with("PUT /v1/resources/x%3A HTTP/1.1\r\n"), "{put}");
        assert!(put.ends_with("Content-Length: 3\r\n\r\nné"), "{put}");
    }
    use proptest::prelude::*;

    fn read(response: &mut ResponseReader, bytes: &[u8]) -> (usize, Vec<u8>) {
        let mut body = Vec::new();
        let used = response.read(bytes, |part| body.extend_from_slice(part)).unwrap();
        (used, body)
    }

    const CHUNKED: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\
        MCP-Session-Id: abc\r\n\r\n5;x=y\r\nhello\r\nA\r\n, my world\r\n0\r\nTrailer: 1\r\n\r\n";

    #[test]
    fn request_carries_headers_and_body() {
        let target = HttpTarget::mcp("127.0.0.1:9".parse().unwrap());
        let put = target
            .request_to("PUT", "/x")
            .headers(&[("ETag", "\"v1\"".to_owned())]);
        assert_eq!(
            String::from_utf8(put.body("text/plain", "né".as_bytes())).unwrap(),
            "PUT /x HTTP/1.1\r\nHost: 127.0.0.1:9\r\nETag: \"v1\"\r\nContent-Type: text/plain\r\n\
             Content-Length: 3\r\n\r\nné"
        );
        assert_eq!(
            String::from_utf8(target.request("GET").finish()).unwrap(),
            "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n"
        );
    }

    #[test]
    fn headers_of_target_are_in_every_request() {
        let target = HttpTarget::mcp("127.0.0.1:9".parse().unwrap());
        let clone = target.clone();
        target.headers.set([("authorization", &b"Bearer x"[..])]);
        let put = String::from_utf8(clone.put_resource("x:", "")).unwrap();
        assert!(
            put.contains("\r\nHost: 127.0.0.1:9\r\nauthorization: Bearer x\r\nContent"),
            "{put}"
        );
        target.headers.set([]);
        let get = String::from_utf8(clone.request("GET").finish()).unwrap();
        assert_eq!(get, "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n");
        assert!(!format!("{target:?}").contains("Bearer"));
    }

    #[test]
    fn response_ends_where_the_next_begins() {
        let two = b"HTTP/1.1 204 No Content\r\nETag: \"v3-7\"\r\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nokHTTP";
        let mut first = ResponseReader::default();
        let (used, body) = read(&mut first, two);
        assert!(first.is_done() && body.is_empty());
        assert_eq!(first.head().unwrap().etag(), Some("v3-7"));
        assert_eq!(first.head().unwrap().bytes(), used);
        let mut second = ResponseReader::default();
        let (more, body) = read(&mut second, &two[used..]);
        assert_eq!(
            (second.head().unwrap().status, body.as_slice()),
            (202, &b"ok"[..])
        );
        assert_eq!(&two[used + more..], b"HTTP");
    }

    #[test]
    fn interim_responses_are_skipped() {
        let mut response = ResponseReader::default();
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
            b"HTTP/1.1 999 Far\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        ] {
            assert!(
                ResponseReader::default().read(bytes, |_| ()).is_err(),
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
        for endless in ["", "HTTP/1.1 200 OK\r\nA: "] {
            let bytes = format!("{endless}{}", "x".repeat(HEAD_BYTES_MAX + 1));
            let read = ResponseReader::default().read(bytes.as_bytes(), |_| ());
            assert!(read.is_err(), "{endless}");
        }
    }

    proptest! {
        #[test]
        fn chunked_response_survives_any_cut(mut cuts in prop::collection::vec(0..CHUNKED.len(), 0..12)) {
            cuts.extend([0, CHUNKED.len()]);
            cuts.sort_unstable();
            let mut response = ResponseReader::default();
            let mut all = Vec::new();
            for pair in cuts.windows(2) {
                let (used, body) = read(&mut response, &CHUNKED[pair[0]..pair[1]]);
                prop_assert_eq!(used, pair[1] - pair[0]);
                all.extend(body);
            }
            prop_assert_eq!(all, b"hello, my world");
            prop_assert!(response.is_done());
            let head = response.head().unwrap();
            prop_assert!(head.is_stream && head.session() == Some("abc"));
        }
    }
}
