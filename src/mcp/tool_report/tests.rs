//! The messages of running tools, as clients see them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use rmcp::model::CallToolRequestParams;
use rmcp::service::NotificationContext;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient, ServiceExt};
use serde_json::{Map, Value, json};
use tokio::sync::{Semaphore, mpsc};

use super::*;
use crate::mcp::{Endpoint, EndpointBody, McpOptions, Wrap, serve_stdio};
use crate::{Bus, Tool, ToolOutput};

/// The time within which everything expected must happen.
const DEADLINE: Duration = Duration::from_secs(20);

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("an expected event did not happen in time")
}

/// Starts a bus with one tool.
async fn bus_with(tool: Tool) -> Bus {
    let bus = Bus::builder().start().unwrap();
    bus.add_tool(tool).await.unwrap();
    bus
}

/// A bus with a tool `work`, which sends its first messages, waits until `gate` opens and sends the rest.
async fn bus(gate: Arc<Semaphore>) -> Bus {
    bus_with(Tool::with_context(
        "work",
        move |_: Map<String, Value>, context: CallContext| {
            let gate = gate.clone();
            async move {
                context.progress(1.0, Some(2.0), Some("half")).await;
                context.log(LogLevel::Info, None, json!("began")).await;
                gate.acquire().await?.forget();
                for wrong in [1.0, 0.5, f64::NAN, f64::INFINITY] {
                    context.progress(wrong, None, None).await;
                }
                context.log(LogLevel::Debug, None, json!("detail")).await;
                context.progress(2.0, Some(2.0), None).await;
                context
                    .log(LogLevel::Error, Some("work"), json!({ "ended": true }))
                    .await;
                Ok(ToolOutput::text("done"))
            }
        },
    ))
    .await
}

fn open_gate() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(Semaphore::MAX_PERMITS))
}

/// A client that records the messages it receives.
struct RecordingClient(mpsc::Sender<String>);

impl ClientHandler for RecordingClient {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let text = format!("{} of {:?} {:?}", params.progress, params.total, params.message);
        self.0.send(text).await.unwrap();
    }

    #[expect(
        deprecated,
        reason = "rmcp marks logging for a later revision; all five of ours have it"
    )]
    async fn on_logging_message(
        &self,
        params: rmcp::model::LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let text = format!("{:?} {:?} {}", params.level, params.logger, params.data);
        self.0.send(text).await.unwrap();
    }
}

/// Calls `work` through `client` and opens the gate only once the first messages have arrived.
async fn follow(
    client: rmcp::service::RunningService<RoleClient, RecordingClient>,
    mut received: mpsc::Receiver<String>,
    gate: &Semaphore,
) {
    let peer = client.peer().clone();
    let call = tokio::spawn(async move { peer.call_tool(CallToolRequestParams::new("work")).await });
    let mut texts = Vec::new();
    for _ in 0..2 {
        texts.push(in_time(received.recv()).await.unwrap());
    }
    assert!(!call.is_finished());
    gate.add_permits(1);
    for _ in 0..2 {
        texts.push(in_time(received.recv()).await.unwrap());
    }
    // A client hands each message to a task of its own.
    texts.sort();
    let expected = [
        "1 of Some(2.0) Some(\"half\")",
        "2 of Some(2.0) None",
        "Error Some(\"work\") {\"ended\":true}",
        "Info None \"began\"",
    ];
    assert_eq!(texts, expected);
    let answer = in_time(call).await.unwrap().unwrap();
    assert_ne!(answer.is_error, Some(true));
    client.cancel().await.unwrap();
    assert_eq!(in_time(received.recv()).await, None);
}

