//! The routes of the service besides those of the API.

use serde_json::{Map, Value, json};

use super::operation::Operation;
use super::operations::{json_of, readable, with};
use super::reference;
use crate::http::service_route::ServiceRoute;
use crate::http::ui;

/// Makes the item of a route. It is answered as far as the service is configured to serve it.
pub(super) fn item(route: ServiceRoute) -> Value {
    match route {
        ServiceRoute::Mcp => mcp_item(),
        ServiceRoute::Events => events_item(),
        ServiceRoute::Socket => socket_item(),
        ServiceRoute::Backup => {
            // Lines of another format than those of a batch, which only the commands of the store read.
            let text = json!({ "application/x-ndjson": { "schema": { "type": "string" } } });
            let written = Operation::new("writeBackup", "operation", "A backup of the store as JSON lines");
            readable(written.answer(200, "The backup", &[], text).problems(&[404]))
        }
        ServiceRoute::Metrics => {
            let text = json!({ "text/plain": { "schema": { "type": "string" } } });
            let exported = Operation::new("getMetrics", "operation", "Figures for Prometheus");
            readable(exported.answer(200, "The text of the exporter", &[], text))
        }
        ServiceRoute::Metadata => metadata_item("getMetadata"),
        ServiceRoute::MetadataOfMcp => metadata_item("getMetadataOfMcp"),
        ServiceRoute::Root => redirect_item("openRoot"),
        ServiceRoute::PageFolder => redirect_item("openPageFolder"),
        ServiceRoute::Page => {
            let html = json!({ "text/html": { "schema": { "type": "string" } } });
            readable(file("openPage", "The live page", html))
        }
        ServiceRoute::PageFile => {
            let text = json!({ "schema": { "type": "string" } });
            let content = json!({ "text/html": text, "text/css": text, "text/javascript": text });
            let content = file("getPageFile", "A file of the live page", content);
            let names: Vec<&str> = ui::names().collect();
            let name = json!({ "name": "file", "in": "path", "required": true, "schema": { "enum": names } });
            readable(content.parameter(name))
        }
        ServiceRoute::Login => login_item(),
        ServiceRoute::Logout => {
            let out = open("logOut", "Ends a login; its cookie is good no more");
            let out = out.answer(204, "Ended, or there was none", &[], Value::Null);
            with(json!({}), "post", out)
        }
    }
}

/// Begins an operation of the page, which needs no credentials.
fn open(id: &str, summary: &str) -> Operation {
    let open = Operation::open(id, "page", summary).field("security", json!([{}]));
    open.problems(&[403, 404])
}

/// Begins an operation that answers with a file.
fn file(id: &str, summary: &str, content: Value) -> Operation {
    open(id, summary)
        .answer(200, "The file, compressed by gzip", &[], content)
        .answer(304, "`If-None-Match` names its etag", &[], Value::Null)
        .problems(&[406])
}

fn redirect_item(id: &str) -> Value {
    let open = open(id, "Leads to the live page");
    readable(open.answer(307, "To `/ui/`", &["Location"], Value::Null))
}

fn login_item() -> Value {
    let viewer = open("getViewer", "Who is looking, and what it may do");
    let viewer = viewer.answer(200, "The viewer", &[], json_of("Viewer"));
    let body = json!({ "application/json": { "schema": reference("Login") } });
    let log_in = open("logIn", "Exchanges a token for a cookie of the page")
        .body(true, &body)
        .answer(204, "The cookie", &["Set-Cookie"], Value::Null)
        .problems(&[400, 401, 408, 413, 429, 503]);
    with(readable(viewer), "post", log_in)
}

fn metadata_item(id: &str) -> Value {
    let schema = json!({
        "type": "object",
        "required": ["resource", "authorization_servers", "bearer_methods_supported"],
        "properties": {
            "resource": { "type": "string" },
            "authorization_servers": { "type": "array", "items": { "type": "string" }, "minItems": 1 },
            "bearer_methods_supported": { "type": "array", "items": { "type": "string" } },
            "scopes_supported": { "type": "array", "items": { "type": "string" } },
        },
    });
    let summary = "The metadata of the protected resource (RFC 9728), also at the path of `auth.resource`";
    let metadata = Operation::open(id, "mcp", summary).field("security", json!([{}]));
    let content = json!({ "application/json": { "schema": schema } });
    let metadata = metadata.answer(200, "The metadata", &[], content);
    // The path is then like any other that is not there.
    let metadata = metadata.answer(404, "No authorization server is configured", &[], Value::Null);
    readable(metadata.problems(&[401, 403]))
}

