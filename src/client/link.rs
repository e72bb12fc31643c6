//! One connection to a server: the handshake, the requests a watcher needs, and the subscriptions made on it.
//!
//! Owns what lives as long as one connection: rmcp's tasks, the listen stream, the inbox. It answers requests of the
//! keeper and puts into the inbox what the server says. It never connects again, remembers no etags and reports to
//! nobody else: when the connection is lost, the keeper makes another one.

use std::future::Future;
use std::num::NonZeroUsize;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientConfig, ClientRequest, GetMeta, Implementation, MetaObject, NotificationMetaObject, PingRequest,
    ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ResourceContents,
    ResourceUpdatedNotificationParam, ServerNotification, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::{
    ClientInitializeError, NotificationContext, Peer, RunningServiceCancellationToken, ServiceError,
    Subscription, SubscriptionEnd,
};
use rmcp::transport::common::client_side_sse::FixedInterval;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientCacheConfig, ClientLifecycleMode, ClientServiceExt, RoleClient};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::error::{ConnectError, is_unreachable, reason};
use super::inbox::Inbox;
use super::observed::{Observed, Stream};
use super::target::{Era, Road, Target};
use crate::Digest;

/// Where the etag of a resource stands in `_meta`.
const ETAG_KEY: &str = "io.github.tidings/etag";

/// How long a handshake or a request may take before the connection counts as lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the stream of an older revision is awaited before the first subscription. It may stay silent until its
/// first event, so going on without it is no error.
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the farewell may take; a program that was started for us gets time to end by itself.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

/// How many notifications rmcp may hold for a listen stream; they are taken out at once.
const LISTEN_BUFFER: NonZeroUsize = NonZeroUsize::new(1024).expect("1024 is not 0");

/// Which version of a resource is meant, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Version {
    /// The server's own word.
    pub(super) etag: Option<String>,
    /// The content's digest, for servers that give no etags.
    pub(super) digest: Option<Digest>,
}

impl Version {
    /// Whether the two may be different versions: what cannot be compared may be.
    pub(super) fn may_differ(&self, other: &Version) -> bool {
        match (&self.etag, &other.etag) {
            (Some(one), Some(other)) => one != other,
            _ => self.digest.is_none() || self.digest != other.digest,
        }
    }
}

/// Why a request has no result.
#[derive(Debug)]
pub(super) enum LinkError {
    /// The server said no.
    Refused(String),
    /// The connection cannot be used any more.
    Lost(String),
}

impl From<ServiceError> for LinkError {
    fn from(error: ServiceError) -> LinkError {
        match error {
            ServiceError::McpError(error) => LinkError::Refused(error.message.into_owned()),
            ServiceError::TransportSend(error) => LinkError::Lost(reason(error.error.as_ref())),
            other => LinkError::Lost(reason(&other)),
        }
    }
}

/// A resource that cannot be watched, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) uri: String,
    pub(super) reason: String,
}

/// One connection.
pub(super) struct Link {
    pub(super) road: Road,
    pub(super) revision: String,
    pub(super) inbox: Arc<Inbox>,
    peer: Peer<RoleClient>,
    stop: RunningServiceCancellationToken,
    ended: JoinHandle<()>,
    listening: Option<Listening>,
}

/// A listen stream and the task that empties it. Dropping it ends the stream.
struct Listening {
    _stop: oneshot::Sender<()>,
}

impl Link {
    /// Connects and shakes hands.
    pub(super) async fn open(target: &Target, era: Era) -> Result<Link, ConnectError> {
        let modern = || vec![ProtocolVersion::V_2026_07_28];
        match era {
            Era::Legacy => connect(target, ClientLifecycleMode::Initialize).await,
            Era::Modern => {
                let preferred_versions = modern();
                connect(target, ClientLifecycleMode::Discover { preferred_versions }).await
            }
            Era::Auto => {
                let auto = ClientLifecycleMode::Auto {
                    preferred_versions: modern(),
                    legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
                };
                match connect(target, auto).await {
                    // Some older servers answer an unknown first request by hanging up, or with no JSON-RPC at all.
                    Err(first @ ConnectError::Handshake { .. }) => {
                        let again = connect(target, ClientLifecycleMode::Initialize).await;
                        again.map_err(|_| first)
                    }
                    other => other,
                }
            }
        }
    }

