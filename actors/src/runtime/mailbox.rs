//! Sending between actors: `try_send`, whose refusal is a bug that is counted.
//!
//! Owns: the one way in which actors send, and the guard that makes the death of a core actor loud. Never: waits.

use actix::dev::{MessageResponse, ToEnvelope};
use actix::prelude::SendError;
use actix::{Actor, Addr, Handler, Message};
use tokio::sync::watch;

use super::admission::Admission;
use crate::metrics::Metrics;
use crate::model::EndReason;

/// Sends `message`. Everything queued has a permit of the door or is one of a session's few, and mailboxes are
/// larger than both together, so a full one is a bug: counted, and asserted in debug builds. A closed one means that
/// its actor died, which its [`CoreGuard`] says; the ticket in the message then answers its caller by being dropped.
pub(crate) fn send<A, M>(to: &Addr<A>, message: M, metrics: &Metrics)
where
    A: Actor + Handler<M>,
    A::Context: ToEnvelope<A, M>,
    M: Message + Send + 'static,
    M::Result: MessageResponse<A, M> + Send,
{
    if let Err(SendError::Full(_)) = to.try_send(message) {
        metrics.mailbox_refused.add(1);
        debug_assert!(false, "a mailbox behind the door was full");
    }
}

/// Whether the bus lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BusState {
    /// It does.
    Running,
    /// It was asked to stop.
    Stopping,
    /// This actor died, and the bus with it.
    Dead(&'static str),
}

/// Held by every core actor: when it is dropped though nobody asked the bus to stop, the bus is dead.
pub(crate) struct CoreGuard {
    pub(crate) actor: &'static str,
    pub(crate) life: watch::Sender<BusState>,
    pub(crate) admission: Admission,
}

impl CoreGuard {
    /// Why subscribers end when their publisher does.
    pub(crate) fn end_reason(&self) -> EndReason {
        match *self.life.borrow() {
            BusState::Stopping => EndReason::Shutdown,
            BusState::Running | BusState::Dead(_) => EndReason::Failed,
        }
    }

    /// Ends the bus because of `reason`.
    pub(crate) fn fail(&self, reason: &str) {
        // Before anybody can learn of the end: whoever knows of it is let in no more.
        self.admission.close();
        let first = self.life.send_if_modified(|life| {
            let first = *life == BusState::Running;
            if first {
                *life = BusState::Dead(self.actor);
            }
            first
        });
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
