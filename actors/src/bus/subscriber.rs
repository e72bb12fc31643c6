//! Opening sessions, and asking who is there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use actix::Actor;

use super::Bus;
use crate::error::OpenError;
use crate::message::Survey;
use crate::metric::Limit;
use crate::outbox::Outbox;
use crate::session::{Session, SessionActor, SessionOptions};
use crate::subscriber::{SubscriberId, SubscriberInfo};
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
        let outbox = Arc::new(Outbox::new(id, shard, &options, metrics, tracer));
        // The end of the actor made below takes this back, whether or not it ever runs.
        inner.metrics.sessions_opened.add(1);
        outbox.road().sessions.increment(1.0);
        let (active, opened) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let actor = SessionActor {
            outbox: outbox.clone(),
            attach: Some(attach),
            registry: inner.actors.registry.clone(),
            options,
            active: active.clone(),
            opened,
            metrics: inner.metrics.clone(),
            place: Some(place),
            life: inner.actors.life.subscribe(),
        };
        let mailbox = inner.limits.in_flight_max + 8;
        let actor = SessionActor::start_in_arbiter(&inner.actors.shards[shard].arbiter, move |ctx| {
            ctx.set_mailbox_capacity(mailbox);
            actor
        });
        let session = Session {
            outbox,
            actor,
            door: inner.door.clone(),
            active,
            opened,
            drain_max: inner.limits.drain_max,
            ending: AtomicBool::new(false),
            metrics: inner.metrics.clone(),
        };
        // Nothing is asked of it before it runs: until then its mailbox would hold 16 messages.
        attached.await.map_err(|_dropped| Closed)?;
        Ok(session)
    }

    /// Every session and stream, with what it has not been told yet; those with the oldest untold notice first.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn sessions(&self) -> Result<Vec<SubscriberInfo>, Closed> {
        self.survey(None).await
    }

    /// Who is subscribed to `uri`.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn subscribers(&self, uri: &ResourceUri) -> Result<Vec<SubscriberInfo>, Closed> {
        self.survey(Some(uri.clone())).await
    }

    async fn survey(&self, uri: Option<ResourceUri>) -> Result<Vec<SubscriberInfo>, Closed> {
        let mut found = Vec::new();
        for publisher in &self.inner.actors.publishers {
            let uri = uri.clone();
            found.extend(self.ask_at(publisher, |ticket| Survey { uri, ticket }).await?);
        }
        found.sort_by_key(|info| (std::cmp::Reverse(info.pending.oldest), info.id));
        Ok(found)
    }

    /// The shards' threads, for those who carry connections.
    pub fn shards(&self) -> &[Shard] {
        &self.inner.actors.shards
    }
}
