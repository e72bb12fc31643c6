#![doc = include_str!("../README.md")]

#[cfg(feature = "service")]
pub mod cli;
#[cfg(feature = "service")]
pub mod service;
#[cfg_attr(
    not(feature = "service"),
    allow(dead_code, reason = "the service uses the rest of it")
)]
pub mod http;
pub mod mcp;
#[cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, reason = "each part is for some feature")
)]
pub mod auth;
#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "bench")]
pub mod bench;
#[cfg(feature = "workspace")]
pub mod source;
#[cfg(feature = "service")]
pub mod sink;
#[cfg(feature = "store")]
pub mod store;
pub mod config;
#[cfg(feature = "service")]
pub mod telemetry;
#[cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, reason = "each part is for some feature")
)]
mod metrics;
#[cfg(feature = "service")]
mod timestamp;
#[cfg(feature = "workspace")]
mod uri_encoding;
mod hosts;
mod units;
#[allow(dead_code, reason = "each of its users needs a part")]
mod rate_limiter;
#[cfg(feature = "client")]
#[cfg_attr(
    not(feature = "service"),
    allow(dead_code, reason = "the service uses the rest of it")
)]
mod printable;
#[doc(hidden)]
pub mod wire;
#[cfg(any(feature = "client", feature = "bench"))]
#[cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, reason = "each part is for some feature")
)]
mod credentials;
#[cfg(feature = "client")]
#[cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, reason = "each part is for some feature")
)]
mod http_client;
#[cfg(feature = "client")]
mod backoff;
#[cfg(any(feature = "service", feature = "bench"))]
mod open_files;

pub use mcp::etag_tools;
pub use tidings_actors::{
    Batch, Block, Body, BoxFuture, Builder, Burst, Bus, CallContext, CallbackError, Cause, Change,
    ChangeKind, Checkpoint, Clock, Closed, Condition, Content, Descriptor, Digest, DrainReport, Drained,
    EndReason, Etag, EtagCondition, EtagSet, Filter, InvalidEtag, InvalidOwner, InvalidPattern,
    InvalidPosition, InvalidUri, InvalidUriTemplate, KeptContent, KeptLine, Life, Limits, Line, LineState,
    Lineage, ListHash, ListKind, ListOutcome, LogLevel, LoggedChange, Notice, NoticeKind, OpenError,
    OutboxEntry, OutboxReader, Outcome, Owner, Page, Position, Prompt, PromptArgument, PromptMessage,
    PublishError, ReadError, Record, Resource, ResourceTemplate, ResourceUri, Role, Session, SessionOptions,
    Shard, Snapshot, StartError, Stats, Store, StoreError, StoreState, SubscribeError, SubscriberId,
    SubscriberKind, SubscriptionAllowance, SubscriptionRequest, Tool, ToolOutput, UriPattern, UriTemplate,
    Variables, WeakBus, WriteProgress, attach, callback, rights, status, trace,
};
