//! The rights of a subscriber at its outbox: judged when entries are handed out, and never when they are
//! marked.
//!
//! One comparison of two numbers per drain shows whether the rights changed. If so, every subscription is
//! judged once, and what remains needs no further look.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{JoinedAudience, Outbox, OutboxEntry, OutboxSet, OutboxState, SlotId};
use crate::model::{
    EndReason, ListHash, ListKind, MonotonicMillis, Position, ResourceUri, Standing, TraceStep, Viewer,
};

/// The callback that asks the session to settle the rights of an outbox; see [`Outbox::settle`].
pub(crate) type OnJudged = Box<dyn Fn() + Send + Sync>;

/// The last judgement of an outbox.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    /// The generation of the answers.
    generation: u64,
    /// True if the credential had ended.
    pub(super) ended: bool,
}

impl Judged {
    /// A new outbox has no subscription that could be judged.
    pub(super) fn new(viewer: Option<&Arc<dyn Viewer>>) -> Judged {
        let Some(viewer) = viewer else {
            return Judged {
                generation: 0,
                ended: false,
            };
        };
        Judged {
            generation: viewer.generation(),
            ended: viewer.standing() == Standing::Ended,
        }
    }
}

impl Outbox {
    /// The rights of the subscriber; none if it sees everything.
    pub(crate) fn viewer(&self) -> Option<&Arc<dyn Viewer>> {
        self.viewer.as_ref()
    }

    /// Returns true if the subscriber may be told of `uri`. Asked under the lock of the outbox, the answer
    /// belongs to the last judgement or a later one, so none falls between the two.
    pub(crate) fn may_be_told(&self, uri: &ResourceUri) -> bool {
        match &self.viewer {
            Some(viewer) => viewer.may_be_told(uri),
            None => true,
        }
    }

    /// Sets the callback that asks to settle the rights. Only the first one is kept.
    pub(crate) fn set_on_judged(&self, on_judged: OnJudged) {
        self.on_judged.get_or_init(|| on_judged);
    }

    /// Returns true if the rights changed since they were judged.
    pub(super) fn is_outdated(&self, state: &OutboxState) -> bool {
        match &self.viewer {
            Some(viewer) => viewer.generation() != state.judged.generation,
            None => false,
        }
    }

    /// Judges the outbox if the rights changed. Wakes its readers if they have to end. Returns the number of
    /// subscriptions that were judged.
    pub(crate) fn recheck(&self) -> usize {
        let Some(viewer) = &self.viewer else {
            return 0;
        };
        let mut state = self.lock();
        if !self.is_outdated(&state) {
            return 0;
        }
        let judged = state.set.subscriptions();
        let unsettled = self.judge(&mut state, viewer.as_ref());
        drop(state);
        if unsettled {
            self.ask_to_settle();
        }
        judged
    }

    /// Returns true if hidden subscriptions or lists remain to be settled.
    fn judge(&self, state: &mut OutboxState, viewer: &dyn Viewer) -> bool {
        // Read first: an answer that changes meanwhile has another generation, and is asked for again.
        let generation = viewer.generation();
        let ended = viewer.standing() == Standing::Ended;
        if ended {
            state.judged = Judged { generation, ended };
            // Entries stay: the subscriber may come back with another credential.
            state.end_readers();
            return false;
        }
        let hidden = self.count_pending(&mut state.set, |set| {
            let (hidden, dropped) = set.hide(|uri| viewer.may_be_told(uri));
            set.hold_lists();
            self.metrics.withheld.add(dropped.len() as u64);
            for notice in dropped.iter().filter(|notice| notice.traced) {
                let subscriber = self.subscriber_ref();
                let reason = EndReason::Unauthorized;
                self.tracer
                    .trace_notice(notice, TraceStep::Dropped { subscriber, reason });
            }
            hidden
        });
        self.metrics.subscriptions.change(hidden, 0);
        state.forget_empty();
        if std::mem::replace(&mut state.judged, Judged { generation, ended }).ended {
            state.wake_all();
        }
        hidden > 0 || state.set.lists().next().is_some()
    }

    /// Asks to settle the rights, unless that is under way.
    fn ask_to_settle(&self) {
        // Without a callback nothing is under way.
        if let Some(on_judged) = self.on_judged.get()
            && !self.settling.swap(true, Ordering::AcqRel)
        {
            on_judged();
        }
    }

