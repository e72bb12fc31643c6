//! The requests of HTTP/2 that were handed to the service and are not answered, over the connections of a
//! thread.
//!
//! A handler holds several times the memory of a request that waits or of a stream that is open. When
//! thousands come at once, most wait here, so that the memory of the handlers is used again instead of
//! growing with the crowd. They do not wait for slow ones: while none is answered, more begin after a moment.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::Instant;

/// The requests of a thread below which another one begins at once.
const BEGUN_MAX: usize = 256;

/// The time without an answer after which more begin all the same.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);

thread_local! {
    static BEGUN: Cell<usize> = const { Cell::new(0) };
    /// The last time that an answer made room, or that more began without one.
    static MOVED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The connections that wait for room, each once.
    static WAITING: RefCell<VecDeque<(Waker, WaitingMark)>> = const { RefCell::new(VecDeque::new()) };
}

/// True while a connection is among those that wait for room.
pub(super) type WaitingMark = Rc<Cell<bool>>;

/// A request that was handed to the service, until it is answered or ends.
pub(super) struct Begun(());

impl Begun {
    pub(super) fn new() -> Begun {
        BEGUN.set(BEGUN.get() + 1);
        Begun(())
    }

    /// Returns true if another request of the thread may begin.
    pub(super) fn has_room() -> bool {
        BEGUN.get() < BEGUN_MAX
    }

    /// Returns true, once in a while, if no request was answered for long.
    pub(super) fn is_stuck() -> bool {
        let now = Instant::now();
        let is_stuck = match MOVED.get() {
            Some(moved) => now - moved >= PATIENCE,
            None => true,
        };
        if is_stuck {
            MOVED.set(Some(now));
        }
        is_stuck
    }

    /// Has a connection woken when there is room.
    pub(super) fn wait(waker: &Waker, mark: &WaitingMark) {
        if !mark.replace(true) {
            WAITING.with_borrow_mut(|waiting| waiting.push_back((waker.clone(), mark.clone())));
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        BEGUN.set(BEGUN.get() - 1);
        while let Some((waker, mark)) = WAITING.with_borrow_mut(VecDeque::pop_front) {
            mark.set(false);
            MOVED.set(Some(Instant::now()));
            // The mark of a connection that has ended is held here alone.
            if Rc::strong_count(&mark) > 1 {
                return waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct CountWakes(AtomicUsize);

    impl Wake for CountWakes {
        fn wake(self: Arc<CountWakes>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn answer_makes_room_for_the_one_that_waits_longest() {
        let mut begun: Vec<Begun> = (0..BEGUN_MAX).map(|_| Begun::new()).collect();
        assert!(!Begun::has_room());
        let counts: [Arc<CountWakes>; 3] = Default::default();
        let marks: [WaitingMark; 3] = Default::default();
        for (count, mark) in counts.iter().zip(&marks) {
            let waker = Waker::from(count.clone());
            Begun::wait(&waker, mark);
            Begun::wait(&waker, mark);
        }
        let [first, second, third] = marks;
        // Its connection has ended.
        drop(first);
        begun.pop();
        assert!(Begun::has_room());
        let woken = || counts.each_ref().map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken(), [0, 1, 0]);
        assert!(!second.get() && third.get());
        begun.clear();
        assert_eq!(woken(), [0, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn more_begin_while_none_is_answered() {
        let _begun: Vec<Begun> = (0..=BEGUN_MAX).map(|_| Begun::new()).collect();
        assert!(Begun::is_stuck());
        assert!(!Begun::is_stuck());
        tokio::time::advance(PATIENCE).await;
        assert!(Begun::is_stuck());
    }
}
