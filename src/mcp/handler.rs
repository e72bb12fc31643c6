//! rmcp's `ServerHandler` over the bus: what each request of each revision asks the bus, and what it is answered.
//!
//! Owns: the answers. Never: keeps state of its own; a client's session stands beside it, found in the request (HTTP)
//! or in the connection (stdio). Receives requests that rmcp has parsed and validated; asks the bus.

use std::sync::{Arc, OnceLock};

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, CustomRequest, CustomResult, ErrorCode, GetPromptRequestParams, GetPromptResponse,
    Implementation, InitializeRequestParams, InitializeResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
    SubscribeRequestParams, SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::{Map, json};
use tokio::sync::watch;

use super::cursor::Cursor;
use super::frames::ETAG_META_KEY;
use super::listen::Listening;
use super::options::McpOptions;
use super::revision::Revision;
use super::stdio::pump;
use super::tool_report::{LogThreshold, Reporter};
use super::{convert, error};
use crate::metrics::McpMetrics;
use crate::{
    Bus, Descriptor, Etag, ListKind, ResourceUri, Session, SessionOptions, SubscriberKind, WriteProgress,
};

/// The `_meta` key under which a stateless result names its server (2026-07-28, basic/index).
pub(crate) const SERVER_INFO_META_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// The method by which a session says which log messages it wants.
const SET_LEVEL: &str = "logging/setLevel";

/// One client of an older revision.
#[derive(Debug)]
pub(crate) struct McpSession {
    /// Its session at the bus.
    pub(crate) session: Session,
    /// What was negotiated.
    pub(crate) revision: Revision,
    /// Which log messages its client wants.
    pub(crate) log: LogThreshold,
    pub(crate) metrics: McpMetrics,
    /// How far its pump is, for who waits until everything was told; not used where streams are ours.
    pub(crate) pump: Arc<watch::Sender<PumpStage>>,
}

/// How far the pump of a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PumpStage {
    /// The client has not said that it is ready, or what it is to be told is still being found out.
    Waiting,
    /// It tells.
    Telling,
    /// The session ended and was told everything, or the client is gone.
    Done,
}

/// Where `initialize` leaves the session it opened, for whoever carries the connection.
pub(crate) type Opened = Arc<OnceLock<Arc<McpSession>>>;

/// Answers one client's requests.
#[derive(Clone)]
pub(crate) struct Handler {
    pub(crate) bus: Bus,
    pub(crate) options: Arc<McpOptions>,
    /// What carries the connection, for labels.
    pub(crate) transport: &'static str,
    pub(crate) metrics: McpMetrics,
    /// The session of a connection that has only one (stdio); on HTTP the request names it.
    pub(crate) opened: Option<Opened>,
    /// What the far end of that connection takes.
    pub(crate) flow: Option<Arc<WriteProgress>>,
}

impl Handler {
    pub(crate) fn server_info(&self) -> Implementation {
        Implementation::new(self.options.name.clone(), env!("CARGO_PKG_VERSION"))
    }

    fn session(&self, context: &RequestContext<RoleServer>) -> Result<Arc<McpSession>, ErrorData> {
        let own = self.opened.as_ref().and_then(|opened| opened.get().cloned());
        let session = own.or_else(|| extension::<Arc<McpSession>>(context));
        session.ok_or_else(|| ErrorData::invalid_request("there is no session; send initialize first", None))
    }

    /// Opens a session at the bus that is told of `lists` once its client is ready.
    async fn open(&self, revision: Revision, lists: Vec<ListKind>) -> Result<Arc<McpSession>, ErrorData> {
        let label = format!("{} {}", revision.as_str(), self.transport);
        let mut options = SessionOptions::new(SubscriberKind::Session, label);
        (options.protocol, options.transport) = (revision.as_str(), self.transport);
        if revision.tells_lists() {
            options.lists = lists;
        }
        options.announce = self.options.announce_on_connect;
        options.subscriptions_max = self.options.subscriptions_max;
        // A connection that has only one session is its own sign of life.
        if self.opened.is_none() {
            options.idle_timeout = Some(self.options.idle_timeout);
            options.stall_timeout = self.options.stall_timeout;
            options.age_max = self.options.age_max;
        }
        let session = self
            .bus
            .open(options)
            .await
            .map_err(|refusal| error::open(&refusal))?;
        Ok(Arc::new(McpSession {
            session,
            revision,
            log: LogThreshold::default(),
            metrics: self.metrics.clone(),
            pump: Arc::new(watch::Sender::new(PumpStage::Waiting)),
        }))
    }

