//! The bus of Tidings: what exists, which version of it is current, and who wants to know.
//!
//! This crate knows no protocol, no sockets and no files. A change walks one way through its actors,
//! Registry → Etag → Publisher → outbox, and each of them owns one kind of truth. Publishers and subscribers hold one
//! handle, [`Bus`]; no type of the actor framework is part of the public interface.
//!
//! The modules below are listed in the order in which a change meets them.

mod bus;
mod door;
mod message;
mod post;
mod registry;
mod catalog;
mod etag_actor;
mod ledger;
mod interest;
mod board;
mod store;
mod publisher;
mod table;
mod outbox;
mod end_reason;
mod outbox_set;
mod flow;
mod patience;
mod departed;
mod session;
mod subscriber;
mod attach;
mod trace;
mod system;
mod metric;
mod limits;
mod error;
// What the actors speak of.
mod uri;
mod etag;
mod moment;
mod position;
mod digest;
mod list;
mod notice;
mod filter;
mod change;
mod resource;
mod template;
mod uri_template;
mod tool;
mod call_context;
mod prompt;
mod callback;

pub use attach::{
    AttachError, AttachOptions, AttachedInfo, Attachment, Delivery, DeliveryClass, Gap, Health, Overflow,
    Subscriber, SubscriberError,
};
pub use bus::{Builder, Bus, Clock, DrainReport, Page, Snapshot, Stats, WeakBus};
pub use call_context::{CallContext, CallEvent, CallObserver, LogLevel};
pub use callback::{BoxFuture, CallbackError};
pub use change::{Change, Condition, ListOutcome, Outcome};
pub use digest::Digest;
pub use error::{Closed, OpenError, PublishError, ReadError, StartError, SubscribeError};
pub use etag::{Etag, InvalidEtag};
pub use filter::{Filter, InvalidPattern, NoticeKind, PATTERNS_MAX, UriPattern};
pub use flow::Flow;
pub use ledger::{Checkpoint, Line};
pub use limits::Limits;
pub use list::{ListHash, ListKind};
pub use moment::Moment;
pub use notice::{Cause, FRAME_SLOTS, Notice};
pub use outbox::{Drained, EndReason, Outbox, OutboxReader};
pub use outbox_set::{Entry, Marked, OutboxSet};
pub use position::{InvalidPosition, Position};
pub use prompt::{Prompt, PromptArgument, PromptMessage, RenderPrompt, Role};
pub use resource::{Body, Content, Descriptor, ReadBody, Resource};
pub use session::{Session, SessionOptions, WATCHED_MAX};
pub use store::{Record, Store, StoreError};
pub use subscriber::{
    EndedSubscriber, Explanation, Holdup, InvalidSubscriberId, PENDING_URIS_MAX, Pending, Progress,
    SubscriberId, SubscriberInfo, SubscriberKind, Surveyed, Whereabouts,
};
pub use system::Shard;
pub use table::{Member, SlotId, SubscriptionTable};
pub use template::{ListTemplate, ReadTemplate, ResourceTemplate};
pub use tool::{Block, CallTool, Tool, ToolOutput, WithContext};
pub use trace::{SkipReason, Step, Subject, Trace, Who};
pub use uri::{InvalidUri, ResourceUri, URI_LEN_MAX};
pub use uri_template::{
    InvalidUriTemplate, TEMPLATE_LEN_MAX, TEMPLATE_VARIABLES_MAX, UriTemplate, Variables,
};
