//! The messages to the program that has started the service, such as systemd: ready, reloading, stopping.
//!
//! They go to the socket that `NOTIFY_SOCKET` names; without the variable there is no one to tell.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::debug;

/// Time for a message to be taken. The service goes on without a supervisor that reads nothing.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The program that has started the service.
#[derive(Debug, Clone, Default)]
pub(super) struct Supervisor {
    /// False until the service is ready, and again once it stops: the end of a reload is told between the two
    /// alone, since its message is that of readiness.
    is_ready: Arc<AtomicBool>,
}

impl Supervisor {
    /// Tells that everything is served, from the moment at which `/readyz` says so.
    pub(super) async fn ready(&self) {
        self.is_ready.store(true, Ordering::Release);
        send(|| sd_notify::notify(&[NotifyState::Ready, NotifyState::Status("ready")])).await;
    }

    /// Tells that the configuration is read again.
    pub(super) async fn reloading(&self) {
        if self.is_ready.load(Ordering::Acquire) {
            // With its time, by which the supervisor tells this reload from an earlier one.
            send(|| sd_notify::notify(&[NotifyState::Reloading, NotifyState::monotonic_usec_now()?])).await;
        }
    }

    /// Tells that the configuration has been read again, and whether it is in use now.
    pub(super) async fn reloaded(&self, is_used: bool) {
        let status = match is_used {
            true => "ready",
            false => "ready; the last reload changed nothing, since its configuration cannot be used",
        };
        if self.is_ready.load(Ordering::Acquire) {
            send(move || sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)])).await;
        }
    }

    /// Tells that the service stops.
    pub(super) async fn stopping(&self) {
        self.is_ready.store(false, Ordering::Release);
        send(|| sd_notify::notify(&[NotifyState::Stopping, NotifyState::Status("stopping")])).await;
    }
}

/// Sends a message. One that is not taken is dropped, as the service works without.
async fn send(message: impl FnOnce() -> io::Result<()> + Send + 'static) {
    // On a thread of its own: the socket blocks while its reader is behind.
    let sent = tokio::task::spawn_blocking(message);
    match tokio::time::timeout(SEND_TIMEOUT, sent).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => debug!(%error, "NOTIFY_SOCKET takes no message"),
        Ok(Err(error)) => debug!(%error, "the message to NOTIFY_SOCKET was not sent"),
        Err(_) => debug!("NOTIFY_SOCKET took no message in time"),
    }
}
