//! A server with the fixtures that the official conformance suite asks for: tools, prompts and resources over
//! a bus. Start it with `cargo run --example fixtures -- --listen 127.0.0.1:0`.

#![expect(clippy::print_stdout, reason = "the program prints its address")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tidings::config::McpConfig;
use tidings::mcp::{Endpoint, McpOptions};
use tidings::{
    Block, Body, Bus, CallContext, CallbackError, LogLevel, Prompt, PromptMessage, Resource,
    ResourceTemplate, ResourceUri, Role, Tool, ToolOutput, Variables, etag_tools,
};

/// A red pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x02\0\0\0\x90wS\xde\0\0\0\x0cIDATx\x9cc\xf8\xcf\xc0\0\0\x03\x01\x01\0\xc9\xfe\x92\xef\0\0\0\0IEND\xaeB`\x82";
/// A wave file of no samples.
const WAV: &[u8] =
    b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0";

/// The time that a tool works between two messages.
const STEP: Duration = Duration::from_millis(50);

type Arguments = Map<String, Value>;

#[tokio::main]
async fn main() -> Result<(), CallbackError> {
    let listen = std::env::args()
        .skip_while(|argument| argument != "--listen")
        .nth(1);
    let bus = Bus::builder().start()?;
    add_resources(&bus).await?;
    add_constant_tools(&bus).await?;
    add_changing_tools(&bus).await?;
    add_reporting_tools(&bus).await?;
    add_prompts(&bus).await?;
    etag_tools::install(&bus, McpConfig::default()).await?;

    let app = axum::Router::new().route_service("/mcp", Endpoint::new(bus.clone(), McpOptions::default()));
    let listener = tokio::net::TcpListener::bind(listen.as_deref().unwrap_or("127.0.0.1:8811")).await?;
    println!("tidings listening on http://{}/mcp", listener.local_addr()?);
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = terminate.recv() => {
            bus.shutdown(Duration::from_secs(2)).await;
        }
    }
    Ok(())
}

async fn add_resources(bus: &Bus) -> Result<(), CallbackError> {
    let text = "This is the content of the static text resource.";
    bus.register(Resource::text("test://static-text", text)?).await?;
    bus.register(Resource::blob("test://static-binary", PNG)?.media_type("image/png"))
        .await?;
    bus.register(Resource::text("test://watched-resource", "watched")?)
        .await?;
    let template = ResourceTemplate::new(
        "test://template/{id}/data",
        |_: ResourceUri, variables: Variables| async move {
            let id = variables.get("id").unwrap_or_default();
            let data = json!({ "id": id, "data": format!("Data for ID: {id}") });
            Ok(Some(Body::text(data.to_string())))
        },
    )?;
    bus.add_template(template.media_type("application/json").name("template"))
        .await?;
    Ok(())
}

/// Adds the tools whose answer is always the same.
async fn add_constant_tools(bus: &Bus) -> Result<(), CallbackError> {
    let several = vec![
        Block::Text("Multiple content types test:".into()),
        image(),
        embedded("test://mixed-content-resource")?,
    ];
    let simple = Block::Text("This is a simple text response for testing.".into());
    for (name, blocks) in [
        ("test_simple_text", vec![simple]),
        ("test_image_content", vec![image()]),
        ("test_audio_content", vec![audio()]),
        (
            "test_embedded_resource",
            vec![embedded("test://embedded-resource")?],
        ),
        ("test_multiple_content_types", several),
    ] {
        let tool = Tool::new(name, move |_: Arguments| {
            let blocks = blocks.clone();
            async move {
                Ok(ToolOutput {
                    blocks,
                    structured: None,
                })
            }
        });
        bus.add_tool(tool.description("Answers the same each time"))
            .await?;
    }
    let failing = Tool::new("test_error_handling", |_: Arguments| async {
        Err("This tool intentionally returns an error for testing".into())
    });
    bus.add_tool(failing.description("Fails each time")).await?;
    Ok(())
}

