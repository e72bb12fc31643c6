//! Starting a bus: its limits, its store and its clock.

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

/// How a bus is started.
pub struct Builder {
    limits: Limits,
    store: Option<Box<dyn Store>>,
    clock: Clock,
}

impl Default for Builder {
    /// Default limits, versions in memory, and the system's clock.
    fn default() -> Builder {
        let clock = || {
            SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs())
        };
        Builder {
            limits: Limits::default(),
            store: None,
            clock: Arc::new(clock),
        }
    }
}

impl Builder {
    /// Sets what it holds at most.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.limits = limits;
        self
    }

    /// Keeps versions in `store`, so that they outlive this process. Without one they live in memory, and the time
    /// in an etag tells the lives apart.
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

    /// Starts the bus on threads of its own; it may be called inside or outside a tokio runtime and returns when the
    /// bus runs.
    ///
    /// # Errors
    /// [`StartError`] when the store cannot be read or a thread cannot be started.
    pub fn start(self) -> Result<Bus, StartError> {
        let Builder {
            limits,
            mut store,
            clock,
        } = self;
        let mut checkpoint = store
            .as_mut()
            .map_or(Ok(Checkpoint::default()), |store| store.load())?;
        if checkpoint.epoch == 0 {
            // Without history, offsets begin anew; milliseconds tell this beginning from any other.
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