    /// Has the server tell of `new` besides `held`, which it tells of already. Answers those it refused.
    pub(super) async fn watch(&mut self, held: &[String], new: &[String]) -> Result<Vec<Refusal>, String> {
        new.iter().for_each(|uri| self.inbox.watch(uri));
        let refusals = match self.road {
            Road::Listen => self.listen_to(held, new).await?,
            Road::Subscribe => self.subscribe(new).await?,
        };
        refusals
            .iter()
            .for_each(|refusal| self.inbox.unwatch(&refusal.uri));
        Ok(refusals)
    }

    /// Has the server tell no longer of `gone`, but still of `held`.
    pub(super) async fn unwatch(&mut self, held: &[String], gone: &[String]) -> Result<(), String> {
        gone.iter().for_each(|uri| self.inbox.unwatch(uri));
        match self.road {
            Road::Listen => match self.listen(held.to_vec()).await {
                Ok(_) => Ok(()),
                // The old stream still tells of everything that is wanted, and what is not is dropped on arrival.
                Err(LinkError::Refused(_)) => Ok(()),
                Err(LinkError::Lost(reason)) => Err(reason),
            },
            Road::Subscribe => self.unsubscribe(gone).await,
        }
    }

    #[expect(deprecated, reason = "it is how older revisions are spoken")]
    async fn subscribe(&self, uris: &[String]) -> Result<Vec<Refusal>, String> {
        let mut refusals = Vec::new();
        for uri in uris {
            match within(self.peer.subscribe(SubscribeRequestParams::new(uri))).await {
                Ok(()) => {}
                Err(LinkError::Refused(reason)) => refusals.push(Refusal {
                    uri: uri.clone(),
                    reason,
                }),
                Err(LinkError::Lost(reason)) => return Err(reason),
            }
        }
        Ok(refusals)
    }

    #[expect(deprecated, reason = "it is how older revisions are spoken")]
    async fn unsubscribe(&self, uris: &[String]) -> Result<(), String> {
        for uri in uris {
            match within(self.peer.unsubscribe(UnsubscribeRequestParams::new(uri))).await {
                Ok(()) | Err(LinkError::Refused(_)) => {}
                Err(LinkError::Lost(reason)) => return Err(reason),
            }
        }
        Ok(())
    }

    async fn listen_to(&mut self, held: &[String], new: &[String]) -> Result<Vec<Refusal>, String> {
        let refusal = |uri: &String, reason: &str| Refusal {
            uri: uri.clone(),
            reason: reason.to_owned(),
        };
        match self.listen([held, new].concat()).await {
            Ok(accepted) => {
                let left_out = new.iter().filter(|uri| !accepted.contains(uri));
                let reason = "the server does not have it or does not let it be watched";
                Ok(left_out.map(|uri| refusal(uri, reason)).collect())
            }
            Err(LinkError::Lost(reason)) => Err(reason),
            Err(LinkError::Refused(reason)) if new.len() <= 1 => {
                Ok(new.iter().map(|uri| refusal(uri, &reason)).collect())
            }
            Err(LinkError::Refused(_)) => self.listen_one_by_one(held, new).await,
        }
    }

    /// For servers that refuse all of a list because of one of it.
    async fn listen_one_by_one(&mut self, held: &[String], new: &[String]) -> Result<Vec<Refusal>, String> {
        let mut held = held.to_vec();
        let mut refusals = Vec::new();
        for uri in new {
            let refused = Box::pin(self.listen_to(&held, std::slice::from_ref(uri))).await?;
            if refused.is_empty() {
                held.push(uri.clone());
            }
            refusals.extend(refused);
        }
        Ok(refusals)
    }

