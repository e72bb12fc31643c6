//! The builder that starts a bus.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;

use super::system::{Actors, CoreParts};
use super::{Bus, Inner};
use crate::metrics::Metrics;
use crate::model::{Limits, StartError};
use crate::runtime::{Admission, Tracer};
use crate::sink::Attachments;
use crate::versions::{Checkpoint, EtagIndex, Store};

/// Tells the time for etags, in seconds since 1970-01-01 UTC.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Builds a [`Bus`].
pub struct Builder {
    limits: Limits,
    store: Option<Box<dyn Store>>,
    clock: Clock,
}

impl Default for Builder {
    /// Returns a builder with default limits, versions in memory and the clock of the system.
    fn default() -> Builder {
        Builder {
            limits: Limits::default(),
            store: None,
            clock: Arc::new(unix_seconds),
        }
    }
}

/// The seconds since 1970. A clock before that counts as 1970: etags need no more than to differ.
fn unix_seconds() -> u64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs(),
        Err(_) => 0,
    }
}

impl Builder {
    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// Keeps versions in `store`, so that they outlive the process. Without a store they live in memory,
    /// and the time in an etag tells two lives of the process apart.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Builder {
        self.store = Some(Box::new(store));
        self
    }

    /// Takes the time of etags from `clock`.
    #[must_use]
    pub fn clock(mut self, clock: impl Fn() -> u64 + Send + Sync + 'static) -> Builder {
        self.clock = Arc::new(clock);
        self
    }

    /// Starts the bus on threads of its own, inside or outside a tokio runtime. Returns when the bus runs.
    ///
    /// # Errors
    /// [`StartError`] if the store cannot be read or a thread cannot be started.
    pub fn start(self) -> Result<Bus, StartError> {
        let Builder {
            limits,
            mut store,
            clock,
        } = self;
        let mut checkpoint = match &mut store {
            Some(store) => store.load()?,
            None => Checkpoint::default(),
        };
        if checkpoint.epoch == 0 {
            // Without history the offsets begin anew. Milliseconds tell this beginning from any other, so
            // that a client does not take an old position for a new one.
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            checkpoint.epoch = now.as_millis() as u64;
        }
        let limits = Arc::new(limits.at_least_minimum());
        let metrics = Metrics::register(limits.shard_count());
        let admission = Admission::counted(limits.in_flight_max, &metrics);
        let places = Arc::new(Semaphore::new(limits.sessions_max));
        let tracer = Arc::new(Tracer::default());
        let attachments = Arc::new(Attachments::new(limits.attached_max));
        let etag_index = Arc::new(EtagIndex::default());
        let parts = CoreParts {
            tracer: tracer.clone(),
            attachments: attachments.clone(),
            limits: limits.clone(),
            metrics: metrics.clone(),
            admission: admission.clone(),
            etag_index: etag_index.clone(),
            checkpoint,
            store,
        };
        let actors = Actors::start(parts)?;
        let next_id = AtomicU64::new(1);
        let next_shard = AtomicUsize::new(0);
        let inner = Inner {
            actors,
            admission,
            limits,
            metrics,
            clock,
            places,
            next_id,
            next_shard,
            tracer,
            attachments,
            ended_subscribers: Arc::default(),
            etag_index,
        };
        Ok(Bus {
            inner: Arc::new(inner),
        })
    }
}
