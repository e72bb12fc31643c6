//! The change log: the changes that resuming subscribers may not have yet, and the cursors of these
//! subscribers.
//!
//! A change is logged only while there is a cursor, and dropped when every cursor has passed it. The store
//! has a copy of the log, so that it outlives the process. Where it does not reach back far enough, the lines
//! of the ledger have the newest change of each URI, and missing offsets show where others were.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::ledger::Ledger;
use super::store::{ChangeKind, Checkpoint, LoggedChange};
use crate::model::{Cause, LineState, Lineage, ListKind, Notice};
use crate::sink::{Cursor, Delivery};

/// A cursor, with the offset that the store has of it.
#[derive(Debug)]
struct KeptCursor {
    cursor: Arc<Cursor>,
    kept: u64,
}

impl KeptCursor {
    /// Returns the offset at which the cursor is now.
    fn offset(&self) -> u64 {
        self.cursor.offset()
    }

    /// Returns true if no subscriber holds the cursor.
    fn is_detached(&self) -> bool {
        Arc::strong_count(&self.cursor) == 1
    }
}

/// The changes of a part of the order of the bus.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    /// The changes that are known, the oldest first. An offset that is missing is that of a change that a
    /// newer one of the same resource or list has replaced.
    pub(crate) changes: Vec<LoggedChange>,
    /// The offset after which no change is missing in `changes`.
    pub(crate) exact_after: u64,
}

/// The change log with its cursors.
#[derive(Debug, Default)]
pub(crate) struct ChangeLog {
    changes: VecDeque<LoggedChange>,
    /// The offset after which every change is in `changes`, as long as there is a cursor.
    start: u64,
    max: usize,
    /// The offsets of the newest change of each list, in the order of [`ListKind::ALL`]; 0 for none.
    lists: [u64; 3],
    cursors: BTreeMap<Arc<str>, KeptCursor>,
    cursors_max: usize,
    lineage: Lineage,
}

impl ChangeLog {
    /// Creates a log that continues from `checkpoint` and has at most `max` changes. It keeps about
    /// `cursors_max` cursors without a subscriber.
    pub(crate) fn new(
        checkpoint: &Checkpoint,
        lineage: Lineage,
        max: usize,
        cursors_max: usize,
    ) -> ChangeLog {
        let head = checkpoint.offset;
        let mut log = ChangeLog {
            changes: VecDeque::new(),
            start: head,
            max: max.max(1),
            lists: [0; 3],
            cursors: BTreeMap::new(),
            cursors_max,
            lineage,
        };
        for (at, list) in log.lists.iter_mut().zip(&checkpoint.lists) {
            if let Some((_, offset)) = list {
                *at = *offset;
            }
        }
        for (name, offset) in &checkpoint.cursors {
            let kept = (*offset).min(head);
            let cursor = Arc::new(Cursor::new(kept));
            log.cursors.insert(name.clone(), KeptCursor { cursor, kept });
        }
        if log.is_on() {
            log.restore(&checkpoint.changes);
        }
        log
    }

    /// Takes the changes over that end at the head without a hole.
    fn restore(&mut self, changes: &[LoggedChange]) {
        for change in changes.iter().rev() {
            // A hole would make a newer change look like the one after the cursor.
            if change.offset == self.start && self.changes.len() < self.max {
                self.changes.push_front(change.clone());
                self.start -= 1;
            }
        }
        self.trim(KeptCursor::offset);
    }

    /// Returns true while changes are logged.
    pub(crate) fn is_on(&self) -> bool {
        !self.cursors.is_empty()
    }

    /// The offset up to which a store may drop its changes; `head` is the offset of the last change.
    pub(crate) fn start(&self, head: u64) -> u64 {
        match self.is_on() {
            true => self.start,
            false => head,
        }
    }

    /// Logs the newest change, while the log is on. Returns true if a full log dropped a change that a
    /// subscriber may not have yet.
    pub(crate) fn push(&mut self, change: LoggedChange) -> bool {
        if self.changes.len() >= self.max {
            // The cursors may have moved since they were looked at last, up to a second ago. The batch of
            // this change will have where they are.
            self.trim(KeptCursor::offset);
        }
        let mut dropped = false;
        if self.changes.len() >= self.max
            && let Some(oldest) = self.changes.pop_front()
        {
            self.start = oldest.offset;
            dropped = true;
        }
        self.changes.push_back(change);
        dropped
    }

    /// Notes the newest change of a list.
    pub(crate) fn list_changed(&mut self, kind: ListKind, offset: u64) {
        self.lists[kind.index()] = offset;
    }

