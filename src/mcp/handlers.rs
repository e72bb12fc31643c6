//! The handlers of embedders under guard: their arguments are checked, their time is limited, and their
//! panics are answers.
//!
//! rmcp awaits a handler in the task of its request. A handler that panics there or never ends would leave
//! the client without an answer for as long as it waits.

use std::time::Duration;

use rmcp::ErrorData;
use serde_json::{Map, Value};

use super::McpOptions;
use crate::Tool;
use crate::callback::{Panicked, catch_panic};
use crate::metrics::{self, Limit};
use crate::tool_schema::ToolSchema;
use crate::units::time;

/// Returns the arguments if they fit the schema of the tool.
///
/// # Errors
/// The violations, for the model, which may correct its call; or that the schema is none, for its author.
pub(super) fn checked_arguments(
    tool: &Tool,
    arguments: Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let name = tool.name();
    let schema = tool.arguments_schema();
    let own;
    let compiled = match schema.compiled(compile) {
        Some(compiled) => compiled,
        // The tool is also at another endpoint, which keeps its own compiled form.
        None => {
            own = compile(schema.value());
            &own
        }
    };
    let schema = match compiled {
        Ok(schema) => schema,
        Err(reason) => {
            return Err(format!(
                "the input schema of {name} cannot be used: {reason}; correct the server"
            ));
        }
    };
    let arguments = Value::Object(arguments);
    if let Some(violations) = schema.violations(&arguments) {
        return Err(format!("invalid arguments for {name}:\n{violations}"));
    }
    match arguments {
        Value::Object(arguments) => Ok(arguments),
        _ => Ok(Map::new()),
    }
}

fn compile(schema: &Value) -> Result<ToolSchema, String> {
    ToolSchema::compile(schema.clone())
}

/// The reason that a handler gave no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unanswered {
    /// It took longer than it may.
    #[error("it took longer than {} and was stopped (mcp.handler_timeout)", time::text(*.0))]
    TimedOut(Duration),
    /// It panicked.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

impl From<Unanswered> for ErrorData {
    fn from(reason: Unanswered) -> ErrorData {
        ErrorData::internal_error(format!("the handler failed: {reason}"), None)
    }
}

/// Runs a handler for as long as it may run.
///
/// # Errors
/// The reason that it gave no result. Its future is dropped then.
pub(super) async fn guarded<F: Future>(
    timeout: Option<Duration>,
    start: impl FnOnce() -> F,
) -> Result<F::Output, Unanswered> {
    let running = catch_panic(start);
    let Some(timeout) = timeout else {
        return Ok(running.await?);
    };
    match tokio::time::timeout(timeout, running).await {
        Ok(ended) => Ok(ended?),
        Err(_elapsed) => {
            metrics::limit_reached(Limit::HandlerTime);
            Err(Unanswered::TimedOut(timeout))
        }
    }
}

impl McpOptions {
    /// Runs a handler whose result is that of a request.
    ///
    /// # Errors
    /// The error of the handler, or the reason that it gave no result.
    pub(super) async fn answered<T, F: Future<Output = Result<T, ErrorData>>>(
        &self,
        start: impl FnOnce() -> F,
    ) -> Result<T, ErrorData> {
        guarded(self.mcp.handler_timeout, start).await?
    }
}
