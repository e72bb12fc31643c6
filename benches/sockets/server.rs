//! The servers of the rows over real sockets: how each is started, changed and subscribed to.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;
use tidings::wire::connection::BlockingConnection;
use tidings::wire::dialect::Revision;
use tidings::wire::http1::HttpTarget;

use super::client::{connect, connect_from, publish};
use super::kind::Kind;
use super::mcp::{listen, open_bare_stream, open_session, open_session_stream, subscribe};
use super::{Era, broker};
use crate::guard::{Guard, OPS, OPS_RULE, guarded_command};
use crate::server_process::{ListeningServer, START_MAX, ServerProcess, serve_command};

/// The pause between attempts to connect to a server that does not print that it listens.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// The folder of servers on Debian, which is not on every user's path.
const SERVER_FOLDER: &str = "/usr/sbin";

/// The principal of the streams of a service with rules, and what it may.
const READER: &str = "reader";
const READER_RULE: &str = "[[auth.rule]]\nroles = ['reader']\nmay = ['list', 'read', 'subscribe']\n\
    match = ['bench://*']\n[[auth.rule]]\nroles = ['reader']\nmay = ['list', 'call']\n\
    match = ['tool:*']\n";

/// A running server.
pub(crate) struct Server {
    kind: Kind,
    server: ListeningServer,
    /// The credentials of its clients, where it asks for them.
    guard: Option<Guard>,
    /// The bytes of one delivery, where the bench chooses them.
    delivery_bytes: usize,
}

