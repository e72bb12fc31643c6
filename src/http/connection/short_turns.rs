//! The short turns of a thread's connections: the first read of one, and the reads of one that has no more to
//! do than to read.
//!
//! When a thousand clients connect, send or leave at once, the runtime polls some sixty connections before it
//! looks at the sockets again, and those that have little to do wait for all of them. Here a few have a turn
//! between two looks, and the others wait in the order in which they came.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::own_wakes::yield_to_sockets;
use super::wait_list::{WaitList, WaitingPlace};

/// The turns between two looks at the sockets of a thread.
const TURNS_MAX: usize = 8;

thread_local! {
    /// The turns since the last look, those that are promised included.
    static TAKEN: Cell<usize> = const { Cell::new(0) };
    /// True if they are counted anew after the next look.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    static WAITING: WaitList = const { WaitList::new() };
    static NEXT_LOOK: Waker = Waker::from(Arc::new(NextLook));
}

/// The short turns of one connection. It is called when it has one.
#[derive(Debug, Default)]
pub(super) struct ShortTurns(WaitingPlace);

impl ShortTurns {
    /// Returns true if the connection has a turn now. If not, its task is woken when it has one.
    pub(super) fn ask(&self, cx: &Context<'_>) -> bool {
        if self.0.is_idle() {
            if TAKEN.get() < TURNS_MAX {
                TAKEN.set(TAKEN.get() + 1);
                self.0.call();
            } else {
                WAITING.with(|waiting| waiting.wait(&self.0, cx));
            }
        }
        self.take()
    }

    /// Takes the turn that the connection was called for, whatever it does in it. Returns false if it was not
    /// called.
    pub(super) fn take(&self) -> bool {
        let has_turn = self.0.is_called();
        if has_turn {
            self.0.end();
            count_anew();
        }
        has_turn
    }

    /// Returns true while the connection waits for its turn.
    pub(super) fn is_waiting(&self) -> bool {
        self.0.is_waiting()
    }
}

impl Drop for ShortTurns {
    fn drop(&mut self) {
        // One that waits is given no turn any more, which it could not take.
        if self.0.end() {
            count_anew();
        }
    }
}

/// Has the turns counted anew after the next look at the sockets.
fn count_anew() {
    if !IS_COUNTED.replace(true) {
        NEXT_LOOK.with(|look| yield_to_sockets(&Context::from_waker(look)));
    }
}

/// Woken after a look at the sockets of its thread.
struct NextLook;

impl Wake for NextLook {
    fn wake(self: Arc<NextLook>) {
        IS_COUNTED.set(false);
        let mut taken = 0;
        while taken < TURNS_MAX
            && let Some(next) = WAITING.with(WaitList::call_next)
        {
            next.wake();
            taken += 1;
        }
        TAKEN.set(taken);
    }
}

/// Begins to poll a future in a short turn.
pub(super) async fn begin_in_turn<F: Future>(future: F) -> F::Output {
    let turns = ShortTurns::default();
    poll_fn(|cx| match turns.ask(cx) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
    future.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::connection::count_wakes::CountWakes;

    /// Lets the thread look at its sockets.
    async fn look() {
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn few_have_turns_between_two_looks() {
        let turns: Vec<ShortTurns> = (0..3 * TURNS_MAX).map(|_| ShortTurns::default()).collect();
        let counts: Vec<Arc<CountWakes>> = turns.iter().map(|_| Arc::default()).collect();
        let ask = |place: usize| {
            let waker = Waker::from(counts[place].clone());
            turns[place].ask(&Context::from_waker(&waker))
        };
        let woken = || counts.iter().filter(|count| count.count() > 0).count();
        assert_eq!((0..turns.len()).filter(|place| ask(*place)).count(), TURNS_MAX);
        assert!(!ask(TURNS_MAX), "it waits already");
        look().await;
        assert_eq!(woken(), TURNS_MAX);
        assert!(!ask(0), "the turns are promised");
        look().await;
        assert_eq!(woken(), TURNS_MAX, "none was taken");
        assert!((TURNS_MAX..2 * TURNS_MAX).all(ask));
        look().await;
        assert_eq!(woken(), 2 * TURNS_MAX);
        assert!((2 * TURNS_MAX..3 * TURNS_MAX).all(ask));
        look().await;
        assert!(ask(0) && ask(1));
    }

    #[tokio::test]
    async fn turn_that_is_not_taken_holds_up_no_other() {
        let cx = &Context::from_waker(Waker::noop());
        let turns: Vec<ShortTurns> = (0..2 * TURNS_MAX).map(|_| ShortTurns::default()).collect();
        assert!(!turns.iter().all(|turn| turn.ask(cx)));
        let last = ShortTurns::default();
        assert!(!last.ask(cx));
        look().await;
        turns[TURNS_MAX].take();
        look().await;
        assert!(last.0.is_called());
        drop(last);
        look().await;
        drop(turns);
        look().await;
        assert_eq!((TAKEN.get(), IS_COUNTED.get()), (0, false));
    }

    #[tokio::test]
    async fn turns_are_not_given_to_those_that_have_ended() {
        let cx = &Context::from_waker(Waker::noop());
        let turns: Vec<ShortTurns> = (0..2 * TURNS_MAX).map(|_| ShortTurns::default()).collect();
        assert_eq!(turns.iter().filter(|turn| turn.ask(cx)).count(), TURNS_MAX);
        // Their clients are gone while they wait.
        drop(turns);
        let last = ShortTurns::default();
        assert!(!last.ask(cx));
        look().await;
        assert!(last.ask(cx));
    }
}
