//! A small MCP server with at most one fault, over HTTP and as a program, in both eras.
//!
//! It is written without an MCP library, which would repair the faults. Its one resource is the content of a
//! file that a task polls.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::task::JoinHandle;

use tidings::wire::dialect::{
    ACKNOWLEDGED, RESOURCE_UPDATED, REVISION_META_KEY, SESSION_HEADER, SUBSCRIPTION_ID_META_KEY,
};

pub(crate) const URI: &str = "bad://a";
const LISTS: [&str; 3] = ["tools", "prompts", "resources"];

/// The fault of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Each read of a list announces a change of the tools.
    SpuriousLists,
    /// Every list is announced five times.
    FloodsFreshSessions,
    /// Subscriptions are advertised and answered with -32601.
    PromisesSubscribe,
    /// Nothing is advertised, and every notification is sent.
    AdvertisesNothing,
    IgnoresUnsubscribe,
    AnnouncesTwice,
    AnnouncesBeforeInitialized,
    AcknowledgesLate,
    /// Messages of listen streams carry no id.
    Untagged,
    /// The id of a listen stream is sent as a string, even if it was a number.
    TagsAsText,
    AcknowledgesMore,
    /// The first read after a notice returns the old content.
    ReadsStale,
    AcceptsUnknownUris,
    WrongMethodCode,
    AcceptsCursors,
    NeverAnnounces,
    /// A list that changes is not announced.
    HidesListChanges,
    /// Subscribers are told of the unchanged resource ten times a second.
    FloodsUpdates,
    /// A new subscriber is told of the unchanged resource once.
    AnnouncesOnSubscribe,
    /// A fresh session is told of a resource that it has not subscribed to.
    AnnouncesStrangers,
    /// Subscriptions of sessions are advertised and answered with -32601, and every session is told of every
    /// change.
    AnnouncesToAll,
    /// `initialize` is never answered.
    HangsOnInitialize,
    /// `initialize` is answered with an internal error.
    FailsOnInitialize,
    /// `server/discover` is never answered.
    HangsOnDiscover,
    /// `initialize` is refused, as by a server of 2026-07-28 alone.
    ModernAlone,
    /// The first answer takes longer than any other one may.
    StartsSlowly,
    /// No fault: a session is welcomed late, and gets no answers before, as on a machine under load.
    WelcomesSlowly,
    KeepsDeletedSessions,
    /// The end of a session is answered with HTTP status 500.
    FailsOnDelete,
    /// No fault: the end of a session is refused with 405.
    EndsSessionsItself,
    /// The stream of a session is refused with 405.
    RefusesStream,
    /// No listen request is granted a list.
    GrantsNoLists,
    /// No listen request is granted a resource.
    GrantsNoResources,
    /// A listen request is never acknowledged.
    NeverAcknowledges,
    /// A listen stream carries a log message, too.
    SendsUnrequested,
    /// Every session is told of every change, and subscriptions are not advertised.
    AnnouncesUnadvertised,
    /// `resources/unsubscribe` is answered with an error.
    RefusesUnsubscribe,
    /// The end of a listen request by a notification is ignored.
    IgnoresCancellation,
    /// No resource is listed, and a subscription to any is accepted.
    ListsNothing,
    /// Every read returns the first content.
    ReadsFirstContent,
    /// An unknown resource is answered with -32000.
    WrongResourceCode,
    /// An unknown resource has content.
    ReadsUnknownUris,
    /// An unknown method of 2026-07-28 is answered with HTTP status 200.
    WrongMethodStatus,
}

/// Longer than the limit on other answers in the test of a slow start.
const SLOW_START: Duration = Duration::from_secs(6);

/// Longer than the quiet time in the test of a slow welcome.
const SLOW_WELCOME: Duration = Duration::from_millis(600);

type Sender = mpsc::Sender<Value>;

#[derive(Default)]
struct Session {
    stream: Option<Sender>,
    /// The messages that wait for the stream to be opened.
    waiting: Vec<Value>,
    subscribed: bool,
    welcomed: bool,
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
    /// The old content that the next read returns, for [`Fault::ReadsStale`].
    stale: Option<String>,
}

struct Shared {
    fault: Fault,
    file: PathBuf,
    clients: Mutex<Clients>,
}

/// The running server.
pub(crate) struct FaultyServer {
    pub(crate) url: String,
    file: PathBuf,
    _folder: TempDir,
    tasks: [JoinHandle<()>; 3],
    /// The port of the same server for [`FaultyServer::program`].
    line_port: u16,
}

