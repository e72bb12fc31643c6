//! The server as rmcp sees it: which request is answered where.

#![expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::*;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tidings::mcp::Wrap;

use crate::{input_rounds, prompts, resources, tools};

/// The state that all clients share.
pub(crate) struct Shared {
    /// Told when the server's own lists change.
    pub(crate) wrap: Wrap,
    /// Seals the state that clients hand back.
    pub(crate) codec: RequestStateCodec,
    /// The number of changes of the tools.
    pub(crate) tools: AtomicU32,
    /// The number of changes of the prompts.
    pub(crate) prompts: AtomicU32,
}

impl Shared {
    pub(crate) fn new(wrap: Wrap) -> Result<Shared, RequestStateError> {
        Ok(Shared {
            wrap,
            codec: RequestStateCodec::try_new(b"a key that is good enough for tests")?,
            tools: AtomicU32::new(0),
            prompts: AtomicU32::new(0),
        })
    }

    /// Changes a list, and makes the wrapper read it again.
    pub(crate) async fn change(&self, list: &AtomicU32) -> Result<(), ErrorData> {
        list.fetch_add(1, Ordering::Relaxed);
        let refreshed = self.wrap.refresh_lists().await;
        refreshed.map_err(|failure| ErrorData::internal_error(failure.to_string(), None))
    }
}

/// The server of one client.
pub(crate) struct Everything {
    pub(crate) shared: Arc<Shared>,
    /// The least severe messages that a session wants.
    level: Mutex<LoggingLevel>,
}

impl Everything {
    pub(crate) fn new(shared: Arc<Shared>) -> Everything {
        Everything {
            shared,
            level: Mutex::new(LoggingLevel::Info),
        }
    }

    /// Returns true when a client wants messages of that level. A request of 2026-07-28 names the level
    /// itself, an older client sets it once for its session.
    pub(crate) fn wants(&self, level: LoggingLevel, context: &RequestContext<RoleServer>) -> bool {
        let stateless = context.protocol_version() >= Some(ProtocolVersion::V_2026_07_28);
        let threshold = if stateless {
            context.meta.log_level()
        } else {
            Some(*self.level.lock().unwrap_or_else(PoisonError::into_inner))
        };
        match threshold {
            Some(threshold) => level as u8 >= threshold as u8,
            None => false,
        }
    }
}

impl ServerHandler for Everything {
    fn get_info(&self) -> InitializeResult {
        let mut capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_completions()
            .build();
        capabilities.logging = Some(JsonObject::new());
        InitializeResult::new(capabilities).with_server_info(Implementation::new("everything", "1.0.0"))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::list(
            self.shared.tools.load(Ordering::Relaxed),
        )))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let mut tools = tools::list(0).into_iter();
        tools.find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        tools::call(self, request, context).await
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::list(
            self.shared.prompts.load(Ordering::Relaxed),
        )))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == input_rounds::PROMPT {
            return Ok(input_rounds::prompt(&request));
        }
        prompts::get(&request)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let known = ["paris", "park", "party"].into_iter();
        let values = known.filter(|value| value.starts_with(&request.argument.value));
        let completion = CompletionInfo::with_all_values(values.map(str::to_owned).collect());
        let completion = completion.map_err(|failure| ErrorData::internal_error(failure, None))?;
        Ok(CompleteResult::new(completion))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = request.level;
        Ok(())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list()))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        resources::read(&request.uri)
    }
}
