//! A server to test the watcher against: real sockets, both eras, and a life that can end at any time.
//!
//! Owns its resources, which outlive its lives, and a runtime per life, so that the end of a life closes
//! every socket at once, as a killed process does. It asserts nothing itself.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, ListToolsResult, MetaObject,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ResourceContents, ResourceUpdatedNotification, ResourceUpdatedNotificationParam,
    ServerCapabilities, ServerConfig, ServerNotification, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams,
};
use rmcp::service::{Peer, RequestContext, RoleServer, SubscriptionContext, SubscriptionSink};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;

const ETAG_KEY: &str = "io.github.tidings/etag";

/// What the server offers, and what it keeps of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Manners {
    /// Whether it knows 2026-07-28.
    pub(super) modern: bool,
    /// Whether it says that it tells of changes.
    pub(super) tells: bool,
    /// Whether it has `get_resource_etag` and `get_resource_etags`.
    pub(super) tools: bool,
}

impl Manners {
    /// It offers nothing but to be read.
    pub(super) const BARE: Manners = Manners {
        modern: false,
        tells: false,
        tools: false,
    };
}

/// What the server has: per URI the text, and the etag where it gives any.
type Resources = Arc<Mutex<BTreeMap<String, (String, Option<String>)>>>;

/// Who is to be told, in one life.
#[derive(Default)]
struct Audience {
    peers: Mutex<Vec<(String, Peer<RoleServer>)>>,
    sinks: Mutex<Vec<SubscriptionSink>>,
}

struct Life {
    runtime: Runtime,
    audience: Arc<Audience>,
    graceful: watch::Sender<bool>,
}

pub(super) struct Server {
    address: SocketAddr,
    manners: Manners,
    unheard: Arc<Mutex<BTreeSet<String>>>,
    calls: Arc<AtomicUsize>,
    resources: Resources,
    life: Option<Life>,
}

impl Server {
    /// A running server that has `resources` (URI and etag); one that is not `modern` knows no 2026-07-28.
    pub(super) async fn start(modern: bool, resources: &[(&str, Option<&str>)]) -> Server {
        let (tells, tools) = (true, false);
        Server::with(Manners { modern, tells, tools }, resources).await
    }

    /// The same with other manners.
    pub(super) async fn with(manners: Manners, resources: &[(&str, Option<&str>)]) -> Server {
        let mut server = Server {
            address: ([127, 0, 0, 1], 0).into(),
            manners,
            unheard: Arc::default(),
            calls: Arc::default(),
            resources: Resources::default(),
            life: None,
        };
        for (uri, etag) in resources {
            server.set(uri, "first", *etag);
        }
        server.revive().await;
        server
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Changes what a read answers, and tells nobody.
    pub(super) fn set(&self, uri: &str, text: &str, etag: Option<&str>) {
        let value = (text.to_owned(), etag.map(str::to_owned));
        self.resources.lock().unwrap().insert(uri.to_owned(), value);
    }

    /// Lets `uri` be read, but tells nobody of it who asks.
    pub(super) fn refuse_to_tell(&self, uri: &str) {
        self.unheard.lock().unwrap().insert(uri.to_owned());
    }

    /// How often a tool was called.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(super) fn remove(&self, uri: &str) {
        self.resources.lock().unwrap().remove(uri);
    }

    /// Changes what a read answers, and tells whoever subscribed.
    pub(super) async fn update(&self, uri: &str, text: &str, etag: Option<&str>) {
        self.set(uri, text, etag);
        self.tell(uri, etag).await;
    }

    /// Tells whoever subscribed to `uri`.
    pub(super) async fn tell(&self, uri: &str, etag: Option<&str>) {
        let life = self.life.as_ref().unwrap();
        let mut params = ResourceUpdatedNotificationParam::new(uri);
        params.meta = etag.map(|etag| meta(etag).into());
        let peers = life.audience.peers.lock().unwrap().clone();
        for (_, peer) in peers.into_iter().filter(|(subscribed, _)| subscribed == uri) {
            peer.notify_resource_updated(params.clone()).await.unwrap();
        }
        let sinks = life.audience.sinks.lock().unwrap().clone();
        for sink in sinks {
            let notification = ResourceUpdatedNotification::new(params.clone());
            // A stream that ended, or that did not ask for this, is no fault.
            let notification = ServerNotification::ResourceUpdatedNotification(notification);
            drop(sink.send(notification).await);
        }
    }

    /// How many subscriptions to `uri` there are, streams of the newer revision aside.
    pub(super) fn subscriptions(&self, uri: &str) -> usize {
        let peers = self.life.as_ref().unwrap().audience.peers.lock().unwrap();
        peers.iter().filter(|(subscribed, _)| subscribed == uri).count()
    }

    /// Ends every listen stream with its final result; the server lives on.
    pub(super) fn end_streams(&self) {
        let life = self.life.as_ref().unwrap();
        life.audience.sinks.lock().unwrap().clear();
        life.graceful.send_replace(true);
        life.graceful.send_replace(false);
    }

