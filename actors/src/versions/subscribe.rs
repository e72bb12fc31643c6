//! The etag at which a subscription begins, and the change that its subscriber has missed.

use std::sync::Arc;

use super::EtagActor;
use super::release::Release;
use crate::messages::{AcceptedSubscription, AddSubscriptions, Known, SettleRights, StampedSubscription};
use crate::model::{Cause, Etag, SubscribeError, SubscriptionRules};
use crate::outbox::Outbox;
use crate::runtime::Reply;

impl EtagActor {
    pub(super) fn subscribe(
        &mut self,
        outbox: Arc<Outbox>,
        accepted: Vec<Result<AcceptedSubscription, SubscribeError>>,
        rules: SubscriptionRules,
        reply: Reply<Vec<Result<Etag, SubscribeError>>>,
    ) {
        let mut stamped = Vec::with_capacity(accepted.len());
        for result in accepted {
            stamped.push(match result {
                Ok(accepted) => Ok(self.stamp_subscription(accepted, rules)),
                Err(error) => Err(error),
            });
        }
        outbox.begin_request();
        self.pass(Release::Subscribe(AddSubscriptions {
            outbox,
            accepted: stamped,
            at: self.visible_position(),
            rules,
            reply,
        }));
    }

    /// Passes the rights of a subscriber on to its shard, at this place in the order of the bus.
    pub(super) fn settle_rights(&mut self, settle: SettleRights) {
        settle.outbox.begin_request();
        let at = self.visible_position();
        self.pass(Release::Settle(settle, at));
    }

    fn stamp_subscription(
        &mut self,
        accepted: AcceptedSubscription,
        rules: SubscriptionRules,
    ) -> StampedSubscription {
        let AcceptedSubscription {
            uri,
            registration,
            known,
        } = accepted;
        let etag = self.visible_etag(&uri, registration);
        let exists = match (registration, self.visible_line(&uri)) {
            // A live line without a registration is of the time before a restart: its publisher comes back
            // with it, and a subscriber that holds its etag has missed nothing.
            (Known::Absent, Some(line)) => line.is_live(),
            (Known::Absent, None) => false,
            (Known::Registered | Known::Member(_), _) => true,
        };
        let missed = match known {
            Some(held) if exists && etag.is_stale(held.as_deref()) => Some(Cause::Updated),
            // A subscriber that holds no etag has missed nothing of a resource that is not there. Without a
            // kept removal the resource may only be late: its publisher may come after its subscribers.
            Some(Some(held)) if !exists && etag != Etag::UNKNOWN && etag.is_stale(Some(&held)) => {
                Some(Cause::Removed)
            }
            _ => None,
        };
        StampedSubscription {
            uri,
            etag,
            awaited: !exists && !rules.trusted,
            missed,
        }
    }
}
