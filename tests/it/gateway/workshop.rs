//! A server of one revision with everything that a gateway has to carry: a note that changes, and tools that
//! report progress, wait, and ask their client.

#![expect(deprecated, reason = "the older revisions have sampling and subscriptions")]

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(super) const NOTE: &str = "note://a";

type Context = RequestContext<RoleServer>;

/// The state of the server, which the test controls and counts by.
pub(super) struct Workshop {
    revision: ProtocolVersion,
    text: watch::Sender<String>,
    subscribers: Mutex<Vec<Peer<RoleServer>>>,
    pub(super) subscriptions: AtomicUsize,
    pub(super) reads: AtomicUsize,
    pub(super) sessions: AtomicUsize,
    pub(super) running: watch::Sender<usize>,
    pub(super) cancelled: watch::Sender<usize>,
    /// Ends the listen streams that are open.
    ended: watch::Sender<()>,
    /// True if a tool is listed besides for every client, or for those without sampling; and the clients that
    /// are told when that changes.
    extra_for_all: AtomicBool,
    extra_for_some: AtomicBool,
    told: Mutex<Vec<Peer<RoleServer>>>,
    /// Tools that are listed besides, each time of other names; and those that were.
    pub(super) crowd: AtomicUsize,
    crowded: AtomicUsize,
}

impl Workshop {
    pub(super) fn new(revision: ProtocolVersion) -> Arc<Workshop> {
        Arc::new(Workshop {
            revision,
            text: watch::Sender::new("one".to_owned()),
            subscribers: Mutex::default(),
            subscriptions: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            sessions: AtomicUsize::new(0),
            running: watch::Sender::new(0),
            cancelled: watch::Sender::new(0),
            ended: watch::Sender::new(()),
            extra_for_all: AtomicBool::new(false),
            extra_for_some: AtomicBool::new(false),
            told: Mutex::default(),
            crowd: AtomicUsize::new(0),
            crowded: AtomicUsize::new(0),
        })
    }

    /// Ends the listen streams that are open.
    pub(super) fn end_streams(&self) {
        self.ended.send_replace(());
    }

    /// Serves it on a free port. Returns its address.
    pub(super) async fn serve(self: &Arc<Workshop>) -> (String, JoinHandle<()>) {
        let workshop = self.clone();
        let service = StreamableHttpService::new(
            move || Ok(Bench::new(workshop.clone())),
            Arc::new(LocalSessionManager::default()),
            StreamableHttpServerConfig::default(),
        );
        let app = axum::Router::new().route_service("/mcp", service);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move {
            axum::serve(listener, app).await.expect("served");
        });
        (url, serving)
    }

    /// Lists another tool without a word.
    pub(super) fn add_tool_in_silence(&self) {
        self.extra_for_all.store(true, Ordering::SeqCst);
    }

    /// Lists another tool, and tells every client.
    pub(super) async fn add_tool(&self) {
        self.add_tool_in_silence();
        self.tell_tools().await;
    }

    /// Lists another tool for clients without sampling, and tells every client.
    pub(super) async fn add_tool_for_some(&self) {
        self.extra_for_some.store(true, Ordering::SeqCst);
        self.tell_tools().await;
    }

    async fn tell_tools(&self) {
        let told = self.told.lock().unwrap().clone();
        for peer in told {
            // The session may have ended.
            peer.notify_tool_list_changed().await.ok();
        }
    }

    /// Changes the note without a word.
    pub(super) fn write(&self, text: &str) {
        self.text.send_if_modified(|held| {
            text.clone_into(held);
            false
        });
    }

    /// Changes the note, and announces that so many times.
    pub(super) async fn change(&self, text: &str, notices: usize) {
        self.text.send_replace(text.to_owned());
        for _ in 1..notices {
            self.text.send_modify(|_| ());
        }
        let subscribers = self.subscribers.lock().unwrap().clone();
        for peer in subscribers {
            for _ in 0..notices {
                let updated = ResourceUpdatedNotificationParam::new(NOTE);
                // The session may have ended.
                peer.notify_resource_updated(updated).await.ok();
            }
        }
    }
}

