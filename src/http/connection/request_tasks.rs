//! The tasks of the requests of one HTTP/2 connection, which the task of the connection polls itself.
//!
//! A change may wake a thousand streams of one connection. As tasks of the runtime each would be queued and
//! scheduled by itself, and each would wake the connection to write its few bytes. Here the first one wakes
//! the connection, which polls them in turns and writes the frames of a turn together.
//!
//! A turn is short, so that other connections of the thread are not kept waiting, and few of them at a time
//! have turns for a change for many, or for many new requests ([`turn_queue`](super::turn_queue)). A turn has
//! its share of the streams of a change for few ([`WokenTasks`]).
//!
//! New requests begin a few in each turn, after those that are under way, and while few of the thread wait
//! for their answers ([`Begun`]).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use slab::Slab;
use tokio::time::{Sleep, sleep};
use tracing::error;

use super::begun::{Begun, PATIENCE, WaitingMark};
use super::sent_frames::{FramePlace, SentFrames};
use super::woken_tasks::{TaskWaker, WokenTasks};
use crate::metrics::DeliveryTurn;
use crate::{ForMany, HeldClock};

/// The tasks that are polled before the connection writes and others of its thread have their turn.
const TURN: usize = 128;

/// The tasks that were woken for many and are so few that they need not wait.
const MANY_MIN: usize = 16;

/// The requests that begin in one turn.
const BEGINNINGS: usize = 16;

/// The number of tasks that have waited for the library from which on they count as woken for many.
const MANY: usize = 64;

/// A task of a request.
pub(super) trait RequestTask {
    /// Polls the task, whose frames have this place. Ready at its end.
    fn poll(&mut self, place: &FramePlace<'_>, cx: &mut Context<'_>) -> Poll<()>;
}

/// The tasks of one connection.
pub(super) struct RequestTasks {
    tasks: Slab<HeldTask>,
    /// The places of the tasks that were not polled yet.
    beginning: VecDeque<usize>,
    /// True while those wait for room.
    waits: WaitingMark,
    /// The time after which they are looked at again without room.
    patience: Option<Pin<Box<Sleep>>>,
    woken: Arc<WokenTasks>,
    frames: Rc<SentFrames>,
}

struct HeldTask {
    task: Box<dyn RequestTask>,
    waker: Waker,
}

impl RequestTasks {
    /// Makes an empty set.
    pub(super) fn new() -> RequestTasks {
        RequestTasks {
            tasks: Slab::new(),
            beginning: VecDeque::new(),
            waits: WaitingMark::default(),
            patience: None,
            woken: Arc::default(),
            frames: Rc::default(),
        }
    }

    /// Adds a task, which begins in a turn.
    pub(super) fn begin(&mut self, task: Box<dyn RequestTask>) {
        let entry = self.tasks.vacant_entry();
        let key = entry.key();
        let waker = TaskWaker::of(key, &self.woken);
        self.beginning.push_back(key);
        self.frames.begin(key);
        entry.insert(HeldTask { task, waker });
    }

    /// Wakes the tasks whose frames the library did not write, and those that have waited for what it wrote.
    /// Called after the library was polled.
    pub(super) fn note_written(&self, socket_is_blocked: bool) {
        let due = self.frames.take_due(socket_is_blocked);
        // Most wait with a change for many, and a change for few is not to wait behind them again.
        let _many = (due.len() > MANY).then(ForMany::begin);
        for key in due {
            if let Some(entry) = self.tasks.get(key) {
                entry.waker.wake_by_ref();
            }
        }
    }

    /// Returns true if tasks that were woken for many, or that begin, call for a turn of the thread.
    pub(super) fn want_turn(&self) -> bool {
        self.woken.many() > MANY_MIN || self.has_backlog()
    }

    /// Returns true if more requests can begin than one turn has.
    pub(super) fn has_backlog(&self) -> bool {
        self.beginning.len() > BEGINNINGS && Begun::has_room()
    }

    /// Polls tasks that were woken, as many as a turn has, and begins some; without a turn of the thread only
    /// those that were woken for few. Returns true if there was one, so that the connection may have more to
    /// write.
    pub(super) fn poll_turn(&mut self, has_turn: bool) -> bool {
        let mut keys = [0; TURN];
        let taken = self.woken.take(has_turn, &mut keys);
        if taken > 0 {
            let _time = HeldClock::begin();
            let _delivery = DeliveryTurn::begin();
            for key in &keys[..taken] {
                self.poll_task(*key);
            }
        }
        let begun = has_turn && self.begin_some();
        begun || taken > 0
    }

