//! The wakes of a connection by itself.
//!
//! The library wakes the connection for each stream that writes, also while the connection is polled, and
//! most of it is done before the poll ends. A task that was woken while it was polled is polled again at
//! once, some sixty times before the runtime looks at the sockets of its thread.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures_util::task::AtomicWaker;

/// Tells the wakes of a connection during its own polls from others, which wake its task.
#[derive(Debug, Default)]
pub(super) struct OwnWakes {
    task: AtomicWaker,
    is_polled: AtomicBool,
    was_woken: AtomicBool,
}

impl OwnWakes {
    /// Makes the wakes of a connection, and the waker with which its parts are polled.
    pub(super) fn new() -> (Arc<OwnWakes>, Waker) {
        let wakes = Arc::<OwnWakes>::default();
        (wakes.clone(), Waker::from(wakes))
    }

    /// Begins a poll of the task of `cx`.
    pub(super) fn begin(&self, cx: &Context<'_>) {
        self.task.register(cx.waker());
        self.is_polled.store(true, Ordering::SeqCst);
        self.forget();
    }

    /// Forgets the wakes so far, since all that they were for is looked at next.
    pub(super) fn forget(&self) {
        self.was_woken.store(false, Ordering::SeqCst);
    }

    /// Ends a poll. Returns true if the connection was woken meanwhile.
    pub(super) fn end(&self) -> bool {
        // Before the look, so that a wake on another thread is seen here or wakes the task.
        self.is_polled.store(false, Ordering::SeqCst);
        self.was_woken.load(Ordering::SeqCst)
    }
}

impl Wake for OwnWakes {
    fn wake(self: Arc<OwnWakes>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<OwnWakes>) {
        self.was_woken.store(true, Ordering::SeqCst);
        if !self.is_polled.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

/// Has the task of `cx` polled again after the runtime has looked at the sockets of the thread.
pub(super) fn yield_to_sockets(cx: &Context<'_>) {
    // Its first poll has the effect, and never ends it.
    let first = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(cx.waker()));
    debug_assert!(first.is_pending());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connection::count_wakes::CountWakes;

    #[test]
    fn wakes_during_a_poll_are_told_at_its_end() {
        let count = Arc::new(CountWakes::default());
        let task = Waker::from(count.clone());
        let (wakes, waker) = OwnWakes::new();
        wakes.begin(&Context::from_waker(&task));
        assert!(!wakes.end());
        waker.wake_by_ref();
        assert_eq!(count.count(), 1);
        wakes.begin(&Context::from_waker(&task));
        waker.wake_by_ref();
        wakes.forget();
        assert!(!wakes.end());
        wakes.begin(&Context::from_waker(&task));
        wakes.forget();
        waker.wake_by_ref();
        assert!(wakes.end());
        assert_eq!(count.count(), 1);
    }
}
