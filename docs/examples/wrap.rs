//! An rmcp server, and the few lines that give its clients subscriptions, etags and list notifications.
//!
//! Start it with `cargo run --example wrap` and point any MCP client at the address that it prints;
//! `-- --listen ADDR` chooses another one.

#![expect(clippy::print_stdout, reason = "the program prints its address")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tidings::mcp::{McpOptions, Wrap};

/// The server without the wrapper: one resource, and no notification of its changes.
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

/// Changes the resource every two seconds, and announces each change.
async fn warm_up_forever(server: Thermometer, wrap: Wrap) {
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        server.warm_up();
        if wrap.notify_resource_changed("room://temperature").await.is_err() {
            // The bus has stopped.
            return;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen = std::env::args()
        .skip_while(|argument| argument != "--listen")
        .nth(1);
    let server = Thermometer::default();

    let wrap = Wrap::new(tidings::Bus::builder().start()?, McpOptions::default()).await?;
    tokio::spawn(warm_up_forever(server.clone(), wrap.clone()));
    let endpoint = wrap.endpoint(move || server.clone());

    let app = axum::Router::new().route_service("/mcp", endpoint);
    let listener = tokio::net::TcpListener::bind(listen.as_deref().unwrap_or("127.0.0.1:8812")).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}
