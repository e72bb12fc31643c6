//! Every form of a report about servers whose every text is hostile.

use std::collections::BTreeSet;
use std::process::Output;
use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tempfile::TempDir;

use tidings::check::{CheckError, Options, Report, ToolCall, run};
use tidings::client::Target;
use tidings::wire::dialect::{
    ACKNOWLEDGED, RESOURCE_UPDATED, REVISION_META_KEY, SESSION_HEADER, SUBSCRIPTION_ID_META_KEY,
};

use super::program::{check_in, text};
use crate::hostile_names::{assert_no_command, assert_tame, names};

static NAMES: LazyLock<Vec<String>> = LazyLock::new(names);

/// The checks that run at the same time.
const AT_ONCE: usize = 30;

/// Starts a server for all names. At `/faulty/N` it breaks rules, at `/failing/N` it fails when its tool is
/// called, at `/refusing/N` it refuses every revision, and at `/denying/N` it asks for credentials.
async fn start() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handle)).await });
    format!("http://{address}")
}

async fn handle(uri: Uri, method: Method, headers: HeaderMap, body: Bytes) -> Response {
    let mut parts = uri.path().split('/').skip(1);
    let kind = parts.next().expect("a kind");
    let number: usize = parts.next().expect("a number").parse().expect("a number");
    let name = &NAMES[number];
    if kind == "denying" {
        return deny(name);
    }
    match method {
        Method::GET => event_stream(&early_messages(name)),
        Method::DELETE => StatusCode::NO_CONTENT.into_response(),
        _ => {
            let message: Value = serde_json::from_slice(&body).expect("a message");
            let mut response = answer(kind, name, &message);
            if message["method"] == "initialize" && !headers.contains_key(SESSION_HEADER) {
                let session = HeaderValue::from_static("session");
                response.headers_mut().insert(SESSION_HEADER, session);
            }
            response
        }
    }
}

