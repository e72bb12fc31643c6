//! The kinds of numbers that the bus keeps: counters, shares of gauges, and both in stripes.
//!
//! Owns: how a number is kept and how what changed of it is handed to the recorder, as a difference, so that several
//! buses of one process add up. Never: names a metric. Used by the table of metrics alone.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use metrics::{Counter as ExportedCounter, Gauge};

use super::striped::Striped;

/// A counter that can be read back; for what happens once per change at most.
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

/// A counter that shards change without waiting for each other.
pub(crate) struct StripedCounter {
    value: Striped,
    shown: AtomicI64,
    exported: ExportedCounter,
}

impl StripedCounter {
    pub(super) fn new(shards: usize, exported: ExportedCounter) -> StripedCounter {
        StripedCounter {
            value: Striped::new(shards),
            shown: AtomicI64::new(0),
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
        let moved = now - self.shown.swap(now, Ordering::Relaxed);
        self.exported.increment(moved.unsigned_abs());
    }
}

/// A gauge of which this bus has its share; the share goes with it.
pub(super) struct SharedGauge {
    shown: AtomicI64,
    exported: Gauge,
}

impl SharedGauge {
    pub(super) fn new(exported: Gauge) -> SharedGauge {
        SharedGauge {
            shown: AtomicI64::new(0),
            exported,
        }
    }

    pub(super) fn show(&self, now: i64) {
        let moved = now - self.shown.swap(now, Ordering::Relaxed);
        if moved != 0 {
            self.exported.increment(moved as f64);
        }
    }
}

impl Drop for SharedGauge {
    fn drop(&mut self) {
        self.show(0);
    }
}

/// How many there are now, changed by shards without waiting for each other.
pub(crate) struct StripedGauge {
    value: Striped,
    share: SharedGauge,
}

impl StripedGauge {
    pub(super) fn new(shards: usize, exported: Gauge) -> StripedGauge {
        StripedGauge {
            value: Striped::new(shards),
            share: SharedGauge::new(exported),
        }
    }

    /// Notes that what was `before` is `now`.
    pub(crate) fn moved(&self, before: usize, now: usize) {
        self.value.add(now as i64 - before as i64);
    }

    /// How many there are; while it changes, about as many.
    pub(crate) fn get(&self) -> usize {
        usize::try_from(self.value.get()).unwrap_or(0)
    }

    pub(super) fn export(&self) {
        self.share.show(self.value.get());
    }
}
