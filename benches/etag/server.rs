//! The two servers of the row, each a process of its own.
//!
//! Owns: how each is started; they end with the handle, and the twin by itself too, when its standard input closes.

use std::fs::File;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tempfile::TempDir;

use crate::child::{self, program};

/// How long a server may take until it says where it listens.
const START_MAX: Duration = Duration::from_secs(20);

/// A running server.
pub(super) struct Server {
    child: child::Server,
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
        let mut command = Command::new(program());
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
        command.stdin(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = child::Server::start(&mut command)?;
        let address = child.address(START_MAX).ok_or_else(|| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("nothing");
            anyhow!("the server ended or took too long before it listened; it said: {last}")
        })?;
        Ok(Server {
            child,
            address,
            _folder: folder,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }
}
