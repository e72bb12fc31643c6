//! Purges the records of removed URIs, once every node has forgotten them.

use async_nats::jetstream::stream::Stream;
use futures_util::future::join_all;
use tidings_actors::shared_log::FloorStep;
use tidings_actors::{Bus, ResourceUri};
use tokio::time::Instant;

use crate::cluster::names::LogNames;
use crate::cluster::presence::{GONE_AFTER, have_all_applied};
use crate::cluster::shared_state::SharedState;
use crate::metrics::JanitorMetrics;

/// The records that are purged at a time.
const PURGES_AT_ONCE: usize = 16;

/// Forgetting removed URIs.
pub(super) struct Floors {
    state: SharedState,
    metrics: JanitorMetrics,
    names: LogNames,
    removed_max: usize,
    /// The floor that is not done, and the time since which it is known.
    waiting: Option<(u64, Instant)>,
    /// The floor that is done.
    purged: Option<u64>,
}

impl Floors {
    pub(super) fn new(state: &SharedState, removed_max: usize, metrics: JanitorMetrics) -> Floors {
        Floors {
            names: LogNames::new(state.namespace()),
            state: state.clone(),
            metrics,
            removed_max,
            waiting: None,
            purged: None,
        }
    }

    /// Takes the next step.
    pub(super) async fn step(&mut self, bus: &Bus) -> Result<(), String> {
        let step = bus.forget_removed(self.removed_max, self.purged.take()).await;
        let (floor, records) = match step {
            Ok(FloorStep::Purge { floor, records }) => (floor, records),
            Ok(FloorStep::Nothing | FloorStep::Proposed) | Err(_) => return Ok(()),
        };
        let since = match self.waiting {
            Some((waiting, since)) if waiting == floor => since,
            _ => Instant::now(),
        };
        self.waiting = Some((floor, since));
        // A node that has just begun to read the log may not be heard of before.
        if since.elapsed() < GONE_AFTER || !have_all_applied(&self.state, floor) {
            return Ok(());
        }
        // Told as done only afterwards, so that one that fails half-way is done again.
        let purged = self.purge(&records).await?;
        self.metrics.forgotten.increment(records.len() as u64);
        self.purged = Some(floor);
        tracing::debug!(
            floor,
            purged,
            named = records.len(),
            "removed resources are forgotten"
        );
        Ok(())
    }

    /// Purges the records, unless newer ones have replaced them. Returns the number of those that were there.
    async fn purge(&self, records: &[(ResourceUri, u64)]) -> Result<u64, String> {
        let context = self.state.context().await.map_err(|error| error.to_string())?;
        let log = context.get_stream_no_info(&self.names.records).await;
        let log = log.map_err(|error| error.to_string())?;
        let mut purged = 0;
        for batch in records.chunks(PURGES_AT_ONCE) {
            let mut purges = Vec::new();
            for (uri, sequence) in batch {
                purges.push(purge_one(log.clone(), self.names.resource(uri), *sequence));
            }
            for done in join_all(purges).await {
                purged += done?;
            }
        }
        Ok(purged)
    }
}

async fn purge_one(log: Stream<()>, subject: String, sequence: u64) -> Result<u64, String> {
    // Up to this record, so that a newer one stays whatever happens meanwhile.
    let purge = log.purge().filter(subject.as_str()).sequence(sequence + 1);
    match purge.await {
        Ok(done) => Ok(done.purged),
        Err(error) => Err(format!("the record at {subject} is not purged: {error}")),
    }
}
