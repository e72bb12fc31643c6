#![doc = include_str!("../README.md")]

pub mod cli;
pub mod service;
pub mod http;
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
    Block, Body, BoxFuture, Builder, Bus, CallContext, CallbackError, Cause, Change, Checkpoint, Clock,
    Closed, Condition, Content, Descriptor, Digest, DrainReport, Drained, EndReason, Etag, Filter,
    InvalidEtag, InvalidPattern, InvalidPosition, InvalidUri, InvalidUriTemplate, Limits, Line, ListHash,
    ListKind, ListOutcome, LogLevel, Notice, NoticeKind, OpenError, OutboxEntry, OutboxReader, Outcome, Page,
    Position, Prompt, PromptArgument, PromptMessage, PublishError, ReadError, Record, Resource,
    ResourceTemplate, ResourceUri, Role, Session, SessionOptions, Shard, Snapshot, StartError, Stats, Store,
    StoreError, SubscribeError, SubscriberId, SubscriberKind, Tool, ToolOutput, UriPattern, UriTemplate,
    Variables, WeakBus, WriteProgress, attach, callback, status, trace,
};
