//! A queue that holds one value per key: a new value replaces the old one and keeps its place.
//!
//! A slow reader thus costs one entry per key and never blocks a writer.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A queue with the newest value of each key, for any number of writers and one reader.
#[derive(Debug)]
pub(crate) struct LatestQueue<T> {
    entries: Mutex<QueueEntries<T>>,
}

#[derive(Debug)]
struct QueueEntries<T> {
    order: VecDeque<String>,
    values: HashMap<String, T>,
    closed: bool,
    /// Wakes the reader that waits.
    reader: Option<Waker>,
}

impl<T> QueueEntries<T> {
    fn take_first(&mut self) -> Option<T> {
        let key = self.order.pop_front()?;
        self.values.remove(&key)
    }
}

impl<T> LatestQueue<T> {
    pub(crate) fn new() -> LatestQueue<T> {
        LatestQueue {
            entries: Mutex::new(QueueEntries {
                order: VecDeque::new(),
                values: HashMap::new(),
                closed: false,
                reader: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueEntries<T>> {
        // Both collections change together without a call that could panic in between, so a poisoned lock
        // still guards a consistent state.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `value` under `key`, unless `keep_old(old, new)` prefers the value that is there.
    pub(super) fn push_unless(&self, key: &str, value: T, keep_old: impl FnOnce(&T, &T) -> bool) {
        let mut entries = self.lock();
        if entries.closed {
            return;
        }
        match entries.values.get_mut(key) {
            Some(old) if keep_old(old, &value) => return,
            Some(old) => *old = value,
            None => {
                entries.values.insert(key.to_owned(), value);
                entries.order.push_back(key.to_owned());
            }
        }
        wake(entries);
    }

    /// Puts `value` under `key`, in place of an older value.
    pub(crate) fn push(&self, key: &str, value: T) {
        self.push_unless(key, value, |_, _| false);
    }

    /// Rejects further values. Values that are already in the queue can still be read.
    pub(super) fn close(&self) {
        let mut entries = self.lock();
        entries.closed = true;
        wake(entries);
    }

    /// Removes the value under `key`.
    pub(super) fn forget(&self, key: &str) {
        let mut entries = self.lock();
        if entries.values.remove(key).is_some() {
            entries.order.retain(|held| held != key);
        }
    }

    /// Waits for the oldest value. Returns `None` once the queue is closed and empty. Cancel safe.
    pub(super) async fn next(&self) -> Option<T> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Polls for the oldest value, as [`next`](Self::next) waits for it. The last caller is woken.
    pub(super) fn poll_next(&self, cx: &Context<'_>) -> Poll<Option<T>> {
        let mut entries = self.lock();
        if let Some(value) = entries.take_first() {
            return Poll::Ready(Some(value));
        }
        if entries.closed {
            return Poll::Ready(None);
        }
        // Under the lock, so that no value comes between the look and the registration.
        entries.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns the oldest value, if there is one.
    #[cfg(any(test, feature = "service"))]
    pub(crate) fn try_next(&self) -> Option<T> {
        self.lock().take_first()
    }
}

/// Wakes the reader after the lock is released, since it may run at once.
fn wake<T>(mut entries: MutexGuard<'_, QueueEntries<T>>) {
    let reader = entries.reader.take();
    drop(entries);
    if let Some(reader) = reader {
        reader.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn drained(queue: &LatestQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.try_next()).collect()
    }

    proptest! {
        #[test]
        fn newest_value_of_each_key_keeps_its_place(
            pushes in proptest::collection::vec(("[a-d]", any::<u32>()), 0..40),
        ) {
            let queue = LatestQueue::new();
            let mut expected: Vec<(String, u32)> = Vec::new();
            for (key, value) in pushes {
                queue.push(&key, value);
                match expected.iter_mut().find(|(held, _)| *held == key) {
                    Some(pair) => pair.1 = value,
                    None => expected.push((key, value)),
                }
            }
            let expected: Vec<u32> = expected.into_iter().map(|(_, value)| value).collect();
            prop_assert_eq!(drained(&queue), expected);
        }
    }

    #[test]
    fn preferred_values_stay_and_forgotten_ones_go() {
        let queue = LatestQueue::new();
        for (key, value) in [("a", 5), ("b", 1), ("a", 3), ("c", 1), ("a", 7)] {
            queue.push_unless(key, value, |held, new| held > new);
        }
        queue.forget("b");
        assert_eq!(drained(&queue), [7, 1]);
    }

    #[tokio::test]
    async fn waiting_reader_wakes_for_a_value_and_the_end() {
        let queue = Arc::new(LatestQueue::new());
        let reader = tokio::spawn({
            let queue = queue.clone();
            async move { (queue.next().await, queue.next().await) }
        });
        tokio::task::yield_now().await;
        queue.push("a", 1);
        while queue.lock().order.front().is_some() {
            tokio::task::yield_now().await;
        }
        queue.close();
        queue.push("b", 2);
        assert_eq!(reader.await.unwrap(), (Some(1), None));
    }
}
