//! Wakes the engine when updates are due, more exactly than a poll's timeout, which is in whole milliseconds.
//!
//! Owns one thread that sleeps and wakes. It knows nothing of updates but their distance.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::Waker;

/// Updates closer than this are woken for together.
const TICK_MIN: Duration = Duration::from_micros(100);
/// It looks this often whether it should end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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
        let (asked, tick) = (stop.clone(), Duration::from_secs_f64(1.0 / rate).max(TICK_MIN));
        let thread = std::thread::spawn(move || {
            let mut next = begin;
            while !asked.load(Ordering::Relaxed) {
                let left = next.saturating_duration_since(Instant::now());
                if left > LOOK_EVERY {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
                std::thread::sleep(left);
                if waker.wake().is_err() {
                    return;
                }
                // After a delay, one wake-up is enough for all that became due in it.
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
            // It has no way to panic, and nothing to say.
            drop(thread.join());
        }
    }
}