    /// Opens a stream for `uris` in place of the one before; answers those the server accepted. The old one ends only
    /// once the new one is there, so that nothing is missed between.
    async fn listen(&mut self, uris: Vec<String>) -> Result<Vec<String>, LinkError> {
        if uris.is_empty() {
            self.listening = None;
            return Ok(uris);
        }
        let mut filter = SubscriptionFilter::new();
        filter.resource_subscriptions = Some(uris);
        let subscription = within(self.peer.listen_with_capacity(filter, LISTEN_BUFFER)).await?;
        let accepted = subscription
            .acknowledged()
            .resource_subscriptions
            .clone()
            .unwrap_or_default();
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(pump(subscription, self.inbox.clone(), stopped));
        self.listening = Some(Listening { _stop: stop });
        Ok(accepted)
    }

    /// Which version of `uri` the server has now.
    pub(super) async fn read(&self, uri: &str) -> Result<Version, LinkError> {
        let request = ReadResourceRequestParams::new(uri);
        match within(self.peer.read_resource_once(request)).await? {
            ReadResourceResponse::Complete(result) => Ok(version(&result)),
            _ => Err(LinkError::Refused(
                "the server wants input before it can be read".to_owned(),
            )),
        }
    }

    /// Shows the server that its session is in use, and us that it still is one.
    pub(super) async fn ping(&self) -> Result<(), String> {
        let ping = self
            .peer
            .send_request(ClientRequest::PingRequest(PingRequest::default()));
        match within(ping).await {
            // A server that refuses is there.
            Ok(_) | Err(LinkError::Refused(_)) => Ok(()),
            Err(LinkError::Lost(reason)) => Err(reason),
        }
    }

    /// Ends the connection: streams and sessions are ended at the server, a program that was started for us too.
    pub(super) async fn close(self) {
        drop(self.listening);
        self.stop.cancel();
        if tokio::time::timeout(CLOSE_TIMEOUT, self.ended).await.is_err() {
            tracing::warn!("the connection did not end in time");
        }
    }
}

/// Awaits an answer, for a while.
async fn within<T>(request: impl Future<Output = Result<T, ServiceError>>) -> Result<T, LinkError> {
    match tokio::time::timeout(ANSWER_TIMEOUT, request).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(LinkError::Lost(format!(
            "no answer within {} s",
            ANSWER_TIMEOUT.as_secs()
        ))),
    }
}

async fn connect(target: &Target, mode: ClientLifecycleMode) -> Result<Link, ConnectError> {
    let inbox = Arc::new(Inbox::new());
    match target {
        Target::Http(url) => {
            let handshake = |error: reqwest::Error| ConnectError::Handshake {
                target: url.clone(),
                reason: reason(&error),
            };
            let observed = Observed::new(inbox.clone()).map_err(handshake)?;
            let mut config =
                StreamableHttpClientTransportConfig::with_uri(url.as_str()).reinit_on_expired_session(false);
            // A stream that ends is opened again once a second, until that fails; then the session is given up.
            config.retry_config = Arc::new(FixedInterval::default());
            let stream = observed.stream();
            let transport = StreamableHttpClientTransport::with_client(observed, config);
            let link = shake_hands(target, transport, mode, inbox).await?;
            await_stream(target, link, stream).await
        }
        Target::Command(command) => {
            let (program, arguments) = command
                .split_first()
                .expect("a command has a program: Target::command");
            let mut command = tokio::process::Command::new(program);
            command
                .args(arguments)
                .stderr(Stdio::inherit())
                .kill_on_drop(true);
            // Of its own group, so that an interrupt from the keyboard reaches us and we end it in order.
            #[cfg(unix)]
            command.process_group(0);
            let transport = TokioChildProcess::new(command).map_err(|error| ConnectError::Unreachable {
                target: target.to_string(),
                reason: error.to_string(),
            })?;
            shake_hands(target, transport, mode, inbox).await
        }
    }
}

