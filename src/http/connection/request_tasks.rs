//! The tasks of the requests of one HTTP/2 connection, which the task of the connection polls itself.
//!
//! A change may wake a thousand streams of one connection. As tasks of the runtime each would be queued and
//! scheduled by itself, and each would wake the connection to write its few bytes. Here the first one wakes
//! the connection, which polls them in turns and writes the frames of a turn together.
//!
//! A turn is short, so that other connections of the thread are not kept waiting, and takes from both ends of
//! the list: those that have waited longest, so that none is left behind, and those that were woken last, so
//! that a change for few is told while one for very many is still on its way.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use slab::Slab;
use tracing::error;

/// The tasks that are polled before the connection writes and others of its thread have their turn.
const TURN: usize = 64;

/// A task of a request.
pub(super) type RequestTask = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks that began since the last turn.
#[derive(Clone, Default)]
pub(super) struct NewTasks(Rc<RefCell<Vec<RequestTask>>>);

impl NewTasks {
    /// Begins a task with the next turn.
    pub(super) fn push(&self, task: RequestTask) {
        self.0.borrow_mut().push(task);
    }
}

/// The tasks of one connection.
pub(super) struct RequestTasks {
    new: NewTasks,
    tasks: Slab<HeldTask>,
    woken: Arc<WokenTasks>,
    /// True if the next task is the one that was woken last.
    takes_last: bool,
}

struct HeldTask {
    task: RequestTask,
    waker: Waker,
}

impl RequestTasks {
    /// Makes an empty set, to which the tasks of `new` are added.
    pub(super) fn new(new: NewTasks) -> RequestTasks {
        RequestTasks {
            new,
            tasks: Slab::new(),
            woken: Arc::default(),
            takes_last: false,
        }
    }

    /// Polls tasks that began or were woken, as many as a turn has. Returns true if there was one, so that
    /// the connection may have more to write.
    pub(super) fn poll_turn(&mut self) -> bool {
        self.begin_new();
        let mut polled = false;
        for _ in 0..TURN {
            self.takes_last = !self.takes_last;
            let Some(woken) = self.woken.take(self.takes_last) else {
                break;
            };
            polled = true;
            self.poll_task(woken.key);
        }
        polled
    }

    /// Has the task of the connection woken for the next turn: at once if tasks wait for it.
    pub(super) fn wait(&mut self, cx: &Context<'_>) {
        self.begin_new();
        self.woken.wait(cx);
    }

    fn begin_new(&mut self) {
        for task in self.new.0.take() {
            let entry = self.tasks.vacant_entry();
            let woken = Arc::new(TaskWaker {
                key: entry.key(),
                is_woken: AtomicBool::new(false),
                list: self.woken.clone(),
            });
            let waker = Waker::from(woken);
            // A task is polled for the first time like one that was woken.
            waker.wake_by_ref();
            entry.insert(HeldTask { task, waker });
        }
    }

    fn poll_task(&mut self, key: usize) {
        // A waker that outlives its task may name the place of another one, for which it does no harm.
        let Some(entry) = self.tasks.get_mut(key) else {
            return;
        };
        let mut cx = Context::from_waker(&entry.waker);
        // As in a task of the runtime, a panic ends its own request alone.
        let polled = catch_unwind(AssertUnwindSafe(|| entry.task.as_mut().poll(&mut cx)));
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
            }
        }
    }
}

/// The tasks that were woken, in that order.
#[derive(Default)]
struct WokenTasks(Mutex<Woken>);

#[derive(Default)]
struct Woken {
    tasks: VecDeque<Arc<TaskWaker>>,
    /// The task of the connection, while it waits.
    connection: Option<Waker>,
}

/// Wakes one task.
struct TaskWaker {
    /// Its place in the set.
    key: usize,
    /// True while it is in the list.
    is_woken: AtomicBool,
    list: Arc<WokenTasks>,
}

