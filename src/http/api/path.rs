//! Which resource a request is about.
//!
//! Owns: the way between a resource's URI and the one path segment that carries it, and the strict reading of
//! percent-encoded text. Never: normalises; `%25` is decoded once, so a URI that itself has `%2F` in it survives.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::{percent_decode, utf8_percent_encode};
use tidings_actors::{InvalidUri, ResourceUri};

use crate::http::problem::{Problem, ProblemKind};
use crate::uri_encoding::EXCEPT_UNRESERVED;

const ROOT: &str = "/v1/resources/";

/// The resource that the path names.
pub(super) struct Target(pub(super) ResourceUri);

impl<S: Sync> FromRequestParts<S> for Target {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Target, Problem> {
        // A '?' that was not encoded would address another resource without anybody noticing.
        if parts.uri.query().is_some() {
            return Err(ProblemKind::BadRequest.because(
                "no query is taken here; when the '?' is part of the resource's URI, write it as %3F",
            ));
        }
        let segment = parts.uri.path().strip_prefix(ROOT).unwrap_or_default();
        let segment = segment.split('/').next().unwrap_or_default();
        let text = decode(segment.as_bytes())
            .map_err(|reason| ProblemKind::BadRequest.because(format!("the path {reason}")))?;
        let uri = ResourceUri::new(&text)
            .map_err(|error: InvalidUri| ProblemKind::BadRequest.because(error.to_string()))?;
        Ok(Target(uri))
    }
}

/// The path of a resource.
pub(super) fn path_of(uri: &ResourceUri) -> String {
    format!("{ROOT}{}", utf8_percent_encode(uri.as_str(), EXCEPT_UNRESERVED))
}

/// Decodes percent-encoded UTF-8; says what is wrong with text that is none.
pub(super) fn decode(encoded: &[u8]) -> Result<String, &'static str> {
    let mut rest = encoded;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        let digits = rest.get(at + 1..at + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err("has a '%' without two hexadecimal digits; write '%' itself as %25");
        }
        rest = &rest[at + 3..];
    }
    let text = percent_decode(encoded).decode_utf8();
    text.map(|text| text.into_owned())
        .map_err(|_| "is not UTF-8 when decoded; percent-encode the bytes of UTF-8 text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    async fn target(path: &str) -> Result<String, ProblemKind> {
        let (mut parts, ()) = axum::http::Request::get(path).body(()).unwrap().into_parts();
        let target = Target::from_request_parts(&mut parts, &()).await;
        target
            .map(|Target(uri)| uri.as_str().to_owned())
            .map_err(|problem| problem.kind)
    }

    #[tokio::test]
    async fn a_segment_is_decoded_once() {
        for (path, uri) in [
            ("demo%3A%2F%2Fa", "demo://a"),
            ("demo%3a%2f%2fa/touch", "demo://a"),
            ("demo:a", "demo:a"),
            ("review%3A%2F%2Fpage%2F%252Fpricing", "review://page/%2Fpricing"),
            ("a%3Ab%252525", "a:b%2525"),
            ("a%3Ab%3Fx%3D1%23f", "a:b?x=1#f"),
            ("a%3A%C3%BC+b", "a:ü+b"),
        ] {
            assert_eq!(
                target(&format!("/v1/resources/{path}")).await.as_deref(),
                Ok(uri),
                "{path}"
            );
        }
    }

    #[tokio::test]
    async fn a_segment_that_is_no_uri_is_refused() {
        let long = format!("a%3A{}", "x".repeat(3000));
        for path in [
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
            let answer = target(&format!("/v1/resources/{path}")).await;
            assert_eq!(answer, Err(ProblemKind::BadRequest), "{path}");
        }
    }

    proptest! {
        #[test]
        fn every_uri_has_a_path_of_one_segment(rest in "\\PC{0,40}") {
            let Ok(uri) = ResourceUri::new(&format!("demo:{rest}")) else { return Ok(()) };
            let path = path_of(&uri);
            let segment = path.strip_prefix(ROOT).unwrap();
            prop_assert!(!segment.contains(['/', '?', '#']));
            prop_assert_eq!(decode(segment.as_bytes()).unwrap(), uri.as_str());
        }

        #[test]
        fn no_bytes_break_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(text) = decode(&bytes) {
                prop_assert!(text.len() <= bytes.len());
            }
        }
    }
}
