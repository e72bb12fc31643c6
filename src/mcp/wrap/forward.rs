//! The wrapped handler as rmcp sees it: requests that the bus has a part in, and the many that it only
//! forwards.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;

use super::client_view::{ServerList, declares};
use super::wrapped::{Wrapped, if_implemented};
use crate::ResourceUri;
use crate::auth::{Object, Right};
use crate::mcp::listen::{ListenRequest, client_name};
use crate::mcp::revision::{ETAG_META_KEY, Revision};
use crate::mcp::{convert, error, lists};
use crate::wire::protocol::CLIENT_INFO_META_KEY;

type Context = RequestContext<RoleServer>;
type Page = Option<PaginatedRequestParams>;

/// Forwards methods that the bus adds nothing to. rmcp's trait has a default for each of them, so a method
/// that is missing here would hide the wrapped server's own.
macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),+) -> $result:ty;)+) => {
        $(async fn $name(&self, $($argument: $kind),+) -> $result {
            self.inner.$name($($argument),+).await
        })+
    };
}

/// Forwards requests as [`forward`] does. A handler that panics or never ends is answered for.
macro_rules! forward_guarded {
    ($($name:ident($($argument:ident: $kind:ty),+) -> $result:ty;)+) => {
        $(async fn $name(&self, $($argument: $kind),+) -> Result<$result, ErrorData> {
            self.options().answered(|| self.inner.$name($($argument),+)).await
        })+
    };
}

/// Answers requests by the methods that judge the rights of their callers.
macro_rules! judged {
    ($($name:ident($kind:ty) -> $result:ty = $method:ident;)+) => {
        $(async fn $name(&self, request: $kind, context: Context) -> Result<$result, ErrorData> {
            self.$method(request, context).await
        })+
    };
}

impl<H: ServerHandler> ServerHandler for Wrapped<H> {
    forward! {
        on_cancelled(notification: CancelledNotificationParam, context: NotificationContext<RoleServer>) -> ();
        on_progress(notification: ProgressNotificationParam, context: NotificationContext<RoleServer>) -> ();
        on_roots_list_changed(context: NotificationContext<RoleServer>) -> ();
    }

    forward_guarded! {
        ping(context: Context) -> ();
        get_task(request: GetTaskParams, context: Context) -> GetTaskResult;
        update_task(request: UpdateTaskParams, context: Context) -> ();
        cancel_task(request: CancelTaskParams, context: Context) -> ();
    }

