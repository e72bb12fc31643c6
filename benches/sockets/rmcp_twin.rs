//! The twin with rmcp's own session layer: what a service costs that sends its updates through rmcp.
//!
//! Owns: a server of two resources without content, `POST /publish/{name}` to tell of them, and the list of who asked.
//! Sends to all subscribers of a resource at once and waits for all (`join_all`): the form that neither stops the
//! others behind a slow one while it is merely slow, nor grows without bound.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::serve::ListenerExt;
use futures_util::future::join_all;
use rmcp::model::{
    ResourceUpdatedNotificationParam, ServerCapabilities, ServerConfig, SubscribeRequestParams,
    SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};

/// Serves until standard input closes.
pub(crate) fn serve() -> anyhow::Result<()> {
    super::bare_twin::end_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let told = Told::default();
        let handler = told.clone();
        let service = StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let router = axum::Router::new()
            .route("/publish/{name}", post(publish))
            .with_state(told)
            .nest_service("/mcp", service);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        println!("twin listening on http://{}/mcp", listener.local_addr()?);
        // Without it every answer of a handshake waits for a delayed acknowledgement.
        let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
        axum::serve(listener, router).await?;
        Ok(())
    })
}

/// Tells all subscribers of a resource; answers when rmcp has taken every message.
async fn publish(State(told): State<Told>, Path(name): Path<String>) -> StatusCode {
    let uri = format!("bench://{name}");
    // rmcp acknowledges a listen before it hands over its sink, so a reader may ask a moment too early.
    while !told.lock().is_complete() {
        tokio::task::yield_now().await;
    }
    let (peers, sinks) = {
        let subscribers = told.lock();
        let peers = subscribers.peers.iter().filter(|(watched, _)| *watched == uri);
        let peers: Vec<_> = peers.map(|(_, peer)| peer.clone()).collect();
        (peers, subscribers.sinks.clone())
    };
    let notices = peers
        .iter()
        .map(|peer| peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri.as_str())));
    let by_sink = sinks
        .iter()
        .map(|sink| sink.notify_resource_updated(uri.as_str()));
    // A reader that has gone is not this bench's matter: every reader is counted at its own end.
    drop((join_all(notices).await, join_all(by_sink).await));
    StatusCode::NO_CONTENT
}

/// Who asked to be told.
#[derive(Default)]
struct Subscribers {
    peers: Vec<(String, Peer<RoleServer>)>,
    sinks: Vec<SubscriptionSink>,
    /// How many sinks there will be.
    sinks_promised: usize,
}

impl Subscribers {
    fn is_complete(&self) -> bool {
        self.sinks.len() == self.sinks_promised
    }
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Subscribers>>);

impl Told {
    fn lock(&self) -> MutexGuard<'_, Subscribers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerHandler for Told {
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
        self.lock().peers.push((request.uri, context.peer));
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.lock().sinks_promised += 1;
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.lock().sinks.push(context.sink().clone());
        context.cancelled().await;
        Ok(())
    }
}
