//! The protocol between the actors, on one page, grouped by receiver.
//!
//! Owns: the messages. Never: behaviour. Every request walks one way, Registry → Etag → Publisher, and the last actor
//! that adds to it answers the ticket it carries. Requests of subscribers walk the same way, so a subscription and a
//! change are in the same order everywhere. Commands are imperatives; facts are in the past tense.

mod completion;
mod decision;

use std::sync::Arc;

use actix::Message;
use tokio::sync::OwnedSemaphorePermit;

use crate::model::{
    Change, Condition, DeliveryStatus, EndReason, Etag, Filter, ListChange, ListHash, ListKind, ListOutcome,
    Notice, Outcome, Position, Prompt, PublishError, Resource, ResourceTemplate, ResourceUri, SubscribeError,
    SubscriberId, SubscriberInfo, SubscriberPage, Tool,
};
use crate::outbox::Outbox;
use crate::runtime::Reply;
use crate::sink::AttachmentState;
pub(crate) use completion::{Completion, Finish};
pub(crate) use decision::{Decision, Effect, Found, Known};

macro_rules! messages {
    ($($name:ty),* $(,)?) => { $(impl Message for $name { type Result = (); })* };
}

// ── Registry ────────────────────────────────────────────────────────────────────────────────────────────────────

/// From the bus: make this change. Goes on as [`Stamp`].
pub(crate) struct Publish {
    pub(crate) change: Change,
    pub(crate) condition: Condition,
    /// Seconds since 1970, for the etag.
    pub(crate) now: u64,
    pub(crate) reply: Reply<Result<Outcome, PublishError>>,
}

/// From the bus: make this change to a list. Goes on as [`StampList`].
pub(crate) struct PublishList {
    pub(crate) change: ListChange,
    pub(crate) now: u64,
    pub(crate) reply: Reply<Result<ListOutcome, PublishError>>,
}

/// From the bus: what does `uri` stand for, and at which version? Goes on as [`StampRead`].
pub(crate) struct Read {
    pub(crate) uri: ResourceUri,
    pub(crate) reply: Reply<Option<(Found, Etag)>>,
}

/// From the bus: which versions do these have? Goes on as [`StampEtags`].
pub(crate) struct GetEtags {
    pub(crate) uris: Vec<ResourceUri>,
    pub(crate) reply: Reply<Vec<Option<Etag>>>,
}

/// From the bus: the resources after `after`. Goes on as [`StampPage`].
pub(crate) struct PageResources {
    pub(crate) after: Option<String>,
    pub(crate) limit: usize,
    pub(crate) reply: Reply<Vec<(Arc<Resource>, Etag)>>,
}

/// From the bus: the items of a list that has no versions. Answered by the Registry.
pub(crate) enum Lookup {
    Tools {
        after: Option<String>,
        limit: usize,
        reply: Reply<Vec<Arc<Tool>>>,
    },
    Prompts {
        after: Option<String>,
        limit: usize,
        reply: Reply<Vec<Arc<Prompt>>>,
    },
    Templates(Reply<Vec<Arc<ResourceTemplate>>>),
    Tool(String, Reply<Option<Arc<Tool>>>),
    Prompt(String, Reply<Option<Arc<Prompt>>>),
    /// May a client subscribe to it?
    Subscribable(ResourceUri, Reply<Result<(), SubscribeError>>),
    Counts(Reply<[usize; 4]>),
}

/// From a session: subscribe to these. Goes on as [`StampSubscribe`].
pub(crate) struct Subscribe {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) uris: Vec<ResourceUri>,
    /// How many subscriptions the subscriber may have.
    pub(crate) max: usize,
    /// Whether it may subscribe to what clients may not.
    pub(crate) trusted: bool,
    pub(crate) reply: Reply<Vec<Result<Etag, SubscribeError>>>,
}

