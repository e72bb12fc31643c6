//! The listen streams that a connection has open, for their acknowledgements and for the end of the input.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rmcp::model::RequestId;
use serde_json::Value;
use tokio::time::Instant;

use crate::mcp::listen::ListenPump;

/// A listen stream of a connection.
pub(super) struct OpenListen {
    pub(super) request: RequestId,
    /// The current etags, until they were acknowledged.
    pub(super) current: Option<Value>,
    pub(super) pump: Weak<ListenPump>,
}

/// The listen streams of a connection; some of them may have ended.
#[derive(Clone, Default)]
pub(super) struct OpenStreams {
    streams: Arc<Mutex<Vec<OpenListen>>>,
}

impl OpenStreams {
    pub(super) fn add(&self, stream: Option<OpenListen>) {
        let mut streams = self.lock();
        // Ended streams leave here, so that a long connection does not gather them.
        streams.retain(|open| open.pump.strong_count() > 0);
        streams.extend(stream);
    }

    /// Returns the current etags for the acknowledgement of a request.
    pub(super) fn take_current(&self, request: &RequestId) -> Option<Value> {
        let mut streams = self.lock();
        let open = streams.iter_mut().find(|open| open.request == *request)?;
        open.current.take()
    }

    /// Asks every stream to end. All are asked before one of them is waited for, since they share the
    /// deadline.
    pub(super) fn end(&self) {
        for stream in self.lock().iter() {
            if let Some(stream) = stream.pump.upgrade() {
                stream.session.end();
            }
        }
    }

    /// Waits until every stream has handed its result to rmcp, or until the deadline.
    pub(super) async fn wait_until_ended(&self, deadline: Instant) {
        let mut ends = Vec::new();
        for stream in self.lock().iter() {
            if let Some(stream) = stream.pump.upgrade() {
                ends.push(stream.ended.subscribe());
            }
        }
        for mut ended in ends {
            // The sender is dropped with the stream, and never sends.
            if tokio::time::timeout_at(deadline, ended.changed()).await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<OpenListen>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