    /// Begins requests, as many as a turn has. Returns true if there was one.
    fn begin_some(&mut self) -> bool {
        let waiting = self.beginning.len();
        if waiting == 0 {
            return false;
        }
        Begun::widen_if_stuck();
        for _ in 0..BEGINNINGS.min(waiting) {
            if !Begun::has_room() {
                break;
            }
            if let Some(key) = self.beginning.pop_front() {
                self.poll_task(key);
            }
        }
        self.beginning.len() < waiting
    }

    /// Has the task of the connection woken when there is more to do; while it waits for a turn, when there
    /// is more for few. Returns true if there is already.
    pub(super) fn wait(&mut self, cx: &mut Context<'_>, waits_for_turn: bool) -> bool {
        let mut has_more = self.woken.wait(cx, !waits_for_turn);
        if self.beginning.is_empty() {
            self.patience = None;
        } else if Begun::has_room() {
            has_more |= !waits_for_turn;
        } else {
            Begun::wait(cx.waker(), &self.waits);
            self.wait_for_patience(cx);
        }
        has_more
    }

    fn wait_for_patience(&mut self, cx: &mut Context<'_>) {
        let patience = self.patience.get_or_insert_with(|| Box::pin(sleep(PATIENCE)));
        if patience.as_mut().poll(cx).is_ready() {
            self.patience = None;
            cx.waker().wake_by_ref();
        }
    }

