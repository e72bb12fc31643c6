//! The tools that make tasks (`io.modelcontextprotocol/tasks`): the client gets a handle at once, asks for
//! the state, answers questions of the task in the meantime, and may cancel it.

use std::time::Duration;

use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::task_manager::{TaskContext, TaskExit, TaskFuture, TaskManager, TaskOptions};
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

use crate::dialogues::argument;
use crate::input_rounds::{ask_for, demand, elicitation, is_answered, user_name};

/// The time that a tool works before it fails.
const WORK: Duration = Duration::from_secs(1);

/// The longest time for which a client may let a tool compute.
const SECONDS_MAX: u64 = 300;

/// The interval at which clients are asked to look at a task.
const POLL_MILLIS: u64 = 200;

pub(crate) const NAMES: [&str; 7] = [
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
];

pub(crate) async fn call(
    tasks: &TaskManager,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    match &*request.name {
        "greet" => return Ok(done(format!("Hello, {}!", argument(request, "name"))).into()),
        "slow_compute" => return slow_compute(tasks, request, context).await,
        _ => {}
    }
    // The others have no answer but a task.
    demand(
        can_have_tasks(context),
        ClientCapabilities::builder().enable_tasks().build(),
    )?;
    let task = match &*request.name {
        "failing_job" => spawn(tasks, |_| {
            Box::pin(async {
                tokio::time::sleep(WORK).await;
                Ok(CallToolResult::error(vec![ContentBlock::text("the job failed")]))
            })
        }),
        "protocol_error_job" => spawn(tasks, |_| {
            Box::pin(async { Err(ErrorData::internal_error("the job cannot be done", None).into()) })
        }),
        "confirm_delete" => {
            let name = argument(request, "filename");
            spawn(tasks, |task| Box::pin(confirm_delete(task, name)))
        }
        "multi_input" => spawn(tasks, |task| Box::pin(ask_two(task))),
        _ => return Ok(after_input(tasks, request)),
    };
    Ok(task)
}

fn can_have_tasks(context: &RequestContext<RoleServer>) -> bool {
    match context.client_capabilities() {
        Some(capabilities) => capabilities.supports_tasks(),
        None => false,
    }
}

fn spawn(tasks: &TaskManager, work: impl FnOnce(TaskContext) -> TaskFuture) -> CallToolResponse {
    let options = TaskOptions::new().with_poll_interval_ms(POLL_MILLIS);
    CreateTaskResult::new(tasks.spawn(options, work)).into()
}

/// Computes for the seconds that the client names, as a task if it may be one.
async fn slow_compute(
    tasks: &TaskManager,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let seconds = match &request.arguments {
        Some(arguments) => arguments.get("seconds").and_then(Value::as_u64).unwrap_or(0),
        None => 0,
    };
    if seconds > SECONDS_MAX {
        let problem = format!("\"seconds\" is {seconds}; name at most {SECONDS_MAX}");
        return Err(ErrorData::invalid_params(problem, None));
    }
    let time = Duration::from_secs(seconds);
    let result = done(format!("computed for {seconds} s"));
    if !can_have_tasks(context) {
        tokio::time::sleep(time).await;
        return Ok(result.into());
    }
    Ok(spawn(tasks, |task| {
        Box::pin(async move {
            tokio::select! {
                () = tokio::time::sleep(time) => Ok(result),
                () = task.cancelled() => Err(TaskExit::Cancelled),
            }
        })
    }))
}

async fn confirm_delete(task: TaskContext, name: String) -> Result<CallToolResult, TaskExit> {
    let question = elicitation(&format!("Delete {name}?"), "confirm", "boolean");
    let answer = task.request_input("confirm", question).await?;
    Ok(done(match answer["content"]["confirm"] == true {
        true => format!("deleted {name}"),
        false => format!("kept {name}"),
    }))
}

async fn ask_two(task: TaskContext) -> Result<CallToolResult, TaskExit> {
    let first = task.request_input("first", user_name());
    let second = task.request_input("second", user_name());
    let (first, second) = tokio::try_join!(first, second)?;
    Ok(done(format!("{} and {}", first["content"], second["content"])))
}

/// Asks for a name in the call itself, and greets it in a task.
fn after_input(tasks: &TaskManager, request: &CallToolRequestParams) -> CallToolResponse {
    let responses = request.input_responses.as_ref();
    let answer = match responses {
        Some(responses) if is_answered("user_name", Some(responses)) => responses["user_name"].clone(),
        _ => return ask_for(vec![("user_name", user_name())], responses),
    };
    spawn(tasks, move |_| {
        Box::pin(async move { Ok(done(format!("Hello, {}!", answer["content"]["name"]))) })
    })
}

fn done(text: String) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text)])
}