impl WokenTasks {
    fn lock(&self) -> MutexGuard<'_, Woken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a task from the list.
    fn take(&self, last: bool) -> Option<Arc<TaskWaker>> {
        let mut woken = self.lock();
        let task = match last {
            true => woken.tasks.pop_back(),
            false => woken.tasks.pop_front(),
        };
        match &task {
            // Before it is polled, so that it can be woken meanwhile.
            Some(task) => task.is_woken.store(false, Ordering::Release),
            // The room of a change for many is not kept until the next one.
            None => woken.tasks.shrink_to(TURN),
        }
        task
    }

    fn wait(&self, cx: &Context<'_>) {
        let mut woken = self.lock();
        match woken.tasks.is_empty() {
            true => woken.connection = Some(cx.waker().clone()),
            false => cx.waker().wake_by_ref(),
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<TaskWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<TaskWaker>) {
        // In the list once, however often it is woken before its turn.
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let connection = {
            let mut woken = self.list.lock();
            woken.tasks.push_back(self.clone());
            woken.connection.take()
        };
        // Without the lock, which the connection may take at once.
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, poll_fn};
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct CountWakes(AtomicUsize);

    impl Wake for CountWakes {
        fn wake(self: Arc<CountWakes>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A set, and the wakers and polls of its tasks.
    struct Scene {
        new: NewTasks,
        tasks: RequestTasks,
        polled: Rc<RefCell<Vec<usize>>>,
        wakers: Rc<RefCell<Vec<Option<Waker>>>>,
    }

    impl Scene {
        /// Begins tasks that never end, and polls each once.
        fn of(count: usize) -> Scene {
            let new = NewTasks::default();
            let mut scene = Scene {
                tasks: RequestTasks::new(new.clone()),
                new,
                polled: Rc::default(),
                wakers: Rc::new(RefCell::new(vec![None; count])),
            };
            for number in 0..count {
                let polled = scene.polled.clone();
                let wakers = scene.wakers.clone();
                scene.new.push(Box::pin(poll_fn(move |cx| {
                    polled.borrow_mut().push(number);
                    wakers.borrow_mut()[number] = Some(cx.waker().clone());
                    Poll::Pending
                })));
            }
            while scene.tasks.poll_turn() {}
            assert_eq!(scene.polled.take().len(), count);
            scene
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
        let cx = Context::from_waker(&waker);
        scene.tasks.wait(&cx);
        for number in (0..1_000).chain(0..1_000) {
            scene.wake(number);
        }
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        let mut turns = 0;
        while scene.tasks.poll_turn() {
            turns += 1;
        }
        assert_eq!(turns, 1_000_usize.div_ceil(TURN));
        let mut polled = scene.polled.take();
        polled.sort_unstable();
        assert!(polled.into_iter().eq(0..1_000));
    }

    #[test]
    fn task_woken_last_is_polled_in_the_next_turn() {
        let mut scene = Scene::of(1_000);
        (0..999).for_each(|number| scene.wake(number));
        scene.tasks.poll_turn();
        scene.wake(999);
        scene.polled.take();
        scene.tasks.poll_turn();
        let polled = scene.polled.take();
        assert!(polled[..2].contains(&999), "{polled:?}");
        // Those that wait longest have every second place.
        assert!(polled.contains(&(TURN / 2)), "{polled:?}");
    }

    #[test]
    fn tasks_left_over_wake_the_connection_at_once() {
        let mut scene = Scene::of(TURN + 1);
        (0..=TURN).for_each(|number| scene.wake(number));
        scene.tasks.poll_turn();
        let wakes = Arc::new(CountWakes::default());
        scene
            .tasks
            .wait(&Context::from_waker(&Waker::from(wakes.clone())));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn panic_ends_its_own_task_alone() {
        let mut scene = Scene::of(2);
        let held = Rc::new(());
        let in_task = held.clone();
        scene.new.push(Box::pin(async move {
            let _held = in_task;
            panic!("a handler that panics");
        }));
        scene.new.push(Box::pin(pending()));
        assert!(scene.tasks.poll_turn());
        assert_eq!((Rc::strong_count(&held), scene.tasks.tasks.len()), (1, 3));
        scene.wake(1);
        assert!(scene.tasks.poll_turn());
        assert_eq!(scene.polled.take(), [1]);
    }
}
