//! The server as rmcp sees it: which request is answered where.

#![expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::task_manager::TaskManager;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tidings::mcp::Wrap;

use crate::subscribers::{ChangingList, Subscribers};
use crate::{input_rounds, prompts, resources, tools};

/// The state that all clients share.
pub(crate) struct Shared {
    /// Told when the server's own lists change; none if the server stands alone.
    wrap: Option<Wrap>,
    /// The clients that a server that stands alone tells itself.
    subscribers: Subscribers,
    pub(crate) tasks: TaskManager,
    /// Seals the state that clients hand back.
    pub(crate) codec: RequestStateCodec,
    /// The number of changes of the tools.
    pub(crate) tools: AtomicU32,
    /// The number of changes of the prompts.
    pub(crate) prompts: AtomicU32,
}

impl Shared {
    pub(crate) fn new(wrap: Option<Wrap>) -> Result<Shared, RequestStateError> {
        Ok(Shared {
            wrap,
            subscribers: Subscribers::default(),
            tasks: TaskManager::new(),
            codec: RequestStateCodec::try_new(b"a key that is good enough for tests")?,
            tools: AtomicU32::new(0),
            prompts: AtomicU32::new(0),
        })
    }

    /// Changes a list, and has the clients told.
    pub(crate) async fn change(&self, list: ChangingList) -> Result<(), ErrorData> {
        let changes = match list {
            ChangingList::Tools => &self.tools,
            ChangingList::Prompts => &self.prompts,
        };
        changes.fetch_add(1, Ordering::Relaxed);
        let Some(wrap) = &self.wrap else {
            self.subscribers.tell(list).await;
            return Ok(());
        };
        let refreshed = wrap.refresh_lists().await;
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
        let builder = ServerCapabilities::builder()
            .enable_tools()
            .enable_prompts()
            .enable_resources()
            .enable_completions()
            .enable_tasks();
        let mut capabilities = match self.shared.wrap {
            // The wrapper adds the others.
            Some(_) => builder.build(),
            None => builder
                .enable_tool_list_changed()
                .enable_prompts_list_changed()
                .enable_resources_subscribe()
                .build(),
        };
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

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.shared.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let tasks = &self.shared.tasks;
        tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.shared.tasks.cancel_task(&request.task_id)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.shared.subscribers.add_peer(context.peer);
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // No resource of this server changes, so its subscribers are told nothing.
        resources::read(&request.uri).map(drop)
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let number = self.shared.subscribers.add_stream(context.sink().clone());
        context.cancelled().await;
        self.shared.subscribers.remove_stream(number);
        Ok(())
    }
}
