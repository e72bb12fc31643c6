//! Admission: the limit on the number of requests inside the bus.
//!
//! actix ignores the limit of a mailbox for some sends, so the bus is bounded here instead. A permit travels
//! inside its message until the last actor has answered; each request that waits in a mailbox therefore has a
//! permit.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};

use metrics::{Counter, Histogram};

use crate::metrics::{Limit, Metrics};
use crate::model::Closed;

/// The semaphore that admits requests. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    permits: Arc<Semaphore>,
    /// The permits of changes, if they have their own.
    changes: Option<Arc<Semaphore>>,
    max: usize,
    wait: Histogram,
    full: Counter,
}

/// The permit of one request. Dropping it admits the next.
#[derive(Debug)]
pub(crate) struct Permit {
    _permit: OwnedSemaphorePermit,
    /// The time of admission.
    pub(crate) at: Instant,
}

/// The permit of a request together with the channel for its answer.
#[derive(Debug)]
pub(crate) struct Reply<T> {
    reply: oneshot::Sender<T>,
    permit: Permit,
}

impl Admission {
    /// Creates an admission without metrics.
    pub(crate) fn new(max: usize) -> Admission {
        Admission {
            permits: Arc::new(Semaphore::new(max)),
            changes: None,
            max,
            wait: Histogram::noop(),
            full: Counter::noop(),
        }
    }

    /// Creates the admission of a bus, which records waits and the reached limit. With a store, changes have
    /// permits of their own.
    pub(crate) fn counted(max: usize, stored: bool, metrics: &Metrics) -> Admission {
        let mut admission = Admission::new(max);
        if stored {
            admission = admission.with_changes_apart(max);
        }
        Admission {
            wait: metrics.admission_wait.clone(),
            full: metrics.limit_counter(Limit::InFlight).clone(),
            ..admission
        }
    }

    /// Gives changes `max` permits of their own, so that other requests find one while changes wait for a
    /// store.
    fn with_changes_apart(mut self, max: usize) -> Admission {
        self.changes = Some(Arc::new(Semaphore::new(max)));
        self.max += max;
        self
    }

    /// The most requests inside the bus.
    pub(crate) fn max(&self) -> usize {
        self.max
    }

    fn permits_of_changes(&self) -> &Arc<Semaphore> {
        self.changes.as_ref().unwrap_or(&self.permits)
    }

    /// Waits for admission of a request that is no change, in the order of the calls.
    pub(crate) async fn enter(&self) -> Result<Permit, Closed> {
        self.acquire(&self.permits).await
    }

    /// Waits for admission of a change, in the order of the calls.
    pub(crate) async fn enter_change(&self) -> Result<Permit, Closed> {
        self.acquire(self.permits_of_changes()).await
    }

    async fn acquire(&self, permits: &Arc<Semaphore>) -> Result<Permit, Closed> {
        // Does not overtake: the semaphore is fair, so there is no free permit while others wait.
        if let Some(permit) = self.try_acquire(permits)? {
            self.wait.record(0.0);
            return Ok(permit);
        }
        let requested = Instant::now();
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return Err(Closed);
        };
        let at = Instant::now();
        self.wait.record(at - requested);
        Ok(Permit { _permit: permit, at })
    }

    /// Returns a permit for a change, or `None` if the limit is reached.
    pub(crate) fn try_enter_change(&self) -> Result<Option<Permit>, Closed> {
        self.try_acquire(self.permits_of_changes())
    }

    fn try_acquire(&self, permits: &Arc<Semaphore>) -> Result<Option<Permit>, Closed> {
        match permits.clone().try_acquire_owned() {
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

    /// Returns true until [`close`](Self::close) is called.
    pub(crate) fn is_open(&self) -> bool {
        !self.permits.is_closed()
    }

    /// Admits no more requests; those inside continue.
    pub(crate) fn close(&self) {
        self.permits.close();
        if let Some(changes) = &self.changes {
            changes.close();
        }
    }

    /// The number of requests inside the bus.
    pub(crate) fn inside(&self) -> usize {
        let mut free = self.permits.available_permits();
        if let Some(changes) = &self.changes {
            free += changes.available_permits();
        }
        self.max - free
    }
}

impl Permit {
    /// Adds a channel for the answer. Returns it with its receiving end.
    pub(crate) fn reply<T>(self) -> (Reply<T>, oneshot::Receiver<T>) {
        let (reply, answer) = oneshot::channel();
        (Reply { reply, permit: self }, answer)
    }
}

impl<T> Reply<T> {
    /// The time of admission.
    pub(crate) fn at(&self) -> Instant {
        self.permit.at
    }

    /// Sends the answer and releases the permit.
    pub(crate) fn answer(self, value: T) {
        // Released first: a caller that sends its next request right after the answer must find a permit.
        drop(self.permit);
        if self.reply.send(value).is_err() {
            // The request took effect all the same, so this is no error.
            tracing::trace!("the caller of a request no longer waits for its answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answer_releases_the_permit() {
        let admission = Admission::new(2);
        let (first, answer) = admission.enter().await.unwrap().reply::<u8>();
        let second = admission.try_enter_change().unwrap().unwrap();
        assert!(admission.try_enter_change().unwrap().is_none());
        assert_eq!(admission.inside(), 2);
        first.answer(7);
        assert_eq!(answer.await, Ok(7));
        assert!(admission.try_enter_change().unwrap().is_some());
        drop(second);
        admission.close();
        assert_eq!(admission.enter().await.unwrap_err(), Closed);
        assert_eq!(admission.inside(), 0);
    }

    #[tokio::test]
    async fn changes_apart_leave_room_for_reads() {
        let admission = Admission::new(1).with_changes_apart(1);
        let change = admission.enter_change().await.unwrap();
        assert!(admission.try_enter_change().unwrap().is_none());
        let read = admission.enter().await.unwrap();
        assert_eq!((admission.inside(), admission.max()), (2, 2));
        drop((change, read));
        admission.close();
        assert_eq!(admission.enter_change().await.unwrap_err(), Closed);
    }
}
