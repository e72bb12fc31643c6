//! The way from a target to an [`UpstreamConnection`]: the process or the HTTP client, and the handshake.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use process_wrap::tokio::{CommandWrap, ProcessGroup};
use rmcp::model::ProtocolVersion;
use rmcp::transport::IntoTransport;
use rmcp::{ClientCacheConfig, ClientLifecycleMode, ClientServiceExt, RoleClient};

use super::connection::{ConnectionEnd, UpstreamConnection};
use super::failure;
use super::hearing::{HeardTransport, Hearing};
use super::inbound::Inbound;
use super::introduction::{Handshake, Introduction};
use super::options::Isolation;
use super::program::ServerProgram;
use super::tool_names::ToolNames;
use super::upstream::Upstream;
use crate::client::error_output::ErrorOutput;
use crate::client::{ConnectError, HttpConnection, Target, initialize_error};

/// The time that a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The variables of the gateway's environment that a server's program gets; no other is passed on, since it
/// may be a secret.
const ENVIRONMENT: [&str; 8] = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "SHELL"];

/// Connects to the server.
pub(super) async fn connect(
    upstream: &Upstream,
    caller: &Introduction,
) -> Result<UpstreamConnection, ConnectError> {
    match &caller.handshake {
        Handshake::Initialize(_) => connect_as(upstream, caller, ClientLifecycleMode::Initialize).await,
        Handshake::Newest => {
            let auto = ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            };
            match connect_as(upstream, caller, auto).await {
                // Some older servers answer an unknown first request by hanging up, or without JSON-RPC.
                Err(first @ (ConnectError::Handshake { .. } | ConnectError::NotServed { .. })) => {
                    let again = connect_as(upstream, caller, ClientLifecycleMode::Initialize).await;
                    again.map_err(|_| first)
                }
                other => other,
            }
        }
    }
}

async fn connect_as(
    upstream: &Upstream,
    caller: &Introduction,
    mode: ClientLifecycleMode,
) -> Result<UpstreamConnection, ConnectError> {
    let is_of_one_client = !caller.is_shared || upstream.options().isolation == Isolation::Sole;
    let hearing = Arc::new(Hearing::new(caller, is_of_one_client, upstream.metrics().clone()));
    let lost = ConnectionEnd::new();
    let target = &upstream.options().target;
    let greeting = Greeting {
        target,
        caller,
        mode,
        hearing,
        lost: lost.clone(),
        pid: None,
    };
    match target {
        Target::Http(url) => {
            let answers = failure::missing_answers(upstream.metrics());
            let credentials = &upstream.options().credentials;
            let http = HttpConnection::prepare_shared(target, url, credentials, answers).await?;
            let (transport, stream) = http.into_parts();
            let connection = greeting.shake_hands(transport).await?;
            if caller.needs_stream && !connection.is_stateless() {
                stream.opened().await;
            }
            let signals = caller.signals.clone();
            tokio::spawn(async move {
                tokio::select! {
                    () = stream.lost(|| signals.iter().for_each(|signals| signals.may_lack())) => lost.set(),
                    () = lost.wait() => {}
                }
            });
            Ok(connection)
        }
        Target::Command(command) => {
            let (transport, mut errors) = start(upstream, command)?;
            let pid = transport.id();
            let greeting = Greeting { pid, ..greeting };
            let connection = greeting.shake_hands(transport).await;
            // Before the failure is reported: the last lines of a program that has ended give the reason.
            if let (Err(_), Some(errors)) = (&connection, &mut errors) {
                errors.finish().await;
            }
            connection
        }
    }
}

/// Starts the program of a server, in a process group of its own: the whole group is ended with it, and an
/// interrupt from the keyboard reaches the gateway alone, which ends it in order.
fn start(
    upstream: &Upstream,
    command: &[OsString],
) -> Result<(ServerProgram, Option<ErrorOutput>), ConnectError> {
    let options = upstream.options();
    let (program, arguments) = command
        .split_first()
        .expect("a command has a program: Target::command");
    let mut command = CommandWrap::with_new(program, |command| {
        command.args(arguments).kill_on_drop(true).env_clear();
        let named = options.environment.iter().map(String::as_str);
        for name in ENVIRONMENT.into_iter().chain(named) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(&options.variables);
    });
    // A launcher such as npx starts the server as a process of its own, which must not outlive it.
    command.wrap(ProcessGroup::leader());
    let started = ServerProgram::start(command, upstream.metrics().clone());
    let (program, errors) = started.map_err(|error| ConnectError::Unreachable {
        target: options.target.to_string(),
        reason: error.to_string(),
    })?;
    let dropped = upstream.metrics().error_lines_dropped.clone();
    Ok((
        program,
        errors.map(|errors| ErrorOutput::copy_limited(errors, upstream.label(), dropped)),
    ))
}

/// A handshake that is about to begin.
struct Greeting<'a> {
    target: &'a Target,
    caller: &'a Introduction,
    mode: ClientLifecycleMode,
    hearing: Arc<Hearing>,
    lost: ConnectionEnd,
    /// The process of the server, if it is a program.
    pid: Option<u32>,
}

impl Greeting<'_> {
    async fn shake_hands<T, E, A>(self, transport: T) -> Result<UpstreamConnection, ConnectError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let version = match &self.caller.handshake {
            Handshake::Newest => ProtocolVersion::LATEST_WITH_INITIALIZE,
            Handshake::Initialize(version) => version.clone(),
        };
        let inbound = Inbound {
            hearing: self.hearing.clone(),
            client: self.caller.client.clone().with_protocol_version(version),
        };
        let transport = HeardTransport {
            inner: transport.into_transport(),
            hearing: self.hearing.clone(),
            tools: ToolNames::default(),
            lost: self.lost.clone(),
        };
        let failed = |reason: &str| ConnectError::Handshake {
            target: self.target.to_string(),
            reason: reason.to_owned(),
        };
        // rmcp waits without an end for a server that says nothing.
        let serving = inbound.serve_with_lifecycle(transport, self.mode);
        let running = match tokio::time::timeout(HANDSHAKE_TIMEOUT, serving).await {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => return Err(initialize_error(self.target, &error)),
            Err(_) => return Err(failed("no answer within 30 s")),
        };
        let peer = running.peer();
        // A cached answer would hide a change.
        peer.set_response_cache_config(ClientCacheConfig::disabled())
            .await;
        let Some(info) = peer.peer_info() else {
            return Err(failed("the server sent no information about itself"));
        };
        let connection = UpstreamConnection::new(running, info, self.hearing, self.lost);
        Ok(connection.of_process(self.pid))
    }
}
