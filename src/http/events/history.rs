//! The bounded log of the newest events, as frames, in the order of the bus.
//!
//! The hub is offered every notice, and told of those that found no room, so a hole between two offsets is no
//! loss: in the log of a cluster a newer record of a resource replaces those before, and its event counts
//! them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::{Etag, Filter, Lineage, NoticeKind, Position, ResourceUri};

/// The bytes that one event takes beside its frame and its URI.
const OVERHEAD: usize = 192;

/// One event.
#[derive(Debug)]
pub(super) struct Event {
    /// Its offset in the order of the bus; for a loss, that of the last event lost.
    pub(super) offset: u64,
    pub(super) subject: Subject,
    pub(super) frame: Bytes,
}

/// The subject of an event, by which filters decide.
#[derive(Debug)]
pub(super) enum Subject {
    Resource(NoticeKind, ResourceUri, Etag),
    List(NoticeKind),
    /// Events that the hub itself did not receive, and the reason. Every stream carries it.
    Gap(Incomplete),
}

impl Event {
    /// Returns true if a stream with this filter carries the event.
    pub(super) fn passes(&self, filter: &Filter) -> bool {
        match &self.subject {
            Subject::Resource(kind, uri, _) => filter.wants_kind(*kind) && filter.wants_uri(uri),
            Subject::List(kind) => filter.wants_kind(*kind),
            Subject::Gap(_) => true,
        }
    }

    fn cost(&self) -> usize {
        let uri = match &self.subject {
            Subject::Resource(_, uri, _) => uri.as_str().len(),
            Subject::List(_) | Subject::Gap(_) => 0,
        };
        self.frame.len() + uri + OVERHEAD
    }
}

/// The place at which a client wants its stream to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContinueAt {
    /// After this position.
    At(Position),
    /// After this position, which other nodes of the cluster have reached and this one will.
    Ahead(Position),
    /// Nowhere: its last event is none that this history has given.
    OtherHistory,
}

/// The point from which a stream continues, as its first event tells the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resumption {
    /// True if no event is missing between the client's last one and `from`.
    pub(super) complete: bool,
    /// The position before the first event of the stream.
    pub(super) from: Position,
    /// The number of missing events of the bus; none when it cannot be known.
    pub(super) missed: Option<u64>,
    /// The reason for which events are missing.
    pub(super) reason: Option<Incomplete>,
}

impl Resumption {
    fn complete(from: Position) -> Resumption {
        Resumption {
            complete: true,
            from,
            missed: Some(0),
            reason: None,
        }
    }
}

/// The records by which the offsets of two histories of one cluster differ at least, unless one of them began
/// in the same second as the other.
const HISTORY_JUMP: u64 = 1 << 16;

/// The reason for which a stream does not continue with the event after the client's last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Incomplete {
    /// The id is none that this history has given.
    AnotherHistory,
    /// The history does not reach back that far.
    Forgotten,
    /// Only the newest event of each resource and list is there, and follows.
    Overwritten,
}

impl Incomplete {
    /// The reason as a stream's first event names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Incomplete::AnotherHistory => "another history",
            Incomplete::Forgotten => "forgotten",
            Incomplete::Overwritten => "overwritten",
        }
    }
}

/// The result of reading from the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FoundEvents {
    /// Some events.
    Events,
    /// No event: the reader is at the end.
    Nothing,
    /// The next events are no longer there: so many, up to this offset.
    Forgotten { missed: u64, up_to: u64 },
}

/// The newest events.
#[derive(Debug)]
pub(super) struct History {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    events_max: usize,
    bytes_max: usize,
    lineage: Lineage,
    /// The offset after which every event is in `events`, as itself or within a loss. None until it is known.
    floor: Option<u64>,
    /// The offset up to which the log has only the newest event of each resource and list.
    compacted: u64,
    last: u64,
}

impl History {
    pub(super) fn new(events_max: usize, bytes_max: usize, lineage: Lineage) -> History {
        History {
            events: VecDeque::new(),
            bytes: 0,
            events_max: events_max.max(1),
            bytes_max,
            lineage,
            floor: None,
            compacted: 0,
            last: 0,
        }
    }

    /// Sets the position after which the log is complete. Has no effect once there is one.
    pub(super) fn begin(&mut self, start: Position) {
        if self.floor.is_none() {
            self.floor = Some(start.offset);
            self.last = start.offset;
        }
    }

