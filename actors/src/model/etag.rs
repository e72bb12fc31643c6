//! The etag of a resource, written `v{version}-{unix seconds}` with nine more digits for the life of the
//! process.

use std::fmt;
use std::str::FromStr;

/// The version of one resource: a counter per URI, and the time of the change. The counters begin anew in a
/// life of a server without a store, and repeat themselves after an older copy of a store was put back. So
/// the time is followed by nine digits that are random per life: two lives never give one etag to two
/// contents, not even in one second or with a clock that was set back.
///
/// ```
/// use tidings_actors::Etag;
/// let etag = Etag { version: 3, updated_at: 1_764_000_000, life: 0 };
/// assert_eq!(etag.to_string(), "v3-1764000000");
/// assert_eq!("v3-1764000000".parse(), Ok(etag));
/// let etag = Etag { life: 42, ..etag };
/// assert_eq!(etag.to_string(), "v3-1764000000000000042");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Etag {
    /// The number of changes of this URI; 0 for a URI that was never registered. Etags are ordered by it
    /// alone.
    pub version: u64,
    /// The time of this version in seconds since 1970-01-01 UTC.
    pub updated_at: u64,
    /// The tag of the life in which the server made this version, below [`LIVES`](Self::LIVES); 0 if the
    /// program that embeds the bus gives the clock, or if an older release made the version.
    pub life: u32,
}

impl Etag {
    /// The number of different tags of lives, counting 0.
    pub const LIVES: u32 = 1_000_000_000;

    /// The etag of a URI that was never registered.
    pub const UNKNOWN: Etag = Etag {
        version: 0,
        updated_at: 0,
        life: 0,
    };

    /// Returns true if a client that holds `client_etag` must read again: it holds none, or the texts differ.
    pub fn is_stale(&self, client_etag: Option<&str>) -> bool {
        // Compares text, not numbers: the bus never wrote `v03-7`, so a client that holds it reads again.
        match client_etag {
            Some(held) => held != self.to_string(),
            None => true,
        }
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.life {
            0 => write!(f, "v{}-{}", self.version, self.updated_at),
            life => write!(f, "v{}-{}{life:09}", self.version, self.updated_at),
        }
    }
}

/// The digits of the tag of a life.
const LIFE_DIGITS: usize = 9;

/// The error of a text that is not an etag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid etag {0:?}: expected v{{version}}-{{unix seconds}}, for example v3-1764000000")]
pub struct InvalidEtag(pub String);

impl FromStr for Etag {
    type Err = InvalidEtag;

    fn from_str(text: &str) -> Result<Self, InvalidEtag> {
        match parse(text) {
            // Only the canonical text is an etag, so that comparing texts and comparing values agree.
            Some(etag) if etag.to_string() == text => Ok(etag),
            _ => Err(InvalidEtag(text.chars().take(64).collect())),
        }
    }
}

fn parse(text: &str) -> Option<Etag> {
    let (version, time) = text.strip_prefix('v')?.split_once('-')?;
    let (updated_at, life) = match time.len().checked_sub(LIFE_DIGITS) {
        // Seconds need fewer digits for longer than the tag has: 10 until the year 2286.
        Some(seconds) if seconds >= LIFE_DIGITS && time.is_ascii() => time.split_at(seconds),
        _ => (time, "0"),
    };
    Some(Etag {
        version: version.parse().ok()?,
        updated_at: updated_at.parse().ok()?,
        life: life.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_an_equal_client_etag_is_fresh() {
        let etag = Etag {
            version: 2,
            updated_at: 7,
            life: 0,
        };
        assert!(etag.is_stale(None));
        assert!(!etag.is_stale(Some("v2-7")));
        for other in ["v1-7", "v2-8", "v02-7", "", "W/\"v2-7\""] {
            assert!(etag.is_stale(Some(other)), "{other}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(version: u64, updated_at in 100_000_000..100_000_000_000_000_000u64, life in 0..Etag::LIVES) {
            let etag = Etag { version, updated_at, life };
            prop_assert_eq!(etag.to_string().parse(), Ok(etag));
        }

        #[test]
        fn parser_accepts_only_canonical_text(text in ".{0,40}") {
            if let Ok(etag) = text.parse::<Etag>() {
                prop_assert_eq!(etag.to_string(), text);
            }
        }
    }
}
