//! The state that the recorder and the streams of one hub share.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::KEEP_ALIVE_TICKS;
use super::history::History;
use crate::config::EventsConfig;
use crate::metrics::EventsMetrics;
use crate::{Bus, Lineage};

/// The state of one hub.
#[derive(Debug)]
pub(super) struct HubState {
    contents: Mutex<HubContents>,
    /// Notified when a stream closes.
    closed: Condvar,
    pub(super) streams_max: usize,
    pub(super) retry: Duration,
    pub(super) keep_alive: Duration,
    pub(super) metrics: EventsMetrics,
}

/// The part of a hub's state behind the lock.
#[derive(Debug)]
pub(super) struct HubContents {
    pub(super) history: History,
    /// The streams that have read everything, by their number.
    pub(super) waiting: HashMap<u64, Waker>,
    pub(super) next_stream: u64,
    pub(super) open: usize,
    /// The reason of the end, after which no event follows.
    pub(super) ended: Option<&'static str>,
}

impl HubState {
    pub(super) fn new(config: &EventsConfig, keep_alive: Duration, lineage: Lineage) -> HubState {
        HubState {
            contents: Mutex::new(HubContents {
                history: History::new(config.history_max, config.history_bytes_max, lineage),
                waiting: HashMap::new(),
                next_stream: 0,
                open: 0,
                ended: None,
            }),
            closed: Condvar::new(),
            streams_max: config.streams_max,
            retry: config.retry,
            keep_alive,
            metrics: EventsMetrics::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HubContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the history, and wakes every stream that waits. A stream that is still reading looks again by
    /// itself.
    pub(super) fn change(&self, change: impl FnOnce(&mut HubContents)) {
        let mut contents = self.lock();
        change(&mut contents);
        let waiting = std::mem::take(&mut contents.waiting);
        // A stream that is woken takes the lock at once.
        drop(contents);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Notes that a stream has closed.
    pub(super) fn close(&self, stream: u64) {
        let mut contents = self.lock();
        contents.waiting.remove(&stream);
        contents.open -= 1;
        self.metrics.streams.set(contents.open as f64);
        self.closed.notify_all();
    }

    /// Ends every stream once it has read everything, and waits until all have closed, at most for `timeout`.
    /// Returns the number of streams that have not.
    pub(super) fn end(&self, reason: &'static str, timeout: Duration) -> usize {
        self.change(|contents| contents.ended = Some(reason));
        let deadline = Instant::now() + timeout;
        let mut contents = self.lock();
        while contents.open > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // A blocking wait: the recorder runs on a thread of its own.
            let waited = self.closed.wait_timeout(contents, left);
            contents = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        contents.open
    }

    /// Wakes every stream that waits for its keep-alive, one part of them at a time, as long as the hub
    /// exists.
    pub(super) fn start_keep_alive(self: &Arc<HubState>, bus: &Bus, every: Duration) {
        let Some(shard) = bus.shards().first() else { return };
        // Weak, so that this task does not keep a hub alive whose handles are gone.
        let weak = Arc::downgrade(self);
        let every = every.max(Duration::from_millis(1));
        shard.spawn(move || async move {
            for tick in (0..u64::from(KEEP_ALIVE_TICKS)).cycle() {
                tokio::time::sleep(every).await;
                let Some(state) = weak.upgrade() else { return };
                let mut contents = state.lock();
                let due: Vec<_> = contents
                    .waiting
                    .extract_if(|stream, _| stream % u64::from(KEEP_ALIVE_TICKS) == tick)
                    .collect();
                drop(contents);
                due.into_iter().for_each(|(_, waker)| waker.wake());
            }
        });
    }
}
