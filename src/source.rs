//! The sources of changes: each one turns something outside into resources, tools and prompts on the bus.
//!
//! A source removes only its own registrations. It offers content; the bus decides whether that is
//! a change.

pub mod collection;
pub mod workspace;
// Shared by the sources that read files.
mod watch;
mod file;
mod turn;

use std::time::{Duration, Instant};

use tidings_actors::{Burst, Bus, Change, Closed, Condition, Outcome, PublishError, Resource, ResourceUri};
use tokio::task::JoinHandle;

pub use turn::SourceTurn;

/// The pause before changes are tried again that the store could not keep. The source waits meanwhile: its
/// next changes would be refused too, and one that it took for published would be missing until it changes.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// Whether a change was one, or the reason for which it was refused.
type Published = Result<bool, PublishError>;

/// The changes that one scan found, as one change of the resource list.
struct SourceBurst<'t> {
    burst: Burst,
    batch_max: usize,
    /// Changes are made as long as it is this node's turn; others count as no change.
    turn: &'t SourceTurn,
}

impl SourceBurst<'_> {
    fn new<'t>(bus: &Bus, turn: &'t SourceTurn) -> SourceBurst<'t> {
        SourceBurst {
            burst: bus.burst(),
            batch_max: bus.limits().batch_max,
            turn,
        }
    }

    /// Makes changes, and returns the outcome of each in the same order.
    async fn publish(&self, changes: Vec<Change>) -> Result<Vec<Published>, Closed> {
        let mut outcomes = Vec::with_capacity(changes.len());
        let mut changes = changes.into_iter();
        while changes.len() > 0 {
            let mut batch = Vec::new();
            for change in changes.by_ref().take(self.batch_max) {
                batch.push((change, Condition::Always));
            }
            outcomes.extend(self.publish_batch(batch).await?);
        }
        Ok(outcomes)
    }

    /// Makes the changes of one batch, again and again while the store cannot keep them.
    async fn publish_batch(&self, batch: Vec<(Change, Condition)>) -> Result<Vec<Published>, Closed> {
        loop {
            // Looked at once: a turn that ends between two looks would leave the batch without a deadline.
            let made = match self.turn.deadline() {
                Some(deadline) if Instant::now() < deadline => {
                    self.burst.update_many_until(batch.clone(), deadline).await
                }
                None if !self.turn.is_shared() => self.burst.update_many(batch.clone()).await,
                // It may end while the store or the cluster cannot keep a batch.
                _ended => return Ok(batch.iter().map(|_| Ok(false)).collect()),
            };
            match made {
                // The changes of a batch are kept together or not at all.
                Ok(results) if results.iter().any(is_unavailable) => tokio::time::sleep(STORE_PAUSE).await,
                Ok(results) => return Ok(results.into_iter().map(|result| Ok(result?.changed)).collect()),
                // Only a stopped bus refuses a batch of this length.
                Err(_closed) => return Err(Closed),
            }
        }
    }

    /// Registers or updates `resources`, and returns the outcome of each in the same order.
    async fn upsert_all(&self, resources: Vec<Resource>) -> Result<Vec<Published>, Closed> {
        self.publish(resources.into_iter().map(Change::Upsert).collect())
            .await
    }

    /// Removes resources, and returns how many of them were there.
    async fn remove_all(&self, uris: &[ResourceUri]) -> Result<usize, Closed> {
        let mut removed = 0;
        for outcome in self
            .publish(uris.iter().cloned().map(Change::Remove).collect())
            .await?
        {
            match outcome {
                Ok(_) => removed += 1,
                // Others may have removed it before, which leaves nothing to do.
                Err(error) => tracing::debug!(%error, "could not remove a resource"),
            }
        }
        Ok(removed)
    }

    /// Announces the change of the resource list, if there is one.
    async fn finish(self) -> Result<(), Closed> {
        match self.burst.finish().await {
            Ok(_) => Ok(()),
            Err(_closed) => Err(Closed),
        }
    }
}

fn is_unavailable(result: &Result<Outcome, PublishError>) -> bool {
    matches!(
        result,
        Err(PublishError::StoreUnavailable { .. } | PublishError::LogUnavailable { .. })
    )
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
