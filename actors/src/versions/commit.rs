//! The changes of the Etag actor that are not durable: their records, what is visible meanwhile, and how they
//! are taken back when the store fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::EtagActor;
use super::ledger::Ledger;
use super::release::Release;
use super::store::{Batch, KeptContent, Record, StoreThread};
use crate::messages::Known;
use crate::model::{
    Content, Etag, Line, ListHash, ListKind, Position, PublishError, ResourceUri, StoreError, UriMap,
};

/// The changes that are not durable. The Registry sends none while a batch is in flight, so there is one
/// batch at most.
pub(crate) struct Commit {
    store: StoreThread,
    /// The records of the next batch.
    pub(super) records: Vec<Record>,
    /// The cursors whose offsets the store does not have; none to forget one.
    pub(super) cursors: BTreeMap<Arc<str>, Option<u64>>,
    /// The cursors among the records in flight.
    written_cursors: BTreeMap<Arc<str>, Option<u64>>,
    /// The changes of the batch in flight.
    in_flight: Vec<Release>,
    /// For each URI whose changes are not durable, its line before them.
    before: UriMap<Option<Line>>,
    /// The position of the last visible change.
    position: Position,
    /// Per list, the hash that is visible and its offset.
    lists: [(ListHash, u64); 3],
    /// Per list, true if the store does not have the hash that is visible.
    pub(super) unsaved: [bool; 3],
    /// The URIs with records of which the failed store may have kept some; none while it works.
    failed: Option<Vec<ResourceUri>>,
}

impl Commit {
    pub(crate) fn new(store: StoreThread, ledger: &Ledger, lists: [Option<(ListHash, u64)>; 3]) -> Commit {
        Commit {
            store,
            records: Vec::new(),
            cursors: BTreeMap::new(),
            written_cursors: BTreeMap::new(),
            in_flight: Vec::new(),
            before: UriMap::default(),
            position: ledger.position(),
            lists: lists.map(|list| list.unwrap_or((ListHash::EMPTY, 0))),
            unsaved: [false; 3],
            failed: None,
        }
    }

    /// The records of the lists whose visible hash the store does not have.
    fn list_records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for kind in ListKind::ALL {
            if self.unsaved[kind.index()] {
                let (hash, offset) = self.lists[kind.index()];
                records.push(Record::List(kind, hash, offset));
            }
        }
        records
    }
}

impl EtagActor {
    /// Returns true if changes need records.
    pub(super) fn is_recording(&self) -> bool {
        match &self.commit {
            Some(commit) => commit.failed.is_none(),
            None => false,
        }
    }

    /// The position of the last change that subscribers were told of.
    pub(super) fn visible_position(&self) -> Position {
        match &self.commit {
            Some(commit) => commit.position,
            None => self.ledger.position(),
        }
    }

    /// The line of `uri` as far as it is visible.
    pub(super) fn visible_line(&self, uri: &ResourceUri) -> Option<&Line> {
        if let Some(commit) = &self.commit
            && let Some(before) = commit.before.get(uri)
        {
            return before.as_ref();
        }
        self.ledger.line(uri)
    }

    /// Keeps the line of `uri` from before its first change.
    pub(super) fn save_line(&mut self, uri: &ResourceUri) {
        if let Some(commit) = &mut self.commit
            && !commit.before.contains_key(uri)
        {
            commit.before.insert(uri.clone(), self.ledger.line(uri).cloned());
        }
    }

    /// Releases a request that depends on no change: with a store at once, since it was made from what is
    /// visible, and without one in its turn.
    pub(super) fn pass(&mut self, release: Release) {
        match self.commit {
            Some(_) => release.run(self),
            None => self.waiting.push(release),
        }
    }

    /// Releases the changes of this turn, except those that were handed to the store.
    pub(super) fn release_waiting(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        self.release(&mut waiting);
        // Keeps the room for the next batch.
        self.waiting = waiting;
    }

    fn release(&mut self, releases: &mut Vec<Release>) {
        if releases.is_empty() {
            return;
        }
        if let Some(commit) = &mut self.commit {
            commit.before.clear();
            commit.position = self.ledger.position();
            for (kind, hash, position) in releases.iter().flat_map(Release::list) {
                commit.lists[kind.index()] = (hash, position.offset);
            }
        }
        for release in releases.drain(..) {
            release.run(self);
        }
    }