    /// Opens the session of a connection that has only one.
    pub(crate) async fn begin(&self, revision: Revision, lists: Vec<ListKind>) -> Result<(), ErrorData> {
        let session = self.open(revision, lists).await?;
        match &self.opened {
            Some(opened) if opened.set(session).is_ok() => Ok(()),
            _ => Err(ErrorData::invalid_request(
                "the connection is initialized already",
                None,
            )),
        }
    }

    /// Feeds the client of a connection that has only one session from its outbox, until either is gone.
    pub(crate) async fn pump(&self, peer: Peer<RoleServer>) {
        let Some(session) = self.opened.as_ref().and_then(|opened| opened.get()) else {
            return;
        };
        // The reader first: what `ready` marks is then waiting for it.
        let reader = session.session.reader();
        if let Some(flow) = &self.flow {
            reader.counts(flow.clone());
        }
        let (stage, metrics) = (session.pump.clone(), self.metrics.clone());
        if session.session.ready().await.is_err() {
            stage.send_replace(PumpStage::Done);
            return;
        }
        stage.send_replace(PumpStage::Telling);
        // On its own: rmcp keeps the handler, and so the session, as long as this notification is being handled.
        tokio::spawn(async move {
            pump(reader, peer, &metrics).await;
            stage.send_replace(PumpStage::Done);
        });
    }

    /// Every listed resource of the bus, for those who list others before them.
    pub(crate) async fn all_resources(&self) -> Result<Vec<rmcp::model::Resource>, ErrorData> {
        let (mut items, mut cursor) = (Vec::new(), None);
        loop {
            let (page, next) = self.page(cursor).await?;
            items.extend(
                page.iter()
                    .map(|(descriptor, etag)| convert::resource(descriptor, *etag)),
            );
            if next.is_none() {
                return Ok(items);
            }
            cursor = next;
        }
    }

    /// What a result says beside its content on this revision.
    fn hints(&self, context: &RequestContext<RoleServer>) -> Hints {
        let stateless = Revision::of(context.protocol_version().as_ref()).is_stateless();
        if !stateless {
            return Hints {
                meta: None,
                ttl_ms: None,
                scope: None,
            };
        }
        let mut meta = MetaObject::default();
        meta.0
            .insert(SERVER_INFO_META_KEY.to_owned(), json!(self.server_info()));
        let cache = &self.options.cache;
        let scope = if cache.public {
            CacheScope::Public
        } else {
            CacheScope::Private
        };
        Hints {
            meta: Some(meta),
            ttl_ms: Some(cache.ttl.as_millis() as u64),
            scope: Some(scope),
        }
    }

    /// One page of resources: those registered, then the members that templates list.
    async fn page(
        &self,
        cursor: Option<Cursor>,
    ) -> Result<(Vec<(Descriptor, Etag)>, Option<Cursor>), ErrorData> {
        let size = self.options.page_size;
        let mut items = Vec::new();
        let after_member = match cursor {
            Some(Cursor::Member(after)) => after,
            other => {
                let after = other.and_then(|cursor| {
                    if let Cursor::Item(uri) = cursor {
                        Some(uri)
                    } else {
                        None
                    }
                });
                let page = self.bus.resources(after, size).await.map_err(error::stopping)?;
                items.extend(
                    page.items
                        .into_iter()
                        .map(|(resource, etag)| (resource.descriptor().clone(), etag)),
                );
                if let Some(next) = page.next {
                    return Ok((items, Some(Cursor::Item(next))));
                }
                None
            }
        };
        let mut members = self
            .bus
            .listed_members()
            .await
            .map_err(|failure| error::list(&failure))?;
        members.sort_by(|(a, _), (b, _)| a.uri.cmp(&b.uri));
        members.retain(|(member, _)| {
            after_member
                .as_deref()
                .is_none_or(|after| member.uri.as_str() > after)
        });
        let room = size - items.len();
        let more = members.len() > room;
        members.truncate(room);
        let last = members
            .last()
            .map(|(member, _)| member.uri.as_str().to_owned())
            .or(after_member);
        items.append(&mut members);
        Ok((items, more.then_some(Cursor::Member(last))))
    }
}

/// What results of 2026-07-28 say beside their content.
struct Hints {
    meta: Option<MetaObject>,
    ttl_ms: Option<u64>,
    scope: Option<CacheScope>,
}

/// A value that the carrier of the connection put beside the request.
fn extension<T: Clone + Send + Sync + 'static>(context: &RequestContext<RoleServer>) -> Option<T> {
    let direct = context.extensions.get::<T>();
    let parts = context.extensions.get::<::http::request::Parts>();
    direct.or_else(|| parts?.extensions.get::<T>()).cloned()
}

