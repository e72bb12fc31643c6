//! The watching client against real servers: over sockets and pipes, in both eras, and by every strategy.

mod server;

mod watching;
mod strategies;

use std::time::Duration;

/// Awaits `work`, and fails the test when it takes too long.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(40), work)
        .await
        .expect("it happens within the deadline")
}
