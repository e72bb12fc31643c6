//! The newest events, as frames, in the order of the bus: the pure core of `/v1/events`.
//!
//! Owns: the bounded log, where it begins and ends, and what a reader that comes with a position is told. Never: waits,
//! wakes, encodes or knows how many readers there are. Filled by the recorder, read by streams under the hub's lock.
//!
//! The hub takes everything, and offsets grow by one per notice, so a hole between two offsets is a loss.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Filter, NoticeKind, Position, ResourceUri};

/// What one event costs beside its frame.
const OVERHEAD: usize = 160;

/// One event.
#[derive(Debug)]
pub(super) struct Event {
    /// Its place in the order of the bus; for a loss, that of the last one lost.
    pub(super) offset: u64,
    pub(super) subject: Subject,
    pub(super) frame: Bytes,
}

/// What an event is about, for filters.
#[derive(Debug)]
pub(super) enum Subject {
    Resource(NoticeKind, ResourceUri),
    List(NoticeKind),
    /// Events that the hub itself was not handed; everybody is told.
    Gap,
}

impl Event {
    /// Whether a stream with this filter carries it.
    pub(super) fn wanted(&self, filter: &Filter) -> bool {
        match &self.subject {
            Subject::Resource(kind, uri) => filter.wants_kind(*kind) && filter.wants_uri(uri),
            Subject::List(kind) => filter.wants_kind(*kind),
            Subject::Gap => true,
        }
    }

    fn cost(&self) -> usize {
        let uri = match &self.subject {
            Subject::Resource(_, uri) => uri.as_str().len(),
            Subject::List(_) | Subject::Gap => 0,
        };
        self.frame.len() + uri + OVERHEAD
    }
}

/// What a stream is told first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether nothing is missing between what the client has and `from`.
    pub(super) complete: bool,
    /// The stream carries what comes after this.
    pub(super) from: Position,
    /// How many events of the bus are missing; none when that cannot be known.
    pub(super) missed: Option<u64>,
}

/// What a reader finds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The events it was after.
    Events,
    /// It has everything.
    Nothing,
    /// What it was after is forgotten: so many events, up to this offset.
    Forgotten { missed: u64, up_to: u64 },
}

/// The newest events.
#[derive(Debug)]
pub(super) struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
    epoch: u64,
    /// Everything after this offset is in `events`, as itself or as a loss. None until it is known.
    floor: Option<u64>,
    last: u64,
}

impl History {
    pub(super) fn new(events_max: usize, bytes_max: usize) -> History {
        History {
            events: VecDeque::new(),
            bytes: 0,
            events_max: events_max.max(1),
            bytes_max,
            epoch: 0,
            floor: None,
            last: 0,
        }
    }

    /// Says that it was handed everything after `start`. Without effect once it holds something.
    pub(super) fn begin(&mut self, start: Position) {
        if self.floor.is_none() {
            self.epoch = start.epoch;
            (self.floor, self.last) = (Some(start.offset), start.offset);
        }
    }

    /// The position of the newest event.
    pub(super) fn end(&self) -> Position {
        self.at(self.last)
    }

    /// The position of an offset of this history.
    pub(super) fn at(&self, offset: u64) -> Position {
        Position {
            epoch: self.epoch,
            offset,
        }
    }

    fn floor(&self) -> u64 {
        self.floor.unwrap_or(self.last)
    }

    /// Adds an event. Answers how many are missing before it that nobody has told; those must be added as a loss first,
    /// by [`lose`](Self::lose).
    pub(super) fn hole_before(&self, position: Position) -> u64 {
        match self.floor {
            Some(_) => (position.offset.saturating_sub(1)).saturating_sub(self.last),
            None => 0,
        }
    }

    /// Adds an event that comes after all others.
    pub(super) fn push(&mut self, position: Position, subject: Subject, frame: Bytes) {
        let before = position.offset.saturating_sub(1);
        self.begin(Position {
            epoch: position.epoch,
            offset: before,
        });
        self.add(Event {
            offset: position.offset,
            subject,
            frame,
        });
    }

    /// Where the bus stands after `lost` more events that are missing.
    pub(super) fn after_loss(&self, lost: u64) -> Position {
        self.at(self.last + lost)
    }

    /// Adds a loss up to `position`.
    pub(super) fn lose(&mut self, position: Position, frame: Bytes) {
        self.add(Event {
            offset: position.offset,
            subject: Subject::Gap,
            frame,
        });
    }

    fn add(&mut self, event: Event) {
        self.last = self.last.max(event.offset);
        self.bytes += event.cost();
        self.events.push_back(Arc::new(event));
        while self.events.len() > self.events_max || (self.bytes > self.bytes_max && self.events.len() > 1) {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.cost();
            self.floor = Some(oldest.offset);
        }
    }

    /// Where a stream begins whose client says it has everything up to `known`: the text of an event's id, if it has any.
    pub(super) fn resume(&self, known: Option<&str>) -> Verdict {
        let Some(known) = known else {
            return Verdict {
                complete: true,
                from: self.end(),
                missed: Some(0),
            };
        };
        let floor = self.floor();
        // A position of another history, or one that is yet to come, proves nothing.
        let known: Option<Position> = known.parse().ok();
        let known = known.filter(|known| known.epoch == self.epoch && known.offset <= self.last);
        match known {
            Some(known) if known.offset >= floor => Verdict {
                complete: true,
                from: known,
                missed: Some(0),
            },
            _ => Verdict {
                complete: false,
                from: self.at(floor),
                missed: known.map(|known| floor - known.offset),
            },
        }
    }

