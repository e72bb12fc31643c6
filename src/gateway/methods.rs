//! The methods of the server, as rmcp calls them for a client.

#![expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::exchange::Dialog;
use super::failure::{self, UpstreamFailure};
use super::known_lists::KnownLists;
use super::lists::{self, Page};
use super::server::{ListSource, UpstreamServer};
use super::task_ids::ToolTask;
use super::{foreign_etags, tasks};

type Context = RequestContext<RoleServer>;

/// Returns the result of the kind that the method has.
macro_rules! expect_result {
    ($result:expr, $($variant:ident)|+) => {
        match $result {
            $(ServerResult::$variant(result) => Ok(result.into()),)+
            _ => Err(UpstreamFailure::Unexpected.answer()),
        }
    };
}

/// Returns the list of the server that all clients are shown, or the one that is known of it.
macro_rules! listed {
    ($server:ident.$list:ident) => {{
        let upstream = $server.upstream();
        match $server.source() {
            ListSource::Server => {
                let shown = lists::$list(upstream);
                $server.tell_changes(&upstream.lists, shown).await?
            }
            ListSource::Known => lists::known_or_none(upstream.lists.$list()),
        }
    }};
}

impl UpstreamServer {
    /// Returns the first result that the known lists have: those of the watcher, of the client, of others.
    fn find<T>(&self, look: impl Fn(&KnownLists) -> Option<T>) -> Option<T> {
        let upstream = self.upstream();
        look(&upstream.lists)
            .or_else(|| look(&self.own()?.lists.known))
            .or_else(|| upstream.views.find(&look))
    }

    /// Returns the server's name of the tool that clients see under a name.
    pub(super) fn known_tool(&self, shown: &str) -> Option<String> {
        self.find(|lists| lists.tool_name(shown))
    }

    /// Returns the server's name of the prompt that clients see under a name.
    pub(super) fn known_prompt(&self, shown: &str) -> Option<String> {
        self.find(|lists| lists.prompt_name(shown))
    }

    /// Returns the server's name of a tool.
    async fn own_tool(&self, shown: &str, context: &Context) -> Result<String, ErrorData> {
        if self.find(|lists| lists.is_blocked(shown).then_some(())).is_some() {
            return Err(failure::unknown("tool", shown));
        }
        // A server knows best whether it has the tool that it is asked for.
        if self.upstream().prefix().is_none() {
            return Ok(shown.to_owned());
        }
        if self.known_tool(shown).is_none() {
            // It may have been added since the last look.
            self.tools(context).await?;
        }
        let own = self.known_tool(shown);
        own.ok_or_else(|| failure::unknown("tool", shown))
    }

    /// Returns the server's name of a prompt.
    async fn own_prompt(&self, shown: &str, context: &Context) -> Result<String, ErrorData> {
        if self.upstream().prefix().is_none() {
            return Ok(shown.to_owned());
        }
        if self.known_prompt(shown).is_none() {
            self.prompts(context).await?;
        }
        let own = self.known_prompt(shown);
        own.ok_or_else(|| failure::unknown("prompt", shown))
    }

    /// Returns the server's URI of a resource.
    fn own_uri(&self, shown: &str) -> Result<String, ErrorData> {
        match self.upstream().prefix().own_uri(shown) {
            Some(own) => Ok(own.to_owned()),
            None => Err(failure::unknown_resource(shown)),
        }
    }

    /// Returns true if a call of this tool may be made twice.
    fn may_repeat(&self, shown: &str) -> bool {
        // First: looking the tool up costs more than a call should pay for nothing.
        if !self.upstream().options().idempotent_retry {
            return false;
        }
        let tool = self.find(|lists| lists.tool(shown));
        match tool.and_then(|tool| tool.annotations) {
            Some(hints) => hints.idempotent_hint == Some(true) || hints.read_only_hint == Some(true),
            None => false,
        }
    }
}

impl ServerHandler for UpstreamServer {
    fn get_info(&self) -> InitializeResult {
        let known = self.upstream().info();
        let mut info = InitializeResult::new(known.capabilities.clone());
        info.protocol_version = ProtocolVersion::LATEST_WITH_INITIALIZE;
        info.instructions.clone_from(&known.instructions);
        if let Some(server) = &known.server_info {
            info.server_info = server.clone();
        }
        info
    }

