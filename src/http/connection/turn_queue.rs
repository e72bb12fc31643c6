//! Rows in which the connections of a thread wait for their turns.
//!
//! A change for very many wakes all connections of a thread at once, and a flood may come over a thousand of
//! them. If each had its turn after the other, a request or a change for few, made meanwhile, would wait for
//! a turn of every one. Here a few work at a time, and the others wait in the order in which they came.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::thread::LocalKey;

thread_local! {
    /// The connections that tell their streams of changes for many, or begin many requests.
    pub(super) static WORK: TurnQueue = const { TurnQueue::of(4) };
    /// The connections that are new, or whose clients have sent more than is read at a time.
    pub(super) static READS: TurnQueue = const { TurnQueue::of(2) };
}

/// A row of connections, and those that work.
pub(super) struct TurnQueue {
    working_max: usize,
    working: Cell<usize>,
    waiting: RefCell<VecDeque<(Waker, Rc<Cell<TurnState>>)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum TurnState {
    #[default]
    Idle,
    /// Among those that wait.
    Waiting,
    /// One of those that work, perhaps without knowing it yet.
    Working,
}

impl TurnQueue {
    const fn of(working_max: usize) -> TurnQueue {
        TurnQueue {
            working_max,
            working: Cell::new(0),
            waiting: RefCell::new(VecDeque::new()),
        }
    }

    /// Returns true if one more may work, which is counted then.
    fn admit(&self) -> bool {
        let working = self.working.get();
        let may_work = working < self.working_max;
        self.working.set(working + usize::from(may_work));
        may_work
    }

    /// Hands the place of one that worked to the connection that waits longest, if there is one.
    fn hand_on(&self) {
        // Not borrowed while a task is woken.
        let next = || self.waiting.borrow_mut().pop_front();
        while let Some((waker, state)) = next() {
            // Others have ended, or have nothing to do any more.
            if state.get() == TurnState::Waiting {
                state.set(TurnState::Working);
                return waker.wake();
            }
        }
        self.working.set(self.working.get() - 1);
    }
}

/// One connection's place in a row; given back when dropped.
pub(super) struct Turns {
    queue: &'static LocalKey<TurnQueue>,
    state: Rc<Cell<TurnState>>,
}

impl Turns {
    pub(super) fn new(queue: &'static LocalKey<TurnQueue>) -> Turns {
        Turns {
            queue,
            state: Rc::default(),
        }
    }

    /// Returns true if the connection may work. If not, its task is woken as soon as it may.
    pub(super) fn ask(&self, cx: &Context<'_>) -> bool {
        if self.state.get() == TurnState::Idle {
            let state = self.queue.with(|queue| {
                if queue.admit() {
                    return TurnState::Working;
                }
                let place = (cx.waker().clone(), self.state.clone());
                queue.waiting.borrow_mut().push_back(place);
                TurnState::Waiting
            });
            self.state.set(state);
        }
        self.state.get() == TurnState::Working
    }

    /// Gives the place back.
    pub(super) fn end(&self) {
        if self.state.replace(TurnState::Idle) == TurnState::Working {
            self.queue.with(TurnQueue::hand_on);
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.end();
    }
}

/// Has a task polled again after the runtime has looked at the sockets of the thread. A task that only wakes
/// itself is polled some sixty times before that.
pub(super) fn yield_to_sockets(cx: &mut Context<'_>) {
    // Its first poll has the effect, and never ends it.
    let first = pin!(tokio::task::yield_now()).poll(cx);
    debug_assert!(first.is_pending());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connection::count_wakes::CountWakes;
    use std::sync::Arc;

    #[test]
    fn few_work_and_the_others_follow_in_their_order() {
        thread_local! {
            static ROW: TurnQueue = const { TurnQueue::of(4) };
        }
        let mut turns: VecDeque<Turns> = (0..8).map(|_| Turns::new(&ROW)).collect();
        let counts: Vec<Arc<CountWakes>> = turns.iter().map(|_| Arc::default()).collect();
        for (turn, count) in turns.iter().zip(&counts) {
            let waker = Waker::from(count.clone());
            let may = || turn.ask(&Context::from_waker(&waker));
            assert_eq!(may(), may());
        }
        let woken = || counts.iter().map(|count| count.count()).collect::<Vec<_>>();
        let working = |turns: &VecDeque<Turns>| {
            let states = turns.iter().map(|turn| turn.state.get());
            states.filter(|state| *state == TurnState::Working).count()
        };
        assert_eq!((working(&turns), woken()), (4, vec![0; 8]));
        // One that works has nothing more to do, and two that wait do not wait any longer.
        turns[4].end();
        drop(turns.remove(4 + 1));
        turns[0].end();
        assert_eq!(working(&turns), 4);
        assert_eq!(woken(), [0, 0, 0, 0, 0, 0, 1, 0]);
        // The connection that was chosen ends before it knows, and the next one has its place.
        drop(turns.remove(4 + 1));
        assert_eq!(woken(), [0, 0, 0, 0, 0, 0, 1, 1]);
        turns.clear();
        assert_eq!(
            ROW.with(|row| (row.working.get(), row.waiting.take().len())),
            (0, 0)
        );
    }
}
