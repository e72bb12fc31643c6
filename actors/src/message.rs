//! The protocol between the actors, on one page, grouped by receiver.
//!
//! Owns: the messages. Never: behaviour. Every request walks one way, Registry → Etag → Publisher, and the last actor
//! that adds to it answers the ticket it carries. Requests of subscribers walk the same way, so a subscription and a
//! change are in the same order everywhere. Commands are imperatives; facts are in the past tense.

use std::sync::Arc;

use actix::Message;
use tokio::sync::OwnedSemaphorePermit;

use crate::attach::State;
use crate::catalog::{Found, Known};
use crate::change::{Change, Condition, ListChange, ListOutcome, Outcome};
use crate::door::Ticket;
use crate::error::{PublishError, SubscribeError};
use crate::outbox::{EndReason, Outbox};
use crate::publisher::Completion;
use crate::subscriber::{Explanation, SubscriberId, SubscriberInfo, Surveyed};
use crate::{
    Etag, Filter, ListHash, ListKind, Notice, Position, Prompt, Resource, ResourceTemplate, ResourceUri, Tool,
};

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
    pub(crate) ticket: Ticket<Result<Outcome, PublishError>>,
}

/// From the bus: make this change to a list. Goes on as [`StampList`].
pub(crate) struct PublishList {
    pub(crate) change: ListChange,
    pub(crate) now: u64,
    pub(crate) ticket: Ticket<Result<ListOutcome, PublishError>>,
}

/// From the bus: what does `uri` stand for, and at which version? Goes on as [`StampRead`].
pub(crate) struct Read {
    pub(crate) uri: ResourceUri,
    pub(crate) ticket: Ticket<Option<(Found, Etag)>>,
}

/// From the bus: which versions do these have? Goes on as [`StampLook`].
pub(crate) struct Look {
    pub(crate) uris: Vec<ResourceUri>,
    pub(crate) ticket: Ticket<Vec<Option<Etag>>>,
}

/// From the bus: the resources after `after`. Goes on as [`StampPage`].
pub(crate) struct PageResources {
    pub(crate) after: Option<String>,
    pub(crate) limit: usize,
    pub(crate) ticket: Ticket<Vec<(Arc<Resource>, Etag)>>,
}

/// From the bus: the items of a list that has no versions. Answered by the Registry.
pub(crate) enum Find {
    Tools {
        after: Option<String>,
        limit: usize,
        ticket: Ticket<Vec<Arc<Tool>>>,
    },
    Prompts {
        after: Option<String>,
        limit: usize,
        ticket: Ticket<Vec<Arc<Prompt>>>,
    },
    Templates(Ticket<Vec<Arc<ResourceTemplate>>>),
    Tool(String, Ticket<Option<Arc<Tool>>>),
    Prompt(String, Ticket<Option<Arc<Prompt>>>),
    /// May a client subscribe to it?
    Subscribable(ResourceUri, Ticket<Result<(), SubscribeError>>),
    Counts(Ticket<[usize; 4]>),
}

/// From a session: subscribe to these. Goes on as [`StampSubscribe`].
pub(crate) struct Subscribe {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) uris: Vec<ResourceUri>,
    /// How many subscriptions the subscriber may have.
    pub(crate) max: usize,
    /// Whether it may subscribe to what clients may not.
    pub(crate) trusted: bool,
    pub(crate) ticket: Ticket<Vec<Result<Etag, SubscribeError>>>,
}

/// From a session: tell this subscriber when one of these lists changes. Goes on as [`StampWatchLists`].
pub(crate) struct WatchLists {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) kinds: Vec<ListKind>,
    /// Whether it counts as told of nothing yet, so that every list that is not empty is due at once.
    pub(crate) announce: bool,
    pub(crate) ticket: Ticket<()>,
}

// ── Registry and Etag, unchanged on its way to the Publisher ────────────────────────────────────────────────────

/// From a session to its shard: what needs no decision, only its place in the order.
pub(crate) struct Route {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) request: Request,
}

pub(crate) enum Request {
    /// This subscriber is there. Depends on no record, so it does not wait for the store.
    Attach(Ticket<()>),
    /// Tell it about every resource that the filter wants, of which this many may wait.
    Watch(Arc<Filter>, usize, Ticket<()>),
    /// End this subscription; answers whether there was one.
    Unsubscribe(ResourceUri, Ticket<bool>),
    /// Its stream is carried by another shard from now on, the one its outbox names when this arrives. The Etag actor
    /// turns it into Release and Adopt.
    Move,
    /// From the Etag actor: another shard tells it from now on.
    Release,
    /// From the Etag actor: you tell it from now on, with the subscriptions it has.
    Adopt,
    /// It is gone, and with this its place among the sessions the bus allows.
    Detach(Option<OwnedSemaphorePermit>),
}

// ── Etag ────────────────────────────────────────────────────────────────────────────────────────────────────────

/// From the Registry: this was decided. Goes on as [`Fan`] when anybody is to be told.
pub(crate) struct Stamp {
    pub(crate) decision: crate::catalog::Decision,
    pub(crate) now: u64,
    pub(crate) ticket: Ticket<Result<Outcome, PublishError>>,
}

/// From the Registry: this list has this hash now. Goes on as [`Fan`].
pub(crate) struct StampList {
    pub(crate) list: (ListKind, ListHash),
    pub(crate) ticket: Ticket<Result<ListOutcome, PublishError>>,
}

/// From the Registry: add the version and answer.
pub(crate) struct StampRead {
    pub(crate) uri: ResourceUri,
    pub(crate) found: Option<Found>,
    pub(crate) ticket: Ticket<Option<(Found, Etag)>>,
}

