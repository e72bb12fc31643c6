//! The wrapped handler as rmcp sees it: the bus's part added, everything else forwarded.
//!
//! Owns: which request is whose. Never: keeps state.

use std::borrow::Cow;
use std::collections::HashSet;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::inner::{Live, Part, as_json, declares};
use super::wrapped::{Wrapped, if_there_is, is_whole, with_ours};
use crate::mcp::revision::Revision;
use crate::mcp::{convert, error};
use crate::{ListKind, ResourceUri};

/// How long the wrapped server may be busy with a new client before that client is told of lists: a server that sets
/// up its lists then is waited for, one that works on for as long as the client stays is not.
const SETTLE: Duration = Duration::from_secs(1);

type Context = RequestContext<RoleServer>;

impl<H: ServerHandler> ServerHandler for Wrapped<H> {
    fn get_info(&self) -> InitializeResult {
        let mut info = self.inner.get_info();
        info.capabilities = with_ours(info.capabilities, Revision::R2026_07_28);
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.inner.supported_protocol_versions()
    }

    fn negotiate_initialize(&self, request: &InitializeRequestParams) -> Result<InitializeResult, ErrorData> {
        self.inner.negotiate_initialize(request)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: Context,
    ) -> Result<InitializeResult, ErrorData> {
        self.live(&context);
        let mut info = self.inner.initialize(request, context).await?;
        let revision = Revision::of(Some(&info.protocol_version));
        info.capabilities = with_ours(info.capabilities, revision);
        self.ours.begin(revision, ListKind::ALL.to_vec()).await?;
        Ok(info)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let peer = context.peer.clone();
        let (meta, extensions) = (RequestMetaObject::default(), context.extensions.clone());
        let live = Live::of_parts(&self.inner, peer.clone(), meta, extensions);
        // On its own: rmcp keeps this handler, and so the session, as long as this notification is being handled.
        let inner = self.inner.clone();
        let theirs = tokio::spawn(async move { inner.on_initialized(context).await });
        if tokio::time::timeout(SETTLE, theirs).await.is_err() {
            tracing::debug!("the wrapped server is still busy with its new client, who is told of lists now");
        }
        // Lists first: what a new client is told of is what the server has now.
        if self.wrap.learn_lists(&live).await.is_ok() {
            self.ours.pump(peer).await;
        }
    }

