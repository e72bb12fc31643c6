//! The bus of Tidings: resources and lists, their versions, and the subscribers that are notified of changes.
//!
//! A change walks one way through the actors, Registry → Etag → Publisher → outbox, because one direction
//! gives every subscriber the same order without a lock. Publishers and subscribers hold one handle, [`Bus`];
//! the actor framework is no part of the public interface, and neither is any protocol, socket or file.
//!
//! The modules below are listed from top to bottom: each imports only modules below it.

/// The example of the README, which runs with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod bus;
mod session;
mod registry;
mod versions;
mod publisher;
mod messages;
mod sink;
pub mod shared_log;
mod outbox;
mod runtime;
mod metrics;
mod model;

pub use bus::{Builder, Burst, Bus, Clock, DrainReport, NotLatest, Page, Snapshot, Stats, WeakBus};
pub use model::{
    Block, Body, BoxFuture, CallContext, CallbackError, Cause, Change, Closed, Condition, Content,
    Descriptor, Digest, EndReason, Etag, EtagCondition, EtagSet, Filter, HeldClock, InvalidEtag,
    InvalidOwner, InvalidPattern, InvalidPosition, InvalidUri, InvalidUriTemplate, Life, Limits, Line,
    LineState, Lineage, ListHash, ListKind, ListOutcome, LogLevel, Notice, NoticeKind, OpenError, Outcome,
    Owner, PATTERNS_MAX, Position, Prompt, PromptArgument, PromptMessage, PublishError, ReadError, Resource,
    ResourceTemplate, ResourceUri, Role, SessionOptions, StartError, StoreError, SubscribeError,
    SubscriberId, SubscriberKind, SubscriptionAllowance, SubscriptionRequest, Tool, ToolOutput, UriPattern,
    UriTemplate, Variables,
};
pub use outbox::{Drained, OutboxEntry, OutboxReader, WriteProgress};
pub use runtime::{ForMany, Shard};
pub use session::Session;
pub use versions::{
    Batch, ChangeKind, Checkpoint, KeptContent, KeptLine, LoggedChange, Record, Store, StoreState,
};

/// Subscribers without a session, such as logs, files and webhooks: implement
/// [`Subscriber`](attach::Subscriber) and hand it to [`Bus::attach`].
pub mod attach {
    pub use crate::sink::{
        AttachError, AttachOptions, AttachedInfo, Attachment, Delivery, DeliveryClass, Gap, Health,
        NewestChanges, Overflow, Subscriber, SubscriberError,
    };
}

/// The traits behind readers, lists, prompts and tools. Closures implement most of them, so a program names
/// them only to keep state beside the callback.
pub mod callback {
    pub use crate::model::{
        CallEvent, CallObserver, CallTool, InputSchema, ListTemplate, Panicked, ReadBody, ReadTemplate,
        RenderPrompt, WithContext, catch_panic,
    };
}

/// The rights of subscribers: implement [`Viewer`](rights::Viewer) and hand it to
/// [`SessionOptions::viewer`].
pub mod rights {
    pub use crate::model::{Audience, ListQuery, Standing, Viewer, WholeAudience};
}

/// The state of subscribers, as [`Bus::list_subscribers`] and the other queries return it.
pub mod status {
    pub use crate::model::{
        DelayReason, DeliveryStatus, EndedSubscriber, InvalidSubscriberId, Pending, Progress,
        SubscriberFilter, SubscriberInfo, SubscriberPage, SubscriberState,
    };
}

/// The steps of one notice, for subscribers attached with
/// [`AttachOptions::trace`](attach::AttachOptions::trace).
pub mod trace {
    pub use crate::model::{SkipReason, SubscriberRef, Trace, TraceStep, TraceSubject};
}