    /// Returns true while a request to settle the rights is under way; one of an ended session never returns.
    pub(crate) fn is_settling(&self) -> bool {
        self.settling.load(Ordering::Acquire) && self.ended().is_none()
    }

    /// Notes that `shard` has the subscriptions in its table from here on, and forgets the hidden ones of the
    /// table before.
    pub(crate) fn settle_in(&self, shard: usize) {
        if self.viewer.is_some() {
            self.with(|set| {
                set.take_hidden();
                set.home = shard;
            });
        }
    }

    /// Takes the slots of hidden subscriptions that the table of `shard` has.
    pub(crate) fn take_hidden(&self, shard: usize) -> Vec<SlotId> {
        if self.viewer.is_none() {
            return Vec::new();
        }
        self.with(|set| match set.home == shard {
            true => set.take_hidden(),
            // Another shard has taken the subscriber over.
            false => Vec::new(),
        })
    }

    /// Compares the lists with what the subscriber sees at the position `at`, as the audience that it has
    /// joined. Asks again if its rights have changed since.
    pub(crate) fn settle(&self, joined: JoinedAudience, lists: &[(ListKind, ListHash)], at: Position) {
        let Some(viewer) = &self.viewer else {
            return;
        };
        self.settling.store(false, Ordering::Release);
        let generation = joined.generation;
        // Declared before the guard: it is dropped without the lock.
        let _before;
        let mut state = self.lock();
        _before = state.audience.replace(joined);
        if self.is_outdated(&state) {
            self.judge(&mut state, viewer.as_ref());
        }
        if state.judged.ended {
            return;
        }
        if state.judged.generation != generation {
            drop(state);
            return self.ask_to_settle();
        }
        let due = self.count_pending(&mut state.set, |set| {
            let before = set.pending();
            for (kind, hash) in lists {
                set.mark_list(*kind, *hash, at.offset);
            }
            set.release_lists();
            set.pending().saturating_sub(before)
        });
        self.metrics.notified.add(due);
        self.metrics.lists_due.add(due);
        if due > 0 {
            state.note_pending(MonotonicMillis::now());
        }
    }

    /// Joins the audience by which lists that are watched from here on are compared.
    pub(crate) fn join(&self, joined: JoinedAudience) {
        let generation = joined.generation;
        let _before;
        let mut state = self.lock();
        _before = state.audience.replace(joined);
        let outdated = state.judged.generation != generation;
        drop(state);
        if outdated {
            self.ask_to_settle();
        }
    }

    /// Returns the hash of a list that the subscriber sees, among those of all audiences.
    ///
    /// If its audience is not among them, or its rights changed, it holds the lists back, asks to settle and
    /// returns the hash of the whole list: a client that resumes before the answer misses nothing.
    pub(crate) fn shown_hash(&self, all: ListHash, shown: &[(u64, ListHash)]) -> ListHash {
        if self.viewer.is_none() {
            return all;
        }
        let mut state = self.lock();
        if let Some(joined) = &state.audience
            && joined.generation == state.judged.generation
            && !self.is_outdated(&state)
            && let Some((_, hash)) = shown.iter().find(|(id, _)| *id == joined.audience.id)
        {
            return *hash;
        }
        self.count_pending(&mut state.set, OutboxSet::hold_lists);
        state.forget_empty();
        drop(state);
        self.ask_to_settle();
        all
    }

    /// Returns true, and drops the notice, if it came by the filter and the subscriber may not be told of it.
    pub(super) fn withholds(&self, set: &mut OutboxSet, entry: &OutboxEntry) -> bool {
        let Some(viewer) = &self.viewer else {
            return false;
        };
        let OutboxEntry::Updated(notice) = entry else {
            return false;
        };
        if !set.is_only_filtered(&notice.uri) || viewer.may_be_told(&notice.uri) {
            return false;
        }
        set.withdraw(&notice.uri);
        self.metrics.withheld.add(1);
        true
    }
}

impl OutboxState {
    /// Wakes every reader, so that it ends, and cuts the connections that take nothing.
    fn end_readers(&mut self) {
        for reader in self.readers.iter() {
            if let Some(progress) = &reader.progress
                && progress.is_blocked()
            {
                progress.cut();
            }
        }
        self.wake_all();
    }

    /// Forgets the time since which entries have been pending if none is.
    pub(super) fn forget_empty(&mut self) {
        if self.set.pending() == 0 {
            self.pending_since = None;
        }
    }

