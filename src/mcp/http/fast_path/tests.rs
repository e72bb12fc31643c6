//! The fast path gives the answer of rmcp's path or none, for plain, odd and hostile requests.

mod variants;
mod wrapped;

use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_TYPE, HOST, ORIGIN};
use ::http::{HeaderName, HeaderValue, Method, Request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::super::Endpoint;
use super::super::headers::{JSON, LAST_EVENT_ID};
use super::super::served::{BusServer, EndpointServer};
use super::*;
use crate::config::McpConfig;
use crate::etag_tools::{self, with_client_etag};
use crate::mcp::McpOptions;
use crate::{Bus, Limits, Resource, ResourceTemplate, Tool, ToolOutput};

const NOW: u64 = 1_700_000_000;
const HERE: &str = "localhost:8080";

/// A request in the bytes that a client sends.
#[derive(Debug, Clone)]
struct RawRequest {
    headers: Vec<(HeaderName, Vec<u8>)>,
    body: Vec<u8>,
}

impl RawRequest {
    fn head(&self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        for (name, value) in &self.headers {
            // Some bytes cannot be sent as a header value.
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request.headers_mut().append(name, value);
            }
        }
        request
    }
}

/// The parts of an answer that a client sees.
#[derive(Debug, PartialEq, Eq)]
struct SeenAnswer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl SeenAnswer {
    fn contains(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.body).contains(text)
    }
}

async fn seen(answer: Answer) -> SeenAnswer {
    let (parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await;
    SeenAnswer {
        status: parts.status,
        headers: parts.headers,
        body: body.to_bytes(),
    }
}

/// An endpoint with a session of each revision that has sessions.
struct PollBench<S: EndpointServer = BusServer> {
    bus: Bus,
    endpoint: Endpoint<S>,
    sessions: Vec<(&'static str, String)>,
}

impl PollBench {
    async fn start() -> PollBench {
        let mut limits = Limits::default();
        limits.shards = 1;
        let bus = Bus::builder().limits(limits).clock(|| NOW).start().unwrap();
        etag_tools::install(&bus, McpConfig::default()).await.unwrap();
        for uri in ["demo://a", "demo://ä", "demo://quo\"te", "demo://t/registered"] {
            bus.register(Resource::text(uri, "one").unwrap()).await.unwrap();
        }
        let template = ResourceTemplate::new("demo://t/{x}", |_, _| async { Ok(None) }).unwrap();
        bus.add_template(template).await.unwrap();
        let endpoint = Endpoint::new(bus.clone(), McpOptions::default());
        PollBench::with(bus, endpoint).await
    }
}

impl<S: EndpointServer> PollBench<S> {
    /// Opens the sessions.
    async fn with(bus: Bus, endpoint: Endpoint<S>) -> PollBench<S> {
        let mut bench = PollBench {
            bus,
            endpoint,
            sessions: Vec::new(),
        };
        for revision in Revision::ALL
            .into_iter()
            .filter(|revision| !revision.is_stateless())
        {
            let key = bench.open(revision.as_str()).await;
            bench.sessions.push((revision.as_str(), key));
        }
        bench
    }

    async fn open(&self, revision: &str) -> String {
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"},
        }});
        let request = RawRequest {
            headers: plain_headers(&[]),
            body: initialize.to_string().into(),
        };
        let answer = self
            .endpoint
            .handle(request.head().map(|()| body_of(&request)))
            .await;
        answer.headers()[&SESSION_ID].to_str().unwrap().to_owned()
    }

    /// Sends a request the way that all requests go.
    async fn fast(&self, request: &RawRequest) -> SeenAnswer {
        seen(
            self.endpoint
                .handle(request.head().map(|()| body_of(request)))
                .await,
        )
        .await
    }

    /// Sends a request past the fast path.
    async fn slow(&self, request: &RawRequest) -> SeenAnswer {
        let state = &self.endpoint.state;
        let mut head = request.head();
        if let Err(refusal) = state.admit(&mut head).await {
            return seen(*refusal).await;
        }
        let (parts, ()) = head.into_parts();
        if let Err(refusal) = state.judge_head(&parts).await {
            return seen(*refusal).await;
        }
        let body = Bytes::from(request.body.clone());
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return seen(reply::answer_or_refusal(state.batch(parts, &body).await)).await;
        }
        seen(reply::answer_or_refusal(state.message(parts, body).await)).await
    }

    async fn is_fast(&self, request: &RawRequest) -> bool {
        let (parts, ()) = request.head().into_parts();
        let answer = {
            let state = &self.endpoint.state;
            state.fast_path.answer(&state.served, &parts, &request.body).await
        };
        answer.is_some()
    }

    async fn assert_same(&self, request: &RawRequest) {
        let fast = self.fast(request).await;
        let slow = self.slow(request).await;
        assert_eq!(fast, slow, "{request:?}");
    }

    /// Returns a plain poll of this revision.
    fn plain(&self, revision: &'static str) -> PollParts {
        PollParts::plain(&self.sessions, revision)
    }
}

