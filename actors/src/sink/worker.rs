//! The thread of one attached subscriber.
//!
//! Owns: making the subscriber, calling it, and what follows when a call fails or panics. Never: touches another
//! subscriber, or the publisher. Receives from the [`Feed`]; calls the subscriber; notes in [`AttachmentState`] what came of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::feed::Next;
use super::{AttachmentState, Delivery, Feed, Subscriber, SubscriberError};
use crate::metrics::LossReason;

/// The first pause before something that failed is tried again.
const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// Makes a subscriber, as often as it has to be made anew.
pub(crate) type Make = Box<dyn FnMut() -> Result<Box<dyn Subscriber>, SubscriberError> + Send>;

/// Pauses that double.
struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    fn new(max: Duration) -> Backoff {
        let max = max.max(BACKOFF_MIN);
        Backoff {
            next: BACKOFF_MIN,
            max,
        }
    }

    fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    fn reset(&mut self) {
        self.next = BACKOFF_MIN;
    }
}

/// How serving came to an end.
#[derive(PartialEq, Eq)]
enum Served {
    /// The subscriber panicked and is of no use any more.
    Panicked,
    /// It was detached.
    Closed,
}

/// Why a call brought nothing.
enum Failure {
    Error(SubscriberError),
    Panic,
}

/// What the thread does until its subscriber is detached.
pub(crate) struct Worker {
    state: Arc<AttachmentState>,
    feed: Feed,
    backoff: Backoff,
    idle_every: Duration,
}

impl Worker {
    pub(crate) fn new(
        state: Arc<AttachmentState>,
        feed: Feed,
        backoff_max: Duration,
        idle_every: Duration,
    ) -> Worker {
        Worker {
            state,
            feed,
            backoff: Backoff::new(backoff_max),
            idle_every: idle_every.max(Duration::from_millis(1)),
        }
    }

    /// Runs until the feed is closed.
    pub(crate) fn run(mut self, mut make: Make) {
        loop {
            match self.call(&mut make) {
                Ok(mut subscriber) => {
                    self.state.running();
                    if self.serve(&mut *subscriber) == Served::Closed {
                        self.close(subscriber);
                        break;
                    }
                    // Its memory may be in any state, and so may its destructor be.
                    let dropped = catch_unwind(AssertUnwindSafe(|| drop(subscriber)));
                    self.state.restarting(dropped.is_err());
                }
                Err(Failure::Error(error)) => self.state.failing(&error.to_string()),
                Err(Failure::Panic) => self.state.failing("it panicked while it was made"),
            }
            if !self.feed.pause(self.backoff.pause()) {
                break;
            }
        }
        self.state.lost(self.state.pending() as u64, LossReason::Closed);
        self.state.ended();
    }

    /// One guarded call, during which the subscriber counts as busy.
    fn call<T>(&self, f: impl FnOnce() -> Result<T, SubscriberError>) -> Result<T, Failure> {
        self.state.busy();
        let result = catch_unwind(AssertUnwindSafe(f));
        self.state.free();
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Failure::Error(error)),
            Err(_panic) => Err(Failure::Panic),
        }
    }

    fn serve(&mut self, subscriber: &mut dyn Subscriber) -> Served {
        let mut held = None;
        loop {
            if self.state.is_abandoned() {
                self.state.lost(u64::from(held.is_some()), LossReason::Closed);
                return Served::Closed;
            }
            let next = held
                .take()
                .map_or_else(|| self.feed.next(self.idle_every), Next::Delivery);
            let called = match &next {
                Next::Delivery(delivery) => self.call(|| subscriber.take(delivery)),
                Next::Idle => self.call(|| subscriber.idle()),
                Next::Closed => return Served::Closed,
            };
            match (called, next) {
                (Ok(()), next) => self.succeeded(&next),
                (Err(Failure::Panic), next) => {
                    self.lose(&next, LossReason::Panicked);
                    return Served::Panicked;
                }
                (Err(Failure::Error(SubscriberError::Refused(text))), next) => {
                    self.state.refused(&text);
                    self.lose(&next, LossReason::Refused);
                }
                (Err(Failure::Error(error)), next) => {
                    self.state.failing(&error.to_string());
                    if let Next::Delivery(delivery) = next {
                        self.state.retried();
                        held = Some(delivery);
                    }
                    self.pause(&error);
                }
            }
        }
    }

    /// Waits before the next try; briefly while it is being detached, since somebody waits for the end.
    fn pause(&mut self, error: &SubscriberError) {
        let pause = match error {
            SubscriberError::Later { after, .. } => *after,
            _ => self.backoff.pause(),
        };
        if !self.feed.pause(pause) {
            std::thread::sleep(BACKOFF_MIN);
        }
    }

    fn succeeded(&mut self, next: &Next) {
        self.backoff.reset();
        match next {
            // To be told of a failure is not to have recovered from it.
            Next::Delivery(Delivery::Gap(_)) => return,
            Next::Delivery(_) => self.state.delivered(),
            Next::Idle | Next::Closed => {}
        }
        self.state.running();
    }

    fn lose(&mut self, next: &Next, reason: LossReason) {
        match next {
            Next::Delivery(Delivery::Gap(gap)) => self.feed.owe(gap.lost),
            Next::Delivery(_) => {
                self.feed.owe(1);
                self.state.lost(1, reason);
            }
            Next::Idle | Next::Closed => {}
        }
    }

    fn close(&self, mut subscriber: Box<dyn Subscriber>) {
        match self.call(|| subscriber.close()) {
            Ok(()) => {}
            Err(Failure::Error(error)) => self.state.ended_badly(&error.to_string()),
            Err(Failure::Panic) => self.state.ended_badly("it panicked"),
        }
        if catch_unwind(AssertUnwindSafe(|| drop(subscriber))).is_err() {
            self.state.ended_badly("it panicked while it was dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_maximum_and_begin_anew() {
        let mut backoff = Backoff::new(Duration::from_millis(350));
        let pauses = [(); 4].map(|()| backoff.pause().as_millis());
        assert_eq!(pauses, [100, 200, 350, 350]);
        backoff.reset();
        assert_eq!(backoff.pause(), BACKOFF_MIN);
    }
}
