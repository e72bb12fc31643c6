//! The bounded queue of a subscriber that wants every notice.
//!
//! Owns: what waits, and the number each delivery was given when it was offered, by which the taking end sees exactly
//! where deliveries are missing. Never: waits, or makes whoever offers wait for the taking end.
//! Receives from publisher shards and the tracer; the subscriber's own thread takes.

use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::{Delivery, Overflow};

/// A delivery and its number.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) delivery: Delivery,
}

/// What waits for one subscriber.
#[derive(Debug)]
pub(crate) struct Queue {
    items: Sender<Numbered>,
    taken: Receiver<Numbered>,
    overflow: Overflow,
    /// The number of the next delivery. Held while offering, since several threads may offer.
    next: Mutex<u64>,
}

impl Queue {
    /// An empty queue for at most `capacity` deliveries.
    pub(crate) fn new(capacity: usize, overflow: Overflow) -> Queue {
        let (items, taken) = bounded(capacity.max(1));
        Queue {
            items,
            taken,
            overflow,
            next: Mutex::new(0),
        }
    }

    /// Adds `delivery`, at the cost of another one where the queue is full. Answers how many were lost: 0 or 1.
    pub(crate) fn offer(&self, delivery: Delivery) -> u64 {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let number = *next;
        *next += 1;
        let mut item = Numbered { number, delivery };
        let mut lost = 0;
        loop {
            item = match self.items.try_send(item) {
                Ok(()) => return lost,
                Err(TrySendError::Full(item)) => item,
                // It keeps both of its ends.
                Err(TrySendError::Disconnected(_)) => return 1,
            };
            if self.overflow == Overflow::DropNewest {
                return 1;
            }
            lost += u64::from(self.taken.try_recv().is_ok());
        }
    }

    /// The end at which deliveries are taken.
    pub(crate) fn taking_end(&self) -> Receiver<Numbered> {
        self.taken.clone()
    }

    /// The number of the next delivery when none waits: everything before it was taken or lost.
    pub(crate) fn end_when_empty(&self) -> Option<u64> {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.items.is_empty().then_some(*next)
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ListKind, Position};
    use proptest::prelude::*;

    fn delivery(offset: u64) -> Delivery {
        Delivery::List(ListKind::Tools, Position { epoch: 1, offset })
    }

    fn numbers(queue: &Queue) -> Vec<u64> {
        queue.taking_end().try_iter().map(|item| item.number).collect()
    }

    #[test]
    fn a_full_queue_loses_the_oldest_or_the_newest_as_it_was_told() {
        for (overflow, kept) in [
            (Overflow::DropOldest, [2, 3, 4]),
            (Overflow::DropNewest, [0, 1, 2]),
        ] {
            let queue = Queue::new(3, overflow);
            let lost: u64 = (0..5).map(|n| queue.offer(delivery(n))).sum();
            assert_eq!(lost, 2);
            assert_eq!((queue.len(), queue.end_when_empty()), (3, None));
            assert_eq!(numbers(&queue), kept);
            assert_eq!(queue.end_when_empty(), Some(5));
        }
    }

    proptest! {
        #[test]
        fn what_was_offered_is_taken_in_order_or_counted_as_lost(
            capacity in 1_usize..8,
            drop_oldest: bool,
            steps in proptest::collection::vec(any::<bool>(), 0..200),
        ) {
            let overflow = if drop_oldest { Overflow::DropOldest } else { Overflow::DropNewest };
            let queue = Queue::new(capacity, overflow);
            let (mut lost, mut taken) = (0, Vec::new());
            for offer in steps {
                if offer {
                    lost += queue.offer(delivery(0));
                } else {
                    taken.extend(queue.taking_end().try_recv().ok().map(|item| item.number));
                }
                prop_assert!(queue.len() <= capacity);
            }
            taken.extend(numbers(&queue));
            prop_assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!(Some(taken.len() as u64 + lost), queue.end_when_empty());
        }
    }
}
