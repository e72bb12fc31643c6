//! The rights of callers over the real service: at the request and at delivery, on every transport.

mod after_end;
mod content;
mod ids;
mod scene;

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use serde_json::{Value, json};
use tidings::wire::http1::resource_path;

use crate::mcp::client::{initialize, modern_post, updates};
use crate::mcp::events::{Events, updated_uri};
use crate::mcp::http::{Reply, Request, within};
use crate::mcp::server::{Server, binary};

const SEEN: &str = "note://seen";
const OTHER: &str = "note://other";
const HIDDEN: &str = "secret://hidden";
const UNKNOWN: &str = "secret://absent";

const RULES: &str = "[[auth.rule]]\nroles = ['ops']\n\
    may = ['list', 'read', 'subscribe', 'publish', 'call', 'admin', 'metrics']\n\
    match = ['*', 'tool:*', 'prompt:*']\n\
    [[auth.rule]]\nroles = ['reader']\nmay = ['list', 'read', 'subscribe']\nmatch = ['note://*']\n\
    [[auth.rule]]\nroles = ['reader']\nmay = ['list', 'call']\n\
    match = ['tool:get_resource_etag', 'tool:get_resource_etags', 'tool:read_resource']\n";

/// Lets readers wait for changes.
const WAITS: &str =
    "[[auth.rule]]\nroles = ['reader']\nmay = ['call']\nmatch = ['tool:wait_for_resource_change']\n";

/// The way of a caller to the service: an address, and a token unless the address goes on with a certificate.
#[derive(Debug, Clone)]
struct Way {
    address: SocketAddr,
    token: Option<String>,
}

impl Way {
    /// Adds the token to a request.
    fn with(&self, request: Request) -> Request {
        match &self.token {
            Some(token) => request.header("authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    async fn send(&self, request: Request) -> Reply {
        self.with(request).send(self.address).await
    }

    /// Creates or replaces a resource.
    async fn put(&self, uri: &str, text: &str) -> Reply {
        let request = Request::new("PUT", resource_path(uri)).header("content-type", "text/plain");
        self.send(request.body(text)).await
    }

    /// Opens a session, and its stream; returns the session's id too.
    async fn session(&self, uris: &[&str]) -> (String, Events) {
        let opened = self
            .send(Request::post(initialize("2025-11-25").to_string()))
            .await;
        assert_eq!(opened.status, 200, "{}", opened.text());
        let id = opened.header("mcp-session-id").unwrap().to_owned();
        let mut messages = vec![json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })];
        for uri in uris {
            let params = json!({ "uri": uri });
            messages.push(
                json!({ "jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": params }),
            );
        }
        for message in messages {
            let request = Request::post(message.to_string()).header("mcp-session-id", &id);
            let reply = self.send(request).await;
            assert!(matches!(reply.status, 200 | 202), "{}", reply.text());
        }
        let stream = self.with(Request::stream().header("mcp-session-id", &id));
        (id, Events::new(stream.open(self.address).await))
    }
}

/// A service with a reader, who sees notes alone, and operators, who may do everything.
struct Ruled {
    server: Server,
    config: String,
    reader: String,
    ops: String,
}

/// Makes a token of this principal, whose hash goes into its file beside the configuration.
pub(crate) fn token_of(server_folder: &std::path::Path, name: &str) -> String {
    let made = Command::new(binary())
        .args(["token", "new", name, "--file"])
        .arg(server_folder.join(name))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim_end().to_owned()
}

impl Ruled {
    async fn start() -> Ruled {
        Ruled::start_with(RULES, "").await
    }

    /// Starts it with the rule of readers that wait, and with `end` at the end of the line of the reader's
    /// token.
    async fn start_until(end: &str) -> Ruled {
        Ruled::start_with(&format!("{RULES}{WAITS}"), end).await
    }

    async fn start_with(rules: &str, end: &str) -> Ruled {
        let folder = tempfile::tempdir().unwrap();
        let reader = token_of(folder.path(), "reader");
        let ops = token_of(folder.path(), "ops");
        let file = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let reader_line = file("reader");
        let (hash, comment) = reader_line
            .split_once(" #")
            .unwrap_or((reader_line.trim_end(), ""));
        let reader_line = format!("{hash}{end} #{comment}");
        let ops_line = file("ops");
        let config = "[auth]\nanonymous = 'none'\n[audit]\nfile = 'audit.jsonl'\n\
             [[auth.token]]\nname = 'reader'\nfile = 'reader'\nroles = ['reader']\n\
             [[auth.token]]\nname = 'ops'\nfile = 'ops'\nroles = ['ops']\n"
            .to_owned();
        let files = [("reader", reader_line.as_str()), ("ops", ops_line.as_str())];
        let server = Server::with_files(&format!("{config}{rules}"), &files).await;
        let ruled = Ruled {
            server,
            config,
            reader,
            ops,
        };
        for uri in [SEEN, OTHER, HIDDEN] {
            let put = ruled.put(uri, "1").await;
            assert_eq!(put.status, 201, "{}", put.text());
        }
        ruled
    }

