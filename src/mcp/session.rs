//! The sessions of clients, and the context that all requests of one transport share.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rmcp::model::Implementation;
use rmcp::{ErrorData, Peer, RoleServer};
use tokio::sync::watch;

use super::error;
use super::frames::notification;
use super::options::McpOptions;
use super::revision::Revision;
use super::running_calls::RunningCalls;
use super::shared_session::SharedSession;
use crate::auth::{Caller, Grant};
use crate::http::{Counted, Place, SharedLimits};
use crate::metrics::McpMetrics;
use crate::rights::Viewer;
use crate::{
    Bus, Drained, ListKind, LogLevel, OutboxReader, Session, SessionOptions, SubscriberKind,
    SubscriptionAllowance, WriteProgress,
};

/// The bus, the options and the labels that all requests of one transport share.
#[derive(Clone)]
pub(crate) struct McpContext {
    pub(crate) bus: Bus,
    pub(crate) options: Arc<McpOptions>,
    /// The transport's name in labels.
    pub(crate) transport: &'static str,
    pub(crate) metrics: McpMetrics,
    /// The write progress of a connection whose bytes rmcp writes (stdio).
    pub(crate) write_progress: Option<Arc<WriteProgress>>,
    /// The caller of requests that carry none of their own: on stdio the process that started this one, or
    /// the principal that was given.
    pub(crate) caller: Caller,
    /// The limits of each caller; none on a transport with one client.
    pub(crate) limits: Option<SharedLimits>,
}

/// Returns a session's options with the labels that operators see.
pub(crate) fn session_options(
    kind: SubscriberKind,
    revision: Revision,
    transport: &'static str,
) -> SessionOptions {
    let mut options = SessionOptions::new(kind, format!("{} {transport}", revision.as_str()));
    options.protocol = revision.as_str();
    options.transport = transport;
    options
}

impl McpContext {
    /// Returns the server's name and version, as clients show them.
    pub(crate) fn server_info(&self) -> Implementation {
        self.options.implementation()
    }

    /// Returns the subscriptions that the sessions of a caller share; none when they are not counted.
    pub(crate) fn allowance(&self, caller: &Caller) -> Option<Arc<SubscriptionAllowance>> {
        self.limits.as_ref()?.subscriptions(&Counted::by(caller))
    }

    /// Takes a place among the tool calls of a caller; none when they are not counted.
    ///
    /// # Errors
    /// The caller has as many calls running as it may.
    pub(crate) fn tool_place(&self, caller: &Caller) -> Result<Option<Place>, ErrorData> {
        let Some(limits) = &self.limits else {
            return Ok(None);
        };
        limits.tool_place(&Counted::by(caller)).map_err(error::exceeded)
    }

    /// Opens a session at the bus for a client of this name. Once its client is ready it receives all lists
    /// that are not empty.
    ///
    /// # Errors
    /// A server that is full or stopping.
    pub(crate) async fn open_session(
        &self,
        revision: Revision,
        lifetime: SessionLifetime,
        caller: &Caller,
        client: &str,
    ) -> Result<Arc<McpSession>, ErrorData> {
        let mut options = session_options(SubscriberKind::Session, revision, self.transport);
        options.client = Some(client.into());
        if revision.rules().sends_list_changes {
            options.lists = ListKind::ALL.to_vec();
        }
        options.allowance = self.allowance(caller);
        options.announce = self.options.session.announce_on_connect;
        options.subscriptions_max = self.options.session.subscriptions_max;
        options.pending_subscriptions = self.options.session.pending_subscriptions;
        let age = match lifetime {
            SessionLifetime::Connection => None,
            SessionLifetime::Limited => Some(Duration::ZERO),
            SessionLifetime::Resumed { age } => Some(age),
        };
        if let Some(age) = age {
            options.awaits_ready = true;
            options.idle_timeout = Some(self.options.session.idle_timeout);
            options.stall_timeout = self.options.session.stall_timeout;
            let age_max = self.options.session.age_max;
            options.age_max = age_max.map(|max| max.saturating_sub(age));
        }
        let grant = Grant::of(caller);
        options.viewer = grant.clone().map(|grant| grant as Arc<dyn Viewer>);
        let opened = self.bus.open(options).await;
        let session = Arc::new(opened.map_err(|refusal| error::open(&refusal))?);
        if let Some(grant) = &grant {
            grant.end_streams_at_expiry(&session);
        }
        Ok(Arc::new(McpSession {
            session,
            grant,
            revision,
            log_threshold: LogThreshold::default(),
            calls: RunningCalls::default(),
            metrics: self.metrics.clone(),
            pump_stage: Arc::new(watch::Sender::new(PumpStage::Waiting)),
            shared: OnceLock::new(),
        }))
    }
}

/// The rule by which a session ends when its client stays silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionLifetime {
    /// The session ends with its connection, which is the client's sign of life.
    Connection,
    /// The session ends by the time-outs of [`McpOptions`].
    Limited,
    /// The same, and it has been open for this long at another node.
    Resumed {
        /// The time since it was opened.
        age: Duration,
    },
}

