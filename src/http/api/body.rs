//! The resource that a request carries: a body, and headers that describe it.

use std::error::Error;

use ::http::{HeaderMap, header};
use bytes::Bytes;
use http_body::Body as HttpBody;
use tidings_actors::{Body, Content, Descriptor, Resource, ResourceUri};

use super::path::decode;
use crate::http::limits::{BodyFault, BytesPlace, ReceivedBody, SharedLimits};
use crate::http::problem::{Problem, ProblemKind};
use crate::metrics::{self, Limit};

/// Longest name, title or description in bytes, decoded.
const TEXT_LEN_MAX: usize = 4096;

/// Longest media type in bytes.
const MEDIA_TYPE_LEN_MAX: usize = 255;

/// The bytes to which a refusal shortens the header that it repeats.
const SHOWN_LEN_MAX: usize = 120;

/// Media types that are text though their names do not say so.
const TEXTUAL_TYPES: [&str; 8] = [
    "application/json",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "application/toml",
];

/// Receives the resource that a request describes, with its place among the bodies in flight. The headers are
/// checked before the body is read.
pub(super) async fn receive<B>(
    limits: &SharedLimits,
    uri: ResourceUri,
    headers: &HeaderMap,
    body: B,
    bytes_max: usize,
) -> Result<(Resource, BytesPlace), Problem>
where
    B: HttpBody<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    // A request that is refused by its headers takes no memory for a body.
    let media_type = MediaType::from_headers(headers)?;
    let descriptor = describe(uri, headers, &media_type)?;
    let received = receive_bytes(limits, headers, body, bytes_max, Limit::BodyBytes).await?;
    let (bytes, place) = received.into_parts();
    let body = media_type.body(bytes)?;
    Ok((Resource::new(descriptor, Content::Held(body)), place))
}

/// Receives a body of at most `bytes_max` bytes, which `limit` sets.
pub(super) async fn receive_bytes<B>(
    limits: &SharedLimits,
    headers: &HeaderMap,
    body: B,
    bytes_max: usize,
    limit: Limit,
) -> Result<ReceivedBody, Problem>
where
    B: HttpBody<Error: Into<Box<dyn Error + Send + Sync>>>,
{
    check_coding(headers)?;
    limits
        .receive(headers, body, bytes_max)
        .await
        .map_err(|fault| match fault {
            BodyFault::TooLarge => too_large(bytes_max, limit),
            BodyFault::Late(text) => ProblemKind::RequestTimeout.because(text),
            BodyFault::Full(text) => ProblemKind::Unavailable.because(text),
            BodyFault::Unreadable(error) => {
                let text = format!("the body could not be read: {error}; send it again");
                ProblemKind::BadRequest.because(text)
            }
        })
}

fn check_coding(headers: &HeaderMap) -> Result<(), Problem> {
    // A body that is unpacked here could be a thousand times as long as the limit allows.
    for coding in headers.get_all(header::CONTENT_ENCODING) {
        if !coding.as_bytes().eq_ignore_ascii_case(b"identity") {
            let text = format!("content-encoding {coding:?} is not taken; send the body as it is");
            return Err(ProblemKind::UnsupportedMediaType.because(text));
        }
    }
    // RFC 9110, section 14.5: a server that ignored it would take a part for the whole.
    if headers.contains_key(header::CONTENT_RANGE) {
        let text = "content-range is not taken; send the whole body";
        return Err(ProblemKind::BadRequest.because(text));
    }
    Ok(())
}

fn too_large(bytes_max: usize, limit: Limit) -> Problem {
    metrics::limit_reached(limit);
    ProblemKind::BodyTooLarge.because(format!(
        "the body has more than {bytes_max} bytes; shorten it or raise {}",
        limit.label()
    ))
}

fn describe(uri: ResourceUri, headers: &HeaderMap, media_type: &MediaType) -> Result<Descriptor, Problem> {
    let mut descriptor = Descriptor::new(uri);
    if let Some(name) = text(headers, "tidings-name")?
        && !name.is_empty()
    {
        descriptor.name = name;
    }
    descriptor.title = text(headers, "tidings-title")?;
    descriptor.description = text(headers, "tidings-description")?;
    descriptor.media_type = Some(media_type.text.clone().into());
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

/// Returns the decoded text of a header.
fn text(headers: &HeaderMap, name: &'static str) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let fault = match decode(value.as_bytes()) {
        Ok(text) => match text_fault(&text) {
            Some(fault) => fault,
            None => return Ok(Some(text.into_owned())),
        },
        Err(fault) => fault,
    };
    Err(ProblemKind::BadRequest.because(format!("the header {name} {fault}")))
}

/// Returns the fault of a name, title or description, if it has one.
pub(super) fn text_fault(text: &str) -> Option<&'static str> {
    if text.len() > TEXT_LEN_MAX {
        return Some("is longer than 4096 bytes; shorten it");
    }
    // Programs print these texts to terminals, which obey control characters.
    let has_control = text.chars().any(|c| c.is_control() && !"\n\t".contains(c));
    has_control.then_some("has a control character; leave it out")
}

