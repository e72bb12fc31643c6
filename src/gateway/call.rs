//! A request that was sent to the server, until its answer.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{CancelledNotificationParam, ProgressToken, RequestId, ServerResult};
use rmcp::service::{RequestHandle, ServiceError};
use tokio::sync::mpsc;

use super::connection::UpstreamConnection;
use super::hearing::Heard;

/// The time for which an answer is held back for messages on another stream of the connection.
const LINGER_TIME: Duration = Duration::from_millis(50);

type Answer = Pin<Box<dyn Future<Output = Result<ServerResult, ServiceError>> + Send + Sync>>;

/// A request that was sent to the server. Dropped before its end, it is cancelled there.
pub(super) struct Call {
    connection: Arc<UpstreamConnection>,
    id: RequestId,
    token: ProgressToken,
    heard: mpsc::Receiver<Heard>,
    answer: Answer,
    has_ended: bool,
}

/// The next event of a call.
pub(super) enum CallStep {
    Heard(Heard),
    Ended(Result<ServerResult, ServiceError>),
}

impl Call {
    pub(super) fn new(
        connection: Arc<UpstreamConnection>,
        handle: RequestHandle<RoleClient>,
        heard: mpsc::Receiver<Heard>,
    ) -> Call {
        let lost = connection.lost().clone();
        Call {
            connection,
            id: handle.id.clone(),
            token: handle.progress_token.clone(),
            heard,
            answer: Box::pin(async move {
                tokio::select! {
                    biased;
                    answer = handle.await_response() => answer,
                    () = lost.wait() => Err(ServiceError::TransportClosed),
                }
            }),
            has_ended: false,
        }
    }

    /// Has the answer held back for a moment, for messages that the server sent before it on another stream.
    pub(super) fn linger(&mut self) {
        let answer = std::mem::replace(&mut self.answer, Box::pin(std::future::pending()));
        self.answer = Box::pin(async move {
            let answer = answer.await;
            if answer.is_ok() {
                tokio::time::sleep(LINGER_TIME).await;
            }
            answer
        });
    }

    /// Returns the next event; the answer is the last. Cancel safe.
    pub(super) async fn next(&mut self) -> CallStep {
        // Biased: whatever arrived before the answer is returned before it.
        let result = tokio::select! {
            biased;
            Some(heard) = self.heard.recv() => return CallStep::Heard(heard),
            answer = &mut self.answer => answer,
        };
        if let Err(error) = &result {
            self.connection.note(error);
        }
        self.end();
        CallStep::Ended(result)
    }

    /// Returns the answer, past everything that comes before it.
    pub(super) async fn answer(mut self) -> Result<ServerResult, ServiceError> {
        loop {
            if let CallStep::Ended(answer) = self.next().await {
                return answer;
            }
        }
    }

    fn end(&mut self) {
        // Messages that come later belong to no call.
        self.has_ended = true;
        self.connection.hearing().end(&self.token);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        self.end();
        let peer = self.connection.peer().clone();
        let reason = "the client has cancelled the request or is gone".to_owned();
        let cancelled = CancelledNotificationParam::new(Some(self.id.clone()), Some(reason));
        // A task of its own, since this may run anywhere; without a runtime the connection is gone anyway.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = peer.notify_cancelled(cancelled).await {
                    tracing::debug!(%error, "the cancellation of a request could not be sent");
                }
            });
        }
    }
}
