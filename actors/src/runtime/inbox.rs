//! The inbox of an actor that takes everything that waits for it at once.
//!
//! A mailbox allocates twice and may wake a thread for every message. An inbox is one vector behind a lock,
//! and its actor is woken once for all that gathers until it runs, which is most of the cost of a change
//! that no one wants.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use actix::{Message, Recipient};

use super::mailbox;
use crate::metrics::Metrics;

/// Wakes an actor because its inbox is no longer empty.
pub(crate) struct InboxReady;

impl Message for InboxReady {
    type Result = ();
}

/// The end at which requests go in.
pub(crate) struct InboxSender<T> {
    shared: Arc<Shared<T>>,
    actor: Recipient<InboxReady>,
    metrics: Arc<Metrics>,
}

/// The end that the actor holds. Dropping it drops the waiting requests and all later ones.
pub(crate) struct Inbox<T> {
    shared: Arc<Shared<T>>,
    /// The emptied vector of the last turn, kept for its room.
    spare: Vec<T>,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// The length of the queue.
    waiting: AtomicUsize,
    /// True from a wake-up until the actor looks into the queue.
    woken: AtomicBool,
}

struct Queue<T> {
    requests: Vec<T>,
    capacity: usize,
    /// The thread of the task that has put off the wake-up for the first request.
    waker_thread: usize,
    closed: bool,
}

thread_local! {
    /// Its address tells threads apart.
    static THREAD: u8 = const { 0 };
}

fn current_thread() -> usize {
    THREAD.with(|mark| std::ptr::from_ref(mark).addr())
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Inbox<T> {
    /// An inbox of this capacity, which only a bug can exceed, and the function that makes its other end
    /// once the actor has an address.
    pub(crate) fn new(
        capacity: usize,
        metrics: Arc<Metrics>,
    ) -> (Inbox<T>, impl FnOnce(Recipient<InboxReady>) -> InboxSender<T>) {
        let queue = Queue {
            requests: Vec::new(),
            capacity,
            waker_thread: 0,
            closed: false,
        };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            waiting: AtomicUsize::new(0),
            woken: AtomicBool::new(false),
        });
        let inbox = Inbox {
            shared: shared.clone(),
            spare: Vec::new(),
        };
        (inbox, |actor| InboxSender {
            shared,
            actor,
            metrics,
        })
    }

    /// Takes all that waits. Return the vector with [`put_back`](Self::put_back).
    pub(crate) fn take(&mut self) -> Vec<T> {
        // Before the queue is emptied: a request that comes after must wake the actor again.
        self.shared.woken.store(false, Ordering::SeqCst);
        let spare = std::mem::take(&mut self.spare);
        let mut queue = self.shared.lock();
        self.shared.waiting.store(0, Ordering::SeqCst);
        std::mem::replace(&mut queue.requests, spare)
    }

    /// Keeps an emptied vector for the next turn.
    pub(crate) fn put_back(&mut self, requests: Vec<T>) {
        self.spare = requests;
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closed = true;
        let requests = std::mem::take(&mut queue.requests);
        // Dropping a reply runs code of its caller, which may push again.
        drop(queue);
        drop(requests);
    }
}

/// The duty of a push to wake the actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wake {
    /// Another task of this thread wakes it soon.
    Left,
    /// It may be put off until the thread's other tasks had a chance to push.
    Later,
    Now,
}

impl<T> InboxSender<T> {
    /// Pushes a request and wakes the actor.
    pub(crate) fn push(&self, request: T) {
        self.enqueue(request);
        self.wake();
    }

    /// Pushes a request and wakes the actor after the other ready tasks of this thread had their turn, so
    /// that one wake-up serves all that they push. The request is pushed when this returns; the future wakes
    /// the actor, so await it at once.
    pub(crate) fn push_batched(&self, request: T) -> impl Future<Output = ()> {
        // Not in the future, into which the request would be moved once more.
        let wake = self.enqueue(request);
        self.wake_batched(wake)
    }

    async fn wake_batched(&self, wake: Wake) {
        match wake {
            Wake::Left => {}
            Wake::Now => self.wake(),
            Wake::Later => {
                let _wake_on_drop = WakeOnDrop(self);
                // While each turn brings more requests, the next one probably does too.
                let mut waiting = 0;
                while self.shared.waiting.load(Ordering::SeqCst) > waiting && !self.is_woken() {
                    waiting = self.shared.waiting.load(Ordering::SeqCst);
                    yield_once().await;
                }
            }
        }
    }

