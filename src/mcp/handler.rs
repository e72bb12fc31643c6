//! rmcp's `ServerHandler` over the bus: one method per request, each a call of the module that answers it.
//!
//! The handler keeps no state of its own. A client's session is found beside its request (HTTP) or in the
//! connection (stdio).

use std::sync::Arc;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams, CompleteResult,
    CustomRequest, CustomResult, ErrorCode, Extensions, GetPromptRequestParams, GetPromptResponse,
    InitializeRequestParams, InitializeResult, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ReadResourceResult, ServerCapabilities, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};

use super::handlers::guarded;
use super::listen::{ListenCheck, ListenPump};
use super::lists::{self, ListRequest, ResultHints};
use super::revision::Revision;
use super::running_calls::{CallCancellation, RunningCall};
use super::session::{McpContext, McpSession, SessionLifetime, SessionSlot};
use super::subscribe_result::CurrentEtag;
use super::tool_report::Reporter;
use super::{convert, error, known, params, tools};
use crate::auth::{Caller, Object, Right};
use crate::{ResourceUri, SubscribeError, SubscriptionRequest};

type Context = RequestContext<RoleServer>;

/// The place for the session that an `initialize` opens, and its caller.
pub(crate) struct Opening {
    slot: SessionSlot,
    caller: Caller,
}

/// Answers one client's requests.
#[derive(Clone)]
pub struct Handler {
    pub(crate) server: McpContext,
    /// The session of a connection that has only one (stdio); on HTTP the request names it.
    pub(crate) own_session: Option<SessionSlot>,
}

impl Handler {
    /// Returns the session of a connection that has only one, once it is open.
    pub(crate) fn opened_session(&self) -> Option<&Arc<McpSession>> {
        self.own_session.as_ref()?.get()
    }

    /// Returns the session of a request.
    pub(crate) fn session(&self, context: &Context) -> Result<Arc<McpSession>, ErrorData> {
        let own = self.opened_session().cloned();
        let session = own.or_else(|| extension::<Arc<McpSession>>(context));
        session.ok_or_else(|| ErrorData::invalid_request("there is no session; send initialize first", None))
    }

    /// Returns the caller of a request: the one that its transport let in.
    pub(crate) fn caller(&self, context: &Context) -> Caller {
        let caller = extension::<Caller>(context);
        caller.unwrap_or_else(|| self.server.caller.next_request())
    }

    /// Opens the session of `caller` and leaves it in `slot`.
    async fn open_into(
        &self,
        slot: &SessionSlot,
        revision: Revision,
        caller: &Caller,
        client: &str,
    ) -> Result<Arc<McpSession>, ErrorData> {
        let lifetime = match self.own_session {
            Some(_) => SessionLifetime::Connection,
            None => SessionLifetime::Limited,
        };
        let session = self
            .server
            .open_session(revision, lifetime, caller, client)
            .await?;
        if slot.set(session.clone()).is_err() {
            let text = "the connection is initialized already";
            return Err(ErrorData::invalid_request(text, None));
        }
        Ok(session)
    }

    /// Returns the place for the session that an `initialize` opens, and its caller.
    ///
    /// # Errors
    /// A connection that cannot hold a session.
    pub(crate) fn opening(&self, context: &Context) -> Result<Opening, ErrorData> {
        let own = self.own_session.clone();
        let Some(slot) = own.or_else(|| extension::<SessionSlot>(context)) else {
            return Err(ErrorData::internal_error(
                "the connection cannot hold a session",
                None,
            ));
        };
        let caller = self.caller(context);
        Ok(Opening { slot, caller })
    }

    /// Opens the session of a client of this name. Returns it.
    pub(crate) async fn open(
        &self,
        opening: &Opening,
        revision: Revision,
        client: &str,
    ) -> Result<Arc<McpSession>, ErrorData> {
        self.open_into(&opening.slot, revision, &opening.caller, client)
            .await
    }

