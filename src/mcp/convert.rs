//! Conversions between the bus's types and rmcp's.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{
    CallToolResult, ContentBlock, GetPromptResult, MetaObject, Prompt as RmcpPrompt,
    PromptMessage as RmcpMessage, Resource as RmcpResource, ResourceContents,
    ResourceTemplate as RmcpTemplate, Role as RmcpRole, Tool as RmcpTool,
};
use serde_json::json;

use super::revision::ETAG_META_KEY;
use crate::{
    Block, Body, CallbackError, Descriptor, Etag, LogLevel, Prompt, PromptMessage, ResourceTemplate, Role,
    Snapshot, Tool, ToolOutput,
};

/// Returns a `_meta` with an etag.
pub(crate) fn etag_meta(etag: Etag) -> MetaObject {
    let mut meta = MetaObject::default();
    meta.0.insert(ETAG_META_KEY.to_owned(), json!(etag.to_string()));
    meta
}

pub(crate) fn resource(descriptor: &Descriptor, etag: Etag) -> RmcpResource {
    let mut item = RmcpResource::new(descriptor.uri.as_str(), descriptor.name.as_str());
    item.title.clone_from(&descriptor.title);
    item.description.clone_from(&descriptor.description);
    item.mime_type = descriptor.media_type.clone().map(Cow::into_owned);
    item.meta = Some(etag_meta(etag));
    item
}

pub(crate) fn template(template: &ResourceTemplate) -> RmcpTemplate {
    let mut item = RmcpTemplate::new(template.uri_template().as_str(), template.program_name());
    item.title = template.human_title().map(str::to_owned);
    item.description = template.human_description().map(str::to_owned);
    item.mime_type = template.body_media_type().map(str::to_owned);
    item
}

/// Returns tools as list items, without invalid ones.
pub(crate) fn tools(tools: &[Arc<Tool>]) -> Vec<RmcpTool> {
    let mut items = Vec::with_capacity(tools.len());
    for tool in tools {
        // A publisher may give its tool a shape that the protocol does not have. The other tools are listed
        // all the same.
        match serde_json::from_value(tool.item()) {
            Ok(item) => items.push(item),
            Err(error) => {
                tracing::warn!(tool = tool.name(), %error, "a tool that is no valid item is not listed");
            }
        }
    }
    items
}

/// Returns prompts as list items, without invalid ones.
pub(crate) fn prompts(prompts: &[Arc<Prompt>]) -> Vec<RmcpPrompt> {
    let mut items = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        match serde_json::from_value(prompt.item()) {
            Ok(item) => items.push(item),
            Err(error) => {
                tracing::warn!(prompt = prompt.name(), %error, "a prompt that is no valid item is not listed");
            }
        }
    }
    items
}

pub(crate) fn contents(snapshot: Snapshot) -> ResourceContents {
    let meta = Some(etag_meta(snapshot.etag));
    body(
        snapshot.descriptor.uri.as_str(),
        snapshot.descriptor.media_type.map(Cow::into_owned),
        &snapshot.body,
        meta,
    )
}

fn body(uri: &str, mime_type: Option<String>, body: &Body, meta: Option<MetaObject>) -> ResourceContents {
    let uri = uri.to_owned();
    match body {
        Body::Text(text) => ResourceContents::TextResourceContents {
            uri,
            mime_type,
            text: text.to_string(),
            meta,
        },
        Body::Blob(bytes) => ResourceContents::BlobResourceContents {
            uri,
            mime_type,
            blob: STANDARD.encode(bytes),
            meta,
        },
    }
}

/// Adds `more` to the `_meta` of a content.
pub(crate) fn add_meta(contents: &mut ResourceContents, more: &MetaObject) {
    if let ResourceContents::TextResourceContents { meta, .. }
    | ResourceContents::BlobResourceContents { meta, .. } = contents
    {
        meta.get_or_insert_default().0.extend(more.0.clone());
    }
}

fn block(block: Block) -> ContentBlock {
    match block {
        Block::Text(text) => ContentBlock::text(text),
        Block::Image { data, media_type } => ContentBlock::image(STANDARD.encode(data), media_type),
        Block::Audio { data, media_type } => ContentBlock::audio(STANDARD.encode(data), media_type),
        Block::Resource {
            uri,
            media_type,
            body: held,
        } => ContentBlock::resource(body(uri.as_str(), media_type, &held, None)),
        // A block of a later version of the bus: its text is better than no answer.
        other => ContentBlock::text(format!("{other:?}")),
    }
}

/// Returns the result of a tool call. A failure is a result too: the model sees it and can try otherwise,
/// which a protocol error would not allow.
pub(crate) fn tool_result(answer: Result<ToolOutput, CallbackError>) -> CallToolResult {
    match answer {
        Ok(output) => {
            let mut result = CallToolResult::success(output.blocks.into_iter().map(block).collect());
            result.structured_content = output.structured;
            result
        }
        Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]),
    }
}

pub(crate) fn prompt_result(prompt: &Prompt, messages: Vec<PromptMessage>) -> GetPromptResult {
    let mut converted = Vec::with_capacity(messages.len());
    for message in messages {
        let role = match message.role {
            Role::User => RmcpRole::User,
            Role::Assistant => RmcpRole::Assistant,
        };
        converted.push(RmcpMessage::new(role, block(message.block)));
    }
    let mut result = GetPromptResult::new(converted);
    result.description = prompt.human_description().map(str::to_owned);
    result
}

/// Returns a log level as rmcp's type.
#[expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]
pub(crate) fn logging_level(level: LogLevel) -> rmcp::model::LoggingLevel {
    use rmcp::model::LoggingLevel;
    match level {
        LogLevel::Debug => LoggingLevel::Debug,
        LogLevel::Info => LoggingLevel::Info,
        LogLevel::Notice => LoggingLevel::Notice,
        LogLevel::Warning => LoggingLevel::Warning,
        LogLevel::Error => LoggingLevel::Error,
        LogLevel::Critical => LoggingLevel::Critical,
        LogLevel::Alert => LoggingLevel::Alert,
        LogLevel::Emergency => LoggingLevel::Emergency,
    }
}

/// Returns the level that a client named.
#[expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]
pub(crate) fn log_level(level: rmcp::model::LoggingLevel) -> LogLevel {
    use rmcp::model::LoggingLevel;
    match level {
        LoggingLevel::Debug => LogLevel::Debug,
        LoggingLevel::Info => LogLevel::Info,
        LoggingLevel::Notice => LogLevel::Notice,
        LoggingLevel::Warning => LogLevel::Warning,
        LoggingLevel::Error => LogLevel::Error,
        LoggingLevel::Critical => LogLevel::Critical,
        LoggingLevel::Alert => LogLevel::Alert,
        LoggingLevel::Emergency => LogLevel::Emergency,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_level_keeps_its_name() {
        let names = [
            "debug",
            "info",
            "notice",
            "warning",
            "error",
            "critical",
            "alert",
            "emergency",
        ];
        for (index, level) in LogLevel::ALL.into_iter().enumerate() {
            let name = names[index];
            assert_eq!(json!(logging_level(level)), json!(name));
            assert_eq!(log_level(serde_json::from_value(json!(name)).unwrap()), level);
        }
    }
}
