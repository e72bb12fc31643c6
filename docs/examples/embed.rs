//! An MCP server with a bus inside: a resource that changes each second, a tool and a prompt.
//!
//! Start it with `cargo run --example embed` and point any MCP client at the address that it prints;
//! `-- --listen ADDR` chooses another one.

#![expect(clippy::print_stdout, reason = "the program prints its address")]

use std::time::Duration;

use serde_json::{Map, Value, json};
use tidings::config::McpConfig;
use tidings::mcp::{Endpoint, McpOptions};
use tidings::{Bus, Prompt, PromptMessage, Resource, Tool, ToolOutput, etag_tools};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen = std::env::args()
        .skip_while(|argument| argument != "--listen")
        .nth(1);
    let bus = Bus::builder().start()?;
    bus.register(clock(0)?).await?;
    bus.add_tool(
        Tool::new("greet", |arguments: Map<String, Value>| async move {
            let Some(Value::String(name)) = arguments.get("name") else {
                return Err("name is missing".into());
            };
            Ok(ToolOutput::text(format!("Hello, {name}.")))
        })
        .description("Greets a person by name")
        .input_schema(json!({ "type": "object", "properties": { "name": { "type": "string" } } })),
    )
    .await?;
    bus.add_prompt(Prompt::new("tell", |_: Map<String, Value>| async {
        Ok(vec![PromptMessage::user("Tell me what demo://clock says.")])
    }))
    .await?;
    etag_tools::install(&bus, McpConfig::default()).await?;

    let endpoint = Endpoint::new(bus.clone(), McpOptions::default());
    let app = axum::Router::new().route_service("/mcp", endpoint);
    let listener = tokio::net::TcpListener::bind(listen.as_deref().unwrap_or("127.0.0.1:8810")).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    for seconds in 1.. {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // An update with the same content would notify no one.
        let outcome = bus.update(clock(seconds)?).await?;
        eprintln!("demo://clock {} notified {}", outcome.etag, outcome.notified);
    }
    Ok(())
}

fn clock(seconds: u64) -> Result<Resource, tidings::InvalidUri> {
    Ok(Resource::text("demo://clock", format!("{seconds} s"))?.title("Seconds since the start"))
}
