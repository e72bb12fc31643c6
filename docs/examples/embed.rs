//! An MCP server that somebody else wrote, with Tidings inside: a resource, a tool, a prompt, and one line that says
//! "this changed". `cargo run --example embed`, then point any MCP client at the address it prints; `-- --listen ADDR`
//! takes another one.

#![expect(
    clippy::print_stdout,
    reason = "whoever started the server is told where it listens"
)]

use std::time::Duration;

use serde_json::{Map, Value, json};
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
            let name = arguments
                .get("name")
                .and_then(Value::as_str)
                .ok_or("name is missing")?;
            Ok(ToolOutput::text(format!("Hello, {name}.")))
        })
        .description("Greets somebody")
        .input_schema(json!({ "type": "object", "properties": { "name": { "type": "string" } } })),
    )
    .await?;
    bus.add_prompt(Prompt::new("tell", |_: Map<String, Value>| async {
        Ok(vec![PromptMessage::user("Tell me what demo://clock says.")])
    }))
    .await?;
    etag_tools::install(&bus, etag_tools::EtagToolLimits::default()).await?;

    let endpoint = Endpoint::new(bus.clone(), McpOptions::default());
    let app = axum::Router::new().route_service("/mcp", endpoint);
    let listener = tokio::net::TcpListener::bind(listen.as_deref().unwrap_or("127.0.0.1:8810")).await?;
    println!("listening on http://{}/mcp", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    for seconds in 1.. {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let outcome = bus.update(clock(seconds)?).await?;
        eprintln!("demo://clock {} told {}", outcome.etag, outcome.notified);
    }
    Ok(())
}

fn clock(seconds: u64) -> Result<Resource, tidings::InvalidUri> {
    Ok(Resource::text("demo://clock", format!("{seconds} s"))?.title("Seconds since the start"))
}