    /// Returns the way of the caller with this token.
    fn way(&self, token: &str) -> Way {
        Way {
            address: self.server.address,
            token: Some(token.to_owned()),
        }
    }

    /// Sends a request with a token.
    async fn send(&self, token: &str, request: Request) -> Reply {
        self.way(token).send(request).await
    }

    async fn get(&self, token: &str, path: &str) -> Reply {
        self.send(token, Request::new("GET", path)).await
    }

    /// Publishes as the operators.
    async fn put(&self, uri: &str, text: &str) -> Reply {
        self.way(&self.ops).put(uri, text).await
    }

    /// Sends a request of 2026-07-28.
    async fn call(&self, token: &str, method: &str, params: Value) -> Value {
        self.send(token, modern_post(&json!(1), method, params))
            .await
            .json()
    }

    /// Opens a session, and its stream; returns the session's id too.
    async fn session(&self, token: &str, uris: &[&str]) -> (String, Events) {
        self.way(token).session(uris).await
    }

    async fn in_session(&self, token: &str, id: &str, message: &Value) -> Reply {
        let request = Request::post(message.to_string()).header("mcp-session-id", id);
        self.send(token, request).await
    }

    /// Replaces the rules, as an operator does.
    fn replace_rules(&self, rules: &str) {
        let file = self.server.folder().join("tidings.toml");
        fs::write(file, format!("{}{rules}", self.config)).unwrap();
        let pid = self.server.pid().to_string();
        assert!(
            Command::new("kill")
                .args(["-HUP", &pid])
                .status()
                .unwrap()
                .success()
        );
    }
}

/// The text with the name of the resource taken out.
fn without(uri: &str, text: &str) -> String {
    text.replace(uri, "URI").replace(&resource_path(uri), "PATH")
}

#[tokio::test]
async fn hidden_resource_is_as_one_that_is_absent() {
    let ruled = Ruled::start().await;
    let reader = &ruled.reader;
    let mut answers = Vec::new();
    for uri in [HIDDEN, UNKNOWN] {
        let mut seen = Vec::new();
        let get = ruled.get(reader, &resource_path(uri)).await;
        seen.push(format!("{} {}", get.status, without(uri, get.text())));
        for (method, params) in [
            ("resources/read", json!({ "uri": uri })),
            (
                "tools/call",
                json!({ "name": "get_resource_etag", "arguments": { "uri": uri } }),
            ),
            (
                "tools/call",
                json!({ "name": "read_resource", "arguments": { "uri": uri } }),
            ),
            (
                "tools/call",
                json!({ "name": "get_resource_etags", "arguments": { "items": [{ "uri": uri }] } }),
            ),
        ] {
            let answer = ruled.call(reader, method, params).await;
            seen.push(without(uri, &answer.to_string()));
        }
        let (id, _stream) = ruled.session(reader, &[]).await;
        let params = json!({ "uri": uri });
        let subscribe =
            json!({ "jsonrpc": "2.0", "id": 3, "method": "resources/subscribe", "params": params });
        let refused = ruled.in_session(reader, &id, &subscribe).await;
        seen.push(without(uri, &refused.json().to_string()));
        answers.push(seen);
    }
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0][0].starts_with("404 "), "{:?}", answers[0]);
    // The operators find it there.
    let get = ruled.get(&ruled.ops, &resource_path(HIDDEN)).await;
    assert_eq!((get.status, get.text()), (200, "1"));
}

#[tokio::test]
async fn wait_takes_hidden_for_absent_item_by_item() {
    let ruled = Ruled::start().await;
    let reader = &ruled.reader;
    let wait = "'tool:wait_for_resource_change'";
    ruled.replace_rules(&RULES.replace("'tool:read_resource'", wait));
    within("the right to wait", async {
        loop {
            let tools = ruled.call(reader, "tools/list", json!({})).await.to_string();
            if tools.contains("wait_for_resource_change") {
                return;
            }
        }
    })
    .await;
    let seen = ruled.get(reader, &resource_path(SEEN)).await;
    let seen = seen.header("etag").unwrap().trim_matches('"').to_owned();
    for (held, timed_out) in [(Value::Null, true), ("v1-7".into(), false)] {
        let mut answers = Vec::new();
        for uri in [HIDDEN, UNKNOWN] {
            let items = json!([{ "uri": SEEN, "client_etag": seen }, { "uri": uri, "client_etag": held }]);
            let arguments = json!({ "items": items, "timeout_ms": 0 });
            let params = json!({ "name": "wait_for_resource_change", "arguments": arguments });
            let answer = ruled.call(reader, "tools/call", params).await;
            let answer = answer["result"]["structuredContent"].clone();
            assert_eq!(answer["timed_out"], timed_out, "{answer}");
            assert_eq!(answer["items"][0]["etag_encoded"], *seen, "{answer}");
            answers.push(without(uri, &answer.to_string()));
        }
        assert_eq!(answers[0], answers[1]);
    }
}

