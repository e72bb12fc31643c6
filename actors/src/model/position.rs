//! Where a notice stands in the one order of the whole bus.
//!
//! Owns: the pair `(epoch, offset)` and its text. Never: hands out offsets (the Etag actor does).

use std::fmt;
use std::str::FromStr;

/// A place in the order of all notices of a bus.
///
/// Offsets of one epoch grow by one per notice; offsets of different epochs cannot be compared, which is how a
/// subscriber learns that history was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// Which history the offset belongs to; a new one begins only when the old one is lost.
    pub epoch: u64,
    /// How many notices came before and including this one; 0 is before the first.
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.epoch, self.offset)
    }
}

/// Text that is no position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid position {0:?}: expected the id of an event this server sent")]
pub struct InvalidPosition(pub String);

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        let parse = || {
            let (epoch, offset) = text.split_once('-')?;
            Some(Position {
                epoch: u64::from_str_radix(epoch, 16).ok()?,
                offset: offset.parse().ok()?,
            })
        };
        parse().ok_or_else(|| InvalidPosition(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_value_are_one() {
        let position = Position {
            epoch: 0x19a3,
            offset: 42,
        };
        assert_eq!(position.to_string(), "19a3-42");
        assert_eq!("19a3-42".parse(), Ok(position));
        for text in ["", "-", "42", "x-1", "1-", "1-x"] {
            assert!(text.parse::<Position>().is_err(), "{text}");
        }
    }
}
