//! A server with the fixtures that the official conformance suite asks for, written as an embedder would: tools,
//! prompts and resources of its own over a bus. `cargo run --example conformance_server -- --listen 127.0.0.1:0`.

#![expect(
    clippy::print_stdout,
    reason = "whoever started the server is told where it listens"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Map, Value, json};
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

/// How long a tool works between two messages.
const STEP: Duration = Duration::from_millis(50);

type Arguments = Map<String, Value>;

#[tokio::main]
async fn main() -> Result<(), CallbackError> {
    let listen = std::env::args()
        .skip_while(|argument| argument != "--listen")
        .nth(1);
    let bus = Bus::builder().start()?;
    add_resources(&bus).await?;
    add_tools(&bus).await?;
    add_reporting_tools(&bus).await?;
    add_prompts(&bus).await?;
    etag_tools::install(&bus, etag_tools::EtagToolLimits::default()).await?;

    let app = axum::Router::new().route_service("/mcp", Endpoint::new(bus.clone(), McpOptions::default()));
    let listener = tokio::net::TcpListener::bind(listen.as_deref().unwrap_or("127.0.0.1:8811")).await?;
    println!("tidings listening on http://{}/mcp", listener.local_addr()?);
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        served = axum::serve(listener, app) => served?,
        _ = terminate.recv() => drop(bus.shutdown(Duration::from_secs(2)).await),
    }
    Ok(())
}

async fn add_resources(bus: &Bus) -> Result<(), CallbackError> {
    bus.register(Resource::text(
        "test://static-text",
        "This is the content of the static text resource.",
    )?)
    .await?;
    bus.register(Resource::blob("test://static-binary", PNG)?.media_type("image/png"))
        .await?;
    bus.register(Resource::text("test://watched-resource", "watched")?)
        .await?;
    let read = |_: ResourceUri, variables: Variables| async move {
        let id = variables.get("id").unwrap_or_default();
        Ok(Some(Body::text(
            json!({ "id": id, "data": format!("Data for ID: {id}") }).to_string(),
        )))
    };
    let template = ResourceTemplate::new("test://template/{id}/data", read)?.media_type("application/json");
    bus.add_template(template.name("template")).await?;
    Ok(())
}

async fn add_tools(bus: &Bus) -> Result<(), CallbackError> {
    let image = || Block::Image {
        data: Bytes::from_static(PNG),
        media_type: "image/png".into(),
    };
    let audio = || Block::Audio {
        data: Bytes::from_static(WAV),
        media_type: "audio/wav".into(),
    };
    let text = |text: &str| Block::Text(text.into());
    let answers = [
        (
            "test_simple_text",
            vec![text("This is a simple text response for testing.")],
        ),
        ("test_image_content", vec![image()]),
        ("test_audio_content", vec![audio()]),
        (
            "test_embedded_resource",
            vec![embedded("test://embedded-resource")?],
        ),
        (
            "test_multiple_content_types",
            vec![
                text("Multiple content types test:"),
                image(),
                embedded("test://mixed-content-resource")?,
            ],
        ),
    ];
    for (name, blocks) in answers {
        let answer = move |_: Arguments| {
            let blocks = blocks.clone();
            async move {
                Ok(ToolOutput {
                    blocks,
                    structured: None,
                })
            }
        };
        bus.add_tool(Tool::new(name, answer).description("Answers the same each time"))
            .await?;
    }
    let fail = |_: Arguments| async {
        Err::<ToolOutput, _>("This tool intentionally returns an error for testing".into())
    };
    bus.add_tool(Tool::new("test_error_handling", fail).description("Fails each time"))
        .await?;

    let weak = bus.downgrade();
    let change_tools = move |_: Arguments| {
        let weak = weak.clone();
        async move {
            let tool = Tool::new("test_changing_tool", |_: Arguments| async {
                Ok(ToolOutput::text(""))
            });
            weak.upgrade()?
                .add_tool(tool.description(format!("Change {}", count())))
                .await?;
            Ok(ToolOutput::text("the tools changed"))
        }
    };
    bus.add_tool(Tool::new("test_trigger_tool_change", change_tools).description("Changes the tools"))
        .await?;
    let weak = bus.downgrade();
    let change_prompts = move |_: Arguments| {
        let weak = weak.clone();
        async move {
            let prompt = Prompt::new("test_changing_prompt", |_: Arguments| async { Ok(Vec::new()) });
            weak.upgrade()?
                .add_prompt(prompt.description(format!("Change {}", count())))
                .await?;
            Ok(ToolOutput::text("the prompts changed"))
        }
    };
    bus.add_tool(Tool::new("test_trigger_prompt_change", change_prompts).description("Changes the prompts"))
        .await?;
    Ok(())
}