impl FaultyServer {
    pub(crate) async fn start(fault: Fault) -> FaultyServer {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("a.txt");
        fs::write(&file, "0").expect("a file");
        let shared = Arc::new(Shared {
            fault,
            file: file.clone(),
            clients: Mutex::default(),
        });
        shared.clients().content = "0".to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(handle).with_state(shared.clone());
        let serve = async move { axum::serve(listener, router).await.expect("it serves") };
        let lines = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        FaultyServer {
            url,
            line_port: lines.local_addr().expect("an address").port(),
            tasks: [
                tokio::spawn(serve),
                tokio::spawn(serve_lines(shared.clone(), lines)),
                tokio::spawn(poll_file(shared, file.clone())),
            ],
            file,
            _folder: folder,
        }
    }

    /// A command whose standard input and output are this server. When its input has ended, it runs `last`.
    pub(crate) fn program(&self, last: &str) -> Vec<OsString> {
        let port = self.line_port;
        let script =
            format!("exec 3<>/dev/tcp/127.0.0.1/{port}; cat <&3 & cat >&3; kill $!; exec 3>&-; {last}");
        ["bash", "-c", &script].map(OsString::from).to_vec()
    }

    /// A shell command that changes the resource.
    pub(crate) fn touch(&self) -> String {
        format!("printf x >> '{}'", self.file.display())
    }
}

impl Drop for FaultyServer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Polls the file and announces its changes.
async fn poll_file(shared: Arc<Shared>, file: PathBuf) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    for tick in 0_usize.. {
        ticks.tick().await;
        if shared.has(Fault::FloodsUpdates) && tick % 20 == 0 {
            shared.announce_update();
        }
        let now = fs::read_to_string(&file).unwrap_or_default();
        let mut clients = shared.clients();
        if now != clients.content {
            let before = std::mem::replace(&mut clients.content, now);
            if shared.has(Fault::ReadsStale) {
                clients.stale = Some(before);
            }
            drop(clients);
            // The description of the tool has the content.
            if !shared.has(Fault::HidesListChanges) {
                shared.announce_list("tools");
            }
            shared.announce_update();
        }
    }
}

async fn handle(
    State(shared): State<Arc<Shared>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let session = match headers.get(SESSION_HEADER) {
        Some(id) => id.to_str().expect("an id of ours"),
        None => "",
    };
    match method {
        Method::GET if shared.has(Fault::RefusesStream) => empty(StatusCode::METHOD_NOT_ALLOWED),
        Method::GET => shared.open_stream(session),
        Method::DELETE if shared.has(Fault::FailsOnDelete) => empty(StatusCode::INTERNAL_SERVER_ERROR),
        Method::DELETE if shared.has(Fault::EndsSessionsItself) => empty(StatusCode::METHOD_NOT_ALLOWED),
        Method::DELETE => {
            if !shared.has(Fault::KeepsDeletedSessions) {
                shared.clients().sessions.remove(session);
            }
            empty(StatusCode::NO_CONTENT)
        }
        _ => {
            let message: Value = serde_json::from_slice(&body).expect("a message");
            let method = message["method"].as_str().unwrap_or_default();
            if shared.has(Fault::WelcomesSlowly) && method == "notifications/initialized" {
                tokio::spawn(welcome_late(shared, session.to_owned()));
                return empty(StatusCode::ACCEPTED);
            }
            shared.delay(method, session).await;
            shared.post(session, &message)
        }
    }
}

/// Serves each connection as a process does its standard input and output: with a message per line.
async fn serve_lines(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        let (input, mut output) = stream.into_split();
        let (sender, mut lines) = mpsc::channel::<String>(1000);
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                // The process may have ended.
                if output.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(answer_lines(shared.clone(), input, sender));
    }
}

async fn answer_lines(shared: Arc<Shared>, input: OwnedReadHalf, sender: mpsc::Sender<String>) {
    let mut input = BufReader::new(input).lines();
    let mut session = String::new();
    while let Ok(Some(line)) = input.next_line().await {
        let message: Value = serde_json::from_str(&line).expect("a message");
        let method = message["method"].as_str().unwrap_or_default();
        shared.delay(method, &session).await;
        let response = shared.post(&session, &message);
        if let Some(id) = response.headers().get(SESSION_HEADER) {
            id.to_str().expect("an id of ours").clone_into(&mut session);
            tokio::spawn(forward(shared.open_stream(&session), sender.clone()));
        }
        match is_stream(&response) {
            true => drop(tokio::spawn(forward(response, sender.clone()))),
            false => forward(response, sender.clone()).await,
        }
    }
}

