//! The requests by which a server is asked to announce changes.

#![expect(deprecated, reason = "the older revisions have no other subscription")]

use std::collections::BTreeSet;
use std::time::Duration;

use rmcp::model::{SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams};

use super::connection::UpstreamConnection;

/// The time that the server may take to begin or end an announcement.
pub(super) const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns everything that a server of 2026-07-28 can announce of its lists and of these resources.
pub(super) fn filter(connection: &UpstreamConnection, uris: &BTreeSet<String>) -> SubscriptionFilter {
    let capabilities = &connection.info().capabilities;
    let mut filter = SubscriptionFilter::default();
    if let Some(resources) = &capabilities.resources {
        filter.resources_list_changed = resources.list_changed;
    }
    if let Some(tools) = &capabilities.tools {
        filter.tools_list_changed = tools.list_changed;
    }
    if let Some(prompts) = &capabilities.prompts {
        filter.prompts_list_changed = prompts.list_changed;
    }
    if !uris.is_empty() {
        filter.resource_subscriptions = Some(uris.iter().cloned().collect());
    }
    filter
}

/// Has an older server announce changes of a resource. Returns false if it does not.
pub(super) async fn begin(connection: &UpstreamConnection, uri: &str) -> bool {
    let subscribing = connection.peer().subscribe(SubscribeRequestParams::new(uri));
    match tokio::time::timeout(ANNOUNCE_TIMEOUT, subscribing).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::debug!(%error, uri, "the server does not announce changes of a resource");
            false
        }
        Err(_) => false,
    }
}

/// Ends the announcements of a resource by an older server.
pub(super) async fn end(connection: &UpstreamConnection, uri: &str) {
    let unsubscribing = connection.peer().unsubscribe(UnsubscribeRequestParams::new(uri));
    if let Ok(Err(error)) = tokio::time::timeout(ANNOUNCE_TIMEOUT, unsubscribing).await {
        tracing::debug!(%error, uri, "a subscription at the server could not be ended");
    }
}