    fn enqueue(&self, request: T) -> Wake {
        let thread = current_thread();
        let mut queue = self.shared.lock();
        let len = queue.requests.len();
        if queue.closed || len >= queue.capacity {
            let closed = queue.closed;
            drop(queue);
            if !closed {
                self.metrics.mailbox_refused.add(1);
                debug_assert!(false, "the inbox of a core actor was full");
            }
            return Wake::Left;
        }
        queue.requests.push(request);
        self.shared.waiting.store(len + 1, Ordering::SeqCst);
        if len > 0 {
            // A task of another thread may be held up for long, and this request with it.
            return if queue.waker_thread == thread {
                Wake::Left
            } else {
                Wake::Now
            };
        }
        queue.waker_thread = thread;
        Wake::Later
    }

    fn is_woken(&self) -> bool {
        self.shared.woken.load(Ordering::SeqCst)
    }

    /// Wakes the actor unless nothing waits for it or it has been woken already.
    fn wake(&self) {
        let waiting = self.shared.waiting.load(Ordering::SeqCst);
        if waiting > 0 && !self.shared.woken.swap(true, Ordering::SeqCst) {
            mailbox::send_to(&self.actor, InboxReady, &self.metrics);
        }
    }
}

impl<T> Clone for InboxSender<T> {
    fn clone(&self) -> Self {
        InboxSender {
            shared: self.shared.clone(),
            actor: self.actor.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

/// Wakes the actor also when the pushing task ends before its next turn.
struct WakeOnDrop<'a, T>(&'a InboxSender<T>);

impl<T> Drop for WakeOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

/// Lets the other ready tasks of the thread run first. Unlike `tokio::task::yield_now` it works on any
/// executor.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use actix::{Actor, Context, Handler, System};

    use super::*;

    /// Counts its wake-ups.
    struct Woken(crossbeam_channel::Sender<()>);

    impl Actor for Woken {
        type Context = Context<Self>;
    }

    impl Handler<InboxReady> for Woken {
        type Result = ();

        fn handle(&mut self, InboxReady: InboxReady, _: &mut Context<Self>) {
            self.0.send(()).unwrap();
        }
    }

    fn start(capacity: usize) -> (Inbox<u32>, InboxSender<u32>, crossbeam_channel::Receiver<()>) {
        let (count, wake_ups) = crossbeam_channel::bounded(10);
        let (inbox, sender) = Inbox::new(capacity, Metrics::register(1));
        (inbox, sender(Woken(count).start().recipient()), wake_ups)
    }

    #[test]
    fn pushes_of_ready_tasks_share_one_wake_up() {
        System::new().block_on(async {
            let (mut inbox, sender, wake_ups) = start(10);
            let pushed = async |number| sender.push_batched(number).await;
            tokio::join!(pushed(1), pushed(2), pushed(3));
            tokio::task::yield_now().await;
            assert_eq!(inbox.take(), [1, 2, 3]);
            assert_eq!(wake_ups.try_iter().count(), 1);
        });
    }

    #[test]
    fn push_cancelled_before_its_wake_up_still_wakes() {
        System::new().block_on(async {
            let (mut inbox, sender, wake_ups) = start(10);
            {
                let mut push = Box::pin(sender.push_batched(1));
                let polled =
                    std::future::poll_fn(|context| Poll::Ready(push.as_mut().poll(context).is_pending()));
                assert!(polled.await);
            }
            tokio::task::yield_now().await;
            assert_eq!((inbox.take(), wake_ups.try_iter().count()), (vec![1], 1));
        });
    }

    #[test]
    fn push_behind_one_of_another_thread_wakes_at_once() {
        System::new().block_on(async {
            let (mut inbox, sender, wake_ups) = start(10);
            let other = sender.clone();
            let first = std::thread::spawn(move || other.enqueue(1)).join().unwrap();
            assert_eq!(first, Wake::Later);
            sender.push_batched(2).await;
            tokio::task::yield_now().await;
            assert_eq!((inbox.take(), wake_ups.try_iter().count()), (vec![1, 2], 1));
            sender.push(3);
            tokio::task::yield_now().await;
            assert_eq!((inbox.take(), wake_ups.try_iter().count()), (vec![3], 1));
        });
    }

    #[test]
    fn closed_inbox_drops_requests() {
        System::new().block_on(async {
            let (inbox, sender, _wake_ups) = start(10);
            sender.push(1);
            drop(inbox);
            sender.push(2);
            assert!(sender.shared.lock().requests.is_empty());
        });
    }
}