    /// Closes every socket at once.
    pub(super) async fn kill(&mut self) {
        let life = self.life.take().unwrap();
        let gone = tokio::task::spawn_blocking(move || life.runtime.shutdown_timeout(Duration::from_secs(5)));
        gone.await.unwrap();
    }

    /// Lives again at the same address, without memory of any session.
    pub(super) async fn revive(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (graceful, _) = watch::channel(false);
        let audience = Arc::new(Audience::default());
        let handler = Handler {
            manners: self.manners,
            unheard: self.unheard.clone(),
            calls: self.calls.clone(),
            resources: self.resources.clone(),
            audience: audience.clone(),
            graceful: graceful.clone(),
        };
        let service: StreamableHttpService<Handler, LocalSessionManager> = StreamableHttpService::new(
            move || Ok(handler.clone()),
            Arc::default(),
            StreamableHttpServerConfig::default(),
        );
        let address = self.address;
        let serving = runtime.spawn(async move {
            let listener = tokio::net::TcpListener::bind(address).await.unwrap();
            let address = listener.local_addr().unwrap();
            let router = axum::Router::new().route_service("/mcp", service);
            tokio::spawn(async move { axum::serve(listener, router).await });
            address
        });
        self.address = serving.await.unwrap();
        self.life = Some(Life {
            runtime,
            audience,
            graceful,
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            life.runtime.shutdown_background();
        }
    }
}

fn meta(etag: &str) -> MetaObject {
    let mut meta = MetaObject::default();
    meta.insert(ETAG_KEY.to_owned(), etag.into());
    meta
}

#[derive(Clone)]
struct Handler {
    manners: Manners,
    unheard: Arc<Mutex<BTreeSet<String>>>,
    calls: Arc<AtomicUsize>,
    resources: Resources,
    audience: Arc<Audience>,
    graceful: watch::Sender<bool>,
}

impl Handler {
    fn has(&self, uri: &str) -> bool {
        self.resources.lock().unwrap().contains_key(uri)
    }

    /// Whether it tells of `uri`.
    fn tells_of(&self, uri: &str) -> bool {
        self.has(uri) && !self.unheard.lock().unwrap().contains(uri)
    }

    /// What an etag tool answers about `uri`.
    fn verdict(&self, uri: &Value) -> Result<Value, ErrorData> {
        let uri = uri.as_str().unwrap();
        let etag = self
            .resources
            .lock()
            .unwrap()
            .get(uri)
            .and_then(|(_, etag)| etag.clone());
        let etag = etag.ok_or_else(|| Handler::not_found(uri))?;
        Ok(json!({ "uri": uri, "etag_encoded": etag }))
    }

    fn not_found(uri: &str) -> ErrorData {
        ErrorData::invalid_params(format!("Resource not found: {uri}"), None)
    }
}

impl ServerHandler for Handler {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.manners.modern {
            true => Cow::Borrowed(&[ProtocolVersion::V_2026_07_28, ProtocolVersion::V_2025_11_25]),
            false => Cow::Borrowed(&[ProtocolVersion::V_2025_11_25]),
        }
    }

    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        if self.manners.tells {
            capabilities = ServerCapabilities::builder()
                .enable_resources()
                .enable_resources_subscribe()
                .build();
        }
        if self.manners.tools {
            capabilities.tools = Some(Default::default());
        }
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = || Arc::new(json!({ "type": "object" }).as_object().unwrap().clone());
        let names = ["get_resource_etag", "get_resource_etags", "other"];
        let tools = names.map(|name| Tool::new(name, "", schema()));
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let answer = match arguments["items"].as_array() {
            None => self.verdict(&arguments["uri"])?,
            Some(items) => {
                let verdicts: Result<Vec<Value>, ErrorData> =
                    items.iter().map(|item| self.verdict(&item["uri"])).collect();
                json!({ "items": verdicts? })
            }
        };
        Ok(CallToolResult::structured(answer).into())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri;
        let found = self.resources.lock().unwrap().get(&uri).cloned();
        let (text, etag) = found.ok_or_else(|| Handler::not_found(&uri))?;
        let mut result = ReadResourceResult::new(vec![ResourceContents::text(text, uri)]);
        result.meta = etag.as_deref().map(meta);
        Ok(result.into())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let mut accepted = requested.clone();
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.retain(|uri| self.tells_of(uri));
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut graceful = self.graceful.subscribe();
        self.audience.sinks.lock().unwrap().push(context.sink().clone());
        tokio::select! {
            () = context.cancelled() => {}
            ended = graceful.changed() => drop(ended),
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !self.tells_of(&request.uri) {
            return Err(Handler::not_found(&request.uri));
        }
        self.audience
            .peers
            .lock()
            .unwrap()
            .push((request.uri, context.peer));
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.audience
            .peers
            .lock()
            .unwrap()
            .retain(|(uri, _)| *uri != request.uri);
        Ok(())
    }
}
