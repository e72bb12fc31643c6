//! The real binary, with its configuration, log and files in a folder that outlives the process.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tidings::wire::http1::resource_path;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::mcp::http::Request;
use crate::mcp::server::binary;
use crate::support::{until, within};

/// A shell line that starts a program without the default action of SIGXFSZ, which the file size limit
/// raises.
const IGNORING_LIMITS: &str = "trap '' XFSZ; exec \"$0\" \"$@\"";

/// A folder with the configuration, the log and the files of a service.
pub(crate) struct ServiceFolder(TempDir);

impl ServiceFolder {
    pub(crate) fn new(config: &str) -> ServiceFolder {
        let folder = ServiceFolder(tempfile::tempdir().unwrap());
        folder.configure(config);
        folder
    }

    pub(crate) fn configure(&self, config: &str) {
        fs::write(self.file("tidings.toml"), config).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the text of a file, or an empty text if it does not exist.
    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// Returns the objects of a JSON-lines file, every line of which must be whole.
    pub(crate) fn lines(&self, name: &str) -> Vec<Value> {
        let text = self.text(name);
        assert!(
            text.is_empty() || text.ends_with('\n'),
            "{name} ends in half a line"
        );
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
            .collect()
    }

    fn command(&self, limits: &str) -> Command {
        let log = fs::File::options()
            .append(true)
            .create(true)
            .open(self.file("log"))
            .unwrap();
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                &format!("{limits} {IGNORING_LIMITS}"),
                binary(),
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--config",
            ])
            .arg(self.file("tidings.toml"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SSL_CERT_FILE", self.file("authority.pem"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        command
    }

    /// Starts the service in this folder.
    pub(crate) async fn start(&self) -> Service<'_> {
        self.start_after("").await
    }

    /// Starts the service after a shell command that sets its limits.
    pub(crate) async fn start_after(&self, limits: &str) -> Service<'_> {
        let mut child = self.command(limits).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = within(out.next_line()).await.unwrap();
        let line = line.unwrap_or_else(|| panic!("it did not start: {}", self.text("log")));
        let address = line.trim_start_matches("tidings listening on http://");
        let address = address.trim_end_matches("/mcp").parse().unwrap();
        Service {
            folder: self,
            address,
            child,
            _out: out.into_inner(),
        }
    }

    /// Starts the service and waits for it to end by itself. Returns true if it succeeded.
    pub(crate) async fn run(&self) -> bool {
        let mut child = self.command("").spawn().unwrap();
        within(child.wait()).await.unwrap().success()
    }
}

/// A running service.
pub(crate) struct Service<'a> {
    folder: &'a ServiceFolder,
    pub(crate) address: SocketAddr,
    child: Child,
    _out: BufReader<ChildStdout>,
}

impl Service<'_> {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Waits for the end of the service. Returns its exit code.
    pub(crate) async fn ended(mut self) -> Option<i32> {
        within(self.child.wait()).await.unwrap().code()
    }

    /// Sends a signal that ends the service, and waits for the end.
    pub(crate) async fn end(mut self, signal: Signal) {
        self.signal(signal);
        let status = within(self.child.wait()).await.unwrap();
        assert!(
            status.success() || signal == Signal::SIGKILL,
            "{}",
            self.folder.text("log")
        );
    }

    /// Creates or replaces a text resource.
    pub(crate) async fn put(&self, uri: &str, text: &str) {
        assert!(self.try_put(uri, text).await, "{uri} could not be put");
    }

    /// Creates or replaces a text resource. Returns false if the service is gone.
    pub(crate) async fn try_put(&self, uri: &str, text: &str) -> bool {
        let request = Request::new("PUT", resource_path(uri)).header("content-type", "text/plain");
        let answer = request.body(text).try_open(self.address).await;
        match answer {
            Some(answer) => matches!(answer.status, 201 | 204),
            None => false,
        }
    }

    pub(crate) async fn delete(&self, uri: &str) {
        let answer = Request::new("DELETE", resource_path(uri))
            .send(self.address)
            .await;
        assert_eq!(answer.status, 204);
    }

    /// Returns the items of `GET /v1/subscribers`.
    pub(crate) async fn subscribers(&self) -> Vec<Value> {
        let answer = Request::new("GET", "/v1/subscribers").send(self.address).await;
        answer.json()["items"].as_array().unwrap().clone()
    }

    /// Waits until `holds` is true for the subscriber with this name.
    pub(crate) async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) {
        until(&format!("{name}: {what}"), async || {
            self.subscribers()
                .await
                .iter()
                .any(|one| one["name"] == name && holds(one))
        })
        .await;
    }

    /// Waits until the log contains `words`.
    pub(crate) async fn until_logged(&self, words: &str) {
        until(&format!("{words:?} in the log"), async || {
            self.folder.text("log").contains(words)
        })
        .await;
    }
}
