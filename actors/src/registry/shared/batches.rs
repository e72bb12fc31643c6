//! Batches of changes, whose records the log takes one by one, and the record that tells the resource list at
//! their end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Aim, Answer, Intent, SharedOrder, Wish};
use crate::messages::{
    AnnounceList, AppliedList, BatchAnswer, EtagRequest, Finish, Logged, MembersChanged, PublishMany,
    RemoveUnclaimed,
};
use crate::model::{Change, Condition, ListKind, ListOutcome, Outcome, Owner, PublishError};
use crate::registry::Registry;
use crate::runtime::Reply;
use crate::shared_log::{LogEntry, OperationId};

/// The time after the last change of a batch after which any node tells the list. The node of the batch may
/// have died before it did, or the log may not have taken its record.
const FORGOTTEN: Duration = Duration::from_secs(3);

/// A batch whose changes have not all ended.
pub(super) struct Batch {
    pub(super) answer: Arc<BatchAnswer>,
    /// The changes that have not ended.
    left: usize,
    /// True if the resource list is told at its end.
    announces: bool,
    end: BatchEnd,
}

/// The way in which a batch is made.
#[derive(Clone, Copy)]
struct BatchTerms {
    /// Seconds since 1970, for the etags.
    now: u64,
    /// True if the resource list is told at its end.
    announces: bool,
    /// The time after which the log takes none of its changes.
    deadline: Option<Instant>,
}

/// The publisher that waits for the end of a batch.
enum BatchEnd {
    Changes(Reply<Vec<Result<Outcome, PublishError>>>),
    /// The removal of this many URIs that an owner does not publish any more.
    Removals(Option<Reply<usize>>, usize),
}

/// The publisher that waits for the record of the resource list.
pub(super) enum ListEnd {
    Batch(BatchEndOf),
    Burst(Option<Reply<Result<ListOutcome, PublishError>>>),
}

/// A batch whose changes have ended.
pub(super) struct BatchEndOf(Batch);

impl Batch {
    fn into_finish(self) -> Finish {
        match self.end {
            BatchEnd::Changes(reply) => Finish::Batch(self.answer, reply),
            BatchEnd::Removals(Some(reply), removed) => Finish::Unclaimed(reply, removed),
            BatchEnd::Removals(None, _) => Finish::Silent,
        }
    }
}

impl SharedOrder {
    fn begin_batch(&mut self, len: usize, announces: bool, end: BatchEnd) -> u64 {
        let id = self.next_batch;
        self.next_batch += 1;
        let batch = Batch {
            answer: Arc::new(BatchAnswer::new(len)),
            left: len,
            announces,
            end,
        };
        self.batches.insert(id, batch);
        id
    }
}

impl Registry {
    pub(super) fn share_many(&mut self, publish: PublishMany) {
        let PublishMany {
            changes,
            owner,
            in_burst,
            deadline,
            now,
            reply,
        } = publish;
        let mut wishes = Vec::with_capacity(changes.len());
        for (change, condition) in changes {
            wishes.push((Wish::Change(change), condition));
        }
        let terms = BatchTerms {
            now,
            announces: !in_burst,
            deadline,
        };
        self.share_wishes(wishes, &owner, terms, BatchEnd::Changes(reply));
    }

    pub(super) fn share_members(&mut self, changed: MembersChanged) {
        let MembersChanged {
            template,
            uris,
            now,
            reply,
        } = changed;
        let wishes = uris.into_iter().map(|uri| {
            let wish = Wish::Member(uri, template.clone());
            (wish, Condition::Always)
        });
        let wishes = wishes.collect();
        // Members of templates are not in the list by their names, so it stays as it is.
        let terms = BatchTerms {
            now,
            announces: false,
            deadline: None,
        };
        self.share_wishes(wishes, &Owner::default(), terms, BatchEnd::Changes(reply));
    }

    /// Removes the resources of an owner that it has not published at this node.
    pub(super) fn share_removal(&mut self, removal: RemoveUnclaimed) {
        let RemoveUnclaimed { owner, now, reply } = removal;
        let Some(shared) = &self.shared else {
            return;
        };
        let mut wishes = Vec::new();
        for uri in self.catalog.of_owner(&owner) {
            if !shared.has_published(&owner, uri) {
                wishes.push((Wish::Change(Change::Remove(uri.clone())), Condition::Always));
            }
        }
        let end = BatchEnd::Removals(reply, wishes.len());
        let terms = BatchTerms {
            now,
            announces: true,
            deadline: None,
        };
        self.share_wishes(wishes, &owner, terms, end);
    }

