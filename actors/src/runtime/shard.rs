//! The threads of the Publisher shards.

use std::cell::Cell;

use actix::ArbiterHandle;

use crate::metrics::enter_stripe;

thread_local! {
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Returns the shard whose thread this is; none on every other thread.
pub(crate) fn current_shard() -> Option<usize> {
    SHARD.get()
}

/// Makes this thread the one of `shard`.
pub(crate) fn enter_shard(shard: usize) {
    SHARD.set(Some(shard));
    // The metrics are below this module and cannot ask for the shard.
    enter_stripe(shard);
}

/// The thread of one Publisher shard, which may also carry connections.
///
/// A stream on the thread of the shard that marks its outbox is woken without a switch of threads.
#[derive(Debug, Clone)]
pub struct Shard {
    pub(crate) arbiter: ArbiterHandle,
}

impl Shard {
    /// Runs the future that `start` creates on the shard's thread, which has its own tokio runtime. The
    /// future must never block, because it would hold up the shard. Returns false if the bus has stopped.
    pub fn spawn<F, R>(&self, start: F) -> bool
    where
        F: FnOnce() -> R + Send + 'static,
        R: Future<Output = ()> + 'static,
    {
        self.arbiter.spawn_fn(move || {
            // Detached on purpose: the future runs until it ends or the shard does.
            let _detached = actix::spawn(start());
        })
    }
}
