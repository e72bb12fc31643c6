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

/// The time without room after which as many more may begin.
pub(super) const PATIENCE: Duration = Duration::from_millis(5);

thread_local! {
    static BEGUN: Cell<usize> = const { Cell::new(0) };
    /// The number of them at which there is no room: [`BEGUN_MAX`], and more while many are slow.
    static LIMIT: Cell<usize> = const { Cell::new(BEGUN_MAX) };
    /// The last time that the room ran out.
    static FULL_SINCE: Cell<Option<Instant>> = const { Cell::new(None) };
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
        if !Begun::has_room() {
            FULL_SINCE.set(Some(Instant::now()));
        }
        Begun(())
    }

    /// Returns true if another request of the thread may begin.
    pub(super) fn has_room() -> bool {
        BEGUN.get() < LIMIT.get()
    }

    /// Makes room for more if no answer has made some for long: those that wait for their answers are slow.
    pub(super) fn widen_if_stuck() {
        if !Begun::has_room()
            && let Some(since) = FULL_SINCE.get()
            && since.elapsed() >= PATIENCE
        {
            LIMIT.set(BEGUN.get() + BEGUN_MAX);
        }
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
        let begun = BEGUN.get() - 1;
        BEGUN.set(begun);
        // Room that was made for slow ones is taken back with their answers.
        LIMIT.set(LIMIT.get().min(begun + BEGUN_MAX).max(BEGUN_MAX));
        while let Some((waker, mark)) = WAITING.with_borrow_mut(VecDeque::pop_front) {
            mark.set(false);
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
    use crate::http::connection::count_wakes::CountWakes;
    use std::sync::Arc;

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
        let woken = || counts.each_ref().map(|count| count.count());
        assert_eq!(woken(), [0, 1, 0]);
        assert!(!second.get() && third.get());
        begun.clear();
        assert_eq!(woken(), [0, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_requests_take_no_room_from_others_for_long() {
        let mut begun: Vec<Begun> = (0..BEGUN_MAX).map(|_| Begun::new()).collect();
        Begun::widen_if_stuck();
        assert!(!Begun::has_room());
        tokio::time::advance(PATIENCE).await;
        Begun::widen_if_stuck();
        begun.extend((0..BEGUN_MAX).map(|_| Begun::new()));
        Begun::widen_if_stuck();
        assert!(!Begun::has_room());
        // With their answers the room is that of the beginning.
        begun.clear();
        begun.extend((1..BEGUN_MAX).map(|_| Begun::new()));
        assert!(Begun::has_room());
        begun.push(Begun::new());
        assert!(!Begun::has_room());
    }
}
