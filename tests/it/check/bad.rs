//! A small MCP server with at most one fault, hand-made so that no library mends it. Both eras, over HTTP.
//! Owns: one resource, the content of a file that is looked at again and again, and who is told when it changes.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use futures_util::stream;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) const URI: &str = "bad://a";
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
const LISTS: [&str; 3] = ["tools", "prompts", "resources"];

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    /// A list is asked for, and is said to have changed.
    SpuriousLists,
    /// Every list is announced five times.
    FloodsFreshSessions,
    /// Subscriptions are advertised and answered with -32601.
    PromisesSubscribe,
    /// Nothing is advertised, and all of it is sent.
    AdvertisesNothing,
    IgnoresUnsubscribe,
    TellsTwice,
    TellsBeforeInitialized,
    AcknowledgesLate,
    /// Messages of listen streams carry no id.
    Untagged,
    /// The id is sent as a text, whatever it was.
    TagsAsText,
    AcknowledgesMore,
    /// The first read after a notice answers the old content.
    ReadsStale,
    AcceptsUnknownUris,
    WrongMethodCode,
    AcceptsCursors,
    NeverTells,
    KeepsDeletedSessions,
}

type Sender = mpsc::Sender<Value>;

#[derive(Default)]
struct Session {
    stream: Option<Sender>,
    /// What is due before there is a stream.
    due: Vec<Value>,
    subscribed: bool,
}

struct Listen {
    id: Value,
    filter: Value,
    stream: Sender,
}

#[derive(Default)]
struct Clients {
    sessions: HashMap<String, Session>,
    listens: Vec<Listen>,
    content: String,
    stale: Option<String>,
}

struct Shared {
    defect: Defect,
    clients: Mutex<Clients>,
}

/// The running server.
pub(crate) struct Bad {
    pub(crate) url: String,
    file: PathBuf,
    _folder: TempDir,
    tasks: [JoinHandle<()>; 2],
}

impl Bad {
    pub(crate) async fn start(defect: Defect) -> Bad {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("a.txt");
        fs::write(&file, "0").expect("a file");
        let shared = Arc::new(Shared {
            defect,
            clients: Mutex::default(),
        });
        shared.clients().content = "0".to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(handle).with_state(shared.clone());
        let serve = async move { axum::serve(listener, router).await.expect("it serves") };
        Bad {
            url,
            tasks: [tokio::spawn(serve), tokio::spawn(look(shared, file.clone()))],
            file,
            _folder: folder,
        }
    }

    /// A shell command that changes the resource.
    pub(crate) fn touch(&self) -> String {
        format!("printf x >> '{}'", self.file.display())
    }
}

impl Drop for Bad {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Looks whether the file changed.
async fn look(shared: Arc<Shared>, file: PathBuf) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    loop {
        ticks.tick().await;
        let now = fs::read_to_string(&file).unwrap_or_default();
        let mut clients = shared.clients();
        if now != clients.content {
            let before = std::mem::replace(&mut clients.content, now);
            clients.stale = (shared.defect == Defect::ReadsStale).then_some(before);
            drop(clients);
            shared.changed();
        }
    }
}

