//! The wrapped handler as rmcp sees it: the bus's part added, everything else forwarded.
//!
//! Owns: which request is whose. Never: keeps state beyond the client's own session.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;

use super::inner::{Part, as_json};
use super::{Wrap, kinds, with_ours};
use crate::mcp::handler::Handler;
use crate::mcp::listen::Listening;
use crate::mcp::wire::Revision;
use crate::mcp::{convert, error};
use crate::{Etag, ResourceUri};

/// A `ServerHandler` with a bus: serve it in place of the one it wraps, on any transport of rmcp.
///
/// It keeps all that the wrapped one does, and adds: `resources/subscribe` and `unsubscribe`, `subscriptions/listen`,
/// etags in `_meta` of reads and resource lists, the etag tools, list notifications by content, and whatever is
/// registered at the bus itself. On a transport of rmcp's own, `subscriptions/listen` is acknowledged as it was asked:
/// rmcp's hook for narrowing it can neither wait nor see the client.
pub struct Wrapped<H> {
    pub(super) inner: Arc<H>,
    pub(super) ours: Handler,
    pub(super) wrap: Wrap,
}

type Context = RequestContext<RoleServer>;

impl<H: ServerHandler> Wrapped<H> {
    fn remember(&self, context: &Context) {
        self.wrap.remember(&self.inner, &context.peer);
    }

    /// Whether the wrapped server declares a capability; one that does not is not asked.
    fn declares<T>(&self, pick: impl FnOnce(&ServerCapabilities) -> Option<T>) -> bool {
        pick(&self.inner.get_info().capabilities).is_some()
    }

    async fn etag_of(&self, uri: &str) -> Option<Etag> {
        let uri = ResourceUri::new(uri).ok()?;
        self.ours
            .bus
            .etags(vec![uri])
            .await
            .ok()?
            .first()
            .copied()
            .flatten()
    }

    /// Learns from a list that was answered whole.
    async fn observe(&self, part: Part, whole: bool, items: Vec<Value>) -> Result<(), ErrorData> {
        if !whole {
            return Ok(());
        }
        self.wrap
            .observe_list(part, &items)
            .await
            .map_err(|failure| error::list(&failure))
    }

    /// Makes sure that the bus knows the resources that arguments of an etag tool name.
    async fn ensure_named(&self, arguments: Option<&JsonObject>, context: &Context) {
        let Some(arguments) = arguments else { return };
        let items = arguments
            .get("items")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let named = items
            .filter_map(|item| item.get("uri"))
            .chain(arguments.get("uri"));
        for uri in named.filter_map(Value::as_str).take(self.ours.options.page_size) {
            if let Ok(uri) = ResourceUri::new(uri) {
                // A resource that cannot be read is unknown to the tool too, which says so.
                self.wrap.ensure(&uri, &context.peer).await.unwrap_or_default();
            }
        }
    }

    async fn ensure(&self, uri: &str, context: &Context) -> Result<(), ErrorData> {
        let uri = ResourceUri::new(uri).map_err(|invalid| error::subscribe(&invalid.into()))?;
        self.wrap
            .ensure(&uri, &context.peer)
            .await
            .map_err(|failure| error::list(&failure))?;
        Ok(())
    }
}

/// Takes "there is no such method" for "does nothing": the wrapped server leaves that part to the bus.
fn if_there_is(answer: Result<(), ErrorData>) -> Result<(), ErrorData> {
    match answer {
        Err(refusal) if refusal.code == ErrorCode::METHOD_NOT_FOUND => Ok(()),
        other => other,
    }
}

fn is_whole(request: Option<&PaginatedRequestParams>, next: Option<&String>) -> bool {
    request.is_none_or(|params| params.cursor.is_none()) && next.is_none()
}