/// The media type of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    text: String,
    is_text: bool,
}

impl MediaType {
    fn from_headers(headers: &HeaderMap) -> Result<MediaType, Problem> {
        let Some(value) = headers.get(header::CONTENT_TYPE) else {
            // RFC 9110, section 8.3: bytes without a type are not guessed to be text.
            return MediaType::parse("application/octet-stream");
        };
        // The text is stored with the resource and sent to every reader, so it is bounded.
        match value.to_str() {
            Ok(text) if text.len() <= MEDIA_TYPE_LEN_MAX => MediaType::parse(text),
            _ => {
                // Shortened, so that the answer is not as long as a hostile header.
                let shown = String::from_utf8_lossy(&value.as_bytes()[..value.len().min(SHOWN_LEN_MAX)]);
                Err(ProblemKind::UnsupportedMediaType.because(format!(
                    "content-type {shown:?} is not ASCII of at most {MEDIA_TYPE_LEN_MAX} bytes; write type/subtype"
                )))
            }
        }
    }

    /// Reads the field `mediaType` of a line.
    pub(super) fn from_field(text: &str) -> Result<MediaType, Problem> {
        if text.len() > MEDIA_TYPE_LEN_MAX || !text.is_ascii() {
            return Err(ProblemKind::UnsupportedMediaType.because(format!(
                "mediaType is not ASCII of at most {MEDIA_TYPE_LEN_MAX} bytes; write type/subtype"
            )));
        }
        match MediaType::parse(text) {
            Ok(media_type) => Ok(media_type),
            Err(problem) => {
                let detail = problem.detail().replacen("content-type", "mediaType", 1);
                Err(problem.kind().because(detail))
            }
        }
    }

    pub(super) fn parse(text: &str) -> Result<MediaType, Problem> {
        let mut parts = text.split(';');
        let essence = parts.next().unwrap_or_default().trim();
        let is_named = match essence.split_once('/') {
            Some((main, subtype)) => is_token(main) && is_token(subtype),
            None => false,
        };
        if !is_named {
            return Err(ProblemKind::UnsupportedMediaType.because(format!(
                "content-type {text:?} is no media type; write type/subtype, for example text/markdown"
            )));
        }
        let is_text = match (is_textual(&essence.to_ascii_lowercase()), charset(parts)) {
            (is_textual, None) => is_textual,
            // A type that names UTF-8 is text, even one that is binary by its name.
            (_, Some(charset)) if is_utf8(charset) => true,
            (true, Some(_)) => {
                return Err(ProblemKind::UnsupportedMediaType.because(format!(
                    "content-type {text:?} is not taken; send the text in UTF-8"
                )));
            }
            (false, Some(_)) => false,
        };
        Ok(MediaType {
            text: text.trim().to_owned(),
            is_text,
        })
    }

    /// Returns the text of the media type.
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// Makes the body from a text.
    pub(super) fn body_of_text(&self, text: &str) -> Body {
        match self.is_text {
            true => Body::text(text),
            false => Body::blob(Bytes::copy_from_slice(text.as_bytes())),
        }
    }

    /// Makes the body from bytes; only those of a text must be UTF-8.
    pub(super) fn body(&self, bytes: Bytes) -> Result<Body, Problem> {
        if !self.is_text {
            return Ok(Body::blob(bytes));
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Body::text(text)),
            Err(error) => Err(ProblemKind::UnsupportedMediaType.because(format!(
                "the body is not UTF-8 from byte {} on, but its content-type {:?} is a text; send UTF-8, or another \
                 content-type",
                error.valid_up_to(),
                self.text
            ))),
        }
    }
}

/// Returns the value of the parameter `charset`.
fn charset<'a>(parameters: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    for parameter in parameters {
        if let Some((name, value)) = parameter.split_once('=')
            && name.trim().eq_ignore_ascii_case("charset")
        {
            return Some(value.trim().trim_matches('"'));
        }
    }
    None
}

fn is_utf8(charset: &str) -> bool {
    ["utf-8", "utf8", "us-ascii"]
        .iter()
        .any(|known| charset.eq_ignore_ascii_case(known))
}

fn is_textual(essence: &str) -> bool {
    let suffixed = essence.ends_with("+json") || essence.ends_with("+xml") || essence.ends_with("+yaml");
    essence.starts_with("text/") || suffixed || TEXTUAL_TYPES.contains(&essence)
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_told_from_bytes_by_media_type() {
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
            assert!(MediaType::parse(text).unwrap().is_text, "{text}");
        }
        for text in [
            "application/octet-stream",
            "image/png",
            "application/pdf; charset=latin1",
        ] {
            assert!(!MediaType::parse(text).unwrap().is_text, "{text}");
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
                MediaType::parse(text).unwrap_err().kind,
                ProblemKind::UnsupportedMediaType,
                "{text}"
            );
        }
    }
}