/// Writes the messages of a response as lines.
async fn forward(response: Response, sender: mpsc::Sender<String>) {
    let is_stream = is_stream(&response);
    let mut body = response.into_body().into_data_stream();
    while let Some(Ok(chunk)) = body.next().await {
        let text = String::from_utf8(chunk.to_vec()).expect("text");
        let message = match is_stream {
            // An event is one chunk.
            true => text.split_once("data: ").map(|(_, data)| data),
            false => Some(text.as_str()),
        };
        if let Some(message) = message
            && sender.send(format!("{}\n", message.trim_end())).await.is_err()
        {
            return;
        }
    }
}

fn is_stream(response: &Response) -> bool {
    response.headers().get("content-type").map(HeaderValue::as_bytes) == Some(b"text/event-stream")
}

async fn welcome_late(shared: Arc<Shared>, session: String) {
    tokio::time::sleep(SLOW_WELCOME).await;
    shared.announce(&session);
    let mut clients = shared.clients();
    clients.sessions.get_mut(&session).expect("it is there").welcomed = true;
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().expect("no test panics here")
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// Holds back an answer, for the faults of a slow or silent server.
    async fn delay(&self, method: &str, session: &str) {
        match (self.fault, method) {
            (Fault::HangsOnInitialize, "initialize") | (Fault::HangsOnDiscover, "server/discover") => {
                std::future::pending::<()>().await;
            }
            (Fault::StartsSlowly, "initialize") => tokio::time::sleep(SLOW_START).await,
            (Fault::WelcomesSlowly, _) => {
                while self.awaits_welcome(session) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            _ => {}
        }
    }

    fn awaits_welcome(&self, session: &str) -> bool {
        let clients = self.clients();
        match clients.sessions.get(session) {
            Some(session) => !session.welcomed,
            None => false,
        }
    }

    fn post(&self, session: &str, message: &Value) -> Response {
        let method = message["method"].as_str().unwrap_or_default();
        let modern = message["params"]["_meta"][REVISION_META_KEY].is_string();
        if method == "initialize" {
            let code = match self.fault {
                Fault::FailsOnInitialize => -32603,
                Fault::ModernAlone => -32601,
                _ => return self.initialize(message),
            };
            let error = json!({ "code": code, "message": "no" });
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error });
            return json_response(StatusCode::OK, &body);
        }
        if !modern && !self.clients().sessions.contains_key(session) {
            return empty(StatusCode::NOT_FOUND);
        }
        if message.get("id").is_none() {
            match method {
                "notifications/initialized" => self.announce(session),
                "notifications/cancelled" if !self.has(Fault::IgnoresCancellation) => {
                    let ended = &message["params"]["requestId"];
                    self.clients().listens.retain(|listen| listen.id != *ended);
                }
                _ => {}
            }
            return empty(StatusCode::ACCEPTED);
        }
        if method == "subscriptions/listen" && !self.has(Fault::PromisesSubscribe) {
            return self.listen(message);
        }
        let outcome = self.answer(session, method, &message["params"], modern);
        if method.ends_with("/list") && self.has(Fault::SpuriousLists) {
            self.announce_list("tools");
        }
        let status = match outcome {
            _ if self.has(Fault::WrongMethodStatus) => StatusCode::OK,
            // 2026-07-28 gives an unknown method this status.
            Err(-32601 | -32000) if modern => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
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
        if self.has(Fault::AnnouncesBeforeInitialized) {
            session.waiting.push(list_changed("tools"));
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
        response.headers_mut().insert(SESSION_HEADER, id);
        response
    }

    fn capabilities(&self) -> Value {
        let advertised = !self.has(Fault::AdvertisesNothing);
        json!({
            "tools": { "listChanged": advertised },
            "prompts": { "listChanged": advertised },
            "resources": {
                "listChanged": advertised,
                "subscribe": advertised && !self.has(Fault::AnnouncesUnadvertised),
            },
        })
    }

    fn accepts_unknown_uris(&self) -> bool {
        matches!(self.fault, Fault::AcceptsUnknownUris | Fault::ListsNothing)
    }

    fn announces_to_all(&self) -> bool {
        matches!(self.fault, Fault::AnnouncesToAll | Fault::AnnouncesUnadvertised)
    }

    /// The number of announcements of each list to a fresh client.
    fn announcements(&self) -> usize {
        match self.fault {
            Fault::FloodsFreshSessions => 5,
            _ => 1,
        }
    }

    fn announce(&self, session: &str) {
        let mut clients = self.clients();
        let session = clients.sessions.get_mut(session).expect("it is there");
        for kind in LISTS {
            for _ in 0..self.announcements() {
                session.send(list_changed(kind));
            }
        }
        if self.has(Fault::AnnouncesStrangers) {
            session.send(updated("bad://other"));
        }
    }

    fn answer(&self, session: &str, method: &str, params: &Value, modern: bool) -> Result<Value, i64> {
        let unknown_resource = match modern {
            _ if self.has(Fault::WrongResourceCode) => -32000,
            true => -32602,
            false => -32002,
        };
        let lists = method.ends_with("/list");
        if lists && params["cursor"].is_string() && !self.has(Fault::AcceptsCursors) {
            return Err(-32602);
        }
        let known = params["uri"] == URI;
        match method {
            "ping" if !modern => Ok(json!({})),
            "server/discover" => Ok(json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": self.capabilities(),
            })),
            "tools/list" => {
                let content = self.clients().content.clone();
                let schema = json!({ "type": "object" });
                Ok(json!({ "tools": [{ "name": "append", "description": content, "inputSchema": schema }] }))
            }
            "tools/call" if params["name"] == "append" => {
                let text = params["arguments"]["text"].as_str().expect("a text");
                let content = fs::read_to_string(&self.file).expect("the file");
                fs::write(&self.file, content + text).expect("the file");
                Ok(json!({ "content": [] }))
            }
            "tools/call" => {
                Ok(json!({ "content": [{ "type": "text", "text": "no such tool" }], "isError": true }))
            }
            "prompts/list" => Ok(json!({ "prompts": [{ "name": "p" }] })),
            "resources/list" if self.has(Fault::ListsNothing) => Ok(json!({ "resources": [] })),
            "resources/list" => Ok(json!({ "resources": [{ "uri": URI, "name": "a" }] })),
            "resources/templates/list" => Ok(json!({ "resourceTemplates": [] })),
            "resources/read" if known => {
                let mut clients = self.clients();
                let text = match clients.stale.take() {
                    _ if self.has(Fault::ReadsFirstContent) => "0".to_owned(),
                    Some(stale) => stale,
                    None => clients.content.clone(),
                };
                Ok(json!({ "contents": [{ "uri": URI, "text": text }] }))
            }
            "resources/read" if self.has(Fault::ReadsUnknownUris) => Ok(json!({ "contents": [] })),
            "resources/read" => Err(unknown_resource),
            "resources/unsubscribe" if self.has(Fault::RefusesUnsubscribe) => Err(-32603),
            "resources/subscribe" | "resources/unsubscribe" if !modern => self
                .subscribe(session, method, known)
                .map_err(|()| match self.fault {
                    Fault::PromisesSubscribe | Fault::AnnouncesToAll => -32601,
                    _ => unknown_resource,
                }),
            _ if self.has(Fault::WrongMethodCode) => Err(-32000),
            _ => Err(-32601),
        }
    }

    fn subscribe(&self, session: &str, method: &str, known: bool) -> Result<Value, ()> {
        if matches!(self.fault, Fault::PromisesSubscribe | Fault::AnnouncesToAll) {
            return Err(());
        }
        let on = method == "resources/subscribe";
        if !known && !self.accepts_unknown_uris() {
            return Err(());
        }
        if known && (on || !self.has(Fault::IgnoresUnsubscribe)) {
            let mut clients = self.clients();
            let session = clients.sessions.get_mut(session).expect("it is there");
            session.subscribed = on;
            if on && self.has(Fault::AnnouncesOnSubscribe) {
                session.send(updated(URI));
            }
        }
        Ok(json!({}))
    }

    fn open_stream(&self, session: &str) -> Response {
        let mut clients = self.clients();
        let Some(session) = clients.sessions.get_mut(session) else {
            return empty(StatusCode::NOT_FOUND);
        };
        let (sender, receiver) = mpsc::channel(1000);
        session.stream = Some(sender);
        for message in std::mem::take(&mut session.waiting) {
            session.send(message);
        }
        event_stream(receiver)
    }

    fn listen(&self, message: &Value) -> Response {
        let (stream, receiver) = mpsc::channel(1000);
        let asked = &message["params"]["notifications"];
        let mut filter = asked.clone();
        if let Some(uris) = filter["resourceSubscriptions"].as_array_mut() {
            uris.retain(|uri| uri == URI || self.accepts_unknown_uris());
            uris.retain(|_| !self.has(Fault::GrantsNoResources));
        }
        if self.has(Fault::GrantsNoLists) {
            let uris = filter["resourceSubscriptions"].take();
            filter = json!({ "resourceSubscriptions": uris });
        }
        let mut granted = filter.clone();
        if self.has(Fault::AcknowledgesMore) {
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
            "method": ACKNOWLEDGED,
            "params": { "notifications": granted },
        });
        match self.fault {
            Fault::NeverAcknowledges => {}
            Fault::AcknowledgesLate => {
                self.announce_lists_on(&listen);
                self.send_on(&listen, acknowledged);
            }
            _ => {
                self.send_on(&listen, acknowledged);
                self.announce_lists_on(&listen);
            }
        }
        if self.has(Fault::SendsUnrequested) {
            let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
            self.send_on(&listen, log);
        }
        if self.has(Fault::AnnouncesOnSubscribe) && asks_for_resource(&listen) {
            self.send_on(&listen, updated(URI));
        }
        self.clients().listens.push(listen);
        event_stream(receiver)
    }

    fn announce_lists_on(&self, listen: &Listen) {
        for kind in LISTS {
            for _ in 0..self.announcements() {
                self.announce_list_on(listen, kind);
            }
        }
    }

    fn send_on(&self, listen: &Listen, mut message: Value) {
        message["params"]["_meta"] = match (self.fault, &listen.id) {
            (Fault::Untagged, _) => json!({}),
            (Fault::TagsAsText, Value::Number(id)) => json!({ SUBSCRIPTION_ID_META_KEY: id.to_string() }),
            (_, id) => json!({ SUBSCRIPTION_ID_META_KEY: id }),
        };
        send(&listen.stream, message);
    }

    fn announce_list_on(&self, listen: &Listen, kind: &str) {
        if listen.filter[format!("{kind}ListChanged")] == true {
            self.send_on(listen, list_changed(kind));
        }
    }

    fn announce_list(&self, kind: &str) {
        let mut clients = self.clients();
        for session in clients.sessions.values_mut() {
            session.send(list_changed(kind));
        }
        for listen in &clients.listens {
            self.announce_list_on(listen, kind);
        }
    }

    fn announce_update(&self) {
        let times = match self.fault {
            Fault::NeverAnnounces => 0,
            Fault::AnnouncesTwice => 2,
            _ => 1,
        };
        let update = updated(URI);
        let mut clients = self.clients();
        for _ in 0..times {
            for session in clients.sessions.values_mut() {
                if session.subscribed || self.announces_to_all() {
                    session.send(update.clone());
                }
            }
            for listen in &clients.listens {
                if asks_for_resource(listen) {
                    self.send_on(listen, update.clone());
                }
            }
        }
    }
}

