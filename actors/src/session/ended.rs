//! The memory of the subscribers that ended last, which answers why one is gone.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::{EndReason, EndedSubscriber, MonotonicMillis, SubscriberId};
use crate::outbox::Outbox;

/// The number of subscribers that are remembered.
const REMEMBERED_MAX: usize = 1_024;

/// The subscribers that ended last.
#[derive(Debug, Default)]
pub(crate) struct EndedSubscribers {
    last: Mutex<VecDeque<(MonotonicMillis, EndedSubscriber)>>,
}

impl EndedSubscribers {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(MonotonicMillis, EndedSubscriber)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the subscriber of this outbox. At the limit the oldest one is forgotten.
    pub(crate) fn remember(&self, outbox: &Outbox, reason: EndReason) {
        let gone = EndedSubscriber {
            id: outbox.id(),
            kind: outbox.kind(),
            label: outbox.label().clone(),
            reason,
            ended: std::time::Duration::ZERO,
            pending: outbox.pending(),
        };
        let mut last = self.lock();
        if last.len() >= REMEMBERED_MAX {
            last.pop_front();
        }
        last.push_back((MonotonicMillis::now(), gone));
    }

    /// Returns the subscriber with this id if it ended lately.
    pub(crate) fn find(&self, id: SubscriberId) -> Option<EndedSubscriber> {
        let last = self.lock();
        let (at, gone) = last.iter().rev().find(|(_, gone)| gone.id == id)?;
        let mut gone = gone.clone();
        gone.ended = MonotonicMillis::now().since(*at);
        Some(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::model::{SessionOptions, SubscriberKind};
    use std::sync::Arc;

    #[test]
    fn oldest_is_forgotten_at_the_limit() {
        let ended_subscribers = EndedSubscribers::default();
        for id in 0..REMEMBERED_MAX as u64 + 10 {
            let options = SessionOptions::new(SubscriberKind::Local, "x");
            let outbox = Outbox::new(
                SubscriberId(id),
                0,
                &options,
                Metrics::register(1),
                Arc::default(),
            );
            ended_subscribers.remember(&outbox, EndReason::Evicted);
        }
        assert_eq!(ended_subscribers.lock().len(), REMEMBERED_MAX);
        assert_eq!(ended_subscribers.find(SubscriberId(9)), None);
        let found = ended_subscribers.find(SubscriberId(10)).unwrap();
        assert_eq!((found.reason, found.pending), (EndReason::Evicted, 0));
    }
}
