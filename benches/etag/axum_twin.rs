//! The bare twin: an axum handler that reads the whole body and answers the same bytes as the service.
//!
//! Owns: a router of one route. Never: parses anything, or knows a session or an etag.

use std::io::Read;

use anyhow::Context;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use tokio::net::TcpListener;

/// Serves until standard input closes; the one argument is the body to answer. A thread for each core, as the service
/// has for its connections.
pub(crate) fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let body = arguments.first().context("serve-axum needs the body to answer")?;
    let body = Bytes::from(body.clone());
    std::thread::spawn(|| {
        // Nothing is ever written there: any outcome of the read means that the other end has gone.
        drop(std::io::stdin().read(&mut [0]));
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("twin listening on http://{}/mcp", listener.local_addr()?);
        let listener = listener.tap_io(|socket| {
            // As the service sets it; one that cannot be set shows in the figures.
            drop(socket.set_nodelay(true));
        });
        let answer = move |_: Bytes| async move { ([(CONTENT_TYPE, "application/json")], body) };
        axum::serve(listener, Router::new().route("/mcp", post(answer))).await?;
        Ok(())
    })
}
