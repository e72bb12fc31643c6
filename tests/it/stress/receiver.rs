//! A receiver of webhooks that hangs on demand. It verifies no signature: other tests do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The receiver; it ends with the runtime of the test.
#[derive(Debug)]
pub(super) struct SlowReceiver {
    pub(super) address: SocketAddr,
    hangs: watch::Sender<bool>,
    accepted: Arc<AtomicU64>,
}

impl SlowReceiver {
    pub(super) async fn start() -> SlowReceiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (hangs, hanging) = watch::channel(false);
        let accepted = Arc::new(AtomicU64::new(0));
        let router = Router::new()
            .fallback(accept)
            .with_state((hanging, accepted.clone()));
        tokio::spawn(axum::serve(listener, router).into_future());
        SlowReceiver {
            address,
            hangs,
            accepted,
        }
    }

    /// Makes it hang, or answer again.
    pub(super) fn hang(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }

    /// Returns the number of deliveries that were answered.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

async fn accept(
    State((mut hanging, accepted)): State<(watch::Receiver<bool>, Arc<AtomicU64>)>,
) -> StatusCode {
    if hanging.wait_for(|hangs| !hangs).await.is_err() {
        // The test is over.
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    accepted.fetch_add(1, Ordering::Relaxed);
    StatusCode::NO_CONTENT
}