async fn shake_hands<T, E, A>(
    target: &Target,
    transport: T,
    mode: ClientLifecycleMode,
    inbox: Arc<Inbox>,
) -> Result<Link, ConnectError>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let ears = Ears { inbox: inbox.clone() };
    let serving = tokio::time::timeout(ANSWER_TIMEOUT, ears.serve_with_lifecycle(transport, mode)).await;
    let handshake = |reason| ConnectError::Handshake {
        target: target.to_string(),
        reason,
    };
    let late = |_| handshake(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()));
    let running = serving.map_err(late)?.map_err(|error| unmade(target, &error))?;
    let peer = running.peer().clone();
    peer.set_response_cache_config(ClientCacheConfig::disabled())
        .await;
    let info = peer
        .peer_info()
        .ok_or_else(|| handshake("the server said nothing about itself".to_owned()))?;
    let revision = info.protocol_version.to_string();
    let road = if info.protocol_version.as_str() >= ProtocolVersion::V_2026_07_28.as_str() {
        Road::Listen
    } else {
        Road::Subscribe
    };
    let subscribable = info
        .capabilities
        .resources
        .as_ref()
        .and_then(|resources| resources.subscribe);
    if road == Road::Subscribe && subscribable != Some(true) {
        return Err(ConnectError::NoRoad {
            target: target.to_string(),
            missing: "resources/subscribe",
        });
    }
    let stop = running.cancellation_token();
    let ended = tokio::spawn({
        let inbox = inbox.clone();
        async move {
            let why = match running.waiting().await {
                Ok(_) => "the server closed the connection".to_owned(),
                Err(error) => error.to_string(),
            };
            inbox.lost(why);
        }
    });
    Ok(Link {
        road,
        revision,
        inbox,
        peer,
        stop,
        ended,
        listening: None,
    })
}

/// Waits until an older revision's stream is open, so that what changes from now on is told.
async fn await_stream(
    target: &Target,
    link: Link,
    mut stream: tokio::sync::watch::Receiver<Stream>,
) -> Result<Link, ConnectError> {
    if link.road == Road::Listen {
        return Ok(link);
    }
    let decided = stream.wait_for(|stream| *stream != Stream::Awaited);
    let unsupported = match tokio::time::timeout(STREAM_TIMEOUT, decided).await {
        Ok(Ok(stream)) => *stream == Stream::Unsupported,
        Ok(Err(_)) | Err(_) => false,
    };
    if unsupported {
        link.close().await;
        return Err(ConnectError::NoRoad {
            target: target.to_string(),
            missing: "stream for notifications (GET)",
        });
    }
    Ok(link)
}

fn unmade(target: &Target, error: &ClientInitializeError) -> ConnectError {
    let (target, cause) = (target.to_string(), cause(error));
    let reason = reason(cause);
    if is_unreachable(cause) {
        ConnectError::Unreachable { target, reason }
    } else {
        ConnectError::Handshake { target, reason }
    }
}

/// What is behind a failed handshake; rmcp does not tell it as the source of its error.
fn cause(error: &ClientInitializeError) -> &(dyn std::error::Error + 'static) {
    match error {
        ClientInitializeError::TransportError { error, .. } => error.error.as_ref(),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => cause(fallback),
        other => other,
    }
}

/// Puts what a listen stream says into the inbox, until it ends or is stopped.
async fn pump(mut subscription: Subscription, inbox: Arc<Inbox>, mut stopped: oneshot::Receiver<()>) {
    loop {
        let next = tokio::select! {
            biased;
            _ = &mut stopped => {
                if let Err(error) = subscription.cancel().await {
                    tracing::debug!(%error, "a listen stream could not be cancelled");
                }
                return;
            }
            next = subscription.next() => next,
        };
        match next {
            Ok(Some(notification)) => {
                let etag = etag_of(notification.get_meta());
                if let ServerNotification::ResourceUpdatedNotification(update) = notification {
                    inbox.updated(&update.params.uri, etag);
                }
            }
            Ok(None) => return inbox.lost(farewell(subscription.end())),
            Err(error) => return inbox.lost(reason(&error)),
        }
    }
}

