//! The way from a target to a [`Link`]: the transport, the handshake, and the strategies that the server
//! offers.

use std::ffi::OsString;
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

use super::error::{ConnectError, absence, credentials_error, is_ended, is_unreachable, reason, refusal};
use super::error_output::ErrorOutput;
use super::inbox::Inbox;
#[cfg(feature = "service")]
use super::inbox::Signal;
use super::known_etags::{EtagTransport, ListenEtags};
use super::link::{ANSWER_TIMEOUT, Link, LinkSignals, Lost, no_answer};
#[cfg(feature = "service")]
use super::missing_answers::MissingAnswers;
use super::options::WatchOptions;
use super::strategy::WatchStrategy;
use super::stream_monitor::{MonitoredClient, StreamState};
use super::target::{Era, Target};
use super::version::etag_of;
use crate::ListKind;
use crate::credentials::Credentials;

/// The time to wait for the GET stream of an older revision before the first subscription. Such a stream may
/// stay silent until its first event, so its absence by then is no error.
const STREAM_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to `target` in an era that has the one strategy of the options, if there is one.
pub(super) async fn open(target: &Target, era: Era, options: &WatchOptions) -> Result<Link, ConnectError> {
    let only = options.strategy;
    let era = match (era, only) {
        (Era::Auto, Some(WatchStrategy::Listen)) => Era::Modern,
        (Era::Auto, Some(WatchStrategy::Subscribe)) => Era::Legacy,
        (era, _) => era,
    };
    let mut link = connect_in_era(target, era, &options.credentials).await?;
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
        _ => {
            link.lists = options.lists;
            // Before the caller has the link, so that a change of a list after that is notified.
            match link.listen_to_lists().await {
                Ok(()) => Ok(link),
                Err(Lost(reason)) => {
                    link.close().await;
                    Err(handshake_error(target, reason))
                }
            }
        }
    }
}

async fn connect_in_era(target: &Target, era: Era, credentials: &Credentials) -> Result<Link, ConnectError> {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    match era {
        Era::Legacy => connect(target, ClientLifecycleMode::Initialize, credentials).await,
        Era::Modern => {
            let discover = ClientLifecycleMode::Discover { preferred_versions };
            connect(target, discover, credentials).await
        }
        Era::Auto => {
            let auto = ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            };
            match connect(target, auto, credentials).await {
                // Some older servers answer an unknown first request by hanging up, or without JSON-RPC.
                Err(first @ (ConnectError::Handshake { .. } | ConnectError::NotServed { .. })) => {
                    let again = connect(target, ClientLifecycleMode::Initialize, credentials).await;
                    again.map_err(|_| first)
                }
                other => other,
            }
        }
    }
}

async fn connect(
    target: &Target,
    mode: ClientLifecycleMode,
    credentials: &Credentials,
) -> Result<Link, ConnectError> {
    match target {
        Target::Http(url) => connect_http(target, url, mode, credentials).await,
        Target::Command(command) => connect_program(target, command, mode).await,
    }
}

async fn connect_http(
    target: &Target,
    url: &str,
    mode: ClientLifecycleMode,
    credentials: &Credentials,
) -> Result<Link, ConnectError> {
    let HttpConnection {
        transport,
        inbox,
        stream,
    } = HttpConnection::prepare(target, url, credentials).await?;
    let mut link = shake_hands(target, transport, mode, inbox).await?;
    // Without the stream the server accepts subscriptions but has no way to send notifications.
    if link.push == Some(WatchStrategy::Subscribe) && !has_stream(stream).await {
        link.push = None;
    }
    Ok(link)
}

/// Requests under way at once on one transport; others wait. More than the clients of a gateway may have, so
/// that slow calls of some hold up no others.
const REQUESTS_MAX: usize = 1_024;

/// The transport to a server at a URL, before the handshake.
pub(crate) struct HttpConnection {
    transport: StreamableHttpClientTransport<MonitoredClient>,
    inbox: Arc<Inbox>,
    stream: watch::Receiver<StreamState>,
}

