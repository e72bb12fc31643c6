//! From an address to a link: the transport, the handshake, and which strategies the server offers.
//!
//! Owns the choice of revision and the fallback from the newer lifecycle to the older one. It makes one connection and
//! hands it over as a [`Link`]; it never tries again later.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::client::ClientHandler;
use rmcp::model::{
    ClientConfig, Implementation, NotificationMetaObject, ProtocolVersion, ResourceUpdatedNotificationParam,
};
use rmcp::service::{ClientInitializeError, NotificationContext};
use rmcp::transport::common::client_side_sse::FixedInterval;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientCacheConfig, ClientLifecycleMode, ClientServiceExt, RoleClient};
use tokio::sync::watch;

use super::error::{ConnectError, is_unreachable, reason};
use super::inbox::Inbox;
use super::link::{ANSWER_TIMEOUT, Link};
use super::strategy::WatchStrategy;
use super::stream_monitor::{MonitoredClient, Stream};
use super::target::{Era, Target};
use super::version::etag_of;

/// How long the stream of an older revision is awaited before the first subscription. It may stay silent until its
/// first event, so going on without it is no error.
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects and shakes hands, in an era that has the `only` strategy that will be taken, if there is such.
pub(super) async fn open(
    target: &Target,
    era: Era,
    only: Option<WatchStrategy>,
) -> Result<Link, ConnectError> {
    let era = match (era, only) {
        (Era::Auto, Some(WatchStrategy::Listen)) => Era::Modern,
        (Era::Auto, Some(WatchStrategy::Subscribe)) => Era::Legacy,
        (era, _) => era,
    };
    let mut link = in_era(target, era).await?;
    if let Err(error) = link.find_tools().await {
        tracing::debug!(error, "the server does not list its tools");
    }
    match only {
        Some(strategy) if !link.offers(strategy) => {
            link.close().await;
            Err(ConnectError::StrategyUnavailable {
                target: target.to_string(),
                missing: strategy.method(),
            })
        }
        _ => Ok(link),
    }
}

async fn in_era(target: &Target, era: Era) -> Result<Link, ConnectError> {
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

async fn connect(target: &Target, mode: ClientLifecycleMode) -> Result<Link, ConnectError> {
    let inbox = Arc::new(Inbox::new());
    match target {
        Target::Http(url) => {
            let handshake = |error: reqwest::Error| ConnectError::Handshake {
                target: url.clone(),
                reason: reason(&error),
            };
            let observed = MonitoredClient::new(url, inbox.clone()).map_err(handshake)?;
            let mut config =
                StreamableHttpClientTransportConfig::with_uri(url.as_str()).reinit_on_expired_session(false);
            // A stream that ends is opened again once a second, until that fails; then the session is given up.
            config.retry_config = Arc::new(FixedInterval::default());
            let stream = observed.stream();
            let transport = StreamableHttpClientTransport::with_client(observed, config);
            let mut link = shake_hands(target, transport, mode, inbox).await?;
            if link.push == Some(WatchStrategy::Subscribe) && !has_stream(stream).await {
                link.push = None;
            }
            Ok(link)
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
    let ears = NotificationHandler { inbox: inbox.clone() };
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
    let session = info.protocol_version.as_str() < ProtocolVersion::V_2026_07_28.as_str();
    let strategy = if session {
        WatchStrategy::Subscribe
    } else {
        WatchStrategy::Listen
    };
    let resources = info.capabilities.resources.as_ref();
    // In the newer revision it says whether listen streams tell of single resources.
    let told = resources.and_then(|resources| resources.subscribe) == Some(true);
    Ok(Link::new(
        running,
        told.then_some(strategy),
        session,
        revision,
        inbox,
    ))
}

/// Waits until an older revision's stream is open, so that what changes from now on is told; whether it may be.
async fn has_stream(mut stream: watch::Receiver<Stream>) -> bool {
    let decided = stream.wait_for(|stream| *stream != Stream::Awaited);
    match tokio::time::timeout(STREAM_TIMEOUT, decided).await {
        Ok(Ok(stream)) => *stream == Stream::Opened,
        Ok(Err(_)) | Err(_) => true,
    }
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

/// What hears the notifications of older revisions.
#[derive(Clone)]
struct NotificationHandler {
    inbox: Arc<Inbox>,
}

impl ClientHandler for NotificationHandler {
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
