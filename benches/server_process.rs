//! Servers as child processes: the program under test, its error log, and the address that it prints.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tempfile::TempDir;

/// The variable that names another program than the one built with the benches.
const PROGRAM: &str = "TIDINGS_BIN";

/// The time that a server has until it listens.
pub(crate) const START_MAX: Duration = Duration::from_secs(20);

/// Returns the program under test.
pub(crate) fn program() -> PathBuf {
    match std::env::var_os(PROGRAM) {
        Some(program) => PathBuf::from(program),
        None => PathBuf::from(env!("CARGO_BIN_EXE_tidings")),
    }
}

/// Returns the command that serves `folder` on a free port.
pub(crate) fn serve_command(folder: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg("serve").arg(folder);
    command.args(["--listen", "127.0.0.1:0"]);
    command
}

/// A server process, killed when this is dropped.
pub(crate) struct ServerProcess {
    child: Child,
    log: PathBuf,
}

impl ServerProcess {
    /// Starts a server whose error output goes to the file `log`.
    pub(crate) fn start(mut command: Command, log: PathBuf) -> anyhow::Result<ServerProcess> {
        // The service refuses variables with its prefix that name none of its keys.
        command.env_remove(PROGRAM);
        command.stdout(Stdio::piped()).stderr(File::create(&log)?);
        // Twins end when their standard input does, so they never outlive the benches.
        command.stdin(Stdio::piped());
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(ServerProcess { child, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for the first line of standard output that has an address, and returns the address.
    ///
    /// # Errors
    /// When the line does not come within `wait`; the last line of the log says why.
    pub(crate) fn wait_for_address(&mut self, wait: Duration) -> anyhow::Result<SocketAddr> {
        match self.printed_address(wait) {
            Some(address) => Ok(address),
            None => Err(self.not_listening()),
        }
    }

    fn printed_address(&mut self, wait: Duration) -> Option<SocketAddr> {
        let stdout = self.child.stdout.take()?;
        let (sender, lines) = sync_channel(1);
        // The thread reads to the end, so that a server that prints more is never blocked by a full pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if line.contains("://") && sender.try_send(line).is_err() {
                    // The first address is the one that is waited for.
                    continue;
                }
            }
        });
        let line = lines.recv_timeout(wait).ok()?;
        let (_, url) = line.split_once("://")?;
        url.split('/').next()?.parse().ok()
    }

    /// Returns the error for a server that does not listen, with the last line of its log.
    pub(crate) fn not_listening(&self) -> anyhow::Error {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let last = text.lines().last().unwrap_or("nothing");
        anyhow!("the server ended or took too long before it listened; its log ends with: {last}")
    }
}

/// A server that listens, and its folder, which holds the files that it serves and its log.
pub(crate) struct ListeningServer {
    process: ServerProcess,
    pub(crate) address: SocketAddr,
    _folder: TempDir,
}

impl ListeningServer {
    /// Starts the service on an empty folder.
    pub(crate) fn service() -> anyhow::Result<ListeningServer> {
        let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
        let served = folder.path().join("served");
        fs::create_dir(&served)?;
        ListeningServer::start(serve_command(&served), folder)
    }

    /// Starts a server that prints its address.
    pub(crate) fn start(command: Command, folder: TempDir) -> anyhow::Result<ListeningServer> {
        let mut process = ServerProcess::start(command, folder.path().join("log"))?;
        let address = process.wait_for_address(START_MAX)?;
        Ok(ListeningServer::new(process, address, folder))
    }

    /// Wraps a server that is known to listen.
    pub(crate) fn new(process: ServerProcess, address: SocketAddr, folder: TempDir) -> ListeningServer {
        ListeningServer {
            process,
            address,
            _folder: folder,
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail only for a child that has ended already.
        if self.child.kill().is_ok() && self.child.wait().is_err() {
            eprintln!("process {} could not be waited for", self.child.id());
        }
    }
}
