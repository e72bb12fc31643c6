//! The errors of the bus, one enum per operation. Each protocol maps them to its own codes in one place.

use std::sync::Arc;

use super::callback::CallbackError;
use super::etag::Etag;
use super::owner::Owner;
use super::uri::{InvalidUri, ResourceUri};

/// The bus has stopped: it was shut down, or one of its actors died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the bus has stopped")]
pub struct Closed;

/// The error of a refused change, which had no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// `register` of a URI that exists; of another owner's it is [`NotOwner`](Self::NotOwner).
    #[error("resource already exists: {0}; use update or upsert to replace it")]
    AlreadyExists(ResourceUri),
    /// `update`, `touch` or `remove` of a URI that does not exist.
    #[error("Resource not found: {0}")]
    NotFound(ResourceUri),
    /// The condition does not hold: the resource changed since it was read, or exists although it should not.
    #[error("resource changed since it was read: {uri}; read it again")]
    Conflict {
        /// The resource.
        uri: ResourceUri,
        /// Its etag at the place of the refused change in the order of changes: [`Etag::UNKNOWN`] if it did
        /// not exist, none if a change before this one is not visible yet.
        current: Option<Etag>,
    },
    /// The registry is full; see [`Limits`](crate::Limits).
    #[error("too many {what}: the limit is {max}; remove one or raise the limit")]
    TooMany {
        /// The kind of item that is over the limit.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// The body is larger than [`Limits::body_bytes_max`](crate::Limits::body_bytes_max).
    #[error("body of {uri} has {len} bytes: the limit is {max}; shorten it or raise the limit")]
    BodyTooLarge {
        /// The resource.
        uri: ResourceUri,
        /// Its size in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The bodies that the bus holds would be larger together than
    /// [`Limits::bytes_max`](crate::Limits::bytes_max).
    #[error(
        "the bodies of all resources would have {len} bytes: the limit is {max}; remove some or raise the limit"
    )]
    BytesFull {
        /// The size of all bodies with this one, in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The resource belongs to another owner, who alone may change it.
    #[error("resource {uri} belongs to {owner}; change it there, or use another URI")]
    NotOwner {
        /// The resource.
        uri: ResourceUri,
        /// Its owner.
        owner: Owner,
    },
    /// The store could not keep the change, so it was not made. Changes are taken again when the store works.
    #[error("the change was not made, since the store cannot keep it: {reason}; try again later")]
    StoreUnavailable {
        /// True if the store has no room left.
        full: bool,
        /// The error of the store.
        reason: Arc<str>,
    },
    /// The shared log could not take the change, or did not answer in time.
    #[error("{}: {reason}; {}", log_summary(*.unknown), log_remedy(*.unknown))]
    LogUnavailable {
        /// True if the change may have been made all the same: the log did not answer.
        unknown: bool,
        /// True if the log has no room left.
        full: bool,
        /// The error of the log.
        reason: Arc<str>,
    },
    /// A batch has more changes than [`Limits::batch_max`](crate::Limits::batch_max) allows.
    #[error("a batch of {len} changes: the limit is {max}; send it in parts or raise the limit")]
    BatchTooLarge {
        /// The number of changes.
        len: usize,
        /// The limit.
        max: usize,
    },
    /// `try_publish` found as many requests in flight as are allowed.
    #[error("the bus is busy: {0} requests are in flight; try again or use publish, which waits")]
    Busy(usize),
    /// The given text is not a URI.
    #[error(transparent)]
    InvalidUri(#[from] InvalidUri),
    /// The lister of a template failed while the template was registered.
    #[error("template {template} cannot list its members: {message}")]
    Lister {
        /// The text of the template.
        template: String,
        /// The message of the lister.
        message: String,
    },
    /// The bus has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

fn log_summary(unknown: bool) -> &'static str {
    match unknown {
        true => "the outcome of the change is unknown",
        false => "the change was not made, since the cluster cannot keep it",
    }
}

fn log_remedy(unknown: bool) -> &'static str {
    match unknown {
        true => "repeat it",
        false => "try again later",
    }
}

impl From<&StoreError> for PublishError {
    fn from(error: &StoreError) -> PublishError {
        PublishError::StoreUnavailable {
            full: error.full,
            reason: error.reason.clone(),
        }
    }
}

/// The error of a failed read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No resource has this URI, and no template has such a member.
    #[error("Resource not found: {0}")]
    NotFound(ResourceUri),
    /// The reader of the resource failed.
    #[error("Resource could not be read: {uri}: {source}")]
    Reader {
        /// The resource.
        uri: ResourceUri,
        /// The error of the reader.
        source: CallbackError,
    },
    /// The given text is not a URI.
    #[error(transparent)]
    InvalidUri(#[from] InvalidUri),
    /// The bus has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// The error of a refused subscription.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// No resource has this URI, and no template has such a member.
    #[error("Resource not found: {0}")]
    NotFound(ResourceUri),
    /// The resource exists, but its publisher does not allow subscriptions.
    #[error("Resource not subscribable: {0}")]
    NotSubscribable(ResourceUri),
    /// The subscriber has as many subscriptions as allowed.
    #[error("too many subscriptions: the limit is {0}; unsubscribe from something first")]
    TooMany(usize),
    /// The subscribers that share its [`SubscriptionAllowance`](crate::SubscriptionAllowance) have as many
    /// subscriptions as it allows.
    #[error(
        "too many subscriptions: the limit of all sessions of this client together is {0}; unsubscribe from \
         something first"
    )]
    AllowanceUsed(usize),
    /// The given text is not a URI.
    #[error(transparent)]
    InvalidUri(#[from] InvalidUri),
    /// The session has ended, or the bus has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// The error of a session that could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// As many sessions and streams as allowed are open; see
    /// [`Limits::sessions_max`](crate::Limits::sessions_max).
    #[error("too many sessions: the limit is {0}; try again later")]
    TooMany(usize),
    /// The bus has stopped.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// The error of a store that cannot read or keep what it is given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store failed: {reason}")]
pub struct StoreError {
    /// The error, with the file and the remedy.
    pub reason: Arc<str>,
    /// True if the store has no room left: a full disk, a quota, the size limit of a file.
    pub full: bool,
}

impl StoreError {
    /// An error other than a lack of room.
    pub fn new(reason: impl Into<Arc<str>>) -> StoreError {
        StoreError {
            reason: reason.into(),
            full: false,
        }
    }
}

/// The error of a bus that could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The bus was given a store and a shared log.
    #[error("a bus keeps its changes in a store or in a shared log, not in both; leave one out")]
    StoreAndLog,
    /// A thread could not be started.
    #[error("a thread of the bus could not be started: {0}")]
    Thread(#[from] std::io::Error),
}
