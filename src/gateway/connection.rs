//! One connection to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, GetExtensions, ProtocolVersion, RequestMetaObject, ServerPeerInfo};
use rmcp::service::{
    Peer, PeerRequestOptions, RunningService, RunningServiceCancellationToken, Service, ServiceError,
};
use tokio::sync::watch;

use super::call::Call;
use super::failure;
use super::hearing::{self, Hearing};

/// The longest time of one request, however much progress it reports.
const CALL_MAX: Duration = Duration::from_secs(60 * 60);

/// Tells that a connection has ended.
#[derive(Debug, Clone)]
pub(super) struct ConnectionEnd(Arc<watch::Sender<bool>>);

impl ConnectionEnd {
    pub(super) fn new() -> ConnectionEnd {
        ConnectionEnd(Arc::new(watch::Sender::new(false)))
    }

    pub(super) fn set(&self) {
        self.0.send_replace(true);
    }

    pub(super) fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the end.
    pub(super) async fn wait(&self) {
        // The sender is this one's, so it cannot be gone.
        drop(self.0.subscribe().wait_for(|is_lost| *is_lost).await);
    }
}

/// One connection to the server, until it ends or is dropped.
pub(super) struct UpstreamConnection {
    peer: Peer<RoleClient>,
    info: Arc<ServerPeerInfo>,
    hearing: Arc<Hearing>,
    lost: ConnectionEnd,
    pid: Option<u32>,
    /// True once the server at this end has refused to begin with `initialize`.
    refuses_initialize: AtomicBool,
    /// Taken when the connection is closed.
    stop: Option<RunningServiceCancellationToken>,
}

impl UpstreamConnection {
    /// Takes charge of a connection whose handshake is done.
    pub(super) fn new<S: Service<RoleClient>>(
        running: RunningService<RoleClient, S>,
        info: Arc<ServerPeerInfo>,
        hearing: Arc<Hearing>,
        lost: ConnectionEnd,
    ) -> UpstreamConnection {
        // Taken now, since the task below takes the rest.
        let peer = running.peer().clone();
        let stop = Some(running.cancellation_token());
        let ended = lost.clone();
        tokio::spawn(async move {
            if let Err(error) = running.waiting().await {
                tracing::warn!(%error, "the task of a connection to the server behind the gateway failed");
            }
            ended.set();
        });
        UpstreamConnection {
            peer,
            info,
            hearing,
            lost,
            pid: None,
            refuses_initialize: AtomicBool::new(false),
            stop,
        }
    }

    /// Notes the process at the other end.
    pub(super) fn of_process(mut self, pid: Option<u32>) -> UpstreamConnection {
        self.pid = pid;
        self
    }

    /// The id of the server's process, if it is a program of the gateway.
    pub(super) fn pid(&self) -> Option<u32> {
        self.pid
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// What the server says of itself.
    pub(super) fn info(&self) -> &Arc<ServerPeerInfo> {
        &self.info
    }

    pub(super) fn lost(&self) -> &ConnectionEnd {
        &self.lost
    }

    /// Takes note of an error after which the connection cannot be used.
    pub(super) fn note(&self, error: &ServiceError) {
        if failure::ends_connection(error) {
            self.lost.set();
        }
    }

    /// Returns true if the revision of the connection has no sessions.
    pub(super) fn is_stateless(&self) -> bool {
        self.info.protocol_version >= ProtocolVersion::V_2026_07_28
    }

    /// Returns true if the server speaks no revision that begins with `initialize`, as far as is known. Asked
    /// again of each new connection: the server may be another one, and a refusal may have been its end.
    pub(super) fn refuses_initialize(&self) -> bool {
        self.refuses_initialize.load(Ordering::Relaxed)
    }

    pub(super) fn note_refused_initialize(&self) {
        self.refuses_initialize.store(true, Ordering::Relaxed);
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) async fn begin(
        self: &Arc<Self>,
        mut request: ClientRequest,
        meta: RequestMetaObject,
        timeout: Duration,
    ) -> Result<Call, ServiceError> {
        let (heard_by, heard) = hearing::channel();
        request.extensions_mut().insert(heard_by);
        // A server that reports progress is at work, however long that takes.
        let options = PeerRequestOptions::with_timeout(timeout)
            .reset_timeout_on_progress()
            .with_max_total_timeout(CALL_MAX)
            .with_meta(meta);
        let handle = self.peer.send_cancellable_request(request, options).await?;
        Ok(Call::new(self.clone(), handle, heard))
    }

    pub(super) fn hearing(&self) -> &Hearing {
        &self.hearing
    }
}

impl Drop for UpstreamConnection {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.cancel();
        }
    }
}
