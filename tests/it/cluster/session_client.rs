//! A client of MCP over HTTP that goes from node to node with one session, and counts what it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use reqwest::Response;
use serde_json::{Value, json};

use super::node::Node;

/// The time for which a client waits for something that must happen.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// The answer to a request.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) retry_after: bool,
    pub(super) text: String,
}

/// A client with one session.
pub(super) struct SessionClient {
    http: reqwest::Client,
    token: Option<String>,
    pub(super) id: String,
    /// The newest id of its events.
    pub(super) last: Option<String>,
    pub(super) told: Told,
}

/// What a client was told.
#[derive(Default)]
pub(super) struct Told {
    newest: BTreeMap<String, String>,
    seen: BTreeSet<(String, String)>,
    /// The changes that were told again.
    pub(super) repeats: Vec<(String, String)>,
    pub(super) lists: Vec<String>,
}

impl Told {
    fn take(&mut self, message: &Value) {
        let method = message["method"].as_str().unwrap();
        if method != "notifications/resources/updated" {
            if method.ends_with("list_changed") {
                self.lists.push(method.to_owned());
            }
            return;
        }
        let params = &message["params"];
        let uri = params["uri"].as_str().unwrap().to_owned();
        let etag = params["_meta"]["io.github.tidings/etag"]
            .as_str()
            .unwrap()
            .to_owned();
        self.newest.insert(uri.clone(), etag.clone());
        let one = (uri, etag);
        if !self.seen.insert(one.clone()) {
            self.repeats.push(one);
        }
    }

    /// Returns true if the newest etags are these.
    pub(super) fn has(&self, finals: &BTreeMap<String, String>) -> bool {
        finals
            .iter()
            .all(|(uri, etag)| self.newest.get(uri) == Some(etag))
    }

    /// The etags that the client holds.
    fn held(&self) -> Value {
        json!(self.newest)
    }
}

/// An open stream.
pub(super) struct EventStream {
    response: Response,
    text: String,
}

/// One block of a stream.
#[derive(Debug, Default)]
struct Block {
    id: Option<String>,
    data: Option<Value>,
    comment: Option<String>,
}

impl EventStream {
    /// Takes the answer of a node that must be a stream.
    async fn of(node: &Node, response: Response) -> EventStream {
        let status = response.status().as_u16();
        if status != 200 {
            panic!("{}: {status}: {}", node.name, response.text().await.unwrap());
        }
        EventStream {
            response,
            text: String::new(),
        }
    }

    /// Returns all that comes until the stream ends.
    pub(super) async fn rest(&mut self) -> String {
        let begin = Instant::now();
        while let Ok(Some(chunk)) = self.response.chunk().await {
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
            assert!(
                begin.elapsed() < PATIENCE,
                "the stream does not end: {}",
                self.text
            );
        }
        self.text.clone()
    }

