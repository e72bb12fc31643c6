//! A server to test the watcher against: real sockets, both eras, and a kill at any time.
//!
//! Each run of the server has a tokio runtime of its own, so a kill closes every socket at once, as the end
//! of a process does. The resources outlive a run.

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

/// The features of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offer {
    /// It speaks 2026-07-28.
    pub(super) modern: bool,
    /// It declares that it sends notifications.
    pub(super) notifies: bool,
    /// It has the tools `get_resource_etag` and `get_resource_etags`.
    pub(super) tools: bool,
}

impl Offer {
    /// Reading only.
    pub(super) const BARE: Offer = Offer {
        modern: false,
        notifies: false,
        tools: false,
    };
}

/// The text and the etag, if any, of each URI.
type Resources = Arc<Mutex<BTreeMap<String, (String, Option<String>)>>>;

/// The subscribed clients of one run.
#[derive(Default)]
struct Clients {
    peers: Mutex<Vec<(String, Peer<RoleServer>)>>,
    sinks: Mutex<Vec<SubscriptionSink>>,
}

struct Run {
    runtime: Runtime,
    clients: Arc<Clients>,
    graceful: watch::Sender<bool>,
}

pub(super) struct Server {
    address: SocketAddr,
    offer: Offer,
    refused: Arc<Mutex<BTreeSet<String>>>,
    calls: Arc<AtomicUsize>,
    resources: Resources,
    run: Option<Run>,
}

impl Server {
    /// Starts a server with `resources` (URI and etag) that sends notifications and has no tools.
    pub(super) async fn start(modern: bool, resources: &[(&str, Option<&str>)]) -> Server {
        let offer = Offer {
            modern,
            notifies: true,
            tools: false,
        };
        Server::with(offer, resources).await
    }

