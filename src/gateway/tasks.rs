//! Tasks of a server as its clients see them: by ids that are their own, with the prefix before their URIs.

use rmcp::model::{CallToolResult, DetailedTask, TaskPayload};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use super::failure;
use super::speakers::principal_of;
use super::upstream::Upstream;

/// Returns the id of a task for the client of a request.
pub(super) fn shown_id(upstream: &Upstream, context: &RequestContext<RoleServer>, id: &str) -> String {
    upstream.tasks.seal(principal_of(context).as_deref(), id)
}

/// Returns the id of a task as the server has it.
///
/// # Errors
/// The task is not one of this client's principal.
pub(super) fn own_id(
    upstream: &Upstream,
    context: &RequestContext<RoleServer>,
    id: &str,
) -> Result<String, ErrorData> {
    match upstream.tasks.open(principal_of(context).as_deref(), id) {
        Some(own) => Ok(own.to_owned()),
        None => Err(failure::unknown("task", id)),
    }
}

/// Changes a task to what its client sees.
pub(super) fn show(upstream: &Upstream, context: &RequestContext<RoleServer>, task: &mut DetailedTask) {
    // The ids of one client must be of no use to another, who could guess those of the server.
    task.task.task_id = shown_id(upstream, context, &task.task.task_id);
    if let TaskPayload::Completed { result } = &mut task.payload
        && !upstream.prefix().is_none()
        && let Ok(mut call) = serde_json::from_value::<CallToolResult>(Value::Object(result.clone()))
    {
        upstream.prefix().call(&mut call);
        if let Ok(Value::Object(shown)) = serde_json::to_value(call) {
            *result = shown;
        }
    }
}
