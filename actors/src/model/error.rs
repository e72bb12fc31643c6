//! What can go wrong at the bus, one enum per operation.
//!
//! Owns: the errors embedders see. Never: protocol codes; the faces map these to theirs in one place each.

use super::uri::{InvalidUri, ResourceUri};

/// The bus has stopped: it was shut down, or one of its actors died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bus has stopped")]
pub struct Closed;

/// Why a change was refused. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// `register` of a URI that exists.
    #[error("resource already exists: {0}; use update or upsert to replace it")]
    AlreadyExists(ResourceUri),
    /// `update`, `touch` or `remove` of a URI that does not exist.
    #[error("Resource not found: {0}")]
    NotFound(ResourceUri),
    /// The condition does not hold: the resource changed since it was read, or is there when it should not be.
    #[error("resource changed since it was read: {0}; read it again")]
    Conflict(ResourceUri),
    /// The registry is full; see [`Limits`](crate::Limits).
    #[error("too many {what}: the limit is {max}; remove one or raise the limit")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The body is larger than [`Limits::body_bytes_max`](crate::Limits::body_bytes_max).
    #[error("body of {uri} has {len} bytes: the limit is {max}; shorten it or raise the limit")]
    BodyTooLarge {
        /// Whose body.
        uri: ResourceUri,
        /// Its size in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// Only from `try_publish`: as many requests as allowed are behind the door.
    #[error("the bus is busy: {0} requests are in flight; try again or use publish, which waits")]
    Busy(usize),
    /// The text given as URI is none.
    #[error(transparent)]
    InvalidUri(#[from] InvalidUri),
    /// A template's lister failed while its first list was taken.
    #[error("template {template} cannot list its members: {message}")]
    Lister {
        /// Whose lister.
        template: String,
        /// What it failed with.
        message: String,
    },
    /// The bus has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No such resource, and no template with such a member.
    #[error("Resource not found: {0}")]
    NotFound(ResourceUri),
    /// The resource's reader failed.
    #[error("Resource could not be read: {uri}: {source}")]
    Reader {
        /// Which resource.
        uri: ResourceUri,
        /// What the reader failed with.
        source: crate::model::callback::CallbackError,
    },
    /// The text given as URI is none.
    #[error(transparent)]
    InvalidUri(#[from] InvalidUri),
    /// The bus has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why a subscription was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// No such resource, and no template with such a member.
    #[error("Resource not found: {0}")]
    NotFound(ResourceUri),
    /// It exists but its publisher does not let clients subscribe.
    #[error("Resource not subscribable: {0}")]
    NotSubscribable(ResourceUri),
    /// The subscriber has as many subscriptions as it may.
    #[error("too many subscriptions: the limit is {0}; unsubscribe from something first")]
    TooMany(usize),
    /// The text given as URI is none.
    #[error(transparent)]
    InvalidUri(#[from] InvalidUri),
    /// The session has ended, or the bus has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why a session could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// As many sessions and streams as allowed are attached; see [`Limits::sessions_max`](crate::Limits::sessions_max).
    #[error("too many sessions: the limit is {0}; try again later")]
    TooMany(usize),
    /// The bus has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why a store cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("the etag store failed: {0}")]
pub struct StoreError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Why a bus could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] crate::model::error::StoreError),
    /// A thread could not be started.
    #[error("a thread of the bus could not be started: {0}")]
    Thread(#[from] std::io::Error),
}
