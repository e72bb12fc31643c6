//! Opening sessions, asking who is there, and ending them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix::Actor;

use super::Bus;
use crate::door::Ticket;
use crate::error::OpenError;
use crate::message::{Ask, Find, Question, Survey};
use crate::metric::Limit;
use crate::outbox::{EndReason, Outbox};
use crate::patience::Patience;
use crate::session::{Session, SessionActor, SessionOptions};
use crate::subscriber::{Explanation, SubscriberId, SubscriberInfo, Surveyed, Whereabouts};
use crate::system::{Shard, current_shard};
use crate::{Closed, ResourceUri};

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
            inner.metrics.reached(Limit::Sessions);
            OpenError::TooMany(inner.limits.sessions_max)
        })?;
        let (attach, attached) = inner.door.enter().await?.ticket();
        options.subscriptions_max = options.subscriptions_max.min(inner.limits.subscriptions_max);
        let in_turn = || inner.next_shard.fetch_add(1, Ordering::Relaxed) % inner.actors.shards.len();
        let shard = current_shard()
            .filter(|shard| *shard < inner.actors.shards.len())
            .unwrap_or_else(in_turn);
        let id = SubscriberId(inner.next_id.fetch_add(1, Ordering::Relaxed));
        let (metrics, tracer) = (inner.metrics.clone(), inner.tracer.clone());
        let (idle, stall, age) = (options.idle_timeout, options.stall_timeout, options.age_max);
        let patience = Patience::new(id, idle, stall, age);
        let outbox = Outbox::new(id, shard, &options, metrics, tracer);
        let outbox = Arc::new(outbox.with_patience(patience));
        // The end of the actor made below takes this back, whether or not it ever runs.
        inner.metrics.sessions_opened.add(1);
        outbox.road().sessions.increment(1.0);
        let actor = SessionActor {
            outbox: outbox.clone(),
            attach: Some(attach),
            registry: inner.actors.registry.clone(),
            options,
            metrics: inner.metrics.clone(),
            place: Some(place),
            life: inner.actors.life.subscribe(),
            departed: inner.departed.clone(),
        };
        let mailbox = inner.limits.in_flight_max + 8;
        let actor = SessionActor::start_in_arbiter(&inner.actors.shards[shard].arbiter, move |ctx| {
            ctx.set_mailbox_capacity(mailbox);
            actor
        });
        outbox.belongs_to(actor.downgrade());
        let session = Session {
            outbox,
            actor,
            door: inner.door.clone(),
            drain_max: inner.limits.drain_max,
            ending: AtomicBool::new(false),
            metrics: inner.metrics.clone(),
        };
        // Nothing is asked of it before it runs: until then its mailbox would hold 16 messages.
        attached.await.map_err(|_dropped| Closed)?;
        Ok(session)
    }

    /// Every session and stream, the slowest first. Of as many as there can be; [`slowest`](Self::slowest) is bounded.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn sessions(&self) -> Result<Vec<SubscriberInfo>, Closed> {
        Ok(self.slowest(None, usize::MAX).await?.slowest)
    }

    /// Who is subscribed to `uri`, the slowest first.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn subscribers(&self, uri: &ResourceUri) -> Result<Vec<SubscriberInfo>, Closed> {
        Ok(self.slowest(Some(uri), usize::MAX).await?.slowest)
    }

    /// The `limit` slowest of those who are there, or of those subscribed to `uri`: who has kept something waiting for
    /// longest comes first. However many there are, only those few are asked in full how they stand.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn slowest(&self, uri: Option<&ResourceUri>, limit: usize) -> Result<Surveyed, Closed> {
        let mut all = Surveyed::default();
        for publisher in &self.inner.actors.publishers {
            let uri = uri.cloned();
            let part = self
                .ask_at(publisher, |ticket| Survey { uri, limit, ticket })
                .await?;
            all.total += part.total;
            all.slowest.extend(part.slowest);
        }
        all.slowest
            .sort_by_key(|info| (std::cmp::Reverse(info.slowness()), info.id));
        all.slowest.truncate(limit);
        Ok(all)
    }

    /// What is known of the subscriber of this name; none when there never was one, or it ended long ago: the last
    /// 1,024 that ended are remembered.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn whereabouts(&self, id: SubscriberId) -> Result<Option<Whereabouts>, Closed> {
        let info = self.ask_about(id, Question::Info).await?;
        let here = info.map(|info| Whereabouts::Here(Box::new(info)));
        Ok(here.or_else(|| self.inner.departed.find(id).map(Whereabouts::Ended)))
    }

    /// Why the subscriber of this name was, or was not, told of the newest version of `uri`; none when nothing is
    /// known of it.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn explain(&self, id: SubscriberId, uri: &ResourceUri) -> Result<Option<Explanation>, Closed> {
        let explain = |ticket| Question::Explain(uri.clone(), ticket);
        match self.ask_about(id, explain).await? {
            None => Ok(self.inner.departed.find(id).map(Explanation::Ended)),
            Some(Explanation::NotSubscribed(_)) => {
                let allowed = self.ask(|ticket| Find::Subscribable(uri.clone(), ticket)).await?;
                Ok(Some(Explanation::NotSubscribed(allowed.err())))
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
        let evict = |ticket| Question::Evict(EndReason::Evicted, ticket);
        Ok(self.ask_about(id, evict).await?.is_some())
    }

    /// Asks each shard about one subscriber, twice: while it moves from one to another it is nobody's for a moment.
    async fn ask_about<T>(
        &self,
        id: SubscriberId,
        question: impl Fn(Ticket<Option<T>>) -> Question,
    ) -> Result<Option<T>, Closed> {
        let publishers = &self.inner.actors.publishers;
        for publisher in publishers.iter().chain(publishers) {
            let question = &question;
            let ask = |ticket| Ask {
                id,
                question: question(ticket),
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