impl HttpConnection {
    /// Makes the transport, once the credentials are there.
    ///
    /// # Errors
    /// An address that is none of a server, and credentials that cannot be had.
    pub(crate) async fn prepare(
        target: &Target,
        url: &str,
        credentials: &Credentials,
    ) -> Result<HttpConnection, ConnectError> {
        let (client, inbox) = http_client(target, url, credentials).await?;
        Ok(HttpConnection::over(url, client, inbox))
    }

    /// Makes the transport, over which requests are answered whose streams have no answer.
    ///
    /// # Errors
    /// As for [`prepare`](HttpConnection::prepare).
    #[cfg(feature = "service")]
    pub(crate) async fn prepare_shared(
        target: &Target,
        url: &str,
        credentials: &Credentials,
        answers: MissingAnswers,
    ) -> Result<HttpConnection, ConnectError> {
        let (client, inbox) = http_client(target, url, credentials).await?;
        Ok(HttpConnection::over(url, client.answering(answers), inbox))
    }

    fn over(url: &str, client: MonitoredClient, inbox: Arc<Inbox>) -> HttpConnection {
        let mut config = StreamableHttpClientTransportConfig::with_uri(url)
            .reinit_on_expired_session(false)
            .max_concurrent_requests(REQUESTS_MAX);
        // A stream that ends is opened again once a second; the first failure ends the session.
        config.retry_config = Arc::new(FixedInterval::default());
        let stream = client.stream();
        let transport = StreamableHttpClientTransport::with_client(client, config);
        HttpConnection {
            transport,
            inbox,
            stream,
        }
    }

    /// Returns the transport, and the fate of the stream of notifications.
    #[cfg(feature = "service")]
    pub(crate) fn into_parts(self) -> (StreamableHttpClientTransport<MonitoredClient>, NoticeStream) {
        let stream = NoticeStream {
            inbox: self.inbox,
            stream: self.stream,
        };
        (self.transport, stream)
    }
}

/// Makes the HTTP client, once the credentials are there, and the inbox to which it reports.
async fn http_client(
    target: &Target,
    url: &str,
    credentials: &Credentials,
) -> Result<(MonitoredClient, Arc<Inbox>), ConnectError> {
    // The variant can be made without this check.
    Target::http(url)?;
    // Here, since a handshake has little time and a user may have to be asked.
    credentials.prepare().await.map_err(ConnectError::Credentials)?;
    let inbox = Arc::new(Inbox::new());
    let client = MonitoredClient::new(url, inbox.clone(), credentials)
        .map_err(|error| transport_error(target, &error))?;
    Ok((client, inbox))
}

/// The stream on which a server of an older revision sends notifications.
#[cfg(feature = "service")]
pub(crate) struct NoticeStream {
    inbox: Arc<Inbox>,
    stream: watch::Receiver<StreamState>,
}

#[cfg(feature = "service")]
impl NoticeStream {
    /// Waits until it is open, or is known to be absent.
    pub(crate) async fn opened(&self) {
        has_stream(self.stream.clone()).await;
    }

    /// Waits for its loss, with which the session is lost. Calls `missed` whenever notifications may have
    /// been missed before.
    pub(crate) async fn lost(&self, missed: impl Fn()) {
        loop {
            match self.inbox.next().await {
                Signal::Lost(_) => return,
                Signal::Gap => missed(),
                // The gateway hears them elsewhere.
                Signal::Updated(..) | Signal::List(_) => {}
            }
        }
    }
}

