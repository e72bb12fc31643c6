//! Why a subscriber ended.
//!
//! Owns: the reasons and their names, which are the labels of counters and logs. Never: words them for clients, who do
//! not know what a bus is.

/// Why a subscriber's outbox ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndReason {
    /// The subscriber said so, or dropped its handle.
    Closed,
    /// It had neither a stream nor a request for too long.
    Idle,
    /// It had a stream that took nothing of what waited for it for too long.
    Stalled,
    /// The connection of its stream was closed, since its far end took nothing of what was written for too long.
    WriteTimeout,
    /// It reached the greatest age.
    Expired,
    /// An operator ended it.
    Evicted,
    /// The bus is shutting down; everything pending was handed out first.
    Shutdown,
    /// An actor died.
    Failed,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [EndReason; 8] = [
        EndReason::Closed,
        EndReason::Idle,
        EndReason::Stalled,
        EndReason::WriteTimeout,
        EndReason::Expired,
        EndReason::Evicted,
        EndReason::Shutdown,
        EndReason::Failed,
    ];

    /// The reason as it is written in labels and logs.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Closed => "closed",
            EndReason::Idle => "idle",
            EndReason::Stalled => "stalled",
            EndReason::WriteTimeout => "write_timeout",
            EndReason::Expired => "expired",
            EndReason::Evicted => "evicted",
            EndReason::Shutdown => "shutdown",
            EndReason::Failed => "failed",
        }
    }

    /// Whether the bus ended a subscriber that was still there, while it goes on serving the others.
    pub fn is_eviction(self) -> bool {
        matches!(self, EndReason::Stalled | EndReason::Expired | EndReason::Evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_name_of_its_own_in_the_order_in_which_they_are_listed() {
        let names: std::collections::BTreeSet<_> =
            EndReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), EndReason::ALL.len());
        for (index, reason) in EndReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
