//! Rounds of input for a client with a session, before a server without sessions.
//!
//! Such a server answers a request with questions, and is asked again with the client's input. A client of
//! an older revision is asked each question as a request of its own.

use rmcp::model::{InputRequest, InputRequiredResult, InputResponses, ServerRequest};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::json;

use super::relay;

/// Rounds of one request. A server that asks more is taken to go round in circles.
pub(super) const ROUNDS_MAX: usize = 10;

/// Asks the client every question of a result, and returns its input.
///
/// # Errors
/// The client refused a question, or cannot be asked it.
pub(super) async fn ask(
    required: &InputRequiredResult,
    context: &RequestContext<RoleServer>,
) -> Result<InputResponses, ErrorData> {
    let mut responses = InputResponses::new();
    // One after the other: a person who is asked several things at once answers the wrong one.
    for (name, question) in required.input_requests.iter().flatten() {
        let Some(question) = request(question) else {
            let text = format!(
                "the server asked for input {name:?} of a kind that this revision has no request for"
            );
            return Err(ErrorData::internal_error(text, None));
        };
        let answer = relay::ask(&context.peer, question).await?;
        responses.insert(name.clone(), json!(answer));
    }
    Ok(responses)
}

fn request(question: &InputRequest) -> Option<ServerRequest> {
    match question.clone() {
        InputRequest::CreateMessage(request) => Some(ServerRequest::CreateMessageRequest(request)),
        InputRequest::Elicitation(request) => Some(ServerRequest::ElicitRequest(request)),
        InputRequest::ListRoots(request) => Some(ServerRequest::ListRootsRequest(request)),
        _ => None,
    }
}
