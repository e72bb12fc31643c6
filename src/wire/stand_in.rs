//! The server side of HTTP/1.1, as far as stand-ins for a server need it: the twins of the benches, and the
//! null server with which `tidings bench` measures itself.

use std::io::{self, BufRead, ErrorKind};

/// The limit on the body of a request; the requests of a load are far smaller.
const BODY_BYTES_MAX: usize = 1 << 20;

/// The head of a response whose body is a stream of events in chunks.
pub const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Reads a request to its end and returns its first line; none when the connection ended before it.
///
/// # Errors
/// The error of the stream, or a request whose length is no number or exceeds 1 MiB.
pub fn read_request(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut start = String::new();
    if reader.read_line(&mut start)? == 0 {
        return Ok(None);
    }
    let mut length = 0;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = match value.trim().parse() {
                Ok(length) if length <= BODY_BYTES_MAX => length,
                _ => return Err(ErrorKind::InvalidData.into()),
            };
        }
    }
    // Read to its end, so that the next request begins at the right place.
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(start))
}

/// Returns an event with this message, as one chunk of a response.
pub fn event_chunk(message: &str) -> Vec<u8> {
    let event = format!("data: {message}\n\n");
    format!("{:X}\r\n{event}\r\n", event.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::http1::ResponseReader;

    #[test]
    fn requests_are_read_one_by_one() {
        let mut requests = &b"PUT /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nokGET /b HTTP/1.1\r\n\r\n"[..];
        let first = read_request(&mut requests).unwrap();
        assert_eq!(first.as_deref(), Some("PUT /a HTTP/1.1\r\n"));
        let second = read_request(&mut requests).unwrap();
        assert_eq!(second.as_deref(), Some("GET /b HTTP/1.1\r\n"));
        assert_eq!(read_request(&mut requests).unwrap(), None);
    }

    #[test]
    fn oversized_request_is_refused() {
        let mut request = &b"PUT /a HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n"[..];
        let refused = read_request(&mut request).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn chunk_is_read_back_as_its_event() {
        let response = [STREAM_HEAD, &event_chunk("{}")].concat();
        let mut reader = ResponseReader::default();
        let mut body = Vec::new();
        let read = reader.read(&response, |part| body.extend_from_slice(part));
        assert_eq!(read, Ok(response.len()));
        assert_eq!(body, b"data: {}\n\n");
    }
}