async fn handle(
    State(shared): State<Arc<Shared>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let session = headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
    let session = session.unwrap_or_default();
    match method {
        Method::GET => shared.stream(session),
        Method::DELETE => {
            if shared.defect != Defect::KeepsDeletedSessions {
                shared.clients().sessions.remove(session);
            }
            empty(StatusCode::NO_CONTENT)
        }
        _ => shared.post(session, &serde_json::from_slice(&body).expect("a message")),
    }
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().expect("no test panics here")
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == defect
    }

    fn post(&self, session: &str, message: &Value) -> Response {
        let method = message["method"].as_str().unwrap_or_default();
        let modern = message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_string();
        if method == "initialize" {
            return self.initialize(message);
        }
        if !modern && !self.clients().sessions.contains_key(session) {
            return empty(StatusCode::NOT_FOUND);
        }
        if message.get("id").is_none() {
            if method == "notifications/initialized" {
                self.announce(session);
            }
            return empty(StatusCode::ACCEPTED);
        }
        if method == "subscriptions/listen" && !self.is(Defect::PromisesSubscribe) {
            return self.listen(message);
        }
        let outcome = self.answer(session, method, &message["params"], modern);
        if method.ends_with("/list") && self.is(Defect::SpuriousLists) {
            self.tell_list("tools");
        }
        let unknown = outcome
            .as_ref()
            .is_err_and(|code| matches!(code, -32601 | -32000));
        let status = if modern && unknown {
            StatusCode::NOT_FOUND
        } else {
            StatusCode::OK
        };
        let body = match outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }),
            Err(code) => {
                let error = json!({ "code": code, "message": "no" });
                json!({ "jsonrpc": "2.0", "id": message["id"], "error": error })
            }
        };
        json_response(status, &body)
    }

    fn initialize(&self, message: &Value) -> Response {
        let mut clients = self.clients();
        let id = format!("session-{}", clients.sessions.len());
        let mut session = Session::default();
        if self.is(Defect::TellsBeforeInitialized) {
            session.due.push(list_changed("tools"));
        }
        clients.sessions.insert(id.clone(), session);
        let result = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": self.capabilities(),
            "serverInfo": { "name": "bad", "version": "1" },
        });
        let mut response = json_response(
            StatusCode::OK,
            &json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }),
        );
        let id = id.parse().expect("a header");
        response.headers_mut().insert("mcp-session-id", id);
        response
    }

    fn capabilities(&self) -> Value {
        let yes = !self.is(Defect::AdvertisesNothing);
        json!({
            "tools": { "listChanged": yes },
            "prompts": { "listChanged": yes },
            "resources": { "listChanged": yes, "subscribe": yes },
        })
    }

    /// How often a fresh client is told of each list.
    fn announcements(&self) -> usize {
        if self.is(Defect::FloodsFreshSessions) {
            5
        } else {
            1
        }
    }

    fn announce(&self, session: &str) {
        let mut clients = self.clients();
        let session = clients.sessions.get_mut(session).expect("it is there");
        for kind in LISTS {
            for _ in 0..self.announcements() {
                session.tell(list_changed(kind));
            }
        }
    }

    fn answer(&self, session: &str, method: &str, params: &Value, modern: bool) -> Result<Value, i64> {
        let unknown_resource = if modern { -32602 } else { -32002 };
        let lists = method.ends_with("/list");
        if lists && params["cursor"].is_string() && !self.is(Defect::AcceptsCursors) {
            return Err(-32602);
        }
        let known = params["uri"] == URI;
        match method {
            "ping" if !modern => Ok(json!({})),
            "server/discover" => Ok(json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": self.capabilities(),
            })),
            "tools/list" => Ok(json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] })),
            "prompts/list" => Ok(json!({ "prompts": [{ "name": "p" }] })),
            "resources/list" => Ok(json!({ "resources": [{ "uri": URI, "name": "a" }] })),
            "resources/templates/list" => Ok(json!({ "resourceTemplates": [] })),
            "resources/read" if known => {
                let mut clients = self.clients();
                let text = clients.stale.take().unwrap_or_else(|| clients.content.clone());
                Ok(json!({ "contents": [{ "uri": URI, "text": text }] }))
            }
            "resources/read" => Err(unknown_resource),
            "resources/subscribe" | "resources/unsubscribe" if !modern => self
                .subscribe(session, method, known)
                .map_err(|()| match self.defect {
                    Defect::PromisesSubscribe => -32601,
                    _ => unknown_resource,
                }),
            _ if self.is(Defect::WrongMethodCode) => Err(-32000),
            _ => Err(-32601),
        }
    }

    fn subscribe(&self, session: &str, method: &str, known: bool) -> Result<Value, ()> {
        if self.is(Defect::PromisesSubscribe) {
            return Err(());
        }
        let on = method == "resources/subscribe";
        if !known && !self.is(Defect::AcceptsUnknownUris) {
            return Err(());
        }
        if known && (on || !self.is(Defect::IgnoresUnsubscribe)) {
            let mut clients = self.clients();
            clients.sessions.get_mut(session).expect("it is there").subscribed = on;
        }
        Ok(json!({}))
    }

    fn stream(&self, session: &str) -> Response {
        let mut clients = self.clients();
        let Some(session) = clients.sessions.get_mut(session) else {
            return empty(StatusCode::NOT_FOUND);
        };
        let (sender, receiver) = mpsc::channel(1000);
        session.stream = Some(sender);
        for message in std::mem::take(&mut session.due) {
            session.tell(message);
        }
        events(receiver)
    }

    fn listen(&self, message: &Value) -> Response {
        let (stream, receiver) = mpsc::channel(1000);
        let asked = &message["params"]["notifications"];
        let uris = asked["resourceSubscriptions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let known = |uri: &Value| uri == URI || self.is(Defect::AcceptsUnknownUris);
        let mut filter = asked.clone();
        if !uris.is_empty() {
            filter["resourceSubscriptions"] = uris.into_iter().filter(known).collect();
        }
        let mut granted = filter.clone();
        if self.is(Defect::AcknowledgesMore) {
            granted["promptsListChanged"] = json!(true);
            granted["resourceSubscriptions"] = json!([URI, "bad://more"]);
        }
        let listen = Listen {
            id: message["id"].clone(),
            filter,
            stream,
        };
        let acknowledged = json!({
            "jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": { "notifications": granted },
        });
        let announce = || {
            for kind in LISTS {
                for _ in 0..self.announcements() {
                    self.tell_listen_list(&listen, kind);
                }
            }
        };
        if self.is(Defect::AcknowledgesLate) {
            announce();
            self.tell_listen(&listen, acknowledged);
        } else {
            self.tell_listen(&listen, acknowledged);
            announce();
        }
        self.clients().listens.push(listen);
        events(receiver)
    }

    fn tell_listen(&self, listen: &Listen, mut message: Value) {
        message["params"]["_meta"] = match (self.defect, &listen.id) {
            (Defect::Untagged, _) => json!({}),
            (Defect::TagsAsText, Value::Number(id)) => json!({ SUBSCRIPTION_ID: id.to_string() }),
            (_, id) => json!({ SUBSCRIPTION_ID: id }),
        };
        // The client may have gone.
        listen.stream.try_send(message).unwrap_or_default();
    }

    fn tell_listen_list(&self, listen: &Listen, kind: &str) {
        if listen.filter[format!("{kind}ListChanged")] == true {
            self.tell_listen(listen, list_changed(kind));
        }
    }

    fn tell_list(&self, kind: &str) {
        let mut clients = self.clients();
        for session in clients.sessions.values_mut() {
            session.tell(list_changed(kind));
        }
        for listen in &clients.listens {
            self.tell_listen_list(listen, kind);
        }
    }

    fn changed(&self) {
        let times = match self.defect {
            Defect::NeverTells => 0,
            Defect::TellsTwice => 2,
            _ => 1,
        };
        let update = json!({
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": { "uri": URI },
        });
        let mut clients = self.clients();
        for _ in 0..times {
            for session in clients.sessions.values_mut().filter(|session| session.subscribed) {
                session.tell(update.clone());
            }
            for listen in &clients.listens {
                let uris = listen.filter["resourceSubscriptions"].as_array();
                if uris.is_some_and(|uris| uris.contains(&json!(URI))) {
                    self.tell_listen(listen, update.clone());
                }
            }
        }
    }
}

impl Session {
    fn tell(&mut self, message: Value) {
        match &self.stream {
            // The client may have gone.
            Some(stream) => stream.try_send(message).unwrap_or_default(),
            None => self.due.push(message),
        }
    }
}

fn list_changed(kind: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": format!("notifications/{kind}/list_changed"), "params": {} })
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn json_response(status: StatusCode, body: &Value) -> Response {
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    response.body(Body::from(body.to_string())).expect("a response")
}

/// A stream that begins with a comment, as keep-alives are.
fn events(receiver: mpsc::Receiver<Value>) -> Response {
    let first = stream::once(async { Ok::<_, std::io::Error>(": hello\n\n".to_owned()) });
    let rest = stream::unfold(receiver, |mut receiver| async move {
        let message = receiver.recv().await?;
        Some((Ok(format!("event: message\ndata: {message}\n\n")), receiver))
    });
    let response = Response::builder().header("content-type", "text/event-stream");
    let body = Body::from_stream(stream::StreamExt::chain(first, rest));
    response.body(body).expect("a response")
}
