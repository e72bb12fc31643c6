//! The server under test, where the test starts it itself.
//!
//! Owns the process from its start to its end, which is certain: it is asked to end when the handle goes, and killed
//! when it does not. It measures nothing.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bench::BenchError;

/// How long a server may take until it accepts connections.
const START_MAX: Duration = Duration::from_secs(30);
/// How long it may take to end when it is asked to.
const END_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts `command` with a free port in place of `{port}` and waits until somebody listens there. The command
    /// replaces its shell, so that its process is the one that is measured.
    pub(crate) fn start(command: &str) -> Result<Server, BenchError> {
        let port =
            free_port().map_err(|error| BenchError::Failed(format!("cannot find a free port: {error}")))?;
        let line = format!("exec {}", command.replace("{port}", &port.to_string()));
        let child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| BenchError::Failed(format!("cannot start {command:?}: {error}")))?;
        let mut server = Server { child, port };
        server.until_it_listens(command)?;
        Ok(server)
    }

    fn until_it_listens(&mut self, command: &str) -> Result<(), BenchError> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let until = Instant::now() + START_MAX;
        while TcpStream::connect_timeout(&address, LOOK_EVERY).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                let reason = format!(
                    "{command:?} ended before it listened on port {}: {status}",
                    self.port
                );
                return Err(BenchError::Unreachable(reason));
            }
            if Instant::now() > until {
                let port = self.port;
                return Err(BenchError::Unreachable(format!(
                    "{command:?} does not listen on port {port} after {START_MAX:?}: does it use {{port}}?"
                )));
            }
            sleep(LOOK_EVERY);
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        ask_to_end(self.child.id());
        let until = Instant::now() + END_MAX;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(LOOK_EVERY);
        }
        // Both fail only for a child that has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[cfg(unix)]
pub(crate) fn ask_to_end(pid: u32) {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    let Ok(pid) = i32::try_from(pid) else { return };
    // It may have ended already.
    kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap_or_default();
}

#[cfg(not(unix))]
pub(crate) fn ask_to_end(_pid: u32) {}

/// A port that nobody listens on; the server that is started takes it a moment later.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
