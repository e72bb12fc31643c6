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
use super::foreign_etags;
use super::lists::{self, Page};
use super::server::UpstreamServer;

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
        let mut resources = lists::resources(self.upstream()).await?;
        foreign_etags::remove_from_list(&mut resources);
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        page: Page,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        lists::refuse_cursor(page)?;
        Ok(ListResourceTemplatesResult::with_all_items(
            lists::templates(self.upstream()).await?,
        ))
    }

    async fn list_tools(&self, page: Page, _: Context) -> Result<ListToolsResult, ErrorData> {
        lists::refuse_cursor(page)?;
        let mut tools = lists::tools(self.upstream()).await?;
        foreign_etags::remove_tools(&self.get_info(), &mut tools);
        // Kept for `get_tool`, which cannot wait.
        self.upstream().listed_tools(&tools);
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.upstream().tool(name)
    }

    async fn list_prompts(&self, page: Page, _: Context) -> Result<ListPromptsResult, ErrorData> {
        lists::refuse_cursor(page)?;
        Ok(ListPromptsResult::with_all_items(
            lists::prompts(self.upstream()).await?,
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.clone();
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
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        match self.converse(Dialog::Tool(request), &context).await? {
            ServerResult::CallToolResult(result) => Ok(CallToolResponse::Complete(result)),
            ServerResult::InputRequiredResult(result) => Ok(CallToolResponse::InputRequired(result)),
            ServerResult::CreateTaskResult(result) => Ok(CallToolResponse::Task(result)),
            _ => Err(UpstreamFailure::Unexpected.answer()),
        }
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        match self.converse(Dialog::Prompt(request), &context).await? {
            ServerResult::GetPromptResult(result) => Ok(GetPromptResponse::Complete(result)),
            ServerResult::InputRequiredResult(result) => Ok(GetPromptResponse::InputRequired(result)),
            _ => Err(UpstreamFailure::Unexpected.answer()),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
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

    async fn get_task(&self, request: GetTaskParams, context: Context) -> Result<GetTaskResult, ErrorData> {
        let request = ClientRequest::GetTaskRequest(GetTaskRequest::new(request));
        expect_result!(self.forward(request, &context).await?, GetTaskResult)
    }

    async fn update_task(&self, request: UpdateTaskParams, context: Context) -> Result<(), ErrorData> {
        let request = ClientRequest::UpdateTaskRequest(UpdateTaskRequest::new(request));
        self.forward(request, &context).await.map(drop)
    }

    async fn cancel_task(&self, request: CancelTaskParams, context: Context) -> Result<(), ErrorData> {
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
        expect_result!(self.forward(request, &context).await?, ListSkillsResult)
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        context: Context,
    ) -> Result<GetSkillResult, ErrorData> {
        let request = ClientRequest::GetSkillRequest(GetSkillRequest::new(request));
        expect_result!(self.forward(request, &context).await?, GetSkillResult)
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        context: Context,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        let request = ReadResourceDirectoryRequest::new(request);
        let request = ClientRequest::ReadResourceDirectoryRequest(request);
        expect_result!(self.forward(request, &context).await?, ListResourcesResult)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: Context,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.clone();
        let result = self
            .forward(ClientRequest::CustomRequest(request), &context)
            .await;
        let result = result.map_err(|error| match failure::is_refusal(&error) {
            // Some servers refuse an unknown method by HTTP alone.
            true => ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None),
            false => error,
        })?;
        match serde_json::to_value(result) {
            Ok(result) => Ok(CustomResult(result)),
            Err(_) => Err(UpstreamFailure::Unexpected.answer()),
        }
    }

    async fn on_roots_list_changed(&self, _: NotificationContext<RoleServer>) {
        if let Some(speaker) = self.opened_speaker().await
            && let Err(error) = speaker.connection.peer().notify_roots_list_changed().await
        {
            tracing::debug!(%error, "a change of a client's roots could not be passed on");
        }
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        _: NotificationContext<RoleServer>,
    ) {
        if let Some(speaker) = self.opened_speaker().await {
            let notification = ClientNotification::CustomNotification(notification);
            if let Err(error) = speaker.connection.peer().send_notification(notification).await {
                tracing::debug!(%error, "a notification of a client could not be passed on");
            }
        }
    }
}
