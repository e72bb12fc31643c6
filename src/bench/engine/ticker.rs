//! Wakes the engine when updates are due, more exactly than the timeout of a poll, which counts whole
//! milliseconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::Waker;

/// The shortest interval; updates that are closer together share a wake-up.
const TICK_MIN: Duration = Duration::from_micros(100);
/// The interval of checks for the end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The thread; it ends with this handle.
#[derive(Debug)]
pub(crate) struct Ticker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Wakes at `begin` and then `rate` times per second.
    pub(crate) fn start(waker: Arc<Waker>, begin: Instant, rate: f64) -> Ticker {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let tick = Duration::from_secs_f64(1.0 / rate).max(TICK_MIN);
        let thread = std::thread::spawn(move || {
            let mut next = begin;
            while !stopped.load(Ordering::Relaxed) {
                let left = next.saturating_duration_since(Instant::now());
                if left > CHECK_INTERVAL {
                    std::thread::sleep(CHECK_INTERVAL);
                    continue;
                }
                std::thread::sleep(left);
                if waker.wake().is_err() {
                    return;
                }
                // After a delay, one wake-up is enough for all updates that became due in it.
                next = (next + tick).max(Instant::now());
            }
        });
        Ticker {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread has no code that panics, so there is no error to report.
            thread.join().ok();
        }
    }
}
