//! The watcher: keeps the connection from which all clients get resources and lists, has the server announce
//! their changes, and looks whenever something may have changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::capabilities;
use super::change_notices::{ChangeNotices, Noticed};
use super::connect::{Handshake, Introduction, connect};
use super::connection::UpstreamConnection;
use super::upstream::Upstream;
use crate::backoff::{doubled, shortened};
use crate::client::ConnectError;
use crate::mcp::{FollowSubscriptions, Wrap};
use crate::{BoxFuture, PublishError, ResourceUri};

/// The waits between attempts to connect: the first, and the longest. Each is shortened by up to a half.
const RECONNECT_FIRST: Duration = Duration::from_millis(200);
const RECONNECT_MAX: Duration = Duration::from_secs(30);

/// The time that a connection must last for the waits to begin anew.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// The time for which notices are gathered before the gateway looks, so that many of one content are one
/// look.
const GATHER_TIME: Duration = Duration::from_millis(100);

/// The interval between two looks right after a change. It doubles up to the configured one.
const POLL_FIRST: Duration = Duration::from_secs(1);

/// The time that a subscription of a client waits until the server has been asked to announce changes.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(2);

/// Subscriptions that wait for the watcher. A client beyond them is subscribed at once; its resources are
/// then found at the next look.
const FOLLOWED_MAX: usize = 1_000;

/// The task that keeps the connection.
pub(super) struct UpstreamWatcher {
    wrap: Wrap,
    upstream: Arc<Upstream>,
    signals: Arc<ChangeNotices>,
    follow: mpsc::Sender<FollowedResources>,
    followed: mpsc::Receiver<FollowedResources>,
    /// The resources that the server was asked to announce.
    announced: BTreeSet<String>,
    /// The resources that it does not announce.
    silent: BTreeSet<String>,
    /// The listen stream of 2026-07-28.
    stream: Option<JoinHandle<()>>,
    interval: Duration,
}

/// Resources that a client subscribes to.
struct FollowedResources {
    uris: Vec<ResourceUri>,
    done: oneshot::Sender<()>,
}

/// Tells the watcher which resources clients subscribe to.
struct Follower(mpsc::Sender<FollowedResources>);

impl FollowSubscriptions for Follower {
    fn follow(&self, uris: Vec<ResourceUri>) -> BoxFuture<()> {
        let (done, is_done) = oneshot::channel();
        let sent = self.0.try_send(FollowedResources { uris, done });
        Box::pin(async move {
            if sent.is_ok() && tokio::time::timeout(FOLLOW_TIMEOUT, is_done).await.is_err() {
                tracing::debug!(
                    "the server has not taken a subscription yet; its client is served meanwhile"
                );
            }
        })
    }
}

impl UpstreamWatcher {
    /// Connects for the first time.
    ///
    /// # Errors
    /// The reason that the server cannot be reached.
    pub(super) async fn connect(
        wrap: Wrap,
        upstream: Arc<Upstream>,
    ) -> Result<UpstreamWatcher, ConnectError> {
        let (follow, followed) = mpsc::channel(FOLLOWED_MAX);
        let watcher = UpstreamWatcher {
            wrap,
            upstream,
            signals: Arc::default(),
            follow,
            followed,
            announced: BTreeSet::new(),
            silent: BTreeSet::new(),
            stream: None,
            interval: POLL_FIRST,
        };
        let connection = watcher.open().await?;
        watcher.upstream.connected(connection);
        Ok(watcher)
    }

    pub(super) fn follower(&self) -> Arc<dyn FollowSubscriptions> {
        Arc::new(Follower(self.follow.clone()))
    }

    async fn open(&self) -> Result<Arc<UpstreamConnection>, ConnectError> {
        let caller = Introduction {
            client: capabilities::watcher(),
            handshake: Handshake::Newest,
            signals: Some(self.signals.clone()),
        };
        connect(&self.upstream, &caller).await.map(Arc::new)
    }

    /// Keeps the connection until the bus stops.
    pub(super) async fn keep(mut self) {
        let mut failures = 0;
        while let Ok(connection) = self.upstream.connection().await {
            let began = Instant::now();
            if self.serve(&connection).await.is_err() {
                return;
            }
            self.upstream.disconnected();
            self.end_stream();
            drop(connection);
            // A server that ends at once each time is not started in a tight loop.
            if began.elapsed() >= STABLE_AFTER {
                failures = 0;
            }
            self.upstream.failed("the connection ended");
            tracing::warn!("the connection to the server behind the gateway ended; it is made anew");
            if !self.reconnect(&mut failures).await {
                return;
            }
        }
    }

