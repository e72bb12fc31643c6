//! The handlers of an embedder's tools, prompts and readers: each request has an answer, also when its
//! handler panics, never ends, or gets arguments that it does not expect.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tidings::{CallbackError, Prompt, PromptMessage, Resource, Tool, ToolOutput};

use super::client::{Client, LEGACY, modern};
use super::http::within;
use super::local::Local;
use crate::support::number;

/// The arguments of the typed tool.
#[derive(Deserialize, JsonSchema)]
struct Greeting {
    name: String,
    times: u8,
}

fn text(text: impl Into<String>) -> Result<ToolOutput, CallbackError> {
    Ok(ToolOutput::text(text))
}

/// The tools: each fails in its own way.
fn tools() -> Vec<Tool> {
    let schema =
        json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    vec![
        Tool::typed("typed", |greeting: Greeting| async move {
            text(greeting.name.repeat(usize::from(greeting.times)))
        }),
        Tool::new("checked", |arguments: Map<String, Value>| async move {
            text(arguments["name"].to_string())
        })
        .input_schema(schema),
        Tool::new("unchecked", |arguments: Map<String, Value>| async move {
            text(arguments["name"].to_string())
        }),
        Tool::new("late", |_| async {
            tokio::task::yield_now().await;
            panic!("a tool that panics after a while")
        }),
        Tool::new("slow", |_| {
            std::future::pending::<Result<ToolOutput, CallbackError>>()
        })
        .timeout(Duration::from_millis(20)),
        Tool::new("refusing", |_| async { Err("not today".into()) }),
        Tool::new("without_schema", |_| async { text("called") }).input_schema(json!({ "type": 7 })),
    ]
}

async fn served() -> Local {
    let local = Local::with(|options| options.mcp.handler_timeout = Some(Duration::from_millis(100))).await;
    local.bus.change_tools(tools(), Vec::new()).await.expect("tools");
    let panics = Prompt::new("panics", |arguments: Map<String, Value>| async move {
        Ok(vec![PromptMessage::user(arguments["name"].to_string())])
    });
    local.bus.add_prompt(panics).await.expect("a prompt");
    let never = Prompt::new("slow", |_| std::future::pending());
    local.bus.add_prompt(never).await.expect("a prompt");
    let reader = Resource::lazy("demo://slow", std::future::pending).expect("a URI");
    local.bus.register(reader).await.expect("a resource");
    local
}

/// Calls a tool and returns true if it failed, with its text.
async fn call(client: &Client, name: &str, arguments: Value) -> (bool, String) {
    let result = within("an answer", client.tool(name, arguments)).await;
    let text = result["content"][0]["text"].as_str().expect("a text");
    (result["isError"] == true, text.to_owned())
}

#[tokio::test]
async fn failing_handler_is_answered() {
    let local = served().await;
    for revision in LEGACY {
        let client = Client::open(local.server, revision).await;
        for (tool, arguments, is_error, expected) in [
            ("typed", json!({ "name": "ab", "times": 2 }), false, "abab"),
            (
                "typed",
                json!({ "name": "ab" }),
                true,
                "\"times\" is a required property",
            ),
            ("typed", json!({ "name": "ab", "times": 400 }), true, "400"),
            ("checked", json!({ "name": "Ada" }), false, "Ada"),
            (
                "checked",
                json!({ "name": 7 }),
                true,
                "/name: 7 is not of type \"string\"",
            ),
            ("checked", json!({}), true, "\"name\" is a required property"),
            ("unchecked", json!({}), true, "panicked"),
            ("late", json!({}), true, "panicked"),
            ("slow", json!({}), true, "20ms"),
            ("refusing", json!({}), true, "not today"),
            ("without_schema", json!({}), true, "correct the server"),
        ] {
            let (failed, text) = call(&client, tool, arguments).await;
            assert_eq!(failed, is_error, "{revision} {tool}: {text}");
            assert!(text.contains(expected), "{revision} {tool}: {text}");
        }
        for (method, params, expected) in [
            ("prompts/get", json!({ "name": "panics" }), "panicked"),
            ("prompts/get", json!({ "name": "slow" }), "mcp.handler_timeout"),
            (
                "resources/read",
                json!({ "uri": "demo://slow" }),
                "mcp.handler_timeout",
            ),
        ] {
            let reply = client.request(method, params).await.json();
            assert_eq!(reply["error"]["code"], -32603, "{revision}: {reply}");
            let message = reply["error"]["message"].as_str().expect("a message");
            assert!(message.contains(expected), "{revision}: {message}");
        }
    }
    local.shutdown().await;
}

/// A call of any tool with any arguments, chosen by a number.
fn chosen(number: usize) -> (&'static str, Value) {
    let names = [
        "typed",
        "checked",
        "unchecked",
        "late",
        "slow",
        "refusing",
        "without_schema",
    ];
    let arguments = [
        json!({}),
        json!({ "name": "Ada" }),
        json!({ "name": ["Ada"], "times": -1 }),
        json!({ "name": "Ada", "times": 3, "more": null }),
        json!({ "name": "\u{0}".repeat(300), "times": 1e300 }),
    ];
    // A multiplier without a common divisor with either length visits all pairs in a scattered order.
    let scattered = number.wrapping_mul(0x9e37_79b9);
    (
        names[scattered % names.len()],
        arguments[scattered / 7 % arguments.len()].clone(),
    )
}

/// `HANDLER_CALLS` sets the number of calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_has_an_answer() {
    const TOGETHER: usize = 50;
    let calls = number("HANDLER_CALLS", 1_000) as usize;
    let local = served().await;
    let server = local.server;
    let mut callers = tokio::task::JoinSet::new();
    for caller in 0..TOGETHER {
        callers.spawn(async move {
            for number in (caller..calls).step_by(TOGETHER) {
                let (name, arguments) = chosen(number);
                let params = json!({ "name": name, "arguments": arguments });
                let reply = within("an answer", modern(server, "tools/call", params)).await;
                assert_eq!(reply.status, 200, "{name}: {}", reply.text());
                assert!(
                    reply.json()["result"]["content"].is_array(),
                    "{name}: {}",
                    reply.text()
                );
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.expect("answers");
    }
    local.shutdown().await;
}
