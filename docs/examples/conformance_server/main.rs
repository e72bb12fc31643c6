//! A plain rmcp server with everything that the official conformance suite asks for, wrapped so that it has
//! subscriptions, etags and list notifications too, on the transports of the bus.
//!
//! Start it with `cargo run --example conformance_server -- --listen 127.0.0.1:0`. With `--stdio` it serves
//! the client that started it, and with `--unwrapped` it stands alone on rmcp's own transports, as a server
//! that knows nothing of a bus.

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

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::IntoResponse;
use rmcp::ServiceExt;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService, stdio};
use tidings::mcp::{McpOptions, Wrap};
use tidings::{Bus, CallbackError};
use tower_service::Service;

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
        return serve_unwrapped(&arguments, shared).await;
    }
    let wrap = Wrap::new(Bus::builder().start()?, McpOptions::default()).await?;
    let shared = Arc::new(Shared::new(Some(wrap.clone()))?);
    let served = serve_wrapped(&arguments, &wrap, shared).await;
    wrap.bus().shutdown(Duration::from_secs(2)).await;
    served
}

/// Serves clients on the transports of the bus.
async fn serve_wrapped(arguments: &Arguments, wrap: &Wrap, shared: Arc<Shared>) -> Result<(), CallbackError> {
    if arguments.stdio {
        let server = Everything::new(shared);
        let serving = wrap.serve_stdio(server, tokio::io::stdin(), tokio::io::stdout());
        return until_asked_to_end(async { Ok(serving.await?) }).await;
    }
    serve_http(arguments, wrap.endpoint(move || Everything::new(shared.clone()))).await
}

/// Serves clients on rmcp's own transports.
async fn serve_unwrapped(arguments: &Arguments, shared: Arc<Shared>) -> Result<(), CallbackError> {
    if arguments.stdio {
        let running = Everything::new(shared).serve(stdio()).await?;
        return until_asked_to_end(async { Ok(running.waiting().await.map(drop)?) }).await;
    }
    let service = StreamableHttpService::new(
        move || Ok(Everything::new(shared.clone())),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    serve_http(arguments, service).await
}

/// Serves clients over HTTP, each with a handler of its own.
async fn serve_http<T>(arguments: &Arguments, service: T) -> Result<(), CallbackError>
where
    T: Service<Request, Error = Infallible> + Clone + Send + Sync + 'static,
    T::Response: IntoResponse,
    T::Future: Send + 'static,
{
    let app = axum::Router::new().route_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind(&arguments.listen).await?;
    until_asked_to_end(async {
        println!("tidings listening on http://{}/mcp", listener.local_addr()?);
        Ok(axum::serve(listener, app).await?)
    })
    .await
}

/// Serves until the program is asked to end, or the one client on stdio leaves.
async fn until_asked_to_end(
    serving: impl Future<Output = Result<(), CallbackError>>,
) -> Result<(), CallbackError> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        served = serving => served,
        _ = terminate.recv() => Ok(()),
    }
}
