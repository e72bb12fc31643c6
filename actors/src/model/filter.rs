//! What a subscriber wants to hear of: which resources, and which kinds of news.
//!
//! Owns: [`UriPattern`], [`NoticeKind`] and [`Filter`]. Never: holds subscribers, or anything that changes. Asked by the
//! publisher for every notice, so that matching allocates nothing except where a template has variables.

use std::fmt;
use std::str::FromStr;

use super::list::ListKind;
use super::notice::{Cause, Notice};
use super::uri::{InvalidUri, ResourceUri};
use super::uri_template::{InvalidUriTemplate, UriTemplate};

/// Patterns that one [`Filter`] may have.
pub const PATTERNS_MAX: usize = 64;

/// Some of all URIs: one, all that begin alike, or the expansions of a template (RFC 6570, levels 1 to 3).
///
/// ```
/// use tidings_actors::{ResourceUri, UriPattern};
/// let uri = ResourceUri::new("note://ada/engines")?;
/// for text in ["note://ada/engines", "note://ada/*", "note://{author}/{title}"] {
///     assert!(text.parse::<UriPattern>()?.matches(&uri), "{text}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UriPattern {
    /// This URI alone.
    Exact(ResourceUri),
    /// Every URI that begins with this text; written with a `*` at the end.
    Prefix(String),
    /// Every URI that this template expands to; written with `{variables}`.
    Template(UriTemplate),
}

impl UriPattern {
    /// Whether `uri` is one of them.
    pub fn matches(&self, uri: &ResourceUri) -> bool {
        match self {
            UriPattern::Exact(exact) => exact == uri,
            UriPattern::Prefix(prefix) => uri.as_str().starts_with(prefix),
            UriPattern::Template(template) => template.matches(uri.as_str()).is_some(),
        }
    }
}

/// Text that is no pattern of URIs, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPattern {
    /// A `*` stands elsewhere than at the end.
    #[error(
        "invalid URI pattern {0:?}: a * may stand only at the end; use a template such as note://{{name}} instead"
    )]
    Star(String),
    /// It is no URI.
    #[error(transparent)]
    Uri(#[from] InvalidUri),
    /// It is no template.
    #[error(transparent)]
    Template(#[from] InvalidUriTemplate),
    /// A filter has more than [`PATTERNS_MAX`].
    #[error("{0} URI patterns: a filter may have {PATTERNS_MAX}; use a prefix or a template")]
    TooMany(usize),
}

impl FromStr for UriPattern {
    type Err = InvalidPattern;

    /// A template where the text has a brace, a prefix where it ends with `*`, else one URI.
    fn from_str(text: &str) -> Result<UriPattern, InvalidPattern> {
        if text.contains('{') {
            return Ok(UriPattern::Template(UriTemplate::parse(text)?));
        }
        match text.strip_suffix('*') {
            Some(prefix) if !prefix.contains('*') && prefix.len() <= crate::model::uri::URI_LEN_MAX => {
                Ok(UriPattern::Prefix(prefix.to_owned()))
            }
            Some(_) => Err(InvalidPattern::Star(text.chars().take(120).collect())),
            None => Ok(UriPattern::Exact(ResourceUri::new(text)?)),
        }
    }
}

impl fmt::Display for UriPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UriPattern::Exact(uri) => uri.fmt(f),
            UriPattern::Prefix(prefix) => write!(f, "{prefix}*"),
            UriPattern::Template(template) => template.fmt(f),
        }
    }
}

/// One kind of news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoticeKind {
    /// A resource has other content.
    Updated,
    /// A resource is gone.
    Removed,
    /// A list changed.
    List(ListKind),
}

impl NoticeKind {
    /// All kinds.
    pub const ALL: [NoticeKind; 5] = [
        NoticeKind::Updated,
        NoticeKind::Removed,
        NoticeKind::List(ListKind::Resources),
        NoticeKind::List(ListKind::Tools),
        NoticeKind::List(ListKind::Prompts),
    ];

    /// The kind as it is written in configuration, labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            NoticeKind::Updated => "updated",
            NoticeKind::Removed => "removed",
            NoticeKind::List(ListKind::Resources) => "resources_list_changed",
            NoticeKind::List(ListKind::Tools) => "tools_list_changed",
            NoticeKind::List(ListKind::Prompts) => "prompts_list_changed",
        }
    }

    /// The kind with this name, if there is one.
    pub fn from_name(name: &str) -> Option<NoticeKind> {
        NoticeKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn bit(self) -> u8 {
        match self {
            NoticeKind::Updated => 1,
            NoticeKind::Removed => 2,
            NoticeKind::List(list) => 4 << list.index(),
        }
    }
}