/// The session of one client of an older revision.
#[derive(Debug)]
pub(crate) struct McpSession {
    /// The session at the bus.
    pub(crate) session: Arc<Session>,
    /// The rights of the principal that it belongs to; none if the service has no border.
    pub(crate) grant: Option<Arc<Grant>>,
    /// The negotiated revision.
    pub(crate) revision: Revision,
    /// The log messages that the client wants.
    pub(crate) log_threshold: LogThreshold,
    /// The tool calls that the client can cancel; unused on stdio, where rmcp knows them.
    pub(crate) calls: RunningCalls,
    pub(crate) metrics: McpMetrics,
    /// The progress of the session's pump; unused on HTTP, where the streams are ours.
    pub(crate) pump_stage: Arc<watch::Sender<PumpStage>>,
    /// The record by which other nodes know the session; none on a node that is alone.
    pub(crate) shared: OnceLock<Arc<SharedSession>>,
}

/// The place where `initialize` leaves the session that it opened, for the transport to find.
pub(crate) type SessionSlot = Arc<OnceLock<Arc<McpSession>>>;

/// The progress of a session's pump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpStage {
    /// The client is not ready, or its first list changes are still being collected.
    Waiting,
    /// The pump sends notifications.
    Running,
    /// The session ended and everything was sent, or the client is gone.
    Done,
}

/// The least severe log messages that a session's client wants; [`LogLevel::Info`] until the client chooses.
#[derive(Debug)]
pub(crate) struct LogThreshold(AtomicU8);

impl Default for LogThreshold {
    fn default() -> LogThreshold {
        LogThreshold(AtomicU8::new(LogLevel::Info as u8))
    }
}

impl LogThreshold {
    /// Sets the threshold, also for calls that are running.
    pub(crate) fn set(&self, level: LogLevel) {
        // Relaxed: a message that races with the request may be judged by either level.
        self.0.store(level as u8, Ordering::Relaxed);
    }

    /// Returns the threshold as its place among all levels.
    pub(crate) fn place(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the threshold by its place among all levels; one that there is not changes nothing.
    pub(crate) fn set_place(&self, place: u8) {
        if let Some(level) = LogLevel::ALL.get(usize::from(place)) {
            self.set(*level);
        }
    }

    /// Returns true when the client wants messages of this level.
    pub(crate) fn admits(&self, level: LogLevel) -> bool {
        level as u8 >= self.0.load(Ordering::Relaxed)
    }
}

impl McpSession {
    /// Returns true if the session belongs to the principal of `caller`. A new credential of it carries the
    /// session on.
    pub(crate) fn admits(&self, caller: Option<&Caller>) -> bool {
        let Some(grant) = &self.grant else {
            return true;
        };
        let Some(caller) = caller.filter(|caller| grant.belongs_to(caller)) else {
            return false;
        };
        if grant.renew(caller) {
            grant.end_streams_at_expiry(&self.session);
        }
        true
    }

    /// Has the record of the session written soon, if it has one.
    pub(crate) fn save_soon(self: &Arc<Self>) {
        if let Some(shared) = self.shared.get() {
            shared.save_soon(self);
        }
    }

    /// Starts the pump that sends the session's notifications to `peer` until either of them ends.
    pub(crate) async fn start_pump(&self, peer: Peer<RoleServer>, progress: Option<&Arc<WriteProgress>>) {
        // The reader comes first: it must exist when `ready` marks the first list changes.
        let reader = self.session.reader();
        // The bytes are written by rmcp's task, so the reader cannot count them itself.
        if let Some(progress) = progress {
            reader.count_bytes_of(progress.clone());
        }
        let stage = self.pump_stage.clone();
        if self.session.ready().await.is_err() {
            stage.send_replace(PumpStage::Done);
            return;
        }
        stage.send_replace(PumpStage::Running);
        let metrics = self.metrics.clone();
        // A task of its own: rmcp keeps the handler, and with it the session, for as long as it handles the
        // notification that called this.
        tokio::spawn(async move {
            pump(reader, peer, &metrics).await;
            stage.send_replace(PumpStage::Done);
        });
    }
}

/// Sends the content of a session's outbox to `peer` until either of them ends. One message is in flight at a
/// time, so that changes are conflated in the outbox while the output is blocked.
async fn pump(mut reader: OutboxReader, peer: Peer<RoleServer>, metrics: &McpMetrics) {
    let mut entries = Vec::new();
    loop {
        let drained = reader.drain(&mut entries).await;
        for entry in entries.drain(..) {
            if peer.send_notification(notification(&entry)).await.is_err() {
                // The connection is closed; the transport ends the session.
                return;
            }
            metrics.wrote(&[entry]);
        }
        if let Drained::Ended(_) = drained {
            return;
        }
    }
}