    /// Puts at most `max` events after `offset` into `found`.
    pub(super) fn read(&self, offset: u64, max: usize, found: &mut Vec<Arc<Event>>) -> Found {
        let floor = self.floor();
        if offset < floor {
            return Found::Forgotten {
                missed: floor - offset,
                up_to: floor,
            };
        }
        if offset >= self.last {
            return Found::Nothing;
        }
        let first = self.events.partition_point(|event| event.offset <= offset);
        found.extend(self.events.range(first..).take(max).cloned());
        Found::Events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EPOCH: u64 = 9;

    fn at(offset: u64) -> Position {
        Position { epoch: EPOCH, offset }
    }

    fn push(history: &mut History, offset: u64) {
        let hole = history.hole_before(at(offset));
        if hole > 0 {
            history.lose(history.after_loss(hole), Bytes::from_static(b"gap"));
        }
        let subject = Subject::List(NoticeKind::ALL[2]);
        history.push(at(offset), subject, Bytes::from_static(b"event"));
    }

    fn offsets(history: &History, after: u64) -> Result<Vec<u64>, (u64, u64)> {
        let mut found = Vec::new();
        match history.read(after, usize::MAX, &mut found) {
            Found::Forgotten { missed, up_to } => Err((missed, up_to)),
            Found::Events | Found::Nothing => Ok(found.iter().map(|event| event.offset).collect()),
        }
    }

    #[test]
    fn a_known_position_resumes_with_what_came_after() {
        let mut history = History::new(10, usize::MAX);
        history.begin(at(4));
        (5..=7).for_each(|offset| push(&mut history, offset));
        let verdict = history.resume(Some(&at(5).to_string()));
        assert_eq!(
            (verdict.complete, verdict.from, verdict.missed),
            (true, at(5), Some(0))
        );
        assert_eq!(offsets(&history, 5), Ok(vec![6, 7]));
        assert_eq!(history.resume(None).from, at(7));
        assert!(
            history.resume(Some(&at(4).to_string())).complete,
            "where it began"
        );
    }

    #[test]
    fn what_is_forgotten_or_foreign_is_said_to_be_missing() {
        let mut history = History::new(2, usize::MAX);
        history.begin(at(0));
        (1..=5).for_each(|offset| push(&mut history, offset));
        let short = history.resume(Some(&at(1).to_string()));
        assert_eq!(
            (short.complete, short.from, short.missed),
            (false, at(3), Some(2))
        );
        for foreign in ["8-1", "9-6", "nonsense"] {
            let verdict = history.resume(Some(foreign));
            assert_eq!(
                (verdict.complete, verdict.from, verdict.missed),
                (false, at(3), None),
                "{foreign}"
            );
        }
        assert_eq!(offsets(&history, 1), Err((2, 3)));
        assert_eq!(offsets(&history, 3), Ok(vec![4, 5]));
    }

    #[test]
    fn bytes_are_bounded_but_the_newest_stays() {
        let mut history = History::new(100, 3 * OVERHEAD);
        (1..=9).for_each(|offset| push(&mut history, offset));
        assert!(history.bytes <= 3 * OVERHEAD && history.events.len() == 2);
        let mut history = History::new(100, 0);
        (1..=9).for_each(|offset| push(&mut history, offset));
        assert_eq!(offsets(&history, 8), Ok(vec![9]));
    }

    proptest! {
        /// Whatever is pushed, lost and forgotten: a reader that goes on from where it was told accounts for every offset.
        #[test]
        fn every_offset_is_seen_or_said_to_be_missing(
            events_max in 1_usize..6,
            steps in proptest::collection::vec((1_u64..4, any::<bool>(), 1_usize..4), 1..80),
        ) {
            let mut history = History::new(events_max, usize::MAX);
            history.begin(at(0));
            let (mut cursor, mut seen, mut missing, mut pushed, mut offset) = (0, 0_u64, 0_u64, 0_u64, 0);
            for (step, read, max) in steps {
                offset += step;
                pushed += 1;
                push(&mut history, offset);
                if !read {
                    continue;
                }
                let mut found = Vec::new();
                if let Found::Forgotten { missed, up_to } = history.read(cursor, max, &mut found) {
                    missing += missed;
                    prop_assert_eq!(up_to, cursor + missed);
                    cursor = up_to;
                }
                for event in found {
                    prop_assert!(event.offset > cursor);
                    match event.subject {
                        Subject::Gap => missing += event.offset - cursor,
                        _ => {
                            prop_assert_eq!(event.offset, cursor + 1, "a hole that nobody told");
                            seen += 1;
                        }
                    }
                    cursor = event.offset;
                }
                prop_assert_eq!(seen + missing, cursor);
            }
            prop_assert!(seen <= pushed && history.events.len() <= events_max);
        }
    }
}