    /// Hands the changes of this turn to the store.
    pub(super) fn commit(&mut self) {
        // In a step that is made anyway, so that a process that is killed again and again repeats little.
        self.record_moved();
        let Some(commit) = &mut self.commit else {
            return;
        };
        commit.in_flight = std::mem::take(&mut self.waiting);
        // Before the others, which may have newer hashes.
        let mut records = commit.list_records();
        records.append(&mut commit.records);
        self.append(records);
    }

    /// Writes what a failed store may not have: the durable state of all that the failed batch changed. A
    /// change that was refused thus never comes back after a restart.
    pub(super) fn try_store(&mut self) {
        let Some(Commit {
            failed: Some(failed), ..
        }) = &self.commit
        else {
            return;
        };
        let mut records = Vec::with_capacity(failed.len());
        for uri in failed {
            records.push(self.line_record(uri, self.durable_content(uri)));
        }
        if let Some(commit) = &self.commit {
            records.extend(commit.list_records());
        }
        self.append(records);
    }

    /// The content of `uri` that the store is to have.
    fn durable_content(&self, uri: &ResourceUri) -> KeptContent {
        let keeps_content = match self.ledger.line(uri) {
            Some(Line {
                owner: Some(owner), ..
            }) => owner.keeps_content(),
            _ => false,
        };
        match self.etag_index.get(uri.as_str()) {
            Some(entry) if keeps_content && matches!(entry.resource.content(), Content::Held(_)) => {
                KeptContent::Resource(entry.resource)
            }
            _ => KeptContent::None,
        }
    }

    fn append(&mut self, mut records: Vec<Record>) {
        if let Some(commit) = &mut self.commit {
            commit.written_cursors = std::mem::take(&mut commit.cursors);
            for (name, offset) in &commit.written_cursors {
                records.push(Record::Cursor(name.clone(), *offset));
            }
        }
        let head = self.ledger.position().offset;
        let batch = Batch {
            records,
            offset: head,
            floor: self.ledger.floor(),
            log_start: self.change_log.start(head),
        };
        match &self.commit {
            Some(commit) if commit.store.append(batch) => {}
            _ => self.guard.fail("the store's thread ended"),
        }
    }

    /// Takes the report of the store.
    pub(super) fn stored(&mut self, stored: Result<(), StoreError>) {
        let Some(commit) = &mut self.commit else {
            return;
        };
        let mut releases = std::mem::take(&mut commit.in_flight);
        let mut cursors = std::mem::take(&mut commit.written_cursors);
        if stored.is_err() {
            // Those that moved again meanwhile count.
            cursors.append(&mut commit.cursors);
            commit.cursors = cursors;
        }
        match (stored, commit.failed.take()) {
            (Ok(()), failed) => {
                // Lists may have changed while the store was tried again, so those stay unsaved.
                if failed.is_none() {
                    commit.unsaved = [false; 3];
                }
                self.release(&mut releases);
            }
            // Tried in vain. Nothing changed meanwhile, so the next try writes the same lines.
            (Err(_), Some(failed)) => commit.failed = Some(failed),
            (Err(error), None) => {
                self.take_back();
                let error = PublishError::from(&error);
                for release in releases {
                    release.refuse(&error, self);
                }
            }
        }
    }

    /// Takes back the versions and offsets of the changes that the store could not keep.
    fn take_back(&mut self) {
        let Some(commit) = &mut self.commit else {
            return;
        };
        let mut failed = Vec::with_capacity(commit.before.len());
        for (uri, line) in commit.before.drain(..) {
            self.ledger.restore(&uri, line);
            failed.push(uri);
        }
        // Offsets count notices without gaps, so those that no subscriber was told of are given out again.
        self.ledger.go_back(commit.position);
        let lists = commit.lists.map(|(_, offset)| offset);
        self.change_log.go_back(commit.position.offset, lists);
        commit.records.clear();
        commit.failed = Some(failed);
        commit.unsaved = [true; 3];
    }

    /// The etag of `uri` as far as it is visible.
    pub(super) fn visible_etag(&mut self, uri: &ResourceUri, known: Known) -> Etag {
        let line = self.visible_line(uri);
        match (known, line) {
            (Known::Member(family), line) => {
                let line = line.cloned();
                self.ledger.member_etag_at(line.as_ref(), family)
            }
            (Known::Registered | Known::Absent, Some(line)) => line.etag,
            (Known::Registered | Known::Absent, None) => Etag::UNKNOWN,
        }
    }
}