    fn poll_task(&mut self, key: usize) {
        // A waker that outlives its task may name the place of another one, for which it does no harm.
        let Some(entry) = self.tasks.get_mut(key) else {
            return;
        };
        let mut cx = Context::from_waker(&entry.waker);
        let place = self.frames.place(key);
        // As in a task of the runtime, a panic ends its own request alone.
        let polled = catch_unwind(AssertUnwindSafe(|| entry.task.poll(&place, &mut cx)));
        let ended = polled.unwrap_or_else(|_panic| {
            error!("a request over HTTP/2 was reset, since its handler panicked");
            Poll::Ready(())
        });
        if ended.is_ready() {
            // Whatever it drops may wake other tasks, but takes no part in this set.
            drop(self.tasks.remove(key));
            if self.tasks.is_empty() {
                // A connection that had many streams once does not keep their places.
                self.tasks = Slab::new();
                self.woken.forget_places();
                self.frames.forget_places();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ForMany;
    use crate::http::connection::count_wakes::CountWakes;
    use std::cell::RefCell;
    use std::future::{pending, poll_fn};

    /// A task without frames.
    struct Tested(Pin<Box<dyn Future<Output = ()>>>);

    impl RequestTask for Tested {
        fn poll(&mut self, _: &FramePlace<'_>, cx: &mut Context<'_>) -> Poll<()> {
            self.0.as_mut().poll(cx)
        }
    }

    /// A set, and the wakers and polls of its tasks.
    struct Scene {
        tasks: RequestTasks,
        polled: Rc<RefCell<Vec<usize>>>,
        wakers: Rc<RefCell<Vec<Option<Waker>>>>,
    }

    impl Scene {
        /// Begins tasks that never end, and polls each once.
        fn of(count: usize) -> Scene {
            let mut scene = Scene {
                tasks: RequestTasks::new(),
                polled: Rc::default(),
                wakers: Rc::new(RefCell::new(vec![None; count])),
            };
            for number in 0..count {
                let polled = scene.polled.clone();
                let wakers = scene.wakers.clone();
                scene.begin(poll_fn(move |cx| {
                    polled.borrow_mut().push(number);
                    wakers.borrow_mut()[number] = Some(cx.waker().clone());
                    Poll::Pending
                }));
            }
            while scene.poll_turn() {}
            assert_eq!(scene.polled.take().len(), count);
            scene
        }

        fn begin(&mut self, task: impl Future<Output = ()> + 'static) {
            self.tasks.begin(Box::new(Tested(Box::pin(task))));
        }

        fn poll_turn(&mut self) -> bool {
            self.tasks.poll_turn(true)
        }

        /// Wakes the first `count` tasks for a change for many.
        fn wake_many(&self, count: usize) {
            let _many = ForMany::begin();
            (0..count).for_each(|number| self.wake(number));
        }

        fn wake(&self, number: usize) {
            self.wakers.borrow()[number].as_ref().unwrap().wake_by_ref();
        }
    }

    #[test]
    fn first_of_many_wakes_alone_wakes_the_connection() {
        let mut scene = Scene::of(1_000);
        let wakes = Arc::new(CountWakes::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(!scene.tasks.wait(&mut cx, false));
        for number in (0..1_000).chain(0..1_000) {
            scene.wake(number);
        }
        assert_eq!(wakes.count(), 1);
        let mut turns = 0;
        while scene.poll_turn() {
            turns += 1;
        }
        assert_eq!(turns, 1_000_usize.div_ceil(TURN));
        let mut polled = scene.polled.take();
        polled.sort_unstable();
        assert!(polled.into_iter().eq(0..1_000));
    }

    #[test]
    fn task_woken_for_few_is_polled_in_the_next_turn() {
        let mut scene = Scene::of(1_000);
        scene.wake_many(1_000);
        // Again, for a change for few.
        (0..3).for_each(|_| scene.wake(500));
        scene.poll_turn();
        let polled = scene.polled.take();
        assert!(polled[..2].contains(&500), "{polled:?}");
        // The others go on in their order.
        assert!(polled.contains(&(TURN - 2)), "{polled:?}");
        while scene.poll_turn() {}
        assert_eq!(
            scene.polled.take().len() + polled.len(),
            1_000,
            "each is polled once"
        );
        scene.wake(500);
        assert!(scene.poll_turn());
        assert_eq!(scene.polled.take(), [500]);
    }

    #[test]
    fn tasks_left_over_are_told() {
        let mut scene = Scene::of(TURN + 1);
        (0..=TURN).for_each(|number| scene.wake(number));
        scene.poll_turn();
        assert!(scene.tasks.wait(&mut Context::from_waker(Waker::noop()), false));
    }

    #[test]
    fn without_a_turn_those_woken_for_few_are_polled() {
        let mut scene = Scene::of(TURN + MANY_MIN);
        scene.wake_many(MANY_MIN);
        assert!(!scene.tasks.want_turn());
        scene.wake_many(TURN);
        assert!(scene.tasks.want_turn());
        let wakes = Arc::new(CountWakes::default());
        let waker = Waker::from(wakes.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(!scene.tasks.wait(&mut cx, true));
        scene.wake_many(TURN + 1);
        assert_eq!(wakes.count(), 0);
        scene.wake(1);
        assert_eq!(wakes.count(), 1);
        assert!(scene.tasks.poll_turn(false) && !scene.tasks.poll_turn(false));
        assert_eq!(scene.polled.take(), [1]);
        assert!(scene.tasks.wait(&mut cx, false));
        while scene.poll_turn() {}
        assert_eq!(scene.polled.take().len(), TURN);
    }

    #[test]
    fn requests_begin_a_few_in_each_turn() {
        let mut scene = Scene::of(1);
        for number in 1..=BEGINNINGS + 1 {
            let polled = scene.polled.clone();
            scene.begin(poll_fn(move |_| {
                polled.borrow_mut().push(number);
                Poll::Pending
            }));
        }
        scene.wake(0);
        // Those that are under way have their part first.
        scene.poll_turn();
        assert_eq!(scene.polled.take(), (0..=BEGINNINGS).collect::<Vec<_>>());
        assert!(scene.tasks.wait(&mut Context::from_waker(Waker::noop()), false));
        scene.poll_turn();
        assert_eq!(scene.polled.take(), [BEGINNINGS + 1]);
    }

    #[test]
    fn waker_that_outlives_its_task_does_no_harm() {
        let mut scene = Scene::of(0);
        let kept = Rc::new(RefCell::new(None));
        let in_task = kept.clone();
        scene.begin(poll_fn(move |cx| {
            in_task.replace(Some(cx.waker().clone()));
            Poll::Ready(())
        }));
        assert!(scene.poll_turn());
        let waker = kept.take().unwrap();
        waker.wake_by_ref();
        assert!(!scene.poll_turn());
        // Another task has its place now, and is polled once more than it needs.
        let polled = scene.polled.clone();
        scene.begin(poll_fn(move |_| {
            polled.borrow_mut().push(0);
            Poll::Pending
        }));
        assert!(scene.poll_turn() && !scene.poll_turn());
        waker.wake_by_ref();
        assert!(scene.poll_turn() && !scene.poll_turn());
        assert_eq!(scene.polled.take(), [0, 0]);
    }

    #[test]
    fn panic_ends_its_own_task_alone() {
        let mut scene = Scene::of(2);
        let held = Rc::new(());
        let in_task = held.clone();
        scene.begin(async move {
            let _held = in_task;
            panic!("a handler that panics");
        });
        scene.begin(pending());
        assert!(scene.poll_turn());
        assert_eq!((Rc::strong_count(&held), scene.tasks.tasks.len()), (1, 3));
        scene.wake(1);
        assert!(scene.poll_turn());
        assert_eq!(scene.polled.take(), [1]);
    }
}
