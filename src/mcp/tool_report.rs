//! What a running tool tells its caller, as MCP's notifications.
//!
//! Owns: [`Reporter`], one per call, and [`LogThreshold`], one per session. Never: sends what the caller did not ask
//! for, two messages at once, or anything after the answer. Receives from handlers, through their
//! [`CallContext`]; sends to rmcp's peer, which carries it on the connection of the call: the answer to the POST, which
//! becomes a stream, or the one output of stdio.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rmcp::RoleServer;
use rmcp::model::{ProgressNotification, ProgressNotificationParam, ProgressToken, ServerNotification};
use rmcp::service::RequestContext;
use tokio::sync::Mutex;

use super::convert;
use super::handler::McpSession;
use super::revision::Revision;
use crate::{BoxFuture, CallContext, CallEvent, CallObserver, LogLevel};

/// The least severe log messages that a session's client wants; before it says so, those of [`LogLevel::Info`].
#[derive(Debug)]
pub(crate) struct LogThreshold(AtomicU8);

impl Default for LogThreshold {
    fn default() -> LogThreshold {
        LogThreshold(AtomicU8::new(LogLevel::Info as u8))
    }
}

impl LogThreshold {
    /// From now on, also for calls that are running.
    pub(crate) fn set(&self, level: LogLevel) {
        self.0.store(level as u8, Ordering::Relaxed);
    }

    fn admits(&self, level: LogLevel) -> bool {
        level as u8 >= self.0.load(Ordering::Relaxed)
    }
}

/// Tells the caller of one tool call what its handler tells.
pub(crate) struct Reporter {
    call: Arc<Call>,
}

struct Call {
    request: RequestContext<RoleServer>,
    /// None on 2026-07-28, where the request says everything.
    session: Option<Arc<McpSession>>,
    revision: Revision,
    /// The name under which the caller wants progress, if it does.
    progress_token: Option<ProgressToken>,
    /// Held while a message is on its way, so that there is never more than one.
    told: Mutex<Told>,
}

/// What was told so far.
struct Told {
    progress: f64,
    ended: bool,
}

impl Reporter {
    /// For the call that `request` asks for, in `session` if its revision has sessions.
    pub(crate) fn new(request: RequestContext<RoleServer>, session: Option<Arc<McpSession>>) -> Reporter {
        let revision = Revision::of(request.protocol_version().as_ref());
        let told = Told {
            progress: f64::NEG_INFINITY,
            ended: false,
        };
        let call = Call {
            session: session.filter(|_| !revision.is_stateless()),
            revision,
            progress_token: request.meta.get_progress_token(),
            told: Mutex::new(told),
            request,
        };
        Reporter { call: Arc::new(call) }
    }

    /// What the handler is handed.
    pub(crate) fn call_context(&self) -> CallContext {
        CallContext::new(Arc::new(Reporter {
            call: self.call.clone(),
        }))
    }

    /// After this nothing is sent, whoever still holds the context. Waits for a message that is on its way, so that
    /// the answer comes after it.
    pub(crate) async fn end(&self) {
        self.call.told.lock().await.ended = true;
    }
}

impl CallObserver for Reporter {
    fn tell(&self, event: CallEvent) -> BoxFuture<()> {
        let call = self.call.clone();
        Box::pin(async move { call.tell(event).await })
    }
}

impl Call {
    async fn tell(&self, event: CallEvent) {
        if !self.wants(&event) {
            return;
        }
        let mut told = self.told.lock().await;
        if told.ended {
            return;
        }
        if let CallEvent::Progress { progress, .. } = &event {
            // The protocol wants it to grow (basic/utilities/progress), and JSON has finite numbers only.
            if !progress.is_finite() || *progress <= told.progress {
                tracing::debug!(
                    progress,
                    last = told.progress,
                    "progress that does not grow is not told"
                );
                return;
            }
            told.progress = *progress;
        }
        if let Some(session) = &self.session {
            session.session.active();
        }
        let Some(notification) = self.notification(event) else {
            return;
        };
        tokio::select! {
            // The client is gone or has cancelled the call: there is nobody to wait for.
            () = self.request.ct.cancelled() => {}
            sent = self.request.peer.send_notification(notification) => {
                if let Err(error) = sent {
                    tracing::debug!(%error, "a tool's message found its client gone");
                }
            }
        }
    }

    fn wants(&self, event: &CallEvent) -> bool {
        match event {
            CallEvent::Progress { .. } => self.progress_token.is_some(),
            CallEvent::Log { level, .. } => match &self.session {
                Some(session) => session.log.admits(*level),
                None => self
                    .request
                    .meta
                    .log_level()
                    .is_some_and(|least| *level >= convert::log_level(least)),
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
                params.message = message.filter(|_| self.revision.words_progress());
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