impl From<Cause> for NoticeKind {
    fn from(cause: Cause) -> NoticeKind {
        match cause {
            Cause::Updated => NoticeKind::Updated,
            Cause::Removed => NoticeKind::Removed,
        }
    }
}

/// What a subscriber wants to hear of. The default is everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// Any of these; empty means every URI.
    patterns: Vec<UriPattern>,
    /// Left out: every kind.
    kinds: Option<u8>,
}

impl Filter {
    /// Every kind of news of the resources that match any of `patterns`; of all when there are none.
    ///
    /// # Errors
    /// [`InvalidPattern::TooMany`] beyond [`PATTERNS_MAX`].
    pub fn of(patterns: Vec<UriPattern>) -> Result<Filter, InvalidPattern> {
        if patterns.len() > PATTERNS_MAX {
            return Err(InvalidPattern::TooMany(patterns.len()));
        }
        Ok(Filter {
            patterns,
            kinds: None,
        })
    }

    /// The same, of these kinds only.
    #[must_use]
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = NoticeKind>) -> Filter {
        self.kinds = Some(kinds.into_iter().fold(0, |bits, kind| bits | kind.bit()));
        self
    }

    /// Its patterns; none means every URI.
    pub fn patterns(&self) -> &[UriPattern] {
        &self.patterns
    }

    /// Whether it wants this kind of news.
    pub fn wants_kind(&self, kind: NoticeKind) -> bool {
        self.kinds.is_none_or(|kinds| kinds & kind.bit() != 0)
    }

    /// Whether it wants news of `uri`.
    pub fn wants_uri(&self, uri: &ResourceUri) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(uri))
    }

    /// Whether it wants this notice.
    pub fn wants(&self, notice: &Notice) -> bool {
        self.wants_kind(notice.cause.into()) && self.wants_uri(&notice.uri)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Etag, Position};
    use std::time::Instant;

    fn notice(uri: &str, cause: Cause) -> Notice {
        let uri = ResourceUri::new(uri).unwrap();
        Notice::new(
            uri,
            Etag::UNKNOWN,
            cause,
            Position { epoch: 1, offset: 1 },
            Instant::now(),
        )
    }

    #[test]
    fn a_pattern_is_written_as_it_is_read() {
        for text in ["demo://a", "demo://*", "*", "demo://{name}/x"] {
            let pattern: UriPattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), text);
        }
        assert!(matches!(
            "demo://*/x".parse::<UriPattern>(),
            Err(InvalidPattern::Uri(_) | InvalidPattern::Star(_)) | Ok(UriPattern::Exact(_))
        ));
        assert!(matches!(
            "a*b*".parse::<UriPattern>(),
            Err(InvalidPattern::Star(_))
        ));
        assert!("no scheme".parse::<UriPattern>().is_err());
        assert!("demo://{a".parse::<UriPattern>().is_err());
    }

    #[test]
    fn a_filter_wants_what_any_pattern_matches_of_the_kinds_it_names() {
        let patterns = ["demo://a", "note://*"].map(|text| text.parse().unwrap());
        let filter = Filter::of(patterns.to_vec())
            .unwrap()
            .kinds([NoticeKind::Removed]);
        assert!(filter.wants(&notice("demo://a", Cause::Removed)));
        assert!(filter.wants(&notice("note://b", Cause::Removed)));
        assert!(!filter.wants(&notice("note://b", Cause::Updated)));
        assert!(!filter.wants(&notice("demo://b", Cause::Removed)));
        assert!(!filter.wants_kind(NoticeKind::List(ListKind::Tools)));
        assert!(Filter::default().wants(&notice("demo://b", Cause::Updated)));
    }

    #[test]
    fn every_kind_has_a_name_and_a_bit_of_its_own() {
        let bits = NoticeKind::ALL.iter().fold(0, |bits, kind| bits + kind.bit());
        assert_eq!(bits, 0b1_1111);
        for kind in NoticeKind::ALL {
            assert_eq!(NoticeKind::from_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn a_filter_has_at_most_its_limit_of_patterns() {
        let patterns = vec![UriPattern::Prefix(String::new()); PATTERNS_MAX + 1];
        assert_eq!(
            Filter::of(patterns),
            Err(InvalidPattern::TooMany(PATTERNS_MAX + 1))
        );
    }
}
