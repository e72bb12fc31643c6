//! The visits of a client to one node, by its kind. A visit ends with the problem that ends it.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tidings::wire::dialect::{ACKNOWLEDGED, Dialect, ETAG_META_KEY, RESOURCE_UPDATED, Revision};
use tidings::wire::http1::{HttpTarget, ResponseReader, resource_path};
use tidings::wire::jsonrpc::request;
use tidings::wire::sse::EventReader;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::{Visitor, WatcherKind};
use crate::durability::Connection;

/// The time within which a node must answer, unless the client goes to the next one.
const ANSWER_MAX: Duration = Duration::from_secs(6);

/// The interval of a client that polls.
const POLL: Duration = Duration::from_millis(300);

/// An event of a stream.
struct Event {
    id: Option<String>,
    data: Value,
}

impl Visitor {
    /// Follows the resources at a node until it is lost.
    pub(super) async fn visit(&mut self, target: &HttpTarget) -> Result<Infallible, String> {
        match self.kind {
            WatcherKind::Session => self.visit_session(target).await,
            WatcherKind::Listen => self.listen(target).await,
            WatcherKind::Events => self.follow_events(target).await,
            WatcherKind::Socket => self.follow_socket(target).await,
            WatcherKind::Poller => self.poll(target).await,
        }
    }

    async fn visit_session(&mut self, target: &HttpTarget) -> Result<Infallible, String> {
        let mut dialect = Dialect::new(Revision::R2025_11_25, "watcher");
        dialect.session = self.session.clone();
        if dialect.session.is_some() {
            let resumed = dialect.session_stream(target, self.last_id.as_deref());
            match Stream::open(target, &resumed).await {
                Ok(stream) => return self.follow_messages(stream).await,
                // Another node knows nothing of the session.
                Err(refused) if refused.contains("404") => {
                    self.session = None;
                    self.last_id = None;
                }
                Err(refused) => return Err(refused),
            }
        }
        let mut connection = Connection::new(target);
        let answer = ask(&mut connection, &dialect.initialize(target)).await?;
        dialect.session = answer.head.session().map(str::to_owned);
        self.seen().lists.clear();
        ask(&mut connection, &dialect.initialized(target)).await?;
        let stream = Stream::open(target, &dialect.session_stream(target, None)).await?;
        for (uri, etag) in self.known() {
            let params = json!({ "uri": uri, "_meta": { ETAG_META_KEY: etag } });
            let message = request(2, "resources/subscribe", params);
            ask(&mut connection, &dialect.post(target, &message))
                .await?
                .result()?;
        }
        self.session = dialect.session;
        self.follow_messages(stream).await
    }

    async fn listen(&mut self, target: &HttpTarget) -> Result<Infallible, String> {
        let dialect = Dialect::new(Revision::R2026_07_28, "watcher");
        let known = self.known();
        let uris: Vec<&String> = known.keys().collect();
        let filter = json!({ "resourceSubscriptions": uris });
        let mut params = dialect.params(json!({ "notifications": filter }));
        params["_meta"][ETAG_META_KEY] = json!(known);
        let message = request(1, "subscriptions/listen", params);
        let stream = Stream::open(target, &dialect.post(target, &message)).await?;
        self.follow_messages(stream).await
    }

    /// Reads the messages of a stream of either era.
    async fn follow_messages(&mut self, mut stream: Stream) -> Result<Infallible, String> {
        let mut is_open = self.kind == WatcherKind::Session;
        if is_open {
            self.is_connected();
        }
        loop {
            for event in stream.next().await? {
                if event.id.is_some() {
                    self.last_id = event.id;
                }
                let params = &event.data["params"];
                match event.data["method"].as_str() {
                    Some(RESOURCE_UPDATED) => {
                        let etag = &params["_meta"][ETAG_META_KEY];
                        self.note(&params["uri"], etag);
                    }
                    Some(ACKNOWLEDGED) => {
                        let granted = params["notifications"]["resourceSubscriptions"].as_array();
                        if granted.map(Vec::len) != Some(self.known().len()) {
                            return Err(format!("not all subscriptions were granted: {params}"));
                        }
                        is_open = true;
                        self.is_connected();
                    }
                    Some(method) if method.ends_with("list_changed") => self.seen().note_list(method),
                    _ if event.data.get("result").is_some() && is_open => {
                        return Err("the stream ended in order".to_owned());
                    }
                    _ if event.data.get("error").is_some() => return Err(event.data.to_string()),
                    _ => {}
                }
            }
        }
    }

    fn note(&self, uri: &Value, etag: &Value) {
        let uri = uri.as_str().unwrap_or_default();
        self.seen().note(uri, etag.as_str().unwrap_or_default());
    }

    async fn follow_events(&mut self, target: &HttpTarget) -> Result<Infallible, String> {
        let mut path = "/v1/events?kind=updated&kind=removed".to_owned();
        for uri in self.known().keys() {
            let uri = uri.replace(':', "%3A").replace('/', "%2F");
            path.push_str(&format!("&uri={uri}"));
        }
        let request = target.request_to("GET", &path);
        let request = match &self.last_id {
            Some(id) => request.header("Last-Event-ID", id).finish(),
            None => request.finish(),
        };
        let mut stream = Stream::open(target, &request).await?;
        let mut is_first = self.last_id.is_none();
        loop {
            for event in stream.next().await? {
                let data = &event.data;
                if data["complete"] == false || data["reason"].is_string() || is_first {
                    self.read_all(target).await?;
                }
                if data.get("complete").is_some() {
                    is_first = false;
                    self.is_connected();
                }
                if data["kind"].is_string() {
                    self.note(&data["uri"], &data["etag"]);
                }
                if event.id.is_some() {
                    self.last_id = event.id;
                }
            }
        }
    }

