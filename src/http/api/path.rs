//! The way between a resource's URI and the path segment that carries it.
//!
//! A segment is decoded once and not normalised, so a URI that itself has `%2F` in it survives.

use std::borrow::Cow;

use ::http::request::Parts;
use percent_encoding::{percent_decode, utf8_percent_encode};
use tidings_actors::ResourceUri;

use crate::http::problem::{Problem, ProblemKind};
use crate::uri_encoding::EXCEPT_UNRESERVED;

/// The path below which each resource has its own.
pub(super) const RESOURCES: &str = "/v1/resources/";

/// Returns the resource that `segment` of a request's path names.
pub(super) fn parse_uri(segment: &str, head: &Parts) -> Result<ResourceUri, Problem> {
    // A '?' that was not encoded would silently address another resource.
    if head.uri.query().is_some() {
        let text = "no query is taken here; when the '?' is part of the resource's URI, write it as %3F";
        return Err(ProblemKind::BadRequest.because(text));
    }
    let text = match decode(segment.as_bytes()) {
        Ok(text) => text,
        Err(reason) => return Err(ProblemKind::BadRequest.because(format!("the path {reason}"))),
    };
    match ResourceUri::new(&text) {
        Ok(uri) => Ok(uri),
        Err(error) => Err(ProblemKind::BadRequest.because(error.to_string())),
    }
}

/// Returns the path of a resource.
pub(super) fn path_of(uri: &ResourceUri) -> String {
    format!(
        "{RESOURCES}{}",
        utf8_percent_encode(uri.as_str(), EXCEPT_UNRESERVED)
    )
}

/// Decodes percent-encoded UTF-8.
///
/// # Errors
/// The fault of a text that is not percent-encoded UTF-8.
pub(super) fn decode(encoded: &[u8]) -> Result<Cow<'_, str>, &'static str> {
    let mut rest = encoded;
    // `percent_decode` keeps an invalid escape as it is, which would make two paths of one resource.
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        match rest.get(at + 1..at + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => rest = &rest[at + 3..],
            _ => return Err("has a '%' without two hexadecimal digits; write '%' itself as %25"),
        }
    }
    match percent_decode(encoded).decode_utf8() {
        Ok(text) => Ok(text),
        Err(_) => Err("is not UTF-8 when decoded; percent-encode the bytes of UTF-8 text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::Request;
    use proptest::prelude::*;

    fn parse(path: &str) -> Result<String, ProblemKind> {
        let (head, ()) = Request::get(path).body(()).unwrap().into_parts();
        let segment = head.uri.path().strip_prefix(RESOURCES).unwrap();
        match parse_uri(segment, &head) {
            Ok(uri) => Ok(uri.as_str().to_owned()),
            Err(problem) => Err(problem.kind),
        }
    }

    #[test]
    fn segment_is_decoded_once() {
        for (segment, uri) in [
            ("demo%3A%2F%2Fa", "demo://a"),
            ("demo%3a%2f%2fa", "demo://a"),
            ("demo:a", "demo:a"),
            ("review%3A%2F%2Fpage%2F%252Fpricing", "review://page/%2Fpricing"),
            ("a%3Ab%252525", "a:b%2525"),
            ("a%3Ab%3Fx%3D1%23f", "a:b?x=1#f"),
            ("a%3A%C3%BC+b", "a:ü+b"),
        ] {
            assert_eq!(parse(&format!("{RESOURCES}{segment}")).as_deref(), Ok(uri));
        }
    }

    #[test]
    fn segment_without_uri_is_refused() {
        let long = format!("a%3A{}", "x".repeat(3000));
        for segment in [
            "a%3A%",
            "a%3A%2",
            "a%3A%zz",
            "a%3A%ff",
            "a%3A%00",
            "plain",
            "%20",
            "a%3Ab?x=1",
            "a%3Ab?",
            &long,
        ] {
            let parsed = parse(&format!("{RESOURCES}{segment}"));
            assert_eq!(parsed, Err(ProblemKind::BadRequest), "{segment}");
        }
    }

    proptest! {
        #[test]
        fn every_uri_has_path_of_one_segment(rest in "\\PC{0,40}") {
            let Ok(uri) = ResourceUri::new(&format!("demo:{rest}")) else { return Ok(()) };
            let path = path_of(&uri);
            let segment = path.strip_prefix(RESOURCES).unwrap();
            prop_assert!(!segment.contains(['/', '?', '#']));
            prop_assert_eq!(decode(segment.as_bytes()).unwrap(), uri.as_str());
        }

        #[test]
        fn arbitrary_bytes_do_not_break_decoder(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = decode(&bytes) {
                prop_assert!(text.len() <= bytes.len());
            }
        }
    }
}