/// From the Registry: add the versions and answer.
pub(crate) struct StampLook {
    pub(crate) uris: Vec<(ResourceUri, Known)>,
    pub(crate) ticket: Ticket<Vec<Option<Etag>>>,
}

/// From the Registry: add the versions and answer.
pub(crate) struct StampPage {
    pub(crate) resources: Vec<Arc<Resource>>,
    pub(crate) ticket: Ticket<Vec<(Arc<Resource>, Etag)>>,
}

/// From the Registry: these may be subscribed to. Goes on as [`Enlist`].
pub(crate) struct StampSubscribe {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) verdicts: Vec<Result<(ResourceUri, Known), SubscribeError>>,
    pub(crate) max: usize,
    pub(crate) ticket: Ticket<Vec<Result<Etag, SubscribeError>>>,
}

/// From the Registry: the lists stand at these hashes. Goes on as [`EnlistLists`].
pub(crate) struct StampWatchLists {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) lists: Vec<(ListKind, ListHash)>,
    pub(crate) announce: bool,
    pub(crate) ticket: Ticket<()>,
}

/// From the bus by way of the Registry: this queue takes every notice from here on. Goes on as [`EnlistQueue`].
pub(crate) struct AttachQueue {
    pub(crate) state: Arc<State>,
    pub(crate) ticket: Ticket<Position>,
}

/// From the store's thread: the batch in flight is durable, or the store failed.
pub(crate) struct BatchStored(pub(crate) Result<(), crate::StoreError>);

// ── Publisher ───────────────────────────────────────────────────────────────────────────────────────────────────

/// From the Etag actor to every shard in which somebody may want it: tell your share of the subscribers.
#[derive(Clone)]
pub(crate) struct Fan {
    pub(crate) notice: Option<Arc<Notice>>,
    pub(crate) list: Option<(ListKind, ListHash, Position)>,
    /// Answers the caller when the last shard is done.
    pub(crate) completion: Arc<Completion>,
}

/// From the Etag actor: these subscriptions begin here, at these versions.
pub(crate) struct Enlist {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) verdicts: Vec<Result<(ResourceUri, Etag), SubscribeError>>,
    pub(crate) at: Position,
    pub(crate) max: usize,
    pub(crate) ticket: Ticket<Vec<Result<Etag, SubscribeError>>>,
}

/// From the Etag actor: this subscriber watches these lists from here on.
pub(crate) struct EnlistLists {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) lists: Vec<(ListKind, ListHash)>,
    pub(crate) announce: bool,
    pub(crate) at: Position,
    pub(crate) ticket: Ticket<()>,
}

/// From the bus: who is there (with a URI: who is subscribed to it), and how do the `limit` slowest of them stand?
pub(crate) struct Survey {
    pub(crate) uri: Option<ResourceUri>,
    pub(crate) limit: usize,
    pub(crate) ticket: Ticket<Surveyed>,
}

/// From the Etag actor: this queue takes every notice its filter wants, from the one after `at` on.
pub(crate) struct EnlistQueue {
    pub(crate) state: Arc<State>,
    pub(crate) at: Position,
    pub(crate) ticket: Ticket<Position>,
}

/// From the bus: what about the subscriber of this name? Answers none when it is not among yours.
pub(crate) struct Ask {
    pub(crate) id: SubscriberId,
    pub(crate) question: Question,
}

pub(crate) enum Question {
    /// How does it stand?
    Info(Ticket<Option<SubscriberInfo>>),
    /// What of this resource was it told?
    Explain(ResourceUri, Ticket<Option<Explanation>>),
    /// End it, for this reason.
    Evict(EndReason, Ticket<Option<()>>),
}

/// From the bus: how many readers are open?
pub(crate) struct CountReaders(pub(crate) Ticket<usize>);

/// From the bus: the end; hand out what is pending, then say so.
pub(crate) struct EndAll(pub(crate) EndReason);

// ── Session ─────────────────────────────────────────────────────────────────────────────────────────────────────

/// From the session's handle: subscribe to these. Goes on as [`Subscribe`].
pub(crate) struct SubscribeUris(
    pub(crate) Vec<ResourceUri>,
    pub(crate) Ticket<Vec<Result<Etag, SubscribeError>>>,
);

/// From the session's handle. Goes on as [`Request::Unsubscribe`].
pub(crate) struct UnsubscribeUri(pub(crate) ResourceUri, pub(crate) Ticket<bool>);

/// From the session's handle: the client can be told things from now on. Goes on as [`WatchLists`].
pub(crate) struct ClientReady(pub(crate) Ticket<()>);

/// From the session's handle. Goes on as [`Request::Watch`].
pub(crate) struct WatchFiltered(pub(crate) Arc<Filter>, pub(crate) usize, pub(crate) Ticket<()>);

/// From the session's handle: its stream is carried by another shard.
pub(crate) struct StreamMoved;

/// From the session's handle, its being dropped, or its outbox that was evicted.
pub(crate) struct EndSession(pub(crate) EndReason);

messages!(
    Publish,
    PublishList,
    Read,
    Look,
    PageResources,
    Find,
    Subscribe,
    WatchLists,
    Route
);
messages!(
    Stamp,
    StampList,
    StampRead,
    StampLook,
    StampPage,
    StampSubscribe,
    StampWatchLists,
    AttachQueue,
    BatchStored
);
messages!(
    Fan,
    Enlist,
    EnlistLists,
    EnlistQueue,
    Survey,
    Ask,
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
