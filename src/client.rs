//! The client side: watches resources of any MCP server, whatever revision it speaks.
//!
//! A [`Watcher`] takes the best [`WatchStrategy`] that the server offers, connects again after a loss, and then
//! reports the changes it missed. No type of the protocol library is part of this interface.
//
// Three parts work behind a watcher: the watch task, which outlives connections; the link, which is one connection;
// and between each two of them a queue that holds the newest value per resource. A slow reader thus costs one entry
// per resource and loses none.

mod backoff;
mod error;
mod handshake;
mod inbox;
mod latest_queue;
mod link;
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

use crate::Digest;

pub use backoff::Backoff;
pub use error::{ConnectError, WatchError};
pub use options::WatchOptions;
pub use strategy::WatchStrategy;
pub use target::{Era, Target};
pub use watcher::Watcher;

/// A change of one watched resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceChanged {
    /// The resource.
    pub uri: String,
    /// Its version now, where the server gives etags.
    pub etag: Option<String>,
    /// The digest of its contents, where they were read to detect the change.
    pub digest: Option<Digest>,
    /// The strategy that detected the change.
    pub strategy: WatchStrategy,
}

/// An event of a watcher. Of several events of a kind that were not read in time, only the newest is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchEvent {
    /// A resource changed. Every version is reported once at most: versions are told apart by etag, and by a digest of
    /// the contents where the server gives none. Where one connection gives etags and the next does not, the two
    /// cannot be compared, and a change may be reported though there was none.
    Changed(ResourceChanged),
    /// The connection is lost, and will be made again.
    Lost {
        /// The cause.
        reason: String,
        /// The time until the next attempt.
        retry_in: Duration,
    },
    /// There is a connection again.
    Restored {
        /// The protocol revision spoken now.
        revision: String,
        /// The strategy taken now.
        strategy: WatchStrategy,
    },
    /// The server does not offer the better strategy, or does not keep its promise: another strategy is taken.
    SteppedDown {
        /// The resource concerned; none when it is all of them.
        uri: Option<String>,
        /// The strategy that was tried.
        from: WatchStrategy,
        /// The strategy that is taken.
        to: WatchStrategy,
        /// The fault of the first strategy.
        reason: String,
    },
    /// A watched resource is gone, or may not be watched any more. It stays watched, and is asked for again from
    /// time to time.
    Missing {
        /// The resource.
        uri: String,
        /// The server's own words where it gives any.
        reason: String,
    },
}
