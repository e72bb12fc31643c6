//! The bounded queue of an attached subscriber that takes every notice.
//!
//! Deliveries are numbered when they are offered, so the receiver sees exactly where deliveries are missing.
//! Offering never waits for the receiver.

use std::sync::{Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};

use super::{Delivery, Overflow};

/// A delivery with its number.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) delivery: Delivery,
}

/// The deliveries that wait for one subscriber.
#[derive(Debug)]
pub(crate) struct Queue {
    sender: Sender<Numbered>,
    receiver: Receiver<Numbered>,
    overflow: Overflow,
    // The number of the next delivery. Locked while offering, because several shards and the tracer may offer
    // at once.
    next: Mutex<u64>,
}

impl Queue {
    /// Creates a queue for at most `capacity` deliveries.
    pub(crate) fn new(capacity: usize, overflow: Overflow) -> Queue {
        let (sender, receiver) = bounded(capacity.max(1));
        Queue {
            sender,
            receiver,
            overflow,
            next: Mutex::new(0),
        }
    }

    /// Adds `delivery`. If the queue is full, drops it or the oldest. Returns the number of dropped
    /// deliveries.
    pub(crate) fn offer(&self, delivery: Delivery) -> u64 {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        // Numbered under the lock, so that numbers are in the order of the queue.
        let number = *next;
        *next += 1;
        let mut item = Numbered { number, delivery };
        let mut lost = 0;
        loop {
            item = match self.sender.try_send(item) {
                Ok(()) => return lost,
                Err(TrySendError::Full(item)) => item,
                // Cannot happen: the queue holds both ends of the channel.
                Err(TrySendError::Disconnected(_)) => return 1,
            };
            if self.overflow == Overflow::DropNewest {
                return 1;
            }
            // The receiver may have taken the oldest one meanwhile; then there is room, and nothing is lost.
            lost += u64::from(self.receiver.try_recv().is_ok());
        }
    }

    /// Returns the receiving end.
    pub(crate) fn receiver(&self) -> Receiver<Numbered> {
        self.receiver.clone()
    }

    /// Returns the number of the next delivery if the queue is empty: all before it were taken or dropped.
    pub(crate) fn next_if_empty(&self) -> Option<u64> {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        self.sender.is_empty().then_some(*next)
    }

    /// The number of waiting deliveries.
    pub(crate) fn len(&self) -> usize {
        self.sender.len()
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
        queue.receiver().try_iter().map(|item| item.number).collect()
    }

    #[test]
    fn full_queue_drops_by_its_overflow_policy() {
        for (overflow, kept) in [
            (Overflow::DropOldest, [2, 3, 4]),
            (Overflow::DropNewest, [0, 1, 2]),
        ] {
            let queue = Queue::new(3, overflow);
            let lost: u64 = (0..5).map(|n| queue.offer(delivery(n))).sum();
            assert_eq!(lost, 2);
            assert_eq!((queue.len(), queue.next_if_empty()), (3, None));
            assert_eq!(numbers(&queue), kept);
            assert_eq!(queue.next_if_empty(), Some(5));
        }
    }

    proptest! {
        #[test]
        fn deliveries_are_taken_in_order_or_counted(
            capacity in 1_usize..8,
            drop_oldest: bool,
            steps in proptest::collection::vec(any::<bool>(), 0..200),
        ) {
            let overflow = if drop_oldest { Overflow::DropOldest } else { Overflow::DropNewest };
            let queue = Queue::new(capacity, overflow);
            let mut lost = 0;
            let mut taken = Vec::new();
            for offer in steps {
                if offer {
                    lost += queue.offer(delivery(0));
                } else {
                    taken.extend(queue.receiver().try_recv().ok().map(|item| item.number));
                }
                prop_assert!(queue.len() <= capacity);
            }
            taken.extend(numbers(&queue));
            prop_assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!(Some(taken.len() as u64 + lost), queue.next_if_empty());
        }
    }
}