/// Adds the tools that change the lists of tools and prompts.
async fn add_changing_tools(bus: &Bus) -> Result<(), CallbackError> {
    // Weak: the bus holds its tools, so a tool that held the bus would never let it stop.
    let weak = bus.downgrade();
    let tools = Tool::new("test_trigger_tool_change", move |_: Arguments| {
        let bus = weak.upgrade();
        async move {
            let tool = Tool::new("test_changing_tool", |_: Arguments| async {
                Ok(ToolOutput::text(""))
            });
            let changed = tool.description(format!("Change {}", next_number()));
            bus?.add_tool(changed).await?;
            Ok(ToolOutput::text("the tools changed"))
        }
    });
    bus.add_tool(tools.description("Changes the tools")).await?;
    let weak = bus.downgrade();
    let prompts = Tool::new("test_trigger_prompt_change", move |_: Arguments| {
        let bus = weak.upgrade();
        async move {
            let prompt = Prompt::new("test_changing_prompt", |_: Arguments| async { Ok(Vec::new()) });
            let changed = prompt.description(format!("Change {}", next_number()));
            bus?.add_prompt(changed).await?;
            Ok(ToolOutput::text("the prompts changed"))
        }
    });
    bus.add_tool(prompts.description("Changes the prompts")).await?;
    Ok(())
}

/// Adds the tools that send log messages and progress while they run.
async fn add_reporting_tools(bus: &Bus) -> Result<(), CallbackError> {
    for name in ["test_tool_with_logging", "test_logging_tool"] {
        let tool = Tool::with_context(name, |_: Arguments, context: CallContext| log_three(context));
        bus.add_tool(tool.description("Logs three messages")).await?;
    }
    let progress = Tool::with_context("test_tool_with_progress", |_: Arguments, context: CallContext| {
        report_three(context)
    });
    bus.add_tool(progress.description("Reports its progress three times"))
        .await?;
    Ok(())
}

async fn log_three(context: CallContext) -> Result<ToolOutput, CallbackError> {
    for text in [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ] {
        context.log(LogLevel::Info, None, text.into()).await;
        tokio::time::sleep(STEP).await;
    }
    Ok(ToolOutput::text("the messages were sent"))
}

async fn report_three(context: CallContext) -> Result<ToolOutput, CallbackError> {
    for done in [0.0, 50.0, 100.0] {
        context.progress(done, Some(100.0), None).await;
        tokio::time::sleep(STEP).await;
    }
    Ok(ToolOutput::text("the work is done"))
}

async fn add_prompts(bus: &Bus) -> Result<(), CallbackError> {
    let simple = Prompt::new("test_simple_prompt", |_: Arguments| async {
        Ok(vec![PromptMessage::user("This is a simple prompt for testing.")])
    });
    bus.add_prompt(simple.description("Takes nothing")).await?;

    let with_arguments = Prompt::new("test_prompt_with_arguments", |arguments: Arguments| async move {
        let one = argument(&arguments, "arg1")?;
        let two = argument(&arguments, "arg2")?;
        let text = format!("Prompt with arguments: arg1='{one}', arg2='{two}'");
        Ok(vec![PromptMessage::user(text)])
    });
    let with_arguments = with_arguments
        .description("Takes two arguments")
        .argument("arg1", "First", true)
        .argument("arg2", "Second", true);
    bus.add_prompt(with_arguments).await?;

    let with_resource = Prompt::new(
        "test_prompt_with_embedded_resource",
        |arguments: Arguments| async move {
            Ok(vec![
                user(embedded(&argument(&arguments, "resourceUri")?)?),
                PromptMessage::user("Please process the embedded resource above."),
            ])
        },
    );
    let with_resource = with_resource.description("Holds a resource").argument(
        "resourceUri",
        "The URI of the resource",
        true,
    );
    bus.add_prompt(with_resource).await?;

    let with_image = Prompt::new("test_prompt_with_image", |_: Arguments| async {
        Ok(vec![
            user(image()),
            PromptMessage::user("Please analyze the image above."),
        ])
    });
    bus.add_prompt(with_image.description("Holds a picture")).await?;
    Ok(())
}

fn user(block: Block) -> PromptMessage {
    PromptMessage {
        role: Role::User,
        block,
    }
}

fn image() -> Block {
    Block::Image {
        data: Bytes::from_static(PNG),
        media_type: "image/png".into(),
    }
}

fn audio() -> Block {
    Block::Audio {
        data: Bytes::from_static(WAV),
        media_type: "audio/wav".into(),
    }
}

fn embedded(uri: &str) -> Result<Block, CallbackError> {
    Ok(Block::Resource {
        uri: uri.parse()?,
        media_type: Some("text/plain".into()),
        body: Body::text("This is an embedded resource content."),
    })
}

fn argument(arguments: &Arguments, name: &str) -> Result<String, CallbackError> {
    match arguments.get(name) {
        Some(Value::String(value)) => Ok(value.clone()),
        _ => Err(format!("the argument {name} is missing").into()),
    }
}

/// Returns a number that was not returned before, so that each change differs from the last.
fn next_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