/// The server as one client has it.
struct Bench {
    workshop: Arc<Workshop>,
    /// The log level that the client has set.
    level: Mutex<Option<LoggingLevel>>,
    /// True once the client has unlocked another tool.
    is_unlocked: AtomicBool,
}

impl Bench {
    fn new(workshop: Arc<Workshop>) -> Bench {
        Bench {
            workshop,
            level: Mutex::default(),
            is_unlocked: AtomicBool::new(false),
        }
    }

    async fn ask(&self, request: &CallToolRequestParams, context: &Context) -> Result<String, ErrorData> {
        let is_sampling = request.name == "sample";
        let answered = match is_sampling {
            true => context
                .peer
                .create_message(sampling())
                .await
                .map(|answer| json!(answer)),
            false => context
                .peer
                .create_elicitation(form())
                .await
                .map(|answer| json!(answer)),
        };
        let answer = answered.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(answer.to_string())
    }

    async fn run(&self, request: CallToolRequestParams, context: Context) -> Result<String, ErrorData> {
        match &*request.name {
            "progress" => {
                if let Some(token) = context.meta.get_progress_token() {
                    for step in 1..=3 {
                        let progress = ProgressNotificationParam::new(token.clone(), f64::from(step));
                        context.peer.notify_progress(progress).await.ok();
                    }
                }
                Ok("done".to_owned())
            }
            "wait" => {
                self.workshop.running.send_modify(|running| *running += 1);
                context.ct.cancelled().await;
                self.workshop.cancelled.send_modify(|cancelled| *cancelled += 1);
                Ok("cancelled".to_owned())
            }
            "log" => {
                // Once another call is under way, of which this is to know nothing.
                let mut running = self.workshop.running.subscribe();
                running.wait_for(|running| *running > 0).await.unwrap();
                let in_session = *self.level.lock().unwrap();
                if context.meta.log_level().or(in_session).is_some() {
                    let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!("for you"));
                    context.peer.notify_logging_message(message).await.ok();
                }
                Ok("logged".to_owned())
            }
            "sample" | "elicit" => self.ask(&request, &context).await,
            "sample_aside" => {
                // rmcp knows in a task of its own of no request that the question belongs to.
                let peer = context.peer;
                let asking = tokio::spawn(async move { peer.create_message(sampling()).await });
                let answer = asking.await.unwrap();
                answer
                    .map(|answer| json!(answer).to_string())
                    .map_err(|error| ErrorData::internal_error(error.to_string(), None))
            }
            "unlock" => {
                self.is_unlocked.store(true, Ordering::SeqCst);
                context.peer.notify_tool_list_changed().await.ok();
                Ok("unlocked".to_owned())
            }
            "long" => Ok("x".repeat(17 << 20)),
            _ => Ok("hello".to_owned()),
        }
    }
}

/// Waits for a change of the note; none once the stream is taken back.
async fn note_changed(
    text: &mut watch::Receiver<String>,
    ended: &mut watch::Receiver<()>,
    context: &SubscriptionContext,
) -> Option<()> {
    tokio::select! {
        changed = text.changed() => changed.ok(),
        _ = ended.changed() => None,
        () = context.cancelled() => None,
    }
}

fn sampling() -> CreateMessageRequestParams {
    CreateMessageRequestParams::new(vec![SamplingMessage::user_text("who are you?")], 10)
}

fn form() -> ElicitRequestParams {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "your name?".to_owned(),
        requested_schema: serde_json::from_value(schema).unwrap(),
    }
}

/// The question of a tool, for a revision that answers with it.
fn question(name: &str) -> InputRequest {
    match name {
        "sample" => InputRequest::CreateMessage(CreateMessageRequest::new(sampling())),
        _ => InputRequest::Elicitation(ElicitRequest::new(form())),
    }
}