#[tokio::test]
async fn http_client_receives_messages_of_running_tool() {
    let gate = Arc::new(Semaphore::new(0));
    let endpoint = Endpoint::new(bus(gate.clone()).await, McpOptions::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let app = axum::Router::new().route_service("/mcp", endpoint);
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let (sender, received) = mpsc::channel(16);
    let client = crate::http_client::builder(&url).build().unwrap();
    let config = StreamableHttpClientTransportConfig::with_uri(url);
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let client = in_time(RecordingClient(sender).serve(transport)).await.unwrap();
    follow(client, received, &gate).await;
    server.abort();
}

#[tokio::test]
async fn stdio_client_receives_messages_of_running_tool() {
    let gate = Arc::new(Semaphore::new(0));
    let bus = bus(gate.clone()).await;
    let (ours, theirs) = tokio::io::duplex(4096);
    let (input, output) = tokio::io::split(ours);
    let server = tokio::spawn(serve_stdio(bus, McpOptions::default(), input, output));
    let (sender, received) = mpsc::channel(16);
    let client = in_time(RecordingClient(sender).serve(tokio::io::split(theirs)))
        .await
        .unwrap();
    follow(client, received, &gate).await;
    in_time(server).await.unwrap().unwrap();
}

#[tokio::test]
async fn wrapped_client_receives_messages_of_bus_tool() {
    struct Plain;
    impl rmcp::ServerHandler for Plain {}
    let gate = Arc::new(Semaphore::new(0));
    let wrap = Wrap::new(bus(gate.clone()).await, McpOptions::default())
        .await
        .unwrap();
    let (ours, theirs) = tokio::io::duplex(4096);
    let server = tokio::spawn(wrap.handler(Plain).serve(tokio::io::split(ours)));
    let (sender, received) = mpsc::channel(16);
    let client = in_time(RecordingClient(sender).serve(tokio::io::split(theirs)))
        .await
        .unwrap();
    let _server = in_time(server).await.unwrap().unwrap();
    set_level(&client, LogLevel::Info).await;
    follow(client, received, &gate).await;
}

#[expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]
async fn set_level(client: &rmcp::service::RunningService<RoleClient, RecordingClient>, level: LogLevel) {
    let params = rmcp::model::SetLevelRequestParams::new(convert::logging_level(level));
    in_time(client.set_level(params)).await.unwrap();
}

/// A tool `work` whose messages come after its answer, once `gate` opens. At the end it adds a permit to
/// `finished`.
fn late_tool(gate: &Arc<Semaphore>, finished: &Arc<Semaphore>) -> Tool {
    let gate = gate.clone();
    let finished = finished.clone();
    Tool::with_context("work", move |_: Map<String, Value>, context: CallContext| {
        let gate = gate.clone();
        let finished = finished.clone();
        async move {
            tokio::spawn(async move {
                gate.acquire().await.unwrap().forget();
                for _ in 0..20 {
                    context.log(LogLevel::Emergency, None, json!("late")).await;
                }
                finished.add_permits(1);
            });
            Ok(ToolOutput::text("done"))
        }
    })
}

#[tokio::test]
async fn messages_end_with_the_answer() {
    let gate = Arc::new(Semaphore::new(0));
    let finished = Arc::new(Semaphore::new(0));
    let bus = bus_with(late_tool(&gate, &finished)).await;
    let (ours, theirs) = tokio::io::duplex(4096);
    let (input, output) = tokio::io::split(ours);
    tokio::spawn(serve_stdio(bus, McpOptions::default(), input, output));
    let (sender, mut received) = mpsc::channel(32);
    let client = in_time(RecordingClient(sender).serve(tokio::io::split(theirs)))
        .await
        .unwrap();
    in_time(client.call_tool(CallToolRequestParams::new("work")))
        .await
        .unwrap();
    gate.add_permits(1);
    in_time(finished.acquire()).await.unwrap().forget();
    // Everything that was written before this answer has been read with it.
    in_time(client.list_all_tools()).await.unwrap();
    client.cancel().await.unwrap();
    assert_eq!(in_time(received.recv()).await, None);
}

/// The endpoint, called without a connection.
struct EndpointClient {
    endpoint: Endpoint,
    session: Option<String>,
}

impl EndpointClient {
    async fn of(bus: Bus) -> EndpointClient {
        EndpointClient {
            endpoint: Endpoint::new(bus, McpOptions::default()),
            session: None,
        }
    }

    /// Opens a session of this revision.
    async fn in_session(bus: Bus, revision: &str) -> EndpointClient {
        let mut client = EndpointClient::of(bus).await;
        let params = json!({
            "protocolVersion": revision,
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = client.post(request("initialize", params)).await;
        let id = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        client.session = Some(id);
        let answer = &messages(answer).await[0];
        assert_eq!(answer["result"]["capabilities"]["logging"], json!({}));
        client
    }

    async fn post(&self, body: Value) -> Response<EndpointBody> {
        let mut request = Request::post("http://localhost/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        if let Some(version) = body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str() {
            request = request
                .header("mcp-protocol-version", version)
                .header("mcp-method", body["method"].as_str().unwrap());
        }
        if let Some(name) = body["params"]["name"].as_str() {
            request = request.header("mcp-name", name);
        }
        let body = Full::new(Bytes::from(body.to_string()));
        in_time(self.endpoint.handle(request.body(body).unwrap())).await
    }

    /// Returns the messages that a call of `work` sends before its answer.
    async fn messages_of_call(&self, meta: Value) -> Vec<Value> {
        let answer = self.post(call(meta)).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let mut messages = messages(answer).await;
        let last = messages.pop().unwrap();
        assert_eq!(last["result"]["content"][0]["text"], "done", "{last}");
        messages.iter().map(|message| message["params"].clone()).collect()
    }

    async fn set_level(&self, level: &str) -> Value {
        let answer = self
            .post(request("logging/setLevel", json!({ "level": level })))
            .await;
        messages(answer).await.remove(0)
    }
}

fn request(method: &str, params: impl Into<Value>) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params.into() })
}