    judged! {
        on_custom_request(CustomRequest) -> CustomResult = permitted_custom_request;
        complete(CompleteRequestParams) -> CompleteResult = permitted_completion;
        list_skills(Page) -> ListSkillsResult = visible_skills;
        get_skill(GetSkillRequestParams) -> GetSkillResult = permitted_skill;
        read_resource_directory(ReadResourceDirectoryRequestParams) -> ReadResourceDirectoryResult
            = visible_directory;
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        context: NotificationContext<RoleServer>,
    ) {
        if self.may_notify(&notification.method, &context) {
            self.inner.on_custom_notification(notification, context).await;
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.inner.get_tool(name)
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.inner.supported_protocol_versions()
    }

    fn negotiate_initialize(&self, request: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.inner.negotiate_initialize(request)
    }

    fn get_info(&self) -> InitializeResult {
        let mut info = self.inner.get_info();
        Revision::STATELESS.declare_capabilities(&mut info.capabilities);
        info
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: Context,
    ) -> Result<InitializeResult, ErrorData> {
        self.note_client(&context);
        let name = request.client_info.name.clone();
        let opening = self.bus_handler.opening(&context)?;
        let kept_by = context.extensions.get().cloned();
        let mut info = self.inner.initialize(request, context).await?;
        let revision = Revision::negotiated(Some(&info.protocol_version));
        revision.declare_capabilities(&mut info.capabilities);
        let session = self.bus_handler.open(&opening, revision, &name).await?;
        self.remember_session(session.session.id(), kept_by);
        Ok(info)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let peer = context.peer.clone();
        let extensions = context.extensions.clone();
        let client = self.settled(context).await;
        // Lists first: the client's first notifications are about the lists that the server has now.
        if self.wrap.is_followed() || self.wrap.learn_lists(&client).await.is_ok() {
            self.bus_handler.start(peer, &extensions).await;
        }
    }

    async fn discover(&self, context: Context) -> Result<DiscoverResult, ErrorData> {
        let mut result = self.inner.discover(context).await?;
        Revision::STATELESS.declare_capabilities(&mut result.capabilities);
        Ok(result)
    }

    async fn list_resources(
        &self,
        request: Page,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.note_client(&context);
        let visible = self.visible(&context);
        let mut result = ListResourcesResult::default();
        if declares(&*self.inner, ServerList::Resources) {
            result = self
                .options()
                .answered(|| self.inner.list_resources(request.clone(), context))
                .await?;
        }
        let next = result.next_cursor.as_ref();
        self.observe(ServerList::Resources, &result.resources, request.as_ref(), next)
            .await?;
        let uris: Vec<String> = result.resources.iter().map(|item| item.uri.clone()).collect();
        let etags = self.etags(&uris).await?;
        for (index, item) in result.resources.iter_mut().enumerate() {
            if let Some(etag) = etags[index] {
                let meta = item.meta.get_or_insert_default();
                meta.0.extend(convert::etag_meta(etag).0);
            }
        }
        // The bus's items follow the last page of the wrapped server.
        if result.next_cursor.is_none() {
            let known: HashSet<String> = uris.into_iter().collect();
            let added = lists::all_resources(&self.bus_handler.server).await?;
            let added = added.into_iter().filter(|item| !known.contains(&item.uri));
            result.resources.extend(added);
        }
        visible.keep_resources(&mut result.resources);
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Page,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.note_client(&context);
        let visible = self.visible(&context);
        let mut result = ListResourceTemplatesResult::default();
        if declares(&*self.inner, ServerList::Templates) {
            result = self
                .options()
                .answered(|| self.inner.list_resource_templates(request.clone(), context))
                .await?;
        }
        let next = result.next_cursor.as_ref();
        let items = &result.resource_templates;
        self.observe(ServerList::Templates, items, request.as_ref(), next)
            .await?;
        if result.next_cursor.is_none() {
            let added = self.bus_handler.server.bus.templates().await;
            let added = added.map_err(error::stopping)?;
            let added = added.iter().map(|template| convert::template(template));
            result.resource_templates.extend(added);
        }
        visible.keep_templates(&mut result.resource_templates);
        Ok(result)
    }

    async fn list_tools(&self, request: Page, context: Context) -> Result<ListToolsResult, ErrorData> {
        self.note_client(&context);
        let visible = self.visible(&context);
        let mut result = ListToolsResult::default();
        if declares(&*self.inner, ServerList::Tools) {
            result = self
                .options()
                .answered(|| self.inner.list_tools(request.clone(), context))
                .await?;
        }
        let next = result.next_cursor.as_ref();
        self.observe(ServerList::Tools, &result.tools, request.as_ref(), next)
            .await?;
        if result.next_cursor.is_none() {
            let known: HashSet<String> = result.tools.iter().map(|tool| tool.name.to_string()).collect();
            let bus = &self.bus_handler.server.bus;
            let added = bus.tools(None, bus.limits().list_items_max).await;
            let mut added = added.map_err(error::stopping)?.items;
            added.retain(|tool| !known.contains(tool.name()));
            result.tools.extend(convert::tools(&added));
        }
        visible.keep_tools(&mut result.tools);
        Ok(result)
    }

    async fn list_prompts(&self, request: Page, context: Context) -> Result<ListPromptsResult, ErrorData> {
        self.note_client(&context);
        let visible = self.visible(&context);
        let mut result = ListPromptsResult::default();
        if declares(&*self.inner, ServerList::Prompts) {
            result = self
                .options()
                .answered(|| self.inner.list_prompts(request.clone(), context))
                .await?;
        }
        let next = result.next_cursor.as_ref();
        self.observe(ServerList::Prompts, &result.prompts, request.as_ref(), next)
            .await?;
        if result.next_cursor.is_none() {
            let known: HashSet<String> = result.prompts.iter().map(|prompt| prompt.name.clone()).collect();
            let bus = &self.bus_handler.server.bus;
            let added = bus.prompts(None, bus.limits().list_items_max).await;
            let mut added = added.map_err(error::stopping)?.items;
            added.retain(|prompt| !known.contains(prompt.name()));
            result.prompts.extend(convert::prompts(&added));
        }
        visible.keep_prompts(&mut result.prompts);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.note_client(&context);
        if !self.may(&context, Right::Read, Object::Resource(&request.uri)) {
            return self.bus_handler.read_resource(request, context).await;
        }
        let Ok(uri) = ResourceUri::new(&request.uri) else {
            return self
                .options()
                .answered(|| self.inner.read_resource(request, context))
                .await;
        };
        // Asked before the read: the etag that goes with the content must not be newer than the content.
        let before = self.wrap.etag(&uri).await.map_err(error::stopping)?;
        let answer = self
            .options()
            .answered(|| self.inner.read_resource(request.clone(), context.clone()))
            .await;
        let read = match answer {
            Ok(ReadResourceResponse::Complete(result)) => Ok(result),
            Ok(other) => return Ok(other),
            Err(refusal) => Err(refusal),
        };
        let learned = self.wrap.learn(&uri, before, &read).await;
        let etag = learned.map_err(|failure| error::list(&failure))?;
        match read {
            Ok(mut result) => {
                if let Some(meta) = etag.map(convert::etag_meta) {
                    result.meta.get_or_insert_default().0.extend(meta.0.clone());
                    for contents in &mut result.contents {
                        convert::add_meta(contents, &meta);
                    }
                }
                Ok(result.into())
            }
            // A resource that the wrapped server holds is its own to refuse; any other may be registered at
            // the bus.
            Err(refusal) if self.wrap.is_known(&uri).await => Err(refusal),
            Err(refusal) => match self.bus_handler.read_resource(request, context).await {
                Ok(ReadResourceResponse::Complete(mut result)) => {
                    self.name_wrapped_server(&mut result.meta);
                    Ok(result.into())
                }
                other => other.map_err(|_| refusal),
            },
        }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        self.note_client(&context);
        if self.is_of_bus(ServerList::Tools, &request.name, &context).await? {
            return self.call_bus_tool(request, context).await;
        }
        if !self.may(&context, Right::Call, Object::Tool(&request.name)) {
            return self.bus_handler.call_tool(request, context).await;
        }
        let caller = self.bus_handler.caller(&context);
        // Held until the call has ended.
        let _place = self.bus_handler.server.tool_place(&caller)?;
        // rmcp cancels the call of the wrapped server once the endpoint has seen the cancellation.
        let _running = self.bus_handler.running_call(&context);
        let call = self.bus_handler.server.metrics.call_begins();
        let answer = self
            .options()
            .answered(|| self.inner.call_tool(request, context))
            .await;
        call.ended(match &answer {
            Ok(CallToolResponse::Complete(result)) => result.is_error != Some(true),
            Ok(_) => true,
            Err(_) => false,
        });
        answer
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.note_client(&context);
        if !self
            .is_of_bus(ServerList::Prompts, &request.name, &context)
            .await?
            && self.bus_handler.caller(&context).may_get_prompt(&request.name)
        {
            return self
                .options()
                .answered(|| self.inner.get_prompt(request, context))
                .await;
        }
        let mut answer = self.bus_handler.get_prompt(request, context).await?;
        if let GetPromptResponse::Complete(result) = &mut answer {
            self.name_wrapped_server(&mut result.meta);
        }
        Ok(answer)
    }

    #[expect(deprecated, reason = "the older revisions have no other subscription")]
    async fn subscribe(&self, request: SubscribeRequestParams, context: Context) -> Result<(), ErrorData> {
        let client = self.client_view(&context);
        self.learn_unknown(&client, std::slice::from_ref(&request.uri))
            .await?;
        // The bus first: a change that the wrapped server announces while it subscribes must find the client.
        self.bus_handler
            .subscribe(request.clone(), context.clone())
            .await?;
        let subscribed = if_implemented(self.inner.subscribe(request.clone(), context.clone()).await);
        if subscribed.is_err() {
            // The client was refused, so it must not be sent updates.
            let request = UnsubscribeRequestParams::new(request.uri);
            self.bus_handler.unsubscribe(request, context).await?;
        }
        subscribed
    }

    #[expect(deprecated, reason = "the older revisions have no other subscription")]
    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        self.bus_handler
            .unsubscribe(request.clone(), context.clone())
            .await?;
        if_implemented(self.inner.unsubscribe(request, context).await)
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.note_acknowledgement(requested);
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        if self.bus_handler.narrowed(&context) {
            return self.bus_handler.listen(context).await;
        }
        let filter = context.accepted().clone();
        let uris = filter.resource_subscriptions.clone().unwrap_or_default();
        let changes_before = self.changes_at_acknowledgement(context.requested());
        // First of all: rmcp has acknowledged already, so every change from here on must be sent.
        let etags = self.etags(&uris).await?;
        let client = self.client_view(context.request_context());
        // The bus leaves a resource out that cannot be read, like any that it does not know.
        self.learn_unknown(&client, &uris).await?;
        // The stream starts from the lists as they are now, so learning them here announces nothing to it.
        if !self.wrap.is_followed() {
            let learned = self.wrap.learn_lists(&client).await;
            learned.map_err(|failure| error::list(&failure))?;
        }
        let mut etags_before = HashMap::new();
        for (index, uri) in uris.into_iter().enumerate() {
            etags_before.insert(uri, etags[index]);
        }
        let meta = &context.request_context().meta;
        let client = client_name(meta.get(CLIENT_INFO_META_KEY));
        let etags = meta.get(ETAG_META_KEY).cloned();
        if let Some(Value::Object(known)) = &etags {
            // The bus compares these with what the client holds.
            etags_before.retain(|uri, _| !known.contains_key(uri));
        }
        let request = ListenRequest {
            filter,
            etags,
            client,
        };
        let (stream, missed) = self.open(request, changes_before, &etags_before).await?;
        for notification in missed {
            if context.sink().send(notification).await.is_err() {
                return Ok(());
            }
        }
        stream.run(&context).await
    }

    #[expect(deprecated, reason = "the older revisions have logging")]
    async fn set_level(&self, request: SetLevelRequestParams, context: Context) -> Result<(), ErrorData> {
        // Both servers set the level, since tools of either may log to this client.
        let answer_of_bus = self.bus_handler.set_level(request.clone(), context.clone()).await;
        match self.inner.set_level(request, context).await {
            // The wrapped server does not log, but tools of the bus may.
            Err(refusal) if refusal.code == ErrorCode::METHOD_NOT_FOUND => answer_of_bus,
            answer => answer,
        }
    }
}
