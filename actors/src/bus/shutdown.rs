//! The counters of the bus and its shutdown.

use std::time::Duration;

use tokio::sync::oneshot;

use super::{Bus, Inner};
use crate::messages::{CountReaders, CursorRequest, EndAll, Lookup};
use crate::model::{Closed, EndReason};
use crate::runtime::{Admission, BusState, mailbox};
use crate::sink::{EndDeadlines, wait_for_end};
use crate::versions::StoreState;

/// The time that a shutdown past its deadline still waits for the threads.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// The counters of the bus since its start, and its current numbers.
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
    /// Sessions and streams that are open.
    pub sessions: usize,
    /// Subscriptions by name, over all sessions and streams.
    pub subscriptions: usize,
    /// Pending entries over all outboxes.
    pub pending: usize,
    /// Requests inside the bus.
    pub in_flight: usize,
    /// Changes of content, description or existence.
    pub changes: u64,
    /// Changes without an effect, of which no subscriber was notified.
    pub unchanged: u64,
    /// Changes refused with an error.
    pub refused: u64,
    /// Changes of resources that got a place in the order of the bus.
    pub notices: u64,
    /// List hashes that changed.
    pub list_changes: u64,
    /// Audiences for which the hashes of the lists were counted.
    pub list_hashes_computed: u64,
    /// Outbox entries that became pending.
    pub notified: u64,
    /// Outbox entries replaced by a newer one before they were drained.
    pub conflated: u64,
    /// Sessions and streams opened so far.
    pub sessions_opened: u64,
    /// Messages refused by a full mailbox, which is a bug.
    pub mailbox_refused: u64,
}

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainReport {
    /// Streams that were still open at the deadline.
    pub streams_cut: usize,
}

impl Bus {
    /// Returns the counters of the bus.
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
            list_hashes_computed: metrics.list_hashes_computed.get(),
            notified: metrics.notified.get(),
            conflated: metrics.conflated.get(),
            sessions_opened: metrics.sessions_opened.get(),
            mailbox_refused: metrics.mailbox_refused.get(),
        })
    }

    /// Hands the counters of the shards to the metrics recorder of the process, so that a scrape that
    /// follows is exact. Without this call they are at most a second old.
    pub fn export_metrics(&self) {
        self.inner.metrics.set_store_up(self.inner.health.check());
        self.inner.metrics.export(self.inner.admission.inside());
    }

    /// Returns the state of the store. While it is not [good](StoreState::is_good), reads and streams go on
    /// from what is durable.
    pub fn store_state(&self) -> StoreState {
        self.inner.health.state()
    }

    /// Returns true while the bus runs.
    pub fn is_running(&self) -> bool {
        *self.inner.actors.life.borrow() == BusState::Running
    }

    /// Waits until the bus has stopped. Returns the name of the actor whose death was the cause, if any.
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

    /// Shuts the bus down: admits no more requests, finishes those in flight, and lets every stream drain
    /// and end gracefully within `drain_timeout`. Attached subscribers that fail or stall have a second of
    /// it. Then it stops the actors and waits for their threads,
    /// that of the store included, for the rest of the time but at least half a second.
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
        let deadlines = EndDeadlines::until(deadline);
        let mut streams_cut = self.open_streams().await;
        while streams_cut > 0 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(5)).await;
            streams_cut = self.open_streams().await;
        }
        if streams_cut > 0 {
            tracing::warn!(streams_cut, "drain timed out; streams are cut");
        }
        for (state, done) in attached {
            wait_for_end(&state, done, deadlines).await;
        }
        self.keep_cursors(deadline).await;
        self.stop(deadline).await;
        DrainReport { streams_cut }
    }

    /// Makes the cursors of attached subscribers durable, so that a restart repeats nothing. Waits at most as
    /// long as for the threads.
    async fn keep_cursors(&self, deadline: tokio::time::Instant) {
        // It needs no admission, which is closed by then.
        let Ok(permit) = Admission::new(1).enter().await else {
            return;
        };
        let (reply, kept) = permit.reply();
        self.inner.actors.registry.push(CursorRequest::Keep(reply).into());
        let timeout = deadline.max(tokio::time::Instant::now() + STOP_TIMEOUT);
        if tokio::time::timeout_at(timeout, kept).await.is_err() {
            tracing::warn!("the cursors of the attached subscribers are not durable; some deliveries repeat");
        }
    }

    /// Stops the actors and waits for their threads until `deadline`, at least for [`STOP_TIMEOUT`].
    async fn stop(&self, deadline: tokio::time::Instant) {
        let (stopped, ended) = oneshot::channel();
        let bus = self.clone();
        // On a thread of its own: a blocking thread of the runtime would keep that runtime from ending,
        // which may be the one of a shard.
        let spawned = std::thread::Builder::new()
            .name("tidings-stop".into())
            .spawn(move || {
                bus.inner.actors.stop();
                // The receiver is gone when the shutdown no longer waits.
                if stopped.send(()).is_err() {
                    tracing::debug!("the threads of the bus ended after its shutdown");
                }
            });
        let timeout = deadline.max(tokio::time::Instant::now() + STOP_TIMEOUT);
        let waited = tokio::time::timeout_at(timeout, ended).await;
        if spawned.is_err() || !matches!(waited, Ok(Ok(()))) {
            tracing::warn!("the threads of the bus have not ended yet; a store or a stream holds one up");
        }
    }

    /// Returns the number of open streams. It needs no admission, which is closed by then.
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