    /// Reads the etags of all resources, as a client does that has missed events.
    async fn read_all(&self, target: &HttpTarget) -> Result<(), String> {
        self.seen().readings += 1;
        let mut connection = Connection::new(target);
        for uri in self.known().keys() {
            let request = target.request_to("GET", &resource_path(uri)).finish();
            let answer = ask(&mut connection, &request).await?;
            if let Some(etag) = answer.head.etag() {
                self.seen().learn(uri, etag.trim_matches('"'));
            }
        }
        Ok(())
    }

    async fn follow_socket(&mut self, target: &HttpTarget) -> Result<Infallible, String> {
        let request = format!("ws://{}/v1/ws", target.address).into_client_request();
        let request = request.map_err(|error| error.to_string())?;
        let connected = timeout(ANSWER_MAX, async {
            let stream = TcpStream::connect(target.address).await;
            let stream = stream.map_err(|error| error.to_string())?;
            let upgraded = tokio_tungstenite::client_async(request, stream).await;
            upgraded.map_err(|error| error.to_string())
        });
        let (mut socket, _) = connected.await.map_err(|_| "no upgrade".to_owned())??;
        let subscribe = json!({ "type": "subscribe", "id": 1, "uris": [], "known": self.known() });
        let sent = socket.send(Message::text(subscribe.to_string())).await;
        sent.map_err(|error| error.to_string())?;
        while let Some(message) = socket.next().await {
            let Message::Text(text) = message.map_err(|error| error.to_string())? else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            match message["type"].as_str() {
                Some("updated" | "removed") => self.note(&message["uri"], &message["etag"]),
                Some("ack") => self.is_connected(),
                _ => return Err(message.to_string()),
            }
        }
        Err("the socket was closed".to_owned())
    }

    async fn poll(&mut self, target: &HttpTarget) -> Result<Infallible, String> {
        let dialect = Dialect::new(Revision::R2026_07_28, "watcher");
        let mut connection = Connection::new(target);
        let mut is_connected = false;
        loop {
            let mut items = Vec::new();
            for (uri, etag) in self.known() {
                items.push(json!({ "uri": uri, "client_etag": etag }));
            }
            let params = json!({ "name": "get_resource_etags", "arguments": { "items": items } });
            let request = dialect.request(target, 1, "tools/call", params);
            let result = ask(&mut connection, &request).await?.result()?;
            for item in result["structuredContent"]["items"]
                .as_array()
                .into_iter()
                .flatten()
            {
                if item["stale_for_client"] == true && item["etag_encoded"].is_string() {
                    self.note(&item["uri"], &item["etag_encoded"]);
                }
            }
            if !is_connected {
                is_connected = true;
                self.is_connected();
            }
            sleep(POLL).await;
        }
    }
}

/// Sends a request, and expects an answer of success.
async fn ask(
    connection: &mut Connection,
    request: &[u8],
) -> Result<tidings::wire::connection::HttpAnswer, String> {
    let answer = timeout(ANSWER_MAX, connection.ask(request)).await;
    let answer = answer.map_err(|_| "no answer".to_owned())??;
    match answer.head.is_success() {
        true => Ok(answer),
        false => Err(format!(
            "status {}: {}",
            answer.head.status,
            String::from_utf8_lossy(&answer.body)
        )),
    }
}

/// A stream of server-sent events.
struct Stream {
    socket: TcpStream,
    response: ResponseReader,
    events: EventReader,
}

impl Stream {
    /// Opens a stream, and waits for its head.
    async fn open(target: &HttpTarget, request: &[u8]) -> Result<Stream, String> {
        let opened = async {
            let mut socket = TcpStream::connect(target.address).await?;
            socket.write_all(request).await?;
            Ok::<_, std::io::Error>(socket)
        };
        let socket = timeout(ANSWER_MAX, opened).await;
        let socket = socket.map_err(|_| "no connection".to_owned())?;
        let mut stream = Stream {
            socket: socket.map_err(|error| error.to_string())?,
            response: ResponseReader::default(),
            events: EventReader::default(),
        };
        let mut head = [0; 1];
        // One byte at a time up to the end of the head, so that no event is read with it.
        let read = timeout(ANSWER_MAX, async {
            while stream.response.head().is_none() {
                let count = stream.socket.read(&mut head).await;
                let count = count.map_err(|error| error.to_string())?;
                if count == 0 {
                    return Err("the connection was closed".to_owned());
                }
                let taken = stream.response.read(&head, |_| {});
                taken.map_err(|error| error.to_string())?;
            }
            Ok(())
        });
        read.await.map_err(|_| "the stream did not open".to_owned())??;
        match stream.response.head() {
            Some(head) if head.is_stream => Ok(stream),
            Some(head) => Err(format!("no stream: status {}", head.status)),
            None => Err("no head".to_owned()),
        }
    }

    /// Waits for the next events, which may be none yet.
    async fn next(&mut self) -> Result<Vec<Event>, String> {
        let mut bytes = vec![0; 16 << 10];
        let count = self.socket.read(&mut bytes).await;
        let count = count.map_err(|error| error.to_string())?;
        if count == 0 {
            return Err("the stream was closed".to_owned());
        }
        let mut body = Vec::new();
        let read = self
            .response
            .read(&bytes[..count], |part| body.extend_from_slice(part));
        read.map_err(|error| error.to_string())?;
        let mut events = Vec::new();
        let split = self.events.read(&body, |event| {
            events.push(Event {
                id: event.id.map(str::to_owned),
                data: serde_json::from_slice(event.data).unwrap_or_default(),
            });
        });
        split.map_err(|error| error.to_string())?;
        Ok(events)
    }
}