/// Tools that tell their caller how they fare while they run.
async fn add_reporting_tools(bus: &Bus) -> Result<(), CallbackError> {
    let log = |_: Arguments, context: CallContext| async move {
        for (index, text) in [
            "Tool execution started",
            "Tool processing data",
            "Tool execution completed",
        ]
        .into_iter()
        .enumerate()
        {
            if index > 0 {
                tokio::time::sleep(STEP).await;
            }
            context.log(LogLevel::Info, None, text.into()).await;
        }
        Ok(ToolOutput::text("the messages were sent"))
    };
    for name in ["test_tool_with_logging", "test_logging_tool"] {
        bus.add_tool(Tool::with_context(name, log).description("Logs three messages"))
            .await?;
    }

    let progress = |_: Arguments, context: CallContext| async move {
        for done in [0.0, 50.0, 100.0] {
            if done > 0.0 {
                tokio::time::sleep(STEP).await;
            }
            context.progress(done, Some(100.0), None).await;
        }
        Ok(ToolOutput::text("the work is done"))
    };
    let tool = Tool::with_context("test_tool_with_progress", progress);
    bus.add_tool(tool.description("Tells its progress three times"))
        .await?;
    Ok(())
}

async fn add_prompts(bus: &Bus) -> Result<(), CallbackError> {
    let simple =
        |_: Arguments| async { Ok(vec![PromptMessage::user("This is a simple prompt for testing.")]) };
    bus.add_prompt(Prompt::new("test_simple_prompt", simple).description("Takes nothing"))
        .await?;

    let with_arguments = |arguments: Arguments| async move {
        let (one, two) = (argument(&arguments, "arg1")?, argument(&arguments, "arg2")?);
        Ok(vec![PromptMessage::user(format!(
            "Prompt with arguments: arg1='{one}', arg2='{two}'"
        ))])
    };
    let prompt = Prompt::new("test_prompt_with_arguments", with_arguments).description("Takes two arguments");
    bus.add_prompt(
        prompt
            .argument("arg1", "First", true)
            .argument("arg2", "Second", true),
    )
    .await?;

    let with_resource = |arguments: Arguments| async move {
        let resource = PromptMessage {
            role: Role::User,
            block: embedded(&argument(&arguments, "resourceUri")?)?,
        };
        Ok(vec![
            resource,
            PromptMessage::user("Please process the embedded resource above."),
        ])
    };
    let prompt =
        Prompt::new("test_prompt_with_embedded_resource", with_resource).description("Holds a resource");
    bus.add_prompt(prompt.argument("resourceUri", "Which resource", true))
        .await?;

    let with_image = |_: Arguments| async {
        let block = Block::Image {
            data: Bytes::from_static(PNG),
            media_type: "image/png".into(),
        };
        let image = PromptMessage {
            role: Role::User,
            block,
        };
        Ok(vec![
            image,
            PromptMessage::user("Please analyze the image above."),
        ])
    };
    bus.add_prompt(Prompt::new("test_prompt_with_image", with_image).description("Holds a picture"))
        .await?;
    Ok(())
}

fn embedded(uri: &str) -> Result<Block, CallbackError> {
    let (media_type, body) = (
        Some("text/plain".into()),
        Body::text("This is an embedded resource content."),
    );
    Ok(Block::Resource {
        uri: uri.parse()?,
        media_type,
        body,
    })
}

fn argument(arguments: &Arguments, name: &str) -> Result<String, CallbackError> {
    let value = arguments.get(name).and_then(Value::as_str);
    Ok(value
        .ok_or_else(|| format!("the argument {name} is missing"))?
        .to_owned())
}

/// A number that was never answered before.
fn count() -> u32 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    COUNT.fetch_add(1, Ordering::Relaxed)
}
