//! The reasons for which a subscriber ends. Their names are labels of metrics and fields of logs; transports
//! word them for their clients.

/// The reason for which the outbox of a subscriber ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The subscriber closed it or dropped its handle.
    Closed,
    /// It had neither a stream nor a request for longer than the idle time-out.
    Idle,
    /// Its stream took nothing of the pending entries for longer than the stall time-out.
    Stalled,
    /// The connection of its stream was closed because the peer took no bytes for too long.
    WriteTimeout,
    /// It reached the maximum age.
    Expired,
    /// An operator ended it.
    Evicted,
    /// The bus was full, and its client was not ready yet.
    NotReady,
    /// Its credential expired or was revoked. Only its streams end for this reason; the subscriber goes on
    /// with another credential until its idle time-out.
    Unauthorized,
    /// Another node of the cluster goes on with it, and tells what was pending.
    Moved,
    /// The bus is shutting down; everything pending was handed out first.
    Shutdown,
    /// A core actor died.
    Failed,
}

impl EndReason {
    /// All reasons, in the order of the variants.
    pub const ALL: [EndReason; 11] = [
        EndReason::Closed,
        EndReason::Idle,
        EndReason::Stalled,
        EndReason::WriteTimeout,
        EndReason::Expired,
        EndReason::Evicted,
        EndReason::NotReady,
        EndReason::Unauthorized,
        EndReason::Moved,
        EndReason::Shutdown,
        EndReason::Failed,
    ];

    /// The reason as written in labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Closed => "closed",
            EndReason::Idle => "idle",
            EndReason::Stalled => "stalled",
            EndReason::WriteTimeout => "write_timeout",
            EndReason::Expired => "expired",
            EndReason::Evicted => "evicted",
            EndReason::NotReady => "not_ready",
            EndReason::Unauthorized => "unauthorized",
            EndReason::Moved => "moved",
            EndReason::Shutdown => "shutdown",
            EndReason::Failed => "failed",
        }
    }

    /// Returns true if the bus ended a live subscriber or its stream and continues to serve the others.
    pub fn is_eviction(self) -> bool {
        matches!(
            self,
            EndReason::Stalled
                | EndReason::Expired
                | EndReason::Evicted
                | EndReason::NotReady
                | EndReason::Unauthorized
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_all_is_in_order() {
        let names: std::collections::BTreeSet<_> =
            EndReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), EndReason::ALL.len());
        for (index, reason) in EndReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