    /// Puts the events from before the begin in front: after the offset `floor` the newest of each resource
    /// and list, and after `compacted` every one.
    pub(super) fn seed(&mut self, events: Vec<(u64, Subject, Bytes)>, floor: u64, compacted: u64) {
        let begun = std::mem::take(&mut self.events);
        self.bytes = 0;
        self.floor = Some(floor);
        self.compacted = compacted;
        for (offset, subject, frame) in events {
            self.add(Event {
                offset,
                subject,
                frame,
            });
        }
        for event in begun {
            // Not through `add`, which would share each of them anew.
            self.bytes += event.cost();
            self.events.push_back(event);
        }
        self.drop_oldest();
    }

    /// Returns the position of the newest event.
    pub(super) fn end(&self) -> Position {
        self.at(self.last)
    }

    /// Returns the position of an offset of this log.
    pub(super) fn at(&self, offset: u64) -> Position {
        Position {
            epoch: self.lineage.epoch,
            offset,
        }
    }

    fn floor(&self) -> u64 {
        self.floor.unwrap_or(self.last)
    }

    /// True if the log of the cluster has another history at `position` than at the newest event. The loss of
    /// the events in between must be added first ([`push_loss`](Self::push_loss)).
    pub(super) fn begins_another(&self, position: Position) -> bool {
        let changes = self.lineage.changes_between(self.last, position.offset);
        self.floor.is_some() && self.countable(changes).is_none()
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

    /// Adds a loss of the events up to `position`.
    pub(super) fn push_loss(&mut self, position: Position, reason: Incomplete, frame: Bytes) {
        self.add(Event {
            offset: position.offset,
            subject: Subject::Gap(reason),
            frame,
        });
    }

    fn add(&mut self, event: Event) {
        self.last = self.last.max(event.offset);
        self.bytes += event.cost();
        self.events.push_back(Arc::new(event));
        self.drop_oldest();
    }

    fn drop_oldest(&mut self) {
        // The newest event stays even if it is larger than the bound, or no client could be sent it.
        while self.events.len() > self.events_max || (self.bytes > self.bytes_max && self.events.len() > 1) {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.cost();
            self.floor = Some(oldest.offset);
        }
    }

    /// Returns the point from which a stream continues, of a client that has had no event without `resume`.
    pub(super) fn resume(&self, resume: Option<ContinueAt>) -> Resumption {
        let floor = self.floor();
        let known = match resume {
            None => return Resumption::complete(self.end()),
            Some(ContinueAt::Ahead(known)) if self.is_behind(known) => return Resumption::complete(known),
            Some(ContinueAt::At(known) | ContinueAt::Ahead(known)) => {
                self.lineage.offset_of(known, self.last)
            }
            Some(ContinueAt::OtherHistory) => None,
        };
        let Some(known) = known else {
            // A position of another history, or one that is yet to come, proves nothing.
            return Resumption {
                complete: false,
                from: self.at(floor),
                missed: None,
                reason: Some(Incomplete::AnotherHistory),
            };
        };
        let from = known.max(floor);
        let missed = self.lineage.changes_between(known, from) + self.overwritten_after(from);
        let reason = match missed {
            0 => None,
            _ if known < floor => Some(Incomplete::Forgotten),
            _ => Some(Incomplete::Overwritten),
        };
        Resumption {
            complete: missed == 0,
            from: self.at(from),
            missed: self.countable(missed),
            reason,
        }
    }

    /// True if a position is one that other nodes of the cluster have reached, and this one has not yet.
    pub(super) fn is_behind(&self, position: Position) -> bool {
        self.lineage.offsets_per_change > 1
            && position.epoch == self.lineage.epoch
            && self.lineage.offset_of(position, self.last).is_none()
    }

    /// Returns a number of missing events; none if it cannot be known, because the log of a cluster has
    /// another history in between. The offsets of two histories are far from each other.
    pub(super) fn countable(&self, missed: u64) -> Option<u64> {
        let is_jump = self.lineage.offsets_per_change > 1 && missed >= HISTORY_JUMP;
        (!is_jump).then_some(missed)
    }

    /// Returns the number of events after `offset` of which only newer ones of the same subject are there.
    fn overwritten_after(&self, offset: u64) -> u64 {
        if offset >= self.compacted {
            return 0;
        }
        let first = self.events.partition_point(|event| event.offset <= offset);
        let last = self
            .events
            .partition_point(|event| event.offset <= self.compacted);
        let all = self.lineage.changes_between(offset, self.compacted);
        all.saturating_sub((last - first) as u64)
    }

    /// Appends at most `max` events after `offset` to `found`.
    pub(super) fn read(&self, offset: u64, max: usize, found: &mut Vec<Arc<Event>>) -> FoundEvents {
        let floor = self.floor();
        if offset < floor {
            return FoundEvents::Forgotten {
                missed: self.lineage.changes_between(offset, floor),
                up_to: floor,
            };
        }
        if offset >= self.last {
            return FoundEvents::Nothing;
        }
        // Offsets are sorted, but have holes where events were lost, so the index cannot be computed.
        let first = self.events.partition_point(|event| event.offset <= offset);
        found.extend(self.events.range(first..).take(max).cloned());
        FoundEvents::Events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Life;
    use proptest::prelude::*;

    const EPOCH: u64 = 9;

    fn at(offset: u64) -> Position {
        Position { epoch: EPOCH, offset }
    }

    /// A former life that ended at 4, and the current one.
    fn lineage() -> Lineage {
        Lineage {
            offsets_per_change: 1,
            epoch: EPOCH,
            former: vec![Life { epoch: 7, end: 4 }],
        }
    }

    /// An event of a former life.
    fn kept(offset: u64) -> (u64, Subject, Bytes) {
        let subject = Subject::List(NoticeKind::ALL[2]);
        (offset, subject, Bytes::from_static(b"kept"))
    }

    /// Adds an event, and before it the loss of those between it and the newest.
    fn push(history: &mut History, offset: u64) {
        if history.floor.is_some() && history.lineage.changes_between(history.last, offset) > 1 {
            let gap = Bytes::from_static(b"gap");
            history.push_loss(at(offset - 1), Incomplete::Forgotten, gap);
        }
        let subject = Subject::List(NoticeKind::ALL[2]);
        history.push(at(offset), subject, Bytes::from_static(b"event"));
    }

    fn resume_after(history: &History, id: &str) -> Resumption {
        let resume = match id.parse() {
            Ok(position) => ContinueAt::At(position),
            Err(_) => ContinueAt::OtherHistory,
        };
        history.resume(Some(resume))
    }

    fn offsets(history: &History, after: u64) -> Result<Vec<u64>, (u64, u64)> {
        let mut found = Vec::new();
        match history.read(after, usize::MAX, &mut found) {
            FoundEvents::Forgotten { missed, up_to } => Err((missed, up_to)),
            FoundEvents::Events | FoundEvents::Nothing => {
                Ok(found.iter().map(|event| event.offset).collect())
            }
        }
    }

    #[test]
    fn known_position_resumes_after_it() {
        let mut history = History::new(10, usize::MAX, lineage());
        history.begin(at(4));
        (5..=7).for_each(|offset| push(&mut history, offset));
        let resumed = history.resume(Some(ContinueAt::At(at(5))));
        assert_eq!(
            (resumed.complete, resumed.from, resumed.missed),
            (true, at(5), Some(0))
        );
        assert_eq!(offsets(&history, 5), Ok(vec![6, 7]));
        assert_eq!(history.resume(None).from, at(7));
        assert!(
            history.resume(Some(ContinueAt::At(at(4)))).complete,
            "the begin of the log"
        );
    }

    #[test]
    fn forgotten_or_foreign_position_is_incomplete() {
        let mut history = History::new(2, usize::MAX, lineage());
        history.begin(at(0));
        (1..=5).for_each(|offset| push(&mut history, offset));
        let short = history.resume(Some(ContinueAt::At(at(1))));
        assert_eq!(
            (short.complete, short.from, short.missed),
            (false, at(3), Some(2))
        );
        for foreign in ["8-1", "9-6", "nonsense"] {
            let resumed = resume_after(&history, foreign);
            assert_eq!(
                (resumed.complete, resumed.from, resumed.missed),
                (false, at(3), None),
                "{foreign}"
            );
        }
        assert_eq!(offsets(&history, 1), Err((2, 3)));
        assert_eq!(offsets(&history, 3), Ok(vec![4, 5]));
    }

    #[test]
    fn position_of_a_former_life_resumes() {
        let mut history = History::new(10, usize::MAX, lineage());
        // Recorded before the older events are known.
        push(&mut history, 5);
        history.seed(vec![kept(2), kept(4)], 0, 4);
        push(&mut history, 6);
        for (known, missed, after) in [
            ("7-0", 2, vec![2, 4, 5, 6]),
            ("7-1", 1, vec![2, 4, 5, 6]),
            ("7-2", 1, vec![4, 5, 6]),
            ("7-3", 0, vec![4, 5, 6]),
            ("7-4", 0, vec![5, 6]),
            ("9-3", 0, vec![4, 5, 6]),
        ] {
            let resumed = resume_after(&history, known);
            let reason = (missed > 0).then_some(Incomplete::Overwritten);
            assert_eq!(
                (resumed.complete, resumed.missed, resumed.reason),
                (missed == 0, Some(missed), reason),
                "{known}"
            );
            assert_eq!(offsets(&history, resumed.from.offset), Ok(after), "{known}");
        }
        // Beyond the end of its life: a rolled-back store.
        let foreign = resume_after(&history, "7-5");
        assert_eq!(foreign.reason, Some(Incomplete::AnotherHistory));
        assert_eq!((foreign.from, foreign.missed), (at(0), None));
    }

    #[test]
    fn position_that_another_node_has_reached_is_awaited() {
        let cluster = Lineage {
            offsets_per_change: 64,
            ..lineage()
        };
        let mut history = History::new(10, usize::MAX, cluster);
        history.begin(at(64));
        push(&mut history, 128);
        for (offset, behind) in [(64, false), (128, false), (130, false), (192, true)] {
            assert_eq!(history.is_behind(at(offset)), behind, "{offset}");
        }
        let foreign = Position {
            epoch: 8,
            offset: 192,
        };
        assert!(!history.is_behind(foreign));
        // A list of its own code at another node, behind the same record, is no other history.
        let resumed = history.resume(Some(ContinueAt::At(at(130))));
        assert_eq!((resumed.complete, resumed.from), (true, at(130)));
        assert_eq!(history.resume(Some(ContinueAt::At(at(192)))).missed, None);
        assert!(!history.resume(Some(ContinueAt::Ahead(foreign))).complete);
        // Of what the other node has told, nothing is told again.
        let ahead = history.resume(Some(ContinueAt::Ahead(at(192))));
        assert_eq!((ahead.complete, ahead.from), (true, at(192)));
        push(&mut history, 192);
        assert_eq!(offsets(&history, 192), Ok(vec![]));
        push(&mut history, 256);
        assert_eq!(offsets(&history, 192), Ok(vec![256]));
        assert_eq!(History::new(1, 1, lineage()).countable(1 << 40), Some(1 << 40));
    }

    #[test]
    fn events_between_two_histories_are_not_counted() {
        let cluster = Lineage {
            offsets_per_change: 64,
            ..lineage()
        };
        let mut history = History::new(10, usize::MAX, cluster);
        assert!(!history.begins_another(at(1 << 40)), "the first one");
        history.begin(at(1));
        assert!(history.begins_another(at((1 << 40) + 64)));
        // The records in between were replaced by newer ones.
        assert!(!history.begins_another(at(64 * 100)));
        let mut alone = History::new(10, usize::MAX, lineage());
        alone.begin(at(1));
        assert!(!alone.begins_another(at(1 << 40)));
    }

    #[test]
    fn seed_is_bounded_like_other_events() {
        let mut history = History::new(2, usize::MAX, lineage());
        history.begin(at(4));
        history.seed(vec![kept(1), kept(2), kept(4)], 0, 4);
        let resumed = resume_after(&history, "7-0");
        assert_eq!(resumed.reason, Some(Incomplete::Forgotten));
        assert_eq!((resumed.from, resumed.missed), (at(1), Some(2)));
        assert_eq!(offsets(&history, 1), Ok(vec![2, 4]));
    }

    #[test]
    fn bytes_are_bounded_but_newest_event_stays() {
        let mut history = History::new(100, 3 * OVERHEAD, lineage());
        (1..=9).for_each(|offset| push(&mut history, offset));
        assert!(history.bytes <= 3 * OVERHEAD && history.events.len() == 2);
        let mut history = History::new(100, 0, lineage());
        (1..=9).for_each(|offset| push(&mut history, offset));
        assert_eq!(offsets(&history, 8), Ok(vec![9]));
    }

    proptest! {
        /// A reader that continues from each reported position accounts for every offset, as seen or as
        /// missing.
        #[test]
        fn every_offset_is_seen_or_reported_missing(
            events_max in 1_usize..6,
            steps in proptest::collection::vec((1_u64..4, any::<bool>(), 1_usize..4), 1..80),
        ) {
            let mut history = History::new(events_max, usize::MAX, lineage());
            history.begin(at(0));
            let mut cursor = 0;
            let mut seen = 0_u64;
            let mut missing = 0_u64;
            let mut pushed = 0_u64;
            let mut offset = 0;
            for (step, read, max) in steps {
                offset += step;
                pushed += 1;
                push(&mut history, offset);
                if !read {
                    continue;
                }
                let mut found = Vec::new();
                if let FoundEvents::Forgotten { missed, up_to } = history.read(cursor, max, &mut found) {
                    missing += missed;
                    prop_assert_eq!(up_to, cursor + missed);
                    cursor = up_to;
                }
                for event in found {
                    prop_assert!(event.offset > cursor);
                    match event.subject {
                        Subject::Gap(_) => missing += event.offset - cursor,
                        _ => {
                            prop_assert_eq!(event.offset, cursor + 1, "an unreported hole");
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
