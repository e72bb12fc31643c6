//! Whatever is sent, the fast path answers what rmcp's path answers, or nothing.

use std::time::Duration;

use ::http::header::{HOST, ORIGIN};
use ::http::{HeaderValue, Method, Request};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::super::Endpoint;
use super::*;
use crate::etag_tools::{self, EtagToolLimits, with_client_etag};
use crate::mcp::McpOptions;
use crate::{Bus, Limits, Resource, ResourceTemplate, Tool, ToolOutput};

const NOW: u64 = 1_700_000_000;
const HERE: &str = "localhost:8080";

/// A header with the values it is sent with; none: it is left out.
type Sent = Vec<(HeaderName, Vec<&'static [u8]>)>;

/// A request as a client wrote it.
#[derive(Debug, Clone)]
struct Written {
    headers: Vec<(HeaderName, Vec<u8>)>,
    body: Vec<u8>,
}

impl Written {
    fn head(&self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        for (name, value) in &self.headers {
            // What is no header value cannot be sent.
            if let Ok(value) = HeaderValue::from_bytes(value) {
                request.headers_mut().append(name, value);
            }
        }
        request
    }
}

/// What is seen of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

async fn seen(answer: Answer) -> Seen {
    let (parts, body) = answer.into_parts();
    let Ok(body) = body.collect().await;
    Seen {
        status: parts.status,
        headers: parts.headers,
        body: body.to_bytes(),
    }
}

/// An endpoint, and the session of each revision that has them.
struct Bench {
    bus: Bus,
    endpoint: Endpoint,
    sessions: Vec<(&'static str, String)>,
}

impl Bench {
    async fn start() -> Bench {
        let mut limits = Limits::default();
        limits.shards = 1;
        let bus = Bus::builder().limits(limits).clock(|| NOW).start().unwrap();
        etag_tools::install(&bus, EtagToolLimits::default())
            .await
            .unwrap();
        for uri in ["demo://a", "demo://ä", "demo://quo\"te", "demo://t/registered"] {
            bus.register(Resource::text(uri, "one").unwrap()).await.unwrap();
        }
        let template = ResourceTemplate::new("demo://t/{x}", |_, _| async { Ok(None) }).unwrap();
        bus.add_template(template).await.unwrap();
        let endpoint = Endpoint::new(bus.clone(), McpOptions::default());
        let mut bench = Bench {
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
        let written = Written {
            headers: plain_headers(&[]),
            body: initialize.to_string().into(),
        };
        let answer = self
            .endpoint
            .handle(written.head().map(|()| full(&written)))
            .await;
        answer.headers()[&SESSION_ID].to_str().unwrap().to_owned()
    }

    /// The way all requests go.
    async fn fast(&self, written: &Written) -> Seen {
        seen(self.endpoint.handle(written.head().map(|()| full(written))).await).await
    }

    /// The same without the fast path, and without what is remembered of hosts.
    async fn slow(&self, written: &Written) -> Seen {
        let inner = &self.endpoint.inner;
        let (parts, ()) = written.head().into_parts();
        if let Some(refusal) = inner.refusal_of_rmcp(&parts).await {
            return seen(refusal).await;
        }
        let body = Bytes::from(written.body.clone());
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return seen(inner.batch(parts, &body).await).await;
        }
        seen(inner.message(parts, body).await).await
    }

    async fn is_fast(&self, written: &Written) -> bool {
        let headers = written.head().headers().clone();
        let answer = self.endpoint.inner.answer_poll(&headers, &written.body).await;
        answer.is_some()
    }

    async fn same_both_ways(&self, written: &Written) {
        let (fast, slow) = (self.fast(written).await, self.slow(written).await);
        assert_eq!(fast, slow, "{written:?}");
    }

    /// A plain poll of this revision.
    fn plain(&self, revision: &'static str) -> Parts {
        Parts::plain(&self.sessions, revision)
    }
}

fn full(written: &Written) -> Full<Bytes> {
    Full::new(Bytes::from(written.body.clone()))
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

/// A poll in parts that can be changed one by one; a field without a value is left out.
#[derive(Debug, Clone)]
struct Parts {
    headers: Vec<(HeaderName, Vec<u8>)>,
    fields: Vec<(&'static str, Option<String>)>,
}

const META: &str = r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;

impl Parts {
    fn plain(sessions: &[(&'static str, String)], revision: &'static str) -> Parts {
        let session = sessions.iter().find(|(of, _)| *of == revision);
        let more = match session {
            Some((_, key)) => vec![(SESSION_ID, key.as_str()), (PROTOCOL_VERSION, revision)],
            None => vec![
                (PROTOCOL_VERSION, revision),
                (MCP_METHOD, METHOD),
                (MCP_NAME, GetResourceEtag::NAME),
            ],
        };
        let field = |name, value: &str| (name, Some(value.to_owned()));
        Parts {
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

    fn field(&self, name: &str) -> Option<&str> {
        let (_, value) = self.fields.iter().find(|(known, _)| *known == name)?;
        value.as_deref()
    }

    fn set(&mut self, name: &str, value: Option<&str>) {
        let field = self.fields.iter_mut().find(|(known, _)| *known == name);
        field.expect("a field").1 = value.map(str::to_owned);
    }

    fn set_header(&mut self, name: &HeaderName, values: &[&[u8]]) {
        self.headers.retain(|(known, _)| known != name);
        self.headers
            .extend(values.iter().map(|value| (name.clone(), value.to_vec())));
    }

    /// The JSON object of these fields.
    fn object(&self, names: &[&str], more: &str) -> String {
        let fields = names
            .iter()
            .filter_map(|name| Some(format!("\"{name}\":{}", self.field(name)?)));
        let fields: Vec<String> = fields.chain(self.field(more).map(str::to_owned)).collect();
        format!("{{{}}}", fields.join(","))
    }

    fn written(&self) -> Written {
        let mut parts = self.clone();
        if self.field("arguments").is_none() {
            let arguments = self.object(&["uri", "client_etag"], "more arguments");
            parts.set("arguments", Some(&arguments));
        }
        if self.field("params").is_none() {
            let params = parts.object(&["name", "arguments", "_meta"], "more params");
            parts.set("params", Some(&params));
        }
        let body = parts.object(&["jsonrpc", "id", "method", "params"], "more");
        let (before, after) = (self.field("before"), self.field("after"));
        Written {
            headers: self.headers.clone(),
            body: format!("{}{body}{}", before.unwrap_or(""), after.unwrap_or("")).into(),
        }
    }
}

/// What headers are sent with instead.
fn other_headers() -> Sent {
    let some = |values: &[&'static str]| values.iter().map(|value| value.as_bytes()).collect::<Vec<_>>();
    vec![
        (HOST, vec![]),
        (HOST, some(&["evil.example"])),
        (HOST, some(&["LOCALHOST"])),
        (HOST, some(&["[::1]:9"])),
        (HOST, some(&["no host"])),
        (HOST, some(&[HERE, "evil.example"])),
        (ORIGIN, some(&["http://evil.example"])),
        (ORIGIN, some(&["http://localhost:3000"])),
        (ORIGIN, some(&["null"])),
        (CONTENT_TYPE, vec![]),
        (CONTENT_TYPE, some(&["text/plain"])),
        (CONTENT_TYPE, some(&["Application/JSON"])),
        (CONTENT_TYPE, some(&["application/json; charset=utf-8"])),
        (CONTENT_TYPE, some(&["application/json", "text/plain"])),
        (CONTENT_TYPE, vec![b"application/json\xff"]),
        (ACCEPT, vec![]),
        (ACCEPT, some(&["*/*"])),
        (ACCEPT, some(&["application/json"])),
        (ACCEPT, some(&["text/event-stream,application/json"])),
        (ACCEPT, some(&["text/event-stream , application/json,*/*"])),
        (ACCEPT, some(&["application/json", "text/event-stream"])),
        (ACCEPT, some(&["application/json, text/event-stream;q=0"])),
        (ACCEPT, some(&["application/json;q=0.5, text/event-stream"])),
        (ACCEPT, some(&["\"application/json, text/event-stream\""])),
        (ACCEPT, some(&["application/json\t, text/event-stream"])),
        (ACCEPT, some(&["Application/Json, text/event-stream"])),
        (ACCEPT, vec![b"application/json, text/event-stream\xe9"]),
        (PROTOCOL_VERSION, vec![]),
        (PROTOCOL_VERSION, some(&["2024-11-05"])),
        (PROTOCOL_VERSION, some(&["2025-03-26"])),
        (PROTOCOL_VERSION, some(&["2025-06-18"])),
        (PROTOCOL_VERSION, some(&["2025-11-25"])),
        (PROTOCOL_VERSION, some(&["2026-07-28"])),
        (PROTOCOL_VERSION, some(&["2099-01-01"])),
        (PROTOCOL_VERSION, some(&[""])),
        (PROTOCOL_VERSION, some(&[" 2025-11-25"])),
        (PROTOCOL_VERSION, some(&["2025-11-25", "2026-07-28"])),
        (PROTOCOL_VERSION, some(&["2026-07-28", "2026-07-28"])),
        (PROTOCOL_VERSION, vec![b"\xff"]),
        (SESSION_ID, vec![]),
        (SESSION_ID, some(&["0123456789abcdef0123456789abcdef"])),
        (SESSION_ID, some(&["0123456789abcdef0123456789abcdef", "x"])),
        (SESSION_ID, vec![b"\xff"]),
        (MCP_METHOD, vec![]),
        (MCP_METHOD, some(&["tools/list"])),
        (MCP_METHOD, some(&["Tools/Call"])),
        (MCP_METHOD, some(&[METHOD, METHOD])),
        (MCP_NAME, vec![]),
        (MCP_NAME, some(&["read_resource"])),
        (MCP_NAME, some(&["=?base64?Z2V0X3Jlc291cmNlX2V0YWc=?="])),
        (MCP_NAME, some(&["get_resource_etag", "get_resource_etag"])),
        (HeaderName::from_static("mcp-param-uri"), some(&["demo://b"])),
        (HeaderName::from_static("last-event-id"), some(&["a-1"])),
    ]
}

/// What fields are written with instead, in JSON as it stands in the body; none: left out.
fn other_fields() -> Vec<(&'static str, Option<String>)> {
    let mut all: Vec<(&'static str, Option<String>)> = Vec::new();
    let mut add = |name, values: &[&str]| {
        all.push((name, None));
        all.extend(values.iter().map(|value| (name, Some((*value).to_owned()))));
    };
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let big = format!("\"{}\"", "x".repeat(4_000));
    add("jsonrpc", &["\"1.0\"", "2.0", "null", "\"2\\u002e0\""]);
    let ids = [
        "0",
        "-1",
        "-0",
        "1.0",
        "1.5",
        "1e2",
        "12345678901234567",
        "999999999999999999",
        "9223372036854775807",
        "9223372036854775808",
        "1e999",
        "\"\"",
        "\"7\"",
        "\"a b~\"",
        "\"q\\\"\"",
        "\"\\\\\"",
        "\"é\"",
        "\"\\u0061\"",
        "\"\u{7f}\"",
        "null",
        "true",
        "[1]",
        "{}",
        "\"\\ud800\"",
        &deep,
        &big,
    ];
    add("id", &ids);
    add(
        "method",
        &[
            "\"tools/list\"",
            "\"ping\"",
            "\"tools\\/call\"",
            "\"nothing\"",
            "\"initialized\"",
            "7",
            "null",
        ],
    );
    let names = [
        "\"get_resource_etags\"",
        "\"read_resource\"",
        "\"echo\"",
        "\"none\"",
        "\"get_resource\\u005fetag\"",
        "null",
        "{}",
    ];
    add("name", &names);
    let uris = [
        "\"demo://b\"",
        "\"demo://t/member\"",
        "\"demo://t/registered\"",
        "\"demo://ä\"",
        "\"demo:\\/\\/a\"",
        "\"demo://quo\\\"te\"",
        "\"no uri\"",
        "\"\"",
        "null",
        "7",
        "[\"demo://a\"]",
        &big,
    ];
    add("uri", &uris);
    let etags = [
        "null",
        "\"\"",
        "\"v1-1\"",
        "\"v2-1700000000\"",
        "\"v1-170000000\\u0030\"",
        "7",
        "{}",
        "\"é\"",
        &big,
    ];
    add("client_etag", &etags);
    add(
        "arguments",
        &[
            "null",
            "[]",
            "{}",
            "\"demo://a\"",
            "{\"uri\":\"demo://a\"}",
            &deep,
        ],
    );
    add(
        "params",
        &["null", "[]", "{}", "{\"name\":\"get_resource_etag\"}"],
    );
    let deep_field = format!("\"x\":{deep}");
    add(
        "more arguments",
        &[
            "\"x\":1",
            "\"uri\":\"demo://b\"",
            "\"client_etag\":null",
            &deep_field,
        ],
    );
    let more_params = [
        "\"task\":{}",
        "\"task\":{\"ttl\":1000}",
        "\"inputResponses\":{}",
        "\"inputResponses\":7",
        "\"requestState\":\"x\"",
        "\"requestState\":7",
        "\"name\":\"echo\"",
        "\"_meta\":{}",
        "\"x\":1",
        &deep_field,
    ];
    add("more params", &more_params);
    let more = [
        "\"result\":{}",
        "\"error\":{}",
        "\"x\":null",
        "\"id\":8",
        "\"method\":\"ping\"",
        "\"params\":{}",
        "\"jsonrpc\":\"2.0\"",
        &deep_field,
        "\"x\":1e999",
        "\"x\":\"\\ud800\"",
    ];
    add("more", &more);
    add("before", &[" \n\t", "\u{feff}", "[", "x", "\u{0}"]);
    add("after", &[" \r\n", "]", "}", ",", "{}", "\u{0}"]);
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let other = version.replace("2026-07-28", "2025-11-25");
    let unknown = version.replace("2026-07-28", "2099-01-01");
    let able = r#""io.modelcontextprotocol/clientCapabilities""#;
    let info = r#""io.modelcontextprotocol/clientInfo""#;
    let metas = [
        "null".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        "7".to_owned(),
        META.to_owned(),
        format!("{{{version}}}"),
        format!("{{{version},{able}:{{}}}}"),
        format!("{{{able}:{{}},{version}}}"),
        format!("{{{other},{able}:{{}}}}"),
        format!("{{{unknown},{able}:{{}}}}"),
        format!("{{{version},{able}:null}}"),
        format!("{{{version},{able}:[]}}"),
        format!("{{{version},{able}:7}}"),
        format!(
            "{{{version},{able}:{{\"roots\":{{\"listChanged\":true}},\"sampling\":{{}},\"elicitation\":{{}}}}}}"
        ),
        format!("{{{version},{able}:{{\"roots\":7}}}}"),
        format!("{{{version},{able}:{{\"none\":7}}}}"),
        format!("{{{version},{able}:{{\"extensions\":{{\"io.modelcontextprotocol/tasks\":{{}}}}}}}}"),
        format!("{{{version},{able}:{{\"experimental\":{deep}}}}}"),
        format!("{{{version},{able}:{{}},{info}:null}}"),
        format!("{{{version},{able}:{{}},{info}:{{}}}}"),
        format!("{{{version},{able}:{{}},{info}:7}}"),
        format!("{{{version},{able}:{{}},{info}:{{\"x\":{deep}}}}}"),
        format!("{{{version},{able}:{{}},{info}:{{\"name\":1e999}}}}"),
        format!("{{{version},{version},{able}:{{}}}}"),
        format!("{{{version},{other},{able}:{{}}}}"),
        format!("{{{version},{able}:{{}},\"progressToken\":1}}"),
        format!("{{{version},{able}:{{}},\"io.modelcontextprotocol/logLevel\":\"debug\"}}"),
        format!("{{{version},{able}:{{}},\"traceparent\":\"00-0-0-00\"}}"),
        "{\"progressToken\":1}".to_owned(),
    ];
    add("_meta", &metas.each_ref().map(String::as_str));
    all
}

const REVISIONS: [&str; 5] = [
    "2024-11-05",
    "2025-03-26",
    "2025-06-18",
    "2025-11-25",
    "2026-07-28",
];

#[tokio::test]
async fn plain_polls_of_every_revision_are_answered_fast() {
    let bench = Bench::start().await;
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
            let written = variant.written();
            assert!(bench.is_fast(&written).await, "{written:?}");
            bench.same_both_ways(&written).await;
        }
    }
    // A session that names no version, as some clients do.
    let mut silent = bench.plain("2025-11-25");
    silent.set_header(&PROTOCOL_VERSION, &[]);
    assert!(bench.is_fast(&silent.written()).await);
    bench.same_both_ways(&silent.written()).await;
}

#[tokio::test]
async fn a_poll_with_one_thing_otherwise_is_answered_the_same_both_ways() {
    let bench = Bench::start().await;
    let (headers, fields) = (other_headers(), other_fields());
    for revision in ["2025-03-26", "2025-11-25", "2026-07-28"] {
        for (name, values) in &headers {
            let mut parts = bench.plain(revision);
            parts.set_header(name, values);
            bench.same_both_ways(&parts.written()).await;
        }
        for (name, value) in &fields {
            let mut parts = bench.plain(revision);
            parts.set(name, value.as_deref());
            bench.same_both_ways(&parts.written()).await;
        }
        let mut parts = bench.plain(revision);
        let body = parts.written().body;
        for cut in 0..body.len() {
            let mut written = parts.written();
            written.body.truncate(cut);
            bench.same_both_ways(&written).await;
        }
        // Bytes that are no text, wherever they stand.
        for at in (0..body.len()).step_by(3) {
            let mut written = parts.written();
            written.body[at] = 0xff;
            bench.same_both_ways(&written).await;
        }
        parts.set_header(&CONTENT_TYPE, &[b"application/json", b"application/json"]);
        bench.same_both_ways(&parts.written()).await;
    }
}

#[tokio::test]
async fn an_ended_session_and_one_of_another_revision_are_left_to_the_slow_path() {
    let bench = Bench::start().await;
    let mut parts = bench.plain("2025-11-25");
    let (_, other) = &bench.sessions[2];
    parts.set_header(&SESSION_ID, &[other.as_bytes()]);
    assert!(!bench.is_fast(&parts.written()).await);
    bench.same_both_ways(&parts.written()).await;
    let ended = bench.open("2025-11-25").await;
    parts.set_header(&SESSION_ID, &[ended.as_bytes()]);
    assert!(bench.is_fast(&parts.written()).await);
    bench.endpoint.inner.sessions.remove(&ended);
    assert!(!bench.is_fast(&parts.written()).await);
    bench.same_both_ways(&parts.written()).await;
}

#[tokio::test]
async fn a_tool_of_somebody_else_under_that_name_is_called_instead() {
    let bench = Bench::start().await;
    let plain = bench.plain("2025-11-25").written();
    assert!(bench.is_fast(&plain).await);
    let answer = |text: &'static str| {
        Tool::new(GetResourceEtag::NAME, move |_: Map<String, Value>| async move {
            Ok(ToolOutput::text(text))
        })
    };
    let said = |seen: &Seen, text: &str| String::from_utf8_lossy(&seen.body).contains(text);
    bench.bus.add_tool(answer("theirs")).await.unwrap();
    assert!(said(&bench.fast(&plain).await, "theirs"));
    // The same item, another handler: the list does not change, the answer does.
    bench.bus.add_tool(answer("other")).await.unwrap();
    assert!(said(&bench.fast(&plain).await, "other"));
    let wrapped = with_client_etag(&bench.bus, answer("wrapped"), |_| None);
    bench.bus.replace_tools(vec![wrapped]).await.unwrap();
    assert!(said(&bench.fast(&plain).await, "wrapped"));
    bench.bus.remove_tool(GetResourceEtag::NAME).await.unwrap();
    assert!(said(&bench.fast(&plain).await, "Unknown tool"));
    etag_tools::install(&bench.bus, EtagToolLimits::default())
        .await
        .unwrap();
    assert!(bench.is_fast(&plain).await);
    bench.same_both_ways(&plain).await;
}

#[tokio::test]
async fn a_poll_sees_every_change_that_was_answered() {
    let bench = Bench::start().await;
    let plain = bench.plain("2026-07-28").written();
    let version = |seen: &Seen| {
        let answer: Value = serde_json::from_slice(&seen.body).unwrap();
        answer["result"]["structuredContent"]["version"].as_u64()
    };
    for round in 2..200 {
        let text = round.to_string();
        let outcome = bench.bus.update(Resource::text("demo://a", text).unwrap()).await;
        assert_eq!(outcome.unwrap().etag.version, round);
        assert_eq!(version(&bench.fast(&plain).await), Some(round));
    }
    bench.bus.remove("demo://a").await.unwrap();
    assert!(!bench.is_fast(&plain).await);
    bench.same_both_ways(&plain).await;
    bench.bus.shutdown(Duration::from_secs(30)).await;
    assert!(!bench.is_fast(&plain).await);
}

#[test]
fn a_poll_counts_as_a_call_whichever_way_it_goes() {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};
    let recorder = DebuggingRecorder::new();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // The recorder is the thread's own, so that other tests are not counted.
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(async {
            let bench = Bench::start().await;
            let plain = bench.plain("2025-11-25").written();
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

    /// Many requests per case: what is dear is the bus, not the request.
    #[test]
    fn polls_with_several_things_otherwise_are_answered_the_same_both_ways(
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
            let bench = Bench::start().await;
            let (headers, fields) = (other_headers(), other_fields());
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
                let mut written = parts.written();
                if let Some((at, byte)) = flip {
                    let at = at.index(written.body.len());
                    written.body[at] = *byte;
                }
                bench.same_both_ways(&written).await;
            }
        });
    }
}
