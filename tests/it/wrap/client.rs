//! A real rmcp client of a wrapped server, over a pipe or over HTTP, that records the messages it receives.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, RunningService, Subscription};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpClientTransport, StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, Peer, RoleClient, ServiceError,
    ServiceExt,
};
use serde_json::{Value, json};
use tidings::ListKind;
use tidings::mcp::{ETAG_META_KEY, Endpoint, Wrap, WrappedServers};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::notes::{Notes, Server};

const DEADLINE: Duration = Duration::from_secs(60);

/// The way from the client to the server.
#[derive(Clone, Copy)]
pub(super) enum Over {
    Pipe,
    Http,
    /// The stdio pump of the bus, on a pipe.
    Stdio,
    /// The endpoint of the bus, over HTTP.
    Endpoint,
}

/// A message that a client received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Received {
    List(ListKind),
    Updated { uri: String, etag: String },
    Progress(u32),
}

/// All messages that a client received, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Log(Vec<Received>);

impl Log {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, what: &Received) -> bool {
        self.0.contains(what)
    }

    pub(super) fn contains_times(&self, kind: ListKind, times: usize) -> bool {
        self.0
            .iter()
            .filter(|received| **received == Received::List(kind))
            .count()
            == times
    }

    /// The etags of the updates of a resource.
    fn updates(&self, of: &str) -> Vec<String> {
        let mut etags = Vec::new();
        for received in &self.0 {
            if let Received::Updated { uri, etag } = received
                && uri == of
            {
                etags.push(etag.clone());
            }
        }
        etags
    }
}

/// A client's handler, which records every notification.
pub(super) struct Recorder(watch::Sender<Log>);

impl Recorder {
    fn record(&self, received: Received) {
        self.0.send_modify(|log| log.0.push(received));
    }
}

#[expect(deprecated, reason = "older revisions have sampling")]
impl ClientHandler for Recorder {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_sampling().build();
        ClientConfig::new(capabilities, Implementation::new("recorder", "1"))
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        Ok(CreateMessageResult::new(
            SamplingMessage::assistant_text("in short"),
            "m".into(),
        ))
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        context: NotificationContext<RoleClient>,
    ) {
        // rmcp leaves the `_meta` among the extensions.
        let etag = match context.extensions.get::<NotificationMetaObject>() {
            Some(meta) => meta.0.0[ETAG_META_KEY].as_str().unwrap().to_owned(),
            None => String::new(),
        };
        self.record(Received::Updated {
            uri: params.uri,
            etag,
        });
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.record(Received::Progress(params.progress as u32));
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.record(Received::List(ListKind::Resources));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.record(Received::List(ListKind::Tools));
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.record(Received::List(ListKind::Prompts));
    }
}

/// The endpoint of a wrapper, which serves every client a server over the same notes.
pub(super) fn endpoint(wrap: &Wrap, notes: &Arc<Notes>) -> Endpoint<WrappedServers<Server>> {
    let notes = notes.clone();
    wrap.endpoint(move || Server::new(&notes))
}

/// Serves the endpoint of a wrapper on a free port, until the test ends. Returns its address.
pub(super) async fn serve_endpoint(wrap: &Wrap, notes: &Arc<Notes>) -> SocketAddr {
    let app = axum::Router::new().route_service("/mcp", endpoint(wrap, notes));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Serves on a free port. Returns the address of the endpoint.
pub(super) async fn serve(app: axum::Router) -> (String, JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        axum::serve(listener, app).await.expect("served");
    });
    // reqwest wants a provider even without TLS. Another test may have installed it already.
    #[cfg(feature = "tls")]
    rustls::crypto::ring::default_provider().install_default().ok();
    (url, server)
}

