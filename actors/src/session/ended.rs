//! The subscribers that ended last, for those who ask why somebody is gone.
//!
//! Owns: [`EndedSubscribers`], a short memory of fixed length. Never: holds anything a subscriber held but its label. Written
//! by Session actors as they end, read by the bus.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::{EndReason, EndedSubscriber, MonotonicMillis, SubscriberId};
use crate::outbox::Outbox;

/// How many are remembered.
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

    /// Remembers the one whose outbox this was; at the limit the one that ended first is forgotten.
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

    /// The one of this name, if it ended not long ago.
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
    fn the_last_thousand_are_remembered_and_no_more() {
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