fn call(meta: impl Into<Value>) -> Value {
    request(
        "tools/call",
        json!({ "name": "work", "arguments": {}, "_meta": meta.into() }),
    )
}

fn modern(more: &Value) -> Value {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let fields = meta.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    meta
}

/// The messages of an answer, JSON or stream.
async fn messages(answer: Response<EndpointBody>) -> Vec<Value> {
    let body = in_time(answer.into_body().collect()).await.unwrap().to_bytes();
    let text = std::str::from_utf8(&body).unwrap();
    if text.starts_with(['{', '[']) {
        return vec![serde_json::from_str(text).unwrap()];
    }
    let data = text.lines().flat_map(|line| line.strip_prefix("data:"));
    data.filter(|data| !data.trim().is_empty())
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

fn info() -> Value {
    json!({ "level": "info", "data": "began" })
}

fn debug() -> Value {
    json!({ "level": "debug", "data": "detail" })
}

fn error() -> Value {
    json!({ "level": "error", "logger": "work", "data": { "ended": true } })
}

#[tokio::test]
async fn session_gets_logs_from_its_level_on() {
    let client = EndpointClient::in_session(bus(open_gate()).await, "2025-11-25").await;
    assert_eq!(client.messages_of_call(json!({})).await, [info(), error()]);
    assert_eq!(client.set_level("debug").await["result"], json!({}));
    assert_eq!(
        client.messages_of_call(json!({})).await,
        [info(), debug(), error()]
    );
    client.set_level("error").await;
    assert_eq!(client.messages_of_call(json!({})).await, [error()]);
    client.set_level("critical").await;
    assert_eq!(client.messages_of_call(json!({})).await, [] as [Value; 0]);
    assert_eq!(client.set_level("loud").await["error"]["code"], -32602);
    assert_eq!(client.messages_of_call(json!({})).await, [] as [Value; 0]);
}

#[tokio::test]
async fn log_level_belongs_to_one_session() {
    let bus = bus(open_gate()).await;
    let quiet = EndpointClient::in_session(bus.clone(), "2025-06-18").await;
    let other = EndpointClient::in_session(bus, "2025-06-18").await;
    quiet.set_level("emergency").await;
    assert_eq!(quiet.messages_of_call(json!({})).await, [] as [Value; 0]);
    assert_eq!(other.messages_of_call(json!({})).await, [info(), error()]);
}

#[tokio::test]
async fn progress_has_callers_token_and_grows() {
    let bus = bus(open_gate()).await;
    for token in [json!("token"), json!(7)] {
        for (revision, half) in [
            (
                "2025-03-26",
                json!({ "progressToken": token, "progress": 1.0, "total": 2.0, "message": "half" }),
            ),
            // The oldest revision has no text beside the number.
            (
                "2024-11-05",
                json!({ "progressToken": token, "progress": 1.0, "total": 2.0 }),
            ),
        ] {
            let client = EndpointClient::in_session(bus.clone(), revision).await;
            client.set_level("emergency").await;
            let whole = json!({ "progressToken": token, "progress": 2.0, "total": 2.0 });
            assert_eq!(
                client.messages_of_call(json!({ "progressToken": token })).await,
                [half, whole],
                "{revision}"
            );
        }
    }
}

#[tokio::test]
async fn stateless_request_names_its_messages() {
    let client = EndpointClient::of(bus(open_gate()).await).await;
    assert_eq!(
        client.messages_of_call(modern(&json!({}))).await,
        [] as [Value; 0]
    );
    for (level, expected) in [
        ("warning", vec![error()]),
        ("debug", vec![info(), debug(), error()]),
    ] {
        let meta = modern(&json!({ "io.modelcontextprotocol/logLevel": level }));
        assert_eq!(client.messages_of_call(meta).await, expected);
    }
    let progress = client
        .messages_of_call(modern(&json!({ "progressToken": "p" })))
        .await;
    let numbers: Vec<_> = progress
        .iter()
        .map(|params| (&params["progressToken"], &params["progress"]))
        .collect();
    assert_eq!(numbers, [(&json!("p"), &json!(1.0)), (&json!("p"), &json!(2.0))]);

    let discover = client
        .post(request("server/discover", json!({ "_meta": modern(&json!({})) })))
        .await;
    assert_eq!(
        messages(discover).await[0]["result"]["capabilities"]["logging"],
        json!({})
    );
    let params = json!({ "level": "info", "_meta": modern(&json!({})) });
    let refused = client.post(request("logging/setLevel", params)).await;
    assert_eq!(refused.status(), StatusCode::NOT_FOUND);
    assert_eq!(messages(refused).await[0]["error"]["code"], -32601);
}

#[tokio::test]
async fn batch_answer_has_no_messages() {
    let client = EndpointClient::in_session(bus(open_gate()).await, "2025-03-26").await;
    client.set_level("debug").await;
    let mut second = call(json!({ "progressToken": 1 }));
    second["id"] = json!("two");
    let batch = json!([
        call(json!({})),
        { "jsonrpc": "2.0", "method": "notifications/x" },
        second,
    ]);
    let answer = client.post(batch).await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    let array = messages(answer).await.remove(0);
    let answers: Vec<_> = array
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| (&answer["id"], &answer["result"]["content"][0]["text"]))
        .collect();
    assert_eq!(
        answers,
        [(&json!(1), &json!("done")), (&json!("two"), &json!("done"))]
    );
}

