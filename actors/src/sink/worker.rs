//! The thread of one attached subscriber: it creates the subscriber, calls it, and repeats calls that fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::feed::Next;
use super::{AttachmentState, Delivery, Feed, Subscriber, SubscriberError};
use crate::metrics::LossReason;

/// The first pause before a failed call is repeated.
const BACKOFF_MIN: Duration = Duration::from_millis(100);

/// Creates a subscriber, and recreates it after a failure.
pub(crate) type MakeSubscriber = Box<dyn FnMut() -> Result<Box<dyn Subscriber>, SubscriberError> + Send>;

/// Pauses that double up to a maximum.
struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    fn new(max: Duration) -> Backoff {
        Backoff {
            next: BACKOFF_MIN,
            max: max.max(BACKOFF_MIN),
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

/// The reason for which a subscriber is no longer called.
#[derive(PartialEq, Eq)]
enum Served {
    /// It panicked and cannot be called any more.
    Panicked,
    /// It was detached.
    Closed,
}

enum Failure {
    Error(SubscriberError),
    Panic,
}

/// The state of the thread.
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

    /// Runs until the subscriber is detached.
    pub(crate) fn run(mut self, mut make: MakeSubscriber) {
        loop {
            match self.call(&mut make) {
                Ok(mut subscriber) => {
                    self.state.set_running();
                    if self.serve(&mut *subscriber) == Served::Closed {
                        self.close(subscriber);
                        break;
                    }
                    // A panic may have left the subscriber in any state, so its destructor may panic too.
                    let dropped = catch_unwind(AssertUnwindSafe(|| drop(subscriber)));
                    self.state.count_restart(dropped.is_err());
                }
                Err(Failure::Error(error)) => self.state.set_failing(&error.to_string()),
                Err(Failure::Panic) => self.state.set_failing("it panicked while it was made"),
            }
            if !self.feed.pause(self.backoff.pause()) {
                break;
            }
        }
        self.state.count_unfinished(self.state.pending() as u64);
        self.state.set_ended();
    }

    /// Runs `f` and catches a panic. The duration of the call is watched for a stall.
    fn call<T>(&self, f: impl FnOnce() -> Result<T, SubscriberError>) -> Result<T, Failure> {
        self.state.begin_call();
        // The assertion holds because a subscriber that panicked is not called again.
        let result = catch_unwind(AssertUnwindSafe(f));
        self.state.end_call();
        match result {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Failure::Error(error)),
            Err(_panic) => Err(Failure::Panic),
        }
    }

    fn serve(&mut self, subscriber: &mut dyn Subscriber) -> Served {
        let mut repeated = None;
        loop {
            if self.state.is_abandoned() {
                self.state.count_unfinished(u64::from(repeated.is_some()));
                return Served::Closed;
            }
            let next = match repeated.take() {
                Some(delivery) => Next::Delivery(delivery),
                None => self.feed.next(self.idle_every),
            };
            let called = match &next {
                Next::Delivery(delivery) => self.call(|| subscriber.take(delivery)),
                Next::Idle => self.call(|| subscriber.idle()),
                Next::Closed => {
                    self.state.advance_cursor(self.feed.reached());
                    return Served::Closed;
                }
            };
            match (called, next) {
                (Ok(()), next) => self.note_success(&next),
                (Err(Failure::Panic), next) => {
                    self.note_loss(&next, LossReason::Panicked);
                    return Served::Panicked;
                }
                (Err(Failure::Error(SubscriberError::Refused(text))), next) => {
                    self.state.set_failing(&text);
                    self.note_loss(&next, LossReason::Refused);
                }
                (Err(Failure::Error(error)), next) => {
                    self.state.set_failing(&error.to_string());
                    if let Next::Delivery(delivery) = next {
                        self.state.count_retry();
                        repeated = Some(delivery);
                    }
                    self.pause(&error);
                }
            }
        }
    }

    /// Waits before a call is repeated.
    fn pause(&mut self, error: &SubscriberError) {
        let pause = match error {
            SubscriberError::Later { after, .. } => *after,
            _ => self.backoff.pause(),
        };
        if !self.feed.pause(pause) {
            // The subscriber is being detached, and the caller waits for the end of this thread. A short
            // pause keeps a subscriber that fails at once from using a whole core until then.
            std::thread::sleep(BACKOFF_MIN);
        }
    }

    fn note_success(&mut self, next: &Next) {
        self.backoff.reset();
        // After the call: what a subscriber has not taken must come again after a crash.
        self.state.advance_cursor(self.feed.reached());
        match next {
            // A subscriber that takes the report of a loss has not recovered yet.
            Next::Delivery(Delivery::Gap(_)) => return,
            Next::Delivery(_) => self.state.count_delivered(),
            Next::Idle | Next::Closed => {}
        }
        self.state.set_running();
    }

    fn note_loss(&mut self, next: &Next, reason: LossReason) {
        match next {
            // The losses of a gap are counted already, but have to be reported again.
            Next::Delivery(Delivery::Gap(gap)) => self.feed.add_lost(gap.lost),
            Next::Delivery(_) => {
                self.feed.add_lost(1);
                self.state.count_lost(1, reason);
            }
            Next::Idle | Next::Closed => {}
        }
    }

    fn close(&self, mut subscriber: Box<dyn Subscriber>) {
        match self.call(|| subscriber.close()) {
            Ok(()) => {}
            Err(Failure::Error(error)) => self.state.log_bad_end(&error.to_string()),
            Err(Failure::Panic) => self.state.log_bad_end("it panicked"),
        }
        if catch_unwind(AssertUnwindSafe(|| drop(subscriber))).is_err() {
            self.state.log_bad_end("it panicked while it was dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_maximum_until_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(350));
        let pauses = [(); 4].map(|()| backoff.pause().as_millis());
        assert_eq!(pauses, [100, 200, 350, 350]);
        backoff.reset();
        assert_eq!(backoff.pause(), BACKOFF_MIN);
    }
}
