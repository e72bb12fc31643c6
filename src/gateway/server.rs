//! The server behind the gateway as one client is served it: every request is forwarded.

#![expect(
    deprecated,
    reason = "rmcp marks logging for a later revision; all five of ours have it"
)]

use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};

use super::capabilities::{self, client_of, is_stateless};
use super::connect::Handshake;
use super::connection::Connection;
use super::failure::{self, Failure};
use super::lists::{self, Page};
use super::options::Isolation;
use super::parked::{self, ParkedCall};
use super::relay::{Relayed, relay};
use super::road::Road;
use super::rounds;
use super::speakers::{ClientKey, Speaker};
use super::upstream::Upstream;

type Context = RequestContext<RoleServer>;

/// The server behind the gateway, as one client is served it.
pub(crate) struct UpstreamServer {
    upstream: Arc<Upstream>,
    /// The connection of a client with a session, from its first call on.
    own: tokio::sync::Mutex<Option<Arc<Speaker>>>,
    /// The log level that the client has set.
    level: Mutex<Option<LoggingLevel>>,
}

/// A request that the server may answer with a question.
#[derive(Clone)]
enum Exchange {
    Tool(CallToolRequestParams),
    Prompt(GetPromptRequestParams),
    Resource(ReadResourceRequestParams),
}

impl Exchange {
    fn request(&self) -> ClientRequest {
        match self.clone() {
            Exchange::Tool(params) => ClientRequest::CallToolRequest(CallToolRequest::new(params)),
            Exchange::Prompt(params) => ClientRequest::GetPromptRequest(GetPromptRequest::new(params)),
            Exchange::Resource(params) => {
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
            }
        }
    }

    fn parts(&mut self) -> (&mut Option<InputResponses>, &mut Option<String>) {
        match self {
            Exchange::Tool(params) => (&mut params.input_responses, &mut params.request_state),
            Exchange::Prompt(params) => (&mut params.input_responses, &mut params.request_state),
            Exchange::Resource(params) => (&mut params.input_responses, &mut params.request_state),
        }
    }
}

impl UpstreamServer {
    pub(super) fn new(upstream: Arc<Upstream>) -> UpstreamServer {
        UpstreamServer {
            upstream,
            own: tokio::sync::Mutex::default(),
            level: Mutex::default(),
        }
    }

    /// Returns the connection for a request that may leave a state behind, or be asked back.
    async fn road(&self, context: &Context) -> Result<Road, ErrorData> {
        let watcher = self.upstream.connection().await?;
        if matches!(
            self.upstream.options().isolation,
            Isolation::Shared | Isolation::Sole
        ) {
            return Ok(Road::Watcher(watcher));
        }
        if is_stateless(context) {
            if self.upstream.shares_calls(&watcher) {
                return Ok(Road::Watcher(watcher));
            }
            return self.lease(context).await.map(Road::Leased);
        }
        // A server of several eras is spoken to in that of the client.
        if self.upstream.shares_calls(&watcher) && self.upstream.refuses_initialize() {
            return Ok(Road::Watcher(watcher));
        }
        match self.own_speaker(context).await {
            Ok(speaker) => Ok(Road::Own(speaker)),
            Err(error) if self.upstream.shares_calls(&watcher) && !failure::is_limit(&error) => {
                self.upstream.note_refused_initialize();
                Ok(Road::Watcher(watcher))
            }
            Err(error) => Err(error),
        }
    }

    async fn lease(&self, context: &Context) -> Result<Speaker, ErrorData> {
        let key = ClientKey::of(context);
        let speakers = &self.upstream.speakers;
        match speakers.take_idle(&key) {
            Some(speaker) => Ok(speaker),
            None => {
                let client = client_of(context);
                speakers
                    .open(&self.upstream, &key, client, Handshake::Newest)
                    .await
            }
        }
    }

    /// Returns the connection of a client with a session; made anew if it has ended.
    async fn own_speaker(&self, context: &Context) -> Result<Arc<Speaker>, ErrorData> {
        let mut own = self.own.lock().await;
        let mut is_another = false;
        if let Some(speaker) = &*own {
            if !speaker.connection.lost().is_set() {
                return Ok(speaker.clone());
            }
            is_another = true;
            // Its place is free before the next one is taken.
            *own = None;
        }
        let version = context.protocol_version();
        let handshake = Handshake::Initialize(version.unwrap_or(ProtocolVersion::LATEST_WITH_INITIALIZE));
        let key = ClientKey::of(context);
        let speakers = &self.upstream.speakers;
        let speaker = speakers
            .open(&self.upstream, &key, client_of(context), handshake)
            .await?;
        let speaker = Arc::new(speaker);
        *own = Some(speaker.clone());
        drop(own);
        if let Some(level) = self.level() {
            set_level(&speaker.connection, level).await;
        }
        if is_another {
            tell_lost_state(context).await;
        }
        Ok(speaker)
    }

