//! The handle of a watch: subscribes, unsubscribes and reads events.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::error::{ConnectError, WatchError};
use super::handshake;
use super::latest_queue::LatestQueue;
use super::options::WatchOptions;
use super::strategy::WatchStrategy;
use super::target::{Era, Target};
use super::watch_task::{WatchCommand, WatchTask};
use super::{ResourceChanged, WatchEvent};

/// The capacity of the command queue. A watcher sends one command at a time, since its methods borrow it
/// mutably.
const COMMANDS: usize = 4;

/// The longest wait of [`Watcher::close`]: closing a link, and a request in flight.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that watches resources of one server. Dropping it ends the connection.
///
/// It is a [`Stream`] of [`WatchEvent`]s, too. Its own [`next`](Watcher::next), which returns changes alone,
/// is found before that of stream extensions.
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
    strategy: WatchStrategy,
    subscribed: BTreeMap<String, WatchStrategy>,
    commands: mpsc::Sender<WatchCommand>,
    events: Arc<LatestQueue<WatchEvent>>,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Connects to the server at `target`, in a revision of `era`. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ConnectError`]; only later connections are retried.
    pub async fn connect(target: Target, era: Era) -> Result<Watcher, ConnectError> {
        Watcher::connect_with(target, era, WatchOptions::default()).await
    }

    /// Connects like [`connect`](Self::connect), with other options than the defaults.
    ///
    /// # Errors
    /// As `connect`, [`ConnectError::StrategyUnavailable`] if the server does not offer
    /// [`WatchOptions::strategy`], and [`ConnectError::Denied`] if it refuses [`WatchOptions::credentials`].
    pub async fn connect_with(
        target: Target,
        era: Era,
        options: WatchOptions,
    ) -> Result<Watcher, ConnectError> {
        let options = options.bounded();
        // Here rather than in the task, so that the caller gets the error of the first connection.
        let link = handshake::open(&target, era, &options).await?;
        let (commands, received) = mpsc::channel(COMMANDS);
        let events = Arc::new(LatestQueue::new());
        let task = WatchTask::new(target, era, options, received, events.clone());
        let revision = link.revision.clone();
        let strategy = task.best_strategy(&link);
        Ok(Watcher {
            revision,
            strategy,
            subscribed: BTreeMap::new(),
            commands,
            events,
            task: tokio::spawn(task.run(link)),
        })
    }

    /// Returns the negotiated protocol revision of the first connection. [`WatchEvent::Restored`] carries
    /// that of later ones.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Returns the best strategy that the server offered on the first connection. [`WatchEvent::SteppedDown`]
    /// and [`WatchEvent::Restored`] carry later ones.
    pub fn strategy(&self) -> WatchStrategy {
        self.strategy
    }

    /// Returns the strategy that `uri` took when it was last subscribed to; none when it is not watched.
    pub fn strategy_of(&self, uri: &str) -> Option<WatchStrategy> {
        self.subscribed.get(uri).copied()
    }

    /// Watches `uri` and returns its current etag, if the server gives etags. A second subscription has no
    /// effect.
    ///
    /// # Errors
    /// As [`subscribe_resources`](Self::subscribe_resources).
    pub async fn subscribe_resource(&mut self, uri: &str) -> Result<Option<String>, WatchError> {
        let etags = self.subscribe_resources(vec![uri.to_owned()]).await?;
        Ok(etags.into_iter().next().flatten())
    }

    /// Watches all of `uris` or none, and returns their current etags, in order.
    ///
    /// # Errors
    /// [`WatchError::Refused`] naming the first that the server does not have, cannot read or does not let us
    /// watch, unless [`WatchOptions::wait_for_missing`] is set;
    /// [`WatchError::Disconnected`] while the connection is lost.
    pub async fn subscribe_resources(
        &mut self,
        uris: Vec<String>,
    ) -> Result<Vec<Option<String>>, WatchError> {
        let requested = uris.clone();
        let answers = self
            .send(|reply| WatchCommand::Subscribe(requested, reply))
            .await?;
        let mut etags = Vec::with_capacity(uris.len());
        for (uri, (etag, strategy)) in std::iter::zip(uris, answers) {
            self.subscribed.insert(uri, strategy);
            etags.push(etag);
        }
        Ok(etags)
    }

    /// Returns the URIs of all resources that the server lists, in its order and at most 100,000.
    ///
    /// # Errors
    /// [`WatchError::Disconnected`] while the connection is lost, [`WatchError::Refused`] if the server does
    /// not list them.
    pub async fn list_resources(&mut self) -> Result<Vec<String>, WatchError> {
        self.send(WatchCommand::List).await
    }

    /// Stops watching `uri` and returns whether it was watched. No event of it is handed out afterwards.
    ///
    /// # Errors
    /// [`WatchError::Closed`].
    pub async fn unsubscribe_resource(&mut self, uri: &str) -> Result<bool, WatchError> {
        if self.subscribed.remove(uri).is_none() {
            return Ok(false);
        }
        let gone = uri.to_owned();
        self.send(|reply| WatchCommand::Unsubscribe(gone, reply)).await?;
        // The task may have reported a change before it took the command.
        self.events.forget(uri);
        Ok(true)
    }

    /// Returns the watched URIs in lexical order.
    pub fn list_subscriptions(&self) -> Vec<String> {
        self.subscribed.keys().cloned().collect()
    }

    /// Returns the next change; none once the watcher has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<ResourceChanged> {
        loop {
            if let WatchEvent::Changed(changed) = self.next_event().await? {
                return Some(changed);
            }
        }
    }

    /// Returns the next change or event of the connection; none once the watcher has ended. Cancel safe.
    pub async fn next_event(&mut self) -> Option<WatchEvent> {
        self.events.next().await
    }

    /// Ends the subscriptions and the connection, and waits up to ten seconds for their end.
    pub async fn close(self) {
        let Watcher {
            commands, mut task, ..
        } = self;
        // The task ends once no sender of commands is left.
        drop(commands);
        if tokio::time::timeout(CLOSE_TIMEOUT, &mut task).await.is_err() {
            task.abort();
        }
    }

    async fn send<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, WatchError>>) -> WatchCommand,
    ) -> Result<T, WatchError> {
        // Both channels are closed only if the task has ended.
        let (reply, received) = oneshot::channel();
        if self.commands.send(command(reply)).await.is_err() {
            return Err(WatchError::Closed);
        }
        match received.await {
            Ok(answer) => answer,
            Err(_) => Err(WatchError::Closed),
        }
    }
}

/// The events of the watcher, as [`Watcher::next_event`] returns them. The stream ends with the watcher.
impl Stream for Watcher {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        self.events.poll_next(cx)
    }
}
