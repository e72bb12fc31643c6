//! The place of a notice in the order of all notices of a bus. The Etag actor assigns the offsets.

use std::fmt;
use std::str::FromStr;

/// A place in the order of all notices of a bus.
///
/// Offsets of one epoch grow by one per notice. Each start of a bus begins a new epoch; with a store, offsets
/// go on from the life before, and a [`Lineage`] tells whether a position of a former life belongs to this
/// history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Position {
    /// The life of the bus in which the position was given.
    pub epoch: u64,
    /// The number of notices up to and including this one; 0 is before the first.
    pub offset: u64,
}

/// One life of a bus that ended before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// The epoch of its positions.
    pub epoch: u64,
    /// The last offset that it kept.
    pub end: u64,
}

/// The lives of a history, by which a position of a former life is judged. A copy of a store that was put
/// back has no part in what the lost future told its clients, and the lineage shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The epoch of the current life.
    pub epoch: u64,
    /// The former lives, the oldest first.
    pub former: Vec<Life>,
    /// The offsets that one change takes: 1, or with a shared log as many as a record of it has. 0 counts as
    /// 1.
    pub offsets_per_change: u64,
}

impl Lineage {
    /// The most former lives that are remembered; positions of older ones belong to no known history.
    pub const FORMER_MAX: usize = 64;

    /// Returns the offset of a position of this history; none if it belongs to another one. `head` is the
    /// last offset of the current life. With a shared log all places behind its record count as reached:
    /// other nodes have lists of their own there.
    pub fn offset_of(&self, position: Position, head: u64) -> Option<u64> {
        // A position is judged by its record, since the places behind it belong to each node alone.
        let step = self.offsets_per_change.max(1);
        let end = match position.epoch == self.epoch {
            true => (head - head % step).saturating_add(step - 1),
            false => self.former.iter().find(|life| life.epoch == position.epoch)?.end,
        };
        (position.offset <= end).then_some(position.offset)
    }

    /// Returns the number of changes after the offset `after`, up to `upto`. With a shared log these are its
    /// records; one that changed a list besides is one change.
    pub fn changes_between(&self, after: u64, upto: u64) -> u64 {
        let step = self.offsets_per_change.max(1);
        (upto / step).saturating_sub(after / step)
    }

    /// Returns the position of an offset of this history, as it was first given. Of a life that is no longer
    /// remembered, the epoch is that of the oldest one that is.
    pub fn position_of(&self, offset: u64) -> Position {
        let mut epoch = self.epoch;
        // The newest life first: most offsets that are looked up are young.
        for life in self.former.iter().rev() {
            if life.end < offset {
                break;
            }
            epoch = life.epoch;
        }
        Position { epoch, offset }
    }
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
    fn position_of_a_lost_future_is_foreign() {
        let lineage = Lineage {
            epoch: 30,
            former: vec![Life { epoch: 10, end: 5 }, Life { epoch: 20, end: 9 }],
            offsets_per_change: 1,
        };
        for (epoch, offset, known) in [
            (30, 12, true),
            (30, 13, false),
            (20, 9, true),
            (20, 10, false),
            (10, 0, true),
            (10, 6, false),
            (25, 1, false),
        ] {
            let found = lineage.offset_of(Position { epoch, offset }, 12);
            assert_eq!(found, known.then_some(offset), "{epoch}-{offset}");
        }
    }

    #[test]
    fn places_behind_a_shared_record_are_reached_with_it() {
        let lineage = Lineage {
            epoch: 1,
            offsets_per_change: 64,
            ..Lineage::default()
        };
        for (offset, known) in [(128, true), (129, true), (191, true), (192, false)] {
            let found = lineage.offset_of(Position { epoch: 1, offset }, 128);
            assert_eq!(found, known.then_some(offset), "{offset}");
        }
    }

    #[test]
    fn offset_has_the_epoch_of_its_life() {
        let lives = [(10, 5), (20, 5), (30, 9)];
        let lineage = Lineage {
            epoch: 40,
            former: lives.map(|(epoch, end)| Life { epoch, end }).to_vec(),
            offsets_per_change: 1,
        };
        for (offset, epoch) in [(1, 10), (5, 10), (6, 30), (9, 30), (10, 40)] {
            assert_eq!(lineage.position_of(offset), Position { epoch, offset });
        }
    }

    #[test]
    fn changes_are_counted_by_their_offsets() {
        let mut lineage = Lineage::default();
        assert_eq!(lineage.changes_between(3, 10), 7);
        lineage.offsets_per_change = 64;
        // A list that the record changes besides is no change of its own.
        for (after, upto, changes) in [(64, 65, 0), (64, 128, 1), (65, 193, 2), (193, 64, 0)] {
            assert_eq!(lineage.changes_between(after, upto), changes, "{after} {upto}");
        }
    }

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
