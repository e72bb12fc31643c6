//! The bounded queue of an attached subscriber that takes every notice.
//!
//! Deliveries are numbered when they are offered, so the receiver sees exactly where deliveries are missing.
//! Offering never waits for the receiver, and wakes it only when asked to.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Delivery, Overflow};
use crate::model::Position;

/// A delivery with its number.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) delivery: Delivery,
}

/// The result of taking from a queue.
#[derive(Debug)]
pub(crate) enum Taken {
    Delivery(Numbered),
    /// All deliveries before the number `next` were taken or dropped: those of all notices up to `seen`.
    Empty {
        next: u64,
        closed: bool,
        seen: Position,
    },
}

/// The deliveries that wait for one subscriber.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Notified when the receiver has something to do.
    ready: Condvar,
    capacity: usize,
    overflow: Overflow,
}

#[derive(Debug)]
struct Waiting {
    deliveries: VecDeque<Numbered>,
    /// The number of the next delivery.
    next: u64,
    /// The position up to which every notice was offered or filtered out.
    seen: Position,
    /// True if the receiver waits for `ready`. A notification is a system call even if no thread waits.
    is_awaited: bool,
    closed: bool,
}

impl Queue {
    /// Creates a queue for at most `capacity` deliveries.
    pub(crate) fn new(capacity: usize, overflow: Overflow) -> Queue {
        Queue {
            waiting: Mutex::new(Waiting {
                deliveries: VecDeque::new(),
                next: 0,
                seen: Position { epoch: 0, offset: 0 },
                is_awaited: false,
                closed: false,
            }),
            ready: Condvar::new(),
            capacity: capacity.max(1),
            overflow,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds `delivery`, for which the receiver is not woken before [`wake`](Self::wake) is called. If the
    /// queue is full, drops it or the oldest. Returns the number of dropped deliveries.
    pub(crate) fn offer(&self, delivery: Delivery) -> u64 {
        let mut waiting = self.lock();
        // Numbered under the lock, so that numbers are in the order of the queue.
        let number = waiting.next;
        waiting.next += 1;
        let full = waiting.deliveries.len() >= self.capacity;
        if full && self.overflow == Overflow::DropNewest {
            return 1;
        }
        if full {
            waiting.deliveries.pop_front();
        }
        waiting.deliveries.push_back(Numbered { number, delivery });
        u64::from(full)
    }

    /// Adds a delivery of what the receiver missed, beyond the capacity, after `lost` that are missing.
    pub(crate) fn preload(&self, lost: u64, delivery: Option<Delivery>) {
        let mut waiting = self.lock();
        waiting.next += lost;
        if let Some(delivery) = delivery {
            let number = waiting.next;
            waiting.next += 1;
            waiting.deliveries.push_back(Numbered { number, delivery });
        }
    }

    /// Notes that every notice up to `seen` was offered or filtered out. Wakes the receiver if it waits and
    /// there is something for it.
    pub(crate) fn wake(&self, seen: Position) {
        let mut waiting = self.lock();
        waiting.seen = seen;
        self.wake_locked(waiting);
    }

    fn wake_locked(&self, mut waiting: MutexGuard<'_, Waiting>) {
        let ready = !waiting.deliveries.is_empty() || waiting.closed;
        if ready && std::mem::take(&mut waiting.is_awaited) {
            // The receiver takes the lock as soon as it runs.
            drop(waiting);
            self.ready.notify_one();
        }
    }

    /// Takes the oldest delivery, for which it waits at most `timeout`. A closed queue is not waited for.
    pub(crate) fn take(&self, timeout: Duration) -> Taken {
        let mut waiting = self.lock();
        let mut begun = None;
        loop {
            if let Some(delivery) = waiting.deliveries.pop_front() {
                return Taken::Delivery(delivery);
            }
            // The clock is read only before the receiver waits, not for every delivery.
            let begun: Instant = *begun.get_or_insert_with(Instant::now);
            let left = timeout.saturating_sub(begun.elapsed());
            if waiting.closed || left.is_zero() {
                return Taken::Empty {
                    next: waiting.next,
                    closed: waiting.closed,
                    seen: waiting.seen,
                };
            }
            waiting.is_awaited = true;
            let waited = self.ready.wait_timeout(waiting, left);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
            waiting.is_awaited = false;
        }
    }

    /// Says that the subscriber is being detached. Deliveries that wait can still be taken.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        self.wake_locked(waiting);
    }

    /// The number of waiting deliveries.
    pub(crate) fn len(&self) -> usize {
        self.lock().deliveries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ListKind;
    use proptest::prelude::*;

    fn delivery(offset: u64) -> Delivery {
        Delivery::List(ListKind::Tools, Position { epoch: 1, offset })
    }

    fn numbers(queue: &Queue) -> Vec<u64> {
        std::iter::from_fn(|| take(queue).ok()).collect()
    }

    /// Takes a delivery and returns its number; of an empty queue, the number of the next one.
    fn take(queue: &Queue) -> Result<u64, u64> {
        match queue.take(Duration::ZERO) {
            Taken::Delivery(taken) => Ok(taken.number),
            Taken::Empty { next, .. } => Err(next),
        }
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
            assert_eq!(queue.len(), 3);
            assert_eq!(numbers(&queue), kept);
            assert_eq!(take(&queue), Err(5));
        }
    }

    #[test]
    fn waiting_receiver_is_woken_by_wake_and_close() {
        let queue = Queue::new(3, Overflow::DropOldest);
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                let first = queue.take(Duration::from_secs(60));
                let second = queue.take(Duration::from_secs(60));
                (first, second)
            });
            queue.offer(delivery(0));
            queue.wake(Position { epoch: 1, offset: 0 });
            while queue.len() > 0 {
                std::thread::yield_now();
            }
            queue.close();
            let (first, second) = receiver.join().unwrap();
            assert!(matches!(first, Taken::Delivery(Numbered { number: 0, .. })));
            assert!(matches!(
                second,
                Taken::Empty {
                    next: 1,
                    closed: true,
                    seen: Position { epoch: 1, offset: 0 },
                }
            ));
        });
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
                    taken.extend(take(&queue).ok());
                }
                prop_assert!(queue.len() <= capacity);
            }
            taken.extend(numbers(&queue));
            prop_assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert_eq!(Err(taken.len() as u64 + lost), take(&queue));
        }
    }
}
