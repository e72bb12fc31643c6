//! The rights of a caller at a wrapped server: what the caller may not see is to it as if it did not exist,
//! and the server is not asked for it.

use std::sync::Arc;

use tidings::auth::{Border, Policy};
use tidings::config::RuleConfig;
use tidings::http::Access;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};

use super::*;
use crate::one_principal::{OnePrincipal, reader, rules};
use crate::wrap::client::serve;
use crate::wrap::notes::Server;

/// A border behind which the note a, the template and the skill below it, the tool `brew` and the prompt
/// `wave` are seen.
fn border() -> Arc<Border> {
    border_of(&rules(&[
        "note://a",
        "note://a/*",
        "tool:brew",
        "tool:get_resource_etag",
        "prompt:wave",
    ]))
}

fn border_of(rules: &[RuleConfig]) -> Arc<Border> {
    let authenticate = Arc::<OnePrincipal>::default();
    let policy = Policy::new(rules).unwrap();
    Arc::new(Border::new(authenticate, Arc::new(policy)))
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

/// A completion of what `reference` names.
fn completion(reference: &Value) -> Value {
    let argument = json!({"name": "name", "value": "A"});
    let params = json!({"ref": reference, "argument": argument});
    request(1, "completion/complete", params)
}

/// The requests for which the server has an answer, each beside one that the reader may not make, and the
/// name in that.
fn permitted_and_refused() -> Vec<(Value, Value, &'static str)> {
    let prompt = |name: &str| completion(&json!({"type": "ref/prompt", "name": name}));
    let resource = |uri: &str| completion(&json!({"type": "ref/resource", "uri": uri}));
    let skill = |uri: &str| request(1, "skills/get", json!({"uri": uri}));
    let directory = |uri: &str| request(1, "resources/directory/read", json!({"uri": uri}));
    let get = |name: &str| request(1, "prompts/get", json!({"name": name}));
    vec![
        (get("wave"), get("greet"), "greet"),
        (prompt("wave"), prompt("greet"), "greet"),
        (prompt("wave"), prompt("nothing"), "nothing"),
        (
            resource("note://a/{part}"),
            resource("note://b/{part}"),
            "note://b/{part}",
        ),
        (resource("note://a"), resource("note://b"), "note://b"),
        (
            skill("note://a/SKILL.md"),
            skill("note://b/SKILL.md"),
            "note://b/SKILL.md",
        ),
        (directory("note://a/"), directory("note://b/"), "note://b/"),
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

/// A reader on stdio.
struct StdioReader {
    input: DuplexStream,
    lines: Lines<BufReader<DuplexStream>>,
}

impl StdioReader {
    fn connect(wrap: Wrap, notes: &Arc<Notes>, border: &Arc<Border>) -> StdioReader {
        let (input, theirs) = tokio::io::duplex(1 << 16);
        let (ours, output) = tokio::io::duplex(1 << 16);
        let server = Server::new(notes);
        let caller = border.caller(reader());
        tokio::spawn(async move { wrap.serve_stdio_as(server, caller, theirs, output).await });
        let lines = BufReader::new(ours).lines();
        StdioReader { input, lines }
    }

    async fn answer(&mut self, request: &Value) -> Value {
        let line = format!("{request}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
        let line = tokio::time::timeout(Duration::from_secs(10), self.lines.next_line()).await;
        serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn rights_hold_over_stdio() {
    let (wrap, notes) = notes_of_reader().await;
    let mut reader = StdioReader::connect(wrap, &notes, &border());
    let mut answers = Vec::new();
    for request in requests() {
        answers.push(reader.answer(&request).await);
    }
    assert_rights(&answers, &notes);
}

#[tokio::test]
async fn completions_and_skills_need_the_right_to_read() {
    let (wrap, notes) = notes_of_reader().await;
    let mut reader = StdioReader::connect(wrap, &notes, &border());
    for (permitted, refused, name) in permitted_and_refused() {
        let answer = reader.answer(&permitted).await;
        assert!(answer["error"].is_null(), "{permitted}: {answer}");
        let answer = reader.answer(&refused).await;
        assert_eq!(answer["error"]["code"], -32602, "{refused}: {answer}");
        assert!(without(&answer["error"], name).contains("Unknown"), "{answer}");
    }
    let skills = reader.answer(&request(1, "skills/list", json!({}))).await;
    let skills = skills["result"]["skills"].as_array().unwrap();
    let uris: Vec<&Value> = skills.iter().map(|skill| &skill["uri"]).collect();
    assert_eq!(json!(uris), json!(["note://a/SKILL.md"]));
    let directory = request(1, "resources/directory/read", json!({"uri": "note://a/"}));
    let directory = reader.answer(&directory).await;
    let resources = directory["result"]["resources"].as_array().unwrap();
    let uris: Vec<&Value> = resources.iter().map(|resource| &resource["uri"]).collect();
    assert_eq!(json!(uris), json!(["note://a/SKILL.md"]));
}

#[tokio::test]
async fn right_to_call_a_prompt_gives_it() {
    let (wrap, notes) = notes_of_reader().await;
    let [mut rule] = rules(&["prompt:greet"]);
    rule.may = vec!["call".to_owned()];
    let mut reader = StdioReader::connect(wrap, &notes, &border_of(&[rule]));
    let get = request(1, "prompts/get", json!({"name": "greet"}));
    let answer = reader.answer(&get).await;
    assert!(answer["error"].is_null(), "{answer}");
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
