//! Tools and a prompt of 2026-07-28 that need input: they answer with a request for it, and the client calls
//! them again with the input. The server's state between the calls travels to the client and back, sealed.

#![expect(
    deprecated,
    reason = "rmcp marks sampling and roots for a later revision; this one has them"
)]

use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};

pub(crate) const PROMPT: &str = "test_input_required_result_prompt";

pub(crate) const NAMES: [&str; 10] = [
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

pub(crate) type Needs = Vec<(&'static str, InputRequest)>;

pub(crate) fn call(
    codec: &RequestStateCodec,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let can = context.client_capabilities().unwrap_or_default();
    let responses = request.input_responses.as_ref();
    match &*request.name {
        "test_missing_capability" => {
            demand(
                can.sampling.is_some(),
                ClientCapabilities::builder().enable_sampling().build(),
            )?;
            Ok(done("the client can sample"))
        }
        "test_streaming_elicitation" => {
            demand(
                can.elicitation.is_some(),
                ClientCapabilities::builder().enable_elicitation().build(),
            )?;
            Ok(ask_for(vec![("user_name", user_name())], responses))
        }
        "test_input_required_result_elicitation" => Ok(ask_for(vec![("user_name", user_name())], responses)),
        "test_input_required_result_sampling" => {
            let need = sampling("What is the capital of France?", 100);
            Ok(ask_for(vec![("capital_question", need)], responses))
        }
        "test_input_required_result_list_roots" => Ok(ask_for(vec![("client_roots", roots())], responses)),
        "test_input_required_result_capabilities" => {
            let mut needs = Needs::new();
            if can.elicitation.is_some() {
                needs.push(("user_name", user_name()));
            }
            if can.sampling.is_some() {
                needs.push(("greeting", sampling("Generate a greeting", 50)));
            }
            Ok(ask_for(needs, responses))
        }
        "test_input_required_result_multiple_inputs" => {
            let needs = vec![
                ("user_name", user_name()),
                ("greeting", sampling("Generate a greeting", 50)),
                ("client_roots", roots()),
            ];
            in_rounds(codec, request, vec![needs])
        }
        "test_input_required_result_multi_round" => {
            let name = elicitation("Step 1: What is your name?", "name", "string");
            let color = elicitation("Step 2: What is your favorite color?", "color", "string");
            in_rounds(
                codec,
                request,
                vec![vec![("step1", name)], vec![("step2", color)]],
            )
        }
        _ => {
            let confirm = elicitation("Please confirm", "ok", "boolean");
            in_rounds(codec, request, vec![vec![("confirm", confirm)]])
        }
    }
}

pub(crate) fn prompt(request: &GetPromptRequestParams) -> GetPromptResponse {
    let need = elicitation("What context should the prompt use?", "context", "string");
    match missing(vec![("user_context", need)], request.input_responses.as_ref()) {
        Some(needs) => InputRequiredResult::new(Some(needs), None).into(),
        None => {
            let message =
                PromptMessage::new_text(Role::User, "A prompt with the context that was asked for.");
            GetPromptResult::new(vec![message]).into()
        }
    }
}

/// Asks for the missing answers; with none missing, the tool is done.
pub(crate) fn ask_for(needs: Needs, responses: Option<&InputResponses>) -> CallToolResponse {
    let answers = json!(responses).to_string();
    match missing(needs, responses) {
        Some(needs) => InputRequiredResult::new(Some(needs), None).into(),
        None => done(&format!("Hello, {answers}!")),
    }
}

/// Asks round after round. The state that comes back with an answer names the round that it belongs to.
fn in_rounds(
    codec: &RequestStateCodec,
    request: &CallToolRequestParams,
    mut rounds: Vec<Needs>,
) -> Result<CallToolResponse, ErrorData> {
    let context = request.name.as_bytes();
    let mut round = 0;
    if let Some(state) = &request.request_state {
        let opened = codec.open_with(state, context);
        let opened = opened.map_err(|failure| ErrorData::invalid_params(failure.to_string(), None))?;
        round = usize::from(opened.first().copied().unwrap_or_default());
        let answered = rounds.get_mut(round).map(std::mem::take).unwrap_or_default();
        if let Some(needs) = missing(answered, request.input_responses.as_ref()) {
            return Ok(InputRequiredResult::new(Some(needs), Some(state.clone())).into());
        }
        round += 1;
    }
    let Some(needs) = rounds.get_mut(round).map(std::mem::take) else {
        return Ok(done("state-ok"));
    };
    let options = SealOptions::new().associated_data(context);
    let state = codec.seal_with(&[round as u8], &options);
    Ok(InputRequiredResult::new(missing(needs, None), Some(state)).into())
}

/// Returns the needs that have not been answered with an object; none when all of them have.
fn missing(needs: Needs, responses: Option<&InputResponses>) -> Option<InputRequests> {
    let mut open = InputRequests::default();
    for (name, need) in needs {
        if !is_answered(name, responses) {
            open.insert(name.to_owned(), need);
        }
    }
    (!open.is_empty()).then_some(open)
}

pub(crate) fn is_answered(name: &str, responses: Option<&InputResponses>) -> bool {
    match responses {
        Some(responses) => matches!(responses.get(name), Some(Value::Object(_))),
        None => false,
    }
}

pub(crate) fn demand(has: bool, required: ClientCapabilities) -> Result<(), ErrorData> {
    match has {
        true => Ok(()),
        false => Err(ErrorData::missing_required_client_capability(required)),
    }
}

pub(crate) fn user_name() -> InputRequest {
    elicitation("What is your name?", "name", "string")
}

fn done(text: &str) -> CallToolResponse {
    CallToolResult::success(vec![ContentBlock::text(text)]).into()
}

pub(crate) fn elicitation(message: &str, property: &str, kind: &str) -> InputRequest {
    let schema = json!({
        "type": "object",
        "properties": { property: { "type": kind } },
        "required": [property],
    });
    InputRequest::Elicitation(ElicitRequest::new(ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message.into(),
        requested_schema: serde_json::from_value(schema).expect("an object of one property is valid"),
    }))
}

fn sampling(prompt: &str, tokens: u32) -> InputRequest {
    let messages = vec![SamplingMessage::user_text(prompt)];
    InputRequest::CreateMessage(CreateMessageRequest::new(CreateMessageRequestParams::new(
        messages, tokens,
    )))
}

fn roots() -> InputRequest {
    InputRequest::ListRoots(ListRootsRequest::default())
}
