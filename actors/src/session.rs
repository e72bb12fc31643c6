//! The Session actor: the life of one subscriber that converses, and the handle by which it is steered.
//!
//! Owns: a session's limits, its lists and its end. Control plane only: what the session is told goes from the
//! Publisher to its outbox and from there to its stream, never through this mailbox. It has no timer: the Publisher
//! shard that marks its outbox looks at its times. Receives from its [`Session`] handle and, when it is evicted, from
//! its outbox; sends to the Registry, so that its requests are in one order with all changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix::{Actor, ActorContext, Addr, Context, Handler};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::departed::Departed;
use crate::door::{Door, Ticket};
use crate::error::SubscribeError;
use crate::message::{
    ClientReady, EndSession, Request, Route, StreamMoved, Subscribe, SubscribeUris, UnsubscribeUri,
    WatchFiltered, WatchLists,
};
use crate::metric::Metrics;
use crate::outbox::{EndReason, Outbox, OutboxReader};
use crate::post::{Life, post};
use crate::registry::Registry;
use crate::subscriber::{SubscriberId, SubscriberKind};
use crate::system::current_shard;
use crate::{Closed, Etag, Filter, ListKind, ResourceUri};

/// How many resources may wait for a session that watches all of them.
pub const WATCHED_MAX: usize = 100_000;

/// How a session is opened.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// What it is.
    pub kind: SubscriberKind,
    /// What surveys call it, such as its revision and transport; no secrets.
    pub label: Arc<str>,
    /// What it speaks, such as the revision of a protocol (default `none`). A label of metrics: one of few words.
    pub protocol: &'static str,
    /// What carries what it is told, such as `http` (default `local`). A label of metrics: one of few words.
    pub transport: &'static str,
    /// Which lists it is told of once it is [`ready`](Session::ready). Lists left out keep no memory.
    pub lists: Vec<ListKind>,
    /// Whether every list that is not empty is due as soon as it is ready.
    pub announce: bool,
    /// How many subscriptions it may have (default: as many as the bus allows). Beyond, subscribing answers `TooMany`.
    pub subscriptions_max: usize,
    /// Whether it may subscribe to what clients may not (default: no).
    pub trusted: bool,
    /// How long it may have neither a reader nor [activity](Session::active) before it is ended; none: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long it may take nothing of what waits for it though a reader is open before it is ended; none: for ever.
    /// What waits is bounded by its subscriptions, however long it takes.
    pub stall_timeout: Option<Duration>,
    /// How old it may grow before it is ended; none: as old as the bus. Each session ends at an age of its own, up to
    /// a tenth less than this, so that sessions that came together do not come back together.
    pub age_max: Option<Duration>,
}

impl SessionOptions {
    /// A session called `label` that is told of no lists and lives as long as its handle.
    pub fn new(kind: SubscriberKind, label: impl Into<Arc<str>>) -> SessionOptions {
        SessionOptions {
            kind,
            label: label.into(),
            protocol: "none",
            transport: "local",
            lists: Vec::new(),
            announce: false,
            subscriptions_max: usize::MAX,
            trusted: false,
            idle_timeout: None,
            stall_timeout: None,
            age_max: None,
        }
    }
}

/// The life of one session.
pub(crate) struct SessionActor {
    /// What it has not been told.
    pub(crate) outbox: Arc<Outbox>,
    /// First on the way of its requests.
    pub(crate) registry: Addr<Registry>,
    /// Tells its opener that it is attached.
    pub(crate) attach: Option<Ticket<()>>,
    /// Its limits and lists.
    pub(crate) options: SessionOptions,
    pub(crate) metrics: Arc<Metrics>,
    /// Its place among the sessions the bus allows; free when the publisher has let go of it, so that however fast
    /// sessions come and go, what they have in flight is bounded by their number.
    pub(crate) place: Option<OwnedSemaphorePermit>,
    /// Tells why it ends when nobody ended it.
    pub(crate) life: watch::Receiver<Life>,
    /// Where its end is remembered.
    pub(crate) departed: Arc<Departed>,
}

impl SessionActor {
    fn route(&self, request: Request) {
        post(
            &self.registry,
            Route {
                outbox: self.outbox.clone(),
                request,
            },
            &self.metrics,
        );
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        if let Some(attach) = self.attach.take() {
            self.route(Request::Attach(attach));
        }
    }
}

impl Drop for SessionActor {
    /// Also when a handler panicked: the end of a session leaves nothing behind.
    fn drop(&mut self) {
        self.outbox.end(match *self.life.borrow() {
            Life::Stopping => EndReason::Shutdown,
            Life::Running | Life::Dead(_) => EndReason::Failed,
        });
        let reason = self.outbox.ended().unwrap_or(EndReason::Failed);
        self.metrics.ended(reason);
        self.outbox.road().sessions.decrement(1.0);
        self.departed.remember(&self.outbox, reason);
        let place = self.place.take();
        self.route(Request::Detach(place));
    }
}

impl Handler<SubscribeUris> for SessionActor {
    type Result = ();

    fn handle(&mut self, SubscribeUris(uris, ticket): SubscribeUris, _: &mut Context<Self>) {
        let SessionOptions {
            subscriptions_max: max,
            trusted,
            ..
        } = self.options;
        let outbox = self.outbox.clone();
        post(
            &self.registry,
            Subscribe {
                outbox,
                uris,
                max,
                trusted,
                ticket,
            },
            &self.metrics,
        );
    }
}

impl Handler<UnsubscribeUri> for SessionActor {
    type Result = ();

