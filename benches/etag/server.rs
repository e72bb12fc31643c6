//! The two servers of the row, each a process of its own.
//!
//! Owns: the children, from the line in which they tell their address to their end, which is certain: they are killed
//! when the handle goes, and the twin ends by itself when its standard input closes.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tempfile::TempDir;

/// How long a server may take until it says where it listens.
const START_MAX: Duration = Duration::from_secs(20);

/// A running server.
pub(super) struct Server {
    child: Child,
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// What it serves and what it says on standard error.
    _folder: TempDir,
}

impl Server {
    /// The service: the one built with the benches, unless `TIDINGS_BIN` names another.
    pub(super) fn tidings() -> anyhow::Result<Server> {
        let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
        let served = folder.path().join("served");
        std::fs::create_dir(&served)?;
        let built = || PathBuf::from(env!("CARGO_BIN_EXE_tidings"));
        let mut command = Command::new(std::env::var_os("TIDINGS_BIN").map_or_else(built, PathBuf::from));
        // The service takes every variable with its prefix for one of its own, and refuses what it does not know.
        command.env_remove("TIDINGS_BIN");
        command.arg("serve").arg(served).args(["--listen", "127.0.0.1:0"]);
        Server::start(command, folder)
    }

    /// The bare handler, which answers `body` to everything.
    pub(super) fn bare(body: &str) -> anyhow::Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve-axum", body]);
        Server::start(command, tempfile::tempdir()?)
    }

    fn start(mut command: Command, folder: TempDir) -> anyhow::Result<Server> {
        let log = folder.path().join("log");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.stderr(File::create(&log)?).spawn();
        let child = child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let mut server = Server {
            child,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            _folder: folder,
        };
        server.address = listening(&mut server.child).ok_or_else(|| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("nothing");
            anyhow!("the server ended or took too long before it listened; it said: {last}")
        })?;
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a child that has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
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
    let line = told.recv_timeout(START_MAX).ok()?;
    let (_, url) = line.split_once("http://")?;
    url.split('/').next()?.parse().ok()
}
