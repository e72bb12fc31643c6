//! Counters and gauges that export differences, so that several buses of one process add up.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use metrics::{Counter as ExportedCounter, Gauge};

use super::striped::Striped;

/// A counter that can be read back, for events that happen at most once per change.
pub(crate) struct Counter {
    value: AtomicU64,
    exported: ExportedCounter,
}

impl Counter {
    pub(super) fn new(exported: ExportedCounter) -> Counter {
        Counter {
            value: AtomicU64::new(0),
            exported,
        }
    }

    pub(crate) fn add(&self, n: u64) {
        if n > 0 {
            self.value.fetch_add(n, Ordering::Relaxed);
            self.exported.increment(n);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// A counter that all shards change without contention.
pub(crate) struct StripedCounter {
    value: Striped,
    /// The value at the last export.
    last: AtomicI64,
    exported: ExportedCounter,
}

impl StripedCounter {
    pub(super) fn new(shards: usize, exported: ExportedCounter) -> StripedCounter {
        StripedCounter {
            value: Striped::new(shards),
            last: AtomicI64::new(0),
            exported,
        }
    }

    pub(crate) fn add(&self, n: usize) {
        self.value.add(n as i64);
    }

    pub(crate) fn get(&self) -> u64 {
        u64::try_from(self.value.get()).unwrap_or(0)
    }

    pub(super) fn export(&self) {
        let now = self.value.get();
        // The recorder has one counter for all buses of the process, so only the difference is added.
        let difference = now - self.last.swap(now, Ordering::Relaxed);
        self.exported.increment(difference.unsigned_abs());
    }
}

/// The part of one bus in a gauge that all buses of the process share.
pub(super) struct SharedGauge {
    part: AtomicI64,
    exported: Gauge,
}

impl SharedGauge {
    pub(super) fn new(exported: Gauge) -> SharedGauge {
        SharedGauge {
            part: AtomicI64::new(0),
            exported,
        }
    }

    pub(super) fn set(&self, now: i64) {
        let difference = now - self.part.swap(now, Ordering::Relaxed);
        if difference != 0 {
            self.exported.increment(difference as f64);
        }
    }
}

impl Drop for SharedGauge {
    fn drop(&mut self) {
        // The gauge outlives the bus, whose part would stay in the sum.
        self.set(0);
    }
}

/// A gauge that all shards change without contention.
pub(crate) struct StripedGauge {
    value: Striped,
    shared: SharedGauge,
}

impl StripedGauge {
    pub(super) fn new(shards: usize, exported: Gauge) -> StripedGauge {
        StripedGauge {
            value: Striped::new(shards),
            shared: SharedGauge::new(exported),
        }
    }

    /// Adds the difference between two values of one part of the gauge.
    pub(crate) fn change(&self, before: usize, now: usize) {
        self.value.add(now as i64 - before as i64);
    }

    /// Returns the value, which is inexact while other threads change it.
    pub(crate) fn get(&self) -> usize {
        // A sum that sees a removal before its addition may be negative.
        usize::try_from(self.value.get()).unwrap_or(0)
    }

    pub(super) fn export(&self) {
        self.shared.set(self.value.get());
    }
}
