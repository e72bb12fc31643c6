//! A client that watches resources of any MCP server, of any revision.
//!
//! A [`Watcher`] uses the best [`WatchStrategy`] that the server offers, reconnects after a loss, and then
//! reports the changes it missed. No type of the protocol library is part of this interface.
//
// Behind a watcher, a task outlives connections and a link is one connection. Between each two of them a
// queue holds the newest value per resource, so a slow reader costs one entry per resource and loses no
// resource.

mod missing_answers;
mod error;
pub(crate) mod error_output;
mod handshake;
mod inbox;
mod known_etags;
pub(crate) mod latest_queue;
mod link;
mod oauth;
mod options;
mod poll_schedule;
mod reported;
mod strategy;
mod stream_monitor;
mod target;
mod version;
mod watch_task;
mod watcher;

use std::time::Duration;

use crate::{Digest, ListKind};

pub use crate::backoff::Backoff;
pub use crate::credentials::{Credentials, CredentialsError};
pub use error::{ConnectError, WatchError};
#[cfg(feature = "service")]
pub(crate) use error::{has_too_long_answer, refused_status};
#[cfg(feature = "service")]
pub(crate) use handshake::{HttpConnection, initialize_error};
#[cfg(feature = "service")]
pub(crate) use missing_answers::MissingAnswers;
pub use oauth::OAuthClient;
pub use options::WatchOptions;
pub use strategy::WatchStrategy;
pub use target::{Era, Target};
pub use watcher::Watcher;

/// A change of one watched resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceChanged {
    /// The resource.
    pub uri: String,
    /// Its new etag, if the server gives etags.
    pub etag: Option<String>,
    /// The digest of its contents, if they were read to detect the change.
    pub digest: Option<Digest>,
    /// The strategy that detected the change.
    pub strategy: WatchStrategy,
}

/// An event of a watcher. Of several unread events of one kind about one resource, only the newest is
/// returned.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A resource changed. Each version is reported at most once.
    ///
    /// Versions are told apart by etag, or by a digest of the contents if the server gives none. If one
    /// connection gives etags and the next does not, the two cannot be compared, and an unchanged resource
    /// may be reported.
    Changed(ResourceChanged),
    /// The connection is lost, and another attempt follows.
    Lost {
        /// The cause.
        reason: String,
        /// The time until the next attempt.
        retry_in: Duration,
    },
    /// There is a connection again.
    Restored {
        /// The negotiated protocol revision.
        revision: String,
        /// The best strategy that the server offers now.
        strategy: WatchStrategy,
    },
    /// The server does not offer a strategy for a resource, or does not honour it; a worse one is used.
    SteppedDown {
        /// The resource; `None` for all resources.
        uri: Option<String>,
        /// The strategy that failed.
        from: WatchStrategy,
        /// The strategy used from now on.
        to: WatchStrategy,
        /// The fault of the first strategy.
        reason: String,
    },
    /// A list changed; only with [`WatchOptions::lists`]. A server of an older revision may notify of lists
    /// that are new to the client alone.
    ListChanged(ListKind),
    /// A watched resource is gone, or may no longer be watched. It stays subscribed and is retried from time
    /// to time.
    Missing {
        /// The resource.
        uri: String,
        /// The server's error message, if it sent one.
        reason: String,
    },
}
