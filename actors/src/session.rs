//! The Session actor: the requests, limits and end of one subscriber, and the handle that sends to it.
//!
//! Notifications go from the Publisher to the outbox and from there to the stream, never through this
//! mailbox. The actor has no timer; the shard of its outbox watches the timeouts. It sends to the Registry,
//! so that its requests share one order with all changes.

mod ended;
mod unready;
mod resume;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::{Actor, ActorContext, Addr, Context, Handler};
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::messages::{
    ClientReady, EndSession, RegistryRequest, RightsJudged, Route, StreamMoved, SubscribeUris,
    SubscriberRequest, UnsubscribeUri, WatchFiltered,
};
use crate::metrics::Metrics;
use crate::model::{
    Closed, EndReason, Etag, Filter, ListKind, ListStart, ResourceUri, SessionOptions, SubscribeError,
    SubscriberId, SubscriptionRequest, SubscriptionRules,
};
use crate::outbox::{Outbox, OutboxReader};
use crate::runtime::{Admission, BusState, InboxSender, Reply, current_shard, mailbox};
use crate::sink::HeldSession;
pub(crate) use ended::EndedSubscribers;
pub(crate) use unready::UnreadySessions;

/// The most pending resources of a session that watches all of them.
const WATCHED_MAX: usize = 100_000;

/// The part of a session's options that its requests depend on. The others are in its outbox.
pub(crate) struct SessionTerms {
    lists: Vec<ListKind>,
    announce: bool,
    rules: SubscriptionRules,
}

impl From<SessionOptions> for SessionTerms {
    fn from(options: SessionOptions) -> SessionTerms {
        // What the outbox has is dropped: a session lives long, and there are many.
        SessionTerms {
            rules: options.subscription_rules(),
            announce: options.announce,
            lists: options.lists,
        }
    }
}

/// The actor of one session.
pub(crate) struct SessionActor {
    pub(crate) outbox: Arc<Outbox>,
    /// Shared, since a sender of its own would cost each session more than the rest of this.
    pub(crate) registry: Arc<InboxSender<RegistryRequest>>,
    /// Answers the request that opened the session, once its shard has it.
    pub(crate) attach: Option<Reply<()>>,
    pub(crate) terms: SessionTerms,
    pub(crate) metrics: Arc<Metrics>,
    /// The place among the sessions the bus allows. The Publisher frees it when it has removed the
    /// subscriber, so the requests in flight stay bounded however fast sessions come and go.
    pub(crate) place: Option<OwnedSemaphorePermit>,
    /// The reason of an end that the session's handle did not ask for.
    pub(crate) life: watch::Receiver<BusState>,
    pub(crate) ended_subscribers: Arc<EndedSubscribers>,
    pub(crate) unready: Arc<UnreadySessions>,
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
    /// Leaves nothing behind, also when a handler panicked.
    fn drop(&mut self) {
        self.outbox.end(match *self.life.borrow() {
            BusState::Stopping => EndReason::Shutdown,
            BusState::Running | BusState::Dead(_) => EndReason::Failed,
        });
        let reason = self.outbox.ended().unwrap_or(EndReason::Failed);
        self.metrics.count_end(reason);
        self.outbox.labels().sessions.decrement(1.0);
        self.ended_subscribers.remember(&self.outbox, reason);
        self.unready.remove(self.outbox.id());
        let place = self.place.take();
        self.route(SubscriberRequest::Detach(place));
    }
}

impl Handler<SubscribeUris> for SessionActor {
    type Result = ();

