//! Requests that the server may answer with a question.

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, GetPromptRequest, GetPromptRequestParams,
    InputResponses, ReadResourceRequest, ReadResourceRequestParams,
};

/// A request that the server may answer with a question.
#[derive(Clone)]
pub(super) enum Exchange {
    Tool(CallToolRequestParams),
    Prompt(GetPromptRequestParams),
    Resource(ReadResourceRequestParams),
}

impl Exchange {
    /// Returns the request for the server.
    pub(super) fn request(&self) -> ClientRequest {
        match self.clone() {
            Exchange::Tool(params) => ClientRequest::CallToolRequest(CallToolRequest::new(params)),
            Exchange::Prompt(params) => ClientRequest::GetPromptRequest(GetPromptRequest::new(params)),
            Exchange::Resource(params) => {
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
            }
        }
    }

    /// The client's input, and the state that came with the question.
    pub(super) fn parts(&mut self) -> (&mut Option<InputResponses>, &mut Option<String>) {
        match self {
            Exchange::Tool(params) => (&mut params.input_responses, &mut params.request_state),
            Exchange::Prompt(params) => (&mut params.input_responses, &mut params.request_state),
            Exchange::Resource(params) => (&mut params.input_responses, &mut params.request_state),
        }
    }
}
