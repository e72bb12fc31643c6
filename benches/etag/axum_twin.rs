//! The twin of the row `etag`: an axum handler that reads the whole request and answers the bytes of the
//! service.

use anyhow::Context;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use bytes::Bytes;

use crate::twin;

/// Serves until the parent ends. The one argument is the body of every answer.
pub(crate) fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let body = arguments.first().context("serve-axum needs the body to answer")?;
    let body = Bytes::from(body.clone());
    // The handler takes the body of the request, so that axum reads it, and ignores it.
    let route = post(move |_: Bytes| async move { ([(CONTENT_TYPE, "application/json")], body) });
    twin::serve(Router::new().route("/mcp", route))
}