    async fn discover(&self, context: Context) -> Result<DiscoverResult, ErrorData> {
        let mut result = self.inner.discover(context).await?;
        result.capabilities = with_ours(result.capabilities, Revision::R2026_07_28);
        Ok(result)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.live(&context);
        let mut result = ListResourcesResult::default();
        if declares(&*self.inner, Part::Resources) {
            result = self.inner.list_resources(request.clone(), context).await?;
        }
        if is_whole(request.as_ref(), result.next_cursor.as_ref()) {
            self.observe(Part::Resources, &as_json(&result.resources)).await?;
        }
        let uris: Vec<String> = result.resources.iter().map(|item| item.uri.clone()).collect();
        let etags = self.etags(&uris).await?;
        for (item, etag) in result.resources.iter_mut().zip(etags) {
            if let Some(etag) = etag {
                let meta = item.meta.get_or_insert_default();
                meta.0.extend(convert::etag_meta(etag).0);
            }
        }
        if result.next_cursor.is_none() {
            let known: HashSet<String> = result.resources.iter().map(|item| item.uri.clone()).collect();
            let ours = self.ours.all_resources().await?;
            let ours = ours.into_iter().filter(|item| !known.contains(&item.uri));
            result.resources.extend(ours);
        }
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.live(&context);
        let mut result = ListResourceTemplatesResult::default();
        if declares(&*self.inner, Part::Templates) {
            result = self
                .inner
                .list_resource_templates(request.clone(), context)
                .await?;
        }
        if is_whole(request.as_ref(), result.next_cursor.as_ref()) {
            self.observe(Part::Templates, &as_json(&result.resource_templates))
                .await?;
        }
        if result.next_cursor.is_none() {
            let ours = self.ours.bus.templates().await.map_err(error::stopping)?;
            let ours = ours.iter().map(|template| convert::template(template));
            result.resource_templates.extend(ours);
        }
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.live(&context);
        let Ok(uri) = ResourceUri::new(&request.uri) else {
            return self.inner.read_resource(request, context).await;
        };
        let before = self.wrap.etag(&uri).await.map_err(error::stopping)?;
        let read = match self.inner.read_resource(request.clone(), context.clone()).await {
            Ok(ReadResourceResponse::Complete(result)) => Ok(result),
            Ok(other) => return Ok(other),
            Err(refusal) => Err(refusal),
        };
        let learnt = self.wrap.learn(&uri, before, &read).await;
        let etag = learnt.map_err(|failure| error::list(&failure))?;
        match read {
            Ok(mut result) => {
                if let Some(meta) = etag.map(convert::etag_meta) {
                    result.meta.get_or_insert_default().0.extend(meta.0.clone());
                    let contents = result.contents.iter_mut();
                    contents.for_each(|contents| convert::add_meta(contents, &meta));
                }
                Ok(result.into())
            }
            // What the wrapped server does not have may be registered at the bus; what it fails at is its to say.
            Err(refusal) if self.wrap.has_seen(&uri).await => Err(refusal),
            Err(refusal) => match self.ours.read_resource(request, context).await {
                Ok(ReadResourceResponse::Complete(mut result)) => {
                    self.sign(&mut result.meta);
                    Ok(result.into())
                }
                other => other.map_err(|_| refusal),
            },
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        self.live(&context);
        let mut result = ListToolsResult::default();
        if declares(&*self.inner, Part::Tools) {
            result = self.inner.list_tools(request.clone(), context).await?;
        }
        if is_whole(request.as_ref(), result.next_cursor.as_ref()) {
            self.observe(Part::Tools, &as_json(&result.tools)).await?;
        }
        if result.next_cursor.is_none() {
            let known: HashSet<String> = result.tools.iter().map(|tool| tool.name.to_string()).collect();
            let max = self.ours.bus.limits().list_items_max;
            let ours = self.ours.bus.tools(None, max).await.map_err(error::stopping)?;
            let ours = ours.items.iter().filter(|tool| !known.contains(tool.name()));
            result.tools.extend(ours.filter_map(|tool| convert::tool(tool)));
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let live = self.live(&context);
        if self.is_ours(Part::Tools, &request.name, &live).await? {
            return self.call_ours(request, context).await;
        }
        self.inner.call_tool(request, context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.live(&context);
        let mut result = ListPromptsResult::default();
        if declares(&*self.inner, Part::Prompts) {
            result = self.inner.list_prompts(request.clone(), context).await?;
        }
        if is_whole(request.as_ref(), result.next_cursor.as_ref()) {
            self.observe(Part::Prompts, &as_json(&result.prompts)).await?;
        }
        if result.next_cursor.is_none() {
            let known: HashSet<String> = result.prompts.iter().map(|prompt| prompt.name.clone()).collect();
            let max = self.ours.bus.limits().list_items_max;
            let ours = self.ours.bus.prompts(None, max).await.map_err(error::stopping)?;
            let ours = ours.items.iter().filter(|prompt| !known.contains(prompt.name()));
            let ours = ours.filter_map(|prompt| convert::prompt(prompt));
            result.prompts.extend(ours);
        }
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let live = self.live(&context);
        if !self.is_ours(Part::Prompts, &request.name, &live).await? {
            return self.inner.get_prompt(request, context).await;
        }
        let mut answer = self.ours.get_prompt(request, context).await?;
        if let GetPromptResponse::Complete(result) = &mut answer {
            self.sign(&mut result.meta);
        }
        Ok(answer)
    }

    #[expect(deprecated, reason = "the older revisions have no other subscription")]
    async fn subscribe(&self, request: SubscribeRequestParams, context: Context) -> Result<(), ErrorData> {
        let live = self.live(&context);
        self.ensure(&live, std::slice::from_ref(&request.uri)).await?;
        self.ours.subscribe(request.clone(), context.clone()).await?;
        let theirs = if_there_is(self.inner.subscribe(request.clone(), context.clone()).await);
        if theirs.is_err() {
            let request = UnsubscribeRequestParams::new(request.uri);
            self.ours.unsubscribe(request, context).await?;
        }
        theirs
    }

    #[expect(deprecated, reason = "the older revisions have no other subscription")]
    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        self.ours.unsubscribe(request.clone(), context.clone()).await?;
        if_there_is(self.inner.unsubscribe(request, context).await)
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.acknowledge(requested);
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut filter = context.accepted().clone();
        let uris = filter.resource_subscriptions.clone().unwrap_or_default();
        let stood = self.acknowledged(context.requested());
        // First of all: rmcp has acknowledged already, so what changes from here on must be told.
        let begun = self.etags(&uris).await?;
        let live = self.live(context.request_context());
        // One that cannot be read is left out by the bus, like any that it does not know.
        self.ensure(&live, &uris).await?;
        // What the lists are now is what this stream starts from, and no change.
        let learnt = self.wrap.learn_lists(&live).await;
        learnt.map_err(|failure| error::list(&failure))?;
        let begun = uris.into_iter().zip(begun).collect();
        let (listening, missed) = self.open(&mut filter, stood, &begun).await?;
        for notification in missed {
            if context.sink().send(notification).await.is_err() {
                return Ok(());
            }
        }
        listening.run(&context).await
    }

    async fn ping(&self, context: Context) -> Result<(), ErrorData> {
        self.inner.ping(context).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        self.inner.complete(request, context).await
    }

    #[expect(deprecated, reason = "the older revisions have logging")]
    async fn set_level(&self, request: SetLevelRequestParams, context: Context) -> Result<(), ErrorData> {
        let ours = self.ours.set_level(request.clone(), context.clone()).await;
        match self.inner.set_level(request, context).await {
            // The wrapped server does not log, but tools of the bus may.
            Err(refusal) if refusal.code == ErrorCode::METHOD_NOT_FOUND => ours,
            answer => answer,
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.inner.get_tool(name)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: Context,
    ) -> Result<CustomResult, ErrorData> {
        self.inner.on_custom_request(request, context).await
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        context: NotificationContext<RoleServer>,
    ) {
        self.inner.on_cancelled(notification, context).await;
    }

    async fn on_progress(
        &self,
        notification: ProgressNotificationParam,
        context: NotificationContext<RoleServer>,
    ) {
        self.inner.on_progress(notification, context).await;
    }

    async fn on_roots_list_changed(&self, context: NotificationContext<RoleServer>) {
        self.inner.on_roots_list_changed(context).await;
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        context: NotificationContext<RoleServer>,
    ) {
        self.inner.on_custom_notification(notification, context).await;
    }

    async fn get_task(&self, request: GetTaskParams, context: Context) -> Result<GetTaskResult, ErrorData> {
        self.inner.get_task(request, context).await
    }

    async fn update_task(&self, request: UpdateTaskParams, context: Context) -> Result<(), ErrorData> {
        self.inner.update_task(request, context).await
    }

    async fn cancel_task(&self, request: CancelTaskParams, context: Context) -> Result<(), ErrorData> {
        self.inner.cancel_task(request, context).await
    }

    async fn list_skills(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListSkillsResult, ErrorData> {
        self.inner.list_skills(request, context).await
    }

    async fn get_skill(
        &self,
        request: GetSkillRequestParams,
        context: Context,
    ) -> Result<GetSkillResult, ErrorData> {
        self.inner.get_skill(request, context).await
    }

    async fn read_resource_directory(
        &self,
        request: ReadResourceDirectoryRequestParams,
        context: Context,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        self.inner.read_resource_directory(request, context).await
    }
}
