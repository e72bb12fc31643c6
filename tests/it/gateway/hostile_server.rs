//! A server of 2025-11-25 over HTTP that serves a note, and does on request what no server should.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::workshop::NOTE;

const MEBIBYTE: usize = 1 << 20;

/// A body from this length on is never read.
const UNREAD_FROM: usize = MEBIBYTE;

/// The receive buffer of its sockets: a body that is not read does not fit into it.
const RECEIVE_BUFFER: u32 = 16 << 10;

/// The state of the server, which the test counts by.
pub(super) struct HostileServer {
    note: Mutex<String>,
    /// The kind of the list of tools.
    list: Mutex<String>,
    /// The last events of the stream of notifications, as they are sent.
    notices: watch::Sender<Bytes>,
    /// Streams of notifications that were opened.
    pub(super) streams: watch::Sender<usize>,
    /// Calls of `wait` under way, and whether they may end.
    pub(super) waiting: watch::Sender<usize>,
    pub(super) released: watch::Sender<bool>,
    /// Requests that are never answered and were not given up yet.
    pub(super) unanswered: watch::Sender<usize>,
}

/// Counts a request until it is answered or given up.
struct UnderWay(watch::Sender<usize>);

impl UnderWay {
    fn new(count: &watch::Sender<usize>) -> UnderWay {
        count.send_modify(|count| *count += 1);
        UnderWay(count.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl HostileServer {
    /// Serves on a free port. Returns the address.
    pub(super) async fn serve() -> (Arc<HostileServer>, String, JoinHandle<()>) {
        let server = Arc::new(HostileServer {
            note: Mutex::new("one".to_owned()),
            list: Mutex::default(),
            notices: watch::Sender::new(Bytes::new()),
            streams: watch::Sender::new(0),
            waiting: watch::Sender::new(0),
            released: watch::Sender::new(false),
            unanswered: watch::Sender::new(0),
        });
        let route = get(notices).post(answer).delete(StatusCode::OK);
        let app = axum::Router::new()
            .route("/mcp", route)
            .with_state(server.clone());
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1024).unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("served");
        });
        (server, url, serving)
    }

    fn notify(&self, event: String) {
        self.notices.send_replace(event.into());
    }

    /// Holds a request until it is given up.
    async fn hold(&self) -> Response {
        let _held = UnderWay::new(&self.unanswered);
        std::future::pending().await
    }

