//! The watcher: keeps the connection from which all clients get resources and lists, has the server announce
//! their changes, and looks whenever something may have changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::SubscriptionFilter;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::announcements::{self, ANNOUNCE_TIMEOUT};
use super::change_notices::{ChangeNotices, GATHER_TIME, Noticed};
use super::connect::connect;
use super::connection::UpstreamConnection;
use super::followers::{FollowedResources, Follower};
use super::introduction::{Handshake, Introduction};
use super::lists;
use super::upstream::Upstream;
use crate::backoff::{doubled, shortened};
use crate::client::ConnectError;
use crate::mcp::Wrap;
use crate::{PublishError, ResourceUri};

/// The waits between attempts to connect: the first, and the longest. Each is shortened by up to a half.
const RECONNECT_FIRST: Duration = Duration::from_millis(200);
const RECONNECT_MAX: Duration = Duration::from_secs(30);

/// The time that a connection must last for the waits to begin anew.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// The interval between two looks right after a change. It doubles up to the configured one.
const POLL_FIRST: Duration = Duration::from_secs(1);

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
    /// Tells that the server has ended it.
    stream_ended: Arc<Notify>,
    interval: Duration,
}

impl UpstreamWatcher {
    pub(super) fn new(wrap: Wrap, upstream: Arc<Upstream>) -> UpstreamWatcher {
        let (follow, followed) = mpsc::channel(FOLLOWED_MAX);
        UpstreamWatcher {
            wrap,
            upstream,
            signals: Arc::default(),
            follow,
            followed,
            announced: BTreeSet::new(),
            silent: BTreeSet::new(),
            stream: None,
            stream_ended: Arc::default(),
            interval: POLL_FIRST,
        }
    }

    /// Connects for the first time.
    ///
    /// # Errors
    /// The reason that the server cannot be reached.
    pub(super) async fn connect(&self) -> Result<(), ConnectError> {
        match self.open().await {
            Ok(connection) => {
                self.upstream.connected(connection);
                Ok(())
            }
            Err(error) => {
                self.upstream.failed(&error.to_string());
                Err(error)
            }
        }
    }

    pub(super) fn follower(&self) -> Follower {
        Follower {
            upstream: self.upstream.clone(),
            watcher: self.follow.clone(),
        }
    }

    async fn open(&self) -> Result<Arc<UpstreamConnection>, ConnectError> {
        let caller = Introduction {
            client: self.upstream.watching_client(),
            handshake: Handshake::Newest,
            signals: Some(self.signals.clone()),
            is_shared: true,
            one_client: self.upstream.one_client().cloned(),
        };
        connect(&self.upstream, &caller).await.map(Arc::new)
    }

    /// Keeps the connection until the bus stops.
    pub(super) async fn keep(mut self) {
        let mut failures = 0;
        loop {
            if let Some(connection) = self.upstream.connected_now() {
                let began = Instant::now();
                if self.serve(&connection).await.is_err() {
                    return;
                }
                // A server that ends at once each time is not started in a tight loop.
                if began.elapsed() >= STABLE_AFTER {
                    failures = 0;
                }
                self.upstream.failed("the connection ended");
                tracing::warn!(
                    upstream = self.upstream.label(),
                    "the connection to the server behind the gateway ended; it is made anew"
                );
            }
            self.upstream.disconnected();
            self.end_stream();
            if !self.reconnect(&mut failures).await {
                return;
            }
        }
    }

    /// Connects again, however long that takes. Returns false once the bus has stopped.
    async fn reconnect(&mut self, failures: &mut usize) -> bool {
        let stale_at = Instant::now() + self.upstream.options().stale_lists;
        let mut are_stale = false;
        loop {
            let mut wait = doubled(
                RECONNECT_FIRST,
                RECONNECT_MAX,
                u32::try_from(*failures).unwrap_or(u32::MAX),
            );
            if *failures >= self.upstream.options().restart_max {
                wait = RECONNECT_MAX;
            }
            *failures = failures.saturating_add(1);
            let random = getrandom::u32().unwrap_or(u32::MAX);
            let due = Instant::now() + shortened(wait, random);
            // Told once: the items that are listed no longer are gone for the clients until it is back.
            if !are_stale && stale_at < due {
                are_stale = true;
                if !self.wait_until(stale_at).await || self.wrap.refresh_lists().await.is_err() {
                    return false;
                }
            }
            if !self.wait_until(due).await {
                return false;
            }
            match self.open().await {
                Ok(connection) => {
                    // Before it is there: a report of a server that is up again counts this restart.
                    self.upstream.restarted();
                    self.upstream.connected(connection);
                    tracing::info!(
                        upstream = self.upstream.label(),
                        "the server behind the gateway is connected again"
                    );
                    return true;
                }
                Err(error) => {
                    self.upstream.failed(&error.to_string());
                    tracing::warn!(
                        upstream = self.upstream.label(),
                        %error,
                        "the server behind the gateway cannot be reached"
                    );
                }
            }
        }
    }

    /// Waits. Returns false once the bus has stopped.
    async fn wait_until(&self, due: Instant) -> bool {
        tokio::select! {
            () = tokio::time::sleep_until(due) => true,
            _ = self.wrap.bus().stopped() => false,
        }
    }

