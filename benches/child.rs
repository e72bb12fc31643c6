//! Servers as child processes, for every row that starts some.
//!
//! Owns: the program that is measured, the wait for the line in which a server tells its address, and the end of a
//! child, which is certain. Never: knows what a server serves.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::Context;

/// Names another program than the one built with the benches.
const PROGRAM: &str = "TIDINGS_BIN";

/// The program that is measured.
pub(crate) fn program() -> PathBuf {
    let built = || PathBuf::from(env!("CARGO_BIN_EXE_tidings"));
    std::env::var_os(PROGRAM).map_or_else(built, PathBuf::from)
}

/// A server that is killed when this goes.
pub(crate) struct Server(Child);

impl Server {
    /// Starts it; what it says on standard output is kept for [`address`](Self::address).
    pub(crate) fn start(command: &mut Command) -> anyhow::Result<Server> {
        // The service takes every variable with its prefix for one of its own, and refuses what it does not know.
        command.env_remove(PROGRAM).stdout(Stdio::piped());
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Server(child))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// The address in the first line of standard output that has one; none when it does not come within `wait`, or the
    /// server ends before. The rest is read and dropped, so that a server that says more is never held up.
    pub(crate) fn address(&mut self, wait: Duration) -> Option<SocketAddr> {
        let stdout = self.0.stdout.take()?;
        let (tell, told) = sync_channel(1);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.contains("http://") {
                    // Only the first one is waited for.
                    drop(tell.try_send(line));
                }
            }
        });
        let line = told.recv_timeout(wait).ok()?;
        let (_, url) = line.split_once("http://")?;
        url.split('/').next()?.parse().ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only for a child that has ended already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
