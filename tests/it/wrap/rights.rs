//! The rights of a caller at a wrapped server: what the caller may not see is to it as if it did not exist,
//! and the server is not asked for it.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tidings::auth::{Authenticate, Border, Credentials, Policy, Principal, Unauthenticated};
use tidings::config::RuleConfig;
use tidings::http::Access;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use super::*;
use crate::wrap::client::serve;
use crate::wrap::notes::Server;

/// Takes every request for one of the reader.
struct OneReader;

fn reader() -> Principal {
    let roles = vec!["reader".to_owned()];
    Principal::builder("local:reader").roles(roles).build()
}

impl Authenticate for OneReader {
    fn authenticate<'a>(&'a self, _: Credentials<'a>) -> BoxFuture<'a, Result<Principal, Unauthenticated>> {
        async { Ok(reader()) }.boxed()
    }
}

/// A border behind which the note a and the tool `brew` are seen.
fn border() -> Arc<Border> {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let rule = RuleConfig {
        roles: owned(&["reader"]),
        may: owned(&["list", "read", "subscribe", "call"]),
        r#match: owned(&["note://a", "tool:brew", "tool:get_resource_etag"]),
        scope: None,
    };
    let policy = Policy::new(&[rule]).unwrap();
    Arc::new(Border::new(Arc::new(OneReader), Arc::new(policy)))
}

/// A request of the stateless revision.
fn request(id: u64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// The requests of a reader, the last of which opens a stream.
fn requests() -> Vec<Value> {
    vec![
        request(1, "tools/list", json!({})),
        request(2, "prompts/list", json!({})),
        request(3, "tools/call", json!({"name": "brew", "arguments": {}})),
        request(4, "tools/call", json!({"name": "pour", "arguments": {}})),
        request(5, "tools/call", json!({"name": "nothing", "arguments": {}})),
        request(6, "resources/read", json!({"uri": "note://a"})),
        request(7, "resources/read", json!({"uri": "note://b"})),
        request(8, "resources/read", json!({"uri": "note://c"})),
        request(9, "prompts/get", json!({"name": "greet"})),
        request(
            10,
            "subscriptions/listen",
            json!({"notifications": {"resourceSubscriptions": ["note://b", "note://a"]}}),
        ),
    ]
}

async fn notes_of_reader() -> (Wrap, Arc<Notes>) {
    let (wrap, notes) = wrap().await;
    notes.add_tool("brew");
    notes.add_tool("pour");
    (wrap, notes)
}

/// Checks the answers to [`requests`], the acknowledgement of the stream last.
fn assert_rights(answers: &[Value], notes: &Notes) {
    let [tools, prompts, brew, pour, nothing, a, b, c, greet, listen] = answers else {
        panic!("{answers:#?}");
    };
    let tools = tools["result"]["tools"].as_array().unwrap();
    let mut tools: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    tools.sort_unstable();
    assert_eq!(tools, ["brew", "get_resource_etag"]);
    assert_eq!(prompts["result"]["prompts"], json!([]));
    assert!(brew["error"].is_null(), "{brew}");
    assert_eq!(
        without(&pour["error"], "pour"),
        without(&nothing["error"], "nothing")
    );
    assert!(a["error"].is_null(), "{a}");
    assert_eq!(without(&b["error"], "note://b"), without(&c["error"], "note://c"));
    assert!(greet["error"].is_object(), "{greet}");
    let accepted = &listen["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(*accepted, json!(["note://a"]));
    assert!(!notes.was_read("note://b"), "the server was asked for it");
}

/// Returns an error without the name that it repeats.
fn without(error: &Value, name: &str) -> String {
    assert!(error.is_object(), "{error}");
    error.to_string().replace(name, "…")
}

#[tokio::test]
async fn rights_hold_over_stdio() {
    let (wrap, notes) = notes_of_reader().await;
    let (mut input, theirs) = tokio::io::duplex(1 << 16);
    let (ours, output) = tokio::io::duplex(1 << 16);
    let server = Server::new(&notes);
    let caller = border().caller(reader());
    tokio::spawn(async move { wrap.serve_stdio_as(server, caller, theirs, output).await });
    let mut lines = BufReader::new(ours).lines();
    let mut answers = Vec::new();
    for request in requests() {
        input.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        let line = tokio::time::timeout(Duration::from_secs(10), lines.next_line()).await;
        answers.push(serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap());
    }
    assert_rights(&answers, &notes);
}

#[tokio::test]
async fn rights_hold_over_the_endpoint() {
    let (wrap, notes) = notes_of_reader().await;
    let access = Access {
        border: Some(border()),
        ..Access::default()
    };
    let of_server = notes.clone();
    let endpoint = wrap.endpoint_with_access(move || Server::new(&of_server), access);
    let (url, server) = serve(axum::Router::new().route_service("/mcp", endpoint)).await;
    let mut answers = Vec::new();
    for request in requests() {
        let method = request["method"].as_str().unwrap();
        let params = &request["params"];
        let name = params["name"].as_str().or(params["uri"].as_str());
        let post = reqwest::Client::new()
            .post(&url)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method)
            .header("mcp-name", name.unwrap_or_default())
            .json(&request);
        let mut answer = post.send().await.unwrap();
        let mut text = String::new();
        while serde_json::from_str::<Value>(data_of(&text)).is_err() {
            let chunk = answer.chunk().await.unwrap().expect("an answer");
            text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        answers.push(serde_json::from_str(data_of(&text)).unwrap());
    }
    assert_rights(&answers, &notes);
    server.abort();
}

/// Returns the data of the first event, or the whole text if it is no event.
fn data_of(text: &str) -> &str {
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    data.unwrap_or(text)
}
