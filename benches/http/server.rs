//! The measured servers as child processes.
//!
//! Owns: the children, from the line in which they tell their address to their end, which is certain: they are killed
//! when the handle goes, and the twins end by themselves when their standard input closes.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tempfile::TempDir;

use super::wire::Thing;

/// How long a server may take until it says where it listens.
const START_MAX: Duration = Duration::from_secs(20);

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The service; the one built with the benches, unless `TIDINGS_BIN` names another.
    Tidings,
    /// rmcp with its own session layer.
    Rmcp,
    /// Bare sockets.
    Bare,
}

impl Kind {
    fn command(self, folder: &TempDir, frame_bytes: usize) -> anyhow::Result<Command> {
        if self == Kind::Tidings {
            let built = || PathBuf::from(env!("CARGO_BIN_EXE_tidings"));
            let mut command = Command::new(std::env::var_os("TIDINGS_BIN").map_or_else(built, PathBuf::from));
            let served = folder.path().join("served");
            std::fs::create_dir(&served)?;
            command.arg("serve").arg(served).args(["--listen", "127.0.0.1:0"]);
            return Ok(command);
        }
        let mut command = Command::new(std::env::current_exe()?);
        match self {
            Kind::Bare => command.arg("serve-bare").arg(frame_bytes.to_string()),
            _ => command.arg("serve-rmcp"),
        };
        Ok(command)
    }
}

/// A running server.
pub(super) struct Server {
    kind: Kind,
    child: Child,
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// What it serves and what it says on standard error.
    _folder: TempDir,
}

impl Server {
    /// Starts a server and waits until it listens.
    pub(super) fn start(kind: Kind, frame_bytes: usize) -> anyhow::Result<Server> {
        let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
        let log = folder.path().join("log");
        let mut command = kind.command(&folder, frame_bytes)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .stderr(File::create(&log)?)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let Some(address) = listening(&mut child) else {
            end(&mut child);
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
            _folder: folder,
        })
    }

    /// The request that changes `thing` to `state`.
    pub(super) fn publication(&self, thing: Thing, state: &str) -> Vec<u8> {
        let (length, name, address) = (state.len(), thing.name, self.address);
        let start = match self.kind {
            Kind::Tidings => format!("PUT /v1/resources/bench%3A%2F%2F{name}"),
            Kind::Rmcp | Kind::Bare => format!("POST /publish/{name}"),
        };
        let head = format!(
            "{start} HTTP/1.1\r\nHost: {address}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n\r\n"
        );
        (head + state).into_bytes()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // Both fail only for a child that has ended already.
    drop(child.kill());
    drop(child.wait());
}

/// The address in the first line of standard output that has one; the rest is read and dropped, so that a server
/// that says more is never held up.
fn listening(child: &mut Child) -> Option<SocketAddr> {
    let stdout = child.stdout.take()?;
    let (tell, told) = sync_channel(1);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.contains("http://") {
                // Only the first one is waited for.
                drop(tell.try_send(line));
            }
        }
    });
    address_in(&told.recv_timeout(START_MAX).ok()?)
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, url) = line.split_once("http://")?;
    url.split('/').next()?.parse().ok()
}
