//! A subscription on its way from the Registry to the shard of its subscriber.

use super::decision::Known;
use crate::model::{Cause, Etag, ResourceUri};

/// A subscription that the Registry accepted.
#[derive(Debug, Clone)]
pub(crate) struct AcceptedSubscription {
    pub(crate) uri: ResourceUri,
    pub(crate) registration: Known,
    /// The etag that the subscriber holds, if it said so.
    pub(crate) known: Option<Option<String>>,
}

/// A subscription with the etag at which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StampedSubscription {
    pub(crate) uri: ResourceUri,
    pub(crate) etag: Etag,
    /// True if there is no resource yet, and the subscriber must not learn of one that is closed to it.
    pub(crate) awaited: bool,
    /// The change to notify the subscriber of at once, since it holds another etag.
    pub(crate) missed: Option<Cause>,
}
