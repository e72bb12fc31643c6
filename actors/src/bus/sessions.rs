//! Requests about sessions and other subscribers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::{Actor, Addr};
use tokio::sync::OwnedSemaphorePermit;

use super::Bus;
use crate::messages::{
    CountSubscribers, EndSession, ListSubscribers, Lookup, QuerySubscriber, RightsJudged, SubscriberQuery,
};
use crate::metrics::{Limit, Metrics};
use crate::model::{
    Closed, DeliveryStatus, EndReason, OpenError, ResourceUri, SessionOptions, SubscriberFilter,
    SubscriberId, SubscriberInfo, SubscriberPage, SubscriberState,
};
use crate::outbox::{Outbox, SessionTimeouts};
use crate::runtime::{Reply, Shard, current_shard, mailbox};
use crate::session::{Session, SessionActor};

impl Bus {
    /// Opens a session. On the thread of a shard it belongs to that shard, otherwise to the shards in turn.
    /// Waits while the limit of requests in flight is reached. When the bus is full, the oldest session that
    /// [awaits its client](SessionOptions::awaits_ready) is ended to make room.
    ///
    /// # Errors
    /// [`OpenError::TooMany`] at the limit; [`Closed`].
    pub async fn open(&self, mut options: SessionOptions) -> Result<Session, OpenError> {
        let place = self.take_place().await?;
        let inner = &self.inner;
        let awaits_ready = options.awaits_ready;
        let (attach, attached) = inner.admission.enter().await?.reply();
        options.subscriptions_max = options.subscriptions_max.min(inner.limits.subscriptions_max);
        options.pending_subscriptions = options
            .pending_subscriptions
            .min(inner.limits.pending_subscriptions);
        let shard = self.shard_of_next();
        let id = SubscriberId(inner.next_id.fetch_add(1, Ordering::Relaxed));
        let timeouts = SessionTimeouts::new(id, options.idle_timeout, options.stall_timeout, options.age_max);
        let outbox = Outbox::new(id, shard, &options, inner.metrics.clone(), inner.tracer.clone());
        let outbox = Arc::new(outbox.with_timeouts(timeouts));
        // Counted before the actor exists: its end takes this back, whether or not it ever runs.
        inner.metrics.sessions_opened.add(1);
        outbox.labels().sessions.increment(1.0);
        let actor = SessionActor {
            outbox: outbox.clone(),
            attach: Some(attach),
            registry: inner.actors.registry.clone(),
            terms: options.into(),
            metrics: inner.metrics.clone(),
            place: Some(place),
            life: inner.actors.life.subscribe(),
            ended_subscribers: inner.ended_subscribers.clone(),
            unready: inner.unready.clone(),
        };
        let mailbox = inner.limits.in_flight_max + 8;
        let actor = SessionActor::start_in_arbiter(&inner.actors.shards[shard].arbiter, move |ctx| {
            ctx.set_mailbox_capacity(mailbox);
            actor
        });
        call_back(&outbox, &actor, &inner.metrics);
        if awaits_ready {
            inner.unready.add(&outbox);
        }
        let session = Session {
            outbox,
            actor,
            admission: inner.admission.clone(),
            drain_max: inner.limits.drain_max,
            ending: AtomicBool::new(false),
            metrics: inner.metrics.clone(),
        };
        // Until the actor runs its mailbox holds 16 messages, so no request may be sent to it before.
        attached.await.map_err(|_dropped| Closed)?;
        Ok(session)
    }

    /// Returns the shard of a session that is opened on this thread.
    fn shard_of_next(&self) -> usize {
        let shards = self.inner.actors.shards.len();
        match current_shard() {
            // A shard of this bus: another bus of the process may have more of them.
            Some(shard) if shard < shards => shard,
            _ => self.inner.next_shard.fetch_add(1, Ordering::Relaxed) % shards,
        }
    }

    /// Takes a place among the sessions that the bus allows.
    async fn take_place(&self) -> Result<OwnedSemaphorePermit, OpenError> {
        let inner = &self.inner;
        if let Ok(place) = inner.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        inner.metrics.count_limit(Limit::Sessions);
        if !inner.unready.end_oldest() {
            return Err(OpenError::TooMany(inner.limits.sessions_max));
        }
        // This gets the place of the session that it ended: the semaphore serves waiting requests in order,
        // and before those that only try.
        let place = inner.places.clone().acquire_owned().await;
        place.map_err(|_closed| OpenError::Closed(Closed))
    }

    /// Returns all sessions and streams, the slowest first. The number is not bounded; see
    /// [`list_subscribers`](Self::list_subscribers).
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn sessions(&self) -> Result<Vec<SubscriberInfo>, Closed> {
        Ok(self.list_subscribers(None, usize::MAX).await?.subscribers)
    }

