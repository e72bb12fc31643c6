//! The messages between the actors, grouped by receiver.
//!
//! Every request walks one way, Registry → Etag → Publisher, and carries the [`Reply`] that the last actor
//! with something to add sends. Requests of subscribers walk the same way, so subscriptions and changes
//! share one order.

mod applied;
mod completion;
mod decision;
mod session;
mod subscription;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use actix::Message;
use tokio::sync::OwnedSemaphorePermit;

use crate::model::{
    Change, Condition, DeliveryStatus, EndReason, Etag, Filter, ListChange, ListHash, ListKind, ListOutcome,
    ListQuery, ListStart, Notice, Outcome, Owner, Position, Prompt, PublishError, Resource, ResourceTemplate,
    ResourceUri, StoreError, SubscribeError, SubscriberFilter, SubscriberId, SubscriberInfo, SubscriberPage,
    SubscriptionRequest, SubscriptionRules, ToldResource, Tool,
};
use crate::outbox::{AudienceHashes, JoinedAudience, Outbox};
use crate::runtime::Reply;
use crate::sink::{AttachmentState, NewestChanges};
pub(crate) use applied::{AppliedList, AppliedRecord, ForgetRemoved, HeardBatch, LogEnded, Logged};
pub(crate) use completion::{BatchAnswer, Completion, Finish, ManyCompletion};
pub(crate) use decision::{Decision, Effect, FamilyChange, FamilyId, Found, IndexedResource, Known};
pub(crate) use session::{ClientReady, EndSession, RightsJudged, StreamMoved, WatchFiltered};
pub(crate) use subscription::{
    AcceptedSubscription, ResumeLists, ResumeUris, ResumedNotice, ResumedSubscription, StampedSubscription,
    SubscribeUris, UnsubscribeUri,
};

macro_rules! messages {
    ($($name:ty),* $(,)?) => { $(impl Message for $name { type Result = (); })* };
}

// ── Registry ────────────────────────────────────────

/// A request in the inbox of the Registry, which handles them in the order in which they were pushed.
pub(crate) enum RegistryRequest {
    Publish(Publish),
    PublishMany(PublishMany),
    AnnounceList(AnnounceList),
    MembersChanged(MembersChanged),
    PublishList(PublishList),
    Lookup(Lookup),
    Route(Route),
    AttachQueue(AttachQueue),
    Cursors(CursorRequest),
    RemoveUnclaimed(RemoveUnclaimed),
    FinishStart(FinishStart),
    ForgetRemoved(ForgetRemoved),
}

macro_rules! registry_requests {
    ($($name:ident),* $(,)?) => {
        $(impl From<$name> for RegistryRequest {
            fn from(request: $name) -> RegistryRequest {
                RegistryRequest::$name(request)
            }
        })*
    };
}

registry_requests!(
    Publish,
    PublishMany,
    AnnounceList,
    MembersChanged,
    PublishList,
    Lookup,
    Route,
    AttachQueue,
    RemoveUnclaimed,
    FinishStart,
    ForgetRemoved
);

impl From<CursorRequest> for RegistryRequest {
    fn from(request: CursorRequest) -> RegistryRequest {
        RegistryRequest::Cursors(request)
    }
}

/// A change to a resource, from the bus.
pub(crate) struct Publish {
    pub(crate) change: Change,
    pub(crate) condition: Condition,
    pub(crate) owner: Owner,
    /// Seconds since 1970, for the etag.
    pub(crate) now: u64,
    pub(crate) reply: Reply<Result<Outcome, PublishError>>,
}

/// Changes to resources that are decided, stored and answered together, from the bus.
pub(crate) struct PublishMany {
    pub(crate) changes: Vec<(Change, Condition)>,
    /// The owner of the handle.
    pub(crate) owner: Owner,
    /// Leaves a change of the resource list unannounced until [`AnnounceList`].
    pub(crate) in_burst: bool,
    /// The time after which a shared log takes none of them.
    pub(crate) deadline: Option<Instant>,
    /// Seconds since 1970, for the etags.
    pub(crate) now: u64,
    pub(crate) reply: Reply<Vec<Result<Outcome, PublishError>>>,
}

/// The end of a burst, whose change of the resource list is announced now; from the bus.
pub(crate) struct AnnounceList(pub(crate) Option<Reply<Result<ListOutcome, PublishError>>>);