/// The cursor that a request names.
fn cursor(request: Option<PaginatedRequestParams>) -> Result<Option<Cursor>, ErrorData> {
    let Some(text) = request.and_then(|params| params.cursor) else {
        return Ok(None);
    };
    let known = Cursor::decode(&text);
    known
        .map(Some)
        .ok_or_else(|| error::invalid_params("invalid cursor; list again from the start"))
}

/// The name after which a page of tools or prompts begins.
fn name_after(request: Option<PaginatedRequestParams>) -> Result<Option<String>, ErrorData> {
    match cursor(request)? {
        None => Ok(None),
        Some(Cursor::Item(name)) => Ok(Some(name)),
        Some(Cursor::Member(_)) => Err(error::invalid_params("invalid cursor; list again from the start")),
    }
}

/// What the server can do for a client of this revision: only what it will really do.
fn capabilities(revision: Revision) -> ServerCapabilities {
    let list_changed = (revision.is_stateless() || revision.tells_lists()).then_some(true);
    let mut capabilities = ServerCapabilities::builder()
        .enable_resources()
        .enable_resources_subscribe()
        .enable_tools()
        .enable_prompts()
        .build();
    // Tools may log, whatever the publisher who brings them; which of them will is not known here.
    capabilities.logging = Some(Map::new());
    if let Some(resources) = &mut capabilities.resources {
        resources.list_changed = list_changed;
    }
    if let Some(tools) = &mut capabilities.tools {
        tools.list_changed = list_changed;
    }
    if let Some(prompts) = &mut capabilities.prompts {
        prompts.list_changed = list_changed;
    }
    if revision.is_stateless() {
        capabilities.extensions = Some([(ETAG_META_KEY.to_owned(), Map::new())].into());
    }
    capabilities
}

fn resource_uri(text: &str) -> Result<ResourceUri, ErrorData> {
    ResourceUri::new(text).map_err(|invalid| error::subscribe(&invalid.into()))
}

impl ServerHandler for Handler {
    fn get_info(&self) -> InitializeResult {
        let mut info = InitializeResult::new(capabilities(Revision::R2026_07_28));
        info.server_info = self.server_info();
        info.instructions.clone_from(&self.options.instructions);
        info
    }

