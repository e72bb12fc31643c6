//! A plain rmcp server with everything that the official conformance suite asks for, wrapped so that it has
//! subscriptions, etags and list notifications too.
//!
//! Start it with `cargo run --example conformance_server -- --listen 127.0.0.1:0`. With `--stdio` it serves
//! the client that started it, and with `--unwrapped` it stands alone, as a server that knows nothing of a
//! bus.

#![expect(clippy::print_stdout, reason = "the program prints its address")]

mod server;
mod subscribers;
mod tools;
mod answers;
mod dialogues;
mod input_rounds;
mod tasks;
mod prompts;
mod resources;

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, stdio};
use rmcp::{ServerHandler, ServiceExt};
use tidings::mcp::{McpOptions, Wrap};
use tidings::{Bus, CallbackError};

use crate::server::{Everything, Shared};

/// The arguments of the program.
struct Arguments {
    listen: String,
    stdio: bool,
    unwrapped: bool,
}

fn arguments() -> Result<Arguments, CallbackError> {
    let mut found = Arguments {
        listen: "127.0.0.1:8811".to_owned(),
        stdio: false,
        unwrapped: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--stdio" => found.stdio = true,
            "--unwrapped" => found.unwrapped = true,
            "--listen" => match arguments.next() {
                Some(address) => found.listen = address,
                None => return Err("--listen needs an address".into()),
            },
            other if other.starts_with('-') => {
                let expected = "expected --listen ADDR, --stdio or --unwrapped";
                return Err(format!("unknown argument {other:?}: {expected}").into());
            }
            // A script that starts it like the service names a subcommand and a folder; it has no use for
            // them.
            _ => {}
        }
    }
    Ok(found)
}

#[tokio::main]
async fn main() -> Result<(), CallbackError> {
    let arguments = arguments()?;
    if arguments.unwrapped {
        let shared = Arc::new(Shared::new(None)?);
        return serve(&arguments, move || Everything::new(shared.clone())).await;
    }
    let wrap = Wrap::new(Bus::builder().start()?, McpOptions::default()).await?;
    let shared = Arc::new(Shared::new(Some(wrap.clone()))?);
    let bus = wrap.bus().clone();
    let served = serve(&arguments, move || wrap.handler(Everything::new(shared.clone()))).await;
    bus.shutdown(Duration::from_secs(2)).await;
    served
}

/// Serves clients, each with a handler of its own, until the program is asked to end or the one on stdio
/// leaves.
async fn serve<S: ServerHandler>(
    arguments: &Arguments,
    handler: impl Fn() -> S + Send + Sync + 'static,
) -> Result<(), CallbackError> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    if arguments.stdio {
        let running = handler().serve(stdio()).await?;
        tokio::select! {
            ended = running.waiting() => drop(ended?),
            _ = terminate.recv() => {}
        }
        return Ok(());
    }
    let service = StreamableHttpService::new(
        move || Ok(handler()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let app = axum::Router::new().route_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind(&arguments.listen).await?;
    println!("tidings listening on http://{}/mcp", listener.local_addr()?);
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = terminate.recv() => {}
    }
    Ok(())
}
