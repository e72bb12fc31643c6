//! Opening sessions, asking who is there, and ending them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::Actor;

use super::Bus;
use crate::messages::{EndSession, ListSubscribers, Lookup, QuerySubscriber, SubscriberQuery};
use crate::metrics::Limit;
use crate::model::{
    Closed, DeliveryStatus, EndReason, OpenError, ResourceUri, SessionOptions, SubscriberId, SubscriberInfo,
    SubscriberPage, SubscriberState,
};
use crate::outbox::{Outbox, SessionTimeouts};
use crate::runtime::{Reply, Shard, current_shard, mailbox};
use crate::session::{Session, SessionActor};

impl Bus {
    /// Opens a session; it is attached when this answers. On a shard's thread it belongs to that shard, else to each
    /// in turn. Waits at the door.
    ///
    /// # Errors
    /// [`OpenError::TooMany`] at the limit; [`Closed`].
    pub async fn open(&self, mut options: SessionOptions) -> Result<Session, OpenError> {
        let inner = &self.inner;
        let place = inner.places.clone().try_acquire_owned();
        let place = place.map_err(|_full| {
            inner.metrics.count_limit(Limit::Sessions);
            OpenError::TooMany(inner.limits.sessions_max)
        })?;
        let (attach, attached) = inner.admission.enter().await?.reply();
        options.subscriptions_max = options.subscriptions_max.min(inner.limits.subscriptions_max);
        let in_turn = || inner.next_shard.fetch_add(1, Ordering::Relaxed) % inner.actors.shards.len();
        let shard = current_shard()
            .filter(|shard| *shard < inner.actors.shards.len())
            .unwrap_or_else(in_turn);
        let id = SubscriberId(inner.next_id.fetch_add(1, Ordering::Relaxed));
        let (metrics, tracer) = (inner.metrics.clone(), inner.tracer.clone());
        let (idle, stall, age) = (options.idle_timeout, options.stall_timeout, options.age_max);
        let timeouts = SessionTimeouts::new(id, idle, stall, age);
        let outbox = Outbox::new(id, shard, &options, metrics, tracer);
        let outbox = Arc::new(outbox.with_timeouts(timeouts));
        // The end of the actor made below takes this back, whether or not it ever runs.
        inner.metrics.sessions_opened.add(1);
        outbox.labels().sessions.increment(1.0);
        let actor = SessionActor {
            outbox: outbox.clone(),
            attach: Some(attach),
            registry: inner.actors.registry.clone(),
            options,
            metrics: inner.metrics.clone(),
            place: Some(place),
            life: inner.actors.life.subscribe(),
            ended_subscribers: inner.ended_subscribers.clone(),
        };
        let mailbox = inner.limits.in_flight_max + 8;
        let actor = SessionActor::start_in_arbiter(&inner.actors.shards[shard].arbiter, move |ctx| {
            ctx.set_mailbox_capacity(mailbox);
            actor
        });
        let (session_actor, counted) = (actor.downgrade(), inner.metrics.clone());
        outbox.set_on_evict(Box::new(move |reason| {
            if let Some(actor) = session_actor.upgrade() {
                mailbox::send(&actor, EndSession(reason), &counted);
            }
        }));
        let session = Session {
            outbox,
            actor,
            admission: inner.admission.clone(),
            drain_max: inner.limits.drain_max,
            ending: AtomicBool::new(false),
            metrics: inner.metrics.clone(),
        };
        // Nothing is asked of it before it runs: until then its mailbox would hold 16 messages.
        attached.await.map_err(|_dropped| Closed)?;
        Ok(session)
    }

    /// Every session and stream, the slowest first. Of as many as there can be; [`list_subscribers`](Self::list_subscribers) is bounded.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn sessions(&self) -> Result<Vec<SubscriberInfo>, Closed> {
        Ok(self.list_subscribers(None, usize::MAX).await?.subscribers)
    }

    /// Who is subscribed to `uri`, the slowest first.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn subscribers(&self, uri: &ResourceUri) -> Result<Vec<SubscriberInfo>, Closed> {
        Ok(self.list_subscribers(Some(uri), usize::MAX).await?.subscribers)
    }

    /// The `limit` slowest of those who are there, or of those subscribed to `uri`: who has kept something waiting for
    /// longest comes first. However many there are, only those few are asked in full how they stand.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn list_subscribers(
        &self,
        uri: Option<&ResourceUri>,
        limit: usize,
    ) -> Result<SubscriberPage, Closed> {
        let mut all = SubscriberPage::default();
        for publisher in &self.inner.actors.publishers {
            let uri = uri.cloned();
            let part = self
                .ask_at(publisher, |reply| ListSubscribers { uri, limit, reply })
                .await?;
            all.total += part.total;
            all.subscribers.extend(part.subscribers);
        }
        all.subscribers
            .sort_by_key(|info| (std::cmp::Reverse(info.slowness()), info.id));
        all.subscribers.truncate(limit);
        Ok(all)
    }

    /// What is known of the subscriber of this name; none when there never was one, or it ended long ago: the last
    /// 1,024 that ended are remembered.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn subscriber_state(&self, id: SubscriberId) -> Result<Option<SubscriberState>, Closed> {
        let info = self.ask_about(id, SubscriberQuery::Info).await?;
        let here = info.map(|info| SubscriberState::Live(Box::new(info)));
        Ok(here.or_else(|| self.inner.ended_subscribers.find(id).map(SubscriberState::Ended)))
    }

    /// Why the subscriber of this name was, or was not, told of the newest version of `uri`; none when nothing is
    /// known of it.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn explain(
        &self,
        id: SubscriberId,
        uri: &ResourceUri,
    ) -> Result<Option<DeliveryStatus>, Closed> {
        let explain = |reply| SubscriberQuery::Explain(uri.clone(), reply);
        match self.ask_about(id, explain).await? {
            None => Ok(self.inner.ended_subscribers.find(id).map(DeliveryStatus::Ended)),
            Some(DeliveryStatus::NotSubscribed(_)) => {
                let allowed = self.ask(|reply| Lookup::Subscribable(uri.clone(), reply)).await?;
                Ok(Some(DeliveryStatus::NotSubscribed(allowed.err())))
            }
            known => Ok(known),
        }
    }

    /// Ends a session or stream, as an operator does: its streams get what is pending, then the end; a stream whose
    /// connection takes nothing is cut; an attached subscriber ends for good. Answers whether it was there.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn evict(&self, id: SubscriberId) -> Result<bool, Closed> {
        let evict = |reply| SubscriberQuery::Evict(EndReason::Evicted, reply);
        Ok(self.ask_about(id, evict).await?.is_some())
    }

    /// Asks each shard about one subscriber, twice: while it moves from one to another it is nobody's for a moment.
    async fn ask_about<T>(
        &self,
        id: SubscriberId,
        question: impl Fn(Reply<Option<T>>) -> SubscriberQuery,
    ) -> Result<Option<T>, Closed> {
        let publishers = &self.inner.actors.publishers;
        for publisher in publishers.iter().chain(publishers) {
            let question = &question;
            let ask = |reply| QuerySubscriber {
                id,
                question: question(reply),
            };
            let answer = self.ask_at(publisher, ask).await?;
            if answer.is_some() {
                return Ok(answer);
            }
        }
        Ok(None)
    }

    /// The shards' threads, for those who carry connections.
    pub fn shards(&self) -> &[Shard] {
        &self.inner.actors.shards
    }
}
