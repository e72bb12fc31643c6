//! An event bus for the Model Context Protocol (MCP): one change in, every client told.
//!
//! A [`Bus`] knows which resources, templates, tools and prompts exist, which version of each is current,
//! and which clients want to be told.
//! [`mcp::Endpoint`] serves it over HTTP and [`mcp::serve_stdio`] on standard input and output, at every
//! revision of the protocol; [`mcp::Wrap`] adds the same to a server written with rmcp.
//!
//! ```
//! use tidings::mcp::{Endpoint, McpOptions};
//! use tidings::{Bus, Resource};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let bus = Bus::builder().start()?;
//!     bus.register(Resource::text("demo://status", "all quiet")?).await?;
//!
//!     // A tower service: mount it at /mcp in axum, or hand it hyper requests.
//!     let _endpoint = Endpoint::new(bus.clone(), McpOptions::default());
//!
//!     // Every client that asked for it is told, in the way of its revision.
//!     bus.update(Resource::text("demo://status", "something happened")?).await?;
//!     Ok(())
//! }
//! ```
//!
//! The features of the crate, more examples and the pages of the service `tidings serve` are in its
//! [repository](https://github.com/tidings/tidings).

#[cfg(all(not(unix), any(feature = "service", feature = "workspace", feature = "bench")))]
compile_error!(
    "the features `service`, `workspace` and `bench` need Unix; depend on the library with \
     `default-features = false`, and with `client`, `store` and `prometheus` as needed"
);

/// The examples of the README, which compile and run with the tests.
#[cfg(all(doctest, feature = "service"))]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(feature = "service")]
pub mod cli;
#[cfg(feature = "service")]
pub mod service;
#[cfg(feature = "service")]
pub mod gateway;
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
#[cfg(feature = "nats")]
pub mod cluster;
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
#[cfg(any(feature = "service", feature = "bench"))]
#[cfg_attr(
    not(feature = "service"),
    allow(dead_code, reason = "a report of the load test names one point in time")
)]
mod timestamp;
#[cfg(feature = "workspace")]
mod uri_encoding;
mod hosts;
mod units;
#[allow(dead_code, reason = "each of its users needs a part")]
mod rate_limiter;
#[cfg_attr(
    not(feature = "workspace"),
    allow(dead_code, reason = "folders use the rest of it")
)]
mod tool_schema;
#[cfg(any(feature = "client", feature = "bench"))]
#[cfg_attr(
    not(feature = "service"),
    allow(dead_code, reason = "each of its users needs a part")
)]
mod file_watch;
#[cfg(any(feature = "client", feature = "bench"))]
#[cfg_attr(
    not(feature = "service"),
    allow(dead_code, reason = "the service uses the rest of it")
)]
mod printable;
#[cfg(any(feature = "client", feature = "bench"))]
#[cfg_attr(
    not(feature = "service"),
    allow(dead_code, reason = "each of its users needs a part")
)]
mod small_file;
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

pub use mcp::{etag_tools, rmcp};
pub use tidings_actors::{
    Batch, Block, Body, BoxFuture, Builder, Burst, Bus, CallContext, CallbackError, Cause, Change,
    ChangeKind, Checkpoint, Clock, Closed, Condition, Content, Descriptor, Digest, DrainReport, Drained,
    EndReason, Etag, EtagCondition, EtagSet, Filter, ForMany, HeldClock, InvalidEtag, InvalidOwner,
    InvalidPattern, InvalidPosition, InvalidUri, InvalidUriTemplate, KeptContent, KeptLine, Life, Limits,
    Line, LineState, Lineage, ListHash, ListKind, ListOutcome, LogLevel, LoggedChange, NotLatest, Notice,
    NoticeKind, OpenError, OutboxEntry, OutboxReader, Outcome, Owner, PATTERNS_MAX, Page, Position, Prompt,
    PromptArgument, PromptMessage, PublishError, ReadError, Record, Resource, ResourceTemplate, ResourceUri,
    Role, Session, SessionOptions, Shard, Snapshot, StartError, Stats, Store, StoreError, StoreState,
    SubscribeError, SubscriberId, SubscriberKind, SubscriptionAllowance, SubscriptionRequest, Tool,
    ToolOutput, UriPattern, UriTemplate, Variables, WeakBus, WriteProgress, attach, callback, rights,
    shared_log, status, trace,
};

/// Runs the Rust of the pages with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../docs/embed.md")]
struct EmbedPage;