/// The progress of a tool that sends 10,000 messages.
#[derive(Clone)]
struct Flood {
    sent: Arc<AtomicUsize>,
    finished: Arc<Semaphore>,
}

impl Flood {
    fn new() -> Flood {
        Flood {
            sent: Arc::default(),
            finished: Arc::new(Semaphore::new(0)),
        }
    }

    /// Returns a client of a bus with the tool.
    async fn client(&self) -> EndpointClient {
        let flood = self.clone();
        let tool = Tool::with_context("work", move |_: Map<String, Value>, context: CallContext| {
            let flood = flood.clone();
            async move {
                for _ in 0..10_000 {
                    context.log(LogLevel::Info, None, json!("again")).await;
                    flood.sent.fetch_add(1, Ordering::SeqCst);
                }
                flood.finished.add_permits(1);
                Ok(ToolOutput::text("done"))
            }
        });
        EndpointClient::in_session(bus_with(tool).await, "2025-11-25").await
    }
}

#[tokio::test]
async fn slow_caller_slows_tool_and_leaving_frees_it() {
    let flood = Flood::new();
    let client = flood.client().await;
    let mut body = client.post(call(json!({}))).await.into_body();
    let mut read = 0;
    while read < 100 {
        let frame = in_time(body.frame()).await.unwrap().unwrap();
        read += frame
            .data_ref()
            .unwrap()
            .windows(5)
            .filter(|window| window == b"data:")
            .count();
        // Everything else gets its turn before the next message is read.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let ahead = flood.sent.load(Ordering::SeqCst).saturating_sub(read);
        assert!(ahead <= 64, "the tool is {ahead} messages ahead of its caller");
    }
    assert_eq!(flood.finished.available_permits(), 0);
    drop(body);
    in_time(flood.finished.acquire()).await.unwrap().forget();
    assert_eq!(flood.sent.load(Ordering::SeqCst), 10_000);
}

#[tokio::test]
async fn flood_arrives_whole() {
    let client = Flood::new().client().await;
    assert_eq!(client.messages_of_call(json!({})).await.len(), 10_000);
}
