//! A waker that counts, for the tests of this module.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// The number of wakes.
#[derive(Default)]
pub(super) struct CountWakes(AtomicUsize);

impl CountWakes {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for CountWakes {
    fn wake(self: Arc<CountWakes>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
