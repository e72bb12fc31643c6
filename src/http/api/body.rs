//! What a request brings: a body and its description, as the resource it makes.
//!
//! Owns: whether a body is text or binary, its size limit, and the headers that describe a resource. Never: decides
//! whether anything changed. Receives requests from the write handlers, and hands back a [`Resource`].

use axum::body::Body as HttpBody;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tidings_actors::{Body, Content, Descriptor, Resource, ResourceUri};

use super::path::decode;
use crate::http::problem::{Problem, ProblemKind};
use crate::metrics::{self, Limit};

/// Longest name, title or description in bytes, decoded.
const TEXT_LEN_MAX: usize = 4096;

/// Longest media type in bytes.
const MEDIA_TYPE_LEN_MAX: usize = 255;

/// The resource that the request describes. Everything said in the headers is checked before the body is read.
pub(super) async fn receive(
    uri: ResourceUri,
    headers: &HeaderMap,
    body: HttpBody,
    bytes_max: usize,
) -> Result<Resource, Problem> {
    check_coding(headers)?;
    let media_type = MediaType::parse(headers)?;
    let descriptor = describe(uri, headers, &media_type)?;
    check_length(headers, bytes_max)?;
    let bytes = collect(body, bytes_max).await?;
    Ok(Resource::new(descriptor, Content::Held(media_type.body(bytes)?)))
}

fn check_coding(headers: &HeaderMap) -> Result<(), Problem> {
    let codings = headers.get_all(header::CONTENT_ENCODING);
    if let Some(coding) = codings
        .iter()
        .find(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(ProblemKind::UnsupportedMediaType.because(format!(
            "content-encoding {coding:?} is not taken; send the body as it is"
        )));
    }
    if headers.contains_key(header::CONTENT_RANGE) {
        return Err(ProblemKind::BadRequest.because("content-range is not taken; send the whole body"));
    }
    Ok(())
}

fn check_length(headers: &HeaderMap, bytes_max: usize) -> Result<(), Problem> {
    let said = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    let said = said.and_then(|text| text.parse::<u64>().ok());
    if said.is_some_and(|len| len > bytes_max as u64) {
        return Err(too_large(bytes_max));
    }
    Ok(())
}

async fn collect(body: HttpBody, bytes_max: usize) -> Result<Bytes, Problem> {
    match Limited::new(body, bytes_max).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large(bytes_max)),
        Err(error) => {
            Err(ProblemKind::BadRequest
                .because(format!("the body could not be read: {error}; send it again")))
        }
    }
}

fn too_large(bytes_max: usize) -> Problem {
    metrics::limit_reached(Limit::BodyBytes);
    ProblemKind::BodyTooLarge.because(format!(
        "the body has more than {bytes_max} bytes; shorten it or raise http.body_bytes_max"
    ))
}

fn describe(uri: ResourceUri, headers: &HeaderMap, media_type: &MediaType) -> Result<Descriptor, Problem> {
    let mut descriptor = Descriptor::new(uri);
    if let Some(name) = text(headers, "tidings-name")?.filter(|name| !name.is_empty()) {
        descriptor.name = name;
    }
    descriptor.title = text(headers, "tidings-title")?;
    descriptor.description = text(headers, "tidings-description")?;
    descriptor.media_type = Some(media_type.text.clone());
    descriptor.subscribable = match text(headers, "tidings-subscribable")?.as_deref() {
        None | Some("true") => true,
        Some("false") => false,
        Some(other) => {
            let detail = format!("tidings-subscribable {other:?} is neither true nor false");
            return Err(ProblemKind::BadRequest.because(detail));
        }
    };
    Ok(descriptor)
}

/// The decoded text of a header.
fn text(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let decoded = decode(value.as_bytes()).and_then(|text| {
        if text.len() > TEXT_LEN_MAX {
            Err("is longer than 4096 bytes; shorten it")
        } else if text.chars().any(|c| c.is_control() && !"\n\t".contains(c)) {
            Err("has a control character; leave it out")
        } else {
            Ok(text)
        }
    });
    decoded
        .map(Some)
        .map_err(|reason| ProblemKind::BadRequest.because(format!("the header {name} {reason}")))
}