fn mcp_item() -> Value {
    let message =
        json!({ "type": "object", "description": "JSON-RPC 2.0, as the Model Context Protocol has it" });
    let text = json!({ "type": "string", "description": "Messages as server-sent events" });
    let streamed = json!({ "text/event-stream": { "schema": text } });
    let both = json!({ "application/json": { "schema": message }, "text/event-stream": { "schema": text } });
    let refused = json!({
        "application/json": { "schema": message },
        "application/problem+json": { "schema": reference("Problem") },
    });
    let operation = |id: &str, summary: &str| {
        let mut operation = Operation::open(id, "mcp", summary).problems(&[401, 403, 429, 503]);
        for status in [400, 404, 406] {
            let text = "Refused: the message says which part and the remedy";
            operation = operation.answer(status, text, &[], refused.clone());
        }
        operation.takes(&["McpSessionId", "McpProtocolVersion"])
    };
    let send = operation("sendMessage", "A message of an MCP client, of every revision")
        .body(true, &json!({ "application/json": { "schema": message } }))
        .answer(
            200,
            "The answer, as one message or as a stream of several",
            &[],
            both,
        )
        .answer(202, "A notification was taken", &[], Value::Null)
        .problems(&[408, 413])
        .answer(415, "The body is not JSON", &[], refused.clone());
    let listen = operation("listen", "The stream of a session, without an end")
        .answer(200, "Notices of the session", &[], streamed)
        .answer(405, "2026-07-28 has no such stream", &["Allow"], Value::Null);
    let end = operation("endMcpSession", "Ends a session")
        .answer(204, "Ended", &[], Value::Null)
        .answer(405, "2026-07-28 has no sessions", &["Allow"], Value::Null);
    let item = with(json!({}), "post", send);
    with(with(item, "get", listen), "delete", end)
}

fn events_item() -> Value {
    let data: Map<String, Value> = [
        ("updated", "NoticeEvent"),
        ("removed", "NoticeEvent"),
        ("resources_list_changed", "ListEvent"),
        ("tools_list_changed", "ListEvent"),
        ("prompts_list_changed", "ListEvent"),
        ("resumed", "ResumedEvent"),
        ("gap", "GapEvent"),
        ("end", "EndEvent"),
    ]
    .map(|(event, schema)| (event.to_owned(), reference(schema)))
    .into_iter()
    .collect();
    // The stream has no schema of its own: its frames are lines of text, and their data are the JSON.
    let content = json!({ "text/event-stream": { "schema": { "type": "string" }, "x-event-data": data } });
    let stream = Operation::new(
        "followEvents",
        "changes",
        "Every change as a server-sent event, without an end",
    )
    .takes(&["Patterns", "Kinds", "LastEventIdQuery", "LastEventId", "Body"])
    .answer(
        200,
        "`x-event-data` has the schema of `data` for each event",
        &[],
        content,
    );
    let allowed = Operation::open("preflightEvents", "changes", "The preflight request of a browser");
    let allowed = allowed.answer(204, "The headers that a page may send", &[], Value::Null);
    with(
        readable(stream),
        "options",
        allowed.problems(&[401, 403, 429, 503]),
    )
}

fn socket_item() -> Value {
    let messages = json!({
        "client": reference("SocketRequest"),
        "service": { "anyOf": [reference("SocketAck"), reference("SocketMessage")] },
    });
    let socket = Operation::new(
        "openSocket",
        "changes",
        "A WebSocket, to subscribe and unsubscribe at any time",
    )
    .takes(&["Body"])
    .field("x-messages", messages)
    .answer(
        101,
        "The connection is a WebSocket; `x-messages` has the schemas of its messages",
        &[],
        Value::Null,
    );
    readable(socket.problems(&[426]))
}