#[tokio::test]
async fn lists_show_what_a_caller_may_see() {
    let ruled = Ruled::start().await;
    let listed = async |token: &str| {
        let list = ruled.get(token, "/v1/resources").await.json();
        let uris = list["items"].as_array().unwrap().iter();
        let over_http: Vec<_> = uris
            .map(|item| item["uri"].as_str().unwrap().to_owned())
            .collect();
        let list = ruled.call(token, "resources/list", json!({})).await;
        let uris = list["result"]["resources"].as_array().unwrap().iter();
        let over_mcp: Vec<_> = uris
            .map(|item| item["uri"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(over_http, over_mcp);
        over_http
    };
    assert_eq!(listed(&ruled.reader).await, [OTHER, SEEN]);
    assert_eq!(listed(&ruled.ops).await, [OTHER, SEEN, HIDDEN]);
    let tools = ruled.call(&ruled.reader, "tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 3);
    let params = json!({ "name": "wait_for_resource_change", "arguments": {} });
    let answer = ruled.call(&ruled.reader, "tools/call", params).await;
    assert_eq!(
        answer["error"]["message"],
        "Unknown tool: wait_for_resource_change"
    );
}

#[tokio::test]
async fn writes_and_operations_need_their_rights() {
    let ruled = Ruled::start().await;
    let reader = &ruled.reader;
    for uri in [SEEN, HIDDEN, UNKNOWN] {
        let put = Request::new("PUT", resource_path(uri)).header("content-type", "text/plain");
        assert_eq!(ruled.send(reader, put.body("2")).await.status, 403, "{uri}");
        let touch = Request::new("POST", format!("{}/touch", resource_path(uri)));
        assert_eq!(ruled.send(reader, touch).await.status, 403, "{uri}");
        let delete = Request::new("DELETE", resource_path(uri));
        assert_eq!(ruled.send(reader, delete).await.status, 403, "{uri}");
    }
    let batch = Request::new("POST", "/v1/resources")
        .header("content-type", "application/x-ndjson")
        .body(format!("{{\"put\":\"{SEEN}\",\"text\":\"2\"}}\n"));
    let answered = ruled.send(reader, batch).await;
    assert_eq!(
        (answered.status, answered.json()["status"].clone()),
        (200, json!(403))
    );
    for path in [
        "/v1/sessions",
        "/v1/subscribers",
        "/v1/sessions/s1",
        "/v1/upstreams",
        "/metrics",
    ] {
        assert_eq!(ruled.get(reader, path).await.status, 403, "{path}");
    }
    assert_eq!(ruled.get(&ruled.ops, "/metrics").await.status, 200);
    let get = ruled.get(reader, &resource_path(SEEN)).await;
    assert_eq!((get.status, get.text()), (200, "1"));
    // The audit has each of them, and no token.
    let audit = within("the audit", async {
        loop {
            let text = fs::read_to_string(ruled.server.folder().join("audit.jsonl")).unwrap_or_default();
            if text.contains("\"right\":\"metrics\"") {
                return text;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(
        audit.contains("\"decision\":\"denied\",\"principal\":\"token:reader\""),
        "{audit}"
    );
    assert!(!audit.contains(reader.as_str()) && !audit.contains(&ruled.ops));
}

#[tokio::test]
async fn session_belongs_to_its_principal() {
    let ruled = Ruled::start().await;
    let (id, _stream) = ruled.session(&ruled.reader, &[SEEN]).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" });
    let stolen = ruled.in_session(&ruled.ops, &id, &ping).await;
    let unknown = ruled.in_session(&ruled.ops, &"0".repeat(32), &ping).await;
    assert_eq!((stolen.status, stolen.text()), (404, unknown.text()));
    let own = ruled.in_session(&ruled.reader, &id, &ping).await;
    assert_eq!(own.status, 200, "{}", own.text());
}

/// Returns the URI of the next update.
async fn next_update(events: &mut Events) -> String {
    loop {
        if let Some(uri) = updated_uri(&events.message().await) {
            return uri.to_owned();
        }
    }
}

#[tokio::test]
async fn reload_ends_what_was_open() {
    let ruled = Ruled::start().await;
    let (_, mut reader) = ruled.session(&ruled.reader, &[SEEN, OTHER]).await;
    let listen = modern_post(
        &json!("l"),
        "subscriptions/listen",
        json!({ "notifications": updates(&[SEEN, OTHER]) }),
    )
    .header("authorization", format!("Bearer {}", ruled.reader));
    let mut listening = Events::new(listen.open(ruled.server.address).await);
    ruled.put(SEEN, "2").await;
    assert_eq!(next_update(&mut reader).await, SEEN);
    assert_eq!(next_update(&mut listening).await, SEEN);
    // From now on the reader has a right to the other note alone.
    ruled.replace_rules(&RULES.replace("match = ['note://*']", "match = ['note://other']"));
    within("the new rules", async {
        while ruled.get(&ruled.reader, &resource_path(SEEN)).await.status != 404 {}
    })
    .await;
    for text in 3..20 {
        ruled.put(SEEN, &text.to_string()).await;
    }
    ruled.put(OTHER, "2").await;
    assert_eq!(next_update(&mut reader).await, OTHER);
    assert_eq!(next_update(&mut listening).await, OTHER);
}

#[tokio::test]
async fn revoked_token_ends_its_streams() {
    let ruled = Ruled::start().await;
    let (_, mut reader) = ruled.session(&ruled.reader, &[SEEN]).await;
    let (_, mut ops) = ruled.session(&ruled.ops, &[SEEN]).await;
    let events =
        Request::new("GET", "/v1/events").header("authorization", format!("Bearer {}", ruled.reader));
    let events = events.open(ruled.server.address).await;
    assert_eq!(events.status, 200);
    fs::write(ruled.server.folder().join("reader"), "# none\n").unwrap();
    within("the end of the streams", async {
        // Changes of lists from before are told; of resources there is none.
        while let Ok(event) = reader.event().await {
            let told = event.message.as_ref().and_then(updated_uri);
            assert_eq!(told, None);
        }
        let events = events.reply().await;
        assert!(
            events
                .text()
                .ends_with("event: end\ndata: {\"reason\":\"unauthorized\"}\n\n"),
            "{}",
            events.text()
        );
    })
    .await;
    ruled.put(SEEN, "2").await;
    assert_eq!(next_update(&mut ops).await, SEEN);
    let refused = ruled.get(&ruled.reader, &resource_path(SEEN)).await;
    assert_eq!(refused.status, 401);
}

#[tokio::test]
async fn event_stream_has_what_its_client_may_be_told() {
    let ruled = Ruled::start().await;
    let events = Request::new("GET", "/v1/events?kind=updated")
        .header("authorization", format!("Bearer {}", ruled.reader))
        // An id of before everything: what was missed obeys the rights of today.
        .header("last-event-id", "0-0");
    let mut events = events.open(ruled.server.address).await;
    ruled.put(HIDDEN, "2").await;
    ruled.put(SEEN, "2").await;
    let mut text = Vec::new();
    within("the event", async {
        while !String::from_utf8_lossy(&text).contains("\"uri\":\"note://seen\"") {
            events.read(&mut text).await;
        }
    })
    .await;
    assert!(!String::from_utf8_lossy(&text).contains("secret://"));
}

/// Opens `/v1/events` after an id, and returns the data of its first event.
async fn resumed(ruled: &Ruled, token: &str, after: Option<&str>) -> Value {
    let mut request = Request::new("GET", "/v1/events").header("authorization", format!("Bearer {token}"));
    if let Some(id) = after {
        request = request.header("last-event-id", id);
    }
    let mut stream = request.open(ruled.server.address).await;
    let mut text = Vec::new();
    within("the first event", async {
        loop {
            let read = String::from_utf8_lossy(&text).into_owned();
            let data = read
                .split_once("data: ")
                .and_then(|(_, rest)| rest.split_once("\n\n"));
            if let Some((data, _)) = data {
                return serde_json::from_str(data).unwrap();
            }
            stream.read(&mut text).await;
        }
    })
    .await
}

#[tokio::test]
async fn number_of_hidden_changes_is_not_told() {
    let rules = format!("{RULES}[events]\nhistory_max = 4\n");
    let ruled = Ruled::start_with(&rules, "").await;
    let begin = resumed(&ruled, &ruled.reader, None).await;
    assert_eq!((&begin["complete"], &begin["missed"]), (&json!(true), &json!(0)));
    let id = begin["from"].as_str().unwrap();
    for text in 0..9 {
        ruled.put(HIDDEN, &format!("next {text}")).await;
    }
    let verdict = within("a history that has moved on", async {
        loop {
            let verdict = resumed(&ruled, &ruled.reader, Some(id)).await;
            if verdict["complete"] == false {
                return verdict;
            }
        }
    })
    .await;
    let expected = (&json!("forgotten"), Some(&Value::Null));
    assert_eq!((&verdict["reason"], verdict.get("missed")), expected);
}
