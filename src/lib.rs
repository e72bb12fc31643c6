#![doc = include_str!("../README.md")]

pub mod cli;
pub mod service;
mod carry;
pub mod mcp;
pub mod client;
pub mod check;
pub mod bench;
pub mod source;
pub mod sink;
pub mod store;
pub mod config;
pub mod telemetry;
mod metrics;
mod timestamp;
#[doc(hidden)]
pub mod wire;
mod http_client;

pub use mcp::etag_tools;
pub use tidings_actors::{
    AttachError, AttachOptions, AttachedInfo, Attachment, Block, Body, BoxFuture, Builder, Bus, CallContext,
    CallEvent, CallObserver, CallTool, CallbackError, Cause, Change, Checkpoint, Clock, Closed, Condition,
    Content, DelayReason, Delivery, DeliveryClass, DeliveryStatus, Descriptor, Digest, DrainReport, Drained,
    EndReason, EndedSubscriber, Etag, Filter, Gap, Health, InvalidEtag, InvalidPattern, InvalidPosition,
    InvalidSubscriberId, InvalidUri, InvalidUriTemplate, Limits, Line, ListHash, ListKind, ListOutcome,
    ListTemplate, LogLevel, Notice, NoticeKind, OpenError, OutboxEntry, OutboxReader, Outcome, Overflow,
    Page, Pending, Position, Progress, Prompt, PromptArgument, PromptMessage, PublishError, ReadBody,
    ReadError, ReadTemplate, Record, RenderPrompt, Resource, ResourceTemplate, ResourceUri, Role, Session,
    SessionOptions, Shard, SkipReason, Snapshot, StartError, Stats, Store, StoreError, SubscribeError,
    Subscriber, SubscriberError, SubscriberId, SubscriberInfo, SubscriberKind, SubscriberPage, SubscriberRef,
    SubscriberState, Tool, ToolOutput, Trace, TraceStep, TraceSubject, UriPattern, UriTemplate, Variables,
    WeakBus, WithContext, WriteProgress,
};