fn farewell(end: Option<&SubscriptionEnd>) -> &'static str {
    match end {
        Some(SubscriptionEnd::Graceful(_)) => "the server ended the stream",
        Some(SubscriptionEnd::Cancelled) => "the server cancelled the stream",
        Some(SubscriptionEnd::Lagged { .. }) => "notifications came faster than they were taken",
        _ => "the stream broke off",
    }
}

/// What hears the notifications of older revisions.
#[derive(Clone)]
struct Ears {
    inbox: Arc<Inbox>,
}

impl ClientHandler for Ears {
    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        context: NotificationContext<RoleClient>,
    ) {
        // rmcp takes the extensions out first and finds no metadata in what is left, so it is among the extensions.
        let meta = context
            .extensions
            .get::<NotificationMetaObject>()
            .unwrap_or(&context.meta);
        self.inbox.updated(&params.uri, etag_of(meta));
    }

    fn get_info(&self) -> ClientConfig {
        let ourselves = Implementation::new("tidings", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(Default::default(), ourselves)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

fn etag_of(meta: &MetaObject) -> Option<String> {
    meta.get(ETAG_KEY)?.as_str().map(str::to_owned)
}

/// The version that a read answered: its etag, of the result or of its first content.
fn version(result: &ReadResourceResult) -> Version {
    let of_content = |content: &ResourceContents| match content {
        ResourceContents::TextResourceContents { meta, .. } => meta.as_ref().and_then(etag_of),
        ResourceContents::BlobResourceContents { meta, .. } => meta.as_ref().and_then(etag_of),
        _ => None,
    };
    let etag = result.meta.as_ref().and_then(etag_of);
    let mut parts: Vec<&[u8]> = Vec::new();
    for content in &result.contents {
        match content {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                parts.extend([uri.as_bytes(), b"text", text.as_bytes()]);
            }
            ResourceContents::BlobResourceContents { uri, blob, .. } => {
                parts.extend([uri.as_bytes(), b"blob", blob.as_bytes()]);
            }
            _ => parts.push(b"other"),
        }
    }
    Version {
        etag: etag.or_else(|| result.contents.first().and_then(of_content)),
        digest: Some(Digest::of(&parts)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_etag_then_by_content() {
        let version = |etag: Option<&str>, content: Option<&str>| Version {
            etag: etag.map(str::to_owned),
            digest: content.map(|content| Digest::of(&[content.as_bytes()])),
        };
        for (one, other, differ) in [
            (
                version(Some("v1-1"), Some("x")),
                version(Some("v1-1"), Some("y")),
                false,
            ),
            (version(Some("v1-1"), None), version(Some("v2-1"), None), true),
            (version(None, Some("x")), version(None, Some("x")), false),
            (version(None, Some("x")), version(Some("v1-1"), Some("y")), true),
            (version(None, None), version(None, None), true),
            (version(Some("v1-1"), None), version(None, Some("x")), true),
        ] {
            assert_eq!(one.may_differ(&other), differ, "{one:?} {other:?}");
        }
    }

    #[test]
    fn the_etag_of_a_read_is_the_results_or_its_first_contents() {
        let meta = |etag: &str| {
            let mut meta = MetaObject::default();
            meta.insert(ETAG_KEY.to_owned(), etag.into());
            meta
        };
        let content = ResourceContents::TextResourceContents {
            uri: "demo://a".to_owned(),
            mime_type: None,
            text: "body".to_owned(),
            meta: Some(meta("v1-1")),
        };
        let mut result = ReadResourceResult::new(vec![content]);
        assert_eq!(version(&result).etag.as_deref(), Some("v1-1"));
        result.meta = Some(meta("v2-2"));
        assert_eq!(version(&result).etag.as_deref(), Some("v2-2"));
        let bare = ReadResourceResult::new(vec![ResourceContents::text("body", "demo://a")]);
        assert_eq!(version(&bare).etag, None);
        assert_eq!(version(&bare).digest, version(&result).digest);
    }
}
