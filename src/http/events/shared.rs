//! What the recorder and the streams of one hub share.
//!
//! Owns: the lock around the history, who waits for the next event, and how many streams are open. Never: encodes, or
//! wakes anybody while the lock is held.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::KEEP_ALIVE_TICKS;
use super::history::History;
use crate::Bus;
use crate::config::EventsConfig;
use crate::metrics::EventsMetrics;

/// One hub.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Told when a stream closes.
    closed: Condvar,
    pub(super) streams_max: usize,
    pub(super) retry: Duration,
    pub(super) keep_alive: Duration,
    pub(super) metrics: EventsMetrics,
}

/// What is behind the lock.
#[derive(Debug)]
pub(super) struct State {
    pub(super) history: History,
    /// Streams that have everything, by their number.
    pub(super) waiting: HashMap<u64, Waker>,
    pub(super) next_stream: u64,
    pub(super) open: usize,
    /// Why nothing more will come.
    pub(super) ended: Option<&'static str>,
}

impl Shared {
    pub(super) fn new(config: &EventsConfig, keep_alive: Duration) -> Shared {
        Shared {
            state: Mutex::new(State {
                history: History::new(config.history_max, config.history_bytes_max),
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

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the history, and wakes every stream that waits. A stream that is busy is not woken: it looks again anyway.
    pub(super) fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_values().for_each(Waker::wake);
    }

    /// Notes that a stream has closed.
    pub(super) fn close(&self, stream: u64) {
        let mut state = self.lock();
        state.waiting.remove(&stream);
        state.open -= 1;
        self.metrics.streams.set(state.open as f64);
        self.closed.notify_all();
    }

    /// Ends every stream once it has everything, and waits until all have closed, at most `patience`. Answers how many
    /// have not.
    pub(super) fn end(&self, reason: &'static str, patience: Duration) -> usize {
        self.change(|state| state.ended = Some(reason));
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        while state.open > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.closed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.open
    }

    /// Has every stream look at the clock once in a while, an eighth of them at a time, as long as the hub is there.
    pub(super) fn keep_alive(self: &Arc<Shared>, bus: &Bus, every: Duration) {
        let Some(shard) = bus.shards().first() else { return };
        let weak = Arc::downgrade(self);
        let every = every.max(Duration::from_millis(1));
        shard.spawn(move || async move {
            for tick in (0..u64::from(KEEP_ALIVE_TICKS)).cycle() {
                tokio::time::sleep(every).await;
                let Some(shared) = weak.upgrade() else { return };
                let mut state = shared.lock();
                let due = |stream: &u64, _: &mut Waker| stream % u64::from(KEEP_ALIVE_TICKS) == tick;
                let woken: Vec<_> = state.waiting.extract_if(due).collect();
                drop(state);
                woken.into_iter().for_each(|(_, waker)| waker.wake());
            }
        });
    }
}
