//! The version a client can keep.
//!
//! Owns: the value `{version, updated_at}` and its text `v{version}-{unix seconds}`. Never: decides when a version
//! moves (the ledger does) or what time it is.

use std::fmt;
use std::str::FromStr;

/// The version of one resource: a per-URI counter, and the time that tells equal counters of different server
/// lives apart.
///
/// ```
/// use tidings_actors::Etag;
/// let etag = Etag { version: 3, updated_at: 1_764_000_000 };
/// assert_eq!(etag.to_string(), "v3-1764000000");
/// assert_eq!("v3-1764000000".parse(), Ok(etag));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Etag {
    /// Counts the changes of this URI; 0 for a URI nobody ever registered. The only part compared for order.
    pub version: u64,
    /// When this version came to be, in seconds since 1970-01-01 UTC.
    pub updated_at: u64,
}

impl Etag {
    /// The etag of a URI nobody ever registered: version 0.
    pub const UNKNOWN: Etag = Etag {
        version: 0,
        updated_at: 0,
    };

    /// Whether a client that holds `client_etag` must read again: it holds none, or the encoded texts differ.
    pub fn is_stale(&self, client_etag: Option<&str>) -> bool {
        // Text, not numbers: `v03-7` is not what the bus handed out, so its holder is sent to read again.
        client_etag.is_none_or(|held| held != self.to_string())
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}-{}", self.version, self.updated_at)
    }
}

/// Text that is no etag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid etag {0:?}: expected v{{version}}-{{unix seconds}}, for example v3-1764000000")]
pub struct InvalidEtag(pub String);

impl FromStr for Etag {
    type Err = InvalidEtag;

    fn from_str(text: &str) -> Result<Self, InvalidEtag> {
        let parse = || {
            let (version, updated_at) = text.strip_prefix('v')?.split_once('-')?;
            Some(Etag {
                version: version.parse().ok()?,
                updated_at: updated_at.parse().ok()?,
            })
        };
        // Only the canonical text is an etag, so that comparing texts and comparing values agree.
        parse()
            .filter(|etag| etag.to_string() == text)
            .ok_or_else(|| InvalidEtag(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_missing_client_etag_is_stale_and_an_equal_one_is_not() {
        let etag = Etag {
            version: 2,
            updated_at: 7,
        };
        assert!(etag.is_stale(None));
        assert!(!etag.is_stale(Some("v2-7")));
        for other in ["v1-7", "v2-8", "v02-7", "", "W/\"v2-7\""] {
            assert!(etag.is_stale(Some(other)), "{other}");
        }
    }

    proptest! {
        #[test]
        fn text_and_value_are_one(version: u64, updated_at: u64) {
            let etag = Etag { version, updated_at };
            prop_assert_eq!(etag.to_string().parse(), Ok(etag));
        }

        #[test]
        fn no_text_breaks_the_parser(text in ".{0,40}") {
            if let Ok(etag) = text.parse::<Etag>() {
                prop_assert_eq!(etag.to_string(), text);
            }
        }
    }
}
