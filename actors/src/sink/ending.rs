//! The wait for the ends of closed subscribers, which is short for those that cannot deliver.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::AttachmentState;

/// The time that a failing subscriber still has when it is closed, for a last delivery.
const FAILING_END_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval in which the health of a closed subscriber is looked at.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The times until which the ends of closed subscribers are waited for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndDeadlines {
    working: Instant,
    /// Of subscribers that fail or stall.
    failing: Instant,
}

impl EndDeadlines {
    /// Waits for subscribers that take deliveries until `deadline`.
    pub(crate) fn until(deadline: Instant) -> EndDeadlines {
        let failing = Instant::now() + FAILING_END_TIMEOUT;
        EndDeadlines {
            working: deadline,
            failing: failing.min(deadline),
        }
    }
}

/// Waits until the thread of `state` has ended. Returns true if it ended in time.
pub(crate) async fn wait_for_end(
    state: &AttachmentState,
    mut done: oneshot::Receiver<()>,
    deadlines: EndDeadlines,
) -> bool {
    let mut check = deadlines.failing;
    let ended = loop {
        // The thread drops the sender without sending, so any result means that it has ended.
        if tokio::time::timeout_at(check, &mut done).await.is_ok() {
            break true;
        }
        // A receiver that is down may stay so for hours, and a stop should not wait for it in vain.
        if state.is_failing() || check >= deadlines.working {
            break false;
        }
        check = (check + END_CHECK_INTERVAL).min(deadlines.working);
    };
    if !ended {
        state.abandon();
    }
    ended
}
