//! The short turns of a thread's connections: the first read of one, and the reads of one that has no more to
//! do than to read.
//!
//! When a thousand clients connect, send or leave at once, the runtime polls some sixty connections before
//! it looks at the sockets again, and those that have little to do wait for all of them. Here those that fit
//! into a short time have a turn between two looks, and the others wait in the order in which they came.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::own_wakes::yield_to_sockets;
use super::wait_list::{WaitList, WaitingPlace};

/// The time after the first turn since a look at the sockets in which others begin. Most turns take a few
/// microseconds; the end of a connection with many requests takes some hundred.
const TURNS_TIME: Duration = Duration::from_micros(100);

thread_local! {
    /// The time of the first turn since the last look.
    static FIRST_TURN: Cell<Option<Instant>> = const { Cell::new(None) };
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
            match has_time() && WAITING.with(WaitList::is_empty) {
                true => self.0.call(),
                false => WAITING.with(|waiting| waiting.wait(&self.0, cx)),
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
            note_turn();
            if has_time() {
                call_next();
            }
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
            note_turn();
        }
    }
}

/// Returns true while others may begin before the next look at the sockets.
fn has_time() -> bool {
    match FIRST_TURN.get() {
        Some(first) => first.elapsed() < TURNS_TIME,
        None => true,
    }
}

/// Notes a turn, after which a look at the sockets follows.
fn note_turn() {
    if FIRST_TURN.get().is_none() {
        FIRST_TURN.set(Some(Instant::now()));
        NEXT_LOOK.with(|look| yield_to_sockets(&Context::from_waker(look)));
    }
}

/// Calls the connection that waits longest. It calls the next one when it takes its turn, or that is called
/// after the next look.
fn call_next() {
    if let Some(next) = WAITING.with(WaitList::call_next) {
        next.wake();
    }
}

/// Woken after a look at the sockets of its thread.
struct NextLook;

impl Wake for NextLook {
    fn wake(self: Arc<NextLook>) {
        FIRST_TURN.set(None);
        call_next();
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
    use std::pin::pin;

    /// Lets the thread look at its sockets.
    async fn look() {
        tokio::task::yield_now().await;
    }

    /// Lets the time of the turns pass without a look.
    fn spend_time() {
        let passed = pin!(tokio::time::advance(TURNS_TIME)).poll(&mut Context::from_waker(Waker::noop()));
        assert!(passed.is_pending());
    }

    /// Connections, and the number of wakes of each.
    struct Scene {
        turns: Vec<ShortTurns>,
        wakes: Vec<Arc<CountWakes>>,
    }

    impl Scene {
        fn of(count: usize) -> Scene {
            Scene {
                turns: (0..count).map(|_| ShortTurns::default()).collect(),
                wakes: (0..count).map(|_| Arc::default()).collect(),
            }
        }

        fn ask(&self, place: usize) -> bool {
            let waker = Waker::from(self.wakes[place].clone());
            self.turns[place].ask(&Context::from_waker(&waker))
        }

        fn woken(&self) -> Vec<usize> {
            self.wakes.iter().map(|wakes| wakes.count()).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn turns_that_fit_into_the_time_follow_each_other() {
        let scene = Scene::of(5);
        assert!(scene.ask(0) && scene.ask(1));
        spend_time();
        assert!((2..5).all(|place| !scene.ask(place)));
        assert!(!scene.ask(2), "it waits already");
        look().await;
        assert_eq!(scene.woken(), [0, 0, 1, 0, 0]);
        assert!(!scene.ask(0), "others wait longer");
        // A short one, after which there is time for the next.
        assert!(scene.ask(2));
        assert_eq!(scene.woken(), [0, 0, 1, 1, 0]);
        spend_time();
        assert!(scene.ask(3));
        assert_eq!(scene.woken(), [0, 0, 1, 1, 0], "the time is over");
        look().await;
        assert!(scene.ask(4) && scene.ask(0));
        look().await;
        assert!(WAITING.with(WaitList::is_empty) && FIRST_TURN.get().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn turn_that_is_not_taken_holds_up_no_other() {
        let mut scene = Scene::of(4);
        assert!(scene.ask(0));
        spend_time();
        assert!((1..4).all(|place| !scene.ask(place)));
        look().await;
        // It has something else to do.
        assert!(scene.turns[1].take());
        assert_eq!(scene.woken(), [0, 1, 1, 0]);
        // The next one has ended before it knows of its turn.
        scene.turns.remove(2);
        look().await;
        assert_eq!(scene.woken(), [0, 1, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_are_not_given_to_those_that_have_ended() {
        let mut scene = Scene::of(9);
        assert!(scene.ask(0));
        spend_time();
        assert!((1..9).all(|place| !scene.ask(place)));
        // Their clients are gone while they wait.
        scene.turns.drain(1..8);
        look().await;
        assert_eq!(scene.woken(), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
