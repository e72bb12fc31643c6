//! The ways to learn of changes, the best first.

/// By which strategy changes become known; the better ones are the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WatchStrategy {
    /// `subscriptions/listen`, of 2026-07-28.
    Listen,
    /// `resources/subscribe`, of the revisions before.
    Subscribe,
    /// The tools `get_resource_etag`, `get_resource_etags` and `wait_for_resource_change`, where the server has them.
    EtagTool,
    /// `resources/read`, again and again, and a digest of what it answers.
    ReadAndHash,
}

impl WatchStrategy {
    /// All of them, the best first.
    pub const ALL: [WatchStrategy; 4] = [
        WatchStrategy::Listen,
        WatchStrategy::Subscribe,
        WatchStrategy::EtagTool,
        WatchStrategy::ReadAndHash,
    ];

    /// The protocol method or the tool behind it.
    pub fn method(self) -> &'static str {
        match self {
            WatchStrategy::Listen => "subscriptions/listen",
            WatchStrategy::Subscribe => "resources/subscribe",
            WatchStrategy::EtagTool => "get_resource_etag",
            WatchStrategy::ReadAndHash => "resources/read",
        }
    }

    /// Its short name, for programs.
    pub fn name(self) -> &'static str {
        match self {
            WatchStrategy::Listen => "listen",
            WatchStrategy::Subscribe => "subscribe",
            WatchStrategy::EtagTool => "etag",
            WatchStrategy::ReadAndHash => "read",
        }
    }

    /// Whether the server speaks first on it, so that its silence means something.
    pub fn is_push(self) -> bool {
        matches!(self, WatchStrategy::Listen | WatchStrategy::Subscribe)
    }
}
