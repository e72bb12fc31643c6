//! The Session actor: the life of one subscriber that converses, and the handle by which it is steered.
//!
//! Owns: a session's limits, its lists and its end. Control plane only: what the session is told goes from the
//! Publisher to its outbox and from there to its stream, never through this mailbox. It has no timer: the Publisher
//! shard that marks its outbox looks at its times. Receives from its [`Session`] handle and, when it is evicted, from
//! its outbox; sends to the Registry, so that its requests are in one order with all changes.

mod ended;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::{Actor, ActorContext, Addr, Context, Handler};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::messages::{
    ClientReady, EndSession, RegistryRequest, Route, StreamMoved, SubscribeUris, SubscriberRequest,
    UnsubscribeUri, WatchFiltered,
};
use crate::metrics::Metrics;
use crate::model::{
    Closed, EndReason, Etag, Filter, ResourceUri, SessionOptions, SubscribeError, SubscriberId,
};
use crate::outbox::{Outbox, OutboxReader};
use crate::runtime::{Admission, BusState, InboxSender, Reply, current_shard, mailbox};
use crate::sink::HeldSession;
pub(crate) use ended::EndedSubscribers;

/// How many resources may wait for a session that watches all of them.
const WATCHED_MAX: usize = 100_000;

/// The life of one session.
pub(crate) struct SessionActor {
    /// What it has not been told.
    pub(crate) outbox: Arc<Outbox>,
    /// First on the way of its requests.
    pub(crate) registry: InboxSender<RegistryRequest>,
    /// Tells its opener that it is attached.
    pub(crate) attach: Option<Reply<()>>,
    /// Its limits and lists.
    pub(crate) options: SessionOptions,
    pub(crate) metrics: Arc<Metrics>,
    /// Its place among the sessions the bus allows; free when the publisher has let go of it, so that however fast
    /// sessions come and go, what they have in flight is bounded by their number.
    pub(crate) place: Option<OwnedSemaphorePermit>,
    /// Tells why it ends when nobody ended it.
    pub(crate) life: watch::Receiver<BusState>,
    /// Where its end is remembered.
    pub(crate) ended_subscribers: Arc<EndedSubscribers>,
}

impl SessionActor {
    fn route(&self, request: SubscriberRequest) {
        let outbox = self.outbox.clone();
        self.registry
            .push(RegistryRequest::Route(Route { outbox, request }));
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        if let Some(attach) = self.attach.take() {
            self.route(SubscriberRequest::Attach(attach));
        }
    }
}

impl Drop for SessionActor {
    /// Also when a handler panicked: the end of a session leaves nothing behind.
    fn drop(&mut self) {
        self.outbox.end(match *self.life.borrow() {
            BusState::Stopping => EndReason::Shutdown,
            BusState::Running | BusState::Dead(_) => EndReason::Failed,
        });
        let reason = self.outbox.ended().unwrap_or(EndReason::Failed);
        self.metrics.count_end(reason);
        self.outbox.labels().sessions.decrement(1.0);
        self.ended_subscribers.remember(&self.outbox, reason);
        let place = self.place.take();
        self.route(SubscriberRequest::Detach(place));
    }
}

impl Handler<SubscribeUris> for SessionActor {
    type Result = ();

    fn handle(&mut self, SubscribeUris(uris, reply): SubscribeUris, _: &mut Context<Self>) {
        self.route(SubscriberRequest::Subscribe {
            uris,
            max: self.options.subscriptions_max,
            trusted: self.options.trusted,
            reply,
        });
    }
}

impl Handler<UnsubscribeUri> for SessionActor {
    type Result = ();

    fn handle(&mut self, UnsubscribeUri(uri, reply): UnsubscribeUri, _: &mut Context<Self>) {
        self.route(SubscriberRequest::Unsubscribe(uri, reply));
    }
}

impl Handler<ClientReady> for SessionActor {
    type Result = ();

    fn handle(&mut self, ClientReady(reply): ClientReady, _: &mut Context<Self>) {
        self.route(SubscriberRequest::WatchLists {
            kinds: self.options.lists.clone(),
            announce: self.options.announce,
            reply,
        });
    }
}

impl Handler<WatchFiltered> for SessionActor {
    type Result = ();

    fn handle(&mut self, WatchFiltered(filter, max, reply): WatchFiltered, _: &mut Context<Self>) {
        self.route(SubscriberRequest::Watch(filter, max, reply));
    }
}

impl Handler<StreamMoved> for SessionActor {
    type Result = ();

    fn handle(&mut self, StreamMoved: StreamMoved, _: &mut Context<Self>) {
        self.route(SubscriberRequest::Move);
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
    pub(crate) admission: Admission,
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
        self.ask(|reply| SubscribeUris(uris, reply)).await
    }

    /// Ends a subscription; answers whether there was one. Nothing is told of it afterwards.
    ///
    /// # Errors
    /// [`Closed`] when the session or the bus has ended.
    pub async fn unsubscribe(&self, uri: ResourceUri) -> Result<bool, Closed> {
        self.ask(|reply| UnsubscribeUri(uri, reply)).await
    }

    /// Says that the client can be told things: from now on it is told of the lists it was opened with.
    ///
    /// # Errors
    /// [`Closed`] when the session or the bus has ended.
    pub async fn ready(&self) -> Result<(), Closed> {
        self.ask(ClientReady).await
    }

    /// Has it told about every resource there is, of which 100,000 may wait at once.
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
        self.ask(|reply| WatchFiltered(filter, pending_max, reply)).await
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
        self.outbox.record_activity();
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
        mailbox::send(&self.actor, message, &self.metrics);
    }

    async fn ask<T, M>(&self, message: impl FnOnce(Reply<T>) -> M) -> Result<T, Closed>
    where
        M: actix::Message<Result = ()> + Send + 'static,
        SessionActor: Handler<M>,
    {
        let (reply, answer) = self.admission.enter().await?.reply();
        self.active();
        self.tell(message(reply));
        answer.await.map_err(|_dropped| Closed)
    }
}

impl HeldSession for Session {
    fn end(&self) {
        self.end();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}
