//! The client's side of a call: its progress, its log messages, and the questions of the server.

#![expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rmcp::model::{
    ClientResult, ErrorCode, LoggingLevel, ProgressNotificationParam, ServerNotification, ServerRequest,
    ServerResult,
};
use rmcp::service::{RequestContext, ServiceError};
use rmcp::{ErrorData, Peer, RoleServer};

use super::call::{Call, CallStep};
use super::hearing::{Heard, ServerQuestion};
use super::upstream::Upstream;
use super::{capabilities, failure, tasks};
use crate::mcp::log_level;

type Context = RequestContext<RoleServer>;

/// The end of a relayed call.
pub(super) enum Relayed {
    /// The server answered, or failed to.
    Answered(Result<ServerResult, ErrorData>),
    /// The server asks a client that has no session, which must be answered with the question.
    Asked(Call, ServerQuestion),
}

/// Passes on everything that belongs to a call until its end: log messages from the level on that the client
/// has set, and questions that are meant for it.
pub(super) async fn relay(
    mut call: Call,
    context: &Context,
    level: Option<LoggingLevel>,
    upstream: &Upstream,
) -> Relayed {
    let metrics = upstream.metrics();
    let is_stateless = capabilities::is_stateless(context);
    let mut dialogues = FuturesUnordered::new();
    loop {
        let step = tokio::select! {
            biased;
            () = context.ct.cancelled() => {
                metrics.failed.increment(1);
                return Relayed::Answered(Err(ErrorData::internal_error("the request was cancelled", None)));
            }
            Some(()) = dialogues.next(), if !dialogues.is_empty() => continue,
            step = call.next() => step,
        };
        match step {
            CallStep::Heard(Heard::Progress(progress)) => tell_progress(context, progress).await,
            CallStep::Heard(Heard::Notice(mut notice)) => {
                if let ServerNotification::TaskStatusNotification(status) = &mut notice
                    && !tasks::show(upstream, context, &mut status.params.task)
                {
                    continue;
                }
                // Without a session a client gets none that it has not asked for.
                if is_wanted(level, !is_stateless, &notice) {
                    tell(context, notice).await;
                }
            }
            CallStep::Heard(Heard::Asked(asked)) if !asked.is_for_client => {
                metrics.refused_requests.increment(1);
                refuse(asked);
            }
            CallStep::Heard(Heard::Asked(asked)) if is_stateless => return Relayed::Asked(call, asked),
            // Beside the call: the client may take minutes, and progress goes on meanwhile.
            CallStep::Heard(Heard::Asked(asked)) => dialogues.push(converse(context, asked)),
            CallStep::Ended(result) => {
                match &result {
                    Ok(_) => metrics.answered.increment(1),
                    Err(ServiceError::McpError(error)) if !failure::is_of_gateway(error) => {
                        metrics.refused.increment(1);
                    }
                    Err(_) => metrics.failed.increment(1),
                }
                return Relayed::Answered(result.map_err(failure::answer_of));
            }
        }
    }
}

/// Asks the client.
///
/// # Errors
/// Its refusal, or the reason that it gave no answer.
pub(super) async fn ask(
    client: &Peer<RoleServer>,
    question: ServerRequest,
) -> Result<ClientResult, ErrorData> {
    let answer = client.send_request(question).await;
    answer.map_err(|error| match error {
        ServiceError::McpError(refusal) => refusal,
        error => ErrorData::internal_error(format!("the client gave no answer: {error}"), None),
    })
}

/// Asks the client, and hands its answer to the server.
async fn converse(context: &Context, asked: ServerQuestion) {
    let answer = ask(&context.peer, asked.request).await;
    if asked.reply.send(answer).is_err() {
        tracing::debug!("the server no longer waits for the answer of a client");
    }
}

/// Refuses a question that came over a connection of all clients, of which none is known to be meant.
fn refuse(asked: ServerQuestion) {
    let text = "the gateway shares this connection among its clients and cannot tell which one is asked";
    let refusal = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None);
    if asked.reply.send(Err(refusal)).is_err() {
        tracing::debug!("the server no longer waits for the answer of a client");
    }
}

/// Tells progress under the token of the client, if it asked for any.
async fn tell_progress(context: &Context, mut progress: ProgressNotificationParam) {
    // The gateway asks for progress in any case, since it restarts the time limit.
    if let Some(token) = context.meta.get_progress_token() {
        progress.progress_token = token;
        if let Err(error) = context.peer.notify_progress(progress).await {
            tracing::debug!(%error, "the progress of a call could not be told");
        }
    }
}

async fn tell(context: &Context, notice: ServerNotification) {
    if let Err(error) = context.peer.send_notification(notice).await {
        tracing::debug!(%error, "a message of the server could not be told");
    }
}

/// Returns true unless a notice is a log message below the level of the client, or of a client without one
/// that gets none by default.
pub(super) fn is_wanted(level: Option<LoggingLevel>, default: bool, notice: &ServerNotification) -> bool {
    let ServerNotification::LoggingMessageNotification(message) = notice else {
        return true;
    };
    match level {
        Some(least) => log_level(message.params.level) >= log_level(least),
        None => default,
    }
}