impl Server {
    /// Starts a server and waits until it listens; `settings` are variables of its environment.
    pub(crate) fn start(
        kind: Kind,
        delivery_bytes: usize,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Server> {
        let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
        let port = free_port()?;
        let guard = match kind {
            Kind::Guarded(_) => {
                let rules = format!("{READER_RULE}{OPS_RULE}");
                Some(Guard::write(folder.path(), &[OPS, READER], &rules)?)
            }
            _ => None,
        };
        let mut command = command(kind, &folder, delivery_bytes, port)?;
        command.envs(settings.iter().copied());
        let mut process = ServerProcess::start(command, folder.path().join("log"))?;
        let address = match kind {
            Kind::Nats | Kind::Redis => wait_until_connectable(&mut process, port)?,
            _ => process.wait_for_address(START_MAX)?,
        };
        Ok(Server {
            kind,
            server: ListeningServer::new(process, address, folder),
            guard,
            delivery_bytes,
        })
    }

    /// Returns the address and paths of its endpoint, with the credentials of a reader.
    pub(crate) fn target(&self) -> anyhow::Result<HttpTarget> {
        self.target_of(READER)
    }

    fn target_of(&self, name: &str) -> anyhow::Result<HttpTarget> {
        let target = HttpTarget::mcp(self.server.address);
        if let Some(guard) = &self.guard {
            guard.authorize(&target, name)?;
        }
        Ok(target)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Returns the request that changes `name` to `state`.
    pub(crate) fn publication(&self, name: &str, state: &str) -> anyhow::Result<Vec<u8>> {
        let target = self.target_of(OPS)?;
        Ok(self.kind.publication(&target, name, state, self.delivery_bytes))
    }

    /// Gives each of these resources a first state, where the server has to know them.
    pub(crate) fn create(&self, names: &[String]) -> anyhow::Result<()> {
        if !self.kind.is_service() {
            return Ok(());
        }
        let mut requests = Vec::new();
        for name in names {
            requests.push(self.publication(name, "the first state")?);
        }
        publish(&mut connect(self.server.address)?, &requests)
    }

    /// Opens a connection that may publish.
    pub(crate) fn publisher(&self) -> anyhow::Result<TcpStream> {
        match self.kind {
            Kind::Nats => broker::nats_stream(self.server.address, 0, &[]),
            _ => Ok(connect(self.server.address)?.into_socket()),
        }
    }

    /// Opens `count` streams, each on a connection of its own; `names` returns the resources of each.
    pub(crate) fn open_streams(
        &self,
        count: usize,
        names: &dyn Fn(usize) -> Vec<String>,
    ) -> anyhow::Result<Vec<TcpStream>> {
        let mut control = None;
        let mut streams = Vec::with_capacity(count);
        for index in 0..count {
            let stream = self.open_stream(&mut control, index, &names(index));
            streams.push(stream.with_context(|| format!("stream {index} of {count} could not be opened"))?);
        }
        Ok(streams)
    }

    /// Opens one stream.
    ///
    /// One connection, `control`, carries the handshakes of all sessions, so that every other connection is a
    /// stream and costs no more than that.
    fn open_stream(
        &self,
        control: &mut Option<BlockingConnection>,
        index: usize,
        names: &[String],
    ) -> anyhow::Result<TcpStream> {
        let address = self.server.address;
        let target = self.target()?;
        match self.kind {
            Kind::Nats => broker::nats_stream(address, index, names),
            Kind::Redis => broker::redis_stream(address, index, names),
            Kind::TidingsStreams | Kind::BareStreams => {
                bail!("streams of HTTP/2 have no socket of their own")
            }
            Kind::Bare => open_bare_stream(connect_from(address, index)?, &target),
            Kind::Tidings(Era::Listen) | Kind::Guarded(Era::Listen) | Kind::Rmcp(Era::Listen) => {
                listen(connect_from(address, index)?, &target, index, names)
            }
            Kind::Tidings(Era::Sessions) | Kind::Guarded(Era::Sessions) | Kind::Rmcp(Era::Sessions) => {
                let control = match control {
                    Some(control) => control,
                    none => none.insert(connect(address)?),
                };
                let dialect = open_session(control, &target, Revision::R2025_11_25)?;
                subscribe(control, &target, &dialect, names)?;
                open_session_stream(connect_from(address, index)?, &target, &dialect)
            }
        }
    }
}

fn command(kind: Kind, folder: &TempDir, delivery_bytes: usize, port: u16) -> anyhow::Result<Command> {
    let port = port.to_string();
    let mut command;
    match kind {
        Kind::Tidings(_) | Kind::TidingsStreams => {
            let served = folder.path().join("served");
            std::fs::create_dir(&served)?;
            command = serve_command(&served);
            // A connection that publishes waits for its turn longer than the default allows.
            command.env("TIDINGS_HTTP__HEADER_TIMEOUT", "5m");
        }
        Kind::Guarded(_) => {
            command = guarded_command(folder.path())?;
            command.env("TIDINGS_HTTP__HEADER_TIMEOUT", "5m");
        }
        Kind::Rmcp(_) => {
            command = Command::new(std::env::current_exe()?);
            command.arg("serve-rmcp");
        }
        Kind::Bare => {
            command = Command::new(std::env::current_exe()?);
            command.arg("serve-bare").arg(delivery_bytes.to_string());
        }
        Kind::BareStreams => {
            command = Command::new(std::env::current_exe()?);
            command.arg("serve-h2");
        }
        Kind::Nats => {
            command = Command::new(installed("nats-server")?);
            command.args(["--addr", "127.0.0.1", "--port", &port]);
        }
        Kind::Redis => {
            command = Command::new(installed("redis-server")?);
            command.current_dir(folder.path());
            command.args(["--bind", "127.0.0.1", "--port", &port, "--maxclients", "1000000"]);
            // An empty text turns off the snapshots that it would write to disk.
            command.args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]);
        }
    }
    Ok(command)
}

/// Returns the path of a program that the system's packages install.
fn installed(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(SERVER_FOLDER)]);
    let mut programs = folders.map(|folder| folder.join(name));
    let program = programs.find(|program| program.is_file());
    program.with_context(|| format!("install {name}"))
}

/// Returns a port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until a server that was told its port takes connections, and returns its address.
fn wait_until_connectable(process: &mut ServerProcess, port: u16) -> anyhow::Result<SocketAddr> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let started = Instant::now();
    while started.elapsed() < START_MAX && matches!(process.has_ended(), Ok(false)) {
        if TcpStream::connect(address).is_ok() {
            return Ok(address);
        }
        std::thread::sleep(TRY_EVERY);
    }
    Err(process.not_listening())
}