    /// Watches over one connection until it ends.
    ///
    /// # Errors
    /// The bus has stopped.
    async fn serve(&mut self, connection: &Arc<UpstreamConnection>) -> Result<(), PublishError> {
        let bus = self.wrap.bus().clone();
        let lists = look_at_lists(self.upstream.clone(), self.wrap.clone());
        // Whatever is under way at the end is left: the next connection begins with a look at everything.
        tokio::select! {
            () = connection.lost().wait() => Ok(()),
            _ = bus.stopped() => Err(PublishError::Closed(crate::Closed)),
            ended = self.work(connection) => ended,
            ended = lists => ended,
        }
    }

    /// Follows the clients, the notices and the timer.
    ///
    /// # Errors
    /// The bus has stopped.
    async fn work(&mut self, connection: &Arc<UpstreamConnection>) -> Result<(), PublishError> {
        // Those of clients that subscribed over earlier connections.
        let subscribed = self.subscribed().await?;
        // No announcement outlives its connection.
        self.announced.clear();
        self.silent.clear();
        self.announce(connection, subscribed.clone()).await;
        self.upstream.metrics().looks_connected.increment(1);
        self.upstream.lists_due.notify_one();
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
                // Nothing is announced until the next look, which opens another one.
                () = self.stream_ended.notified() => due = due.min(Instant::now() + POLL_FIRST),
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
        if noticed.lists {
            self.upstream.lists_due.notify_one();
        }
        if noticed.is_overfull {
            let subscribed = self.subscribed().await?;
            return self.wrap.refresh_resources(subscribed).await;
        }
        let prefix = self.upstream.prefix();
        let uris = noticed
            .uris
            .iter()
            .flat_map(|uri| ResourceUri::new(&prefix.uri(uri)).ok());
        self.wrap.refresh_resources(uris.collect()).await
    }

    /// Returns the resources of this server that clients are subscribed to.
    async fn subscribed(&self) -> Result<Vec<ResourceUri>, PublishError> {
        let mut subscribed = self.wrap.subscribed().await?;
        subscribed.retain(|uri| self.upstream.owns(uri));
        Ok(subscribed)
    }

    /// Returns a resource as the server names it.
    fn own(&self, uri: &ResourceUri) -> Option<String> {
        let own = self.upstream.prefix().own_uri(uri.as_str());
        own.map(str::to_owned)
    }

    /// Looks at everything, since a server may announce nothing, or not everything.
    async fn poll(&mut self, connection: &Arc<UpstreamConnection>) -> Result<(), PublishError> {
        self.upstream.metrics().looks_timed.increment(1);
        self.upstream.speakers.close_idle();
        self.upstream.views.close_idle();
        self.upstream.parked.end_expired();
        let subscribed = self.subscribed().await?;
        // Compared over the whole look: which of the resources changed makes no difference here.
        let before = self.wrap.bus().etags(subscribed.clone()).await?;
        self.wrap.refresh_resources(subscribed.clone()).await?;
        self.upstream.lists_due.notify_one();
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
        for own in uris.iter().flat_map(|uri| self.own(uri)) {
            if !self.announced.contains(&own) && !self.silent.contains(&own) {
                fresh.push(own);
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
                if announces && announcements::begin(connection, &uri).await {
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
        let filter = announcements::filter(connection, &self.announced);
        if filter == SubscriptionFilter::default() {
            return;
        }
        // Bounded: the watcher has other work, and the next look tries again.
        match tokio::time::timeout(ANNOUNCE_TIMEOUT, connection.peer().listen(filter)).await {
            Ok(Ok(mut stream)) => {
                let has_ended = self.stream_ended.clone();
                let running = tokio::spawn(async move {
                    // Its notices were heard on the transport; this only makes room for the next.
                    while let Ok(Some(_)) = stream.next().await {}
                    has_ended.notify_one();
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
        let kept: BTreeSet<String> = subscribed.iter().flat_map(|uri| self.own(uri)).collect();
        self.silent.retain(|uri| kept.contains(uri));
        let ended: Vec<String> = self
            .announced
            .iter()
            .filter(|uri| !kept.contains(*uri))
            .cloned()
            .collect();
        // Not at once with the last subscriber, who often comes back at the next moment.
        for uri in &ended {
            self.announced.remove(uri);
            if !connection.is_stateless() {
                announcements::end(connection, uri).await;
            }
        }
        if !ended.is_empty() && connection.is_stateless() {
            self.listen(connection).await;
        }
    }
}

/// Looks at the lists whenever that is due. Beside everything else: a server that is slow to answer one of
/// them must not delay notices of its resources.
///
/// # Errors
/// The bus has stopped.
async fn look_at_lists(upstream: Arc<Upstream>, wrap: Wrap) -> Result<(), PublishError> {
    loop {
        upstream.lists_due.notified().await;
        // Those of the other servers are taken as they are known.
        lists::renew(&upstream).await;
        wrap.refresh_lists().await?;
        for kind in upstream.take_changed_views() {
            wrap.tell_list_changed(kind).await?;
        }
    }
}

impl Drop for UpstreamWatcher {
    fn drop(&mut self) {
        self.end_stream();
        self.upstream.disconnected();
    }
}
