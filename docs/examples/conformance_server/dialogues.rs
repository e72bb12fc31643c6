//! Tools that send messages to their client while they run: log entries, progress, sampling and elicitation.

#![expect(
    deprecated,
    reason = "rmcp marks logging and sampling for a later revision; the older ones have them"
)]

use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{RequestContext, ServiceError};
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

use crate::server::Everything;

/// The time that a tool works between two messages.
const STEP: Duration = Duration::from_millis(50);

pub(crate) const NAMES: [&str; 7] = [
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_sampling",
    "test_elicitation",
    "test_elicitation_sep1034_defaults",
    "test_elicitation_sep1330_enums",
];

type Context = RequestContext<RoleServer>;

pub(crate) async fn call(
    server: &Everything,
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let outcome = match &*request.name {
        "test_tool_with_progress" => progress(context).await,
        "test_sampling" => sample(context, argument(request, "prompt")).await,
        "test_elicitation" => elicit(context, argument(request, "message"), account()).await,
        "test_elicitation_sep1034_defaults" => elicit(context, "Please fill in".into(), defaults()).await,
        "test_elicitation_sep1330_enums" => elicit(context, "Please choose".into(), enums()).await,
        _ => log(server, context).await,
    };
    // A client without the capability gets an answer that its model sees, rather than a protocol error.
    Ok(match outcome {
        Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]).into(),
        Err(failure) => CallToolResult::error(vec![ContentBlock::text(failure.to_string())]).into(),
    })
}

/// Returns an argument of the call; empty when it is missing.
pub(crate) fn argument(request: &CallToolRequestParams, name: &str) -> String {
    match &request.arguments {
        Some(arguments) => arguments[name].as_str().unwrap_or_default().to_owned(),
        None => String::new(),
    }
}

async fn log(server: &Everything, context: &Context) -> Result<String, ServiceError> {
    let texts = [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ];
    for (index, text) in texts.into_iter().enumerate() {
        if index > 0 {
            tokio::time::sleep(STEP).await;
        }
        if server.wants(LoggingLevel::Info, context) {
            let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(text));
            context.peer.notify_logging_message(message).await?;
        }
    }
    Ok("the messages were sent".into())
}

async fn progress(context: &Context) -> Result<String, ServiceError> {
    let token = context.meta.get_progress_token();
    for done in [0.0, 50.0, 100.0] {
        if done > 0.0 {
            tokio::time::sleep(STEP).await;
        }
        if let Some(token) = token.clone() {
            let params = ProgressNotificationParam::new(token, done).with_total(100.0);
            context.peer.notify_progress(params).await?;
        }
    }
    Ok("the work is done".into())
}

async fn sample(context: &Context, prompt: String) -> Result<String, ServiceError> {
    let request = CreateMessageRequestParams::new(vec![SamplingMessage::user_text(prompt)], 100);
    let answer = context.peer.create_message(request).await?;
    let blocks = answer.message.content.into_vec();
    let text = match blocks.iter().find_map(|block| block.as_text()) {
        Some(block) => block.text.as_str(),
        None => "",
    };
    Ok(format!("LLM response: {text}"))
}

async fn elicit(context: &Context, message: String, schema: Value) -> Result<String, ServiceError> {
    let requested_schema = serde_json::from_value(schema).expect("the schemas below are valid");
    let request = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message,
        requested_schema,
    };
    let answer = context.peer.create_elicitation(request).await?;
    let content = answer.content.unwrap_or_default();
    let action = json!(answer.action);
    Ok(format!("User response: action={action}, content={content}"))
}

fn account() -> Value {
    json!({
        "type": "object",
        "properties": {
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" },
        },
        "required": ["username", "email"],
    })
}

fn defaults() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
        },
    })
}

/// Returns options with titles, for values that are numbered from 1.
fn titled(titles: [&str; 3]) -> Vec<Value> {
    let options = titles.iter().enumerate();
    options
        .map(|(index, title)| json!({ "const": format!("value{}", index + 1), "title": title }))
        .collect()
}

fn enums() -> Value {
    let plain = ["option1", "option2", "option3"];
    let [single, multi] = [
        titled(["First Option", "Second Option", "Third Option"]),
        titled(["First Choice", "Second Choice", "Third Choice"]),
    ];
    json!({
        "type": "object",
        "properties": {
            "untitledSingle": { "type": "string", "enum": plain },
            "titledSingle": { "type": "string", "oneOf": single },
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
            "titledMulti": { "type": "array", "items": { "anyOf": multi } },
        },
    })
}
