//! Preconditions: `If-Match` and `If-None-Match` (RFC 9110 section 13).

use ::http::{HeaderMap, HeaderName, header};
use tidings_actors::{Etag, EtagCondition, EtagSet};

use crate::http::problem::{Problem, ProblemKind};

/// The bytes to which a refusal shortens the header that it repeats.
const SHOWN_LEN_MAX: usize = 120;

/// The conditions under which a request is to be carried out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Preconditions {
    if_match: Option<Tags>,
    if_none_match: Option<Tags>,
}

/// The value of one of the headers.
#[derive(Debug, PartialEq, Eq)]
enum Tags {
    /// `*`: any version, as long as there is one.
    Any,
    /// One of these.
    Listed(Vec<Tag>),
}

#[derive(Debug, PartialEq, Eq)]
struct Tag {
    weak: bool,
    opaque: Vec<u8>,
}

/// The result of comparing a version with the preconditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evaluation {
    Hold,
    /// The version is none of those that `If-Match` names.
    IfMatchFails,
    /// The version is one of those that `If-None-Match` names.
    IfNoneMatchFails,
}

impl Preconditions {
    /// Reads the preconditions from the headers of a request.
    pub(super) fn parse(headers: &HeaderMap) -> Result<Preconditions, Problem> {
        Ok(Preconditions {
            if_match: Tags::parse(headers, &header::IF_MATCH)?,
            if_none_match: Tags::parse(headers, &header::IF_NONE_MATCH)?,
        })
    }

    /// Reads the fields `ifMatch` and `ifNoneMatch` of a line. An etag without quotes is taken as well, since
    /// the answer to a line has it so.
    pub(super) fn of_fields(
        if_match: Option<&str>,
        if_none_match: Option<&str>,
    ) -> Result<Preconditions, Problem> {
        Ok(Preconditions {
            if_match: Tags::of_field("ifMatch", if_match)?,
            if_none_match: Tags::of_field("ifNoneMatch", if_none_match)?,
        })
    }

    /// Returns true if the request has no preconditions.
    pub(super) fn is_empty(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// Returns true if `If-None-Match` alone is there and lists `current`, so that the body need not be read.
    pub(super) fn list(&self, current: Etag) -> bool {
        match (&self.if_match, &self.if_none_match) {
            (None, Some(tags @ Tags::Listed(_))) => tags.match_weakly(current),
            _ => false,
        }
    }

    /// Returns the same preconditions for the bus. `member` is the etag of a template's member that is not
    /// registered.
    pub(super) fn condition(&self, member: Option<Etag>) -> EtagCondition {
        EtagCondition {
            if_match: self.if_match.as_ref().map(|tags| tags.to_set(false)),
            if_none_match: self.if_none_match.as_ref().map(|tags| tags.to_set(true)),
            member,
        }
    }

    /// Evaluates the preconditions; `current` is none when the resource does not exist.
    pub(super) fn evaluate(&self, current: Option<Etag>) -> Evaluation {
        // RFC 9110 13.1: strong comparison for If-Match, weak comparison for If-None-Match.
        if let Some(tags) = &self.if_match {
            match current {
                Some(etag) if tags.match_strongly(etag) => {}
                _ => return Evaluation::IfMatchFails,
            }
        }
        match (&self.if_none_match, current) {
            (Some(tags), Some(etag)) if tags.match_weakly(etag) => Evaluation::IfNoneMatchFails,
            _ => Evaluation::Hold,
        }
    }
}

impl Tags {
    fn parse(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
        if !headers.contains_key(name) {
            return Ok(None);
        }
        let values: Vec<&[u8]> = headers
            .get_all(name)
            .iter()
            .map(|value| value.as_bytes())
            .collect();
        if let [b"*"] = values.as_slice() {
            return Ok(Some(Tags::Any));
        }
        let mut tags = Vec::new();
        for value in values {
            // To ignore an unreadable header would carry out a write that the client wanted guarded.
            if parse_list(value, &mut tags).is_none() {
                let value = String::from_utf8_lossy(&value[..value.len().min(SHOWN_LEN_MAX)]);
                return Err(ProblemKind::BadRequest.because(format!(
                    "{name} {value:?} is neither * nor a list of etags; write them in double quotes, as the ETag \
                     header has them"
                )));
            }
        }
        Ok(Some(Tags::Listed(tags)))
    }

    fn of_field(name: &str, text: Option<&str>) -> Result<Option<Tags>, Problem> {
        let Some(text) = text else {
            return Ok(None);
        };
        if text == "*" {
            return Ok(Some(Tags::Any));
        }
        let quoted = match text.contains('"') {
            true => text.to_owned(),
            false => format!("\"{text}\""),
        };
        let mut tags = Vec::new();
        match parse_list(quoted.as_bytes(), &mut tags) {
            Some(()) => Ok(Some(Tags::Listed(tags))),
            None => {
                let text: String = text.chars().take(SHOWN_LEN_MAX).collect();
                Err(ProblemKind::BadRequest.because(format!("{name} {text:?} is neither * nor an etag")))
            }
        }
    }

    /// Returns the tags that are etags of the bus, without the weak ones for strong comparison, in which they
    /// match nothing.
    fn to_set(&self, with_weak: bool) -> EtagSet {
        let Tags::Listed(tags) = self else {
            return EtagSet::Any;
        };
        let mut etags = Vec::new();
        for tag in tags {
            let text = String::from_utf8_lossy(&tag.opaque);
            // A tag that is no etag of the bus matches no version, so it can be left out.
            if (with_weak || !tag.weak)
                && let Ok(etag) = text.parse()
            {
                etags.push(etag);
            }
        }
        EtagSet::Listed(etags)
    }

