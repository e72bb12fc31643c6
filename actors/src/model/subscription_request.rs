//! A resource to subscribe to, with the etag that the subscriber holds.

use super::uri::ResourceUri;

/// A resource to subscribe to, with the etag that the subscriber holds.
///
/// A subscriber that was away names its etag, so that it is notified of the difference and of nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionRequest {
    /// The resource.
    pub uri: ResourceUri,
    /// The text of the etag that the subscriber holds, `Some(None)` if it holds none: it is notified at once
    /// if the current etag is another one, and a resource that does not exist is waited for. `None` if the
    /// subscriber did not say: it is notified of later changes alone, and the resource must exist.
    pub known: Option<Option<String>>,
}

impl From<ResourceUri> for SubscriptionRequest {
    fn from(uri: ResourceUri) -> SubscriptionRequest {
        SubscriptionRequest { uri, known: None }
    }
}

/// The limits and rights of a subscriber, as far as subscribing depends on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SubscriptionRules {
    /// The most subscriptions.
    pub(crate) max: usize,
    /// The most of them whose resources do not exist yet.
    pub(crate) pending_max: usize,
    /// Permits URIs that clients may not subscribe to. `pending_max` does not hold then.
    pub(crate) trusted: bool,
}

impl SubscriptionRules {
    /// Those of subscriptions that another node has accepted.
    pub(crate) const RESUMED: SubscriptionRules = SubscriptionRules {
        max: usize::MAX,
        pending_max: usize::MAX,
        trusted: false,
    };
}