    /// Notes that entries are pending, and wakes the reader.
    fn note_pending(&mut self, now: MonotonicMillis) {
        if self.pending_since.is_none() {
            self.pending_since = Some(now);
            self.stall_start = now;
        }
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Waker};
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;
    use crate::metrics::Metrics;
    use crate::model::viewer_testing::{TestAudience, TestViewer};
    use crate::model::{Audience, Cause, Etag, Notice, SessionOptions, SubscriberId, SubscriberKind};
    use crate::outbox::{Drained, ListAudience, MarkResult, OutboxReader};

    fn uri(name: u8) -> ResourceUri {
        ResourceUri::new(&format!("demo://{name}")).unwrap()
    }

    fn notice(name: u8, offset: u64) -> Arc<Notice> {
        let etag = Etag {
            version: offset,
            ..Etag::UNKNOWN
        };
        let position = Position { epoch: 9, offset };
        Arc::new(Notice::new(
            uri(name),
            etag,
            Cause::Updated,
            position,
            Instant::now(),
        ))
    }

    struct Rig {
        viewer: Arc<TestViewer>,
        outbox: Arc<Outbox>,
        asked: Arc<AtomicUsize>,
        offset: u64,
        /// The table of the shard.
        table: BTreeMap<SlotId, u8>,
    }

    impl Rig {
        fn new() -> Rig {
            let viewer = Arc::new(TestViewer::default());
            let mut options = SessionOptions::new(SubscriberKind::Local, "test");
            options.viewer = Some(viewer.clone());
            let metrics = Metrics::register(1);
            let outbox = Arc::new(Outbox::new(SubscriberId(1), 0, &options, metrics, Arc::default()));
            outbox.set_epoch(9);
            let asked = Arc::new(AtomicUsize::new(0));
            let count = asked.clone();
            outbox.set_on_judged(Box::new(move || {
                count.fetch_add(1, Ordering::Relaxed);
            }));
            Rig {
                viewer,
                outbox,
                asked,
                offset: 0,
                table: BTreeMap::new(),
            }
        }

        fn reader(&self) -> OutboxReader {
            OutboxReader::open(self.outbox.clone(), 4)
        }

        /// Subscribes as the shard does.
        fn subscribe(&mut self, name: u8) -> bool {
            let mut hidden = Vec::new();
            let begun = self.outbox.with(|set| {
                hidden = set.take_hidden();
                let told = self.outbox.may_be_told(&uri(name));
                told.then(|| set.subscribe(&uri(name), Etag::UNKNOWN, self.offset))
            });
            for slot in hidden {
                self.table.remove(&slot);
            }
            if let Some((slot, true)) = begun {
                assert_eq!(
                    self.table.insert(slot, name),
                    None,
                    "the slot is free in the table"
                );
            }
            begun.is_some()
        }

        /// Marks all slots that the table has for this resource.
        fn mark(&mut self, name: u8) {
            self.offset += 1;
            let notice = notice(name, self.offset);
            for (slot, of) in &self.table {
                if *of == name {
                    self.outbox.mark(*slot, &notice, MonotonicMillis::now());
                }
            }
        }

        fn hide(&self, names: &[u8]) {
            self.viewer.hide(names.iter().map(|name| uri(*name).to_string()));
        }
    }

    /// The audience of a subscriber whose rights have this generation.
    fn joined(generation: u64) -> JoinedAudience {
        let audience: Arc<dyn Audience> = Arc::new(TestAudience(7, &[]));
        let audience = Arc::new(ListAudience { id: 7, audience });
        JoinedAudience { audience, generation }
    }

    fn poll(reader: &mut OutboxReader) -> (Poll<Drained>, Vec<String>) {
        let mut taken = Vec::new();
        let drained = reader.poll_drain(&mut Context::from_waker(Waker::noop()), |entry| {
            taken.push(match entry {
                OutboxEntry::Updated(notice) => notice.uri.to_string(),
                OutboxEntry::ListChanged(kind) => kind.name().to_owned(),
            });
        });
        (drained, taken)
    }

    const UNAUTHORIZED: Poll<Drained> = Poll::Ready(Drained::Ended(EndReason::Unauthorized));