pub(super) struct Client {
    running: RunningService<RoleClient, Recorder>,
    log: watch::Receiver<Log>,
    server: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Client {
    /// A client of 2025-11-25 and older.
    pub(super) async fn connect(over: Over, wrap: &Wrap, notes: &Arc<Notes>) -> Client {
        Client::serve(over, wrap, notes, ClientLifecycleMode::Initialize).await
    }

    /// A client of 2026-07-28.
    pub(super) async fn discover(over: Over, wrap: &Wrap, notes: &Arc<Notes>) -> Client {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        Client::serve(
            over,
            wrap,
            notes,
            ClientLifecycleMode::Discover { preferred_versions },
        )
        .await
    }

    async fn serve(over: Over, wrap: &Wrap, notes: &Arc<Notes>, mode: ClientLifecycleMode) -> Client {
        let (sender, log) = watch::channel(Log::default());
        let (running, server) = match over {
            Over::Pipe => {
                let (near, far) = tokio::io::duplex(1 << 16);
                let handler = wrap.handler(Server::new(notes));
                let server = tokio::spawn(async move {
                    if let Ok(running) = handler.serve(far).await {
                        // The reason of the end is the client's; the tests look at what it leaves behind.
                        running.waiting().await.ok();
                    }
                });
                (Recorder(sender).serve_with_lifecycle(near, mode).await, server)
            }
            Over::Stdio => {
                let (near, far) = tokio::io::duplex(1 << 16);
                let (input, output) = tokio::io::split(far);
                let wrap = wrap.clone();
                let handler = Server::new(notes);
                let server = tokio::spawn(async move {
                    wrap.serve_stdio(handler, input, output).await.ok();
                });
                (Recorder(sender).serve_with_lifecycle(near, mode).await, server)
            }
            Over::Http | Over::Endpoint => {
                let made = (wrap.clone(), notes.clone());
                let app = if let Over::Endpoint = over {
                    axum::Router::new().route_service("/mcp", endpoint(wrap, notes))
                } else {
                    let service = StreamableHttpService::new(
                        move || Ok(made.0.handler(Server::new(&made.1))),
                        Arc::new(LocalSessionManager::default()),
                        StreamableHttpServerConfig::default(),
                    );
                    axum::Router::new().route_service("/mcp", service)
                };
                let (url, server) = serve(app).await;
                let transport = StreamableHttpClientTransport::from_uri(url);
                (
                    Recorder(sender).serve_with_lifecycle(transport, mode).await,
                    server,
                )
            }
        };
        Client {
            running: running.unwrap(),
            log,
            server,
        }
    }

    pub(super) fn peer(&self) -> &RunningService<RoleClient, Recorder> {
        &self.running
    }

    fn raw(&self) -> &Peer<RoleClient> {
        self.running.peer()
    }

    /// Waits until the messages so far satisfy `enough`.
    pub(super) async fn until(&self, enough: impl Fn(&Log) -> bool) {
        let mut log = self.log.clone();
        let waited = tokio::time::timeout(DEADLINE, log.wait_for(|log| enough(log))).await;
        assert!(waited.is_ok(), "received only {:?}", self.log.borrow());
    }

    pub(super) fn count(&self, what: &Received) -> usize {
        self.log
            .borrow()
            .0
            .iter()
            .filter(|received| *received == what)
            .count()
    }

    /// Returns the number of list changes so far.
    pub(super) fn lists(&self) -> usize {
        let log = self.log.borrow();
        log.0
            .iter()
            .filter(|received| matches!(received, Received::List(_)))
            .count()
    }

    pub(super) fn updates(&self, uri: &str) -> usize {
        self.log.borrow().updates(uri).len()
    }

    /// Waits for the update of `uri` with this number; returns its etag.
    pub(super) async fn update(&self, uri: &str, nth: usize) -> String {
        self.until(|log| log.updates(uri).len() >= nth).await;
        self.log.borrow().updates(uri)[nth - 1].clone()
    }

    /// Waits until all messages that were due before have arrived: two changes one after the other come last.
    pub(super) async fn settle(&self, wrap: &Wrap) {
        let barrier = "held://barrier";
        for _ in 0..2 {
            let before = self.updates(barrier);
            let text = format!("{before} {self:p}");
            let held = tidings::Resource::text(barrier, text).unwrap().listed(false);
            if before == 0 && wrap.bus().etag(barrier).await.unwrap().version == 0 {
                wrap.bus().upsert(held.clone()).await.unwrap();
            }
            self.subscribe(barrier).await.unwrap();
            wrap.bus().touch(barrier).await.unwrap();
            self.update(barrier, before + 1).await;
        }
    }

    #[expect(deprecated, reason = "the older revisions have no other subscription")]
    pub(super) async fn subscribe(&self, uri: &str) -> Result<(), ServiceError> {
        self.raw().subscribe(SubscribeRequestParams::new(uri)).await
    }

    #[expect(deprecated, reason = "the older revisions have no other subscription")]
    pub(super) async fn unsubscribe(&self, uri: &str) -> Result<(), ServiceError> {
        self.raw().unsubscribe(UnsubscribeRequestParams::new(uri)).await
    }

    pub(super) async fn read(&self, uri: &str) -> Result<ReadResourceResult, ServiceError> {
        self.running
            .read_resource(ReadResourceRequestParams::new(uri))
            .await
    }

    pub(super) async fn list_everything(&self) {
        self.running.list_resources(None).await.unwrap();
        self.running.list_resource_templates(None).await.unwrap();
        self.running.list_tools(None).await.unwrap();
        self.running.list_prompts(None).await.unwrap();
    }

    /// Calls a tool that answers structured content.
    pub(super) async fn tool(&self, name: &'static str, arguments: Value) -> Value {
        let arguments = arguments.as_object().unwrap().clone();
        let request = CallToolRequestParams::new(name).with_arguments(arguments);
        let answer = self.running.call_tool(request).await.unwrap();
        answer
            .structured_content
            .unwrap_or_else(|| panic!("{name} answered {:?}", answer.content))
    }

    pub(super) async fn etag(&self, uri: &str, held: Option<&str>) -> Value {
        self.tool("get_resource_etag", json!({ "uri": uri, "client_etag": held }))
            .await
    }

    pub(super) async fn listen(&self, filter: SubscriptionFilter) -> Subscription {
        self.running.listen(filter).await.unwrap()
    }

    /// Ends the session like a client that leaves.
    pub(super) async fn end(mut self) {
        self.running.close().await.unwrap();
    }
}

/// The next notification of a listen stream.
pub(super) async fn next(stream: &mut Subscription) -> ServerNotification {
    let next = tokio::time::timeout(DEADLINE, stream.next()).await;
    next.unwrap().unwrap().unwrap()
}

/// The etag that a notification of a listen stream has.
pub(super) fn etag_in(notification: &ServerNotification) -> Option<String> {
    let ServerNotification::ResourceUpdatedNotification(update) = notification else {
        return None;
    };
    let meta = update.extensions.get::<NotificationMetaObject>()?;
    Some(meta.0.0.get(ETAG_META_KEY)?.as_str()?.to_owned())
}

/// Waits until `holds` is true.
pub(super) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    });
    assert!(waited.await.is_ok(), "it did not come true in time");
}
