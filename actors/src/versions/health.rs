//! The health of the store, as the bus tells it to anyone who asks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::model::StoreError;

/// The time after which an append that has not returned counts as hanging.
const SLOW_AFTER: Duration = Duration::from_secs(3);

/// The state of the store of a bus.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreState {
    /// There is no store: everything is kept in memory only.
    Memory,
    /// The store keeps every change.
    Working,
    /// The store has worked on one batch for more than three seconds. Changes wait for it; everything else is
    /// answered from what is durable.
    Slow {
        /// The time at which it got the batch.
        since: Instant,
    },
    /// The store failed. Changes of resources are refused until it works again; everything else is answered
    /// from what is durable.
    Failing {
        /// True if the store has no room left.
        full: bool,
        /// The error of the last try.
        reason: Arc<str>,
        /// The time of the first failure.
        since: Instant,
    },
}

impl StoreState {
    /// Returns true if changes of resources are taken without a long wait.
    pub fn is_good(&self) -> bool {
        matches!(self, StoreState::Memory | StoreState::Working)
    }
}

/// The health of the store. The store's thread and the Registry report to it.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth(Mutex<Reports>);

#[derive(Debug, Default)]
struct Reports {
    /// False without a store.
    stored: bool,
    /// The time at which the running append began.
    appending: Option<Instant>,
    failure: Option<(StoreError, Instant)>,
    /// True once the running append was logged as hanging.
    slow_logged: bool,
}

impl StoreHealth {
    /// The health of a bus, with or without a store.
    pub(crate) fn new(stored: bool) -> Arc<StoreHealth> {
        let reports = Reports {
            stored,
            ..Reports::default()
        };
        Arc::new(StoreHealth(Mutex::new(reports)))
    }

    fn lock(&self) -> MutexGuard<'_, Reports> {
        // No code that can panic runs while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the store works on a batch.
    pub(super) fn append_began(&self, at: Instant) {
        self.lock().appending = Some(at);
    }

    /// Notes that the store is done with the batch.
    pub(super) fn append_ended(&self) {
        let mut reports = self.lock();
        let began = reports.appending.take();
        let logged = std::mem::take(&mut reports.slow_logged);
        drop(reports);
        if let (Some(began), true) = (began, logged) {
            let seconds = began.elapsed().as_secs();
            tracing::warn!(seconds, "the store has answered; waiting changes go on");
        }
    }

    /// Notes that the store failed.
    pub(crate) fn failed(&self, error: &StoreError) {
        let mut reports = self.lock();
        let since = match &reports.failure {
            Some((_, since)) => *since,
            None => {
                tracing::error!(%error, full = error.full, "changes are refused until the store works again");
                Instant::now()
            }
        };
        reports.failure = Some((error.clone(), since));
    }

    /// Notes that the store works again.
    pub(crate) fn recovered(&self) {
        if let Some((_, since)) = self.lock().failure.take() {
            let seconds = since.elapsed().as_secs();
            tracing::warn!(seconds, "the store works again; changes are taken");
        }
    }

    pub(crate) fn state(&self) -> StoreState {
        let reports = self.lock();
        match (&reports.failure, reports.appending) {
            (Some((error, since)), _) => StoreState::Failing {
                full: error.full,
                reason: error.reason.clone(),
                since: *since,
            },
            (None, Some(since)) if since.elapsed() > SLOW_AFTER => StoreState::Slow { since },
            (None, _) if reports.stored => StoreState::Working,
            (None, _) => StoreState::Memory,
        }
    }

    /// Returns true if the store is good. Logs an append that hangs once.
    pub(crate) fn check(&self) -> bool {
        let state = self.state();
        if let StoreState::Slow { .. } = state {
            let logged = std::mem::replace(&mut self.lock().slow_logged, true);
            if !logged {
                tracing::warn!("the store does not answer; changes wait for it");
            }
        }
        state.is_good()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_follows_the_reports() {
        assert_eq!(StoreHealth::new(false).state(), StoreState::Memory);
        let health = StoreHealth::new(true);
        assert_eq!(health.state(), StoreState::Working);
        let now = Instant::now();
        health.append_began(now);
        assert_eq!(health.state(), StoreState::Working);
        let long_ago = now.checked_sub(2 * SLOW_AFTER).unwrap();
        health.append_began(long_ago);
        assert_eq!(health.state(), StoreState::Slow { since: long_ago });
        assert!(!health.check());
        health.append_ended();
        assert!(health.check());
        health.failed(&StoreError::new("one"));
        let StoreState::Failing { since, .. } = health.state() else {
            panic!("{:?}", health.state());
        };
        let full = true;
        let reason: Arc<str> = "two".into();
        health.failed(&StoreError {
            reason: reason.clone(),
            full,
        });
        assert_eq!(health.state(), StoreState::Failing { full, reason, since });
        assert!(!health.check());
        health.recovered();
        assert_eq!(health.state(), StoreState::Working);
    }
}
