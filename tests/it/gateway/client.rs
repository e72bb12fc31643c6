//! A client of the gateway, of any revision, that answers what it is asked with its own name.

#![expect(deprecated, reason = "the older revisions have sampling and subscriptions")]

use std::collections::BTreeMap;
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, ServiceError};
use serde_json::json;
use tidings::Etag;
use tidings::mcp::ETAG_META_KEY;
use tokio::sync::watch;

use super::workshop::NOTE;

const DEADLINE: Duration = Duration::from_secs(120);

/// What the client was told.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Told {
    pub(super) updates: usize,
    /// Changes of lists. A client of 2025-11-25 is told of each list that is not empty at first.
    pub(super) lists: usize,
    /// The newest version that it was told of each resource.
    pub(super) versions: BTreeMap<String, u64>,
    /// True once its listen stream has ended.
    pub(super) has_ended: bool,
    pub(super) progress: Vec<f64>,
    pub(super) warnings: Vec<String>,
}

impl Told {
    fn update(&mut self, uri: &str, meta: Option<&NotificationMetaObject>) {
        self.updates += 1;
        let etag = meta.and_then(|meta| meta.0.0.get(ETAG_META_KEY)?.as_str()?.parse().ok());
        let etag: Etag = etag.expect("an update has an etag");
        // rmcp handles each notification in a task of its own, so an older one may come later.
        let newest = self.versions.entry(uri.to_owned()).or_default();
        *newest = etag.version.max(*newest);
    }
}

/// The client's side of the protocol.
pub(super) struct Person {
    name: String,
    capabilities: ClientCapabilities,
    revision: ProtocolVersion,
    told: watch::Sender<Told>,
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let version = match self.revision == ProtocolVersion::V_2026_07_28 {
            true => ProtocolVersion::LATEST_WITH_INITIALIZE,
            false => self.revision.clone(),
        };
        let name = Implementation::new(self.name.clone(), "1");
        ClientConfig::new(self.capabilities.clone(), name).with_protocol_version(version)
    }

    async fn create_message(
        &self,
        _: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let message = SamplingMessage::assistant_text(format!("I am {}", self.name));
        Ok(CreateMessageResult::new(message, "m".into()))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let content = json!({ "name": format!("I am {}", self.name) });
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        context: NotificationContext<RoleClient>,
    ) {
        // rmcp leaves the `_meta` among the extensions.
        let meta = context.extensions.get::<NotificationMetaObject>();
        self.told.send_modify(|told| told.update(&params.uri, meta));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.told.send_modify(|told| told.lists += 1);
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.told.send_modify(|told| told.lists += 1);
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.told.send_modify(|told| told.progress.push(params.progress));
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.told
            .send_modify(|told| told.warnings.push(params.data.to_string()));
    }
}

/// A connected client.
pub(super) struct Client {
    pub(super) name: String,
    pub(super) running: RunningService<RoleClient, Person>,
    revision: ProtocolVersion,
    told: watch::Sender<Told>,
}

impl Client {
    /// Connects a client of this revision that can be asked.
    pub(super) async fn connect(url: &str, name: &str, revision: &ProtocolVersion) -> Client {
        let capabilities = ClientCapabilities::builder()
            .enable_sampling()
            .enable_elicitation()
            .build();
        Client::connect_with(url, name, revision, capabilities).await
    }

    /// Connects a client with these capabilities.
    pub(super) async fn connect_with(
        url: &str,
        name: &str,
        revision: &ProtocolVersion,
        capabilities: ClientCapabilities,
    ) -> Client {
        // reqwest wants a provider even without TLS. Another test may have installed it already.
        #[cfg(feature = "tls")]
        rustls::crypto::ring::default_provider().install_default().ok();
        let told = watch::Sender::new(Told::default());
        let person = Person {
            name: name.to_owned(),
            capabilities,
            revision: revision.clone(),
            told: told.clone(),
        };
        let mode = match *revision == ProtocolVersion::V_2026_07_28 {
            true => ClientLifecycleMode::Discover {
                preferred_versions: vec![revision.clone()],
            },
            false => ClientLifecycleMode::Initialize,
        };
        let transport = StreamableHttpClientTransport::from_uri(url);
        let running = tokio::time::timeout(DEADLINE, person.serve_with_lifecycle(transport, mode)).await;
        Client {
            name: name.to_owned(),
            running: running.expect("in time").unwrap(),
            revision: revision.clone(),
            told,
        }
    }

    /// Waits until it was told enough.
    pub(super) async fn until(&self, enough: impl Fn(&Told) -> bool) {
        let mut told = self.told.subscribe();
        let waited = tokio::time::timeout(DEADLINE, told.wait_for(|told| enough(told))).await;
        assert!(waited.is_ok(), "told only {:?}", self.told.borrow());
    }

    pub(super) fn told(&self) -> Told {
        self.told.borrow().clone()
    }

    /// Calls a tool; returns the text of its answer.
    pub(super) async fn call(&self, tool: &'static str) -> Result<String, ServiceError> {
        let called = self.running.call_tool(CallToolRequestParams::new(tool));
        let answer = tokio::time::timeout(DEADLINE, called)
            .await
            .expect("an answer in time")?;
        Ok(json!(answer.content[0])["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Calls a tool, and asks for all of its log messages in the way of 2026-07-28.
    pub(super) fn call_for_logs(
        &self,
        tool: &'static str,
    ) -> impl Future<Output = Result<CallToolResult, ServiceError>> + Send + use<> {
        let mut call = CallToolRequestParams::new(tool);
        let mut meta = RequestMetaObject::default();
        meta.set_log_level(LoggingLevel::Debug);
        call.meta = Some(meta);
        let peer = self.running.peer().clone();
        async move { peer.call_tool(call).await }
    }

    /// Reads the note.
    pub(super) async fn read(&self, uri: &str) -> Result<String, ServiceError> {
        let read = self
            .running
            .read_resource(ReadResourceRequestParams::new(uri))
            .await?;
        Ok(json!(read.contents[0])["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned())
    }

    /// Asks for the etag of a resource.
    pub(super) async fn etag(&self, uri: &str) -> Etag {
        let read = self
            .running
            .read_resource(ReadResourceRequestParams::new(uri))
            .await
            .unwrap();
        let etag = read
            .meta
            .as_ref()
            .and_then(|meta| meta.0.get(ETAG_META_KEY)?.as_str()?.parse().ok());
        etag.expect("a read has an etag")
    }

    /// Asks to be told of changes of the note.
    pub(super) async fn watch(&self) {
        self.watch_all(&[NOTE.to_owned()]).await;
    }

    /// Asks to be told of changes of these resources, in the way of its revision.
    pub(super) async fn watch_all(&self, uris: &[String]) {
        if self.revision == ProtocolVersion::V_2026_07_28 {
            let mut filter = SubscriptionFilter::default();
            filter.resource_subscriptions = Some(uris.to_vec());
            let mut stream = self.running.listen(filter).await.unwrap();
            let told = self.told.clone();
            tokio::spawn(async move {
                while let Ok(Some(notice)) = stream.next().await {
                    if let ServerNotification::ResourceUpdatedNotification(notice) = notice {
                        let meta = notice.extensions.get::<NotificationMetaObject>();
                        told.send_modify(|told| told.update(&notice.params.uri, meta));
                    }
                }
                told.send_modify(|told| told.has_ended = true);
            });
        } else {
            for uri in uris {
                let request = SubscribeRequestParams::new(uri);
                self.running.subscribe(request).await.unwrap();
            }
        }
    }
}