    /// Starts a server with these features.
    pub(super) async fn with(offer: Offer, resources: &[(&str, Option<&str>)]) -> Server {
        let mut server = Server {
            address: ([127, 0, 0, 1], 0).into(),
            offer,
            refused: Arc::default(),
            calls: Arc::default(),
            resources: Resources::default(),
            run: None,
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

    /// Changes a resource without a notification.
    pub(super) fn set(&self, uri: &str, text: &str, etag: Option<&str>) {
        let value = (text.to_owned(), etag.map(str::to_owned));
        self.resources.lock().unwrap().insert(uri.to_owned(), value);
    }

    /// Refuses subscriptions to `uri`, which can still be read.
    pub(super) fn refuse_subscriptions(&self, uri: &str) {
        self.refused.lock().unwrap().insert(uri.to_owned());
    }

    /// Returns the number of tool calls.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(super) fn remove(&self, uri: &str) {
        self.resources.lock().unwrap().remove(uri);
    }

    /// Changes a resource and notifies its subscribers.
    pub(super) async fn update(&self, uri: &str, text: &str, etag: Option<&str>) {
        self.set(uri, text, etag);
        self.notify(uri, etag).await;
    }

    /// Notifies the subscribers of `uri`.
    pub(super) async fn notify(&self, uri: &str, etag: Option<&str>) {
        let run = self.run.as_ref().unwrap();
        let mut params = ResourceUpdatedNotificationParam::new(uri);
        params.meta = etag.map(|etag| meta(etag).into());
        let peers = run.clients.peers.lock().unwrap().clone();
        for (_, peer) in peers.into_iter().filter(|(subscribed, _)| subscribed == uri) {
            peer.notify_resource_updated(params.clone()).await.unwrap();
        }
        let sinks = run.clients.sinks.lock().unwrap().clone();
        for sink in sinks {
            let notification = ResourceUpdatedNotification::new(params.clone());
            let notification = ServerNotification::ResourceUpdatedNotification(notification);
            if let Err(error) = sink.send(notification).await {
                // The stream has ended, or does not listen to this resource.
                tracing::debug!(?error, "a listen stream was skipped");
            }
        }
    }

    /// Returns the number of subscriptions to `uri` of the older revisions.
    pub(super) fn subscriptions(&self, uri: &str) -> usize {
        let peers = self.run.as_ref().unwrap().clients.peers.lock().unwrap();
        peers.iter().filter(|(subscribed, _)| subscribed == uri).count()
    }

    /// Ends every listen stream with its final result; the server keeps running.
    pub(super) fn end_streams(&self) {
        let run = self.run.as_ref().unwrap();
        run.clients.sinks.lock().unwrap().clear();
        run.graceful.send_replace(true);
        run.graceful.send_replace(false);
    }

    /// Closes every socket at once.
    pub(super) async fn kill(&mut self) {
        let run = self.run.take().unwrap();
        let gone = tokio::task::spawn_blocking(move || run.runtime.shutdown_timeout(Duration::from_secs(5)));
        gone.await.unwrap();
    }

    /// Starts again at the same address, without the sessions of before.
    pub(super) async fn revive(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (graceful, _) = watch::channel(false);
        let clients = Arc::new(Clients::default());
        let handler = Handler {
            offer: self.offer,
            refused: self.refused.clone(),
            calls: self.calls.clone(),
            resources: self.resources.clone(),
            clients: clients.clone(),
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
        self.run = Some(Run {
            runtime,
            clients,
            graceful,
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            run.runtime.shutdown_background();
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
    offer: Offer,
    refused: Arc<Mutex<BTreeSet<String>>>,
    calls: Arc<AtomicUsize>,
    resources: Resources,
    clients: Arc<Clients>,
    graceful: watch::Sender<bool>,
}

impl Handler {
    fn has(&self, uri: &str) -> bool {
        self.resources.lock().unwrap().contains_key(uri)
    }

    /// Returns true if subscriptions to `uri` are accepted.
    fn accepts(&self, uri: &str) -> bool {
        self.has(uri) && !self.refused.lock().unwrap().contains(uri)
    }

    /// Returns the item of an etag tool about `uri`.
    fn etag_item(&self, uri: &Value) -> Result<Value, ErrorData> {
        let uri = uri.as_str().unwrap();
        match self.resources.lock().unwrap().get(uri) {
            Some((_, Some(etag))) => Ok(json!({ "uri": uri, "etag_encoded": etag })),
            _ => Err(Handler::not_found(uri)),
        }
    }

    fn not_found(uri: &str) -> ErrorData {
        ErrorData::invalid_params(format!("Resource not found: {uri}"), None)
    }
}

impl ServerHandler for Handler {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.offer.modern {
            true => Cow::Borrowed(&[ProtocolVersion::V_2026_07_28, ProtocolVersion::V_2025_11_25]),
            false => Cow::Borrowed(&[ProtocolVersion::V_2025_11_25]),
        }
    }

    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::default();
        if self.offer.notifies {
            capabilities = ServerCapabilities::builder()
                .enable_resources()
                .enable_resources_subscribe()
                .build();
        }
        if self.offer.tools {
            capabilities.tools = Some(Default::default());
        }
        ServerConfig::new(capabilities)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = Arc::new(json!({ "type": "object" }).as_object().unwrap().clone());
        let names = ["get_resource_etag", "get_resource_etags", "other"];
        let tools = names.map(|name| Tool::new(name, "", schema.clone()));
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
            None => self.etag_item(&arguments["uri"])?,
            Some(items) => {
                let found: Result<Vec<Value>, ErrorData> =
                    items.iter().map(|item| self.etag_item(&item["uri"])).collect();
                json!({ "items": found? })
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
            uris.retain(|uri| self.accepts(uri));
        }
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut graceful = self.graceful.subscribe();
        self.clients.sinks.lock().unwrap().push(context.sink().clone());
        tokio::select! {
            () = context.cancelled() => {}
            _ = graceful.changed() => {}
        }
        Ok(())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if !self.accepts(&request.uri) {
            return Err(Handler::not_found(&request.uri));
        }
        self.clients
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
        self.clients
            .peers
            .lock()
            .unwrap()
            .retain(|(uri, _)| *uri != request.uri);
        Ok(())
    }
}
