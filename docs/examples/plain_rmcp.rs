//! A plain rmcp server, for `tidings bench` to be compared with: rmcp's own session layer and nothing of Tidings.
//!
//! Its one tool, `update {uri}`, tells everybody who subscribed to that resource, in both eras, the way a user of rmcp
//! does it: keep each subscriber's peer or sink, and notify them together (`join_all`). It keeps no contents and no
//! versions. `cargo run --release --example plain_rmcp -- 8810` serves http://127.0.0.1:8810/mcp; see
//! `benches/peers/run`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::serve::ListenerExt;
use futures_util::future::join_all;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ResourceUpdatedNotificationParam,
    ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};

/// Who asked to be told.
#[derive(Default)]
struct Subscribers {
    peers: Vec<(String, Peer<RoleServer>)>,
    sinks: Vec<SubscriptionSink>,
}

#[derive(Clone, Default)]
struct Plain(Arc<Mutex<Subscribers>>);

impl Plain {
    fn lock(&self) -> MutexGuard<'_, Subscribers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody of a change of `uri`; answers how many.
    async fn update(&self, uri: &str) -> usize {
        let (peers, sinks) = {
            let subscribers = self.lock();
            let peers = subscribers.peers.iter().filter(|(watched, _)| watched == uri);
            let wants = |sink: &&SubscriptionSink| {
                let uris = sink.accepted().resource_subscriptions.as_ref();
                uris.is_some_and(|uris| uris.iter().any(|watched| watched == uri))
            };
            let sinks = subscribers.sinks.iter().filter(wants);
            (
                peers.map(|(_, peer)| peer.clone()).collect::<Vec<_>>(),
                sinks.cloned().collect::<Vec<_>>(),
            )
        };
        let to_peers = peers
            .iter()
            .map(|peer| peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)));
        let to_sinks = sinks.iter().map(|sink| sink.notify_resource_updated(uri));
        // A subscriber that has gone is not this server's matter.
        drop((join_all(to_peers).await, join_all(to_sinks).await));
        peers.len() + sinks.len()
    }
}

impl ServerHandler for Plain {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder();
        ServerConfig::new(
            capabilities
                .enable_resources()
                .enable_resources_subscribe()
                .enable_tools()
                .build(),
        )
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let Some(uri) = arguments.get("uri").and_then(|uri| uri.as_str()) else {
            return Err(ErrorData::invalid_params("update needs a uri", None));
        };
        let told = self.update(uri).await;
        Ok(CallToolResult::success(vec![ContentBlock::text(format!("told {told}"))]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.lock().peers.push((request.uri, context.peer));
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.lock().sinks.push(context.sink().clone());
        context.cancelled().await;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let port: u16 = std::env::args().nth(1).as_deref().unwrap_or("8810").parse()?;
    let plain = Plain::default();
    let service = StreamableHttpService::new(
        move || Ok(plain.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    // Without it every answer of a handshake waits for a delayed acknowledgement.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    axum::serve(listener, router).await?;
    Ok(())
}
