//! A plain rmcp server with everything that the official conformance suite asks for, wrapped so that it has
//! subscriptions, etags and list notifications too.
//!
//! Start it with `cargo run --example conformance_server -- --listen 127.0.0.1:0`.

#![expect(clippy::print_stdout, reason = "the program prints its address")]

mod server;
mod tools;
mod answers;
mod dialogues;
mod input_rounds;
mod prompts;
mod resources;

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tidings::mcp::{McpOptions, Wrap};
use tidings::{Bus, CallbackError};

use crate::server::{Everything, Shared};

#[tokio::main]
async fn main() -> Result<(), CallbackError> {
    let listen = std::env::args()
        .skip_while(|argument| argument != "--listen")
        .nth(1);
    let wrap = Wrap::new(Bus::builder().start()?, McpOptions::default()).await?;
    let shared = Arc::new(Shared::new(wrap.clone())?);

    let bus = wrap.bus().clone();
    let service = StreamableHttpService::new(
        move || Ok(wrap.handler(Everything::new(shared.clone()))),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let app = axum::Router::new().route_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind(listen.as_deref().unwrap_or("127.0.0.1:8811")).await?;
    println!("tidings listening on http://{}/mcp", listener.local_addr()?);
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = terminate.recv() => {
            bus.shutdown(Duration::from_secs(2)).await;
        }
    }
    Ok(())
}