/// The media type of a body.
#[derive(Debug, PartialEq, Eq)]
struct MediaType {
    text: String,
    kind: BodyKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Text,
    Blob,
}

impl MediaType {
    fn parse(headers: &HeaderMap) -> Result<MediaType, Problem> {
        let Some(value) = headers.get(header::CONTENT_TYPE) else {
            return MediaType::of("application/octet-stream");
        };
        let shown = String::from_utf8_lossy(&value.as_bytes()[..value.len().min(120)]);
        let text = value
            .to_str()
            .ok()
            .filter(|text| text.len() <= MEDIA_TYPE_LEN_MAX);
        text.ok_or_else(|| {
            ProblemKind::UnsupportedMediaType.because(format!(
                "content-type {shown:?} is not ASCII of at most {MEDIA_TYPE_LEN_MAX} bytes; write type/subtype"
            ))
        })
        .and_then(MediaType::of)
    }

    fn of(text: &str) -> Result<MediaType, Problem> {
        let refused = |reason: &str| {
            ProblemKind::UnsupportedMediaType.because(format!("content-type {text:?} {reason}"))
        };
        let mut parts = text.split(';');
        let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let (kind, subtype) = essence.split_once('/').unwrap_or_default();
        if !is_token(kind) || !is_token(subtype) {
            return Err(refused(
                "is no media type; write type/subtype, for example text/markdown",
            ));
        }
        let charset = parts
            .filter_map(|part| part.split_once('='))
            .find_map(|(name, value)| {
                let is_charset = name.trim().eq_ignore_ascii_case("charset");
                is_charset.then(|| value.trim().trim_matches('"').to_ascii_lowercase())
            });
        let utf8 = charset
            .as_deref()
            .map(|name| matches!(name, "utf-8" | "utf8" | "us-ascii"));
        let kind = match (is_textual(&essence), utf8) {
            (true, Some(false)) => return Err(refused("is not taken; send the text in UTF-8")),
            (true, _) | (false, Some(true)) => BodyKind::Text,
            (false, _) => BodyKind::Blob,
        };
        let text = text.trim().to_owned();
        Ok(MediaType { text, kind })
    }

    fn body(&self, bytes: Bytes) -> Result<Body, Problem> {
        if self.kind == BodyKind::Blob {
            return Ok(Body::blob(bytes));
        }
        std::str::from_utf8(&bytes).map(Body::text).map_err(|error| {
            ProblemKind::UnsupportedMediaType.because(format!(
                "the body is not UTF-8 from byte {} on, but its content-type {:?} is a text; send UTF-8, or another content-type",
                error.valid_up_to(),
                self.text
            ))
        })
    }
}

fn is_textual(essence: &str) -> bool {
    const TEXTUAL: [&str; 8] = [
        "application/json",
        "application/xml",
        "application/yaml",
        "application/x-yaml",
        "application/javascript",
        "application/x-javascript",
        "application/ecmascript",
        "application/toml",
    ];
    let suffixed = essence.ends_with("+json") || essence.ends_with("+xml") || essence.ends_with("+yaml");
    essence.starts_with("text/") || suffixed || TEXTUAL.contains(&essence)
}

fn is_token(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_tell_text_from_the_rest() {
        for text in [
            "text/plain",
            "Text/Markdown; charset=UTF-8",
            "text/html;charset=\"utf-8\"",
            "text/plain; charset=us-ascii",
            "application/json",
            "application/ld+json",
            "image/svg+xml",
            "application/xml",
            "application/yaml",
            "text/javascript",
            "application/javascript",
            "application/x-thing; charset=utf-8",
        ] {
            assert_eq!(MediaType::of(text).unwrap().kind, BodyKind::Text, "{text}");
        }
        for text in [
            "application/octet-stream",
            "image/png",
            "application/pdf; charset=latin1",
        ] {
            assert_eq!(MediaType::of(text).unwrap().kind, BodyKind::Blob, "{text}");
        }
        for text in [
            "",
            "text",
            "text/",
            "/plain",
            "te xt/plain",
            "a/b/c",
            "text/plain; charset=iso-8859-1",
        ] {
            assert_eq!(
                MediaType::of(text).unwrap_err().kind,
                ProblemKind::UnsupportedMediaType,
                "{text}"
            );
        }
    }
}
