//! The headers of an answer that belong to its connection.

use std::time::SystemTime;

use ::http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, TE, TRANSFER_ENCODING, UPGRADE};
use ::http::{HeaderMap, HeaderValue};

use super::http2_body::AnswerBody;

/// Further headers of HTTP/1.1 that a message of HTTP/2 does not have (RFC 9113, section 8.2.2).
const CONNECTION_HEADERS: [HeaderName; 6] = [
    CONNECTION,
    TRANSFER_ENCODING,
    UPGRADE,
    TE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Leaves out the headers that HTTP/2 does not have, and sets the date and the length of the body if the
/// service has not.
pub(super) fn set_connection_headers<B: http_body::Body>(headers: &mut HeaderMap, body: &AnswerBody<B>) {
    let named = headers.get(CONNECTION).cloned();
    // The header names others that are for the connection.
    for name in named.iter().filter_map(|named| named.to_str().ok()) {
        for name in name.split(',') {
            headers.remove(name.trim());
        }
    }
    for name in &CONNECTION_HEADERS {
        headers.remove(name);
    }
    if !headers.contains_key(DATE)
        && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now()))
    {
        headers.insert(DATE, date);
    }
    // A client shows the progress of a body whose length it knows.
    if !body.is_end()
        && let Some(length) = body.length()
        && !headers.contains_key(CONTENT_LENGTH)
    {
        headers.insert(CONTENT_LENGTH, length.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::Full;

    #[test]
    fn headers_of_http1_are_left_out() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Own"),
            ("keep-alive", "5"),
            ("upgrade", "x"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.insert("x-own", HeaderValue::from_static("1"));
        headers.insert("etag", HeaderValue::from_static("\"v1\""));
        let body = AnswerBody::of_body(Full::new(Bytes::from_static(b"text")));
        set_connection_headers(&mut headers, &body);
        let date = headers.remove(DATE).unwrap();
        assert!(date.to_str().unwrap().ends_with(" GMT"));
        let mut left: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        left.sort_unstable();
        assert_eq!(left, [("content-length", "4"), ("etag", "\"v1\"")]);
    }

    #[test]
    fn body_without_a_known_length_is_told_none() {
        let mut headers = HeaderMap::new();
        let empty = AnswerBody::<Full<Bytes>>::of_bytes(Bytes::new());
        set_connection_headers(&mut headers, &empty);
        assert!(!headers.contains_key(CONTENT_LENGTH));
    }
}
