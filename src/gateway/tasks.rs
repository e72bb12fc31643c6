//! Tasks of a server as its clients see them: by ids that are their own, with the prefix before their URIs.

use rmcp::model::{CallToolResult, CustomRequest, DetailedTask, ErrorCode, TaskPayload};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use super::failure;
use super::speakers::principal_of;
use super::upstream::Upstream;
use crate::mcp::Revision;

/// The beginning of the methods that are about tasks.
const METHODS: &str = "tasks/";

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

/// Returns the id of the task that a request names for which rmcp has no type, such as `tasks/result` of
/// 2025-11-25.
pub(super) fn named_in<'r>(
    request: &'r CustomRequest,
    context: &RequestContext<RoleServer>,
) -> Option<&'r str> {
    // rmcp reads all that 2026-07-28 has.
    let stateless = Revision::negotiated(context.protocol_version().as_ref()).is_stateless();
    match request.method.starts_with(METHODS) && !stateless {
        true => request.params.as_ref()?.get("taskId")?.as_str(),
        false => None,
    }
}

/// Changes such a request to what the server is to get.
///
/// # Errors
/// The task is not one of this client's principal; or the request names none, such as `tasks/list`, whose
/// answer would tell the tasks of others.
pub(super) fn own_request(
    upstream: &Upstream,
    context: &RequestContext<RoleServer>,
    request: &mut CustomRequest,
) -> Result<(), ErrorData> {
    if !request.method.starts_with(METHODS) {
        return Ok(());
    }
    let Some(id) = named_in(request, context) else {
        return Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            request.method.clone(),
            None,
        ));
    };
    let own = own_id(upstream, context, id)?;
    if let Some(params) = &mut request.params {
        params["taskId"] = own.into();
    }
    Ok(())
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
