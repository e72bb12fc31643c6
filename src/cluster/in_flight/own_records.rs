//! The records of this node that are told from its table instead of from their deliveries.

use tidings_actors::shared_log::{Heard, LogEntry, OperationId};

use super::InFlight;

/// The most proposals in flight with which records are told before their deliveries. With more, deliveries
/// come in batches, which wake the node less often than answers do.
pub(super) const TOLD_EARLY_MAX: usize = 32;

/// A record of this node that is told from here instead of from a delivery.
#[derive(Debug)]
pub(crate) struct OwnRecord {
    pub(crate) sequence: u64,
    pub(crate) operation: OperationId,
    pub(crate) entry: LogEntry,
    /// The ends that are due after it.
    pub(crate) ended: Vec<Heard>,
}

impl InFlight {
    /// True if a record of this node was stored below `sequence`, and is not told yet. The log does not have
    /// it any more, as a newer one of its URI came before it was heard; its place in the order is known.
    pub(in crate::cluster) fn has_overtaken(&self, sequence: u64) -> bool {
        matches!(self.stored.first_key_value(), Some((first, _)) if *first < sequence)
    }

    /// True if the next place of the log is that of a record of this node, which is told before it is
    /// delivered.
    pub(in crate::cluster) fn has_next(&self) -> bool {
        let Some((first, token)) = self.stored.first_key_value() else {
            return false;
        };
        let is_early = *first == self.told + 1 && self.entries.len() <= TOLD_EARLY_MAX;
        is_early && matches!(self.entries.get(token), Some(entry) if !entry.needs_delivery())
    }

    /// Takes out the first stored record of this node, which is told from then on.
    pub(in crate::cluster) fn take_stored(&mut self) -> Option<OwnRecord> {
        let (sequence, token) = self.stored.pop_first()?;
        let entry = self.remove(token)?;
        self.metrics.propose.record(entry.began.elapsed().as_secs_f64());
        Some(OwnRecord {
            sequence,
            operation: entry.operation,
            ended: self.told(sequence, entry.operation, &entry.entry),
            entry: entry.entry,
        })
    }
}