/// The subscribed members of a template that was added, removed or given another reader; from the bus.
pub(crate) struct MembersChanged {
    /// The text of the template.
    pub(crate) template: String,
    pub(crate) uris: BTreeSet<ResourceUri>,
    /// Seconds since 1970, for the etags.
    pub(crate) now: u64,
    pub(crate) reply: Reply<Vec<Result<Outcome, PublishError>>>,
}

/// A change to a list, from the bus.
pub(crate) struct PublishList {
    pub(crate) change: ListChange,
    pub(crate) now: u64,
    /// None once it is answered.
    pub(crate) reply: Option<Reply<Result<ListOutcome, PublishError>>>,
}

/// Removes the URIs of former lives that this owner has not registered again; from the bus.
pub(crate) struct RemoveUnclaimed {
    pub(crate) owner: Owner,
    pub(crate) now: u64,
    /// The number of removed URIs; none once it is answered.
    pub(crate) reply: Option<Reply<usize>>,
}

/// Ends the start: from here on, changes of lists are announced one by one; from the bus, or from the
/// Registry itself when the start takes too long.
pub(crate) struct FinishStart(pub(crate) Option<Reply<()>>);

/// A question of the bus about registered items.
pub(crate) enum Lookup {
    /// Finds each URI with its etag, all at one point in the order of changes.
    Resources(Vec<ResourceUri>, Reply<Vec<Option<(Found, Etag)>>>),
    ResourcePage(ListQuery, Reply<Scanned<(Arc<Resource>, Etag)>>),
    Tools(ListQuery, Reply<Scanned<Arc<Tool>>>),
    Prompts(ListQuery, Reply<Scanned<Arc<Prompt>>>),
    Templates(Reply<Vec<Arc<ResourceTemplate>>>),
    Tool(String, Reply<Option<Arc<Tool>>>),
    Prompt(String, Reply<Option<Arc<Prompt>>>),
    /// Checks that a client may subscribe to the URI.
    Subscribable(ResourceUri, Reply<Result<(), SubscribeError>>),
    Counts(Reply<[usize; 4]>),
}

/// A part of a page.
pub(crate) struct Scanned<T> {
    pub(crate) found: Vec<T>,
    /// The name of the last item that was looked at, if there may be more after it.
    pub(crate) go_on: Option<String>,
}

/// A request of one subscriber, from its session and on to its shard, in one order with all changes.
pub(crate) struct Route {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) request: SubscriberRequest,
}

pub(crate) enum SubscriberRequest {
    /// Adds the subscriber to its shard. Depends on no record, so it does not wait for the store.
    Attach(Reply<()>),
    /// Subscribes to each resource. The Registry turns it into [`EtagRequest::Subscribe`].
    Subscribe {
        requests: Vec<SubscriptionRequest>,
        rules: SubscriptionRules,
        reply: Reply<Vec<Result<Etag, SubscribeError>>>,
    },
    /// Goes on with the subscriptions of another node. The Registry turns it into [`EtagRequest::Subscribe`].
    Resume {
        told: Vec<ToldResource>,
        /// False if the other node may have told more by now.
        is_sure: bool,
        reply: Reply<Vec<Result<Etag, SubscribeError>>>,
    },
    /// Notifies of changes of these lists. The Registry turns it into [`EtagRequest::WatchLists`].
    WatchLists {
        kinds: Vec<ListKind>,
        start: ListStart,
        reply: Reply<()>,
    },
    /// Notifies of every resource that the filter accepts; at most this many wait at once.
    Watch(Arc<Filter>, usize, Reply<()>),
    /// Ends a subscription; the reply is true if there was one.
    Unsubscribe(ResourceUri, Reply<bool>),
    /// Ends the hidden subscriptions, and compares these lists with what the subscriber sees now. The
    /// Registry turns it into [`EtagRequest::Settle`].
    Settle(Vec<ListKind>),
    /// Moves the subscriber to the shard that its outbox names by then. The Etag actor turns it into
    /// `HandOver` and `TakeOver`.
    Move,
    /// Tells the old shard that another one serves the subscriber from here on.
    HandOver,
    /// Tells the new shard that it serves the subscriber, with its subscriptions, from here on.
    TakeOver,
    /// Removes the subscriber and returns its place among the sessions the bus allows.
    Detach(Option<OwnedSemaphorePermit>),
}

