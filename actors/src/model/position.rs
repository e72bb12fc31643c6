//! The place of a notice in the order of all notices of a bus. The Etag actor assigns the offsets.

use std::fmt;
use std::str::FromStr;

/// A place in the order of all notices of a bus.
///
/// Offsets of one epoch grow by one per notice. Offsets of different epochs cannot be compared: a subscriber
/// that holds a position of another epoch has lost its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The history to which the offset belongs; a new one begins only when the old one is lost.
    pub epoch: u64,
    /// The number of notices up to and including this one; 0 is before the first.
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.epoch, self.offset)
    }
}

/// The error of a text that is not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid position {0:?}: expected the id of an event this server sent")]
pub struct InvalidPosition(pub String);

impl FromStr for Position {
    type Err = InvalidPosition;

    fn from_str(text: &str) -> Result<Self, InvalidPosition> {
        parse(text).ok_or_else(|| InvalidPosition(text.chars().take(64).collect()))
    }
}

fn parse(text: &str) -> Option<Position> {
    let (epoch, offset) = text.split_once('-')?;
    Some(Position {
        epoch: u64::from_str_radix(epoch, 16).ok()?,
        offset: offset.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
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
