//! A subscription on its way from its session to the Registry, and on to the shard of its subscriber.

use super::decision::Known;
use crate::model::{Cause, Etag, ResourceUri, SubscribeError, SubscriptionRequest, ToldList, ToldResource};
use crate::runtime::Reply;

/// A subscription that the Registry accepted.
#[derive(Debug, Clone)]
pub(crate) struct AcceptedSubscription {
    pub(crate) uri: ResourceUri,
    pub(crate) registration: Known,
    /// The etag that the subscriber holds, if it said so.
    pub(crate) known: Option<Option<String>>,
    /// What another node told the subscriber, for one that comes from there.
    pub(crate) resumed: Option<ResumedSubscription>,
}

/// A subscription that began at another node.
#[derive(Debug, Clone)]
pub(crate) struct ResumedSubscription {
    pub(crate) told: ToldResource,
    /// False if the other node may have told more by now.
    pub(crate) is_sure: bool,
    /// True if the resource is closed to clients.
    pub(crate) is_closed: bool,
}

/// The newest notice of a subscription that began at another node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResumedNotice {
    pub(crate) cause: Cause,
    /// Its offset in the order of the subscriber.
    pub(crate) offset: u64,
    pub(crate) is_pending: bool,
    /// False if it may have been handed out although it is pending.
    pub(crate) is_sure: bool,
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
    /// The newest notice, of a subscription that began at another node.
    pub(crate) resumed: Option<ResumedNotice>,
}

/// Subscribes to each resource.
pub(crate) struct SubscribeUris(
    pub(crate) Vec<SubscriptionRequest>,
    pub(crate) Reply<Vec<Result<Etag, SubscribeError>>>,
);

/// Goes on with the subscriptions of another node, which may have told more by now unless the flag is true.
pub(crate) struct ResumeUris(
    pub(crate) Vec<ToldResource>,
    pub(crate) bool,
    pub(crate) Reply<Vec<Result<Etag, SubscribeError>>>,
);

/// Goes on with the lists of another node, which may have told more by now unless the flag is true.
pub(crate) struct ResumeLists(pub(crate) Vec<ToldList>, pub(crate) bool, pub(crate) Reply<()>);

/// Ends a subscription.
pub(crate) struct UnsubscribeUri(pub(crate) ResourceUri, pub(crate) Reply<bool>);
