//! One line of a token file: the hash of a token, and the end of its validity.

use std::fmt;
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::timestamp;

/// The beginning of every token that this program makes, by which scanners of leaked secrets find it.
pub(super) const PREFIX: &str = "tdg_";

/// The SHA-256 of a token.
pub(super) type TokenHash = [u8; 32];

/// Returns the hash by which a token is known.
pub(super) fn hash_of(token: &str) -> TokenHash {
    // A fast hash is enough: tokens are random, so that none can be guessed from its hash.
    Sha256::digest(token).into()
}

/// A token with the line that makes it known to a service.
#[derive(Clone, PartialEq, Eq)]
pub struct NewToken {
    /// The token: a secret.
    pub token: String,
    /// The line for a token file.
    pub line: String,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

impl NewToken {
    /// Makes a token of 256 random bits. `name` stands in a comment of the line.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn make(name: &str, not_after: Option<SystemTime>) -> Result<NewToken, getrandom::Error> {
        let mut random = [0; 32];
        getrandom::fill(&mut random)?;
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random));
        let line = TokenLine {
            hash: hash_of(&token),
            not_after,
        };
        Ok(NewToken {
            line: format!("{line} # {name}"),
            token,
        })
    }
}

/// One line of a token file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenLine {
    pub(super) hash: TokenHash,
    /// The time at which the token ends; none if it does not.
    pub(super) not_after: Option<SystemTime>,
}

impl TokenLine {
    /// Reads a line. Returns none for one without a token: an empty one, or a comment.
    ///
    /// # Errors
    /// The remedy. It repeats nothing of the line, which may hold a token by mistake.
    pub(super) fn read(line: &str) -> Result<Option<TokenLine>, &'static str> {
        let text = match line.split_once('#') {
            // Neither a hash nor a time has this character, so a comment may begin anywhere.
            Some((text, _comment)) => text,
            None => line,
        };
        let mut words = text.split_ascii_whitespace();
        let Some(first) = words.next() else {
            return Ok(None);
        };
        let hash = first.strip_prefix("sha256:").and_then(unhex);
        let hash =
            hash.ok_or("expected sha256: and 64 hexadecimal digits, as `tidings token new` writes them")?;
        let not_after = match words.next() {
            None => None,
            Some(word) => {
                let time = word.strip_prefix("not-after=").and_then(timestamp::parse);
                Some(
                    time.ok_or("expected not-after= and a time such as 2027-01-31T00:00:00Z after the hash")?,
                )
            }
        };
        match words.next() {
            None => Ok(Some(TokenLine { hash, not_after })),
            // Words that are ignored could hide a mistyped end of validity, and the token would never end.
            Some(_) => Err("expected the end of the line after not-after"),
        }
    }
}

impl fmt::Display for TokenLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex(&self.hash))?;
        match self.not_after {
            Some(at) => write!(f, " not-after={}", timestamp::utc(at)),
            None => Ok(()),
        }
    }
}

/// Returns bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<TokenHash> {
    let mut hash = [0; 32];
    if text.len() != 2 * hash.len() {
        return None;
    }
    for (byte, pair) in std::iter::zip(&mut hash, text.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn token_is_known_by_its_line() {
        let made = NewToken::make("ci", None).unwrap();
        assert_eq!(made.token.len(), PREFIX.len() + 43);
        assert!(made.token.starts_with(PREFIX));
        let line = TokenLine::read(&made.line).unwrap().unwrap();
        assert_eq!((line.hash, line.not_after), (hash_of(&made.token), None));
        assert!(!format!("{made:?}").contains(&made.token));
        assert_ne!(NewToken::make("ci", None).unwrap().token, made.token);
    }

    #[test]
    fn lines_without_token_are_passed_over() {
        for line in ["", "  \t", "# sha256:", "  # old"] {
            assert_eq!(TokenLine::read(line), Ok(None), "{line}");
        }
    }

    #[test]
    fn malformed_line_is_refused() {
        let digits = "ab".repeat(32);
        for line in [
            "tdg_x".to_owned(),
            digits.clone(),
            "sha256:".to_owned(),
            format!("sha256:{}", &digits[1..]),
            format!("sha256:{digits}0"),
            format!("sha256:{}g", &digits[1..]),
            format!("sha256:{}é", &digits[2..]),
            format!("sha512:{digits}"),
            format!("sha256:{digits} until=2027-01-31T00:00:00Z"),
            format!("sha256:{digits} not-after=tomorrow"),
            format!("sha256:{digits} not-after=2027-01-31T00:00:00Z x"),
        ] {
            assert!(TokenLine::read(&line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn line_reads_back_as_written(hash: [u8; 32], seconds in proptest::option::of(0_u64..4_000_000_000)) {
            let not_after = seconds.map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
            let line = TokenLine { hash, not_after };
            prop_assert_eq!(TokenLine::read(&line.to_string()), Ok(Some(line)));
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            if let Ok(Some(line)) = TokenLine::read(&text) {
                prop_assert_eq!(TokenLine::read(&line.to_string()).unwrap().unwrap().hash, line.hash);
            }
        }
    }
}
