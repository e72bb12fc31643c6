//! The etag at which a subscription begins, and the change that its subscriber has missed.

use std::sync::Arc;

use super::EtagActor;
use super::release::Release;
use crate::messages::{
    AcceptedSubscription, AddSubscriptions, Known, ResumedNotice, ResumedSubscription, SettleRights,
    StampedSubscription,
};
use crate::model::{Cause, Etag, LineState, ResourceUri, SubscribeError, SubscriptionRules};
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
            resumed,
        } = accepted;
        let is_closed = matches!(&resumed, Some(resumed) if resumed.is_closed);
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
            resumed: match resumed {
                Some(resumed) if !resumed.is_closed => self.resumed_notice(&uri, etag, &resumed),
                _ => None,
            },
            uri,
            etag,
            awaited: (!exists || is_closed) && !rules.trusted,
            missed,
        }
    }

    /// Compares what another node told with the current line; none if the subscriber knows it.
    fn resumed_notice(
        &self,
        uri: &ResourceUri,
        etag: Etag,
        resumed: &ResumedSubscription,
    ) -> Option<ResumedNotice> {
        let told = &resumed.told;
        let line = self.visible_line(uri);
        let has_changed = etag.version > told.version;
        if !has_changed && (told.offset == 0 || etag.version < told.version) {
            return None;
        }
        Some(ResumedNotice {
            cause: match line {
                Some(line) if line.state == LineState::Removed => Cause::Removed,
                _ => Cause::Updated,
            },
            offset: match line {
                Some(line) if has_changed => line.offset,
                // A member of a template that began with it.
                None if has_changed => self.visible_position().offset,
                _ => told.offset,
            },
            is_pending: has_changed || told.is_pending,
            // A change after all that the other node said may have been told by it.
            is_sure: resumed.is_sure,
        })
    }
}