    /// Drops the changes after `offset`, which were taken back; `lists` are the offsets of the lists before.
    pub(super) fn go_back(&mut self, offset: u64, lists: [u64; 3]) {
        while let Some(newest) = self.changes.back()
            && newest.offset > offset
        {
            self.changes.pop_back();
        }
        self.start = self.start.min(offset);
        self.lists = lists;
    }

    /// Drops the changes that every cursor has passed, by the offset that `offset_of` returns.
    fn trim(&mut self, offset_of: impl Fn(&KeptCursor) -> u64) {
        let Some(slowest) = self.cursors.values().map(offset_of).min() else {
            return self.changes.clear();
        };
        while let Some(oldest) = self.changes.front()
            && oldest.offset <= slowest
        {
            self.start = oldest.offset;
            self.changes.pop_front();
        }
    }

    /// Hands the cursor of `name` over to a subscriber. One with a new name starts at `head`; then this
    /// returns true.
    pub(crate) fn attach(&mut self, name: &Arc<str>, cursor: &Arc<Cursor>, head: u64) -> bool {
        if !self.is_on() {
            // Nothing was logged without a cursor, so the log begins here.
            self.start = head;
            self.changes.clear();
        }
        if let Some(kept) = self.cursors.get_mut(name) {
            // The subscriber before may still be in a call, but what it moves from here on is its own copy:
            // at worst the delivery that it has now is repeated.
            cursor.advance(kept.cursor.offset());
            kept.cursor = cursor.clone();
            return false;
        }
        cursor.advance(head);
        let cursor = cursor.clone();
        self.cursors
            .insert(name.clone(), KeptCursor { cursor, kept: head });
        true
    }

    /// Returns a cursor without a subscriber while there are too many of them: that furthest behind.
    pub(crate) fn surplus(&self) -> Option<Arc<str>> {
        let detached = || self.cursors.iter().filter(|(_, kept)| kept.is_detached());
        if detached().count() <= self.cursors_max {
            return None;
        }
        let (name, _) = detached().min_by_key(|(_, kept)| kept.cursor.offset())?;
        Some(name.clone())
    }

    /// The cursors that no subscriber holds.
    pub(crate) fn detached(&self) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for (name, kept) in &self.cursors {
            if kept.is_detached() {
                names.push(name.clone());
            }
        }
        names
    }

    /// Forgets a cursor, and the changes that it alone needed. Returns false if there is none.
    pub(crate) fn forget(&mut self, name: &str) -> bool {
        let known = self.cursors.remove(name).is_some();
        self.trim(KeptCursor::offset);
        known
    }

    /// Returns the cursors that have moved since the last call, and drops the changes that they passed.
    pub(crate) fn moved(&mut self) -> Vec<(Arc<str>, u64)> {
        let mut moved = Vec::new();
        for (name, kept) in &mut self.cursors {
            let offset = kept.cursor.offset();
            if offset > kept.kept {
                kept.kept = offset;
                moved.push((name.clone(), offset));
            }
        }
        if !moved.is_empty() {
            // By what the store will have: a cursor that moves on meanwhile is written with a later batch,
            // and a process killed before that one must find the changes after it.
            self.trim(|kept| kept.kept);
        }
        moved
    }

    /// Returns the changes after the offset `after`, up to `upto`.
    pub(crate) fn changes_after(&self, after: u64, upto: u64, ledger: &Ledger) -> Missed {
        let exact_after = self.start(upto).clamp(after.min(upto), upto);
        let mut changes = Vec::new();
        if after < exact_after {
            changes = self.newest_changes(after, exact_after, ledger);
        }
        let first = self
            .changes
            .partition_point(|change| change.offset <= exact_after);
        let last = self.changes.partition_point(|change| change.offset <= upto);
        if first < last {
            changes.extend(self.changes.range(first..last).cloned());
        }
        Missed { changes, exact_after }
    }

    /// The newest change of each resource and list, as far as it lies in this range of offsets.
    fn newest_changes(&self, after: u64, upto: u64, ledger: &Ledger) -> Vec<LoggedChange> {
        let mut changes = Vec::new();
        for (uri, line) in ledger.lines() {
            if line.offset > after && line.offset <= upto {
                let cause = match line.state {
                    LineState::Removed => Cause::Removed,
                    LineState::Live | LineState::Touched => Cause::Updated,
                };
                changes.push(LoggedChange {
                    offset: line.offset,
                    change: ChangeKind::Resource(uri.clone(), line.etag, cause),
                });
            }
        }
        for (kind, offset) in ListKind::ALL.into_iter().zip(self.lists) {
            if offset > after && offset <= upto {
                let change = ChangeKind::List(kind);
                changes.push(LoggedChange { offset, change });
            }
        }
        changes.sort_unstable_by_key(|change| change.offset);
        changes
    }

    /// The lives of the history whose changes it has.
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    /// Makes a delivery of a change, with the position that it had when it was new.
    pub(crate) fn delivery(&self, change: LoggedChange) -> Delivery {
        let position = self.lineage.position_of(change.offset);
        match change.change {
            ChangeKind::Resource(uri, etag, cause) => {
                let at = instant_of(etag.updated_at);
                Delivery::Notice(Arc::new(Notice::new(uri, etag, cause, position, at)))
            }
            ChangeKind::List(kind) => Delivery::List(kind, position),
        }
    }
}

