//! The rows in which the connections of a thread wait for their turns.
//!
//! A change for very many wakes all connections of a thread at once, and a flood may come over a thousand of
//! them. If each had its turn after the other, a request or a change for few, made meanwhile, would wait for
//! a turn of every one. Here one of each row works at a time, and the others wait in the order in which they
//! came.
//!
//! The row of connections that are not served rests for three times as long as they had turns, so that a
//! flood leaves most of the thread's time to others.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::own_wakes::yield_to_sockets;
use super::wait_list::{WaitList, WaitingPlace};
use crate::metrics::{self, Limit};

/// The rest of a row in times of the turn before it.
const REST_FACTOR: u32 = 3;

/// The shortest rest; shorter ones are joined. A timer knows no less.
const REST_MIN: Duration = Duration::from_millis(1);

/// The rows of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RowKind {
    /// Of connections whose requests the service has been handed.
    #[default]
    Served,
    /// Of those that are new, or send requests with which the service can do nothing. They do not keep the
    /// others waiting.
    Unserved,
}

impl RowKind {
    /// The turns after which a connection lets others have its place. In a row they cost less than apart,
    /// since what a connection needs is in the caches.
    fn turns_max(self) -> u32 {
        match self {
            RowKind::Served => 16,
            RowKind::Unserved => 1,
        }
    }
}

/// The connections of a row.
struct Row {
    /// True while one works.
    works: Cell<bool>,
    waiting: WaitList,
    /// The end of its rest.
    rests_until: Cell<Option<Instant>>,
}

impl Row {
    const fn new() -> Row {
        Row {
            works: Cell::new(false),
            waiting: WaitList::new(),
            rests_until: Cell::new(None),
        }
    }

    /// Notes a turn of a connection that is not served.
    fn spent(&self, time: Duration) {
        let now = Instant::now();
        let from = match self.rests_until.get() {
            Some(until) => until.max(now),
            None => now,
        };
        self.rests_until.set(Some(from + REST_FACTOR * time));
    }

    /// Returns the end of its rest, if that is so far away that it rests.
    fn rest(&self) -> Option<Instant> {
        self.rests_until
            .get()
            .filter(|until| *until >= Instant::now() + REST_MIN)
    }
}

thread_local! {
    static ROWS: [Row; 2] = const { [Row::new(), Row::new()] };
}

/// One connection's place in a row; given back when dropped.
#[derive(Debug, Default)]
pub(super) struct RowPlace {
    /// Called while the connection is the one that works.
    place: WaitingPlace,
    kind: Cell<RowKind>,
    /// The turns that it has had since it last waited.
    taken: Cell<u32>,
    /// The beginning of its turn in the row that rests, until that is over.
    began: Cell<Option<Instant>>,
    /// The rest of its row, at the end of which it has its turn.
    rest: RefCell<Option<Pin<Box<Sleep>>>>,
}

impl RowPlace {
    /// Returns true if the connection has a turn now, in the row of `kind` unless it stands in one. If not,
    /// its task is woken when it has one.
    pub(super) fn ask(&self, kind: RowKind, cx: &mut Context<'_>) -> bool {
        if self.taken.get() >= self.kind.get().turns_max() && self.in_row(|row| !row.waiting.is_empty()) {
            self.end();
        }
        if self.place.is_idle() {
            self.taken.set(0);
            self.kind.set(kind);
            self.in_row(|row| match row.works.replace(true) {
                true => row.waiting.wait(&self.place, cx),
                false => self.place.call(),
            });
        }
        let has_turn = self.place.is_called() && !self.poll_rest(cx);
        if has_turn {
            self.taken.set(self.taken.get() + 1);
            if self.kind.get() == RowKind::Unserved {
                self.began.set(Some(Instant::now()));
            }
        }
        has_turn
    }

    /// Returns true while its row rests; the task is woken at the end.
    fn poll_rest(&self, cx: &mut Context<'_>) -> bool {
        let mut rest = self.rest.borrow_mut();
        if rest.is_none()
            && let Some(until) = self.in_row(Row::rest)
        {
            *rest = Some(Box::pin(sleep_until(until)));
            metrics::limit_reached(Limit::Http2Unserved);
        }
        let rests = match rest.as_mut() {
            Some(rest) => rest.as_mut().poll(cx).is_pending(),
            None => false,
        };
        if !rests {
            *rest = None;
        }
        rests
    }

    /// Notes that a turn is over, and the row in which the connection belongs after it.
    pub(super) fn turn_over(&self, kind: RowKind) {
        if let Some(began) = self.began.take()
            && kind == RowKind::Unserved
        {
            self.in_row(|row| row.spent(began.elapsed()));
        }
    }

    /// Returns true while the connection waits for its turn.
    pub(super) fn is_waiting(&self) -> bool {
        self.place.is_waiting() || self.rest.borrow().is_some()
    }

