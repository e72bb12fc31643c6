//! Preconditions: `If-Match` and `If-None-Match` (RFC 9110 section 13).
//!
//! Owns: reading the two headers and judging them against a version. Never: looks a version up, or makes a change.
//! Pure: the handlers hand in what the bus said.

use axum::http::{HeaderMap, HeaderName, header};
use tidings_actors::Etag;

use crate::http::problem::{Problem, ProblemKind};

/// What a request wants to hold before it is carried out.
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

/// What a version is to the preconditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// They hold.
    Holds,
    /// It is none of those that `If-Match` names.
    Other,
    /// It is one of those that `If-None-Match` names.
    Same,
}

impl Preconditions {
    /// Reads them from `headers`.
    pub(super) fn parse(headers: &HeaderMap) -> Result<Preconditions, Problem> {
        Ok(Preconditions {
            if_match: Tags::parse(headers, &header::IF_MATCH)?,
            if_none_match: Tags::parse(headers, &header::IF_NONE_MATCH)?,
        })
    }

    /// Whether the request has none.
    pub(super) fn is_empty(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// Whether a reader that holds one of its listed etags already has `current`, whatever a read would say.
    pub(super) fn lists(&self, current: Etag) -> bool {
        let listed =
            |tags: &Tags| matches!(tags, Tags::Listed(_)) && tags.matches(Some(current), Tag::is_weakly);
        self.if_match.is_none() && self.if_none_match.as_ref().is_some_and(listed)
    }

    /// Judges them; `current` is none when the resource does not exist.
    pub(super) fn judge(&self, current: Option<Etag>) -> Verdict {
        // RFC 9110 13.1: strong comparison for If-Match, weak comparison for If-None-Match.
        let other = |tags: &Tags| !tags.matches(current, Tag::is);
        let same = |tags: &Tags| tags.matches(current, Tag::is_weakly);
        if self.if_match.as_ref().is_some_and(other) {
            Verdict::Other
        } else if self.if_none_match.as_ref().is_some_and(same) {
            Verdict::Same
        } else {
            Verdict::Holds
        }
    }
}

impl Tags {
    fn parse(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
        let values: Vec<&[u8]> = headers
            .get_all(name)
            .iter()
            .map(|value| value.as_bytes())
            .collect();
        if values.is_empty() {
            return Ok(None);
        }
        if let [b"*"] = values.as_slice() {
            return Ok(Some(Tags::Any));
        }
        let mut tags = Vec::new();
        for value in &values {
            // Ignoring what cannot be read would carry out a write that the client wanted guarded.
            parse_list(value, &mut tags).ok_or_else(|| {
                let value = String::from_utf8_lossy(&value[..value.len().min(120)]);
                ProblemKind::BadRequest.because(format!(
                    "{name} {value:?} is neither * nor a list of etags; write them in double quotes, as the ETag header has them"
                ))
            })?;
        }
        Ok(Some(Tags::Listed(tags)))
    }

    fn matches(&self, current: Option<Etag>, same: impl Fn(&Tag, &str) -> bool) -> bool {
        let Some(current) = current else { return false };
        match self {
            Tags::Any => true,
            Tags::Listed(tags) => {
                let text = current.to_string();
                tags.iter().any(|tag| same(tag, &text))
            }
        }
    }
}

impl Tag {
    fn is(&self, etag: &str) -> bool {
        !self.weak && self.is_weakly(etag)
    }

    fn is_weakly(&self, etag: &str) -> bool {
        self.opaque == etag.as_bytes()
    }
}

/// Reads `#entity-tag`; empty elements are allowed (RFC 9110 5.6.1).
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
        let (opaque, after) = (&quoted[..end], quoted[end + 1..].trim_ascii_start());
        if opaque.iter().any(|byte| *byte <= b' ' || *byte == 0x7f) {
            return None;
        }
        if !after.is_empty() && !after.starts_with(b",") {
            return None;
        }
        let opaque = opaque.to_vec();
        tags.push(Tag { weak, opaque });
        rest = after;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    const NOW: Etag = Etag {
        version: 3,
        updated_at: 7,
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
        for (value, current, verdict) in [
            ("\"v3-7\"", Some(NOW), Verdict::Holds),
            ("\"v2-7\", \"v3-7\"", Some(NOW), Verdict::Holds),
            (",, \"v3-7\" ,", Some(NOW), Verdict::Holds),
            ("*", Some(NOW), Verdict::Holds),
            ("*", None, Verdict::Other),
            ("W/\"v3-7\"", Some(NOW), Verdict::Other),
            ("\"v2-7\"", Some(NOW), Verdict::Other),
            ("\"v3-7,\"", Some(NOW), Verdict::Other),
            ("\"v3-7\"", None, Verdict::Other),
            ("", Some(NOW), Verdict::Other),
        ] {
            let judged = parse(&[(header::IF_MATCH, value)]).unwrap().judge(current);
            assert_eq!(judged, verdict, "{value} {current:?}");
        }
    }

    #[test]
    fn if_none_match_compares_weakly() {
        for (value, verdict, listed) in [
            ("\"v3-7\"", Verdict::Same, true),
            ("W/\"v3-7\"", Verdict::Same, true),
            ("\"a,b\",W/\"v3-7\"", Verdict::Same, true),
            ("*", Verdict::Same, false),
            ("\"v2-7\"", Verdict::Holds, false),
        ] {
            let conditions = parse(&[(header::IF_NONE_MATCH, value)]).unwrap();
            assert_eq!(conditions.judge(Some(NOW)), verdict, "{value}");
            assert_eq!(conditions.judge(None), Verdict::Holds, "{value}");
            assert_eq!(conditions.lists(NOW), listed, "{value}");
        }
    }

    #[test]
    fn several_headers_are_one_list_and_both_kinds_must_hold() {
        let list = [(header::IF_MATCH, "\"v1-1\""), (header::IF_MATCH, "\"v3-7\"")];
        assert_eq!(parse(&list).unwrap().judge(Some(NOW)), Verdict::Holds);
        let both = [
            (header::IF_MATCH, "\"v3-7\""),
            (header::IF_NONE_MATCH, "\"v3-7\""),
        ];
        let both = parse(&both).unwrap();
        assert_eq!(both.judge(Some(NOW)), Verdict::Same);
        assert!(
            !both.lists(NOW),
            "a reader with If-Match needs the full judgement"
        );
        assert!(parse(&[]).unwrap().is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
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
        fn no_bytes_break_the_parser(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut read = Vec::new();
            if parse_list(&bytes, &mut read).is_none() {
                prop_assert!(!bytes.is_empty());
            }
        }
    }
}
