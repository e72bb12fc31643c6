//! The reader of a listen stream.

use std::sync::Arc;

use rmcp::model::{GetMeta, ServerNotification};
use rmcp::service::{Subscription, SubscriptionEnd};
use tokio::sync::oneshot;

use super::super::error::reason;
use super::super::inbox::Inbox;
use super::super::version::etag_of;
use crate::ListKind;

/// Moves the notifications of a listen stream into the inbox, until the stream ends or is stopped.
pub(super) async fn pump(
    mut subscription: Subscription,
    inbox: Arc<Inbox>,
    mut stopped: oneshot::Receiver<()>,
) {
    loop {
        let next = tokio::select! {
            biased;
            _ = &mut stopped => {
                if let Err(error) = subscription.cancel().await {
                    tracing::debug!(%error, "a listen stream could not be cancelled");
                }
                return;
            }
            next = subscription.next() => next,
        };
        match next {
            Ok(Some(notification)) => {
                let etag = etag_of(notification.get_meta());
                match notification {
                    ServerNotification::ResourceUpdatedNotification(update) => {
                        inbox.updated(&update.params.uri, etag);
                    }
                    ServerNotification::ResourceListChangedNotification(_) => {
                        inbox.list_changed(ListKind::Resources);
                    }
                    ServerNotification::ToolListChangedNotification(_) => {
                        inbox.list_changed(ListKind::Tools);
                    }
                    ServerNotification::PromptListChangedNotification(_) => {
                        inbox.list_changed(ListKind::Prompts);
                    }
                    _ => {}
                }
            }
            Ok(None) => return inbox.lost(end_reason(subscription.end())),
            Err(error) => return inbox.lost(reason(&error)),
        }
    }
}

fn end_reason(end: Option<&SubscriptionEnd>) -> &'static str {
    match end {
        Some(SubscriptionEnd::Graceful(_)) => "the server ended the stream",
        Some(SubscriptionEnd::Cancelled) => "the server cancelled the stream",
        Some(SubscriptionEnd::Lagged { .. }) => "notifications came faster than they were taken",
        _ => "the stream broke off",
    }
}
