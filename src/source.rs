//! The sources of changes: each one turns something outside into resources, tools and prompts on the bus.
//!
//! A source removes only its own registrations. It offers content; the bus decides whether that is
//! a change.

pub mod collection;
pub mod workspace;
// Shared by the sources that read files.
mod watch;
mod file;

use futures_util::future::join_all;
use tidings_actors::{Bus, Closed, Outcome, PublishError, Resource, ResourceUri};
use tokio::task::JoinHandle;

/// Changes that are sent to the bus at a time: enough for few commits of a store, and a quarter of those that
/// the bus admits by default, so that other publishers are not held up.
const CONCURRENT_MAX: usize = 256;

/// Registers or updates `resources`, and returns the outcome of each in the same order.
async fn upsert_all(
    bus: &Bus,
    resources: Vec<Resource>,
) -> Result<Vec<Result<Outcome, PublishError>>, Closed> {
    let mut outcomes = Vec::new();
    let mut resources = resources.into_iter();
    loop {
        let mut upserts = Vec::new();
        for resource in resources.by_ref().take(CONCURRENT_MAX) {
            upserts.push(bus.upsert(resource));
        }
        if upserts.is_empty() {
            return Ok(outcomes);
        }
        for outcome in join_all(upserts).await {
            match outcome {
                Err(PublishError::Closed(closed)) => return Err(closed),
                outcome => outcomes.push(outcome),
            }
        }
    }
}

/// Removes resources, and returns how many of them were there.
async fn remove_all(bus: &Bus, uris: &[ResourceUri]) -> Result<usize, Closed> {
    let mut removed = 0;
    for uris in uris.chunks(CONCURRENT_MAX) {
        let mut removals = Vec::new();
        for uri in uris {
            removals.push(bus.remove(uri));
        }
        for outcome in join_all(removals).await {
            match outcome {
                Ok(_) => removed += 1,
                Err(PublishError::Closed(closed)) => return Err(closed),
                // Others may have removed it before, which leaves nothing to do.
                Err(error) => tracing::debug!(%error, "could not remove a resource"),
            }
        }
    }
    Ok(removed)
}

/// Waits for work on a blocking thread, and passes its panic on. Fails when the runtime shuts down.
async fn join_blocking<T>(work: JoinHandle<T>) -> Result<T, Closed> {
    match work.await {
        Ok(done) => Ok(done),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime shuts down, and the bus with it.
        Err(_cancelled) => Err(Closed),
    }
}