    /// Returns the subscribers of `uri`, the slowest first.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn subscribers(&self, uri: &ResourceUri) -> Result<Vec<SubscriberInfo>, Closed> {
        Ok(self.list_subscribers(Some(uri), usize::MAX).await?.subscribers)
    }

    /// Returns the `limit` slowest subscribers, or those of one URI: the ones with the oldest pending
    /// entries. Only these are described in full, however many there are.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn list_subscribers(
        &self,
        uri: Option<&ResourceUri>,
        limit: usize,
    ) -> Result<SubscriberPage, Closed> {
        self.find_subscribers(SubscriberFilter::of_uri(uri.cloned()), limit)
            .await
    }

    /// Returns the `limit` slowest of the subscribers that a filter accepts, and the number of all that it
    /// accepts.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn find_subscribers(
        &self,
        mut filter: SubscriberFilter,
        limit: usize,
    ) -> Result<SubscriberPage, Closed> {
        // Once here rather than for each subscriber.
        filter.text = filter.text.to_lowercase();
        let mut all = SubscriberPage::default();
        for publisher in &self.inner.actors.publishers {
            let filter = filter.clone();
            let part = self
                .ask_at(publisher, |reply| ListSubscribers { filter, limit, reply })
                .await?;
            all.total += part.total;
            all.subscribers.extend(part.subscribers);
        }
        all.subscribers
            .sort_by_key(|info| (std::cmp::Reverse(info.slowness()), info.id));
        all.subscribers.truncate(limit);
        Ok(all)
    }

    /// Returns the number of subscribers of each of these resources, or of every resource that has some.
    /// Subscribers by filter, such as sinks, are not among them.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn count_subscribers(
        &self,
        uris: Option<Arc<[ResourceUri]>>,
    ) -> Result<HashMap<ResourceUri, usize>, Closed> {
        let mut counts: HashMap<ResourceUri, usize> = HashMap::new();
        for publisher in &self.inner.actors.publishers {
            let uris = uris.clone();
            let part = self
                .ask_at(publisher, |reply| CountSubscribers { uris, reply })
                .await?;
            for (uri, count) in part {
                *counts.entry(uri).or_default() += count;
            }
        }
        Ok(counts)
    }

    /// Returns the state of a subscriber; none if it never existed or ended long ago. The last 1,024 that
    /// ended are remembered.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn subscriber_state(&self, id: SubscriberId) -> Result<Option<SubscriberState>, Closed> {
        let info = self.ask_about(id, SubscriberQuery::Info).await?;
        let here = info.map(|info| SubscriberState::Live(Box::new(info)));
        Ok(here.or_else(|| self.inner.ended_subscribers.find(id).map(SubscriberState::Ended)))
    }

    /// Explains why a subscriber was or was not notified of the newest version of `uri`; none if the
    /// subscriber is unknown.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn explain(
        &self,
        id: SubscriberId,
        uri: &ResourceUri,
    ) -> Result<Option<DeliveryStatus>, Closed> {
        let status = self
            .ask_about(id, |reply| SubscriberQuery::Explain(uri.clone(), reply))
            .await?;
        match status {
            None => Ok(self.inner.ended_subscribers.find(id).map(DeliveryStatus::Ended)),
            Some(DeliveryStatus::NotSubscribed(_)) => {
                let allowed = self.ask(|reply| Lookup::Subscribable(uri.clone(), reply)).await?;
                Ok(Some(DeliveryStatus::NotSubscribed(allowed.err())))
            }
            known => Ok(known),
        }
    }

    /// Ends a subscriber on behalf of an operator. Its streams drain and then end; a stream whose
    /// connection takes nothing is cut. Returns true if there was such a subscriber.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn evict(&self, id: SubscriberId) -> Result<bool, Closed> {
        let evicted = self
            .ask_about(id, |reply| SubscriberQuery::Evict(EndReason::Evicted, reply))
            .await?;
        Ok(evicted.is_some())
    }

    /// Asks each shard about one subscriber, and all of them again: while a subscriber moves, for a moment
    /// no shard has it.
    async fn ask_about<T>(
        &self,
        id: SubscriberId,
        question: impl Fn(Reply<Option<T>>) -> SubscriberQuery,
    ) -> Result<Option<T>, Closed> {
        let publishers = &self.inner.actors.publishers;
        for publisher in publishers.iter().chain(publishers) {
            let answer = self
                .ask_at(publisher, |reply| QuerySubscriber {
                    id,
                    question: question(reply),
                })
                .await?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
        Ok(None)
    }

    /// The threads of the shards, for servers that run their connections there.
    pub fn shards(&self) -> &[Shard] {
        &self.inner.actors.shards
    }
}

/// Lets the outbox end its session, and ask it to settle its rights.
fn call_back(outbox: &Outbox, actor: &Addr<SessionActor>, metrics: &Arc<Metrics>) {
    // The actor holds the outbox, so the way back must not keep the actor.
    let session = actor.downgrade();
    let counted = metrics.clone();
    outbox.set_on_evict(Box::new(move |reason| {
        if let Some(actor) = session.upgrade() {
            mailbox::send(&actor, EndSession(reason), &counted);
        }
    }));
    let session = actor.downgrade();
    let counted = metrics.clone();
    outbox.set_on_judged(Box::new(move || {
        if let Some(actor) = session.upgrade() {
            mailbox::send(&actor, RightsJudged, &counted);
        }
    }));
}