/// From a session: tell this subscriber when one of these lists changes. Goes on as [`StampWatchLists`].
pub(crate) struct WatchLists {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) kinds: Vec<ListKind>,
    /// Whether it counts as told of nothing yet, so that every list that is not empty is due at once.
    pub(crate) announce: bool,
    pub(crate) reply: Reply<()>,
}

// ── Registry and Etag, unchanged on its way to the Publisher ────────────────────────────────────────────────────

/// From a session to its shard: what needs no decision, only its place in the order.
pub(crate) struct Route {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) request: SubscriberRequest,
}

pub(crate) enum SubscriberRequest {
    /// This subscriber is there. Depends on no record, so it does not wait for the store.
    Attach(Reply<()>),
    /// Tell it about every resource that the filter wants, of which this many may wait.
    Watch(Arc<Filter>, usize, Reply<()>),
    /// End this subscription; answers whether there was one.
    Unsubscribe(ResourceUri, Reply<bool>),
    /// Its stream is carried by another shard from now on, the one its outbox names when this arrives. The Etag actor
    /// turns it into Release and Adopt.
    Move,
    /// From the Etag actor: another shard tells it from now on.
    HandOver,
    /// From the Etag actor: you tell it from now on, with the subscriptions it has.
    TakeOver,
    /// It is gone, and with this its place among the sessions the bus allows.
    Detach(Option<OwnedSemaphorePermit>),
}

// ── Etag ────────────────────────────────────────────────────────────────────────────────────────────────────────

/// From the Registry: this was decided. Goes on as [`FanOut`] when anybody is to be told.
pub(crate) struct Stamp {
    pub(crate) decision: crate::messages::decision::Decision,
    pub(crate) now: u64,
    pub(crate) reply: Reply<Result<Outcome, PublishError>>,
}

/// From the Registry: this list has this hash now. Goes on as [`FanOut`].
pub(crate) struct StampList {
    pub(crate) list: (ListKind, ListHash),
    pub(crate) reply: Reply<Result<ListOutcome, PublishError>>,
}

/// From the Registry: add the version and answer.
pub(crate) struct StampRead {
    pub(crate) uri: ResourceUri,
    pub(crate) found: Option<Found>,
    pub(crate) reply: Reply<Option<(Found, Etag)>>,
}

/// From the Registry: add the versions and answer.
pub(crate) struct StampEtags {
    pub(crate) uris: Vec<(ResourceUri, Known)>,
    pub(crate) reply: Reply<Vec<Option<Etag>>>,
}

/// From the Registry: add the versions and answer.
pub(crate) struct StampPage {
    pub(crate) resources: Vec<Arc<Resource>>,
    pub(crate) reply: Reply<Vec<(Arc<Resource>, Etag)>>,
}

/// From the Registry: these may be subscribed to. Goes on as [`AddSubscriptions`].
pub(crate) struct StampSubscribe {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) verdicts: Vec<Result<(ResourceUri, Known), SubscribeError>>,
    pub(crate) max: usize,
    pub(crate) reply: Reply<Vec<Result<Etag, SubscribeError>>>,
}

/// From the Registry: the lists stand at these hashes. Goes on as [`AddListWatches`].
pub(crate) struct StampWatchLists {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) lists: Vec<(ListKind, ListHash)>,
    pub(crate) announce: bool,
    pub(crate) reply: Reply<()>,
}

/// From the bus by way of the Registry: this queue takes every notice from here on. Goes on as [`AddQueue`].
pub(crate) struct AttachQueue {
    pub(crate) state: Arc<AttachmentState>,
    pub(crate) reply: Reply<Position>,
}

/// From the store's thread: the batch in flight is durable, or the store failed.
pub(crate) struct BatchStored(pub(crate) Result<(), crate::model::StoreError>);

// ── Publisher ───────────────────────────────────────────────────────────────────────────────────────────────────

/// From the Etag actor to every shard in which somebody may want it: tell your share of the subscribers.
#[derive(Clone)]
pub(crate) struct FanOut {
    pub(crate) notice: Option<Arc<Notice>>,
    pub(crate) list: Option<(ListKind, ListHash, Position)>,
    /// Answers the caller when the last shard is done.
    pub(crate) completion: Arc<Completion>,
}