    /// Returns the next block; none at the end of the stream.
    async fn next(&mut self) -> Option<Block> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let found = Block::read(block);
                self.text = rest.to_owned();
                return Some(found);
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await;
            match chunk.expect("a stream is silent for too long") {
                Ok(Some(chunk)) => self.text.push_str(std::str::from_utf8(&chunk).unwrap()),
                // A node that is killed ends its streams without their last chunk.
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Block {
    fn read(text: &str) -> Block {
        let mut block = Block::default();
        for line in text.lines() {
            if let Some(id) = line.strip_prefix("id: ") {
                block.id = Some(id.to_owned());
            } else if let Some(data) = line.strip_prefix("data: ") {
                block.data = serde_json::from_str(data).ok();
            } else if let Some(comment) = line.strip_prefix(": ") {
                block.comment = Some(comment.to_owned());
            }
        }
        block
    }
}

pub(super) fn http() -> reqwest::Client {
    // The clients of these tests speak no TLS, but make their provider all the same.
    rustls::crypto::ring::default_provider().install_default().ok();
    // A connection of its own for each request: a client that changes its node has none to it.
    reqwest::Client::builder()
        .pool_max_idle_per_host(0)
        .build()
        .unwrap()
}

impl SessionClient {
    /// Opens a session at a node, for a client that takes notifications.
    pub(super) async fn open(node: &Node, token: Option<&str>) -> SessionClient {
        let mut client = SessionClient {
            http: http(),
            token: token.map(str::to_owned),
            id: String::new(),
            last: None,
            told: Told::default(),
        };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "hopper", "version": "1"},
        });
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let answer = client.request(node, "POST", Some(body)).send().await.unwrap();
        let id = answer.headers().get("mcp-session-id").cloned();
        let text = answer.text().await.unwrap();
        client.id = match id {
            Some(id) => id.to_str().unwrap().to_owned(),
            None => panic!("no session: {text}"),
        };
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.post(node, ready).await.status, 202);
        client
    }

    fn request(&self, node: &Node, method: &str, body: Option<Value>) -> reqwest::RequestBuilder {
        let url = format!("{}/mcp", node.address);
        let mut request = self.http.request(method.parse().unwrap(), url);
        request = request.header("accept", "application/json, text/event-stream");
        if !self.id.is_empty() {
            request = request.header("mcp-session-id", &self.id);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        match body {
            Some(body) => request.json(&body),
            None => request,
        }
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> Reply {
        let answer = request.send().await.unwrap();
        Reply {
            status: answer.status().as_u16(),
            retry_after: answer.headers().contains_key("retry-after"),
            text: answer.text().await.unwrap(),
        }
    }

    pub(super) async fn post(&self, node: &Node, body: Value) -> Reply {
        self.send(self.request(node, "POST", Some(body))).await
    }

    pub(super) async fn ping(&self, node: &Node) -> Reply {
        self.post(node, json!({"jsonrpc": "2.0", "id": 7, "method": "ping"}))
            .await
    }

    pub(super) async fn delete(&self, node: &Node) -> Reply {
        self.send(self.request(node, "DELETE", None)).await
    }

    pub(super) async fn subscribe(&self, node: &Node, uri: &str) -> Reply {
        let params = json!({"uri": uri});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/subscribe", "params": params});
        self.post(node, body).await
    }

    /// Subscribes, and says that it must not be refused.
    pub(super) async fn subscribed(&self, node: &Node, uri: &str) {
        let reply = self.subscribe(node, uri).await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert!(reply.text.contains("\"result\""), "{}", reply.text);
    }

    pub(super) async fn unsubscribed(&self, node: &Node, uri: &str) {
        let params = json!({"uri": uri});
        let body = json!({"jsonrpc": "2.0", "id": 2, "method": "resources/unsubscribe", "params": params});
        let reply = self.post(node, body).await;
        assert!(reply.text.contains("\"result\""), "{}", reply.text);
    }

    /// Opens a stream, after the last event that it has if `resumes`.
    pub(super) async fn stream(&self, node: &Node, resumes: bool) -> EventStream {
        let mut request = self.request(node, "GET", None);
        if resumes && let Some(last) = &self.last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        EventStream::of(node, response).await
    }

    /// Reads until it was told of these etags.
    pub(super) async fn read_until(&mut self, stream: &mut EventStream, finals: &BTreeMap<String, String>) {
        let begin = Instant::now();
        while !self.told.has(finals) {
            let block = stream.next().await;
            let block = block.unwrap_or_else(|| panic!("the stream ended before {finals:?}"));
            self.take(block);
            assert!(begin.elapsed() < PATIENCE, "not told of {finals:?}");
        }
    }

    /// Reads until the stream ends. Returns its last comment.
    pub(super) async fn read_to_end(&mut self, stream: &mut EventStream) -> Option<String> {
        let mut comment = None;
        while let Some(mut block) = stream.next().await {
            comment = block.comment.take().or(comment);
            self.take(block);
        }
        comment
    }

    /// Reads until it was told of `count` changes of lists.
    pub(super) async fn read_lists(&mut self, stream: &mut EventStream, count: usize) {
        let begin = Instant::now();
        while self.told.lists.len() < count {
            assert!(begin.elapsed() < PATIENCE, "told of {:?} alone", self.told.lists);
            let block = stream.next().await;
            let lists = &self.told.lists;
            let block = block.unwrap_or_else(|| panic!("the stream ended after {lists:?}"));
            self.take(block);
        }
    }

    fn take(&mut self, block: Block) {
        if block.id.is_some() {
            self.last = block.id;
        }
        if let Some(message) = block.data {
            self.told.take(&message);
        }
    }
}

/// A client of 2026-07-28, which has no session.
pub(super) struct ListenClient {
    http: reqwest::Client,
    pub(super) told: Told,
    uris: Vec<String>,
}

impl ListenClient {
    pub(super) fn new(uris: &[String]) -> ListenClient {
        ListenClient {
            http: http(),
            told: Told::default(),
            uris: uris.to_vec(),
        }
    }

    /// Notes what the client has read itself.
    pub(super) fn holds(&mut self, etags: &BTreeMap<String, String>) {
        self.told.newest.extend(etags.clone());
    }

    /// Listens at a node, from the etags that it holds.
    pub(super) async fn listen(&self, node: &Node) -> EventStream {
        let params = json!({
            "notifications": {"resourceSubscriptions": self.uris},
            "_meta": {
                "io.github.tidings/etag": self.told.held(),
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        });
        let body = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": params});
        let request = self.http.post(format!("{}/mcp", node.address));
        let request = request
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "subscriptions/listen");
        let response = request.json(&body).send().await.unwrap();
        EventStream::of(node, response).await
    }

    /// Reads until it was told of these etags.
    pub(super) async fn read_until(&mut self, stream: &mut EventStream, finals: &BTreeMap<String, String>) {
        while !self.told.has(finals) {
            let block = stream.next().await;
            let block = block.unwrap_or_else(|| panic!("the stream ended before {finals:?}"));
            if let Some(message) = block.data
                && message["method"].is_string()
            {
                self.told.take(&message);
            }
        }
    }
}
