//! The process of the server under test, where the test starts it.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::bench::BenchError;

/// The time within which a server must accept connections.
const START_MAX: Duration = Duration::from_secs(30);
/// The time within which a server must end after SIGTERM; then it is killed.
const END_MAX: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running server; it ends with this handle.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
}

impl Server {
    /// Starts `command` with a free port in place of `{port}` and waits until it accepts connections there.
    ///
    /// The command replaces its shell, so that its process is the one that is measured.
    pub(crate) fn start(command: &str) -> Result<Server, BenchError> {
        let port =
            free_port().map_err(|error| BenchError::Failed(format!("cannot find a free port: {error}")))?;
        // `exec`, so that the process id is the server's and not the shell's.
        let line = format!("exec {}", command.replace("{port}", &port.to_string()));
        let child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| BenchError::Failed(format!("cannot start {command:?}: {error}")))?;
        let mut server = Server { child, port };
        server.wait_until_listening(command)?;
        Ok(server)
    }

    fn wait_until_listening(&mut self, command: &str) -> Result<(), BenchError> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let until = Instant::now() + START_MAX;
        // A connection is the only sign of readiness that every server gives.
        while TcpStream::connect_timeout(&address, POLL_INTERVAL).is_err() {
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
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        terminate(self.child.id());
        let until = Instant::now() + END_MAX;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            sleep(POLL_INTERVAL);
        }
        // Both fail only for a child that has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[cfg(unix)]
pub(crate) fn terminate(pid: u32) {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    if let Ok(pid) = i32::try_from(pid) {
        // Fails for a process that has ended already, which is the purpose.
        kill(Pid::from_raw(pid), Signal::SIGTERM).ok();
    }
}

#[cfg(not(unix))]
pub(crate) fn terminate(_pid: u32) {}

/// Returns a port that is free now; the server takes it a moment later.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
