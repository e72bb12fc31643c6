//! The messages of a running tool, progress and log entries, as MCP's notifications to the caller.
//!
//! rmcp carries them on the connection of the call: the answer to the POST, which becomes a stream, or the
//! output of stdio.

use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ProgressNotification, ProgressNotificationParam, ProgressToken, ServerNotification};
use rmcp::service::RequestContext;
use tokio::sync::Mutex;

use super::convert;
use super::revision::Revision;
use super::running_calls::RunningCall;
use super::session::McpSession;
use crate::callback::{CallEvent, CallObserver};
use crate::{BoxFuture, CallContext, LogLevel};

/// Sends the messages of one tool call to its caller, as far as the caller asked for them.
pub(crate) struct Reporter {
    call: Arc<ReportedCall>,
}

struct ReportedCall {
    request: RequestContext<RoleServer>,
    /// None on 2026-07-28, where the request itself names the wanted messages.
    session: Option<Arc<McpSession>>,
    /// The call as its session over HTTP knows it; elsewhere the request's own token cancels it.
    running: Option<RunningCall>,
    revision: Revision,
    /// The name under which the caller wants progress; none when it wants none.
    progress_token: Option<ProgressToken>,
    /// Locked while a message is on its way, so that there is never more than one.
    sent: Mutex<SentMessages>,
}

/// The state of a call's messages.
struct SentMessages {
    /// The last progress that was sent.
    progress: f64,
    /// The call was answered, so nothing may follow.
    ended: bool,
}

impl Reporter {
    /// Makes the reporter of the call that `request` asks for, in `session` if its revision has sessions.
    pub(crate) fn new(
        request: RequestContext<RoleServer>,
        session: Option<Arc<McpSession>>,
        running: Option<RunningCall>,
    ) -> Reporter {
        let revision = Revision::negotiated(request.protocol_version().as_ref());
        let sent = SentMessages {
            progress: f64::NEG_INFINITY,
            ended: false,
        };
        let call = ReportedCall {
            // On stdio a request of 2026-07-28 may come on a connection that has a session.
            session: session.filter(|_| !revision.is_stateless()),
            running,
            revision,
            progress_token: request.meta.get_progress_token(),
            sent: Mutex::new(sent),
            request,
        };
        Reporter { call: Arc::new(call) }
    }

    /// Returns the context that the tool's handler receives.
    pub(crate) fn call_context(&self) -> CallContext {
        CallContext::new(Arc::new(Reporter {
            call: self.call.clone(),
        }))
    }

    /// Resolves once the client has cancelled the call: by a notification, or by a disconnect where the
    /// revision counts that as one.
    pub(crate) async fn cancelled(&self) {
        match &self.call.running {
            Some(running) => running.cancelled().await,
            None => self.call.request.ct.cancelled().await,
        }
    }

    /// Ends the reports: contexts that still exist send nothing more. Waits for a message that is on its way,
    /// so that the answer follows it.
    pub(crate) async fn end(&self) {
        self.call.sent.lock().await.ended = true;
    }
}

impl CallObserver for Reporter {
    fn observe(&self, event: CallEvent) -> BoxFuture<()> {
        let call = self.call.clone();
        Box::pin(async move { call.send(event).await })
    }
}

impl ReportedCall {
    async fn send(&self, event: CallEvent) {
        if !self.is_wanted(&event) {
            return;
        }
        // Held until the message is sent, which also slows a tool down to the pace of its caller.
        let mut sent = self.sent.lock().await;
        if sent.ended {
            return;
        }
        if let CallEvent::Progress { progress, .. } = &event {
            // The protocol wants progress to grow (basic/utilities/progress), and JSON has finite numbers
            // only.
            if !progress.is_finite() || *progress <= sent.progress {
                tracing::debug!(
                    progress,
                    last = sent.progress,
                    "progress that does not grow is not sent"
                );
                return;
            }
            sent.progress = *progress;
        }
        if let Some(session) = &self.session {
            // A call that reports is a sign of life, however long it runs.
            session.session.active();
        }
        let Some(notification) = self.notification(event) else {
            return;
        };
        tokio::select! {
            // The client is gone or has cancelled the call, so no reader is left to wait for.
            () = self.request.ct.cancelled() => {}
            sent = self.request.peer.send_notification(notification) => {
                if let Err(error) = sent {
                    tracing::debug!(%error, "a tool's message found its client gone");
                }
            }
        }
    }

    fn is_wanted(&self, event: &CallEvent) -> bool {
        match event {
            CallEvent::Progress { .. } => self.progress_token.is_some(),
            CallEvent::Log { level, .. } => match (&self.session, self.request.meta.log_level()) {
                (Some(session), _) => session.log_threshold.admits(*level),
                (None, Some(least)) => *level >= convert::log_level(least),
                (None, None) => false,
            },
            _ => false,
        }
    }

    fn notification(&self, event: CallEvent) -> Option<ServerNotification> {
        match event {
            CallEvent::Progress {
                progress,
                total,
                message,
            } => {
                let mut params = ProgressNotificationParam::new(self.progress_token.clone()?, progress);
                params.total = total.filter(|total| total.is_finite());
                params.message = message.filter(|_| self.revision.rules().allows_progress_text);
                Some(ServerNotification::ProgressNotification(
                    ProgressNotification::new(params),
                ))
            }
            CallEvent::Log { level, logger, data } => Some(log_message(level, logger, data)),
            _ => None,
        }
    }
}

#[expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]
fn log_message(level: LogLevel, logger: Option<String>, data: serde_json::Value) -> ServerNotification {
    use rmcp::model::{LoggingMessageNotification, LoggingMessageNotificationParam};
    let mut params = LoggingMessageNotificationParam::new(convert::logging_level(level), data);
    params.logger = logger;
    ServerNotification::LoggingMessageNotification(LoggingMessageNotification::new(params))
}

#[cfg(test)]
mod tests;