    fn handle(&mut self, UnsubscribeUri(uri, ticket): UnsubscribeUri, _: &mut Context<Self>) {
        self.route(Request::Unsubscribe(uri, ticket));
    }
}

impl Handler<ClientReady> for SessionActor {
    type Result = ();

    fn handle(&mut self, ClientReady(ticket): ClientReady, _: &mut Context<Self>) {
        let (outbox, announce) = (self.outbox.clone(), self.options.announce);
        let kinds = self.options.lists.clone();
        post(
            &self.registry,
            WatchLists {
                outbox,
                kinds,
                announce,
                ticket,
            },
            &self.metrics,
        );
    }
}

impl Handler<WatchFiltered> for SessionActor {
    type Result = ();

    fn handle(&mut self, WatchFiltered(filter, max, ticket): WatchFiltered, _: &mut Context<Self>) {
        self.route(Request::Watch(filter, max, ticket));
    }
}

impl Handler<StreamMoved> for SessionActor {
    type Result = ();

    fn handle(&mut self, StreamMoved: StreamMoved, _: &mut Context<Self>) {
        self.route(Request::Move);
    }
}

impl Handler<EndSession> for SessionActor {
    type Result = ();

    fn handle(&mut self, EndSession(reason): EndSession, ctx: &mut Context<Self>) {
        self.outbox.end(reason);
        ctx.stop();
    }
}

/// The handle of one session. Dropping it ends the session and everything it subscribed to.
#[derive(Debug)]
pub struct Session {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) actor: Addr<SessionActor>,
    pub(crate) door: Door,
    pub(crate) drain_max: usize,
    /// Whether its end is on its way already.
    pub(crate) ending: AtomicBool,
    pub(crate) metrics: Arc<Metrics>,
}

impl Session {
    /// Its name for the life of the bus.
    pub fn id(&self) -> SubscriberId {
        self.outbox.id()
    }

    /// Subscribes to each of `uris`; subscribing twice is one subscription. Answers, in order, the etag from which on
    /// changes will be told, or why not. Waits at the door.
    ///
    /// # Errors
    /// [`Closed`] when the session or the bus has ended.
    pub async fn subscribe(
        &self,
        uris: Vec<ResourceUri>,
    ) -> Result<Vec<Result<Etag, SubscribeError>>, Closed> {
        self.ask(|ticket| SubscribeUris(uris, ticket)).await
    }

    /// Ends a subscription; answers whether there was one. Nothing is told of it afterwards.
    ///
    /// # Errors
    /// [`Closed`] when the session or the bus has ended.
    pub async fn unsubscribe(&self, uri: ResourceUri) -> Result<bool, Closed> {
        self.ask(|ticket| UnsubscribeUri(uri, ticket)).await
    }

    /// Says that the client can be told things: from now on it is told of the lists it was opened with.
    ///
    /// # Errors
    /// [`Closed`] when the session or the bus has ended.
    pub async fn ready(&self) -> Result<(), Closed> {
        self.ask(ClientReady).await
    }

    /// Has it told about every resource there is, of which [`WATCHED_MAX`] may wait at once.
    ///
    /// # Errors
    /// [`Closed`] when the session or the bus has ended.
    pub async fn watch_all(&self) -> Result<(), Closed> {
        self.watch(Arc::default(), WATCHED_MAX).await
    }

    /// Has it told about every resource that `filter` wants, beside those it subscribed to; the first filter stands. At
    /// most `pending_max` resources (at least 1) wait at once: while as many do, changes of further ones are not told,
    /// which [`OutboxReader::take_lost`] counts.
    ///
    /// # Errors
    /// [`Closed`] when the session or the bus has ended.
    pub async fn watch(&self, filter: Arc<Filter>, pending_max: usize) -> Result<(), Closed> {
        self.ask(|ticket| WatchFiltered(filter, pending_max, ticket))
            .await
    }

    /// Opens a reader of what it is told. When called on a shard's thread (see [`Shard`](crate::Shard)), that shard
    /// marks the session's outbox from now on, so that a mark and its wake-up stay on one thread.
    pub fn reader(&self) -> OutboxReader {
        if current_shard().is_some_and(|shard| self.outbox.want_shard(shard)) {
            self.tell(StreamMoved);
        }
        OutboxReader::open(self.outbox.clone(), self.drain_max)
    }

    /// Notes that the client did something, for the idle timer.
    pub fn active(&self) {
        self.outbox.active();
    }

    /// Why it ended, if it did.
    pub fn ended(&self) -> Option<EndReason> {
        self.outbox.ended()
    }

    /// How many readers are open.
    pub fn readers(&self) -> usize {
        self.outbox.readers()
    }

    /// Ends it: readers are handed what is pending, then told the reason.
    pub fn end(&self) {
        if !self.ending.swap(true, Ordering::Relaxed) {
            self.tell(EndSession(EndReason::Closed));
        }
    }

    /// A mailbox that is closed belongs to a session that has ended already. It cannot be full: requests have a
    /// permit of the door, and besides there is at most one move, one end and one eviction.
    fn tell<M>(&self, message: M)
    where
        M: actix::Message<Result = ()> + Send + 'static,
        SessionActor: Handler<M>,
    {
        post(&self.actor, message, &self.metrics);
    }

    async fn ask<T, M>(&self, message: impl FnOnce(Ticket<T>) -> M) -> Result<T, Closed>
    where
        M: actix::Message<Result = ()> + Send + 'static,
        SessionActor: Handler<M>,
    {
        let (ticket, answer) = self.door.enter().await?.ticket();
        self.active();
        self.tell(message(ticket));
        answer.await.map_err(|_dropped| Closed)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
