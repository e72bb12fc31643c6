//! Filters of notices by URI and kind.
//!
//! The Publisher evaluates filters for every notice, so matching allocates only if a pattern is a template.

use std::fmt;
use std::str::FromStr;

use super::list::ListKind;
use super::notice::{Cause, Notice};
use super::uri::{InvalidUri, ResourceUri, URI_LEN_MAX};
use super::uri_template::{InvalidUriTemplate, UriTemplate};

/// The maximum number of patterns of one [`Filter`].
pub const PATTERNS_MAX: usize = 64;

/// A set of URIs: a single one, all with a common prefix, or the expansions of a template (RFC 6570, levels 1
/// to 3).
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
    /// A single URI.
    Exact(ResourceUri),
    /// Every URI with this prefix; written with a `*` at the end.
    Prefix(String),
    /// Every URI that is an expansion of this template; written with `{variables}`.
    Template(UriTemplate),
}

impl UriPattern {
    /// Returns true if `uri` is in the set.
    pub fn matches(&self, uri: &ResourceUri) -> bool {
        match self {
            UriPattern::Exact(exact) => exact == uri,
            UriPattern::Prefix(prefix) => uri.as_str().starts_with(prefix),
            UriPattern::Template(template) => template.matches(uri.as_str()).is_some(),
        }
    }
}

/// The error of a text that is not a pattern, or of too many patterns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPattern {
    /// There is a `*` before the end.
    #[error(
        "invalid URI pattern {0:?}: a * may stand only at the end; use a template such as note://{{name}} instead"
    )]
    Star(String),
    /// The text is not a URI.
    #[error(transparent)]
    Uri(#[from] InvalidUri),
    /// The text is not a template.
    #[error(transparent)]
    Template(#[from] InvalidUriTemplate),
    /// A filter has more than [`PATTERNS_MAX`] patterns.
    #[error("{0} URI patterns: a filter may have {PATTERNS_MAX}; use a prefix or a template")]
    TooMany(usize),
}

impl FromStr for UriPattern {
    type Err = InvalidPattern;

    /// Reads a template if the text has a brace, a prefix if it ends with `*`, and otherwise a single URI.
    fn from_str(text: &str) -> Result<UriPattern, InvalidPattern> {
        // RFC 3986 allows no braces in a URI, so this can only be a template.
        if text.contains('{') {
            return Ok(UriPattern::Template(UriTemplate::parse(text)?));
        }
        // A prefix needs no scheme, so that `*` alone matches every URI.
        match text.strip_suffix('*') {
            Some(prefix) if !prefix.contains('*') && prefix.len() <= URI_LEN_MAX => {
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

/// The kind of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoticeKind {
    /// A resource changed.
    Updated,
    /// A resource was removed.
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

    /// The kind as written in configuration, labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            NoticeKind::Updated => "updated",
            NoticeKind::Removed => "removed",
            NoticeKind::List(ListKind::Resources) => "resources_list_changed",
            NoticeKind::List(ListKind::Tools) => "tools_list_changed",
            NoticeKind::List(ListKind::Prompts) => "prompts_list_changed",
        }
    }

    /// Returns the kind with this name.
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

/// A filter by URI and kind. The default lets everything through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Filter {
    /// A URI has to match one of these; empty means every URI.
    patterns: Vec<UriPattern>,
    /// The bits of the kinds; `None` means every kind.
    kinds: Option<u8>,
}

impl Filter {
    /// Creates a filter for the resources that match any of `patterns`, or for all resources if there are
    /// none.
    ///
    /// # Errors
    /// [`InvalidPattern::TooMany`] for more than [`PATTERNS_MAX`] patterns.
    pub fn of(patterns: Vec<UriPattern>) -> Result<Filter, InvalidPattern> {
        if patterns.len() > PATTERNS_MAX {
            return Err(InvalidPattern::TooMany(patterns.len()));
        }
        Ok(Filter {
            patterns,
            kinds: None,
        })
    }

    /// Restricts the filter to these kinds.
    #[must_use]
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = NoticeKind>) -> Filter {
        // Bits of one byte, because the Publisher tests every notice against every filter.
        self.kinds = Some(kinds.into_iter().fold(0, |bits, kind| bits | kind.bit()));
        self
    }

    /// The patterns; none means every URI.
    pub fn patterns(&self) -> &[UriPattern] {
        &self.patterns
    }

    /// Returns true if notices of this kind pass.
    pub fn wants_kind(&self, kind: NoticeKind) -> bool {
        match self.kinds {
            Some(kinds) => kinds & kind.bit() != 0,
            None => true,
        }
    }

    /// Returns true if notices of `uri` pass.
    pub fn wants_uri(&self, uri: &ResourceUri) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(uri))
    }

    /// Returns true if this notice passes.
    pub fn wants(&self, notice: &Notice) -> bool {
        // The kind first: it is one bit, while a template may take many steps.
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
    fn pattern_round_trips() {
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
    fn filter_passes_matching_patterns_and_kinds() {
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
    fn kinds_have_unique_names_and_bits() {
        let bits = NoticeKind::ALL.iter().fold(0, |bits, kind| bits + kind.bit());
        assert_eq!(bits, 0b1_1111);
        for kind in NoticeKind::ALL {
            assert_eq!(NoticeKind::from_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn too_many_patterns_are_rejected() {
        let patterns = vec![UriPattern::Prefix(String::new()); PATTERNS_MAX + 1];
        assert_eq!(
            Filter::of(patterns),
            Err(InvalidPattern::TooMany(PATTERNS_MAX + 1))
        );
    }
}