    async fn call(&self, id: &Value, name: &str, arguments: &Value) -> Response {
        let done = json!({ "content": [{ "type": "text", "text": "done" }] });
        let own = event(&json!({ "jsonrpc": "2.0", "id": id, "result": done }));
        match name {
            "change" => {
                *self.note.lock().unwrap() = arguments["text"].as_str().unwrap().to_owned();
                let params = json!({ "uri": NOTE });
                let method = "notifications/resources/updated";
                self.notify(event(
                    &json!({ "jsonrpc": "2.0", "method": method, "params": params }),
                ));
            }
            "wait" => {
                let _waiting = UnderWay::new(&self.waiting);
                let mut released = self.released.subscribe();
                released.wait_for(|released| *released).await.unwrap();
            }
            "list_tools" => arguments["kind"]
                .as_str()
                .unwrap()
                .clone_into(&mut self.list.lock().unwrap()),
            "silent" => return self.hold().await,
            "cut" => return events(String::new()),
            "garbage" => return events("id: 1\nid: 2\n\n".to_owned()),
            "long_event" => return endless("text/event-stream", "data: "),
            "long_body" => return endless("application/json", "\""),
            "long_progress" => {
                let params = json!({ "progressToken": "x".repeat(17 * MEBIBYTE), "progress": 1 });
                let method = "notifications/progress";
                let progress = event(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
                return events(progress + &own);
            }
            "long_notice" => self.notify(format!("data: {}\n\n", "x".repeat(17 * MEBIBYTE))),
            "foreign_answers" => {
                let foreign = (0..200).map(|number| {
                    event(&json!({ "jsonrpc": "2.0", "id": 1_000_000 + number, "result": {} }))
                });
                let garbage = "data: {]\n\ndata: no JSON\n\n";
                return events(garbage.to_owned() + &foreign.collect::<String>() + &own);
            }
            "foreign_body" => return reply(&json!({ "jsonrpc": "2.0", "id": 1_000_000, "result": {} })),
            "no_id" => {
                let error = json!({ "code": -32700, "message": "not read" });
                return events(event(&json!({ "jsonrpc": "2.0", "id": null, "error": error })));
            }
            other => panic!("{other}"),
        }
        events(own)
    }

    fn tools(&self, kind: &str) -> Value {
        let tool = |number: usize, text: &str| json!({ "name": format!("t{number}"), "description": text, "inputSchema": { "type": "object" } });
        match kind {
            "endless" => json!({ "tools": [], "nextCursor": "again" }),
            "crowded" => json!({ "tools": vec![json!({ "name": "", "inputSchema": {} }); 50_000] }),
            "fat" => json!({ "tools": [tool(1, &"z".repeat(8 * MEBIBYTE))], "nextCursor": "again" }),
            _ => json!({ "tools": [tool(0, "")] }),
        }
    }
}

async fn notices(State(server): State<Arc<HostileServer>>) -> Response {
    let notices = server.notices.subscribe();
    server.streams.send_modify(|streams| *streams += 1);
    let events = stream::unfold(notices, |mut notices| async move {
        notices.changed().await.ok()?;
        let event = notices.borrow_and_update().clone();
        Some((Ok::<_, Infallible>(event), notices))
    });
    // A comment first: the head of the response is sent with it.
    let first = stream::iter([Ok(Bytes::from_static(b":\n\n"))]);
    typed("text/event-stream", Body::from_stream(first.chain(events)))
}

async fn answer(State(server): State<Arc<HostileServer>>, request: Request) -> Response {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if matches!(length, Some(length) if length >= UNREAD_FROM) {
        let _unread = request;
        return server.hold().await;
    }
    let body = axum::body::to_bytes(request.into_body(), UNREAD_FROM)
        .await
        .unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap();
    let (Some(id), Some(method)) = (message.get("id"), message["method"].as_str()) else {
        return StatusCode::ACCEPTED.into_response();
    };
    let params = &message["params"];
    let list = server.list.lock().unwrap().clone();
    let result = match method {
        "initialize" => json!({
            "protocolVersion": "2025-11-25",
            "capabilities": { "resources": { "subscribe": true }, "tools": { "listChanged": true } },
            "serverInfo": { "name": "hostile", "version": "1" },
        }),
        "resources/list" => json!({ "resources": [{ "uri": NOTE, "name": "a" }] }),
        "resources/read" if params["uri"] == NOTE => {
            json!({ "contents": [{ "uri": NOTE, "text": *server.note.lock().unwrap() }] })
        }
        "resources/subscribe" | "resources/unsubscribe" | "ping" => json!({}),
        "tools/list" if list == "silent" => return server.hold().await,
        "tools/list" if list == "million" => {
            // Not as a value, which takes long to make.
            let tools = r#"{"name":"t","inputSchema":{}},"#.repeat(1_000_000);
            let tools = tools.trim_end_matches(',');
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"tools":[{tools}]}}}}"#);
            return typed("application/json", Body::from(text));
        }
        "tools/list" => server.tools(&list),
        "tools/call" => {
            let name = params["name"].as_str().unwrap();
            return server.call(id, name, &params["arguments"]).await;
        }
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            return reply(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        }
    };
    reply(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn event(message: &Value) -> String {
    format!("data: {message}\n\n")
}

fn events(text: String) -> Response {
    typed("text/event-stream", Body::from(text))
}

fn reply(message: &Value) -> Response {
    typed("application/json", Body::from(message.to_string()))
}

/// Returns a gibibyte of one text.
fn endless(kind: &'static str, begin: &'static str) -> Response {
    let part = Bytes::from(vec![b'x'; MEBIBYTE]);
    let parts = std::iter::once(Bytes::from(begin)).chain(std::iter::repeat_n(part, 1_024));
    typed(
        kind,
        Body::from_stream(stream::iter(parts.map(Ok::<_, Infallible>))),
    )
}

fn typed(kind: &'static str, body: Body) -> Response {
    (
        [
            (header::CONTENT_TYPE, kind),
            (header::HeaderName::from_static("mcp-session-id"), "s"),
        ],
        body,
    )
        .into_response()
}
