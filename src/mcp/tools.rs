//! Calls of the bus's tools and renderings of its prompts.

use rmcp::ErrorData;
use rmcp::model::{CallToolRequestParams, CallToolResult, GetPromptRequestParams, GetPromptResult};
use serde_json::{Map, Value};

use super::handlers::{checked_arguments, guarded};
use super::session::McpContext;
use super::tool_report::Reporter;
use super::{convert, error};
use crate::auth::{Caller, Object, Right};
use crate::{CallContext, CallbackError, Tool, ToolOutput};

/// Calls the tool that `request` names and returns its answer, once the messages that the tool sent while it
/// ran are on their way. A cancelled call drops the future of its handler.
pub(crate) async fn call_tool(
    server: &McpContext,
    request: CallToolRequestParams,
    reporter: &Reporter,
    caller: &Caller,
) -> Result<CallToolResult, ErrorData> {
    let tool = server.bus.tool(&request.name).await.map_err(error::stopping)?;
    let may_call = caller.may(Right::Call, Object::Tool(&request.name)).is_ok();
    let Some(tool) = tool.filter(|_| may_call) else {
        server.metrics.called_unknown_tool();
        return Err(error::invalid_params(format!("Unknown tool: {}", request.name)));
    };
    let call = server.metrics.call_begins();
    let arguments = request.arguments.unwrap_or_default();
    let context = reporter.call_context().with_viewer(caller.viewer());
    let answer = tokio::select! {
        answer = run(server, &tool, arguments, context) => Some(answer),
        () = reporter.cancelled() => None,
    };
    // The tool may have handed its context to a task of its own; no message may follow the answer.
    reporter.end().await;
    let Some(answer) = answer else {
        // Counted as cancelled, since the call has not ended. No transport delivers this text but a stream
        // that has begun.
        return Err(ErrorData::internal_error("the client cancelled the call", None));
    };
    call.ended(answer.is_ok());
    Ok(convert::tool_result(answer))
}

/// Runs the tool with arguments that fit its schema, for as long as it may run.
async fn run(
    server: &McpContext,
    tool: &Tool,
    arguments: Map<String, Value>,
    context: CallContext,
) -> Result<ToolOutput, CallbackError> {
    let arguments = checked_arguments(tool, arguments)?;
    let timeout = tool.call_timeout().or(server.options.mcp.handler_timeout);
    match guarded(timeout, || tool.call(arguments, context)).await {
        Ok(answer) => answer,
        Err(reason) => Err(format!("{} failed: {reason}", tool.name()).into()),
    }
}

/// Renders the prompt that `request` names.
pub(crate) async fn get_prompt(
    server: &McpContext,
    request: GetPromptRequestParams,
    caller: &Caller,
) -> Result<GetPromptResult, ErrorData> {
    let prompt = server.bus.prompt(&request.name).await.map_err(error::stopping)?;
    let may_get = caller.may_get_prompt(&request.name);
    let Some(prompt) = prompt.filter(|_| may_get) else {
        return Err(error::invalid_params(format!("Unknown prompt: {}", request.name)));
    };
    let arguments = request.arguments.unwrap_or_default();
    if let Some(missing) = prompt.missing_argument(&arguments) {
        return Err(error::invalid_params(format!(
            "prompt {} needs the argument {missing}",
            request.name
        )));
    }
    let rendered = guarded(server.options.mcp.handler_timeout, || prompt.render(arguments)).await?;
    let messages = rendered.map_err(|failure| ErrorData::internal_error(failure.to_string(), None))?;
    Ok(convert::prompt_result(&prompt, messages))
}
