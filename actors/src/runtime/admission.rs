//! The one bounded door: how many requests may be behind it at once.
//!
//! Owns: the permits, and the ticket that carries one together with the way back to the caller. Never: queues
//! anything itself; callers wait in the order in which they came. A ticket travels inside the message until the last
//! actor has answered, so whatever is queued in a mailbox has a permit.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};

use metrics::{Counter, Histogram};

use crate::metrics::{Limit, Metrics};
use crate::model::Closed;

/// Admits requests.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    permits: Arc<Semaphore>,
    max: usize,
    wait: Histogram,
    full: Counter,
}

/// Proof of admission; being dropped lets the next one in.
#[derive(Debug)]
pub(crate) struct Permit {
    _permit: OwnedSemaphorePermit,
    /// When the request passed the door.
    pub(crate) at: Instant,
}

/// A permit and the way back to whoever waits.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    reply: oneshot::Sender<T>,
    permit: Permit,
}

impl Admission {
    /// A door that nobody counts at.
    pub(crate) fn new(max: usize) -> Admission {
        Admission {
            permits: Arc::new(Semaphore::new(max)),
            max,
            wait: Histogram::noop(),
            full: Counter::noop(),
        }
    }

    /// The door of a bus.
    pub(crate) fn counted(max: usize, metrics: &Metrics) -> Admission {
        Admission {
            wait: metrics.door_wait.clone(),
            full: metrics.limit(Limit::InFlight).clone(),
            ..Admission::new(max)
        }
    }

    /// Waits for admission.
    pub(crate) async fn enter(&self) -> Result<Permit, Closed> {
        // Those who wait are served first: while there are any, this finds no permit.
        if let Some(permit) = self.try_enter()? {
            self.wait.record(0.0);
            return Ok(permit);
        }
        let came = Instant::now();
        let permit = self
            .permits
            .clone()
            .acquire_owned()
            .await
            .map_err(|_closed| Closed)?;
        let at = Instant::now();
        self.wait.record(at - came);
        Ok(Permit { _permit: permit, at })
    }

    /// Admission now, or `None` when as many as allowed are in.
    pub(crate) fn try_enter(&self) -> Result<Option<Permit>, Closed> {
        match self.permits.clone().try_acquire_owned() {
            Ok(permit) => Ok(Some(Permit {
                _permit: permit,
                at: Instant::now(),
            })),
            Err(TryAcquireError::NoPermits) => {
                self.full.increment(1);
                Ok(None)
            }
            Err(TryAcquireError::Closed) => Err(Closed),
        }
    }

    /// Whether it lets anybody in.
    pub(crate) fn is_open(&self) -> bool {
        !self.permits.is_closed()
    }

    /// Lets nobody in any more; those inside finish.
    pub(crate) fn close(&self) {
        self.permits.close();
    }

    /// How many are inside.
    pub(crate) fn inside(&self) -> usize {
        self.max - self.permits.available_permits()
    }
}

impl Permit {
    /// A ticket with this permit, and the end at which its reply arrives.
    pub(crate) fn reply<T>(self) -> (Reply<T>, oneshot::Receiver<T>) {
        let (reply, answer) = oneshot::channel();
        (Reply { reply, permit: self }, answer)
    }
}

impl<T> Reply<T> {
    /// When the request passed the door.
    pub(crate) fn at(&self) -> Instant {
        self.permit.at
    }

    /// Answers, and lets the next request in.
    pub(crate) fn answer(self, value: T) {
        // Let the next one in first: whoever gets the answer may ask again at once.
        drop(self.permit);
        // A caller that has gone away needs no answer; what it asked for is done all the same.
        drop(self.reply.send(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_than_max_are_inside_until_one_is_answered() {
        let admission = Admission::new(2);
        let (first, answer) = admission.enter().await.unwrap().reply::<u8>();
        let second = admission.try_enter().unwrap().unwrap();
        assert!(admission.try_enter().unwrap().is_none());
        assert_eq!(admission.inside(), 2);
        first.answer(7);
        assert_eq!(answer.await, Ok(7));
        assert!(admission.try_enter().unwrap().is_some());
        drop(second);
        admission.close();
        assert_eq!(admission.enter().await.unwrap_err(), Closed);
        assert_eq!(admission.inside(), 0);
    }
}
