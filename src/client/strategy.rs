//! The ways to learn of changes, best first.

/// A way to learn of changes. Better strategies order before worse ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum WatchStrategy {
    /// `subscriptions/listen`, of revision 2026-07-28.
    Listen,
    /// `resources/subscribe`, of the older revisions.
    Subscribe,
    /// The tools `get_resource_etag`, `get_resource_etags` and `wait_for_resource_change`, if the server has
    /// them.
    EtagTool,
    /// Repeated `resources/read` and a digest of the contents.
    ReadAndHash,
}

impl WatchStrategy {
    /// All strategies, best first.
    pub const ALL: [WatchStrategy; 4] = [
        WatchStrategy::Listen,
        WatchStrategy::Subscribe,
        WatchStrategy::EtagTool,
        WatchStrategy::ReadAndHash,
    ];

    /// Returns the protocol method or the tool that the strategy uses.
    pub fn method(self) -> &'static str {
        match self {
            WatchStrategy::Listen => "subscriptions/listen",
            WatchStrategy::Subscribe => "resources/subscribe",
            WatchStrategy::EtagTool => "get_resource_etag",
            WatchStrategy::ReadAndHash => "resources/read",
        }
    }

    /// Returns the short name used on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            WatchStrategy::Listen => "listen",
            WatchStrategy::Subscribe => "subscribe",
            WatchStrategy::EtagTool => "etag",
            WatchStrategy::ReadAndHash => "read",
        }
    }

    /// Returns true if the server sends notifications, so that a missing one is a broken promise.
    pub fn is_push(self) -> bool {
        matches!(self, WatchStrategy::Listen | WatchStrategy::Subscribe)
    }
}