    /// Connects again, however long that takes. Returns false once the bus has stopped.
    async fn reconnect(&mut self, failures: &mut u32) -> bool {
        loop {
            let wait = doubled(RECONNECT_FIRST, RECONNECT_MAX, *failures);
            *failures = failures.saturating_add(1);
            let random = getrandom::u32().unwrap_or(u32::MAX);
            tokio::select! {
                () = tokio::time::sleep(shortened(wait, random)) => {}
                _ = self.wrap.bus().stopped() => return false,
            }
            match self.open().await {
                Ok(connection) => {
                    // Before it is there: a report of a server that is up again counts this restart.
                    self.upstream.restarted();
                    self.upstream.connected(connection);
                    tracing::info!("the server behind the gateway is connected again");
                    return true;
                }
                Err(error) => {
                    self.upstream.failed(&error.to_string());
                    tracing::warn!(%error, "the server behind the gateway cannot be reached");
                }
            }
        }
    }

    /// Watches over one connection until it ends.
    ///
    /// # Errors
    /// The bus has stopped.
    async fn serve(&mut self, connection: &Arc<UpstreamConnection>) -> Result<(), PublishError> {
        let bus = self.wrap.bus().clone();
        // Whatever is under way at the end is left: the next connection begins with a look at everything.
        tokio::select! {
            () = connection.lost().wait() => Ok(()),
            _ = bus.stopped() => Err(PublishError::Closed(crate::Closed)),
            ended = self.work(connection) => ended,
        }
    }

    /// Follows the clients, the notices and the timer.
    ///
    /// # Errors
    /// The bus has stopped.
    async fn work(&mut self, connection: &Arc<UpstreamConnection>) -> Result<(), PublishError> {
        // Those of clients that subscribed over earlier connections.
        let subscribed = self.wrap.subscribed().await?;
        // No announcement outlives its connection.
        self.announced.clear();
        self.silent.clear();
        self.announce(connection, subscribed.clone()).await;
        self.upstream.metrics().looks_connected.increment(1);
        self.wrap.refresh_lists().await?;
        self.wrap.refresh_resources(subscribed).await?;
        self.interval = POLL_FIRST;
        let mut due = Instant::now() + self.interval;
        loop {
            tokio::select! {
                Some(followed) = self.followed.recv() => {
                    self.announce(connection, followed.uris).await;
                    if followed.done.send(()).is_err() {
                        tracing::debug!("a client was gone before its subscription was passed on");
                    }
                    // A client that has just come is told soon whether there is anything to tell.
                    self.interval = POLL_FIRST;
                    due = due.min(Instant::now() + self.interval);
                }
                () = self.signals.arrived() => {
                    // A server that writes a file in parts announces each of them.
                    tokio::time::sleep(GATHER_TIME).await;
                    let noticed = self.signals.take();
                    self.look(noticed).await?;
                }
                () = tokio::time::sleep_until(due) => {
                    self.poll(connection).await?;
                    due = Instant::now() + shortened(self.interval, getrandom::u32().unwrap_or(0));
                }
            }
        }
    }

    /// Looks at everything of which there were notices.
    async fn look(&mut self, noticed: Noticed) -> Result<(), PublishError> {
        self.upstream.metrics().looks_noticed.increment(1);
        // Lists first: they say which resources there are.
        if noticed.lists {
            self.wrap.refresh_lists().await?;
        }
        if noticed.is_overfull {
            return self.wrap.refresh_subscribed().await;
        }
        let uris = noticed.uris.iter().flat_map(|uri| ResourceUri::new(uri).ok());
        self.wrap.refresh_resources(uris.collect()).await
    }

    /// Looks at everything, since a server may announce nothing, or not everything.
    async fn poll(&mut self, connection: &Arc<UpstreamConnection>) -> Result<(), PublishError> {
        self.upstream.metrics().looks_timed.increment(1);
        self.upstream.speakers.close_idle();
        self.upstream.parked.end_expired();
        let subscribed = self.wrap.subscribed().await?;
        // Compared over the whole look: which of the resources changed makes no difference here.
        let before = self.wrap.bus().etags(subscribed.clone()).await?;
        self.wrap.refresh_resources(subscribed.clone()).await?;
        self.wrap.refresh_lists().await?;
        let after = self.wrap.bus().etags(subscribed.clone()).await?;
        self.interval = match before == after {
            true => (self.interval * 2).min(self.upstream.options().poll.max(POLL_FIRST)),
            false => POLL_FIRST,
        };
        self.renounce(connection, &subscribed).await;
        // Those that a full queue kept from being followed, and a stream that the server has ended.
        self.announce(connection, subscribed).await;
        Ok(())
    }

