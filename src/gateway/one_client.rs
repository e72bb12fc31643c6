//! The client of a connection that has no other, as it is reached while none of its requests is under way.
//!
//! A server may log at any time, and many ask for the roots of their client as soon as they are connected.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientResult, ServerNotification, ServerRequest};
use rmcp::{ErrorData, Peer, RoleServer};
use tokio::sync::{Semaphore, mpsc, watch};

use super::client_log_level::ClientLogLevel;
use super::relay;
use crate::mcp::ClientLine;

/// Messages that wait for the client, and questions that it has not answered. Those beyond are dropped or
/// refused, and counted.
const WAITING_MAX: usize = 256;

/// The time that a question waits for its client. A server is connected to before its client is served.
const CLIENT_WAIT: Duration = Duration::from_secs(30);

/// The client of a connection that has no other.
pub(super) struct OneClient {
    reached: watch::Sender<Option<Arc<ReachedClient>>>,
    notices: mpsc::Sender<ServerNotification>,
    questions: Semaphore,
}

struct ReachedClient {
    line: ClientLine,
    level: Arc<ClientLogLevel>,
}

impl OneClient {
    /// Makes a client that is not there yet.
    pub(super) fn new() -> Arc<OneClient> {
        let (notices, waiting) = mpsc::channel(WAITING_MAX);
        let reached = watch::Sender::new(None);
        tokio::spawn(deliver(reached.subscribe(), waiting));
        Arc::new(OneClient {
            reached,
            notices,
            questions: Semaphore::new(WAITING_MAX),
        })
    }

    /// Takes note of the way to the client, and of the log level that it has set.
    pub(super) fn reach(&self, line: ClientLine, level: Arc<ClientLogLevel>) {
        self.reached
            .send_replace(Some(Arc::new(ReachedClient { line, level })));
    }

    /// Sends the client a notification, once it is there. Returns false if too many wait.
    pub(super) fn tell(&self, notice: ServerNotification) -> bool {
        self.notices.try_send(notice).is_ok()
    }

    /// Asks the client. Returns none if too many questions are open, or the client can be asked only while
    /// one of its requests is under way.
    pub(super) async fn ask(&self, question: ServerRequest) -> Option<Result<ClientResult, ErrorData>> {
        let _place = self.questions.try_acquire().ok()?;
        let peer = self.peer().await?;
        Some(relay::ask(&peer, question).await)
    }

    /// Returns the peer of the client, for which it waits; none if the client has none outside of its
    /// requests, or is not there in time.
    async fn peer(&self) -> Option<Peer<RoleServer>> {
        let mut reached = self.reached.subscribe();
        let waiting = reached.wait_for(Option::is_some);
        let reached = tokio::time::timeout(CLIENT_WAIT, waiting).await.ok()?.ok()?;
        reached.as_ref()?.line.peer().cloned()
    }
}

/// Sends the client what waits for it, until its connection is gone.
async fn deliver(
    mut reached: watch::Receiver<Option<Arc<ReachedClient>>>,
    mut waiting: mpsc::Receiver<ServerNotification>,
) {
    let client = match reached.wait_for(Option::is_some).await {
        Ok(client) => client.clone(),
        // The connection ended before its client came.
        Err(_) => return,
    };
    let Some(client) = client else { return };
    while let Some(notice) = waiting.recv().await {
        if relay::is_wanted(client.level.wanted(), true, &notice) {
            client.line.tell(notice).await;
        }
    }
}
