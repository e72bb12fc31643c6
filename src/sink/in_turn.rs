//! Sinks that several nodes have: one of them delivers at a time, and the others follow its place, so that
//! another one goes on where it stopped.
//!
//! Each node queues what is to be delivered. A node whose turn it is not drops what the other has delivered
//! and keeps the rest, so nothing falls between two turns. What was delivered shortly before a node died may
//! be delivered again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidings_actors::attach::{Delivery, DeliveryClass, Subscriber, SubscriberError};

/// The time for which a delivery waits for the other node on the thread of its sink, before the bus is asked
/// to repeat it.
const WAIT: Duration = Duration::from_secs(1);

/// The pause before a delivery that waits is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(100);

/// The turn of a sink, and the place of its deliveries. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SinkTurn(Arc<SinkPlace>);

/// Makes the turn of the sink of a name; none for a sink that each node has for itself.
pub type MakeTurn = Arc<dyn Fn(&str) -> Option<SinkTurn> + Send + Sync>;

#[derive(Debug, Default)]
struct SinkPlace {
    is_held: AtomicBool,
    /// True if what may be another node's to deliver is dropped instead of kept.
    is_leaving: AtomicBool,
    /// The offset up to which everything was delivered, by any node.
    delivered: AtomicU64,
    changed: Condvar,
    lock: Mutex<()>,
}

/// What becomes of a delivery.
#[derive(Debug, PartialEq, Eq)]
enum TurnStep {
    Deliver,
    /// Another node has delivered it.
    Drop,
    /// Another node may be about to deliver it.
    Wait,
}

impl SinkTurn {
    /// Begins a turn of this node, after `delivered` was read, or ends it.
    pub fn set_held(&self, is_held: bool) {
        self.0.is_held.store(is_held, Ordering::Release);
        self.wake();
    }

    /// Tells the offset up to which another node has delivered everything.
    pub fn set_delivered(&self, offset: u64) {
        self.0.delivered.fetch_max(offset, Ordering::AcqRel);
        self.wake();
    }

    /// Returns the offset up to which everything was delivered.
    pub fn delivered(&self) -> u64 {
        self.0.delivered.load(Ordering::Acquire)
    }

    /// Keeps deliveries that another node may not have made, which is so from the start, or drops them.
    pub fn set_waiting(&self, is_waiting: bool) {
        self.0.is_leaving.store(!is_waiting, Ordering::Release);
        self.wake();
    }

