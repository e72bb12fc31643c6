//! The revisions of the protocol.

use rmcp::model::ProtocolVersion;

pub use crate::wire::dialect::Revision;

impl Revision {
    /// Whether a session of this revision is told of list changes without asking.
    pub(crate) fn tells_lists(self) -> bool {
        !self.is_stateless() && self != Revision::R2025_03_26
    }

    /// Whether a POST body may be a JSON array of messages.
    pub(crate) fn takes_batches(self) -> bool {
        self == Revision::R2025_03_26
    }

    /// Whether a stream begins with an event without data that gives the client an id to resume from.
    pub(crate) fn primes_streams(self) -> bool {
        self == Revision::R2025_11_25
    }

    /// Whether progress may be told with a text.
    pub(crate) fn words_progress(self) -> bool {
        self != Revision::R2024_11_05
    }

    pub(crate) fn of(version: Option<&ProtocolVersion>) -> Revision {
        // A request without a version is one of a client that had no way to say it.
        version
            .and_then(|version| Revision::parse(version.as_str()))
            .unwrap_or(Revision::R2025_03_26)
    }
}
