//! Requests that the server may answer with a question.

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, GetPromptRequest, GetPromptRequestParams,
    InputResponses, ReadResourceRequest, ReadResourceRequestParams,
};

/// A request that the server may answer with a question.
#[derive(Clone)]
pub(super) enum Dialog {
    Tool(CallToolRequestParams),
    Prompt(GetPromptRequestParams),
    Resource(ReadResourceRequestParams),
}

impl Dialog {
    /// Returns the request for the server.
    pub(super) fn request(&self) -> ClientRequest {
        match self.clone() {
            Dialog::Tool(params) => ClientRequest::CallToolRequest(CallToolRequest::new(params)),
            Dialog::Prompt(params) => ClientRequest::GetPromptRequest(GetPromptRequest::new(params)),
            Dialog::Resource(params) => ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params)),
        }
    }

    /// The client's input, and the state that came with the question.
    pub(super) fn parts(&mut self) -> (&mut Option<InputResponses>, &mut Option<String>) {
        match self {
            Dialog::Tool(params) => (&mut params.input_responses, &mut params.request_state),
            Dialog::Prompt(params) => (&mut params.input_responses, &mut params.request_state),
            Dialog::Resource(params) => (&mut params.input_responses, &mut params.request_state),
        }
    }
}
