//! What a subscriber was told, and its end here when another node goes on with it.

use std::sync::atomic::Ordering;

use super::{EndReason, Outbox, OutboxSet, OutboxState};
use crate::model::{Position, ToldState};

impl Outbox {
    /// Returns what the subscriber was told.
    pub(crate) fn told(&self) -> ToldState {
        self.told_in(&self.lock())
    }

    fn told_in(&self, state: &OutboxState) -> ToldState {
        ToldState {
            resources: state.set.told_resources(),
            lists: state.set.told_lists(),
            position: Position {
                epoch: self.epoch.load(Ordering::Relaxed),
                offset: state.set.highest_offset(),
            },
        }
    }

    /// Ends the outbox, and leaves what is pending to another node. Returns what was told; none if it has
    /// ended for another reason than the end of the bus.
    pub(crate) fn give_up(&self) -> Option<ToldState> {
        let mut state = self.lock();
        let is_open = match state.ended {
            None => true,
            // The node stops, and another one is faster than the end of its streams.
            Some(EndReason::Shutdown) => false,
            Some(_) => return None,
        };
        // Under one lock with the end: no entry is handed out after what is returned.
        let told = self.told_in(&state);
        self.count_pending(&mut state.set, OutboxSet::forget_pending);
        state.ended.get_or_insert(EndReason::Moved);
        let held = state.held.take();
        state.wake_all();
        // The held value, the log and the callback take locks of their own.
        drop(state);
        drop(held);
        if is_open {
            self.log_end(EndReason::Moved);
            if let Some(on_evict) = self.on_evict.get() {
                on_evict(EndReason::Moved);
            }
        }
        Some(told)
    }
}
