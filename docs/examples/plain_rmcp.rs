//! A plain rmcp server to compare `tidings bench` with: rmcp's own session layer and nothing of Tidings.
//!
//! Its one tool, `update {uri}`, notifies all subscribers of that resource, in both eras, as a user of rmcp
//! would: it keeps each subscriber's peer or sink and notifies them together (`join_all`). It keeps no
//! contents and no versions. `cargo run --release --example plain_rmcp -- 8810` serves
//! http://127.0.0.1:8810/mcp; see `benches/peers/run`.

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
use serde_json::Value;

/// The clients with a subscription: peers with their URI, and sinks of listen streams.
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

    /// Returns the subscribers of `uri`.
    fn subscribers(&self, uri: &str) -> Subscribers {
        let mut found = Subscribers::default();
        let subscribers = self.lock();
        for (watched, peer) in &subscribers.peers {
            if watched == uri {
                found.peers.push((watched.clone(), peer.clone()));
            }
        }
        for sink in &subscribers.sinks {
            if let Some(uris) = &sink.accepted().resource_subscriptions
                && uris.iter().any(|watched| watched == uri)
            {
                found.sinks.push(sink.clone());
            }
        }
        found
    }

    /// Notifies the subscribers of `uri`; returns their number.
    async fn update(&self, uri: &str) -> usize {
        // Cloned, so that the lock is not held while they are notified.
        let Subscribers { peers, sinks } = self.subscribers(uri);
        let to_peers = peers
            .iter()
            .map(|(_, peer)| peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri)));
        let to_sinks = sinks.iter().map(|sink| sink.notify_resource_updated(uri));
        // The errors are those of clients that have left.
        join_all(to_peers).await;
        join_all(to_sinks).await;
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
        let Some(Value::String(uri)) = arguments.get("uri") else {
            return Err(ErrorData::invalid_params("update needs a uri", None));
        };
        let notified = self.update(uri).await;
        let text = ContentBlock::text(format!("notified {notified}"));
        Ok(CallToolResult::success(vec![text]).into())
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
    // Without TCP_NODELAY every answer of a handshake waits for a delayed acknowledgement.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    axum::serve(listener, router).await?;
    Ok(())
}