/// Adds a queue that takes every notice from here on, or resumes a subscriber; from the bus, through the
/// Registry.
pub(crate) struct AttachQueue {
    pub(crate) state: Arc<AttachmentState>,
    /// The most changes from before that the reply may have.
    pub(crate) newest_max: usize,
    pub(crate) reply: Reply<AttachedAt>,
}

/// The place in the order of the bus at which a subscriber was attached.
pub(crate) struct AttachedAt {
    pub(crate) position: Position,
    pub(crate) newest: NewestChanges,
}

/// A request about the cursors of subscribers that resume; from the bus, through the Registry.
pub(crate) enum CursorRequest {
    /// Makes all cursors durable as they are now.
    Keep(Reply<()>),
    /// Forgets the cursor of this name.
    Forget(Arc<str>, Reply<()>),
}

// ── Etag ────────────────────────────────────────

/// Everything the Registry decided in one turn, in order.
pub(crate) struct EtagBatch(pub(crate) Vec<EtagRequest>);

pub(crate) enum EtagRequest {
    /// Gives a decided change its version.
    Change {
        decision: Decision,
        now: u64,
        reply: Reply<Result<Outcome, PublishError>>,
    },
    Changes(DecidedChanges),
    /// Places a changed list in the order of the bus.
    List {
        list: (ListKind, ListHash),
        reply: Reply<Result<ListOutcome, PublishError>>,
    },
    /// Brings a list that is the same as before the restart to the sessions that saw it grow.
    SameList((ListKind, ListHash)),
    /// Places a list that changed while the bus was down or started.
    StartedList((ListKind, ListHash)),
    /// Removes URIs that no owner claims.
    Unclaimed {
        uris: Vec<ResourceUri>,
        now: u64,
        reply: Option<Reply<usize>>,
    },
    /// Notes since when these URIs wait for their owners.
    MarkUnclaimed(Vec<ResourceUri>, u64),
    /// Replies when everything before it is durable.
    Started(Reply<()>),
    /// Adds the etags to the found resources and replies.
    Resources {
        found: Vec<(ResourceUri, Option<Found>)>,
        reply: Reply<Vec<Option<(Found, Etag)>>>,
    },
    /// Begins the subscriptions that the Registry accepted.
    Subscribe {
        outbox: Arc<Outbox>,
        accepted: Vec<Result<AcceptedSubscription, SubscribeError>>,
        rules: SubscriptionRules,
        reply: Reply<Vec<Result<Etag, SubscribeError>>>,
    },
    /// Begins to watch lists that have these hashes now.
    WatchLists {
        outbox: Arc<Outbox>,
        lists: Vec<(ListKind, ListHash)>,
        /// The audience for which the hashes were made; none for a subscriber that sees everything.
        joined: Option<JoinedAudience>,
        start: ListStart,
        reply: Reply<()>,
    },
    Settle(SettleRights),
    /// The hashes of a list for the audiences, in front of its change.
    Shown(ListKind, AudienceHashes),
    AttachQueue(AttachQueue),
    Cursors(CursorRequest),
    /// Begins or ends the versions of a template's members.
    Family(FamilyChange),
    Route(Route),
    /// Takes over a record of a shared log.
    Logged(Box<Logged>),
    /// Hands the changes before it to the store.
    Commit,
    /// The changes of the last commit are durable, or the store failed.
    Stored(Result<(), StoreError>),
    /// Tries a store that failed again.
    TryStore,
}

/// The decided changes of one [`PublishMany`], which get their versions in this order.
pub(crate) struct DecidedChanges {
    /// The decision of each change, or the error that refused it.
    pub(crate) decisions: Vec<Result<Decision, PublishError>>,
    /// The hash of the resource list after all of them, if it is not the one from before.
    pub(crate) list: Option<(ListKind, ListHash)>,
    pub(crate) now: u64,
    pub(crate) reply: Reply<Vec<Result<Outcome, PublishError>>>,
}

/// The batch in flight is durable, or the store failed; from the store's thread to the Registry, which passes
/// it on, so that both actors see it at one point in the order of requests.
pub(crate) struct BatchStored(pub(crate) Result<(), StoreError>);

