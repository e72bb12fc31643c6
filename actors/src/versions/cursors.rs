//! The requests of resuming subscribers: where they go on, and how far their cursors are.

use std::sync::Arc;

use super::release::Release;
use super::{ChangeLog, EtagActor};
use crate::messages::{AttachQueue, AttachedAt, CursorRequest};
use crate::model::Position;
use crate::sink::NewestChanges;

impl EtagActor {
    /// Goes on from the change log and the cursors of a former life.
    pub(crate) fn with_change_log(mut self, change_log: ChangeLog) -> EtagActor {
        self.change_log = change_log;
        self
    }

    /// Places a subscriber in the order of the bus. One that resumes goes on from its cursor.
    pub(super) fn attach_queue(&mut self, attach: AttachQueue) {
        let at = self.ledger.position();
        let state = &attach.state;
        if let Some(cursor) = state.cursor()
            && self.change_log.attach(state.name(), cursor, at.offset)
        {
            // At once: a crash before the first delivery must not let the subscriber start at a later
            // present.
            self.record_cursor(state.name().clone(), Some(at.offset));
        }
        while let Some(name) = self.change_log.surplus() {
            self.forget_cursor(name);
        }
        self.waiting.push(Release::AttachQueue(attach, at));
    }

    /// Adds the queue of a subscriber after the changes that it missed.
    pub(super) fn release_queue(&mut self, attach: AttachQueue, at: Position) {
        let AttachQueue {
            state,
            newest_max,
            reply,
        } = attach;
        let newest = match newest_max {
            0 => NewestChanges::default(),
            max => self.newest_changes(max, at),
        };
        if let Some(cursor) = state.cursor() {
            // Only now: what was stamped after `at` may have been released meanwhile or not, and is offered
            // to the queue in any case.
            let after = cursor.offset();
            let missed = self.change_log.changes_after(after, at.offset, &self.ledger);
            let changes = missed.changes.into_iter();
            let deliveries = changes.map(|change| self.change_log.delivery(change));
            state.resume(after, at, deliveries, self.change_log.lineage());
        }
        self.shards.add_queue(state, at);
        let position = at;
        reply.answer(AttachedAt { position, newest });
    }

    /// Returns the newest `max` changes of what the ledger knows, each the newest of its resource or list.
    fn newest_changes(&self, max: usize, at: Position) -> NewestChanges {
        let mut after = self.ledger.forgotten_offset().min(at.offset);
        let missed = self.change_log.changes_after(after, at.offset, &self.ledger);
        let mut changes = missed.changes;
        let surplus = changes.len().saturating_sub(max);
        if let Some(last) = changes.drain(..surplus).next_back() {
            after = last.offset;
        }
        let changes = changes.into_iter().map(|change| self.change_log.delivery(change));
        NewestChanges {
            changes: changes.collect(),
            after,
            exact_after: missed.exact_after.max(after),
        }
    }

    pub(super) fn serve_cursors(&mut self, request: CursorRequest) {
        let reply = match request {
            CursorRequest::Keep(reply) => {
                self.record_moved();
                reply
            }
            CursorRequest::Forget(name, reply) => {
                self.forget_cursor(name);
                reply
            }
        };
        self.waiting.push(Release::Done(reply));
    }

    /// Queues the cursors that have moved for the next batch of the store.
    pub(super) fn record_moved(&mut self) {
        for (name, offset) in self.change_log.moved() {
            self.record_cursor(name, Some(offset));
        }
    }

    fn forget_cursor(&mut self, name: Arc<str>) {
        if self.change_log.forget(&name) {
            tracing::info!(subscriber = %name, "the cursor of a subscriber is forgotten");
            self.record_cursor(name, None);
        }
    }

    /// Forgets the cursors of former lives whose subscribers were not attached at the start.
    pub(super) fn forget_detached(&mut self) {
        for name in self.change_log.detached() {
            self.forget_cursor(name);
        }
    }
}