    #[test]
    fn lost_right_drops_what_is_pending() {
        let mut rig = Rig::new();
        let mut reader = rig.reader();
        for name in [1, 2] {
            assert!(rig.subscribe(name));
            rig.mark(name);
        }
        rig.hide(&[1]);
        assert_eq!(poll(&mut reader).1, ["demo://2"]);
        assert_eq!(rig.asked.load(Ordering::Relaxed), 1);
        // Neither a late mark of its slot, nor resuming, nor the right itself brings it back.
        rig.mark(1);
        assert_eq!(poll(&mut reader), (Poll::Pending, vec![]));
        rig.hide(&[]);
        rig.mark(1);
        reader.resume_after(Position { epoch: 9, offset: 0 });
        assert_eq!(poll(&mut reader).1, ["demo://2"]);
        assert!(rig.subscribe(1));
        rig.mark(1);
        assert_eq!(poll(&mut reader).1, ["demo://1"]);
        assert_eq!(rig.outbox.with(|set| set.subscriptions()), 2);
    }

    #[test]
    fn ended_credential_ends_the_stream_and_keeps_entries() {
        let mut rig = Rig::new();
        let mut reader = rig.reader();
        rig.subscribe(1);
        rig.viewer.set_ended(true);
        assert_eq!(
            poll(&mut reader),
            (UNAUTHORIZED, vec![]),
            "also with nothing pending"
        );
        rig.mark(1);
        assert_eq!(poll(&mut reader), (UNAUTHORIZED, vec![]));
        assert_eq!(
            poll(&mut rig.reader()),
            (UNAUTHORIZED, vec![]),
            "a new stream ends too"
        );
        assert_eq!(rig.outbox.ended(), None);
        rig.viewer.set_ended(false);
        assert_eq!(poll(&mut rig.reader()).1, ["demo://1"]);
    }

    #[test]
    fn refused_subscription_is_not_made() {
        let mut rig = Rig::new();
        rig.hide(&[1]);
        assert!(!rig.subscribe(1));
        assert!(rig.subscribe(2));
    }

    #[test]
    fn filter_is_judged_for_each_notice() {
        let rig = Rig::new();
        let mut reader = rig.reader();
        rig.outbox.with(|set| set.set_filter(Arc::default(), 10));
        let mark = |name, offset| {
            rig.outbox
                .mark_filtered(&notice(name, offset), MonotonicMillis::now());
        };
        mark(1, 1);
        mark(2, 2);
        rig.hide(&[1]);
        assert_eq!(poll(&mut reader).1, ["demo://2"]);
        mark(1, 3);
        assert_eq!(poll(&mut reader), (Poll::Pending, vec![]));
        reader.resume_after(Position { epoch: 9, offset: 0 });
        assert_eq!(poll(&mut reader).1, ["demo://2"]);
        rig.hide(&[]);
        mark(1, 4);
        assert_eq!(poll(&mut reader).1, ["demo://1"]);
    }

    #[test]
    fn lost_changes_count_as_far_as_they_may_be_told() {
        let rig = Rig::new();
        let reader = rig.reader();
        rig.outbox.with(|set| set.set_filter(Arc::default(), 1));
        rig.hide(&[2, 3, 4]);
        for name in 1..=6 {
            rig.outbox
                .mark_filtered(&notice(name, u64::from(name)), MonotonicMillis::now());
        }
        assert_eq!(reader.take_lost(), 2);
    }

    #[test]
    fn list_waits_until_it_was_compared_with_the_new_view() {
        let rig = Rig::new();
        let mut reader = rig.reader();
        let [old, new] = [1, 2].map(|hash| ListHash::EMPTY.with(crate::model::Digest(hash)));
        let at = |offset| Position { epoch: 9, offset };
        let now = MonotonicMillis::now();
        rig.outbox.with(|set| set.watch_list(ListKind::Tools, old, 0));
        assert_eq!(
            rig.outbox.mark_list(ListKind::Tools, new, at(1), now),
            MarkResult::New
        );
        rig.hide(&[]);
        assert_eq!(poll(&mut reader), (Poll::Pending, vec![]));
        assert_eq!(
            reader.position(),
            at(0),
            "a client that resumes there misses nothing"
        );
        // The rights changed again before the answer, so that one does not count.
        rig.hide(&[]);
        let lists = |hash| [(ListKind::Tools, hash)];
        rig.outbox.settle(joined(1), &lists(old), at(1));
        assert_eq!(rig.asked.load(Ordering::Relaxed), 2);
        rig.outbox.settle(joined(2), &lists(old), at(1));
        assert_eq!(
            poll(&mut reader),
            (Poll::Pending, vec![]),
            "it sees the list that it knows"
        );
        rig.hide(&[]);
        rig.outbox.recheck();
        rig.outbox.settle(joined(3), &lists(new), at(1));
        assert_eq!(poll(&mut reader).1, ["tools"]);
    }

