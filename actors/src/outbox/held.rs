//! The value that an outbox keeps until its subscriber ends.

use std::any::Any;

use super::Outbox;

/// A value that is kept until a subscriber ends.
pub(super) type Held = Box<dyn Any + Send>;

impl Outbox {
    /// Keeps `held` until the outbox ends, in place of the value before; drops it at once if it has ended.
    pub(crate) fn hold(&self, held: Box<dyn Any + Send>) {
        let mut state = self.lock();
        if state.ended.is_some() {
            drop(state);
            drop(held);
            return;
        }
        let before = state.held.replace(held);
        drop(state);
        drop(before);
    }

    /// Drops the value that the outbox keeps.
    pub(crate) fn release(&self) {
        let held = self.lock().held.take();
        drop(held);
    }
}
