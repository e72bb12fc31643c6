//! A node of a cluster: the service as a process of its own.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use tempfile::TempDir;
use tidings::wire::http1::HttpTarget;

use super::brokers::{Brokers, PROGRAM};
use crate::ready_server::ReadyServer;
use crate::server_process::{ServerProcess, program};

/// The limit on the time of a start, the election of new servers included.
const START_MAX: Duration = Duration::from_secs(60);

/// A running node.
pub(super) struct Node {
    process: ServerProcess,
    pub(super) target: HttpTarget,
    /// The time from before its start until it was ready.
    pub(super) ready: Duration,
    _folder: TempDir,
}

impl Node {
    /// Starts a node, and waits until it is ready.
    pub(super) fn start(brokers: &Brokers, namespace: &str, name: &str) -> anyhow::Result<Node> {
        let folder = tempfile::tempdir().context("cannot make a folder for the node")?;
        let config = folder.path().join("tidings.toml");
        let urls = brokers.urls();
        let text = format!(
            "[cluster]\nengine = 'nats'\nurls = {urls:?}\nnamespace = '{namespace}'\nnode = '{name}'\n"
        );
        std::fs::write(&config, text)?;
        // Without a folder to serve, so that its content is that of the log alone.
        let mut command = Command::new(program());
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&config);
        command.env_remove(PROGRAM);
        let ReadyServer {
            process,
            target,
            ready,
        } = ReadyServer::start(command, folder.path().join("log"), START_MAX)?;
        Ok(Node {
            process,
            target,
            ready,
            _folder: folder,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.target.address
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }
}
