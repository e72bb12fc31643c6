//! The watcher: keeps the connection from which all clients get resources and lists, has the server announce
//! their changes, and looks whenever something may have changed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::announcements::Announcements;
use super::change_notices::{ChangeNotices, GATHER_TIME, Noticed};
use super::connect::connect;
use super::connection::UpstreamConnection;
use super::followers::{FollowedResources, Follower};
use super::introduction::{Handshake, Introduction};
use super::lists;
use super::rated_polls::{POLL_FIRST, RatedPolls};
use super::upstream::Upstream;
use crate::backoff::{doubled, shortened};
use crate::client::ConnectError;
use crate::mcp::Wrap;
use crate::metrics::{self, Limit};
use crate::{PublishError, ResourceUri};

/// The waits between attempts to connect: the first, and the longest. Each is shortened by up to a half.
const RECONNECT_FIRST: Duration = Duration::from_millis(200);
const RECONNECT_MAX: Duration = Duration::from_secs(30);

/// The time that a connection must last for the waits to begin anew.
const STABLE_AFTER: Duration = Duration::from_secs(1);

/// The interval at which connections and calls are ended that have been idle for too long.
const IDLE_INTERVAL: Duration = Duration::from_secs(5);

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
    announcements: Announcements,
    /// The reads of subscribed resources without a notice.
    polls: RatedPolls,
    /// The interval between two looks at everything else: the lists, and what the server is to announce.
    interval: Duration,
}

impl UpstreamWatcher {
    pub(super) fn new(wrap: Wrap, upstream: Arc<Upstream>) -> UpstreamWatcher {
        let (follow, followed) = mpsc::channel(FOLLOWED_MAX);
        let options = upstream.options();
        UpstreamWatcher {
            polls: RatedPolls::new(options.poll, options.poll_rate),
            wrap,
            upstream,
            signals: Arc::default(),
            follow,
            followed,
            announcements: Announcements::default(),
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
            // Without it the server would accept subscriptions and could not announce a change.
            needs_stream: true,
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
            self.announcements.end_stream();
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
        self.announcements.begin_anew();
        self.announce(connection, subscribed.clone()).await;
        self.upstream.metrics().looks_connected.increment(1);
        self.upstream.lists_due.notify_one();
        self.polls.keep(&subscribed, Instant::now());
        self.polls.all_soon(Instant::now());
        self.wrap.refresh_resources(subscribed).await?;
        self.interval = POLL_FIRST;
        let mut due = Instant::now() + self.interval;
        let mut idle_due = tokio::time::interval(IDLE_INTERVAL);
        loop {
            let next_poll = self.polls.next();
            tokio::select! {
                Some(followed) = self.followed.recv() => {
                    // A client that has just come is told soon whether there is anything to tell.
                    self.polls.soon(&followed.uris, Instant::now());
                    self.announce(connection, followed.uris).await;
                    if followed.done.send(()).is_err() {
                        tracing::debug!("a client was gone before its subscription was passed on");
                    }
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
                () = self.announcements.stream_ended() => {
                    self.polls.all_soon(Instant::now());
                    due = due.min(Instant::now() + POLL_FIRST);
                }
                () = until(next_poll) => {
                    if self.poll().await? {
                        self.interval = POLL_FIRST;
                        due = due.min(Instant::now() + self.interval);
                    }
                }
                _ = idle_due.tick() => {
                    self.upstream.speakers.close_idle();
                    self.upstream.views.close_idle();
                    self.upstream.parked.end_expired();
                }
                () = tokio::time::sleep_until(due) => {
                    self.look_at_rest(connection).await?;
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
        let uris = match noticed.is_overfull {
            true => self.subscribed().await?,
            false => {
                let prefix = self.upstream.prefix();
                let uris = noticed.uris.iter();
                uris.flat_map(|uri| ResourceUri::new(&prefix.uri(uri)).ok())
                    .collect()
            }
        };
        for uri in self.reread(uris).await? {
            self.polls.changed(&uri, Instant::now());
        }
        Ok(())
    }

    /// Reads resources again. Returns those that changed.
    async fn reread(&self, uris: Vec<ResourceUri>) -> Result<HashSet<ResourceUri>, PublishError> {
        let before = self.wrap.bus().etags(uris.clone()).await?;
        self.wrap.refresh_resources(uris.clone()).await?;
        let after = self.wrap.bus().etags(uris.clone()).await?;
        let compared = uris.into_iter().zip(before.into_iter().zip(after));
        let changed = compared.filter(|(_, (before, after))| before != after);
        Ok(changed.map(|(uri, _)| uri).collect())
    }

    /// Reads the resources that are due. Returns true if one of them changed.
    async fn poll(&mut self) -> Result<bool, PublishError> {
        self.upstream.metrics().looks_timed.increment(1);
        let (due, must_wait) = self.polls.take(Instant::now());
        if must_wait {
            metrics::limit_reached(Limit::PollRate);
        }
        let changed = self.reread(due.clone()).await?;
        let now = Instant::now();
        for uri in due {
            match changed.contains(&uri) {
                true => self.polls.changed(&uri, now),
                false => self.polls.unchanged(&uri, now, getrandom::u32().unwrap_or(0)),
            }
        }
        Ok(!changed.is_empty())
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

    /// Looks at everything but the content of resources, since a server may announce nothing of it.
    async fn look_at_rest(&mut self, connection: &Arc<UpstreamConnection>) -> Result<(), PublishError> {
        self.upstream.metrics().looks_timed.increment(1);
        self.upstream.lists_due.notify_one();
        self.interval = (self.interval * 2).min(self.upstream.options().poll.max(POLL_FIRST));
        let subscribed = self.subscribed().await?;
        self.polls.keep(&subscribed, Instant::now());
        let kept = subscribed.iter().flat_map(|uri| self.own(uri)).collect();
        // Not at once with the last subscriber, who often comes back at the next moment.
        self.announcements.keep(connection, &kept).await;
        // Those that a full queue kept from being followed, and a stream that the server has ended.
        self.announce(connection, subscribed).await;
        Ok(())
    }

    /// Has the server announce changes of these resources, too.
    async fn announce(&mut self, connection: &Arc<UpstreamConnection>, uris: Vec<ResourceUri>) {
        let own = uris.iter().flat_map(|uri| self.own(uri)).collect();
        self.announcements.add(connection, own).await;
        self.upstream.announces(self.announcements.count());
    }
}

/// Waits until that time; without one, for ever.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
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
        self.upstream.disconnected();
    }
}