async fn connect_program(
    target: &Target,
    command: &[OsString],
    mode: ClientLifecycleMode,
) -> Result<Link, ConnectError> {
    let (program, arguments) = command
        .split_first()
        .expect("a command has a program: Target::command");
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).kill_on_drop(true);
    // In a process group of its own, so that an interrupt from the keyboard reaches only us and the program
    // is ended in order.
    #[cfg(unix)]
    command.process_group(0);
    let started = TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn();
    let (transport, errors) = started.map_err(|error| ConnectError::Unreachable {
        target: target.to_string(),
        reason: error.to_string(),
    })?;
    let mut errors = errors.map(ErrorOutput::copy);
    let link = shake_hands(target, transport, mode, Arc::new(Inbox::new())).await;
    // Before the failure is reported: the last lines of a program that has ended give the reason.
    if let (Err(_), Some(errors)) = (&link, &mut errors) {
        errors.finish().await;
    }
    link
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
    let handler = NotificationHandler { inbox: inbox.clone() };
    let etags = Arc::<ListenEtags>::default();
    let transport = EtagTransport {
        inner: transport.into_transport(),
        etags: etags.clone(),
    };
    let serving = handler.serve_with_lifecycle(transport, mode);
    let running = match tokio::time::timeout(ANSWER_TIMEOUT, serving).await {
        Ok(Ok(running)) => running,
        Ok(Err(error)) => return Err(initialize_error(target, &error)),
        Err(_) => return Err(handshake_error(target, no_answer())),
    };
    let peer = running.peer().clone();
    // A cached answer would hide a change.
    peer.set_response_cache_config(ClientCacheConfig::disabled())
        .await;
    let Some(info) = peer.peer_info() else {
        let reason = "the server sent no information about itself";
        return Err(handshake_error(target, reason.to_owned()));
    };
    let revision = info.protocol_version.to_string();
    let session = info.protocol_version.as_str() < ProtocolVersion::V_2026_07_28.as_str();
    let strategy = if session {
        WatchStrategy::Subscribe
    } else {
        WatchStrategy::Listen
    };
    // In 2026-07-28 this capability says whether listen streams carry updates of single resources.
    let push = match &info.capabilities.resources {
        Some(resources) if resources.subscribe == Some(true) => Some(strategy),
        _ => None,
    };
    let signals = LinkSignals { inbox, etags };
    Ok(Link::new(running, push, session, revision, signals))
}

/// Waits until the stream of an older revision is open, so that later changes are notified. Returns false if
/// the server offers no stream.
async fn has_stream(mut stream: watch::Receiver<StreamState>) -> bool {
    let decided = stream.wait_for(|stream| *stream != StreamState::Pending);
    match tokio::time::timeout(STREAM_TIMEOUT, decided).await {
        Ok(Ok(stream)) => *stream == StreamState::Opened,
        Ok(Err(_)) | Err(_) => true,
    }
}

fn handshake_error(target: &Target, reason: String) -> ConnectError {
    ConnectError::Handshake {
        target: target.to_string(),
        reason,
    }
}

/// Returns the error of a handshake with its cause.
pub(crate) fn initialize_error(target: &Target, error: &ClientInitializeError) -> ConnectError {
    transport_error(target, cause(error))
}

/// Tells a server that is not there from one that refuses the client, and from one that speaks otherwise.
fn transport_error(target: &Target, error: &(dyn std::error::Error + 'static)) -> ConnectError {
    let shown = target.to_string();
    if let Some(error) = credentials_error(error) {
        return ConnectError::Credentials(error);
    }
    if let Some(refusal) = refusal(error) {
        return ConnectError::Denied {
            target: shown,
            reason: refusal.to_string(),
        };
    }
    if let Some(status) = absence(error) {
        return ConnectError::NotServed {
            target: shown,
            status,
            hint: target.endpoint_hint(),
        };
    }
    let reason = match target {
        Target::Command(_) if is_ended(error) => "it ended before it answered".to_owned(),
        _ => reason(error),
    };
    match is_unreachable(error) {
        true => ConnectError::Unreachable {
            target: shown,
            reason,
        },
        false => handshake_error(target, reason),
    }
}

/// Returns the cause of a failed handshake, which rmcp does not return from `source()`.
fn cause(error: &ClientInitializeError) -> &(dyn std::error::Error + 'static) {
    match error {
        ClientInitializeError::TransportError { error, .. } => error.error.as_ref(),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => cause(fallback),
        other => other,
    }
}

/// Receives the notifications of the older revisions.
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
        // rmcp moves the metadata of this notification into the extensions.
        let meta = context
            .extensions
            .get::<NotificationMetaObject>()
            .unwrap_or(&context.meta);
        self.inbox.updated(&params.uri, etag_of(meta));
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.inbox.list_changed(ListKind::Resources);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.inbox.list_changed(ListKind::Tools);
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.inbox.list_changed(ListKind::Prompts);
    }

    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("tidings", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(Default::default(), client)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
