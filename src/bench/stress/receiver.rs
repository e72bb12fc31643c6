//! A receiver of webhooks that stands still when it is told to.
//!
//! Owns a listening socket on loopback and the count of what it took. It verifies nothing: that a signature is right
//! is tested elsewhere; here it is one more subscriber that must not be noticed by the others.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::http::StatusCode;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The receiver; it ends with its handle.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    still: watch::Sender<bool>,
    taken: Arc<AtomicU64>,
    serving: JoinHandle<()>,
}

impl Receiver {
    pub(super) async fn start() -> io::Result<Receiver> {
        let socket = TcpListener::bind("127.0.0.1:0").await?;
        let address = socket.local_addr()?;
        let (still, watching) = watch::channel(false);
        let taken = Arc::new(AtomicU64::new(0));
        let count = taken.clone();
        let take = move || {
            let (mut watching, count) = (watching.clone(), count.clone());
            async move {
                // It fails when the test is over, and then it does not matter what is answered.
                drop(watching.wait_for(|still| !still).await);
                count.fetch_add(1, Ordering::Relaxed);
                StatusCode::NO_CONTENT
            }
        };
        let router = Router::new().fallback(take);
        let serving = tokio::spawn(async move {
            axum::serve(socket, router).await.unwrap_or_default();
        });
        Ok(Receiver {
            address,
            still,
            taken,
            serving,
        })
    }

    pub(super) fn stand_still(&self, still: bool) {
        self.still.send_replace(still);
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
