//! Tasks of a server as its clients see them: by ids that are their own, with the prefix before their URIs.

use rmcp::model::{CallToolResult, CustomRequest, DetailedTask, ErrorCode, TaskPayload};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use super::failure;
use super::speakers::principal_of;
use super::task_ids::ToolTask;
use super::upstream::Upstream;
use crate::mcp::{Revision, caller_beside};

/// The beginning of the methods that are about tasks.
const METHODS: &str = "tasks/";

/// The task that a request is about, which stands in its extensions.
#[derive(Clone)]
struct AskedTask {
    /// The id that the client has of it.
    shown: String,
    /// The id that the server has given it.
    own: String,
}

/// Returns the id of a new task for the client of a request.
pub(super) fn shown_id(
    upstream: &Upstream,
    context: &RequestContext<RoleServer>,
    task: ToolTask<'_>,
) -> String {
    upstream.tasks.seal(principal_of(context).as_deref(), task)
}

/// Returns the id of a task as the server has it, and notes that the request is about this task.
///
/// # Errors
/// The task is not one of this client's principal, or its tool is one that the client may not call any more.
pub(super) fn own_id(
    upstream: &Upstream,
    context: &mut RequestContext<RoleServer>,
    id: &str,
) -> Result<String, ErrorData> {
    let unknown = || failure::unknown("task", id);
    let task = upstream.tasks.open(principal_of(context).as_deref(), id);
    let task = task.ok_or_else(unknown)?;
    if let Some(caller) = caller_beside(&context.extensions)
        && !caller.may_still_call(task.tool)
    {
        return Err(unknown());
    }
    context.extensions.insert(AskedTask {
        shown: id.to_owned(),
        own: task.id.to_owned(),
    });
    Ok(task.id.to_owned())
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
    context: &mut RequestContext<RoleServer>,
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

/// Changes a task to what its client sees. Returns false for one that the request is not about: nothing says
/// by which tool it was made, so there is no id of it for the client.
pub(super) fn show(
    upstream: &Upstream,
    context: &RequestContext<RoleServer>,
    task: &mut DetailedTask,
) -> bool {
    match context.extensions.get::<AskedTask>() {
        // The ids of one client must be of no use to another, who could guess those of the server.
        Some(asked) if asked.own == task.task.task_id => task.task.task_id.clone_from(&asked.shown),
        _ => return false,
    }
    if let TaskPayload::Completed { result } = &mut task.payload
        && !upstream.prefix().is_none()
        && let Ok(mut call) = serde_json::from_value::<CallToolResult>(Value::Object(result.clone()))
    {
        upstream.prefix().call(&mut call);
        if let Ok(Value::Object(shown)) = serde_json::to_value(call) {
            *result = shown;
        }
    }
    true
}
