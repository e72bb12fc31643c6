//! Principals with few rights before a gateway: what one may not call, it reaches neither by a task nor by a
//! request that the protocol does not define.

use std::sync::{Arc, Mutex};

use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Gateway, signal, within};
use crate::http::rights::token_of;
use crate::mcp::client::{MODERN, stateless};
use crate::mcp::http::{Reply, Request};

const RULES: &str = "
[auth]
anonymous = 'none'
[[auth.token]]
name = 'ann'
file = 'ann'
roles = ['ann']
[[auth.token]]
name = 'bob'
file = 'bob'
roles = ['bob']
[[auth.rule]]
roles = ['ann']
may = ['call']
match = ['tool:work', 'method:acme/*']
[[auth.rule]]
roles = ['bob']
may = ['call']
match = ['tool:other']
";

/// The requests that the server got.
type Got = Arc<Mutex<Vec<(String, Value)>>>;

async fn answer(State(got): State<Got>, Json(message): Json<Value>) -> Response {
    let Some(id) = message.get("id") else {
        return StatusCode::ACCEPTED.into_response();
    };
    let method = message["method"].as_str().unwrap();
    if method == "server/discover" {
        let error = json!({ "code": -32601, "message": "no such method" });
        return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
    }
    let params = message["params"].clone();
    let task = json!({
        "resultType": "task", "taskId": "1", "status": "working", "ttlMs": null,
        "createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z",
    });
    let result = match method {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": { "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } },
            "serverInfo": { "name": "tasks", "version": "1" },
        }),
        "tools/list" => {
            let tools = ["work", "other"].map(|name| json!({ "name": name, "inputSchema": {} }));
            json!({ "tools": tools })
        }
        "tools/call" => task,
        _ => json!({ "answered": method }),
    };
    if !matches!(method, "initialize" | "tools/list") {
        got.lock().unwrap().push((method.to_owned(), params));
    }
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}

/// The gateway before the server, and the tokens of two principals.
struct Setting {
    gateway: Gateway,
    got: Got,
    tokens: [String; 2],
    folder: TempDir,
}

impl Setting {
    async fn start() -> Setting {
        let got = Got::default();
        let app = axum::Router::new()
            .route("/mcp", post(answer))
            .with_state(got.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.expect("served") });
        let folder = TempDir::new().unwrap();
        let tokens = ["ann", "bob"].map(|name| token_of(folder.path(), name));
        let config = folder.path().join("tidings.toml");
        let table = format!("[gateway.upstream.tasks]\nurl = '{url}'\npoll = '1h'\n{RULES}");
        std::fs::write(&config, table).unwrap();
        let gateway = Gateway::start(&["--config", config.to_str().unwrap()]).await;
        Setting {
            gateway,
            got,
            tokens,
            folder,
        }
    }

    /// Sends a request as ann (0) or bob (1).
    async fn send(&self, principal: usize, method: &str, params: Value) -> Reply {
        let token = format!("Bearer {}", self.tokens[principal]);
        let mut params = stateless(params);
        let capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        let name = params.get("name").or(params.get("taskId"));
        let name = name.and_then(Value::as_str).unwrap_or("none").to_owned();
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = Request::post(message.to_string())
            .header("authorization", token)
            .header("mcp-protocol-version", MODERN)
            .header("mcp-method", method)
            .header("mcp-name", name);
        request.send(self.gateway.address()).await
    }

    /// Returns the methods that the server got since the last call.
    fn got(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.got.lock().unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn task_is_reached_by_its_principal_alone() {
    let setting = Setting::start().await;
    let reply = setting.send(0, "tools/call", json!({ "name": "work" })).await;
    let Some(task) = reply.json()["result"]["taskId"].as_str().map(str::to_owned) else {
        panic!("no task: {}", reply.text());
    };
    assert_eq!(setting.got().len(), 1);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = |id: &str| json!({ "taskId": id, "inputResponses": {} });
        for id in [&task, "1", "none.1"] {
            let refusal = setting.send(1, method, params(id)).await;
            let (code, text) = refusal.error();
            assert_eq!((code, text), (-32602, format!("Unknown task: {id}")), "{method}");
        }
        assert_eq!(setting.got(), [], "{method}");
        setting.send(0, method, params(&task)).await;
        let got = setting.got();
        assert_eq!(got.len(), 1, "{method}");
        assert_eq!((&*got[0].0, &got[0].1["taskId"]), (method, &json!("1")));
    }
    // It names none, and would tell the tasks of all.
    assert_eq!(setting.send(0, "tasks/list", json!({})).await.error().0, -32601);
    // Those of older revisions.
    for method in ["tasks/result", "ping", "logging/setLevel"] {
        let refusal = setting.send(0, method, json!({ "taskId": task })).await;
        assert_eq!((refusal.status, refusal.error().0), (404, -32601), "{method}");
    }
    assert_eq!(setting.got(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_request_is_for_those_with_the_right() {
    let setting = Setting::start().await;
    let reply = setting.send(0, "acme/reset", json!({})).await;
    assert_eq!(
        reply.json()["result"]["answered"],
        "acme/reset",
        "{}",
        reply.text()
    );
    assert_eq!(setting.got().len(), 1);
    for (principal, method) in [(1, "acme/reset"), (0, "other/reset")] {
        let refusal = setting.send(principal, method, json!({})).await;
        assert_eq!(refusal.error().0, -32601, "{method}");
    }
    assert_eq!(setting.got(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_request_goes_past_no_rule() {
    let setting = Setting::start().await;
    // rmcp takes each of these for a request of a method that it does not know.
    for (method, params) in [
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/prompt", "name": "a" }, "argument": 5 }),
        ),
        ("resources/directory/read", json!({ "uri": 5 })),
        ("tasks/get", json!({ "taskId": 5 })),
        ("tools/call", json!({ "name": "work", "arguments": 5 })),
    ] {
        let refusal = setting.send(1, method, params).await;
        assert_eq!(refusal.error().0, -32602, "{method}: {}", refusal.text());
    }
    assert_eq!(setting.got(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn task_ends_for_one_that_may_not_call_its_tool() {
    let setting = Setting::start().await;
    let reply = setting.send(0, "tools/call", json!({ "name": "work" })).await;
    let task = json!({ "taskId": reply.json()["result"]["taskId"], "inputResponses": {} });
    setting.send(0, "tasks/get", task.clone()).await;
    assert_eq!(setting.got().len(), 2);
    let config = setting.folder.path().join("tidings.toml");
    let rules = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, rules.replace("tool:work", "tool:gone")).unwrap();
    signal(setting.gateway.process.id().unwrap(), "-HUP");
    within("the new rules", async {
        while setting
            .send(0, "tools/call", json!({ "name": "work" }))
            .await
            .json()
            .get("error")
            .is_none()
        {}
    })
    .await;
    setting.got();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let refusal = setting.send(0, method, task.clone()).await;
        let id = task["taskId"].as_str().unwrap();
        assert_eq!(
            refusal.error(),
            (-32602, format!("Unknown task: {id}")),
            "{method}"
        );
    }
    assert_eq!(setting.got(), []);
}