    /// Returns true if no sink has this turn any more.
    pub fn is_unused(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    fn wake(&self) {
        // Under the lock, so that a thread that is about to wait misses nothing.
        drop(self.0.lock.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.changed.notify_all();
    }

    fn step(&self, offset: Option<u64>) -> TurnStep {
        match (offset, self.0.is_held.load(Ordering::Acquire)) {
            (Some(offset), _) if offset <= self.delivered() => TurnStep::Drop,
            (_, true) => TurnStep::Deliver,
            _ if self.0.is_leaving.load(Ordering::Acquire) => TurnStep::Drop,
            (Some(_), false) => TurnStep::Wait,
            // A gap of the queue of this node says nothing of the deliveries of the other.
            (None, false) => TurnStep::Drop,
        }
    }

    /// Waits for a while until a delivery has another step than to wait.
    fn wait(&self, offset: Option<u64>) -> TurnStep {
        let until = Instant::now() + WAIT;
        let mut guard = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let step = self.step(offset);
            let left = until.saturating_duration_since(Instant::now());
            if step != TurnStep::Wait || left.is_zero() {
                return step;
            }
            let woken = self.0.changed.wait_timeout(guard, left);
            guard = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A subscriber that delivers in its turns; without one always.
#[derive(Debug)]
pub(super) struct InTurn<S> {
    inner: S,
    turn: Option<SinkTurn>,
    /// True if deliveries come in the order of their offsets, so that one tells of all before it.
    is_ordered: bool,
    /// The highest offset that was handed out.
    newest: u64,
}

impl<S> InTurn<S> {
    pub(super) fn new(inner: S, turn: Option<SinkTurn>, class: DeliveryClass) -> InTurn<S> {
        InTurn {
            inner,
            turn,
            is_ordered: matches!(class, DeliveryClass::Every { .. }),
            newest: 0,
        }
    }
}

impl<S: Subscriber> Subscriber for InTurn<S> {
    fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
        let Some(turn) = &self.turn else {
            return self.inner.take(delivery);
        };
        let offset = offset_of(delivery);
        match turn.wait(offset) {
            TurnStep::Deliver => self.inner.take(delivery)?,
            TurnStep::Drop => {}
            // The thread of the sink must also see that it is detached, which only the bus tells it.
            TurnStep::Wait => {
                return Err(SubscriberError::Later {
                    after: REPEAT_AFTER,
                    reason: "another node delivers, and has not delivered this yet".to_owned(),
                });
            }
        }
        self.newest = self.newest.max(offset.unwrap_or(0));
        if self.is_ordered {
            turn.set_delivered(self.newest);
        }
        Ok(())
    }

    fn idle(&mut self) -> Result<(), SubscriberError> {
        // Everything was handed out, in whichever order it was.
        if let Some(turn) = &self.turn {
            turn.set_delivered(self.newest);
        }
        self.inner.idle()
    }

    fn close(&mut self) -> Result<(), SubscriberError> {
        self.inner.close()
    }
}

/// Returns the offset of a delivery; none for one that has no place in the order.
fn offset_of(delivery: &Delivery) -> Option<u64> {
    match delivery {
        Delivery::Notice(notice) => Some(notice.position.offset),
        Delivery::List(_, position) => Some(position.offset),
        Delivery::Gap(gap) => gap.position.map(|position| position.offset),
        Delivery::Trace(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_actors::attach::Overflow;
    use tidings_actors::{ListKind, Position};

    /// Keeps the offsets that it takes.
    #[derive(Debug, Default)]
    struct Kept(Arc<Mutex<Vec<u64>>>);

    impl Subscriber for Kept {
        fn take(&mut self, delivery: &Delivery) -> Result<(), SubscriberError> {
            self.0.lock().unwrap().extend(offset_of(delivery));
            Ok(())
        }
    }

    const EVERY: DeliveryClass = DeliveryClass::Every {
        capacity: 10,
        overflow: Overflow::DropOldest,
    };

    fn at(offset: u64) -> Delivery {
        Delivery::List(ListKind::Tools, Position { epoch: 1, offset })
    }

    fn sink(class: DeliveryClass) -> (InTurn<Kept>, SinkTurn, Arc<Mutex<Vec<u64>>>) {
        let turn = SinkTurn::default();
        let kept = Kept::default();
        let taken = kept.0.clone();
        (InTurn::new(kept, Some(turn.clone()), class), turn, taken)
    }

    #[test]
    fn next_node_goes_on_where_the_other_stopped() {
        let (mut one, turn, taken) = sink(EVERY);
        let (mut other, next_turn, next_taken) = sink(EVERY);
        turn.set_held(true);
        for offset in 1..=3 {
            one.take(&at(offset)).unwrap();
        }
        next_turn.set_delivered(turn.delivered());
        for offset in 1..=3 {
            other.take(&at(offset)).unwrap();
        }
        assert!(matches!(other.take(&at(4)), Err(SubscriberError::Later { .. })));
        turn.set_held(false);
        next_turn.set_held(true);
        other.take(&at(4)).unwrap();
        assert_eq!(*taken.lock().unwrap(), [1, 2, 3]);
        assert_eq!(*next_taken.lock().unwrap(), [4]);
        assert_eq!(next_turn.delivered(), 4);
    }

    #[test]
    fn waiting_delivery_ends_with_the_news() {
        let (mut waiting, turn, taken) = sink(EVERY);
        let thread = std::thread::spawn(move || waiting.take(&at(7)));
        turn.set_delivered(7);
        assert_eq!(thread.join().unwrap(), Ok(()));
        assert!(taken.lock().unwrap().is_empty());
    }

    #[test]
    fn node_that_stops_leaves_the_rest_to_others() {
        let (mut one, turn, taken) = sink(EVERY);
        turn.set_waiting(false);
        one.take(&at(1)).unwrap();
        assert!(taken.lock().unwrap().is_empty());
        turn.set_held(true);
        one.take(&at(2)).unwrap();
        assert_eq!(*taken.lock().unwrap(), [2]);
        assert!(!turn.is_unused());
        drop(one);
        assert!(turn.is_unused());
    }

    #[test]
    fn place_without_order_moves_when_all_was_handed_out() {
        let (mut latest, turn, _) = sink(DeliveryClass::Latest { pending_max: 10 });
        turn.set_held(true);
        latest.take(&at(9)).unwrap();
        assert_eq!(turn.delivered(), 0);
        latest.take(&at(4)).unwrap();
        latest.idle().unwrap();
        assert_eq!(turn.delivered(), 9);
    }

    #[test]
    fn sink_of_one_node_delivers_always() {
        let kept = Kept::default();
        let taken = kept.0.clone();
        let mut alone = InTurn::new(kept, None, EVERY);
        alone.take(&at(1)).unwrap();
        alone.idle().unwrap();
        assert_eq!(*taken.lock().unwrap(), [1]);
    }
}