    fn handle(&mut self, SubscribeUris(requests, reply): SubscribeUris, _: &mut Context<Self>) {
        self.route(SubscriberRequest::Subscribe {
            requests,
            rules: self.terms.rules,
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
        self.unready.remove(self.outbox.id());
        self.route(SubscriberRequest::WatchLists {
            kinds: self.terms.lists.clone(),
            start: match self.terms.announce {
                true => ListStart::Announced,
                false => ListStart::Known,
            },
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

impl Handler<RightsJudged> for SessionActor {
    type Result = ();

    fn handle(&mut self, RightsJudged: RightsJudged, _: &mut Context<Self>) {
        self.route(SubscriberRequest::Settle(self.terms.lists.clone()));
    }
}

impl Handler<EndSession> for SessionActor {
    type Result = ();

    fn handle(&mut self, EndSession(reason): EndSession, ctx: &mut Context<Self>) {
        self.outbox.end(reason);
        ctx.stop();
    }
}

/// The handle of one session. Dropping it ends the session with its subscriptions.
#[derive(Debug)]
pub struct Session {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) actor: Addr<SessionActor>,
    pub(crate) admission: Admission,
    pub(crate) drain_max: usize,
    /// True once the end was requested.
    pub(crate) ending: AtomicBool,
    pub(crate) metrics: Arc<Metrics>,
}

impl Session {
    /// The id, unique for the life of the bus.
    pub fn id(&self) -> SubscriberId {
        self.outbox.id()
    }

    /// Subscribes to each of `uris`; a second subscription to a URI changes nothing. Returns, in order, the
    /// etags after which changes are notified, or the reasons for refusal. Waits while the limit of
    /// requests in flight is reached.
    ///
    /// # Errors
    /// [`Closed`] if the session or the bus has ended.
    pub async fn subscribe(
        &self,
        uris: Vec<ResourceUri>,
    ) -> Result<Vec<Result<Etag, SubscribeError>>, Closed> {
        let requests = uris.into_iter().map(SubscriptionRequest::from);
        self.subscribe_from(requests.collect()).await
    }

    /// Subscribes like [`subscribe`](Self::subscribe), from the etags that the subscriber holds. Where the
    /// current etag is another one, the notice of it is pending at once. A resource that does not exist, or
    /// not yet, is waited for: its etag is that of its removal or [`Etag::UNKNOWN`], and its registration is
    /// notified if clients may subscribe to it.
    ///
    /// # Errors
    /// [`Closed`] if the session or the bus has ended.
    pub async fn subscribe_from(
        &self,
        requests: Vec<SubscriptionRequest>,
    ) -> Result<Vec<Result<Etag, SubscribeError>>, Closed> {
        self.ask(|reply| SubscribeUris(requests, reply)).await
    }

    /// Ends a subscription. Returns true if there was one; no notification of it follows.
    ///
    /// # Errors
    /// [`Closed`] if the session or the bus has ended.
    pub async fn unsubscribe(&self, uri: ResourceUri) -> Result<bool, Closed> {
        self.ask(|reply| UnsubscribeUri(uri, reply)).await
    }

    /// Announces that the client accepts notifications: from now on it is notified of its lists.
    ///
    /// # Errors
    /// [`Closed`] if the session or the bus has ended.
    pub async fn ready(&self) -> Result<(), Closed> {
        self.ask(ClientReady).await
    }

    /// Watches all resources. At most 100,000 of them are pending at once.
    ///
    /// # Errors
    /// [`Closed`] if the session or the bus has ended.
    pub async fn watch_all(&self) -> Result<(), Closed> {
        self.watch(Arc::default(), WATCHED_MAX).await
    }

    /// Watches all resources that `filter` accepts, beside the subscriptions; a further call replaces the
    /// filter. At most `pending_max` resources (at least 1) are pending at once. Changes of further ones are
    /// lost meanwhile, which [`OutboxReader::take_lost`] counts.
    ///
    /// # Errors
    /// [`Closed`] if the session or the bus has ended.
    pub async fn watch(&self, filter: Arc<Filter>, pending_max: usize) -> Result<(), Closed> {
        self.ask(|reply| WatchFiltered(filter, pending_max, reply)).await
    }

    /// Opens a reader of the outbox. On the thread of a shard (see [`Shard`](crate::Shard)) the session
    /// moves to that shard, so that a mark and its wake-up stay on one thread.
    pub fn reader(&self) -> OutboxReader {
        if let Some(shard) = current_shard()
            && self.outbox.want_shard(shard)
        {
            self.tell(StreamMoved);
        }
        OutboxReader::open(self.outbox.clone(), self.drain_max)
    }

    /// Records an activity of the client for the idle timeout.
    pub fn active(&self) {
        self.outbox.record_activity();
    }

    /// Looks at the rights of the subscriber at once, because its [`Viewer`](crate::rights::Viewer) changed:
    /// its credential expired, was revoked or was replaced. Without a viewer nothing changes.
    pub fn recheck(&self) {
        self.outbox.recheck();
    }

    /// The reason of the end; none while the session lives.
    pub fn ended(&self) -> Option<EndReason> {
        self.outbox.ended()
    }

    /// The number of open readers.
    pub fn readers(&self) -> usize {
        self.outbox.readers()
    }

    /// Keeps a value until the session ends for any reason, and drops it at that moment: a place in a limit
    /// of the caller, for example. A further value replaces the one before; a session that has ended keeps
    /// none.
    pub fn hold(&self, value: impl Any + Send) {
        self.outbox.hold(Box::new(value));
    }

    /// Ends the session. Its readers get the pending entries, then the reason.
    pub fn end(&self) {
        // Once only: the mailbox has room for one end beside the requests with a permit.
        if !self.ending.swap(true, Ordering::Relaxed) {
            // At once: the actor may get to the request later than the caller to its next session.
            self.outbox.release();
            self.tell(EndSession(EndReason::Closed));
        }
    }

    /// Sends to the actor.
    fn tell<M>(&self, message: M)
    where
        M: actix::Message<Result = ()> + Send + 'static,
        SessionActor: Handler<M>,
    {
        // The mailbox cannot be full: requests have a permit, and besides there is at most one move, one
        // end, one eviction and one look at its rights. A closed one belongs to a session that has ended
        // already.
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

#[cfg(test)]
mod tests;
