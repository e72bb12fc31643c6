//! Requests that wait until every record before them is durable.

use crate::messages::{
    AddListWatches, AddSubscriptions, AttachQueue, Finish, Found, IndexedResource, Route, ShardRequest,
    SubscriberRequest,
};
use crate::model::{Etag, ListHash, ListKind, Position, ResourceUri};
use crate::runtime::Reply;

use super::etag_index::EtagIndex;
use super::fan_out::{Shards, StampedChange};

/// A request in its place in the order of the bus.
pub(super) enum Release {
    Change(ReleasedChange),
    Resources(Reply<Vec<Option<(Found, Etag)>>>, Vec<Option<(Found, Etag)>>),
    Subscribe(AddSubscriptions),
    WatchLists(AddListWatches),
    /// A list that every session compares with what it was told, although it is the same as before the
    /// restart.
    SameList((ListKind, ListHash, Position)),
    Started(Reply<()>),
    AttachQueue(AttachQueue, Position),
    Route(Route),
}

/// A change of a resource, of a list, or of both.
pub(super) struct ReleasedChange {
    /// The new entry of the etag index.
    pub(super) indexed: Option<(ResourceUri, Option<IndexedResource>)>,
    pub(super) stamped: Option<StampedChange>,
    pub(super) list: Option<(ListKind, ListHash, Position)>,
    pub(super) finish: Finish,
}

impl Release {
    /// Replies, or passes the request on to the shards.
    pub(super) fn run(self, shards: &mut Shards, etag_index: &EtagIndex) {
        match self {
            Release::Change(change) => change.run(shards, etag_index),
            Release::Resources(reply, found) => reply.answer(found),
            Release::Subscribe(subscriptions) => shards.subscribe(subscriptions),
            Release::WatchLists(watches) => {
                shards.send(watches.outbox.shard(), ShardRequest::AddListWatches(watches));
            }
            Release::SameList(list) => shards.repeat_list(list),
            Release::Started(reply) => reply.answer(()),
            Release::AttachQueue(attach, at) => {
                shards.add_queue(attach.state);
                attach.reply.answer(at);
            }
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
        if let Some((uri, entry)) = self.indexed {
            // Before any subscriber is notified: a notified one must not find the version before in the
            // index.
            etag_index.set(uri, entry);
        }
        match (self.stamped, self.list) {
            (stamped, Some(list)) => shards.notify_list(stamped, list, self.finish),
            (Some(stamped), None) => shards.notify(stamped, self.finish),
            (None, None) => self.finish.answer(0, 0, &shards.metrics),
        }
    }
}
