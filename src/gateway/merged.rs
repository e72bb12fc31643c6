//! All servers behind a gateway as one client is served them: each request goes to the server that its name,
//! URI or task belongs to, and the lists of all are one.

#![expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]

use futures_util::future::join_all;
use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::failure;
use super::lists::{self, Page};
use super::merged_info::merged_info;
use super::server::UpstreamServer;
use super::speakers::principal_of;
use super::tasks;

type Context = RequestContext<RoleServer>;

/// The servers behind a gateway, as one client is served them.
pub(crate) struct GatewayServer {
    /// In the order in which their items are listed; at least one.
    servers: Vec<UpstreamServer>,
}

/// Forwards a request to the server that a part of it names.
macro_rules! routed {
    ($($name:ident($kind:ty) -> $result:ty = $route:ident($($field:ident).+);)+) => {
        $(async fn $name(&self, request: $kind, context: Context) -> Result<$result, ErrorData> {
            self.$route(&request.$($field).+)?.$name(request, context).await
        })+
    };
}

/// Forwards a request for a task to the server that has made it.
macro_rules! routed_by_task {
    ($($name:ident($kind:ty) -> $result:ty;)+) => {
        $(async fn $name(&self, request: $kind, context: Context) -> Result<$result, ErrorData> {
            self.of_task(&request.task_id, &context)?.$name(request, context).await
        })+
    };
}

/// Answers one list with the items of all servers.
macro_rules! merged_lists {
    ($($name:ident.$items:ident -> $result:ident;)+) => {
        $(async fn $name(&self, page: Page, context: Context) -> Result<$result, ErrorData> {
            lists::refuse_cursor(page)?;
            // All at once, so that a slow server delays the list by its own time alone.
            let asked = self.servers.iter().map(|server| server.$name(None, context.clone()));
            let mut merged = Vec::new();
            for listed in join_all(asked).await {
                merged.extend(listed?.$items);
            }
            Ok($result::with_all_items(merged))
        })+
    };
}

impl GatewayServer {
    pub(super) fn new(servers: Vec<UpstreamServer>) -> GatewayServer {
        GatewayServer { servers }
    }

    /// Returns the only server; none where there are several.
    fn only(&self) -> Option<&UpstreamServer> {
        match self.servers.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// Returns the first server of which this is true.
    fn first(&self, is_meant: impl Fn(&UpstreamServer) -> bool) -> Option<&UpstreamServer> {
        self.servers.iter().find(|server| is_meant(server))
    }

    /// Returns the server that lists a tool, else one whose prefix its name has.
    fn of_tool(&self, name: &str) -> Result<&UpstreamServer, ErrorData> {
        // By their lists first: the names of a server without a prefix may begin with that of another one.
        self.only()
            .or_else(|| self.first(|server| server.known_tool(name).is_some()))
            .or_else(|| self.first(|server| server.upstream().prefix().may_have_item(name)))
            .ok_or_else(|| failure::unknown("tool", name))
    }

    /// Returns the server that lists a prompt, else one whose prefix its name has.
    fn of_prompt(&self, name: &str) -> Result<&UpstreamServer, ErrorData> {
        self.only()
            .or_else(|| self.first(|server| server.known_prompt(name).is_some()))
            .or_else(|| self.first(|server| server.upstream().prefix().may_have_item(name)))
            .ok_or_else(|| failure::unknown("prompt", name))
    }

    /// Returns the server whose prefix a URI has, else the one without a prefix.
    fn of_uri(&self, uri: &str) -> Result<&UpstreamServer, ErrorData> {
        self.only()
            .or_else(|| self.first(|server| server.upstream().prefix().begins(uri)))
            .or_else(|| self.first(|server| server.upstream().prefix().is_none()))
            .ok_or_else(|| failure::unknown_resource(uri))
    }

    fn of_task(&self, id: &str, context: &Context) -> Result<&UpstreamServer, ErrorData> {
        let principal = principal_of(context);
        self.only()
            .or_else(|| self.first(|server| server.upstream().tasks.open(principal.as_deref(), id).is_some()))
            .ok_or_else(|| failure::unknown("task", id))
    }

    fn of_reference(&self, reference: &Reference) -> Result<&UpstreamServer, ErrorData> {
        match reference {
            Reference::Resource(template) => self.of_uri(&template.uri),
            Reference::Prompt(prompt) => self.of_prompt(&prompt.name),
            _ => Err(ErrorData::invalid_params("ref is of an unknown kind", None)),
        }
    }
}

impl ServerHandler for GatewayServer {
    merged_lists! {
        list_resources.resources -> ListResourcesResult;
        list_resource_templates.resource_templates -> ListResourceTemplatesResult;
        list_tools.tools -> ListToolsResult;
        list_prompts.prompts -> ListPromptsResult;
    }

    routed! {
        read_resource(ReadResourceRequestParams) -> ReadResourceResponse = of_uri(uri);
        call_tool(CallToolRequestParams) -> CallToolResponse = of_tool(name);
        get_prompt(GetPromptRequestParams) -> GetPromptResponse = of_prompt(name);
        complete(CompleteRequestParams) -> CompleteResult = of_reference(r#ref);
        get_skill(GetSkillRequestParams) -> GetSkillResult = of_uri(uri);
        read_resource_directory(ReadResourceDirectoryRequestParams) -> ReadResourceDirectoryResult = of_uri(uri);
    }

    routed_by_task! {
        get_task(GetTaskParams) -> GetTaskResult;
        update_task(UpdateTaskParams) -> ();
        cancel_task(CancelTaskParams) -> ();
    }

    fn get_info(&self) -> InitializeResult {
        let infos = self.servers.iter().map(ServerHandler::get_info).collect();
        let labels = self.servers.iter().map(|server| server.upstream().label());
        match self.only() {
            Some(only) => only.get_info(),
            None => merged_info(infos, labels.collect()),
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.servers.iter().find_map(|server| server.get_tool(name))
    }

    async fn list_skills(&self, page: Page, context: Context) -> Result<ListSkillsResult, ErrorData> {
        if let Some(only) = self.only() {
            return only.list_skills(page, context).await;
        }
        lists::refuse_cursor(page)?;
        let asked = self
            .servers
            .iter()
            .map(|server| server.list_skills(None, context.clone()));
        let mut merged = ListSkillsResult::default();
        for listed in join_all(asked).await {
            match listed {
                Ok(listed) => merged.skills.extend(listed.skills),
                // Most servers have no skills.
                Err(error) => tracing::debug!(%error, "a server behind the gateway lists no skills"),
            }
        }
        Ok(merged)
    }

    async fn set_level(&self, request: SetLevelRequestParams, context: Context) -> Result<(), ErrorData> {
        // Each server that logs is told; one is enough for the client.
        let mut answer = Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        for server in &self.servers {
            let set = server.set_level(request.clone(), context.clone()).await;
            answer = answer.or(set);
        }
        answer
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: Context,
    ) -> Result<CustomResult, ErrorData> {
        let meant = match tasks::named_in(&request, &context) {
            Some(id) => Some(self.of_task(id, &context)?),
            // Nothing in another request says which server is meant.
            None => self.only(),
        };
        match meant {
            Some(server) => server.on_custom_request(request, context).await,
            None => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)),
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        for server in &self.servers {
            server.on_initialized(context.clone()).await;
        }
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        for server in &self.servers {
            server.on_roots_list_changed(context.clone()).await;
        }
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        context: NotificationContext<RoleServer>,
    ) {
        // Several servers might each take it for their own.
        if let Some(only) = self.only() {
            only.on_custom_notification(notification, context).await;
        }
    }
}
