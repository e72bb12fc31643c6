//! The measured servers.
//!
//! Owns: how each is started, and when it counts as listening; they end with the handle, and the twins by themselves
//! too, when their standard input closes.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use tempfile::TempDir;

use super::client::Client;
use super::kind::Kind;
use super::mcp::{listen, open_stream, start_session};
use super::{Era, broker};
use crate::child::{self, program};

/// How long a server may take until it listens.
const START_MAX: Duration = Duration::from_secs(20);
/// How often a server is tried that does not tell when it listens.
const TRY_EVERY: Duration = Duration::from_millis(10);
/// Where Debian puts servers, which is not on everybody's path.
const SERVER_FOLDER: &str = "/usr/sbin";

/// A running server.
pub(crate) struct Server {
    pub(super) kind: Kind,
    child: child::Server,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Bytes of one of its deliveries, where they are for the bench to choose.
    delivery_bytes: usize,
    /// What it serves and what it says on standard error.
    _folder: TempDir,
}

impl Server {
    /// Starts a server and waits until it listens; `settings` are variables of its environment.
    pub(crate) fn start(
        kind: Kind,
        delivery_bytes: usize,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Server> {
        let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
        let log = folder.path().join("log");
        let port = free_port()?;
        let mut command = command(kind, &folder, delivery_bytes, port)?;
        command.envs(settings.iter().copied());
        command.stdin(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = child::Server::start(&mut command)?;
        let address = match kind {
            Kind::Nats | Kind::Redis => connectable(&mut child, port),
            Kind::Tidings(_) | Kind::Rmcp(_) | Kind::Bare => child.address(START_MAX),
        };
        let Some(address) = address else {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("nothing");
            return Err(anyhow!(
                "the server ended or took too long before it listened; it said: {last}"
            ));
        };
        Ok(Server {
            kind,
            child,
            address,
            delivery_bytes,
            _folder: folder,
        })
    }

    /// The request that changes `name` to `state`.
    pub(crate) fn publication(&self, name: &str, state: &str) -> Vec<u8> {
        let bytes = self.delivery_bytes;
        self.kind.publication(self.address, name, state, bytes)
    }

    /// Gives each of these resources a first state, where the server has to know them.
    pub(crate) fn create(&self, names: &[String]) -> anyhow::Result<()> {
        if !self.kind.is_ours() {
            return Ok(());
        }
        let first = |name: &String| self.publication(name, "the first state");
        let requests: Vec<Vec<u8>> = names.iter().map(first).collect();
        Client::connect(self.address)?.publish(&requests)
    }

    /// A connection that may publish.
    pub(super) fn publisher(&self) -> anyhow::Result<TcpStream> {
        match self.kind {
            Kind::Nats => broker::nats_stream(self.address, 0, &[]),
            _ => Client::connect(self.address).map(Client::into_socket),
        }
    }

    /// Opens `count` streams, each on a connection of its own; `names` says what each one subscribes to.
    pub(crate) fn open_streams(
        &self,
        count: usize,
        names: &dyn Fn(usize) -> Vec<String>,
    ) -> anyhow::Result<Vec<TcpStream>> {
        let mut control = None;
        let open = |index| {
            let stream = self.open_stream(&mut control, index, &names(index));
            stream.with_context(|| format!("stream {index} of {count} could not be opened"))
        };
        (0..count).map(open).collect()
    }

    /// Opens one stream. One connection, `control`, carries the handshakes of all sessions, so that all others are
    /// streams and nothing else.
    fn open_stream(
        &self,
        control: &mut Option<Client>,
        index: usize,
        names: &[String],
    ) -> anyhow::Result<TcpStream> {
        let connect = || Client::connect_from(self.address, index);
        match self.kind {
            Kind::Nats => broker::nats_stream(self.address, index, names),
            Kind::Redis => broker::redis_stream(self.address, index, names),
            Kind::Bare => open_stream(connect()?, ""),
            Kind::Tidings(Era::Listen) | Kind::Rmcp(Era::Listen) => listen(connect()?, index, names),
            Kind::Tidings(Era::Sessions) | Kind::Rmcp(Era::Sessions) => {
                let control = match control {
                    Some(control) => control,
                    none => none.insert(Client::connect(self.address)?),
                };
                let headers = start_session(control, names)?;
                open_stream(connect()?, &headers)
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }
}

fn command(kind: Kind, folder: &TempDir, delivery_bytes: usize, port: u16) -> anyhow::Result<Command> {
    let mut command = match kind {
        Kind::Tidings(_) => Command::new(program()),
        Kind::Rmcp(_) | Kind::Bare => Command::new(std::env::current_exe()?),
        Kind::Nats => Command::new(installed("nats-server")?),
        Kind::Redis => Command::new(installed("redis-server")?),
    };
    let port = port.to_string();
    match kind {
        Kind::Tidings(_) => {
            let served = folder.path().join("served");
            std::fs::create_dir(&served)?;
            // A connection that publishes waits for its turn longer than others may.
            command.env("TIDINGS_HTTP__HEADER_TIMEOUT", "5m");
            command.arg("serve").arg(served).args(["--listen", "127.0.0.1:0"])
        }
        Kind::Rmcp(_) => command.arg("serve-rmcp"),
        Kind::Bare => command.arg("serve-bare").arg(delivery_bytes.to_string()),
        Kind::Nats => command.args(["--addr", "127.0.0.1", "--port", &port]),
        Kind::Redis => command
            .current_dir(folder.path())
            .args(["--bind", "127.0.0.1", "--port", &port, "--maxclients", "1000000"])
            // An empty text turns off what it would otherwise write to disk.
            .args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]),
    };
    Ok(command)
}

/// Where a program is that the system's packages install.
fn installed(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(SERVER_FOLDER)]);
    let mut programs = folders.map(|folder| folder.join(name));
    let program = programs.find(|program| program.is_file());
    program.with_context(|| format!("install {name}"))
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// The address of a server that was told its port, once it takes connections.
fn connectable(child: &mut child::Server, port: u16) -> Option<SocketAddr> {
    let (address, started) = (SocketAddr::from(([127, 0, 0, 1], port)), Instant::now());
    while started.elapsed() < START_MAX && matches!(child.has_ended(), Ok(false)) {
        if TcpStream::connect(address).is_ok() {
            return Some(address);
        }
        std::thread::sleep(TRY_EVERY);
    }
    None
}