// ── Publisher ────────────────────────────────────────

/// Everything the Etag actor released in one turn that concerns one shard, in order.
pub(crate) struct ShardBatch(pub(crate) Vec<ShardRequest>);

pub(crate) enum ShardRequest {
    FanOut(FanOut),
    AddSubscriptions(AddSubscriptions),
    AddListWatches(AddListWatches),
    Settle(SettleRights, Position),
    Shown(ListKind, AudienceHashes),
    Route(Route),
}

/// Notifies the subscribers of one shard.
#[derive(Clone)]
pub(crate) struct FanOut {
    pub(crate) notice: Option<Arc<Notice>>,
    pub(crate) list: Option<(ListKind, ListHash, Position)>,
    /// Answers the publisher when the last shard drops it.
    pub(crate) completion: Arc<Completion>,
}

/// Begins subscriptions at these etags.
pub(crate) struct AddSubscriptions {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) accepted: Vec<Result<StampedSubscription, SubscribeError>>,
    pub(crate) at: Position,
    pub(crate) rules: SubscriptionRules,
    pub(crate) reply: Reply<Vec<Result<Etag, SubscribeError>>>,
}

/// Begins to watch lists.
pub(crate) struct AddListWatches {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) lists: Vec<(ListKind, ListHash)>,
    /// The audience for which the hashes were made; none for a subscriber that sees everything.
    pub(crate) joined: Option<JoinedAudience>,
    pub(crate) start: ListStart,
    pub(crate) at: Position,
    pub(crate) reply: Reply<()>,
}

/// Ends the hidden subscriptions of a subscriber whose rights changed, and compares its lists.
pub(crate) struct SettleRights {
    pub(crate) outbox: Arc<Outbox>,
    /// The audience for which the hashes were made.
    pub(crate) joined: JoinedAudience,
    pub(crate) lists: Vec<(ListKind, ListHash)>,
}

/// Lists the `limit` slowest subscribers of a shard that a filter accepts; from the bus. The filter's text is
/// in lower case.
pub(crate) struct ListSubscribers {
    pub(crate) filter: SubscriberFilter,
    pub(crate) limit: usize,
    pub(crate) reply: Reply<SubscriberPage>,
}

/// Counts the subscribers of each of these URIs in a shard, or of every URI that has some; from the bus.
pub(crate) struct CountSubscribers {
    pub(crate) uris: Option<Arc<[ResourceUri]>>,
    pub(crate) reply: Reply<Vec<(ResourceUri, usize)>>,
}

/// Lists the subscribed URIs of a shard that match a template; from the bus.
pub(crate) struct ListMembers {
    pub(crate) template: Arc<ResourceTemplate>,
    pub(crate) reply: Reply<Vec<ResourceUri>>,
}

/// Asks one shard about one subscriber; from the bus. The reply is none when another shard has it.
pub(crate) struct QuerySubscriber {
    pub(crate) id: SubscriberId,
    pub(crate) question: SubscriberQuery,
}

pub(crate) enum SubscriberQuery {
    /// Returns its state.
    Info(Reply<Option<SubscriberInfo>>),
    /// Returns its delivery status for this resource.
    Explain(ResourceUri, Reply<Option<DeliveryStatus>>),
    /// Ends it for this reason.
    Evict(EndReason, Reply<Option<()>>),
}

/// Counts the open readers of a shard; from the bus.
pub(crate) struct CountReaders(pub(crate) Reply<usize>);

/// Looks at the rights of every subscriber of a shard; from the bus.
pub(crate) struct RightsChanged(pub(crate) Reply<()>);

/// Ends every subscriber of a shard once it has drained its outbox; from the bus.
pub(crate) struct EndAll(pub(crate) EndReason);

messages!(EtagBatch, BatchStored, HeardBatch, LogEnded);
messages!(
    ShardBatch,
    ListMembers,
    ListSubscribers,
    CountSubscribers,
    QuerySubscriber,
    CountReaders,
    RightsChanged,
    EndAll
);
messages!(
    SubscribeUris,
    ResumeUris,
    ResumeLists,
    UnsubscribeUri,
    ClientReady,
    WatchFiltered,
    StreamMoved,
    RightsJudged,
    EndSession
);
