//! The resources of which a server is asked to announce changes, and the requests for it.

#![expect(deprecated, reason = "the older revisions have no other subscription")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::connection::UpstreamConnection;

/// The time that the server may take to begin or end an announcement.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(2);

/// The resources of one server, by its own names.
#[derive(Default)]
pub(super) struct Announcements {
    /// Those that the server was asked to announce.
    announced: BTreeSet<String>,
    /// Those that it does not announce.
    silent: BTreeSet<String>,
    /// The listen stream of 2026-07-28.
    stream: Option<JoinHandle<()>>,
    /// Tells that the server has ended it.
    stream_ended: Arc<Notify>,
}

impl Announcements {
    /// Forgets all, since no announcement outlives its connection.
    pub(super) fn begin_anew(&mut self) {
        self.announced.clear();
        self.silent.clear();
    }

    /// The number of resources that the server announces.
    pub(super) fn count(&self) -> usize {
        self.announced.len()
    }

    /// Waits until the server has ended the listen stream.
    pub(super) async fn stream_ended(&self) {
        self.stream_ended.notified().await;
    }

    pub(super) fn end_stream(&mut self) {
        if let Some(stream) = self.stream.take() {
            stream.abort();
        }
    }

    /// Has the server announce changes of these resources, too. A listen stream that has ended is opened
    /// again.
    pub(super) async fn add(&mut self, connection: &UpstreamConnection, mut uris: Vec<String>) {
        uris.retain(|uri| !self.announced.contains(uri) && !self.silent.contains(uri));
        let resources = connection.info().capabilities.resources.as_ref();
        let announces = matches!(resources, Some(resources) if resources.subscribe == Some(true));
        if !connection.is_stateless() {
            for uri in uris {
                if announces && begin(connection, &uri).await {
                    self.announced.insert(uri);
                } else {
                    self.silent.insert(uri);
                }
            }
            return;
        }
        if !announces {
            self.silent.extend(std::mem::take(&mut uris));
        }
        let has_ended = match &self.stream {
            Some(stream) => stream.is_finished(),
            None => true,
        };
        if !uris.is_empty() || has_ended {
            self.announced.extend(uris);
            self.listen(connection).await;
        }
    }

    /// Ends the announcements of all but these resources.
    pub(super) async fn keep(&mut self, connection: &UpstreamConnection, kept: &BTreeSet<String>) {
        self.silent.retain(|uri| kept.contains(uri));
        let ended: Vec<String> = self.announced.difference(kept).cloned().collect();
        for uri in &ended {
            self.announced.remove(uri);
            if !connection.is_stateless() {
                end(connection, uri).await;
            }
        }
        if !ended.is_empty() && connection.is_stateless() {
            self.listen(connection).await;
        }
    }

    /// Opens a listen stream for everything that is to be announced; the last one ends after that.
    async fn listen(&mut self, connection: &UpstreamConnection) {
        let filter = filter(connection, &self.announced);
        if filter == SubscriptionFilter::default() {
            return;
        }
        // Bounded: the watcher has other work, and the next look tries again.
        match tokio::time::timeout(ANNOUNCE_TIMEOUT, connection.peer().listen(filter)).await {
            Ok(Ok(mut stream)) => {
                let has_ended = self.stream_ended.clone();
                let running = tokio::spawn(async move {
                    // Its notices were heard on the transport; this only makes room for the next.
                    while let Ok(Some(_)) = stream.next().await {}
                    has_ended.notify_one();
                });
                self.end_stream();
                self.stream = Some(running);
            }
            Ok(Err(error)) => tracing::debug!(%error, "the server refuses to announce changes"),
            Err(_) => tracing::debug!("the server does not answer a listen request"),
        }
    }
}

impl Drop for Announcements {
    fn drop(&mut self) {
        self.end_stream();
    }
}

/// Returns everything that a server of 2026-07-28 can announce of its lists and of these resources.
fn filter(connection: &UpstreamConnection, uris: &BTreeSet<String>) -> SubscriptionFilter {
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
async fn begin(connection: &UpstreamConnection, uri: &str) -> bool {
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
async fn end(connection: &UpstreamConnection, uri: &str) {
    let unsubscribing = connection.peer().unsubscribe(UnsubscribeRequestParams::new(uri));
    if let Ok(Err(error)) = tokio::time::timeout(ANNOUNCE_TIMEOUT, unsubscribing).await {
        tracing::debug!(%error, uri, "a subscription at the server could not be ended");
    }
}
