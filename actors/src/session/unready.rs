//! The sessions whose clients are not ready, which make room for others when the bus is full.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::model::{EndReason, SubscriberId};
use crate::outbox::Outbox;

/// The sessions whose clients are not ready, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct UnreadySessions {
    /// By id, since ids grow with time.
    by_age: Mutex<BTreeMap<SubscriberId, Weak<Outbox>>>,
}

impl UnreadySessions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<SubscriberId, Weak<Outbox>>> {
        self.by_age.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, outbox: &Arc<Outbox>) {
        self.lock().insert(outbox.id(), Arc::downgrade(outbox));
    }

    pub(crate) fn remove(&self, id: SubscriberId) {
        self.lock().remove(&id);
    }

    /// Ends the oldest one. Returns false if there is none.
    pub(crate) fn end_oldest(&self) -> bool {
        loop {
            // Ended without the lock: the end calls back.
            let oldest = self.lock().pop_first();
            let Some((_, outbox)) = oldest else { return false };
            if let Some(outbox) = outbox.upgrade()
                && outbox.evict(EndReason::NotReady)
            {
                return true;
            }
        }
    }
}
