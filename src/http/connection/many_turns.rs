//! The connections of a thread that tell their streams of changes for many: a few of them at a time.
//!
//! A change for very many wakes all connections of a thread at once. If each had its turn after the other,
//! a request or a change for few, made meanwhile, would wait for a turn of every one of them. Here a few work
//! until they have nothing more to tell, and the others wait in the order in which they came.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Waker};

/// The connections of a thread that work at a time.
const WORKING_MAX: usize = 4;

thread_local! {
    static WORKING: Cell<usize> = const { Cell::new(0) };
    static WAITING: RefCell<VecDeque<(Waker, Rc<Cell<TellingState>>)>> = const { RefCell::new(VecDeque::new()) };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TellingState {
    #[default]
    Idle,
    /// Among those that wait.
    Waiting,
    /// One of those that work, perhaps without knowing it yet.
    Working,
}

/// One connection's place among those that work or wait; given back when dropped.
#[derive(Debug, Default)]
pub(super) struct ManyTurns {
    state: Rc<Cell<TellingState>>,
}

impl ManyTurns {
    /// Returns true if the connection may work. If not, its task is woken as soon as it may.
    pub(super) fn ask(&self, cx: &Context<'_>) -> bool {
        if self.state.get() == TellingState::Idle {
            if WORKING.get() < WORKING_MAX {
                WORKING.set(WORKING.get() + 1);
                self.state.set(TellingState::Working);
            } else {
                let place = (cx.waker().clone(), self.state.clone());
                WAITING.with_borrow_mut(|waiting| waiting.push_back(place));
                self.state.set(TellingState::Waiting);
            }
        }
        self.state.get() == TellingState::Working
    }

    /// Gives the place back, to the connection that waits longest if there is one.
    pub(super) fn end(&self) {
        if self.state.replace(TellingState::Idle) != TellingState::Working {
            return;
        }
        while let Some((waker, state)) = WAITING.with_borrow_mut(VecDeque::pop_front) {
            // Others have ended, or have nothing to tell any more.
            if state.get() == TellingState::Waiting {
                state.set(TellingState::Working);
                return waker.wake();
            }
        }
        WORKING.set(WORKING.get() - 1);
    }
}

impl Drop for ManyTurns {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connection::count_wakes::CountWakes;
    use std::sync::Arc;

    #[test]
    fn few_work_and_the_others_follow_in_their_order() {
        let mut turns: VecDeque<ManyTurns> = (0..WORKING_MAX + 4).map(|_| ManyTurns::default()).collect();
        let counts: Vec<Arc<CountWakes>> = turns.iter().map(|_| Arc::default()).collect();
        for (turn, count) in turns.iter().zip(&counts) {
            let waker = Waker::from(count.clone());
            let may = || turn.ask(&Context::from_waker(&waker));
            assert_eq!(may(), may());
        }
        let woken = || counts.iter().map(|count| count.count()).collect::<Vec<_>>();
        let working = |turns: &VecDeque<ManyTurns>| {
            let states = turns.iter().map(|turn| turn.state.get());
            states.filter(|state| *state == TellingState::Working).count()
        };
        assert_eq!((working(&turns), woken()), (WORKING_MAX, vec![0; 8]));
        // One that works has nothing more to tell, and two that wait do not wait any longer.
        turns[WORKING_MAX].end();
        drop(turns.remove(WORKING_MAX + 1));
        turns[0].end();
        assert_eq!(working(&turns), WORKING_MAX);
        assert_eq!(woken(), [0, 0, 0, 0, 0, 0, 1, 0]);
        // The connection that was chosen ends before it knows, and the next one has its place.
        drop(turns.remove(WORKING_MAX + 1));
        assert_eq!(woken(), [0, 0, 0, 0, 0, 0, 1, 1]);
        turns.clear();
        assert_eq!((WORKING.get(), WAITING.take().len()), (0, 0));
    }
}
