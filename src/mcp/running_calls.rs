//! The tool calls that run in a session over HTTP, and their cancellation by the client.
//!
//! In a session a lost connection cancels nothing; `notifications/cancelled` and the end of the session do.
//! Elsewhere, on stdio and on 2026-07-28, rmcp's token of the request tells the cancellation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;
use tokio::sync::watch;

use super::session::McpSession;

/// The cancellation of one call. The endpoint makes it and leaves it beside the request.
#[derive(Debug, Clone)]
pub(crate) struct CallCancellation(Arc<watch::Sender<bool>>);

impl Default for CallCancellation {
    fn default() -> CallCancellation {
        CallCancellation(Arc::new(watch::Sender::new(false)))
    }
}

impl CallCancellation {
    /// Resolves once the call is cancelled.
    pub(crate) async fn cancelled(&self) {
        let mut cancelled = self.0.subscribe();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            // Cannot be: the sender lives in `self`. Without it, nothing can cancel the call.
            std::future::pending::<()>().await;
        }
    }

    fn cancel(&self) {
        self.0.send_replace(true);
    }
}

/// The calls of one session that run now.
#[derive(Debug, Default)]
pub(crate) struct RunningCalls {
    calls: Mutex<Vec<(RequestId, CallCancellation)>>,
}

impl RunningCalls {
    fn lock(&self) -> MutexGuard<'_, Vec<(RequestId, CallCancellation)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the calls of this id, of which there are several if the client used it again.
    pub(crate) fn cancel(&self, id: &RequestId) {
        for (running, call) in self.lock().iter() {
            if running == id {
                call.cancel();
            }
        }
    }

    /// Cancels every call.
    pub(crate) fn cancel_all(&self) {
        for (_, call) in self.lock().iter() {
            call.cancel();
        }
    }
}

/// A call of a session for as long as its handler runs, which may be longer than its connection.
pub(crate) struct RunningCall {
    session: Arc<McpSession>,
    cancellation: CallCancellation,
}

impl RunningCall {
    /// Adds a call to its session.
    pub(crate) fn begin(
        session: Arc<McpSession>,
        id: RequestId,
        cancellation: CallCancellation,
    ) -> RunningCall {
        session.calls.lock().push((id, cancellation.clone()));
        RunningCall {
            session,
            cancellation,
        }
    }

    /// Resolves once the call is cancelled.
    pub(crate) async fn cancelled(&self) {
        self.cancellation.cancelled().await;
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let own = &self.cancellation.0;
        self.session
            .calls
            .lock()
            .retain(|(_, call)| !Arc::ptr_eq(&call.0, own));
    }
}