/// From the Etag actor: these subscriptions begin here, at these versions.
pub(crate) struct AddSubscriptions {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) verdicts: Vec<Result<(ResourceUri, Etag), SubscribeError>>,
    pub(crate) at: Position,
    pub(crate) max: usize,
    pub(crate) reply: Reply<Vec<Result<Etag, SubscribeError>>>,
}

/// From the Etag actor: this subscriber watches these lists from here on.
pub(crate) struct AddListWatches {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) lists: Vec<(ListKind, ListHash)>,
    pub(crate) announce: bool,
    pub(crate) at: Position,
    pub(crate) reply: Reply<()>,
}

/// From the bus: who is there (with a URI: who is subscribed to it), and how do the `limit` slowest of them stand?
pub(crate) struct ListSubscribers {
    pub(crate) uri: Option<ResourceUri>,
    pub(crate) limit: usize,
    pub(crate) reply: Reply<SubscriberPage>,
}

/// From the Etag actor: this queue takes every notice its filter wants, from the one after `at` on.
pub(crate) struct AddQueue {
    pub(crate) state: Arc<AttachmentState>,
    pub(crate) at: Position,
    pub(crate) reply: Reply<Position>,
}

/// From the bus: what about the subscriber of this name? Answers none when it is not among yours.
pub(crate) struct QuerySubscriber {
    pub(crate) id: SubscriberId,
    pub(crate) question: SubscriberQuery,
}

pub(crate) enum SubscriberQuery {
    /// How does it stand?
    Info(Reply<Option<SubscriberInfo>>),
    /// What of this resource was it told?
    Explain(ResourceUri, Reply<Option<DeliveryStatus>>),
    /// End it, for this reason.
    Evict(EndReason, Reply<Option<()>>),
}

/// From the bus: how many readers are open?
pub(crate) struct CountReaders(pub(crate) Reply<usize>);

/// From the bus: the end; hand out what is pending, then say so.
pub(crate) struct EndAll(pub(crate) EndReason);

// ── Session ─────────────────────────────────────────────────────────────────────────────────────────────────────

/// From the session's handle: subscribe to these. Goes on as [`Subscribe`].
pub(crate) struct SubscribeUris(
    pub(crate) Vec<ResourceUri>,
    pub(crate) Reply<Vec<Result<Etag, SubscribeError>>>,
);

/// From the session's handle. Goes on as [`SubscriberRequest::Unsubscribe`].
pub(crate) struct UnsubscribeUri(pub(crate) ResourceUri, pub(crate) Reply<bool>);

/// From the session's handle: the client can be told things from now on. Goes on as [`WatchLists`].
pub(crate) struct ClientReady(pub(crate) Reply<()>);

/// From the session's handle. Goes on as [`SubscriberRequest::Watch`].
pub(crate) struct WatchFiltered(pub(crate) Arc<Filter>, pub(crate) usize, pub(crate) Reply<()>);

/// From the session's handle: its stream is carried by another shard.
pub(crate) struct StreamMoved;

/// From the session's handle, its being dropped, or its outbox that was evicted.
pub(crate) struct EndSession(pub(crate) EndReason);

messages!(
    Publish,
    PublishList,
    Read,
    GetEtags,
    PageResources,
    Lookup,
    Subscribe,
    WatchLists,
    Route
);
messages!(
    Stamp,
    StampList,
    StampRead,
    StampEtags,
    StampPage,
    StampSubscribe,
    StampWatchLists,
    AttachQueue,
    BatchStored
);
messages!(
    FanOut,
    AddSubscriptions,
    AddListWatches,
    AddQueue,
    ListSubscribers,
    QuerySubscriber,
    CountReaders,
    EndAll
);
messages!(
    SubscribeUris,
    UnsubscribeUri,
    ClientReady,
    WatchFiltered,
    StreamMoved,
    EndSession
);
