//! Sending between actors, and the detection of a core actor's death.

use actix::dev::{MessageResponse, ToEnvelope};
use actix::prelude::SendError;
use actix::{Actor, Addr, Handler, Message, Recipient};
use tokio::sync::watch;

use super::admission::Admission;
use crate::metrics::Metrics;
use crate::model::EndReason;

/// Sends `message` without waiting.
pub(crate) fn send<A, M>(to: &Addr<A>, message: M, metrics: &Metrics)
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: MessageResponse<A, M> + Send,
{
    // Every message has a permit of admission or is one of a few per session, and mailboxes hold more than
    // both together, so a full mailbox is a bug. A closed one belongs to an actor that died: its `CoreGuard`
    // stops the bus, and dropping the message here ends the wait of its caller.
    if let Err(SendError::Full(_)) = to.try_send(message) {
        metrics.mailbox_refused.add(1);
        debug_assert!(false, "a mailbox behind admission was full");
    }
}

/// Sends `message` like [`send`], to an actor known only by this message.
pub(crate) fn send_to<M>(to: &Recipient<M>, message: M, metrics: &Metrics)
where
    M: Message<Result = ()> + Send + 'static,
{
    if let Err(SendError::Full(_)) = to.try_send(message) {
        metrics.mailbox_refused.add(1);
        debug_assert!(false, "a mailbox behind admission was full");
    }
}

/// The state of the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusState {
    /// It serves requests.
    Running,
    /// It was asked to stop.
    Stopping,
    /// This actor died, which stopped the bus.
    Dead(&'static str),
}

/// A guard held by each core actor. If it is dropped before the bus was asked to stop, it stops the bus.
pub(crate) struct CoreGuard {
    pub(crate) actor: &'static str,
    pub(crate) life: watch::Sender<BusState>,
    pub(crate) admission: Admission,
}

impl CoreGuard {
    /// Returns the reason with which subscribers end when this actor does.
    pub(crate) fn end_reason(&self) -> EndReason {
        match *self.life.borrow() {
            BusState::Stopping => EndReason::Shutdown,
            BusState::Running | BusState::Dead(_) => EndReason::Failed,
        }
    }

    /// Stops the bus because of `reason`.
    pub(crate) fn fail(&self, reason: &str) {
        // Closed before the state changes, so that a caller that sees the end cannot be admitted any more.
        self.admission.close();
        let first = self.life.send_if_modified(|life| {
            let first = *life == BusState::Running;
            if first {
                *life = BusState::Dead(self.actor);
            }
            first
        });
        // The other core actors end as a consequence; only the first one is worth an error.
        if first {
            tracing::error!(
                actor = self.actor,
                reason,
                "a core actor died; the bus has stopped"
            );
        }
    }
}

impl Drop for CoreGuard {
    fn drop(&mut self) {
        self.fail("it panicked or its thread ended");
    }
}
