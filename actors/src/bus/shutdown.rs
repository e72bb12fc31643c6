//! Counters, and the end.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{Bus, Inner};
use crate::messages::{CountReaders, EndAll, Lookup};
use crate::model::{Closed, EndReason};
use crate::runtime::{Admission, BusState, mailbox};
use crate::sink::wait_for_end;

/// How long a shutdown whose time is up waits for the threads to end.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// The bus's counters since it started, and what it holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Registered resources.
    pub resources: usize,
    /// Resource templates.
    pub templates: usize,
    /// Tools.
    pub tools: usize,
    /// Prompts.
    pub prompts: usize,
    /// Sessions and streams attached.
    pub sessions: usize,
    /// Subscriptions by name, over all sessions and streams.
    pub subscriptions: usize,
    /// Outbox entries that wait to be handed out, over all outboxes.
    pub pending: usize,
    /// Requests behind the door.
    pub in_flight: usize,
    /// Changes that altered something.
    pub changes: u64,
    /// Changes that altered nothing and told nobody.
    pub unchanged: u64,
    /// Changes refused with an error.
    pub refused: u64,
    /// Stamped resource changes.
    pub notices: u64,
    /// List hashes that became another one.
    pub list_changes: u64,
    /// Outbox entries newly pending.
    pub notified: u64,
    /// Outbox entries replaced by a newer one before they were told.
    pub conflated: u64,
    /// Sessions and streams ever attached.
    pub sessions_opened: u64,
    /// Messages refused by a mailbox; a bug when not 0.
    pub mailbox_refused: u64,
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Streams that were still open when the time was up.
    pub streams_cut: usize,
}

impl Bus {
    /// Its counters.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn stats(&self) -> Result<Stats, Closed> {
        let [resources, templates, tools, prompts] = self.ask(Lookup::Counts).await?;
        let Inner {
            metrics,
            admission,
            limits,
            places,
            ..
        } = &*self.inner;
        Ok(Stats {
            resources,
            templates,
            tools,
            prompts,
            sessions: limits.sessions_max - places.available_permits(),
            subscriptions: metrics.subscriptions.get(),
            pending: metrics.pending.get(),
            in_flight: admission.inside(),
            changes: metrics.changes.get(),
            unchanged: metrics.unchanged.get(),
            refused: metrics.refused(),
            notices: metrics.notices(),
            list_changes: metrics.lists(),
            notified: metrics.notified.get(),
            conflated: metrics.conflated.get(),
            sessions_opened: metrics.sessions_opened.get(),
            mailbox_refused: metrics.mailbox_refused.get(),
        })
    }

    /// Hands what its shards count to the recorder of the process, so that a scrape that follows shows every number
    /// as it is now. Without it they are a second old at most.
    pub fn export_metrics(&self) {
        self.inner.metrics.export(self.inner.admission.inside());
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        *self.inner.actors.life.borrow() == BusState::Running
    }

    /// Waits until it has stopped; answers the name of the actor that died, if that was why.
    pub async fn stopped(&self) -> Option<&'static str> {
        let mut life = self.inner.actors.life.subscribe();
        match life
            .wait_for(|life| *life != BusState::Running)
            .await
            .map(|life| *life)
        {
            Ok(BusState::Dead(actor)) => Some(actor),
            _ => None,
        }
    }

    /// Shuts down: lets nobody in any more, finishes what is in flight, has every stream told what is pending and
    /// ended gracefully, waiting at most `drain_timeout` for the streams; then stops the actors and waits for their
    /// threads, the store's included, for the rest of that time but at least half a second.
    pub async fn shutdown(&self, drain_timeout: Duration) -> DrainReport {
        let deadline = tokio::time::Instant::now() + drain_timeout;
        let inner = &self.inner;
        inner.admission.close();
        while inner.admission.inside() > 0 && self.is_running() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        for publisher in &inner.actors.publishers {
            mailbox::send(publisher, EndAll(EndReason::Shutdown), &inner.metrics);
        }
        let attached = inner.attachments.close_all();
        let mut streams_cut = self.open_streams().await;
        while streams_cut > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
            streams_cut = self.open_streams().await;
        }
        if streams_cut > 0 {
            tracing::warn!(streams_cut, "drain timed out; streams are cut");
        }
        for (state, done) in attached {
            wait_for_end(&state, done, deadline).await;
        }
        self.stop(deadline).await;
        DrainReport { streams_cut }
    }

    /// Stops the actors and waits until their threads have ended, or until `deadline` and a little longer.
    async fn stop(&self, deadline: tokio::time::Instant) {
        let (stopped, ended) = oneshot::channel();
        let bus = self.clone();
        // A thread of its own: one of the caller's runtime would keep that from ending when it is a shard's own.
        let stop = move || {
            bus.inner.actors.stop();
            // A shutdown that lost patience no longer listens.
            stopped.send(()).unwrap_or_default();
        };
        let spawned = std::thread::Builder::new()
            .name("tidings-stop".into())
            .spawn(stop);
        let timeout = deadline.max(tokio::time::Instant::now() + STOP_TIMEOUT);
        let waited = tokio::time::timeout_at(timeout, ended).await;
        if spawned.is_err() || !matches!(waited, Ok(Ok(()))) {
            tracing::warn!("the threads of the bus have not ended yet; a store or a stream holds one up");
        }
    }

    /// How many streams are open, by a way that does not need the closed door.
    async fn open_streams(&self) -> usize {
        let drain = Admission::new(1);
        let mut open = 0;
        for publisher in &self.inner.actors.publishers {
            let Ok(permit) = drain.enter().await else { continue };
            let (reply, answer) = permit.reply();
            mailbox::send(publisher, CountReaders(reply), &self.inner.metrics);
            open += answer.await.unwrap_or(0);
        }
        open
    }
}
