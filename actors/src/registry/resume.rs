//! The subscriptions of a session that comes from another node.

use super::Registry;
use crate::messages::{AcceptedSubscription, Known, ResumedSubscription};
use crate::model::{SubscribeError, ToldResource};
use crate::outbox::Outbox;

impl Registry {
    /// Accepts what another node has accepted, also where the resource is gone by now. A right that ended
    /// meanwhile ends its subscription.
    pub(super) fn resume(
        &self,
        outbox: &Outbox,
        told: Vec<ToldResource>,
        is_sure: bool,
    ) -> Vec<Result<AcceptedSubscription, SubscribeError>> {
        let mut accepted = Vec::with_capacity(told.len());
        for told in told {
            let uri = told.uri.clone();
            if !outbox.may_be_told(&uri) {
                accepted.push(Err(SubscribeError::NotFound(uri)));
                continue;
            }
            let (registration, is_closed) = match self.catalog.subscribable(&uri, false) {
                Ok(Some(family)) => (Known::Member(family), false),
                Ok(None) => (Known::Registered, false),
                // It waits until the resource is open, as it does on a node that saw it being closed.
                Err(SubscribeError::NotSubscribable(_)) => (Known::Registered, true),
                Err(_) => (Known::Absent, false),
            };
            accepted.push(Ok(AcceptedSubscription {
                uri,
                registration,
                known: None,
                resumed: Some(ResumedSubscription {
                    told,
                    is_sure,
                    is_closed,
                }),
            }));
        }
        accepted
    }
}