/// Returns the moment of a calendar time in seconds since 1970, as far as this process can name it.
fn instant_of(seconds: u64) -> Instant {
    let now = Instant::now();
    let Some(then) = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)) else {
        return now;
    };
    match SystemTime::now().duration_since(then) {
        Ok(age) => now.checked_sub(age).unwrap_or(now),
        // The clock was set back since.
        Err(_future) => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Digest, Owner, Position, ResourceUri};
    use crate::versions::KeptLine;
    use crate::versions::ledger::{Registration, TimeStamp};
    use proptest::prelude::*;

    /// A change log beside everything that happened.
    struct Model {
        ledger: Ledger,
        log: ChangeLog,
        cursors: Vec<(Arc<str>, Arc<Cursor>)>,
        /// Every change, from offset 1 on.
        history: Vec<ChangeKind>,
        max: usize,
        contents: u128,
    }

    fn uri(name: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    impl Model {
        fn new(max: usize) -> Model {
            let checkpoint = Checkpoint::default();
            Model {
                log: ChangeLog::new(&checkpoint, Lineage::default(), max, 2),
                ledger: Ledger::new(checkpoint, 1, TimeStamp::default(), 100),
                cursors: Vec::new(),
                history: Vec::new(),
                max,
                contents: 0,
            }
        }

        fn head(&self) -> u64 {
            self.history.len() as u64
        }

        fn place(&mut self, change: ChangeKind) {
            let Position { offset, .. } = self.ledger.advance();
            if let ChangeKind::List(kind) = change {
                self.log.list_changed(kind, offset);
            }
            self.history.push(change.clone());
            if self.log.is_on() {
                self.log.push(LoggedChange { offset, change });
            }
            assert!(self.log.changes.len() <= self.max);
        }

        fn change(&mut self, name: u8) {
            self.contents += 1;
            let content = Registration {
                digest: Some(Digest(self.contents)),
                owner: &Owner::Embedder,
                now: 7,
            };
            let etag = self.ledger.stamp(&uri(name), content).etag;
            self.place(ChangeKind::Resource(uri(name), etag, Cause::Updated));
        }

        fn remove(&mut self, name: u8) {
            if let Some(line) = self.ledger.line(&uri(name))
                && line.is_live()
            {
                let etag = self.ledger.remove(&uri(name), 7);
                self.place(ChangeKind::Resource(uri(name), etag, Cause::Removed));
            }
        }

        fn attach(&mut self, name: u8) {
            let name: Arc<str> = format!("sink/{name}").into();
            let cursor = Arc::new(Cursor::default());
            self.log.attach(&name, &cursor, self.head());
            self.cursors.retain(|(known, _)| *known != name);
            self.cursors.push((name, cursor));
        }

        fn advance(&mut self, name: u8, by: u64) {
            if let Some((_, cursor)) = self.cursors.get(usize::from(name)) {
                cursor.advance((cursor.offset() + by).min(self.head()));
            }
            self.log.moved();
        }

        /// Begins another life with what a store kept.
        fn restart(&mut self) {
            let start = self.log.start(self.head());
            let mut checkpoint = Checkpoint {
                offset: self.head(),
                cursors: self
                    .log
                    .cursors
                    .iter()
                    .map(|(name, kept)| (name.clone(), kept.kept))
                    .collect(),
                // A store may drop more slowly than the log.
                changes: self.log.changes.iter().cloned().collect(),
                ..Checkpoint::default()
            };
            checkpoint.changes.retain(|change| change.offset > start);
            for (list, offset) in checkpoint.lists.iter_mut().zip(self.log.lists) {
                *list = (offset > 0).then_some((crate::model::ListHash::EMPTY, offset));
            }
            for (uri, line) in self.ledger.lines() {
                checkpoint.lines.push(KeptLine {
                    uri: uri.clone(),
                    line: line.clone(),
                    resource: None,
                });
            }
            checkpoint.lines.sort_by_key(|kept| kept.line.offset);
            self.log = ChangeLog::new(&checkpoint, Lineage::default(), self.max, 2);
            self.ledger = Ledger::new(checkpoint, 1, TimeStamp::default(), 100);
            for (name, cursor) in &mut self.cursors {
                *cursor = Arc::new(Cursor::default());
                self.log.attach(name, cursor, 0);
            }
        }

        /// Compares what came after each cursor with everything that happened.
        fn check(&self) {
            for (name, cursor) in &self.cursors {
                let missed = self.log.changes_after(cursor.offset(), self.head(), &self.ledger);
                let mut expected = Vec::new();
                for offset in cursor.offset() + 1..=self.head() {
                    let change = self.history[offset as usize - 1].clone();
                    let replaced =
                        self.history[offset as usize..]
                            .iter()
                            .any(|later| match (later, &change) {
                                (ChangeKind::Resource(later, ..), ChangeKind::Resource(uri, ..)) => {
                                    later == uri
                                }
                                (ChangeKind::List(later), ChangeKind::List(kind)) => later == kind,
                                _ => false,
                            });
                    if offset > missed.exact_after || !replaced {
                        expected.push(LoggedChange { offset, change });
                    }
                }
                assert_eq!(missed.changes, expected, "{name} at {}", cursor.offset());
                // The newest `max` changes are always there.
                assert!(
                    missed.exact_after <= cursor.offset().max(self.head().saturating_sub(self.max as u64))
                );
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Change(u8),
        Remove(u8),
        List,
        Attach(u8),
        Advance(u8, u64),
        Restart,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..4u8).prop_map(Step::Change),
            2 => (0..4u8).prop_map(Step::Remove),
            1 => Just(Step::List),
            1 => (0..2u8).prop_map(Step::Attach),
            3 => (0..2u8, 0..9u64).prop_map(|(name, by)| Step::Advance(name, by)),
            1 => Just(Step::Restart),
        ];
        prop::collection::vec(step, 0..80)
    }

    proptest! {
        #[test]
        fn changes_after_a_cursor_match_the_history(steps in steps(), max in 1..12usize) {
            let mut model = Model::new(max);
            for step in steps {
                match step {
                    Step::Change(name) => model.change(name),
                    Step::Remove(name) => model.remove(name),
                    Step::List => model.place(ChangeKind::List(ListKind::Tools)),
                    Step::Attach(name) => model.attach(name),
                    Step::Advance(name, by) => model.advance(name, by),
                    Step::Restart => model.restart(),
                }
                model.check();
            }
        }
    }

    #[test]
    fn log_begins_at_the_cursors_that_a_store_has() {
        const CHANGES: u64 = 20_000;
        let mut model = Model::new(CHANGES as usize);
        model.attach(0);
        for _ in 0..CHANGES {
            model.place(ChangeKind::List(ListKind::Tools));
        }
        // A subscriber that goes on while its cursor is written.
        let (_, cursor) = model.cursors[0].clone();
        let subscriber = std::thread::spawn(move || {
            for offset in 1..=CHANGES {
                cursor.advance(offset);
            }
        });
        let mut kept = 0;
        while kept < CHANGES {
            if let [(_, offset)] = model.log.moved()[..] {
                kept = offset;
            }
            assert!(model.log.start(CHANGES) <= kept);
        }
        subscriber.join().unwrap();
    }

    #[test]
    fn log_is_empty_without_cursors() {
        let mut model = Model::new(10);
        model.attach(0);
        model.change(1);
        assert_eq!(model.log.changes.len(), 1);
        model.cursors.clear();
        assert_eq!(model.log.detached(), [Arc::from("sink/0")]);
        assert!(model.log.forget("sink/0"));
        assert!(!model.log.forget("sink/0"));
        assert!(model.log.changes.is_empty() && !model.log.is_on());
        assert_eq!(model.log.start(1), 1);
    }

    #[test]
    fn surplus_cursor_is_the_one_furthest_behind() {
        let mut model = Model::new(10);
        for name in 0..3 {
            model.attach(name);
            model.change(name);
        }
        assert_eq!(model.log.surplus(), None, "they are attached");
        model.cursors.clear();
        assert_eq!(model.log.surplus(), Some("sink/0".into()));
    }

    #[test]
    fn hole_in_a_kept_log_hides_what_is_older() {
        let list = ChangeKind::List(ListKind::Tools);
        let changes = [1, 2, 4, 5].map(|offset| LoggedChange {
            offset,
            change: list.clone(),
        });
        let checkpoint = Checkpoint {
            offset: 5,
            changes: changes.to_vec(),
            cursors: vec![("a".into(), 0)],
            ..Checkpoint::default()
        };
        let log = ChangeLog::new(&checkpoint, Lineage::default(), 10, 2);
        assert_eq!((log.start, log.changes.len()), (3, 2));
    }
}