impl Session {
    fn send(&mut self, message: Value) {
        match &self.stream {
            Some(stream) => send(stream, message),
            None => self.waiting.push(message),
        }
    }
}

/// Sends a message; one to a client that has gone is lost.
fn send(stream: &Sender, message: Value) {
    if let Err(TrySendError::Full(message)) = stream.try_send(message) {
        panic!("the queue of a stream has no room for {message}");
    }
}

fn asks_for_resource(listen: &Listen) -> bool {
    let uris = listen.filter["resourceSubscriptions"].as_array();
    uris.into_iter().flatten().any(|uri| uri == URI)
}

fn updated(uri: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": RESOURCE_UPDATED, "params": { "uri": uri } })
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

/// Returns the response with a stream, which begins with a comment as servers send for keep-alive.
fn event_stream(receiver: mpsc::Receiver<Value>) -> Response {
    let first = stream::once(async { Ok::<_, std::io::Error>(": hello\n\n".to_owned()) });
    let rest = stream::unfold(receiver, |mut receiver| async move {
        let message = receiver.recv().await?;
        Some((Ok(format!("event: message\ndata: {message}\n\n")), receiver))
    });
    let response = Response::builder().header("content-type", "text/event-stream");
    let body = Body::from_stream(first.chain(rest));
    response.body(body).expect("a response")
}
