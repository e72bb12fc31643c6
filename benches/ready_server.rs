//! A service as a process of its own that has read everything: its start is over when `/readyz` says so.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tidings::wire::http1::HttpTarget;

use crate::server_process::ServerProcess;
use crate::sockets::connect;

/// A service that is ready.
pub(crate) struct ReadyServer {
    pub(crate) process: ServerProcess,
    pub(crate) target: HttpTarget,
    /// The time from before its start until it was ready.
    pub(crate) ready: Duration,
}

impl ReadyServer {
    /// Starts a service whose error output goes to the file `log`, and waits for `wait` at most.
    pub(crate) fn start(command: Command, log: PathBuf, wait: Duration) -> anyhow::Result<ReadyServer> {
        let begin = Instant::now();
        let mut process = ServerProcess::start(command, log)?;
        let address = process.wait_for_address(wait)?;
        let target = HttpTarget::mcp(address);
        let request = target.request_to("GET", "/readyz").finish();
        while connect(address)?.exchange(&request)?.head.status != 200 {
            ensure!(begin.elapsed() < wait, "it is not ready after {wait:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(ReadyServer {
            process,
            target,
            ready: begin.elapsed(),
        })
    }
}