    /// Gives the place back, to the connection that waits longest if there is one. That has its turn after
    /// the sockets of the thread were looked at, so that a long row leaves time for all else.
    pub(super) fn end(&self) {
        if !self.place.end() {
            return;
        }
        self.rest.take();
        self.in_row(|row| match row.waiting.call_next() {
            Some(next) => yield_to_sockets(&Context::from_waker(&next)),
            None => row.works.set(false),
        });
    }

    fn in_row<R>(&self, look: impl FnOnce(&Row) -> R) -> R {
        ROWS.with(|rows| look(&rows[self.kind.get() as usize]))
    }
}

impl Drop for RowPlace {
    fn drop(&mut self) {
        // The row does not rest after one that has ended, so that those whose clients are gone end soon.
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
    fn one_works_and_the_others_follow_in_their_order() {
        let mut turns: VecDeque<RowPlace> = (0..5).map(|_| RowPlace::default()).collect();
        let counts: Vec<Arc<CountWakes>> = turns.iter().map(|_| Arc::default()).collect();
        for (turn, count) in turns.iter().zip(&counts) {
            let waker = Waker::from(count.clone());
            let may = || turn.ask(RowKind::Served, &mut Context::from_waker(&waker));
            assert_eq!(may(), may());
        }
        let woken = || counts.iter().map(|count| count.count()).collect::<Vec<_>>();
        let working = |turns: &VecDeque<RowPlace>| turns.iter().filter(|turn| turn.place.is_called()).count();
        assert_eq!((working(&turns), woken()), (1, vec![0; 5]));
        // One that works has nothing more to do, and two that wait do not wait any longer.
        turns[1].end();
        drop(turns.remove(2));
        turns[0].end();
        assert_eq!(working(&turns), 1);
        assert_eq!(woken(), [0, 0, 0, 1, 0]);
        // The connection that was chosen ends before it knows, and the next one has its place.
        drop(turns.remove(2));
        assert_eq!(woken(), [0, 0, 0, 1, 1]);
        turns.clear();
        let is_empty = |row: &Row| !row.works.get() && row.waiting.is_empty();
        assert!(ROWS.with(|rows| rows.iter().all(is_empty)));
    }

    #[test]
    fn place_is_handed_on_after_some_turns() {
        let mut cx = Context::from_waker(Waker::noop());
        for kind in [RowKind::Served, RowKind::Unserved] {
            let [first, second, other]: [RowPlace; 3] = Default::default();
            for _ in 0..2 * kind.turns_max() {
                assert!(first.ask(kind, &mut cx), "no other waits");
            }
            assert!(!second.ask(kind, &mut cx) && second.is_waiting());
            assert!(!first.ask(kind, &mut cx) && second.ask(kind, &mut cx));
            for _ in 1..kind.turns_max() {
                assert!(second.ask(kind, &mut cx));
            }
            assert!(!second.ask(kind, &mut cx) && first.ask(kind, &mut cx));
            drop((first, second));
            assert!(other.ask(kind, &mut cx));
        }
    }

    #[test]
    fn those_that_are_not_served_keep_no_others_waiting() {
        let mut cx = Context::from_waker(Waker::noop());
        let [new, next, served]: [RowPlace; 3] = Default::default();
        assert!(new.ask(RowKind::Unserved, &mut cx) && !next.ask(RowKind::Unserved, &mut cx));
        assert!(served.ask(RowKind::Served, &mut cx));
        // Its first request was handed to the service.
        new.end();
        assert!(!new.ask(RowKind::Served, &mut cx) && next.ask(RowKind::Unserved, &mut cx));
    }

    #[tokio::test(start_paused = true)]
    async fn row_of_those_not_served_rests_after_their_turns() {
        let mut cx = Context::from_waker(Waker::noop());
        let kind = RowKind::Unserved;
        let [first, second, third]: [RowPlace; 3] = Default::default();
        assert!(first.ask(kind, &mut cx) && !second.ask(kind, &mut cx));
        tokio::time::advance(REST_MIN).await;
        // One whose first request was handed to the service costs no rest.
        first.turn_over(RowKind::Served);
        first.end();
        assert!(second.ask(kind, &mut cx) && !third.ask(kind, &mut cx));
        tokio::time::advance(REST_MIN).await;
        second.turn_over(kind);
        second.end();
        assert!(!third.ask(kind, &mut cx) && third.is_waiting());
        tokio::time::advance(REST_FACTOR * REST_MIN).await;
        assert!(third.ask(kind, &mut cx));
        tokio::time::advance(REST_MIN).await;
        // It has ended in its turn.
        drop(third);
        assert!(first.ask(kind, &mut cx));
        tokio::time::advance(REST_MIN).await;
        first.turn_over(kind);
        first.end();
        assert!(!first.ask(kind, &mut cx) && first.is_waiting());
        assert!(
            second.ask(RowKind::Served, &mut cx),
            "the other row does not rest"
        );
    }
}
