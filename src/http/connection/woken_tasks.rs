//! The tasks of one HTTP/2 connection that were woken.
//!
//! A change for very many wakes all streams of a connection, and a change for few, made meanwhile, must not
//! stand behind it. So there are two lists, of those that were woken for many and of the others, each in the
//! order of the wakes, and every second task that is taken is of the one or the other.
//!
//! The lists have the places of the tasks, and their states stand beside each other, since what a task has of
//! its own is seldom in the cache of the processor when a change wakes thousands.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use crate::ForMany;

/// The entries for which a list keeps room after a change for many.
const ROOM_KEPT: usize = 64;

/// The tasks that were woken.
#[derive(Default)]
pub(super) struct WokenTasks(Mutex<Woken>);

#[derive(Default)]
struct Woken {
    few: VecDeque<usize>,
    many: VecDeque<usize>,
    /// The state of the task at each place.
    states: Vec<WakeState>,
    /// True if the next one is taken of the many.
    takes_many: bool,
    /// The task of the connection, while it waits.
    connection: Option<Waker>,
    /// True if it waits for the few alone.
    waits_for_few: bool,
}

impl Woken {
    fn pop(&mut self, with_many: bool) -> Option<usize> {
        if !with_many {
            return self.few.pop_front();
        }
        self.takes_many = !self.takes_many;
        match self.takes_many {
            true => self.many.pop_front().or_else(|| self.few.pop_front()),
            false => self.few.pop_front().or_else(|| self.many.pop_front()),
        }
    }
}

/// Wakes one task.
pub(super) struct TaskWaker {
    /// Its place in the set.
    key: usize,
    list: Arc<WokenTasks>,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum WakeState {
    /// It was polled after it was last woken.
    #[default]
    Asleep,
    /// It is among the tasks that were woken for many.
    InMany,
    /// It is among the others, and may have an entry among the many that counts for nothing.
    InFew,
}

impl WokenTasks {
    fn lock(&self) -> MutexGuard<'_, Woken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of tasks that were woken for many.
    pub(super) fn many(&self) -> usize {
        self.lock().many.len()
    }

    /// Takes tasks from the lists, as many as `keys` has room for. Returns their number.
    pub(super) fn take(&self, with_many: bool, keys: &mut [usize]) -> usize {
        let mut woken = self.lock();
        let mut taken = 0;
        while taken < keys.len()
            && let Some(key) = woken.pop(with_many)
        {
            // Before it is polled, so that it can be woken meanwhile. Where it was polled by its other entry,
            // this one is left behind.
            let state = woken.states.get_mut(key).map(std::mem::take);
            if state.unwrap_or_default() != WakeState::Asleep {
                keys[taken] = key;
                taken += 1;
            }
        }
        let lists = &mut *woken;
        // The room of a change for many is not kept until the next one.
        for list in [&mut lists.few, &mut lists.many] {
            if list.is_empty() {
                list.shrink_to(ROOM_KEPT);
            }
        }
        taken
    }

    /// Forgets the places of tasks that have all ended.
    pub(super) fn forget_places(&self) {
        self.lock().states = Vec::new();
    }

    /// Has the task of the connection woken with the next task, or with the next one for few alone. Returns
    /// true, and wakes nothing, if there are some already.
    pub(super) fn wait(&self, cx: &Context<'_>, with_many: bool) -> bool {
        let mut woken = self.lock();
        if !woken.few.is_empty() || (with_many && !woken.many.is_empty()) {
            return true;
        }
        woken.connection = Some(cx.waker().clone());
        woken.waits_for_few = !with_many;
        false
    }
}

impl TaskWaker {
    /// Makes the waker of the task at a place.
    pub(super) fn of(key: usize, list: &Arc<WokenTasks>) -> Waker {
        let states = &mut list.lock().states;
        if states.len() <= key {
            states.resize(key + 1, WakeState::Asleep);
        }
        states[key] = WakeState::Asleep;
        Waker::from(Arc::new(TaskWaker {
            key,
            list: list.clone(),
        }))
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<TaskWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<TaskWaker>) {
        let is_many = ForMany::is_under_way();
        let state = match is_many {
            true => WakeState::InMany,
            false => WakeState::InFew,
        };
        let connection = {
            let mut woken = self.list.lock();
            // In each list once at most, however often it is woken before its turn. A waker that outlives its
            // task may name a place that is gone.
            match woken.states.get_mut(self.key) {
                Some(before) if *before < state => *before = state,
                _ => return,
            }
            match is_many {
                true => woken.many.push_back(self.key),
                false => woken.few.push_back(self.key),
            }
            match is_many && woken.waits_for_few {
                true => None,
                false => woken.connection.take(),
            }
        };
        // Without the lock, which the connection may take at once.
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}