    /// Starts to send notifications to a client that is ready: through rmcp, if the connection has only one
    /// session, and else by the streams of the session that came beside the notification.
    pub(crate) async fn start(&self, peer: Peer<RoleServer>, extensions: &Extensions) {
        if let Some(session) = self.opened_session() {
            session
                .start_pump(peer, self.server.write_progress.as_ref())
                .await;
        } else if let Some(session) = beside::<Arc<McpSession>>(extensions)
            && session.session.ready().await.is_err()
        {
            tracing::debug!("a session ended before its client was ready");
        }
    }

    /// Adds a call to those that its session over HTTP can cancel; elsewhere there is none.
    pub(crate) fn running_call(&self, context: &Context) -> Option<RunningCall> {
        let cancellation = extension::<CallCancellation>(context)?;
        let session = self.session(context).ok()?;
        Some(RunningCall::begin(session, context.id.clone(), cancellation))
    }

    /// Returns true when the transport has opened the stream of a listen request, or only has it checked.
    pub(crate) fn narrowed(&self, context: &SubscriptionContext) -> bool {
        let request = context.request_context();
        extension::<Arc<ListenPump>>(request).is_some() || extension::<ListenCheck>(request).is_some()
    }

    fn list(&self, request: Option<PaginatedRequestParams>, context: &Context) -> ListRequest {
        ListRequest {
            page: request,
            hints: self.hints(context),
            audience: self.caller(context).audience(),
        }
    }

    fn hints(&self, context: &Context) -> ResultHints {
        ResultHints::new(&self.server, revision(context).is_stateless())
    }
}

/// Returns the revision that a request belongs to.
fn revision(context: &Context) -> Revision {
    Revision::negotiated(context.protocol_version().as_ref())
}

/// Returns a value that the transport put beside the request.
fn extension<T: Clone + Send + Sync + 'static>(context: &Context) -> Option<T> {
    beside(&context.extensions)
}

/// Returns the caller of a message, as its transport let it in.
pub(crate) fn caller_beside(extensions: &Extensions) -> Option<Caller> {
    beside(extensions)
}

/// Returns a value that the transport put beside a message.
fn beside<T: Clone + Send + Sync + 'static>(extensions: &Extensions) -> Option<T> {
    let direct = extensions.get::<T>();
    let parts = extensions.get::<::http::request::Parts>();
    direct.or_else(|| parts?.extensions.get::<T>()).cloned()
}

fn capabilities(revision: Revision) -> ServerCapabilities {
    let mut capabilities = ServerCapabilities::default();
    revision.declare_capabilities(&mut capabilities);
    capabilities
}

fn resource_uri(text: &str) -> Result<ResourceUri, ErrorData> {
    ResourceUri::new(text).map_err(|invalid| error::subscribe(&invalid.into()))
}

impl ServerHandler for Handler {
    fn get_info(&self) -> InitializeResult {
        let mut info = InitializeResult::new(capabilities(Revision::STATELESS));
        info.server_info = self.server.server_info();
        info.instructions
            .clone_from(&self.server.options.mcp.instructions);
        info
    }