    #[test]
    fn list_is_compared_with_the_hash_of_the_audience() {
        let rig = Rig::new();
        let mut reader = rig.reader();
        let [old, new, all] = [1, 2, 3].map(|hash| ListHash::EMPTY.with(crate::model::Digest(hash)));
        let at = |offset| Position { epoch: 9, offset };
        rig.outbox.with(|set| set.watch_list(ListKind::Tools, old, 0));
        rig.outbox.join(joined(0));
        assert_eq!(rig.outbox.shown_hash(all, &[(6, new), (7, old)]), old);
        assert_eq!(rig.asked.load(Ordering::Relaxed), 0);
        // One that the hashes lack is compared as soon as its own is known.
        let hash = rig.outbox.shown_hash(all, &[(6, new)]);
        assert_eq!((hash, rig.asked.load(Ordering::Relaxed)), (all, 1));
        rig.outbox
            .mark_list(ListKind::Tools, hash, at(1), MonotonicMillis::now());
        assert_eq!(poll(&mut reader), (Poll::Pending, vec![]));
        assert_eq!(reader.position(), at(0));
        rig.outbox.settle(joined(0), &[(ListKind::Tools, old)], at(1));
        assert_eq!(poll(&mut reader), (Poll::Pending, vec![]));
        assert_eq!(reader.position(), at(1));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Subscribe(u8),
        Mark(u8),
        Hide(Vec<u8>),
        Recheck,
        Poll,
        Resume(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..6u8).prop_map(Step::Subscribe),
            6 => (0..6u8).prop_map(Step::Mark),
            2 => prop::collection::vec(0..6u8, 0..4).prop_map(Step::Hide),
            1 => Just(Step::Recheck),
            4 => Just(Step::Poll),
            1 => (0..30u64).prop_map(Step::Resume),
        ];
        prop::collection::vec(step, 0..120)
    }

    proptest! {
        /// After the rights changed nothing hidden is handed out, and everything else that is pending is.
        #[test]
        fn rights_decide_what_is_handed_out(steps in steps()) {
            let mut rig = Rig::new();
            let mut reader = rig.reader();
            let mut hidden: Vec<u8> = Vec::new();
            let mut subscribed: BTreeSet<u8> = BTreeSet::new();
            let mut pending: BTreeSet<u8> = BTreeSet::new();
            // Per subscription, the offset of its newest notice.
            let mut newest: BTreeMap<u8, u64> = BTreeMap::new();
            for step in steps {
                if let Step::Recheck | Step::Poll = step {
                    subscribed.retain(|name| !hidden.contains(name));
                    pending.retain(|name| !hidden.contains(name));
                    newest.retain(|name, _| !hidden.contains(name));
                }
                match step {
                    Step::Subscribe(name) => {
                        let told = !hidden.contains(&name);
                        prop_assert_eq!(rig.subscribe(name), told);
                        if told {
                            subscribed.insert(name);
                        }
                    }
                    Step::Mark(name) => {
                        rig.mark(name);
                        if subscribed.contains(&name) {
                            pending.insert(name);
                            newest.insert(name, rig.offset);
                        }
                    }
                    Step::Hide(names) => {
                        rig.hide(&names);
                        hidden = names;
                    }
                    Step::Recheck => {
                        rig.outbox.recheck();
                    }
                    Step::Poll => {
                        let mut taken = BTreeSet::new();
                        while let (Poll::Ready(Drained::Entries(_)), uris) = poll(&mut reader) {
                            taken.extend(uris);
                        }
                        let expected: BTreeSet<String> = pending.iter().map(|name| uri(*name).to_string()).collect();
                        prop_assert_eq!(taken, expected);
                        pending.clear();
                    }
                    Step::Resume(offset) => {
                        reader.resume_after(Position { epoch: 9, offset });
                        pending.extend(newest.iter().filter(|(_, at)| **at > offset).map(|(name, _)| *name));
                    }
                }
                let judged: BTreeSet<u8> = rig.outbox.with(|set| {
                    set.slots().map(|(_, uri)| uri.as_str()["demo://".len()..].parse().unwrap()).collect()
                });
                prop_assert_eq!(&judged, &subscribed);
            }
        }
    }
}
