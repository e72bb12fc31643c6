//! One request before the load: whether anything speaks MCP at the address.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};

use super::Settings;
use crate::cli::{CliError, address};
use crate::http_client;

const TIMEOUT: Duration = Duration::from_secs(5);

/// The part of an answer that tells whether it is of JSON-RPC.
const HEAD_BYTES: usize = 4096;

/// A request that every revision answers without opening a session: it carries no method of the protocol.
const PROBE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"tidings/probe"}"#;

/// Checks that something speaks MCP at the address. Any other trouble is left to the run, which describes it
/// better.
pub(super) async fn probe(settings: &Settings) -> Result<(), CliError> {
    let url = settings.url.as_str();
    let built = http_client::builder_with(url, &settings.credentials).map_err(CliError::failed)?;
    let client = built.timeout(TIMEOUT).build().map_err(CliError::failed)?;
    let request = client
        .post(url)
        .header(ACCEPT, "application/json, text/event-stream")
        .header(CONTENT_TYPE, "application/json")
        .body(PROBE);
    let Ok(mut answer) = http_client::send(request, &settings.credentials).await else {
        return Ok(());
    };
    let status = answer.status().as_u16();
    if !matches!(status, 404 | 405) {
        return Ok(());
    }
    // Only the beginning: an answer of a web server may be a large page.
    let mut head = Vec::new();
    while let Ok(Some(part)) = answer.chunk().await {
        head.extend_from_slice(&part);
        if head.len() > HEAD_BYTES {
            break;
        }
    }
    // A server of 2026-07-28 answers an unknown method so, in JSON-RPC.
    if String::from_utf8_lossy(&head).contains("jsonrpc") {
        return Ok(());
    }
    let hint = match address::usual_endpoint(url) {
        Some(usual) => format!("; did you mean \"{usual}\"?"),
        None => "; name the path of its MCP endpoint, most often /mcp".to_owned(),
    };
    Err(CliError::Failed(format!(
        "nothing speaks MCP at {} (HTTP {status}){hint}",
        http_client::shown(url)
    )))
}
