//! The revisions of the protocol.

use rmcp::model::ProtocolVersion;

/// A revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// 2024-11-05.
    R2024_11_05,
    /// 2025-03-26: may send batches; is never told of list changes.
    R2025_03_26,
    /// 2025-06-18.
    R2025_06_18,
    /// 2025-11-25: streams begin with a priming event.
    R2025_11_25,
    /// 2026-07-28: no sessions; streams are opened by `subscriptions/listen`.
    R2026_07_28,
}

impl Revision {
    /// All revisions, oldest first.
    pub const ALL: [Revision; 5] = [
        Revision::R2024_11_05,
        Revision::R2025_03_26,
        Revision::R2025_06_18,
        Revision::R2025_11_25,
        Revision::R2026_07_28,
    ];

    /// The revision of that date.
    pub fn parse(date: &str) -> Option<Revision> {
        Revision::ALL
            .into_iter()
            .find(|revision| revision.as_str() == date)
    }

    /// Its date, as it is written on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Revision::R2024_11_05 => "2024-11-05",
            Revision::R2025_03_26 => "2025-03-26",
            Revision::R2025_06_18 => "2025-06-18",
            Revision::R2025_11_25 => "2025-11-25",
            Revision::R2026_07_28 => "2026-07-28",
        }
    }

    /// Whether every request stands for itself (2026-07-28) rather than in a session.
    pub fn is_stateless(self) -> bool {
        self >= Revision::R2026_07_28
    }

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