    /// Has the server announce changes of these resources, too.
    async fn announce(&mut self, connection: &Arc<UpstreamConnection>, uris: Vec<ResourceUri>) {
        let mut fresh = Vec::new();
        for uri in uris {
            if !self.announced.contains(uri.as_str()) && !self.silent.contains(uri.as_str()) {
                fresh.push(uri.to_string());
            }
        }
        let resources = connection.info().capabilities.resources.as_ref();
        let announces = matches!(resources, Some(resources) if resources.subscribe == Some(true));
        if connection.is_stateless() {
            if !announces {
                self.silent.extend(fresh);
                fresh = Vec::new();
            }
            let has_ended = match &self.stream {
                Some(stream) => stream.is_finished(),
                None => true,
            };
            if !fresh.is_empty() || has_ended {
                self.announced.extend(fresh);
                self.listen(connection).await;
            }
        } else {
            for uri in fresh {
                if announces && subscribe(connection, &uri).await {
                    self.announced.insert(uri);
                } else {
                    self.silent.insert(uri);
                }
            }
        }
        self.upstream.announces(self.announced.len());
    }

    /// Opens a listen stream for everything that is to be announced; the last one ends after that.
    async fn listen(&mut self, connection: &Arc<UpstreamConnection>) {
        let capabilities = &connection.info().capabilities;
        let mut filter = SubscriptionFilter::default();
        if let Some(resources) = &capabilities.resources {
            filter.resources_list_changed = resources.list_changed;
        }
        if let Some(tools) = &capabilities.tools {
            filter.tools_list_changed = tools.list_changed;
        }
        if let Some(prompts) = &capabilities.prompts {
            filter.prompts_list_changed = prompts.list_changed;
        }
        if !self.announced.is_empty() {
            filter.resource_subscriptions = Some(self.announced.iter().cloned().collect());
        }
        if filter == SubscriptionFilter::default() {
            return;
        }
        // Bounded: the watcher has other work, and the next look tries again.
        match tokio::time::timeout(FOLLOW_TIMEOUT, connection.peer().listen(filter)).await {
            Ok(Ok(mut stream)) => {
                let running = tokio::spawn(async move {
                    // Its notices were heard on the transport; this only makes room for the next.
                    while let Ok(Some(_)) = stream.next().await {}
                });
                self.end_stream();
                self.stream = Some(running);
            }
            Ok(Err(error)) => tracing::debug!(%error, "the server refuses to announce changes"),
            Err(_) => tracing::debug!("the server does not answer a listen request"),
        }
    }

    fn end_stream(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.abort();
        }
    }

    /// Ends the announcements of resources that have no subscribers any more.
    async fn renounce(&mut self, connection: &Arc<UpstreamConnection>, subscribed: &[ResourceUri]) {
        let kept: BTreeSet<&str> = subscribed.iter().map(ResourceUri::as_str).collect();
        self.silent.retain(|uri| kept.contains(uri.as_str()));
        let ended: Vec<String> = self
            .announced
            .iter()
            .filter(|uri| !kept.contains(uri.as_str()))
            .cloned()
            .collect();
        // Not at once with the last subscriber, who often comes back at the next moment.
        for uri in &ended {
            self.announced.remove(uri);
            if !connection.is_stateless() {
                unsubscribe(connection, uri).await;
            }
        }
        if !ended.is_empty() && connection.is_stateless() {
            self.listen(connection).await;
        }
    }
}

impl Drop for UpstreamWatcher {
    fn drop(&mut self) {
        self.end_stream();
        self.upstream.disconnected();
    }
}

#[expect(deprecated, reason = "the older revisions have no other subscription")]
async fn subscribe(connection: &UpstreamConnection, uri: &str) -> bool {
    let subscribing = connection.peer().subscribe(SubscribeRequestParams::new(uri));
    match tokio::time::timeout(FOLLOW_TIMEOUT, subscribing).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!(%error, uri, "the server does not announce changes of a resource");
            false
        }
        Err(_) => false,
    }
}

#[expect(deprecated, reason = "the older revisions have no other subscription")]
async fn unsubscribe(connection: &UpstreamConnection, uri: &str) {
    let unsubscribing = connection.peer().unsubscribe(UnsubscribeRequestParams::new(uri));
    if let Ok(Err(error)) = tokio::time::timeout(FOLLOW_TIMEOUT, unsubscribing).await {
        tracing::debug!(%error, uri, "a subscription at the server could not be ended");
    }
}
