//! The row in which the connections of a thread wait for their turns.
//!
//! A change for very many wakes all connections of a thread at once, and a flood may come over a thousand of
//! them. If each had its turn after the other, a request or a change for few, made meanwhile, would wait for
//! a turn of every one. Here a few work at a time, and the others wait in the order in which they came.

use std::cell::Cell;
use std::task::Context;

use super::own_wakes::yield_to_sockets;
use super::wait_list::{WaitList, WaitingPlace};

/// The connections of a thread that work at a time.
const WORKING_MAX: usize = 4;

/// The turns after which a connection lets others have its place. In a row they cost less than apart, since
/// what a connection needs is in the caches.
const TURNS_MAX: u32 = 16;

thread_local! {
    static WORKING: Cell<usize> = const { Cell::new(0) };
    static WAITING: WaitList = const { WaitList::new() };
}

/// One connection's place in the row; given back when dropped.
#[derive(Debug, Default)]
pub(super) struct RowPlace {
    /// Called while the connection is one of those that work.
    place: WaitingPlace,
    /// The turns that it has had since it last waited.
    taken: Cell<u32>,
}

impl RowPlace {
    /// Returns true if the connection has a turn now. If not, its task is woken when it has one.
    pub(super) fn ask(&self, cx: &Context<'_>) -> bool {
        if self.taken.get() >= TURNS_MAX && WAITING.with(|waiting| !waiting.is_empty()) {
            self.end();
        }
        if self.place.is_idle() {
            self.taken.set(0);
            if WORKING.get() < WORKING_MAX {
                WORKING.set(WORKING.get() + 1);
                self.place.call();
            } else {
                WAITING.with(|waiting| waiting.wait(&self.place, cx));
            }
        }
        let has_turn = self.place.is_called();
        self.taken.set(self.taken.get() + u32::from(has_turn));
        has_turn
    }

    /// Returns true while the connection waits for its turn.
    pub(super) fn is_waiting(&self) -> bool {
        self.place.is_waiting()
    }

    /// Gives the place back, to the connection that waits longest if there is one. That has its turn after
    /// the sockets of the thread were looked at, so that a long row leaves time for all else.
    pub(super) fn end(&self) {
        if !self.place.end() {
            return;
        }
        match WAITING.with(WaitList::call_next) {
            Some(next) => yield_to_sockets(&Context::from_waker(&next)),
            None => WORKING.set(WORKING.get() - 1),
        }
    }
}

impl Drop for RowPlace {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connection::count_wakes::CountWakes;
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::task::Waker;

    #[test]
    fn few_work_and_the_others_follow_in_their_order() {
        let mut turns: VecDeque<RowPlace> = (0..WORKING_MAX + 4).map(|_| RowPlace::default()).collect();
        let counts: Vec<Arc<CountWakes>> = turns.iter().map(|_| Arc::default()).collect();
        for (turn, count) in turns.iter().zip(&counts) {
            let waker = Waker::from(count.clone());
            let may = || turn.ask(&Context::from_waker(&waker));
            assert_eq!(may(), may());
        }
        let woken = || counts.iter().map(|count| count.count()).collect::<Vec<_>>();
        let working = |turns: &VecDeque<RowPlace>| turns.iter().filter(|turn| turn.place.is_called()).count();
        assert_eq!((working(&turns), woken()), (WORKING_MAX, vec![0; 8]));
        // One that works has nothing more to do, and two that wait do not wait any longer.
        turns[WORKING_MAX].end();
        drop(turns.remove(WORKING_MAX + 1));
        turns[0].end();
        assert_eq!(working(&turns), WORKING_MAX);
        assert_eq!(woken(), [0, 0, 0, 0, 0, 0, 1, 0]);
        // The connection that was chosen ends before it knows, and the next one has its place.
        drop(turns.remove(WORKING_MAX + 1));
        assert_eq!(woken(), [0, 0, 0, 0, 0, 0, 1, 1]);
        turns.clear();
        assert_eq!((WORKING.get(), WAITING.with(WaitList::is_empty)), (0, true));
    }

    #[test]
    fn place_is_handed_on_after_some_turns() {
        let cx = Context::from_waker(Waker::noop());
        let turns: Vec<RowPlace> = (0..WORKING_MAX).map(|_| RowPlace::default()).collect();
        for _ in 0..2 * TURNS_MAX {
            assert!(turns.iter().all(|turn| turn.ask(&cx)), "no other waits");
        }
        let other = RowPlace::default();
        assert!(!other.ask(&cx) && other.is_waiting());
        assert!(!turns[0].ask(&cx) && other.ask(&cx));
        assert!(!turns[1].ask(&cx) && turns[0].ask(&cx));
    }
}