impl<H: ServerHandler> ServerHandler for Wrapped<H> {
    fn get_info(&self) -> InitializeResult {
        let mut info = self.inner.get_info();
        info.capabilities = with_ours(info.capabilities, Revision::R2026_07_28);
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.inner.supported_protocol_versions()
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: Context,
    ) -> Result<InitializeResult, ErrorData> {
        self.remember(&context);
        let mut info = self.inner.initialize(request, context).await?;
        let revision = Revision::of(Some(&info.protocol_version));
        info.capabilities = with_ours(info.capabilities, revision);
        self.ours.begin(revision, kinds(&info.capabilities)).await?;
        Ok(info)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let peer = context.peer.clone();
        self.inner.on_initialized(context).await;
        // Lists first: what a new client is told of is what the server has now.
        if self.wrap.refresh_lists().await.is_ok() {
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
        self.remember(&context);
        let mut result = if self.declares(|capabilities| capabilities.resources.clone()) {
            self.inner
                .list_resources(request.clone(), context.clone())
                .await?
        } else {
            ListResourcesResult::default()
        };
        let whole = is_whole(request.as_ref(), result.next_cursor.as_ref());
        self.observe(Part::Resources, whole, as_json(&result.resources))
            .await?;
        for item in &mut result.resources {
            if let Some(etag) = self.etag_of(&item.uri).await {
                item.meta
                    .get_or_insert_default()
                    .0
                    .extend(convert::etag_meta(etag).0);
            }
        }
        if result.next_cursor.is_none() {
            let known: HashSet<String> = result.resources.iter().map(|item| item.uri.clone()).collect();
            let ours = self.ours.all_resources().await?;
            result
                .resources
                .extend(ours.into_iter().filter(|item| !known.contains(&item.uri)));
        }
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.remember(&context);
        let mut result = if self.declares(|capabilities| capabilities.resources.clone()) {
            self.inner
                .list_resource_templates(request.clone(), context)
                .await?
        } else {
            ListResourceTemplatesResult::default()
        };
        let whole = is_whole(request.as_ref(), result.next_cursor.as_ref());
        self.observe(Part::Templates, whole, as_json(&result.resource_templates))
            .await?;
        if result.next_cursor.is_none() {
            let ours = self.ours.bus.templates().await.map_err(error::stopping)?;
            result
                .resource_templates
                .extend(ours.iter().map(|template| convert::template(template)));
        }
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.remember(&context);
        let uri = request.uri.clone();
        let read = self.inner.read_resource(request.clone(), context.clone()).await;
        let result = match read {
            Ok(ReadResourceResponse::Complete(result)) => Ok(result),
            Ok(other) => return Ok(other),
            Err(refusal) => Err(refusal),
        };
        let Ok(uri) = ResourceUri::new(&uri) else {
            return result.map(Into::into);
        };
        let etag = self
            .wrap
            .observe_read(&uri, &result)
            .await
            .map_err(|failure| error::list(&failure))?;
        match result {
            Ok(mut result) => {
                if let Some(etag) = etag {
                    let meta = convert::etag_meta(etag);
                    result.meta.get_or_insert_default().0.extend(meta.0.clone());
                    result
                        .contents
                        .iter_mut()
                        .for_each(|contents| convert::add_meta(contents, &meta));
                }
                Ok(result.into())
            }
            // What the wrapped server does not have may be registered at the bus.
            Err(refusal) => self
                .ours
                .read_resource(request, context)
                .await
                .map_err(|_| refusal),
        }
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        self.remember(&context);
        let mut result = if self.declares(|capabilities| capabilities.tools.clone()) {
            self.inner.list_tools(request.clone(), context).await?
        } else {
            ListToolsResult::default()
        };
        let whole = is_whole(request.as_ref(), result.next_cursor.as_ref());
        self.observe(Part::Tools, whole, as_json(&result.tools)).await?;
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
        self.remember(&context);
        if self
            .ours
            .bus
            .tool(&request.name)
            .await
            .map_err(error::stopping)?
            .is_some()
        {
            self.ensure_named(request.arguments.as_ref(), &context).await;
            return self.ours.call_tool(request, context).await;
        }
        self.inner.call_tool(request, context).await
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.remember(&context);
        let mut result = self.inner.list_prompts(request.clone(), context).await?;
        let whole = is_whole(request.as_ref(), result.next_cursor.as_ref());
        self.observe(Part::Prompts, whole, as_json(&result.prompts))
            .await?;
        if result.next_cursor.is_none() {
            let known: HashSet<String> = result.prompts.iter().map(|prompt| prompt.name.clone()).collect();
            let max = self.ours.bus.limits().list_items_max;
            let ours = self.ours.bus.prompts(None, max).await.map_err(error::stopping)?;
            let ours = ours.items.iter().filter(|prompt| !known.contains(prompt.name()));
            result
                .prompts
                .extend(ours.filter_map(|prompt| convert::prompt(prompt)));
        }
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        if self
            .ours
            .bus
            .prompt(&request.name)
            .await
            .map_err(error::stopping)?
            .is_some()
        {
            return self.ours.get_prompt(request, context).await;
        }
        self.inner.get_prompt(request, context).await
    }

    #[expect(deprecated, reason = "the older revisions have no other subscription")]
    async fn subscribe(&self, request: SubscribeRequestParams, context: Context) -> Result<(), ErrorData> {
        self.remember(&context);
        if_there_is(self.inner.subscribe(request.clone(), context.clone()).await)?;
        self.ensure(&request.uri, &context).await?;
        self.ours.subscribe(request, context).await
    }

    #[expect(deprecated, reason = "the older revisions have no other subscription")]
    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        if_there_is(self.inner.unsubscribe(request.clone(), context.clone()).await)?;
        self.ours.unsubscribe(request, context).await
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let request = context.request_context();
        self.remember(request);
        self.wrap
            .refresh_lists()
            .await
            .map_err(|failure| error::list(&failure))?;
        let mut filter = context.accepted().clone();
        for uri in filter.resource_subscriptions.iter().flatten() {
            // One that cannot be read is left out by the bus, like any that it does not know.
            self.ensure(uri, request).await.unwrap_or_default();
        }
        Listening::open(&self.ours, &mut filter, false)
            .await?
            .run(&context)
            .await
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