    fn share_wishes(
        &mut self,
        wishes: Vec<(Wish, Condition)>,
        owner: &Owner,
        terms: BatchTerms,
        end: BatchEnd,
    ) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let came = Instant::now();
        let mut expires = came + shared.timeout;
        if let Some(deadline) = terms.deadline {
            expires = expires.min(deadline);
        }
        let id = shared.begin_batch(wishes.len(), terms.announces, end);
        if wishes.is_empty() {
            return self.end_batch_of(id);
        }
        for (place, (wish, condition)) in wishes.into_iter().enumerate() {
            self.intend(Intent {
                wish,
                condition,
                owner: owner.clone(),
                now: terms.now,
                expires,
                came: Some(came),
                announces: false,
                answer: Answer::OfBatch(id, place),
            });
        }
    }

    /// Sets the result of a change that made no record.
    pub(super) fn end_of_batch(&mut self, id: u64, place: usize, result: Result<Outcome, PublishError>) {
        if let Some(shared) = &self.shared
            && let Some(batch) = shared.batches.get(&id)
        {
            batch.answer.set(place, result);
        }
        self.count_ended(id);
    }

    /// Counts the end of a change of a batch, and ends the batch with its last one.
    pub(super) fn count_ended(&mut self, id: u64) {
        if let Some(shared) = &mut self.shared
            && let Some(batch) = shared.batches.get_mut(&id)
        {
            batch.left -= 1;
            if batch.left == 0 {
                self.end_batch_of(id);
            }
        }
    }

    fn end_batch_of(&mut self, id: u64) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let Some(batch) = shared.batches.remove(&id) else {
            return;
        };
        // After all changes, so that a subscriber that reads the list on its notice finds every one of them.
        if batch.announces && self.has_unannounced() {
            self.propose_list(ListEnd::Batch(BatchEndOf(batch)));
        } else {
            self.finish(batch.into_finish());
        }
    }

    /// Answers a publisher when every shard has notified of everything before.
    fn finish(&mut self, finish: Finish) {
        let finish = Logged::Finish(finish);
        self.decided.push(EtagRequest::Logged(Box::new(finish)));
    }

    /// Tells the resource list at the end of a burst.
    pub(super) fn share_announcement(&mut self, AnnounceList(reply): AnnounceList) {
        if self.has_unannounced() {
            return self.propose_list(ListEnd::Burst(reply));
        }
        if let Some(reply) = reply {
            reply.answer(Ok(list_outcome(false)));
        }
    }

    /// Returns true if the resource list differs from what subscribers were told.
    fn has_unannounced(&self) -> bool {
        match self.unannounced {
            Some(before) => before != self.catalog.hash(ListKind::Resources),
            None => false,
        }
    }

    /// Tells the resource list if it differs for a while from what subscribers were told.
    pub(super) fn share_forgotten(&mut self) {
        let Some(shared) = &self.shared else {
            return;
        };
        // Each node waits for a time of its own, so that one of them does it for all.
        let patience = FORGOTTEN + Duration::from_millis(shared.node % 1_000);
        let is_late = match shared.unannounced_since {
            Some(since) => since.elapsed() >= patience,
            None => false,
        };
        // One record at a time; it may wait for as long as the log has no leader.
        let is_told = shared.in_flight.values().any(|aim| matches!(aim, Aim::List(_)));
        if is_late && !is_told && shared.state.is_caught_up && self.has_unannounced() {
            self.propose_list(ListEnd::Burst(None));
        }
    }

    fn propose_list(&mut self, end: ListEnd) {
        let Some(shared) = &mut self.shared else {
            return;
        };
        let expires = Instant::now() + shared.timeout;
        if shared
            .propose(LogEntry::ResourceList, 0, (expires, Aim::List(end)))
            .is_none()
        {
            tracing::error!("the log has ended, so a change of the resource list is not told");
        }
    }

    /// Tells the resource list at the place of a record.
    pub(super) fn hear_list(&mut self, sequence: u64, operation: OperationId) {
        // Also for the record of another node: all nodes tell the list at the same places.
        let changed = self.has_unannounced();
        self.unannounced = None;
        let Some(shared) = &mut self.shared else {
            return;
        };
        let own = match operation.node == shared.node {
            true => shared.in_flight.remove(&operation.number),
            false => None,
        };
        let offset = match shared.state.history {
            Some(history) => history.offset(sequence),
            None => return,
        };
        let mut list = None;
        if changed {
            self.show_list(ListKind::Resources);
            list = Some((ListKind::Resources, self.catalog.hash(ListKind::Resources)));
        }
        let finish = match own {
            Some(Aim::List(end)) => end.into_finish(changed),
            _ => Finish::Silent,
        };
        let applied = AppliedList { offset, list, finish };
        let logged = Logged::List(applied);
        self.decided.push(EtagRequest::Logged(Box::new(logged)));
    }

    /// Answers the publisher of a record of the resource list that the log did not take. The list is told
    /// with the next change of it, or after a while.
    pub(super) fn end_list(&mut self, end: ListEnd) {
        self.finish(end.into_finish(false));
    }
}

impl ListEnd {
    fn into_finish(self, changed: bool) -> Finish {
        match self {
            ListEnd::Batch(BatchEndOf(batch)) => batch.into_finish(),
            ListEnd::Burst(Some(reply)) => Finish::List(reply, list_outcome(changed)),
            ListEnd::Burst(None) => Finish::Silent,
        }
    }
}

fn list_outcome(changed: bool) -> ListOutcome {
    ListOutcome { changed, notified: 0 }
}