    async fn initialize(
        &self,
        mut request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let mut info = self.negotiate_initialize(&request)?;
        let revision = Revision::of(Some(&info.protocol_version));
        info.capabilities = capabilities(revision);
        request.protocol_version = info.protocol_version.clone();
        context.peer.set_peer_info(request);
        let opened = self.opened.clone().or_else(|| extension::<Opened>(&context));
        let Some(opened) = opened else {
            return Err(ErrorData::internal_error(
                "the connection cannot hold a session",
                None,
            ));
        };
        if opened
            .set(self.open(revision, ListKind::ALL.to_vec()).await?)
            .is_err()
        {
            return Err(ErrorData::invalid_request(
                "the connection is initialized already",
                None,
            ));
        }
        Ok(info)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        // On HTTP the carrier of the connection handles this notification: rmcp has no session to hand it to.
        self.pump(context.peer).await;
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let (items, next) = self.page(cursor(request)?).await?;
        let items = items
            .iter()
            .map(|(descriptor, etag)| convert::resource(descriptor, *etag))
            .collect();
        let hints = self.hints(&context);
        let mut result = ListResourcesResult::with_all_items(items);
        result.next_cursor = next.map(|cursor| cursor.encode());
        (result.meta, result.ttl_ms, result.cache_scope) = (hints.meta, hints.ttl_ms, hints.scope);
        Ok(result)
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let after = name_after(request)?;
        let mut templates = self.bus.templates().await.map_err(error::stopping)?;
        templates.retain(|t| {
            after
                .as_deref()
                .is_none_or(|after| t.uri_template().as_str() > after)
        });
        let more = templates.len() > self.options.page_size;
        templates.truncate(self.options.page_size);
        let last = templates
            .last()
            .map(|template| template.uri_template().as_str().to_owned());
        let hints = self.hints(&context);
        let items = templates
            .iter()
            .map(|template| convert::template(template))
            .collect();
        let mut result = ListResourceTemplatesResult::with_all_items(items);
        result.next_cursor = last.filter(|_| more).map(|name| Cursor::Item(name).encode());
        (result.meta, result.ttl_ms, result.cache_scope) = (hints.meta, hints.ttl_ms, hints.scope);
        Ok(result)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let snapshot = self
            .bus
            .read(request.uri.as_str())
            .await
            .map_err(|failure| error::read(&failure))?;
        let hints = self.hints(&context);
        let mut meta = convert::etag_meta(snapshot.etag);
        meta.0.extend(hints.meta.unwrap_or_default().0);
        let mut result = ReadResourceResult::new(vec![convert::contents(snapshot)]);
        (result.meta, result.ttl_ms, result.cache_scope) = (Some(meta), hints.ttl_ms, hints.scope);
        Ok(result.into())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let after = name_after(request)?;
        let page = self
            .bus
            .tools(after, self.options.page_size)
            .await
            .map_err(error::stopping)?;
        let hints = self.hints(&context);
        let items = page.items.iter().filter_map(|tool| convert::tool(tool)).collect();
        let mut result = ListToolsResult::with_all_items(items);
        result.next_cursor = page.next.map(|name| Cursor::Item(name).encode());
        (result.meta, result.ttl_ms, result.cache_scope) = (hints.meta, hints.ttl_ms, hints.scope);
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = self.bus.tool(&request.name).await.map_err(error::stopping)?;
        let tool = tool.ok_or_else(|| {
            self.metrics.called_unknown_tool();
            error::invalid_params(format!("Unknown tool: {}", request.name))
        })?;
        let call = self.metrics.call_begins();
        let reporter = Reporter::new(context.clone(), self.session(&context).ok());
        let answer = tool
            .call(request.arguments.unwrap_or_default(), reporter.call_context())
            .await;
        reporter.end().await;
        call.ended(answer.is_ok());
        let mut result = convert::tool_result(answer);
        result.meta = self.hints(&context).meta;
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let after = name_after(request)?;
        let page = self
            .bus
            .prompts(after, self.options.page_size)
            .await
            .map_err(error::stopping)?;
        let hints = self.hints(&context);
        let items = page
            .items
            .iter()
            .filter_map(|prompt| convert::prompt(prompt))
            .collect();
        let mut result = ListPromptsResult::with_all_items(items);
        result.next_cursor = page.next.map(|name| Cursor::Item(name).encode());
        (result.meta, result.ttl_ms, result.cache_scope) = (hints.meta, hints.ttl_ms, hints.scope);
        Ok(result)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let prompt = self.bus.prompt(&request.name).await.map_err(error::stopping)?;
        let prompt =
            prompt.ok_or_else(|| error::invalid_params(format!("Unknown prompt: {}", request.name)))?;
        let arguments = request.arguments.unwrap_or_default();
        if let Some(missing) = prompt.missing_argument(&arguments) {
            return Err(error::invalid_params(format!(
                "prompt {} needs the argument {missing}",
                request.name
            )));
        }
        let rendered = prompt.render(arguments).await;
        let messages = rendered.map_err(|failure| ErrorData::internal_error(failure.to_string(), None))?;
        let mut result = convert::prompt_result(&prompt, messages);
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
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if Revision::of(context.protocol_version().as_ref()).is_stateless() {
            // There each request names its own level.
            return Err(ErrorData::method_not_found::<rmcp::model::SetLevelRequestMethod>());
        }
        let session = self.session(&context)?;
        session.log.set(convert::log_level(request.level));
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let stateless = Revision::of(context.protocol_version().as_ref()).is_stateless();
        if request.method == SET_LEVEL && !stateless {
            // rmcp takes a request whose parameters it cannot read for one of a method that it does not know.
            let names = "debug, info, notice, warning, error, critical, alert, emergency";
            return Err(error::invalid_params(format!(
                "{SET_LEVEL} needs params.level, one of {names}"
            )));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None))
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        // rmcp would answer an empty list, which looks like a capability that is not there.
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let session = self.session(&context)?;
        let uri = resource_uri(&request.uri)?;
        let answers = session
            .session
            .subscribe(vec![uri])
            .await
            .map_err(error::stopping)?;
        let refusal = answers.into_iter().find_map(Result::err);
        refusal.map_or(Ok(()), |refusal| Err(error::subscribe(&refusal)))
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let session = self.session(&context)?;
        let uri = resource_uri(&request.uri)?;
        // Ending what never was is no error: the client is where it wants to be.
        session.session.unsubscribe(uri).await.map_err(error::stopping)?;
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        // What arrives here was narrowed to what the bus honours before rmcp saw it (see `listen`).
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let listening = extension::<Arc<Listening>>(context.request_context());
        let Some(listening) = listening else {
            return Err(ErrorData::internal_error(
                "the connection cannot hold a stream",
                None,
            ));
        };
        listening.run(&context).await
    }
}
