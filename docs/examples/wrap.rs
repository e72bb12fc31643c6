//! An rmcp server that somebody has already, and the few lines that give its clients subscriptions, etags and list
//! notifications. `cargo run --example wrap`, then point any MCP client at the address it prints; `-- --listen ADDR`
//! takes another one.

#![expect(
    clippy::print_stdout,
    reason = "whoever started the server is told where it listens"
)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tidings::mcp::{McpOptions, Wrap};

/// The server as it was: one resource, and no word about its changes.
#[derive(Clone, Default)]
struct Thermometer {
    degrees: Arc<Mutex<i32>>,
}

impl Thermometer {
    fn warm_up(&self) {
        *self.degrees.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
}

impl ServerHandler for Thermometer {
    fn get_info(&self) -> InitializeResult {
        InitializeResult::new(ServerCapabilities::builder().enable_resources().build())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new(
            "room://temperature",
            "temperature",
        )]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != "room://temperature" {
            return Err(ErrorData::resource_not_found("no such room", None));
        }
        let degrees = *self.degrees.lock().unwrap_or_else(PoisonError::into_inner);
        let contents = ResourceContents::text(format!("{degrees} degrees"), request.uri);
        Ok(ReadResourceResult::new(vec![contents]).into())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen = std::env::args()
        .skip_while(|argument| argument != "--listen")
        .nth(1);
    let server = Thermometer::default();

    // Wrapped: the factory that made the handler now makes it through the wrapper.
    let wrap = Wrap::new(tidings::Bus::builder().start()?, McpOptions::default()).await?;
    let factory = {
        let (wrap, server) = (wrap.clone(), server.clone());
        move || Ok(wrap.handler(server.clone()))
    };
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(factory, sessions, StreamableHttpServerConfig::default());

    // And one line wherever something changes.
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(2)).await;
            server.warm_up();
            if wrap.notify_resource_changed("room://temperature").await.is_err() {
                return;
            }
        }
    });

    let app = axum::Router::new().route_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind(listen.as_deref().unwrap_or("127.0.0.1:8812")).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