    /// Returns the connection of a client with a session, if it has one now.
    async fn opened_speaker(&self) -> Option<Arc<Speaker>> {
        self.own.lock().await.clone()
    }

    fn level(&self) -> Option<LoggingLevel> {
        *self.level.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forwards a request that the server answers at once.
    async fn forward(&self, request: ClientRequest, context: &Context) -> Result<ServerResult, ErrorData> {
        let road = self.road(context).await?;
        self.send(road, request, context).await
    }

    /// Forwards a call, and the questions that the server has meanwhile.
    async fn converse(&self, mut exchange: Exchange, context: &Context) -> Result<ServerResult, ErrorData> {
        if let (responses, Some(state)) = exchange.parts()
            && is_stateless(context)
        {
            let key = ClientKey::of(context);
            match self.upstream.parked.resume(state, &key) {
                Some(parked) => return self.resume(parked, responses.take(), context).await,
                // The state is the server's own where the revision has it.
                None if !self.upstream.connection().await?.is_stateless() => {
                    return Err(Failure::Expired.answer());
                }
                None => {}
            }
        }
        for _ in 0..rounds::ROUNDS_MAX {
            let road = match &exchange {
                Exchange::Resource(_) => Road::Watcher(self.upstream.connection().await?),
                Exchange::Tool(_) | Exchange::Prompt(_) => self.road(context).await?,
            };
            let required = match self.send(road, exchange.request(), context).await? {
                ServerResult::InputRequiredResult(required) if !is_stateless(context) => required,
                answer => return Ok(answer),
            };
            let input = rounds::ask(&required, context).await?;
            let (responses, state) = exchange.parts();
            *responses = Some(input);
            *state = required.request_state;
        }
        Err(ErrorData::internal_error(
            format!("the server asked for input in {} rounds", rounds::ROUNDS_MAX),
            None,
        ))
    }

    async fn send(
        &self,
        road: Road,
        request: ClientRequest,
        context: &Context,
    ) -> Result<ServerResult, ErrorData> {
        let Ok(_place) = self.upstream.places.clone().try_acquire_owned() else {
            return Err(Failure::TooManyCalls.answer());
        };
        let metrics = self.upstream.metrics();
        let _in_flight = InFlight::new(metrics.in_flight.clone());
        let began = std::time::Instant::now();
        let connection = road.connection();
        let meta = capabilities::meta_for(context, connection.is_stateless());
        let timeout = self.upstream.options().call_timeout;
        let call = match connection.begin(request, meta, timeout).await {
            Ok(call) => call,
            Err(error) => return Err(failure::answer_of(error)),
        };
        let relayed = relay(call, context, self.upstream.may_ask(&road), metrics).await;
        metrics.call_time.record(began.elapsed());
        self.settle(road, relayed, context)
    }

    /// Goes on with a call that waited for input.
    async fn resume(
        &self,
        parked: ParkedCall,
        responses: Option<InputResponses>,
        context: &Context,
    ) -> Result<ServerResult, ErrorData> {
        let answer = parked::answer(&parked.asked.request, responses.as_ref());
        let refused = answer.clone().err();
        if parked.asked.reply.send(answer).is_err() {
            return Err(Failure::Expired.answer());
        }
        // The server was told, too, so that its call ends.
        if let Some(refusal) = refused {
            return Err(refusal);
        }
        let relayed = relay(parked.call, context, true, self.upstream.metrics()).await;
        self.settle(parked.road, relayed, context)
    }

    /// Returns the answer for the client, and gives the connection back.
    fn settle(&self, road: Road, relayed: Relayed, context: &Context) -> Result<ServerResult, ErrorData> {
        match (relayed, road) {
            (Relayed::Answered(Ok(result)), Road::Leased(speaker)) => {
                let key = ClientKey::of(context);
                self.upstream.speakers.give_back(key, speaker);
                Ok(result)
            }
            // A leased connection whose call was cut short may still be busy with it: it is not given back.
            (Relayed::Answered(answer), _) => answer,
            (Relayed::Asked(call, asked), road) => {
                let parked = ParkedCall {
                    call,
                    asked,
                    road,
                    key: ClientKey::of(context),
                };
                let required = self.upstream.parked.park(parked)?;
                Ok(ServerResult::InputRequiredResult(required))
            }
        }
    }
}

/// Counts a request while it is under way.
struct InFlight(metrics::Gauge);

impl InFlight {
    fn new(gauge: metrics::Gauge) -> InFlight {
        gauge.increment(1);
        InFlight(gauge)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

async fn set_level(connection: &Connection, level: LoggingLevel) {
    let request = ClientRequest::SetLevelRequest(SetLevelRequest::new(SetLevelRequestParams::new(level)));
    if let Err(error) = connection.peer().send_request(request).await {
        tracing::debug!(%error, "the log level of a client could not be set");
    }
}

/// Tells a client that a new connection took the place of its last one.
async fn tell_lost_state(context: &Context) {
    let text = "the server behind the gateway was started anew; the state of this session there is lost";
    let message = LoggingMessageNotificationParam::new(LoggingLevel::Warning, text.into());
    let message = LoggingMessageNotification::new(message);
    let notice = ServerNotification::LoggingMessageNotification(message);
    if let Err(error) = context.peer.send_notification(notice).await {
        tracing::debug!(%error, "a client could not be told that its state is lost");
    }
}

/// Returns the result of the kind that the method has.
macro_rules! expect_result {
    ($result:expr, $($variant:ident)|+) => {
        match $result {
            $(ServerResult::$variant(result) => Ok(result.into()),)+
            _ => Err(Failure::Unexpected.answer()),
        }
    };
}

impl ServerHandler for UpstreamServer {
    fn get_info(&self) -> InitializeResult {
        let known = self.upstream.info();
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
        Ok(ListResourcesResult::with_all_items(
            lists::resources(&self.upstream).await?,
        ))
    }

    async fn list_resource_templates(
        &self,
        page: Page,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        lists::refuse_cursor(page)?;
        Ok(ListResourceTemplatesResult::with_all_items(
            lists::templates(&self.upstream).await?,
        ))
    }

    async fn list_tools(&self, page: Page, _: Context) -> Result<ListToolsResult, ErrorData> {
        lists::refuse_cursor(page)?;
        let tools = lists::tools(&self.upstream).await?;
        self.upstream.listed_tools(&tools);
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.upstream.tool(name)
    }

    async fn list_prompts(&self, page: Page, _: Context) -> Result<ListPromptsResult, ErrorData> {
        lists::refuse_cursor(page)?;
        Ok(ListPromptsResult::with_all_items(
            lists::prompts(&self.upstream).await?,
        ))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.clone();
        let exchange = Exchange::Resource(request);
        let mut answer = self.converse(exchange.clone(), &context).await;
        // A read changes nothing, so it may be made twice.
        if let Err(error) = &answer
            && failure::is_restart(error)
        {
            answer = self.converse(exchange, &context).await;
        }
        match answer {
            Ok(ServerResult::ReadResourceResult(result)) => Ok(result.into()),
            Ok(ServerResult::InputRequiredResult(result)) => Ok(ReadResourceResponse::InputRequired(result)),
            Ok(_) => Err(Failure::Unexpected.answer()),
            Err(mut error) => {
                // Many servers have one code for this and for wrong parameters, as 2026-07-28 has; rmcp makes it
                // again from the older one for a client of that revision. The URI is the only parameter; a server
                // without resources has none of that URI either.
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
        match self.converse(Exchange::Tool(request), &context).await? {
            ServerResult::CallToolResult(result) => Ok(CallToolResponse::Complete(result)),
            ServerResult::InputRequiredResult(result) => Ok(CallToolResponse::InputRequired(result)),
            ServerResult::CreateTaskResult(result) => Ok(CallToolResponse::Task(result)),
            _ => Err(Failure::Unexpected.answer()),
        }
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        match self.converse(Exchange::Prompt(request), &context).await? {
            ServerResult::GetPromptResult(result) => Ok(GetPromptResponse::Complete(result)),
            ServerResult::InputRequiredResult(result) => Ok(GetPromptResponse::InputRequired(result)),
            _ => Err(Failure::Unexpected.answer()),
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
        if self.upstream.info().capabilities.logging.is_none() {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(request.level);
        if let Some(speaker) = self.opened_speaker().await {
            set_level(&speaker.connection, request.level).await;
        }
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
            Err(_) => Err(Failure::Unexpected.answer()),
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