/// Asks for credentials, with as much of the name as a header can have.
fn deny(name: &str) -> Response {
    let possible: Vec<u8> = name
        .bytes()
        .filter(|byte| *byte >= 0x20 && *byte != 0x7f)
        .collect();
    let mut challenge = b"Bearer error=\"invalid_token\", error_description=\"".to_vec();
    challenge.extend(possible.iter().filter(|byte| !b"\"\\".contains(byte)));
    challenge.push(b'"');
    let challenge = HeaderValue::from_bytes(&challenge).expect("it has no control characters");
    (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response()
}

fn answer(kind: &str, name: &str, message: &Value) -> Response {
    let is_modern = message["params"]["_meta"][REVISION_META_KEY].is_string();
    let id = &message["id"];
    let method = message["method"].as_str().unwrap_or_default();
    let item = json!({ "uri": format!("demo://{name}"), "uriTemplate": name, "name": name, "title": name });
    let offers = json!({ "subscribe": true, "listChanged": true });
    let capabilities = json!({ "tools": offers, "prompts": offers, "resources": offers });
    let refused = json!({ "error": { "code": name, "message": name } });
    let fails = kind == "failing";
    let mut body = match method {
        _ if id.is_null() => return StatusCode::ACCEPTED.into_response(),
        "initialize" if kind == "refusing" => json!({ "result": { "protocolVersion": name } }),
        "server/discover" if kind == "refusing" => refused,
        "initialize" => json!({ "result": {
            "protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": { "name": name, "version": name },
        }}),
        "server/discover" => json!({ "result": {
            "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        }}),
        "tools/list" => json!({ "result": { "tools": [item] } }),
        "prompts/list" => json!({ "result": { "prompts": [item] } }),
        "resources/list" => json!({ "result": { "resources": [item] } }),
        "resources/templates/list" => json!({ "result": { "resourceTemplates": [item] } }),
        "resources/read" if message["params"]["uri"] == item["uri"] => {
            json!({ "result": { "contents": [{ "uri": item["uri"], "text": name, "_meta": { "etag": name } }] } })
        }
        "resources/subscribe" if fails => json!({ "result": {} }),
        "tools/call" => {
            json!({ "result": { "isError": true, "content": [{ "type": "text", "text": name }] } })
        }
        "subscriptions/listen" if is_modern && fails => refused,
        "subscriptions/listen" if is_modern => return event_stream(&listen_messages(name, id)),
        _ => refused,
    };
    body["jsonrpc"] = json!("2.0");
    body["id"] = id.clone();
    axum::Json(body).into_response()
}

/// Returns what a session is told of before its client is ready.
fn early_messages(name: &str) -> Vec<Value> {
    let list = json!({ "method": format!("notifications/{name}/list_changed") });
    let updated = json!({ "method": RESOURCE_UPDATED, "params": { "uri": format!("demo://other{name}") } });
    vec![
        json!({ "method": format!("notifications/{name}") }),
        list.clone(),
        list,
        updated,
    ]
}

/// Returns the messages of a listen stream, which carries more than was asked for, wrongly tagged.
fn listen_messages(name: &str, id: &Value) -> Vec<Value> {
    let tag = json!({ SUBSCRIPTION_ID_META_KEY: id });
    let granted = json!({ "resourceSubscriptions": [name, format!("demo://{name}")] });
    vec![
        json!({ "method": ACKNOWLEDGED, "params": { "notifications": granted, "_meta": tag } }),
        json!({ "method": format!("notifications/{name}"), "params": { "_meta": tag } }),
        json!({ "method": "notifications/message", "params": { "_meta": { SUBSCRIPTION_ID_META_KEY: name } } }),
    ]
}

/// Returns a stream with these messages, which stays open.
fn event_stream(messages: &[Value]) -> Response {
    let events: Vec<String> = messages
        .iter()
        .map(|message| format!("data: {message}\n\n"))
        .collect();
    let body = stream::iter(events)
        .chain(stream::pending())
        .map(Ok::<_, std::io::Error>);
    let response = Response::builder().header("content-type", "text/event-stream");
    response.body(Body::from_stream(body)).unwrap()
}

async fn check(url: &str, kind: &str, number: usize) -> Result<Report, CheckError> {
    let mut options = Options::default();
    options.quiet_time = Duration::from_millis(20);
    options.wait = Duration::from_millis(20);
    options.touch_tools = match kind {
        "failing" => vec![ToolCall::parse("edit").unwrap()],
        _ => Vec::new(),
    };
    let target = Target::http(&format!("{url}/{kind}/{number}")).unwrap();
    run(&target, &options).await
}

/// Checks that the XML is well formed, and returns its number of tests.
fn count_tests(xml: &str) -> usize {
    let document = roxmltree::Document::parse(xml).unwrap_or_else(|error| panic!("{error}: {xml}"));
    let elements = document.descendants().filter(roxmltree::Node::is_element);
    let names: Vec<&str> = elements.map(|element| element.tag_name().name()).collect();
    let known = [
        "testsuites",
        "testsuite",
        "testcase",
        "failure",
        "skipped",
        "error",
        "system-out",
    ];
    let forged: BTreeSet<&&str> = names.iter().filter(|name| !known.contains(name)).collect();
    assert!(forged.is_empty(), "{forged:?}");
    names.iter().filter(|name| **name == "testcase").count()
}

#[track_caller]
fn assert_annotations(text: &str, expected: usize) {
    assert_tame(text);
    assert!(!text.contains("##["), "{text}");
    assert_eq!(text.lines().count(), expected, "{text}");
    let kinds = ["::error title=", "::warning title=", "::notice title="];
    for line in text.lines() {
        assert!(kinds.iter().any(|kind| line.starts_with(kind)), "{line}");
        assert!(!line.contains("%0A::"), "{line}");
    }
}

#[track_caller]
fn assert_report(report: &Report) {
    let text = report.to_string();
    assert!(text.contains("FAKE"), "nothing of the server is shown: {text}");
    assert_no_command(&text);
    let json = report.to_json();
    assert_no_command(&json);
    let read: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(read["checks"].as_array().unwrap().len(), report.checks.len());
    let incomplete = usize::from(report.incomplete.is_some());
    let xml = report.to_junit();
    assert_no_command(&xml);
    assert_eq!(count_tests(&xml), report.checks.len() + incomplete, "{xml}");
    assert_annotations(&report.to_github(), report.failed().count() + incomplete);
}

#[track_caller]
fn assert_error(error: &CheckError) {
    let text = error.to_string();
    assert_no_command(&text);
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(count_tests(&error.to_junit()), 1);
    assert_no_command(&error.to_junit());
    assert_annotations(&error.to_github(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_texts_stay_in_their_place() {
    let url = start().await;
    let url = &url;
    let checks = stream::iter(0..NAMES.len()).map(|number| async move {
        let faulty = check(url, "faulty", number).await.unwrap();
        assert!(faulty.summary.errors > 2, "{faulty}");
        assert_report(&faulty);
        let failing = check(url, "failing", number).await.unwrap();
        let reason = failing.incomplete.as_deref().expect("its tool fails");
        assert!(reason.contains("FAKE"), "{reason}");
        assert_report(&failing);
        let refused = check(url, "refusing", number).await.unwrap_err();
        assert!(refused.to_string().contains("FAKE"), "{refused}");
        assert_error(&refused);
        // A challenge with other than ASCII characters is not shown.
        let denied = check(url, "denying", number).await.unwrap_err();
        assert!(matches!(denied, CheckError::Denied { .. }), "{denied:?}");
        assert_error(&denied);
    });
    checks.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// Checks what the program printed, and returns its standard output and standard error.
#[track_caller]
fn assert_output(output: &Output) -> (String, String) {
    let out = text(&output.stdout);
    let err = text(&output.stderr);
    assert_no_command(&out);
    assert_tame(&err);
    assert!(!err.contains("##["), "{err}");
    (out, err)
}

#[tokio::test]
async fn program_prints_no_text_as_it_came() {
    let url = start().await;
    let folder = TempDir::new().unwrap();
    let runs = [5, 12, 13].map(|number| {
        let url = format!("{url}/faulty/{number}");
        let folder = folder.path();
        async move {
            let report = format!("report{number}.xml");
            let output = check_in(folder, &[&url, "--junit", &report], true).await;
            let (out, err) = assert_output(&output);
            assert!(out.contains("FAKE") && err.contains("FAKE"), "{out}{err}");
            let failures = out
                .lines()
                .filter(|line| line.starts_with("  ✗ ") || line.starts_with("  ! "));
            let annotations = err.lines().filter(|line| line.starts_with("::")).count();
            assert_eq!(annotations, failures.count(), "{out}{err}");
            count_tests(&std::fs::read_to_string(folder.join(report)).unwrap());
        }
    });
    futures_util::future::join_all(runs).await;
}

#[tokio::test]
async fn error_output_of_a_server_is_marked() {
    let folder = TempDir::new().unwrap();
    let told = NAMES.join("\n");
    std::fs::write(folder.path().join("told"), &told).unwrap();
    let server = ["--", "sh", "-c", "cat told >&2; exit 3"];
    let output = check_in(folder.path(), &server, false).await;
    let (_, err) = assert_output(&output);
    let (theirs, ours): (Vec<&str>, Vec<&str>) = err.lines().partition(|line| line.starts_with("server: "));
    // Once for each era.
    assert_eq!(theirs.len(), 2 * told.split('\n').count(), "{err}");
    let [ours] = ours[..] else { panic!("{ours:?}") };
    assert!(ours.starts_with("error: sh is no MCP server"), "{ours}");
    assert!(ours.contains("exit status: 3"), "{ours}");
}
