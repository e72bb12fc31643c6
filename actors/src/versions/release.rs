//! Requests in their order. With a store, changes wait here until their records are durable.

use std::sync::Arc;

use crate::messages::{
    AddListWatches, AddSubscriptions, AttachQueue, Finish, Found, IndexedResource, ManyCompletion, Route,
    SettleRights, ShardRequest, SubscriberRequest,
};
use crate::metrics::Metrics;
use crate::model::{Etag, ListHash, ListKind, Outcome, Position, PublishError, ResourceUri};
use crate::outbox::AudienceHashes;
use crate::runtime::Reply;

use super::EtagActor;
use super::etag_index::EtagIndex;
use super::fan_out::{Shards, StampedChange};

/// A request in its place in the order of the bus.
pub(super) enum Release {
    Change(ReleasedChange),
    Changes(ReleasedChanges),
    Resources(Reply<Vec<Option<(Found, Etag)>>>, Vec<Option<(Found, Etag)>>),
    Subscribe(AddSubscriptions),
    WatchLists(AddListWatches),
    Settle(SettleRights, Position),
    /// The hashes of a list for the audiences, in front of its change.
    Shown(ListKind, AudienceHashes),
    /// A list that every session compares with what it was told, although it is the same as before the
    /// restart.
    SameList((ListKind, ListHash, Position)),
    /// Replies when everything before it is durable.
    Done(Reply<()>),
    AttachQueue(AttachQueue, Position),
    /// Answers when the shards have notified of everything before it.
    Finish(Finish),
    Route(Route),
}

/// A change of a resource, of a list, or of both.
pub(super) struct ReleasedChange {
    pub(super) effect: ChangeEffect,
    pub(super) list: Option<(ListKind, ListHash, Position)>,
    pub(super) finish: Finish,
}

/// The changes of one batch.
pub(super) struct ReleasedChanges {
    /// The answer for each change, in order.
    pub(super) results: Vec<Result<Outcome, PublishError>>,
    /// The effect of each change that was made, with its place in `results`.
    pub(super) effects: Vec<(usize, ChangeEffect)>,
    pub(super) list: Option<(ListKind, ListHash, Position)>,
    pub(super) reply: Reply<Vec<Result<Outcome, PublishError>>>,
}

/// The effect of one change of a resource on readers and subscribers.
#[derive(Default)]
pub(super) struct ChangeEffect {
    /// The new entry of the etag index.
    pub(super) indexed: Option<(ResourceUri, Option<IndexedResource>)>,
    /// The notice for the subscribers of the resource.
    pub(super) stamped: Option<StampedChange>,
}

impl Release {
    /// The list that changes.
    pub(super) fn list(&self) -> Option<(ListKind, ListHash, Position)> {
        match self {
            Release::Change(change) => change.list,
            Release::Changes(changes) => changes.list,
            Release::SameList(list) => Some(*list),
            _ => None,
        }
    }

    /// Answers a change that the store could not keep.
    pub(super) fn refuse(self, error: &PublishError, etag: &mut EtagActor) {
        let metrics = &etag.shards.metrics;
        match self {
            Release::Change(change) => change.finish.refuse(error, metrics),
            Release::Changes(changes) => changes.refuse(error, metrics),
            Release::Done(reply) => reply.answer(()),
            // The Registry sends it in front of the changes of its batch, so it depends on none of them.
            Release::AttachQueue(attach, at) => etag.release_queue(attach, at),
            // The Registry sends lists again, and all other requests do not wait for the store.
            _ => {}
        }
    }

    /// Replies, or passes the request on to the shards.
    pub(super) fn run(self, etag: &mut EtagActor) {
        let shards = &mut etag.shards;
        match self {
            Release::Change(change) => change.run(shards, &etag.etag_index),
            Release::Changes(changes) => changes.run(shards, &etag.etag_index),
            Release::Resources(reply, found) => reply.answer(found),
            Release::Subscribe(subscriptions) => shards.subscribe(subscriptions),
            Release::WatchLists(watches) => {
                shards.send(watches.outbox.shard(), ShardRequest::AddListWatches(watches));
            }
            Release::Settle(settle, at) => {
                shards.send(settle.outbox.shard(), ShardRequest::Settle(settle, at));
            }
            Release::Shown(kind, hashes) => shards.show_list(kind, &hashes),
            Release::SameList(list) => shards.repeat_list(list),
            Release::Done(reply) => reply.answer(()),
            Release::AttachQueue(attach, at) => etag.release_queue(attach, at),
            Release::Finish(finish) => shards.finish(finish),
            Release::Route(route) if matches!(route.request, SubscriberRequest::Move) => {
                shards.move_subscriber(&route.outbox);
            }
            Release::Route(route) => {
                if matches!(route.request, SubscriberRequest::Watch(..)) {
                    shards.expect_everything(route.outbox.shard());
                }
                shards.send(route.outbox.shard(), ShardRequest::Route(route));
            }
        }
    }
}

impl ReleasedChange {
    fn run(self, shards: &mut Shards, etag_index: &EtagIndex) {
        // Not before, since a change that the store cannot keep counts as refused.
        match &self.finish {
            Finish::Change(_, outcome) => shards.metrics.count_change(outcome.changed),
            // The removal of a resource that no owner claimed. Changes of lists are counted apart.
            _ if self.effect.stamped.is_some() => shards.metrics.count_change(true),
            _ => {}
        }
        match (self.effect.show(etag_index), self.list) {
            (stamped, Some(list)) => shards.notify_list(stamped, list, self.finish),
            (Some(stamped), None) => shards.notify(stamped, self.finish),
            (None, None) => self.finish.answer(0, 0, &shards.metrics),
        }
    }
}

impl ReleasedChanges {
    fn refuse(mut self, error: &PublishError, metrics: &Metrics) {
        for result in &mut self.results {
            if result.is_ok() {
                metrics.count_refusal(error);
                *result = Err(error.clone());
            }
        }
        self.reply.answer(self.results);
    }

    fn run(self, shards: &mut Shards, etag_index: &EtagIndex) {
        let metrics = shards.metrics.clone();
        for outcome in self.results.iter().flatten() {
            metrics.count_change(outcome.changed);
        }
        let completion = Arc::new(ManyCompletion::new(self.results, self.reply, metrics));
        for (place, effect) in self.effects {
            if let Some(stamped) = effect.show(etag_index) {
                shards.notify(stamped, Finish::OneOfMany(completion.clone(), place));
            }
        }
        if let Some(list) = self.list {
            shards.notify_list(None, list, Finish::ListOfMany(completion));
        }
    }
}

impl ChangeEffect {
    /// Makes the change visible to readers. Returns the notice for the subscribers.
    fn show(self, etag_index: &EtagIndex) -> Option<StampedChange> {
        if let Some((uri, entry)) = self.indexed {
            // Before any subscriber is notified: a notified one must not find the version before in the
            // index.
            etag_index.set(uri, entry);
        }
        self.stamped
    }
}
