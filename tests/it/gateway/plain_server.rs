//! A server of 2025-11-25 without sessions and streams, each of whose answers is one JSON body.

use axum::extract::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// A note that is longer than an answer may be.
pub(super) const LONG_NOTE: &str = "note://long";

/// Serves on a free port. Returns the address.
pub(super) async fn serve() -> (String, JoinHandle<()>) {
    let app = axum::Router::new().route("/mcp", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        axum::serve(listener, app).await.expect("served");
    });
    (url, serving)
}

async fn answer(Json(message): Json<Value>) -> Response {
    let Some(id) = message.get("id") else {
        return StatusCode::ACCEPTED.into_response();
    };
    let params = &message["params"];
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": { "resources": {} },
            "serverInfo": { "name": "plain", "version": "1" },
        }),
        Some("resources/list") => json!({ "resources": [{ "uri": "note://a", "name": "a" }] }),
        Some("resources/read") => {
            let text = match params["uri"] == LONG_NOTE {
                true => "x".repeat(17 << 20),
                false => "one".to_owned(),
            };
            json!({ "contents": [{ "uri": params["uri"], "text": text }] })
        }
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
        }
    };
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}
