//! A queue that holds one value per key: the newest wins, and keeps the place of the one it replaces.
//!
//! Owns what one side has not handed to the other yet, so a slow reader costs one value per key and never stops the
//! writer. One reader, any number of writers; it knows nothing of what the values mean.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct LatestQueue<T> {
    state: Mutex<State<T>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<T> {
    order: VecDeque<String>,
    values: HashMap<String, T>,
    closed: bool,
}

impl<T> LatestQueue<T> {
    pub(super) fn new() -> LatestQueue<T> {
        let state = State {
            order: VecDeque::new(),
            values: HashMap::new(),
            closed: false,
        };
        LatestQueue {
            state: Mutex::new(state),
            wake: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The two collections are changed together below without a call that could panic between.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts `value` in, in place of the one under the same key unless `keep` prefers that one.
    pub(super) fn push_unless(&self, key: &str, value: T, keep: impl FnOnce(&T, &T) -> bool) {
        let mut state = self.lock();
        if state.closed || state.values.get(key).is_some_and(|held| keep(held, &value)) {
            return;
        }
        if state.values.insert(key.to_owned(), value).is_none() {
            state.order.push_back(key.to_owned());
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Puts `value` in, in place of the one under the same key.
    pub(super) fn push(&self, key: &str, value: T) {
        self.push_unless(key, value, |_, _| false);
    }

    /// Takes nothing more in; what is there is still handed out.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Forgets what is under `key`.
    pub(super) fn forget(&self, key: &str) {
        let mut state = self.lock();
        if state.values.remove(key).is_some() {
            state.order.retain(|held| held != key);
        }
    }

    /// The oldest value, as soon as there is one; none once it is closed and empty. May be cancelled.
    pub(super) async fn next(&self) -> Option<(String, T)> {
        loop {
            if let Poll::Ready(taken) = self.take() {
                return taken;
            }
            self.wake.notified().await;
        }
    }

    fn take(&self) -> Poll<Option<(String, T)>> {
        let mut state = self.lock();
        match state.order.pop_front() {
            Some(key) => {
                let value = state
                    .values
                    .remove(&key)
                    .expect("every key in the order has a value");
                Poll::Ready(Some((key, value)))
            }
            None if state.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn drained(queue: &LatestQueue<u32>) -> Vec<(String, u32)> {
        queue.close();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut out = Vec::new();
        while let Some(pair) = runtime.block_on(queue.next()) {
            out.push(pair);
        }
        out
    }

    proptest! {
        #[test]
        fn it_holds_the_newest_of_each_key_in_order_of_first_mention(pushes in proptest::collection::vec(("[a-d]", any::<u32>()), 0..40)) {
            let queue = LatestQueue::new();
            let mut expected: Vec<(String, u32)> = Vec::new();
            for (key, value) in pushes {
                queue.push(&key, value);
                match expected.iter_mut().find(|(held, _)| *held == key) {
                    Some(pair) => pair.1 = value,
                    None => expected.push((key, value)),
                }
            }
            prop_assert_eq!(drained(&queue), expected);
        }
    }

    #[test]
    fn what_is_preferred_stays_and_what_is_forgotten_goes() {
        let queue = LatestQueue::new();
        for (key, value) in [("a", 5), ("b", 1), ("a", 3), ("c", 1), ("a", 7)] {
            queue.push_unless(key, value, |held, new| held > new);
        }
        queue.forget("b");
        assert_eq!(drained(&queue), [("a".to_owned(), 7), ("c".to_owned(), 1)]);
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken_by_a_value_and_by_the_end() {
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
        assert_eq!(reader.await.unwrap(), (Some(("a".to_owned(), 1)), None));
    }
}