    fn match_strongly(&self, current: Etag) -> bool {
        match self {
            Tags::Any => true,
            Tags::Listed(tags) => {
                let current = current.to_string();
                tags.iter()
                    .any(|tag| !tag.weak && tag.opaque == current.as_bytes())
            }
        }
    }

    fn match_weakly(&self, current: Etag) -> bool {
        match self {
            Tags::Any => true,
            Tags::Listed(tags) => {
                let current = current.to_string();
                tags.iter().any(|tag| tag.opaque == current.as_bytes())
            }
        }
    }
}

/// Reads `#entity-tag`, in which empty elements are allowed (RFC 9110 5.6.1).
fn parse_list(value: &[u8], tags: &mut Vec<Tag>) -> Option<()> {
    let mut rest = value.trim_ascii();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(b",") {
            rest = after.trim_ascii_start();
            continue;
        }
        let weak = rest.starts_with(b"W/");
        let quoted = rest.strip_prefix(b"W/").unwrap_or(rest).strip_prefix(b"\"")?;
        let end = quoted.iter().position(|byte| *byte == b'"')?;
        let opaque = quoted[..end].to_vec();
        if opaque.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return None;
        }
        tags.push(Tag { weak, opaque });
        rest = quoted[end + 1..].trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return None;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::http::HeaderValue;
    use proptest::prelude::*;

    const NOW: Etag = Etag {
        version: 3,
        updated_at: 7,
        life: 0,
    };

    fn parse(sent: &[(HeaderName, &str)]) -> Result<Preconditions, Problem> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        Preconditions::parse(&headers)
    }

    #[test]
    fn if_match_compares_strongly() {
        for (value, current, expected) in [
            ("\"v3-7\"", Some(NOW), Evaluation::Hold),
            ("\"v2-7\", \"v3-7\"", Some(NOW), Evaluation::Hold),
            (",, \"v3-7\" ,", Some(NOW), Evaluation::Hold),
            ("*", Some(NOW), Evaluation::Hold),
            ("*", None, Evaluation::IfMatchFails),
            ("W/\"v3-7\"", Some(NOW), Evaluation::IfMatchFails),
            ("\"v2-7\"", Some(NOW), Evaluation::IfMatchFails),
            ("\"v3-7,\"", Some(NOW), Evaluation::IfMatchFails),
            ("\"v3-7\"", None, Evaluation::IfMatchFails),
            ("", Some(NOW), Evaluation::IfMatchFails),
        ] {
            let evaluated = parse(&[(header::IF_MATCH, value)]).unwrap().evaluate(current);
            assert_eq!(evaluated, expected, "{value} {current:?}");
        }
    }

    #[test]
    fn if_none_match_compares_weakly() {
        for (value, expected, listed) in [
            ("\"v3-7\"", Evaluation::IfNoneMatchFails, true),
            ("W/\"v3-7\"", Evaluation::IfNoneMatchFails, true),
            ("\"a,b\",W/\"v3-7\"", Evaluation::IfNoneMatchFails, true),
            ("*", Evaluation::IfNoneMatchFails, false),
            ("\"v2-7\"", Evaluation::Hold, false),
        ] {
            let conditions = parse(&[(header::IF_NONE_MATCH, value)]).unwrap();
            assert_eq!(conditions.evaluate(Some(NOW)), expected, "{value}");
            assert_eq!(conditions.evaluate(None), Evaluation::Hold, "{value}");
            assert_eq!(conditions.list(NOW), listed, "{value}");
        }
    }

    #[test]
    fn repeated_headers_are_one_list() {
        let list = [(header::IF_MATCH, "\"v1-1\""), (header::IF_MATCH, "\"v3-7\"")];
        assert_eq!(parse(&list).unwrap().evaluate(Some(NOW)), Evaluation::Hold);
        let both = [
            (header::IF_MATCH, "\"v3-7\""),
            (header::IF_NONE_MATCH, "\"v3-7\""),
        ];
        let both = parse(&both).unwrap();
        assert_eq!(both.evaluate(Some(NOW)), Evaluation::IfNoneMatchFails);
        assert!(!both.list(NOW), "If-Match must be evaluated, too");
        assert!(parse(&[]).unwrap().is_empty());
    }

    #[test]
    fn unreadable_list_is_refused() {
        for value in [
            "v3-7",
            "\"v3-7",
            "v3-7\"",
            "w/\"v3-7\"",
            "W/ \"v3-7\"",
            "\"a\" \"b\"",
            "\"a\"b",
            "*, \"a\"",
            "\"a b\"",
            "**",
        ] {
            for name in [header::IF_MATCH, header::IF_NONE_MATCH] {
                let problem = parse(&[(name, value)]).unwrap_err();
                assert_eq!(problem.kind, ProblemKind::BadRequest, "{value}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_list_of_tags_is_read_back(tags in prop::collection::vec((any::<bool>(), "[!#-~]{0,12}"), 0..8)) {
            let written: Vec<String> =
                tags.iter().map(|(weak, tag)| format!("{}\"{tag}\"", if *weak { "W/" } else { "" })).collect();
            let mut read = Vec::new();
            prop_assert_eq!(parse_list(written.join(", ").as_bytes(), &mut read), Some(()));
            let expected: Vec<Tag> =
                tags.into_iter().map(|(weak, tag)| Tag { weak, opaque: tag.into_bytes() }).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn arbitrary_bytes_do_not_break_parser(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut read = Vec::new();
            if parse_list(&bytes, &mut read).is_none() {
                prop_assert!(!bytes.is_empty());
            }
        }
    }
}