fn field(name: &'static str, value: &str) -> (&'static str, Option<String>) {
    (name, Some(value.to_owned()))
}

fn body_of(request: &RawRequest) -> Full<Bytes> {
    Full::new(Bytes::from(request.body.clone()))
}

fn plain_headers(more: &[(HeaderName, &str)]) -> Vec<(HeaderName, Vec<u8>)> {
    let plain = [
        (HOST, HERE),
        (CONTENT_TYPE, JSON),
        (ACCEPT, "application/json, text/event-stream"),
    ];
    let all = plain.iter().chain(more);
    all.map(|(name, value)| (name.clone(), value.as_bytes().to_vec()))
        .collect()
}

/// A poll whose headers and fields can be changed one by one; a field without a value is left out.
#[derive(Debug, Clone)]
struct PollParts {
    headers: Vec<(HeaderName, Vec<u8>)>,
    fields: Vec<(&'static str, Option<String>)>,
}

const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

impl PollParts {
    fn plain(sessions: &[(&'static str, String)], revision: &'static str) -> PollParts {
        let session = sessions.iter().find(|(of, _)| *of == revision);
        let more = match session {
            Some((_, key)) => vec![(SESSION_ID, key.as_str()), (PROTOCOL_VERSION, revision)],
            None => vec![
                (PROTOCOL_VERSION, revision),
                (MCP_METHOD, METHOD),
                (MCP_NAME, GetResourceEtag::NAME),
            ],
        };
        PollParts {
            headers: plain_headers(&more),
            fields: vec![
                field("jsonrpc", r#""2.0""#),
                field("id", "7"),
                field("method", r#""tools/call""#),
                field("name", r#""get_resource_etag""#),
                field("uri", r#""demo://a""#),
                field("client_etag", r#""v1-1700000000""#),
                ("_meta", session.is_none().then(|| META.to_owned())),
                ("arguments", None),
                ("params", None),
                ("more arguments", None),
                ("more params", None),
                ("more", None),
                ("before", None),
                ("after", None),
            ],
        }
    }

    fn value(&self, name: &str) -> Option<&str> {
        let (_, value) = self.fields.iter().find(|(known, _)| *known == name)?;
        value.as_deref()
    }

    fn set(&mut self, name: &str, value: Option<&str>) {
        let known = self.fields.iter_mut().find(|(known, _)| *known == name);
        known.expect("a field").1 = value.map(str::to_owned);
    }

    fn set_header(&mut self, name: &HeaderName, values: &[&[u8]]) {
        self.headers.retain(|(known, _)| known != name);
        self.headers
            .extend(values.iter().map(|value| (name.clone(), value.to_vec())));
    }

    /// Writes the JSON object of these fields.
    fn object(&self, names: &[&str], more: &str) -> String {
        let mut fields = Vec::new();
        for name in names {
            if let Some(value) = self.value(name) {
                fields.push(format!("\"{name}\":{value}"));
            }
        }
        fields.extend(self.value(more).map(str::to_owned));
        format!("{{{}}}", fields.join(","))
    }

    fn request(&self) -> RawRequest {
        let mut parts = self.clone();
        if self.value("arguments").is_none() {
            let arguments = self.object(&["uri", "client_etag"], "more arguments");
            parts.set("arguments", Some(&arguments));
        }
        if self.value("params").is_none() {
            let params = parts.object(&["name", "arguments", "_meta"], "more params");
            parts.set("params", Some(&params));
        }
        let body = parts.object(&["jsonrpc", "id", "method", "params"], "more");
        let before = self.value("before").unwrap_or_default();
        let after = self.value("after").unwrap_or_default();
        RawRequest {
            headers: self.headers.clone(),
            body: format!("{before}{body}{after}").into(),
        }
    }
}

const REVISIONS: [&str; 5] = [
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    "2026-07-28",
];

#[tokio::test]
async fn plain_poll_of_every_revision_is_fast() {
    let bench = PollBench::start().await;
    for revision in REVISIONS {
        let plain = bench.plain(revision);
        let mut variants = vec![plain.clone()];
        for (field, value) in [
            ("client_etag", None),
            ("client_etag", Some("null")),
            ("client_etag", Some("\"v0-0\"")),
            ("id", Some("\"a-1\"")),
            ("uri", Some("\"demo://t/registered\"")),
            ("uri", Some("\"demo://ä\"")),
        ] {
            let mut variant = plain.clone();
            variant.set(field, value);
            variants.push(variant);
        }
        let mut other_order = plain.clone();
        other_order.set_header(&ACCEPT, &[b"text/event-stream, application/json"]);
        variants.push(other_order);
        for variant in variants {
            let request = variant.request();
            assert!(bench.is_fast(&request).await, "{request:?}");
            bench.assert_same(&request).await;
        }
    }
    // A session that names no version, as some clients do.
    let mut silent = bench.plain("2025-11-25");
    silent.set_header(&PROTOCOL_VERSION, &[]);
    assert!(bench.is_fast(&silent.request()).await);
    bench.assert_same(&silent.request()).await;
}

/// The revisions whose variants are compared: one with batches, one with sessions, one without.
const COMPARED: [&str; 3] = ["2025-03-26", "2025-11-25", "2026-07-28"];

async fn compare_header(name: HeaderName, variants: &[variants::HeaderValues]) {
    let bench = PollBench::start().await;
    for revision in COMPARED {
        for values in variants {
            let mut parts = bench.plain(revision);
            parts.set_header(&name, values);
            bench.assert_same(&parts.request()).await;
        }
    }
}

#[tokio::test]
async fn unusual_host_gets_same_answer() {
    compare_header(HOST, variants::HOST_VALUES).await;
}

#[tokio::test]
async fn unusual_origin_gets_same_answer() {
    compare_header(ORIGIN, variants::ORIGIN_VALUES).await;
}

#[tokio::test]
async fn unusual_content_type_gets_same_answer() {
    compare_header(CONTENT_TYPE, variants::CONTENT_TYPE_VALUES).await;
}

#[tokio::test]
async fn unusual_accept_gets_same_answer() {
    compare_header(ACCEPT, variants::ACCEPT_VALUES).await;
}

#[tokio::test]
async fn unusual_protocol_version_gets_same_answer() {
    compare_header(PROTOCOL_VERSION, variants::PROTOCOL_VERSION_VALUES).await;
}

#[tokio::test]
async fn unusual_session_id_gets_same_answer() {
    compare_header(SESSION_ID, variants::SESSION_ID_VALUES).await;
}

#[tokio::test]
async fn unusual_mcp_method_gets_same_answer() {
    compare_header(MCP_METHOD, variants::MCP_METHOD_VALUES).await;
}

#[tokio::test]
async fn unusual_mcp_name_gets_same_answer() {
    compare_header(MCP_NAME, variants::MCP_NAME_VALUES).await;
}

#[tokio::test]
async fn unrelated_and_repeated_headers_get_same_answer() {
    compare_header(HeaderName::from_static("mcp-param-uri"), &[&[b"demo://b"]]).await;
    compare_header(LAST_EVENT_ID, &[&[b"a-1"]]).await;
    compare_header(CONTENT_TYPE, &[&[b"application/json", b"application/json"]]).await;
}

#[tokio::test]
async fn unusual_field_gets_same_answer() {
    let bench = PollBench::start().await;
    for revision in COMPARED {
        for (name, value) in &variants::all_fields() {
            let mut parts = bench.plain(revision);
            parts.set(name, value.as_deref());
            bench.assert_same(&parts.request()).await;
        }
    }
}

#[tokio::test]
async fn truncated_or_garbled_body_gets_same_answer() {
    let bench = PollBench::start().await;
    for revision in COMPARED {
        let plain = bench.plain(revision).request();
        for cut in 0..plain.body.len() {
            let mut request = plain.clone();
            request.body.truncate(cut);
            bench.assert_same(&request).await;
        }
        // A byte that is not valid in UTF-8, in every third place.
        for at in (0..plain.body.len()).step_by(3) {
            let mut request = plain.clone();
            request.body[at] = 0xff;
            bench.assert_same(&request).await;
        }
    }
}

#[tokio::test]
async fn ended_or_mismatched_session_is_left_to_rmcp() {
    let bench = PollBench::start().await;
    let mut parts = bench.plain("2025-11-25");
    let (_, other) = &bench.sessions[2];
    parts.set_header(&SESSION_ID, &[other.as_bytes()]);
    assert!(!bench.is_fast(&parts.request()).await);
    bench.assert_same(&parts.request()).await;
    let ended = bench.open("2025-11-25").await;
    parts.set_header(&SESSION_ID, &[ended.as_bytes()]);
    assert!(bench.is_fast(&parts.request()).await);
    bench.endpoint.state.sessions.remove(&ended);
    assert!(!bench.is_fast(&parts.request()).await);
    bench.assert_same(&parts.request()).await;
}

/// A publisher's tool under the name of the bus's own.
fn tool_answering(text: &'static str) -> Tool {
    Tool::new(GetResourceEtag::NAME, move |_: Map<String, Value>| async move {
        Ok(ToolOutput::text(text))
    })
}

#[tokio::test]
async fn replaced_tool_is_called_instead() {
    let bench = PollBench::start().await;
    let plain = bench.plain("2025-11-25").request();
    assert!(bench.is_fast(&plain).await);
    bench.bus.add_tool(tool_answering("theirs")).await.unwrap();
    assert!(bench.fast(&plain).await.contains("theirs"));
    // The same item, another handler: the list does not change, the answer does.
    bench.bus.add_tool(tool_answering("other")).await.unwrap();
    assert!(bench.fast(&plain).await.contains("other"));
    let wrapped = with_client_etag(&bench.bus, tool_answering("wrapped"), |_| None);
    bench.bus.replace_tools(vec![wrapped]).await.unwrap();
    assert!(bench.fast(&plain).await.contains("wrapped"));
    bench.bus.remove_tool(GetResourceEtag::NAME).await.unwrap();
    assert!(bench.fast(&plain).await.contains("Unknown tool"));
    etag_tools::install(&bench.bus, McpConfig::default())
        .await
        .unwrap();
    assert!(bench.is_fast(&plain).await);
    bench.assert_same(&plain).await;
}

#[tokio::test]
async fn poll_sees_every_answered_change() {
    let bench = PollBench::start().await;
    let plain = bench.plain("2026-07-28").request();
    for round in 2..200 {
        let text = round.to_string();
        let outcome = bench.bus.update(Resource::text("demo://a", text).unwrap()).await;
        assert_eq!(outcome.unwrap().etag.version, round);
        let answer: Value = serde_json::from_slice(&bench.fast(&plain).await.body).unwrap();
        assert_eq!(answer["result"]["structuredContent"]["version"], round);
    }
    bench.bus.remove("demo://a").await.unwrap();
    assert!(!bench.is_fast(&plain).await);
    bench.assert_same(&plain).await;
    bench.bus.shutdown(Duration::from_secs(30)).await;
    assert!(!bench.is_fast(&plain).await);
}

#[test]
fn poll_counts_as_call_on_both_paths() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    let recorder = DebuggingRecorder::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // The recorder is the thread's own, so that other tests are not counted.
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let bench = PollBench::start().await;
            let plain = bench.plain("2025-11-25").request();
            bench.fast(&plain).await;
            bench.slow(&plain).await;
        });
    });
    let calls = recorder.snapshotter().snapshot().into_vec().into_iter();
    let calls = calls.filter(|(key, ..)| key.key().name() == "tidings_tool_calls_total");
    let ok = calls.filter(|(key, ..)| key.key().labels().any(|label| label.value() == "ok"));
    let counted: Vec<DebugValue> = ok.map(|(_, _, _, value)| value).collect();
    assert_eq!(counted, [DebugValue::Counter(2)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Many requests per case, because starting the bus costs more than a request.
    #[test]
    fn several_unusual_parts_get_same_answer(
        requests in prop::collection::vec(
            (
                0..REVISIONS.len(),
                prop::collection::vec(any::<prop::sample::Index>(), 0..3),
                prop::collection::vec(any::<prop::sample::Index>(), 0..3),
                prop::option::weighted(0.1, (any::<prop::sample::Index>(), any::<u8>())),
            ),
            100,
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bench = PollBench::start().await;
            let headers = variants::all_headers();
            let fields = variants::all_fields();
            for (revision, header_picks, field_picks, flip) in &requests {
                let mut parts = bench.plain(REVISIONS[*revision]);
                for pick in header_picks {
                    let (name, values) = pick.get(&headers);
                    parts.set_header(name, values);
                }
                for pick in field_picks {
                    let (name, value) = pick.get(&fields);
                    parts.set(name, value.as_deref());
                }
                let mut request = parts.request();
                if let Some((at, byte)) = flip {
                    let at = at.index(request.body.len());
                    request.body[at] = *byte;
                }
                bench.assert_same(&request).await;
            }
        });
    }
}
