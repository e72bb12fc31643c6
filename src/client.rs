//! The client side: watches resources of any MCP server, whatever revision it speaks.
//!
//! Owns the connection, the subscriptions and the memory of what was last reported. It takes the best road the server
//! offers (`subscriptions/listen`, else `resources/subscribe`), says which, connects again when the connection is lost
//! and then reports what changed meanwhile. No type of the protocol library is part of its interface.
//!
//! Behind a [`Watcher`] works one task, the keeper; behind that one connection, the link. Between each two stands a
//! queue that holds the newest word per resource, so a slow reader costs one entry per resource and loses none.

mod keeper;
mod link;
mod observed;
mod inbox;
mod conflated;
mod backoff;
mod target;
mod error;
#[cfg(test)]
mod testing;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

pub use backoff::Backoff;
use conflated::Conflated;
pub use error::{ConnectError, WatchError};
use keeper::{Command, Keeper};
use link::Link;
pub use target::{Era, Road, Target};

/// How many commands may wait; a watcher sends one at a time.
const COMMANDS: usize = 4;

/// How long [`Watcher::close`] waits: the farewell of a link, and a request in flight.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// "This resource changed."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceChanged {
    /// Which one.
    pub uri: String,
    /// The version it has now, where the server says so.
    pub etag: Option<String>,
    /// By which road it became known.
    pub road: Road,
}

/// What a watcher can say. Of several of a kind that were not read in time, only the newest is handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A resource changed. Where the server gives etags, every version is reported once at most; where it gives none,
    /// a change during a loss of the connection may be reported though nothing changed, but never missed.
    Changed(ResourceChanged),
    /// The connection is lost, and will be made again.
    Lost {
        /// What happened.
        reason: String,
        /// When it is tried next.
        retry_in: Duration,
    },
    /// There is a connection again.
    Restored {
        /// The revision spoken now.
        revision: String,
        /// The road taken now.
        road: Road,
    },
    /// A watched resource is not there any more, or may not be watched. It stays watched, and is asked for again from
    /// time to time.
    Missing {
        /// Which one.
        uri: String,
        /// The server's words where it has any.
        reason: String,
    },
}

/// A client that watches resources of one server. Dropping it ends the connection.
///
/// ```no_run
/// use tidings::client::{Era, Target, Watcher};
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let target = Target::http("http://127.0.0.1:8808/mcp")?;
/// let mut watcher = Watcher::connect(target, Era::Auto).await?;
/// watcher.subscribe_resource("demo://a").await?;
/// while let Some(changed) = watcher.next().await {
///     println!("{} is at {:?}", changed.uri, changed.etag);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Watcher {
    revision: String,
    road: Road,
    subscribed: BTreeSet<String>,
    commands: mpsc::Sender<Command>,
    feed: Arc<Conflated<Event>>,
    keeper: JoinHandle<()>,
}

impl Watcher {
    /// Connects to the server at `target`, in a revision of `era`. Call it within a tokio runtime.
    ///
    /// # Errors
    /// [`ConnectError`]; this first connection is not tried again.
    pub async fn connect(target: Target, era: Era) -> Result<Watcher, ConnectError> {
        Watcher::connect_with(target, era, Backoff::default()).await
    }

    /// Like [`connect`](Self::connect), with other waits than usual between later attempts to connect.
    ///
    /// # Errors
    /// As `connect`.
    pub async fn connect_with(target: Target, era: Era, backoff: Backoff) -> Result<Watcher, ConnectError> {
        let link = Link::open(&target, era).await?;
        let (revision, road) = (link.revision.clone(), link.road);
        let (commands, received) = mpsc::channel(COMMANDS);
        let feed = Arc::new(Conflated::new());
        let keeper = Keeper::new(target, era, backoff, received, feed.clone());
        let keeper = tokio::spawn(keeper.run(link));
        Ok(Watcher {
            revision,
            road,
            subscribed: BTreeSet::new(),
            commands,
            feed,
            keeper,
        })
    }

    /// The revision of the protocol that was agreed on; [`Event::Restored`] tells of another one.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The road that was taken; [`Event::Restored`] tells of another one.
    pub fn road(&self) -> Road {
        self.road
    }

    /// Watches `uri` and answers the etag it has now, where the server gives any. Watching twice is watching once.
    ///
    /// # Errors
    /// As [`subscribe_resources`](Self::subscribe_resources).
    pub async fn subscribe_resource(&mut self, uri: &str) -> Result<Option<String>, WatchError> {
        let etags = self.subscribe_resources(vec![uri.to_owned()]).await?;
        Ok(etags.into_iter().next().flatten())
    }

    /// Watches all of `uris` or none, and answers the etags they have now, in order.
    ///
    /// # Errors
    /// [`WatchError::Refused`] naming the first that the server does not have, cannot read or does not let us watch;
    /// [`WatchError::Disconnected`] while the connection is lost.
    pub async fn subscribe_resources(
        &mut self,
        uris: Vec<String>,
    ) -> Result<Vec<Option<String>>, WatchError> {
        let etags = self
            .ask(|answer| Command::Subscribe(uris.clone(), answer))
            .await?;
        self.subscribed.extend(uris);
        Ok(etags)
    }

    /// Watches `uri` no longer; answers whether it was. Nothing is reported of it afterwards.
    ///
    /// # Errors
    /// [`WatchError::Closed`].
    pub async fn unsubscribe_resource(&mut self, uri: &str) -> Result<bool, WatchError> {
        if !self.subscribed.remove(uri) {
            return Ok(false);
        }
        self.ask(|answer| Command::Unsubscribe(uri.to_owned(), answer))
            .await?;
        self.feed.forget(uri);
        Ok(true)
    }

    /// What is watched, in the order of the texts.
    pub fn list_subscriptions(&self) -> Vec<String> {
        self.subscribed.iter().cloned().collect()
    }

    /// The next change; none once the watcher has ended. May be cancelled.
    pub async fn next(&mut self) -> Option<ResourceChanged> {
        loop {
            if let Event::Changed(changed) = self.next_event().await? {
                return Some(changed);
            }
        }
    }

    /// The next change, or word about the connection; none once the watcher has ended. May be cancelled.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.feed.next().await.map(|(_, event)| event)
    }

    /// Ends the subscriptions and the connection, and waits for it, though not for ever.
    pub async fn close(self) {
        let Watcher {
            commands, mut keeper, ..
        } = self;
        drop(commands);
        if tokio::time::timeout(CLOSE_TIMEOUT, &mut keeper).await.is_err() {
            keeper.abort();
        }
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, WatchError>>) -> Command,
    ) -> Result<T, WatchError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.send(command(answer)).await;
        sent.map_err(|_| WatchError::Closed)?;
        answered.await.map_err(|_| WatchError::Closed)?
    }
}