    async fn list_resources(&self, page: Page, _: Context) -> Result<ListResourcesResult, ErrorData> {
        lists::refuse_cursor(page)?;
        let mut resources = listed!(self.resources);
        self.upstream().prefix().resources(&mut resources);
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        page: Page,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        lists::refuse_cursor(page)?;
        let mut templates = listed!(self.templates);
        self.upstream().prefix().templates(&mut templates);
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn list_tools(&self, page: Page, context: Context) -> Result<ListToolsResult, ErrorData> {
        lists::refuse_cursor(page)?;
        let mut tools = self.tools(&context).await?;
        for tool in &mut tools {
            tool.name = self.upstream().prefix().item(&tool.name).into_owned().into();
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let mut tool = self.find(|lists| lists.tool(name))?;
        tool.name = name.to_owned().into();
        Some(tool)
    }

    async fn list_prompts(&self, page: Page, context: Context) -> Result<ListPromptsResult, ErrorData> {
        lists::refuse_cursor(page)?;
        let mut prompts = self.prompts(&context).await?;
        for prompt in &mut prompts {
            prompt.name = self.upstream().prefix().item(&prompt.name).into_owned();
        }
        Ok(ListPromptsResult::with_all_items(prompts))
    }

    async fn read_resource(
        &self,
        mut request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.clone();
        request.uri = self.own_uri(&uri)?;
        let exchange = Dialog::Resource(request);
        let mut answer = self.converse(exchange.clone(), &context).await;
        // A read changes nothing, so it may be made twice.
        if let Err(error) = &answer
            && failure::is_restart(error)
        {
            answer = self.converse(exchange, &context).await;
        }
        match answer {
            Ok(ServerResult::ReadResourceResult(mut result)) => {
                foreign_etags::remove_from_read(&mut result);
                self.upstream().prefix().read(&mut result);
                Ok(result.into())
            }
            Ok(ServerResult::InputRequiredResult(result)) => Ok(ReadResourceResponse::InputRequired(result)),
            Ok(_) => Err(UpstreamFailure::Unexpected.answer()),
            Err(mut error) => {
                // Many servers have one code for this and for wrong parameters, as 2026-07-28 has; rmcp makes
                // it again from the older one for a client of that revision. The URI is the only parameter; a
                // server without resources has none of that URI either.
                if matches!(
                    error.code,
                    ErrorCode::INVALID_PARAMS | ErrorCode::METHOD_NOT_FOUND
                ) {
                    error.code = ErrorCode::RESOURCE_NOT_FOUND;
                    error
                        .data
                        .get_or_insert_with(|| serde_json::json!({ "uri": uri }));
                }
                Err(error)
            }
        }
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let may_repeat = self.may_repeat(&request.name);
        let own_name = self.own_tool(&request.name, &context).await?;
        let name = std::mem::replace(&mut request.name, own_name.into());
        let exchange = Dialog::Tool(request);
        let repeated = may_repeat.then(|| exchange.clone());
        let mut answer = self.converse(exchange, &context).await;
        if let Err(error) = &answer
            && let Some(exchange) = repeated
            && failure::is_restart(error)
        {
            answer = self.converse(exchange, &context).await;
        }
        match answer? {
            ServerResult::CallToolResult(mut result) => {
                self.upstream().prefix().call(&mut result);
                Ok(CallToolResponse::Complete(result))
            }
            ServerResult::InputRequiredResult(result) => Ok(CallToolResponse::InputRequired(result)),
            ServerResult::CreateTaskResult(mut result) => {
                let task = ToolTask {
                    tool: &name,
                    id: &result.task.task_id,
                };
                result.task.task_id = tasks::shown_id(self.upstream(), &context, task);
                Ok(CallToolResponse::Task(result))
            }
            _ => Err(UpstreamFailure::Unexpected.answer()),
        }
    }

    async fn get_prompt(
        &self,
        mut request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        request.name = self.own_prompt(&request.name, &context).await?;
        match self.converse(Dialog::Prompt(request), &context).await? {
            ServerResult::GetPromptResult(mut result) => {
                self.upstream().prefix().prompt(&mut result);
                Ok(GetPromptResponse::Complete(result))
            }
            ServerResult::InputRequiredResult(result) => Ok(GetPromptResponse::InputRequired(result)),
            _ => Err(UpstreamFailure::Unexpected.answer()),
        }
    }

    async fn complete(
        &self,
        mut request: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        match &mut request.r#ref {
            Reference::Resource(template) => template.uri = self.own_uri(&template.uri)?,
            Reference::Prompt(prompt) => prompt.name = self.own_prompt(&prompt.name, &context).await?,
            _ => return Err(ErrorData::invalid_params("ref is of an unknown kind", None)),
        }
        let request = ClientRequest::CompleteRequest(CompleteRequest::new(request));
        expect_result!(self.forward(request, &context).await?, CompleteResult)
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        if self.upstream().info().capabilities.logging.is_none() {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        self.set_level_of_client(request.level).await;
        Ok(())
    }

    async fn get_task(
        &self,
        mut request: GetTaskParams,
        mut context: Context,
    ) -> Result<GetTaskResult, ErrorData> {
        request.task_id = tasks::own_id(self.upstream(), &mut context, &request.task_id)?;
        let request = ClientRequest::GetTaskRequest(GetTaskRequest::new(request));
        let answer = self.forward(request, &context).await?;
        let mut result: GetTaskResult = expect_result!(answer, GetTaskResult)?;
        match tasks::show(self.upstream(), &context, &mut result.task) {
            true => Ok(result),
            false => Err(UpstreamFailure::Unexpected.answer()),
        }
    }

    async fn update_task(
        &self,
        mut request: UpdateTaskParams,
        mut context: Context,
    ) -> Result<(), ErrorData> {
        request.task_id = tasks::own_id(self.upstream(), &mut context, &request.task_id)?;
        let request = ClientRequest::UpdateTaskRequest(UpdateTaskRequest::new(request));
        self.forward(request, &context).await.map(drop)
    }

    async fn cancel_task(
        &self,
        mut request: CancelTaskParams,
        mut context: Context,
    ) -> Result<(), ErrorData> {
        request.task_id = tasks::own_id(self.upstream(), &mut context, &request.task_id)?;
        let request = ClientRequest::CancelTaskRequest(CancelTaskRequest::new(request));
        self.forward(request, &context).await.map(drop)
    }

    async fn list_skills(&self, page: Page, context: Context) -> Result<ListSkillsResult, ErrorData> {
        let request = ListSkillsRequest {
            method: Default::default(),
            params: page,
            extensions: Default::default(),
        };
        let request = ClientRequest::ListSkillsRequest(request);
        let answer = self.forward(request, &context).await?;
        let mut result: ListSkillsResult = expect_result!(answer, ListSkillsResult)?;
        self.upstream().prefix().skills(&mut result.skills);
        Ok(result)
    }

    async fn get_skill(
        &self,
        mut request: GetSkillRequestParams,
        context: Context,
    ) -> Result<GetSkillResult, ErrorData> {
        request.uri = self.own_uri(&request.uri)?;
        let request = ClientRequest::GetSkillRequest(GetSkillRequest::new(request));
        let answer = self.forward(request, &context).await?;
        let mut result: GetSkillResult = expect_result!(answer, GetSkillResult)?;
        self.upstream()
            .prefix()
            .skills(std::slice::from_mut(&mut result.skill));
        Ok(result)
    }

    async fn read_resource_directory(
        &self,
        mut request: ReadResourceDirectoryRequestParams,
        context: Context,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        request.uri = self.own_uri(&request.uri)?;
        let request = ReadResourceDirectoryRequest::new(request);
        let request = ClientRequest::ReadResourceDirectoryRequest(request);
        let answer = self.forward(request, &context).await?;
        let mut result: ReadResourceDirectoryResult = expect_result!(answer, ListResourcesResult)?;
        self.upstream().prefix().resources(&mut result.resources);
        Ok(result)
    }

    async fn on_custom_request(
        &self,
        mut request: CustomRequest,
        mut context: Context,
    ) -> Result<CustomResult, ErrorData> {
        tasks::own_request(self.upstream(), &mut context, &mut request)?;
        let method = request.method.clone();
        let result = self
            .forward(ClientRequest::CustomRequest(request), &context)
            .await;
        let mut result = result.map_err(|error| match failure::is_refusal(&error) {
            // Some servers refuse an unknown method by HTTP alone.
            true => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
            false => error,
        })?;
        // That of a task.
        if let ServerResult::CallToolResult(call) = &mut result {
            self.upstream().prefix().call(call);
        }
        match serde_json::to_value(result) {
            Ok(result) => Ok(CustomResult(result)),
            Err(_) => Err(UpstreamFailure::Unexpected.answer()),
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.note_ready(context.peer);
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        if let Some(connection) = self.connection_of_client().await
            && let Err(error) = connection.peer().notify_roots_list_changed().await
        {
            tracing::debug!(%error, "a change of a client's roots could not be passed on");
        }
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        _: NotificationContext<RoleServer>,
    ) {
        if let Some(connection) = self.connection_of_client().await {
            let notification = ClientNotification::CustomNotification(notification);
            if let Err(error) = connection.peer().send_notification(notification).await {
                tracing::debug!(%error, "a notification of a client could not be passed on");
            }
        }
    }
}
