//! The twin with rmcp's own session layer: the cost of a service that sends its updates through rmcp.
//!
//! It serves resources without content, and `POST /publish/{name}` announces a change of one. It sends to all
//! subscribers at once and waits for all (`join_all`): a slow subscriber then neither stops the others nor
//! lets the queue grow without a limit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use futures_util::future::join_all;
use rmcp::model::{
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};

use crate::twin;

/// Serves until the parent ends.
pub(crate) fn serve() -> anyhow::Result<()> {
    let handler = Handler::default();
    let sessions_handler = handler.clone();
    let service = StreamableHttpService::new(
        move || Ok(sessions_handler.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let router = axum::Router::new()
        .route("/publish/{name}", post(publish))
        .with_state(handler)
        .nest_service("/mcp", service);
    twin::serve(router)
}

/// Announces a change to all subscribers of a resource; answers when rmcp has taken every message.
async fn publish(State(handler): State<Handler>, Path(name): Path<String>) -> StatusCode {
    let uri = format!("bench://{name}");
    // rmcp acknowledges a listen before it hands over its sink, so a publisher may come a moment too early.
    while !handler.subscribers().is_complete() {
        tokio::task::yield_now().await;
    }
    let mut peers = Vec::new();
    let sinks;
    {
        // Cloned, since the lock may not be held while messages are sent.
        let subscribers = handler.subscribers();
        for (watched, peer) in &subscribers.peers {
            if *watched == uri {
                peers.push(peer.clone());
            }
        }
        sinks = subscribers.sinks.clone();
    }
    let to_peers = peers
        .iter()
        .map(|peer| peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri.as_str())));
    let to_sinks = sinks
        .iter()
        .map(|sink| sink.notify_resource_updated(uri.as_str()));
    let failed_peers = join_all(to_peers)
        .await
        .into_iter()
        .filter(Result::is_err)
        .count();
    let failed_sinks = join_all(to_sinks)
        .await
        .into_iter()
        .filter(Result::is_err)
        .count();
    if failed_peers + failed_sinks > 0 {
        // Each reader is counted at its own end; this only explains a run that fails there.
        eprintln!("{failed_peers} sessions and {failed_sinks} listen streams of {uri} have gone");
    }
    StatusCode::NO_CONTENT
}

/// The subscribers of all resources.
#[derive(Default)]
struct Subscribers {
    peers: Vec<(String, Peer<RoleServer>)>,
    sinks: Vec<SubscriptionSink>,
    /// The number of sinks that rmcp will hand over for the listens acknowledged so far.
    sinks_promised: usize,
}

impl Subscribers {
    fn is_complete(&self) -> bool {
        self.sinks.len() == self.sinks_promised
    }
}

#[derive(Clone, Default)]
struct Handler(Arc<Mutex<Subscribers>>);

impl Handler {
    fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder();
        ServerConfig::new(
            capabilities
                .enable_resources()
                .enable_resources_subscribe()
                .build(),
        )
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.subscribers().peers.push((request.uri, context.peer));
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.subscribers().sinks_promised += 1;
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.subscribers().sinks.push(context.sink().clone());
        context.cancelled().await;
        Ok(())
    }
}