    async fn initialize(
        &self,
        mut request: InitializeRequestParams,
        context: Context,
    ) -> Result<InitializeResult, ErrorData> {
        let mut info = self.negotiate_initialize(&request)?;
        let revision = Revision::negotiated(Some(&info.protocol_version));
        // `get_info` declares those of 2026-07-28, since it does not know the revision.
        info.capabilities = capabilities(revision);
        // Later requests of this connection take their revision from here.
        request.protocol_version = info.protocol_version.clone();
        let client = request.client_info.name.clone();
        context.peer.set_peer_info(request);
        let opening = self.opening(&context)?;
        self.open(&opening, revision, &client).await?;
        Ok(info)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // On HTTP the endpoint handles this notification itself: rmcp has no session to pass it to.
        self.start(context.peer, &context.extensions).await;
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        let list = self.list(request, &context);
        lists::list_resources(&self.server, list).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let list = self.list(request, &context);
        lists::list_templates(&self.server, list).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let caller = self.caller(&context);
        let bus = &self.server.bus;
        let timeout = self.server.options.mcp.handler_timeout;
        bus.until_latest()
            .await
            .map_err(|behind| error::not_latest(&behind))?;
        let read = guarded(timeout, || caller.read(bus, &request.uri)).await?;
        let snapshot = read.map_err(|failure| error::read(&failure))?;
        let hints = self.hints(&context);
        let mut meta = convert::etag_meta(snapshot.etag);
        meta.0.extend(hints.meta.unwrap_or_default().0);
        let mut result = ReadResourceResult::new(vec![convert::contents(snapshot)]);
        result.meta = Some(meta);
        result.ttl_ms = hints.ttl_ms;
        result.cache_scope = hints.cache_scope;
        Ok(result.into())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let list = self.list(request, &context);
        lists::list_tools(&self.server, list).await
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let hints = self.hints(&context);
        let session = self.session(&context).ok();
        let running = self.running_call(&context);
        let caller = self.caller(&context);
        // Held until the call has ended.
        let _place = self.server.tool_place(&caller)?;
        let reporter = Reporter::new(context, session, running);
        let mut result = tools::call_tool(&self.server, request, &reporter, &caller).await?;
        result.meta = hints.meta;
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        let list = self.list(request, &context);
        lists::list_prompts(&self.server, list).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let caller = self.caller(&context);
        let mut result = tools::get_prompt(&self.server, request, &caller).await?;
        result.meta = self.hints(&context).meta;
        Ok(result.into())
    }

    #[expect(
        deprecated,
        reason = "rmcp marks logging for a later revision; all five of ours have it"
    )]
    async fn set_level(
        &self,
        request: rmcp::model::SetLevelRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        if revision(&context).is_stateless() {
            // There each request names its own level.
            return Err(ErrorData::method_not_found::<rmcp::model::SetLevelRequestMethod>());
        }
        let session = self.session(&context)?;
        session.log_threshold.set(convert::log_level(request.level));
        session.save_soon();
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: Context,
    ) -> Result<CustomResult, ErrorData> {
        // rmcp treats a request whose parameters it cannot read as one of an unknown method.
        let unread = params::unread(&request.method, revision(&context).is_stateless());
        Err(unread.unwrap_or_else(|| ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)))
    }

    async fn complete(&self, _: CompleteRequestParams, _: Context) -> Result<CompleteResult, ErrorData> {
        // rmcp would answer an empty list, which looks like a capability that the server does not have.
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn subscribe(&self, request: SubscribeRequestParams, context: Context) -> Result<(), ErrorData> {
        let session = self.session(&context)?;
        let uri = resource_uri(&request.uri)?;
        let object = Object::Resource(uri.as_str());
        if self.caller(&context).may(Right::Subscribe, object).is_err() {
            return Err(error::subscribe(&SubscribeError::NotFound(uri)));
        }
        // rmcp has taken the metadata out of the parameters.
        let known = known::known_etag(&context.meta)?;
        let wants_current = known.is_some();
        let request = SubscriptionRequest { uri, known };
        let answers = session.session.subscribe_from(vec![request]).await;
        for answer in answers.map_err(error::stopping)? {
            let etag = answer.map_err(|refusal| error::subscribe(&refusal))?;
            if wants_current && let Some(current) = extension::<CurrentEtag>(&context) {
                current.set(etag);
            }
        }
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: Context,
    ) -> Result<(), ErrorData> {
        let session = self.session(&context)?;
        let uri = resource_uri(&request.uri)?;
        // Not an error without a subscription: the client has the state that it asked for.
        session.session.unsubscribe(uri).await.map_err(error::stopping)?;
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // On stdio the request was narrowed before rmcp saw it; on HTTP rmcp's acknowledgement is not sent.
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        if extension::<ListenCheck>(context.request_context()).is_some() {
            return Ok(());
        }
        match extension::<Arc<ListenPump>>(context.request_context()) {
            Some(stream) => stream.run(&context).await,
            None => Err(ErrorData::internal_error(
                "the connection cannot hold a stream",
                None,
            )),
        }
    }
}