impl ServerHandler for Bench {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Owned(vec![self.workshop.revision.clone()])
    }

    fn get_info(&self) -> InitializeResult {
        let capabilities = ServerCapabilities::builder()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_logging()
            .build();
        InitializeResult::new(capabilities)
            .with_server_info(Implementation::new("workshop", "1"))
            .with_instructions("work")
            .with_protocol_version(self.workshop.revision.clone())
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.workshop.told.lock().unwrap().push(context.peer);
        self.workshop.sessions.fetch_add(1, Ordering::SeqCst);
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: Context) -> Result<(), ErrorData> {
        if self.workshop.revision == ProtocolVersion::V_2026_07_28 {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        *self.level.lock().unwrap() = Some(request.level);
        Ok(())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(vec![Resource::new(
            NOTE, "a",
        )]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.workshop.reads.fetch_add(1, Ordering::SeqCst);
        if request.uri != NOTE {
            return Err(ErrorData::invalid_params("there is no such note", None));
        }
        let text = self.workshop.text.borrow().clone();
        Ok(ReadResourceResult::new(vec![ResourceContents::text(text, NOTE)]).into())
    }

    async fn subscribe(&self, _: SubscribeRequestParams, context: Context) -> Result<(), ErrorData> {
        self.workshop.subscriptions.fetch_add(1, Ordering::SeqCst);
        self.workshop.subscribers.lock().unwrap().push(context.peer);
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        self.workshop.subscriptions.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut text = self.workshop.text.subscribe();
        let is_for_note = context.accepted().resource_subscriptions.is_some();
        self.workshop
            .subscriptions
            .fetch_add(usize::from(is_for_note), Ordering::SeqCst);
        let mut ended = self.workshop.ended.subscribe();
        while let Some(()) = note_changed(&mut text, &mut ended, &context).await {
            if is_for_note {
                let updated = ResourceUpdatedNotificationParam::new(NOTE);
                let updated = ResourceUpdatedNotification::new(updated);
                let updated = ServerNotification::ResourceUpdatedNotification(updated);
                context.sink().send(updated).await.ok();
            }
        }
        self.workshop
            .subscriptions
            .fetch_sub(usize::from(is_for_note), Ordering::SeqCst);
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let mut names = vec!["hello", "progress", "wait", "log", "elicit"];
        let capabilities = context.client_capabilities().unwrap_or_default();
        let has_sampling = capabilities.sampling.is_some();
        names.push(if has_sampling {
            "sample"
        } else {
            "without_sampling"
        });
        let has_more = !has_sampling && self.workshop.extra_for_some.load(Ordering::SeqCst);
        names.extend(has_more.then_some("extra_for_some"));
        names.extend(self.is_unlocked.load(Ordering::SeqCst).then_some("unlocked"));
        names.extend(
            self.workshop
                .extra_for_all
                .load(Ordering::SeqCst)
                .then_some("extra"),
        );
        let tools = names.into_iter().map(|name| {
            Tool::new(
                name,
                "a tool",
                JsonObject::from_iter([("type".to_owned(), json!("object"))]),
            )
        });
        let mut tools: Vec<Tool> = tools.collect();
        for _ in 0..self.workshop.crowd.load(Ordering::SeqCst) {
            let number = self.workshop.crowded.fetch_add(1, Ordering::SeqCst);
            tools.push(Tool::new(format!("t{number}"), "", JsonObject::new()));
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let asks = matches!(&*request.name, "sample" | "elicit");
        let text = if asks && self.workshop.revision == ProtocolVersion::V_2026_07_28 {
            let Some(responses) = &request.input_responses else {
                let questions = InputRequests::from([("q".to_owned(), question(&request.name))]);
                let required = InputRequiredResult::from_input_requests(questions);
                return Ok(CallToolResponse::InputRequired(required));
            };
            responses["q"].to_string()
        } else {
            self.run(request, context).await?
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}
