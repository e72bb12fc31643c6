//! The real binary on a folder of its own, from its start to its exit code. Its stderr is printed when a test
//! fails.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tidings::wire::http1::resource_path;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::http::{Reply, Request, within};

/// `tidings serve` on a folder, listening on a free port.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: Process,
}

impl Server {
    pub(crate) async fn start() -> Server {
        Server::with("").await
    }

    /// Starts it with these lines of configuration.
    pub(crate) async fn with(config: &str) -> Server {
        Server::with_files(config, &[]).await
    }

    /// Starts it with these lines of configuration, and with files beside them.
    pub(crate) async fn with_files(config: &str, files: &[(&str, &str)]) -> Server {
        let folder = service_folder(config);
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("a file");
        }
        let mut process = Process::spawn(folder, &["--listen", "127.0.0.1:0"], Stdio::null());
        let line = within("the line that names the address", process.out.next_line()).await;
        let line = line.expect("stdout is text").expect("the service started");
        let url = line
            .trim_start_matches("tidings listening on http")
            .trim_start_matches('s');
        let url = url.trim_start_matches("://");
        let address = url.trim_end_matches("/mcp").parse();
        let address = address.unwrap_or_else(|error| panic!("{error}: {line}"));
        Server { address, process }
    }

    /// Returns the path of a file in the served folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.process.folder.path().join("resources").join(name)
    }

    /// Writes a file of the served folder.
    pub(crate) fn write_file(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("a file");
    }

    /// Returns the folder that is served.
    pub(crate) fn folder(&self) -> &Path {
        self.process.folder.path()
    }

    /// Waits until the service has found the file behind a resource.
    pub(crate) async fn until_listed(&self, uri: &str) {
        within("a resource", async {
            while self.api("GET", uri, "").await.status != 200 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Creates or replaces a text resource over the HTTP API; returns its etag.
    pub(crate) async fn put(&self, uri: &str, text: &str) -> String {
        let reply = self.api("PUT", uri, text).await;
        assert!(
            matches!(reply.status, 201 | 204),
            "{}: {}",
            reply.status,
            reply.text()
        );
        reply
            .header("etag")
            .expect("an etag")
            .trim_matches('"')
            .to_owned()
    }

    /// A request for a resource of the HTTP API.
    pub(crate) async fn api(&self, method: &'static str, uri: &str, body: &str) -> Reply {
        let mut request = Request::new(method, resource_path(uri)).body(body);
        if method == "PUT" {
            request = request.header("content-type", "text/plain");
        }
        request.send(self.address).await
    }

    /// The items of `GET /v1/sessions`.
    pub(crate) async fn sessions(&self) -> Vec<Value> {
        let reply = Request::new("GET", "/v1/sessions").send(self.address).await;
        reply.json()["items"]
            .as_array()
            .expect("a list of sessions")
            .clone()
    }

    /// Waits until the sessions satisfy `holds`.
    pub(crate) async fn until(&self, what: &str, holds: impl Fn(&[Value]) -> bool) {
        within(what, async {
            while !holds(&self.sessions().await) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub(crate) async fn assert_healthy(&self) {
        let reply = Request::new("GET", "/healthz").send(self.address).await;
        assert_eq!((reply.status, reply.text()), (200, "ok"));
    }

    /// The id of the process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id().expect("it runs")
    }

    /// Bytes of memory in use.
    pub(crate) fn memory(&self) -> u64 {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the process is there");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("its memory");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kilobytes << 10
    }

    /// Sends the process a SIGTERM.
    pub(crate) fn terminate(&self) {
        self.process.terminate();
    }

    /// Waits until the process has ended; it must have succeeded and printed nothing more.
    pub(crate) async fn assert_ended(&mut self) {
        self.process.assert_ended().await;
    }
}

/// A client of `tidings serve --stdio`: one message per line.
pub(crate) struct StdioClient {
    process: Process,
    input: Option<ChildStdin>,
    folder: PathBuf,
}

impl StdioClient {
    pub(crate) fn start(arguments: &[&str]) -> StdioClient {
        let all = [&["--stdio"], arguments].concat();
        let mut process = Process::spawn(
            service_folder("[workspace]\ndebounce = \"10ms\"\n"),
            &all,
            Stdio::piped(),
        );
        let input = process.child.stdin.take();
        let folder = process.folder.path().join("resources");
        StdioClient {
            process,
            input,
            folder,
        }
    }

    /// Writes a file of the folder that is served.
    pub(crate) fn write_file(&self, name: &str, text: &str) {
        fs::write(self.folder.join(name), text).expect("a file");
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    pub(crate) async fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("stdin is open");
        input
            .write_all(format!("{line}\n").as_bytes())
            .await
            .expect("stdin is read");
        input.flush().await.expect("stdin is read");
    }

    /// Returns the next message; every line must be one.
    pub(crate) async fn message(&mut self) -> Value {
        let line = within("a line", self.process.out.next_line()).await;
        let line = line.expect("stdout is text").expect("the service runs");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    /// Returns the address that the process prints on stderr.
    pub(crate) async fn address(&mut self) -> SocketAddr {
        let line = within("the address on stderr", async {
            loop {
                let line = self.process.err_line().await.expect("the service runs");
                if let Some(at) = line.find("tidings listening on http://") {
                    return line[at..].to_owned();
                }
            }
        })
        .await;
        let url = line
            .trim_start_matches("tidings listening on http")
            .trim_start_matches('s');
        let url = url.trim_start_matches("://");
        url.trim_end_matches("/mcp").parse().expect("an address")
    }

    /// Returns the folder that is served.
    pub(crate) fn folder(&self) -> &Path {
        self.process.folder.path()
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    pub(crate) fn terminate(&self) {
        self.process.terminate();
    }

    pub(crate) async fn assert_ended(&mut self) {
        self.process.assert_ended().await;
    }
}

/// The program.
pub(crate) fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_tidings")
}

/// A folder that can be served, with its configuration beside it.
pub(crate) fn service_folder(config: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::create_dir(folder.path().join("resources")).expect("a folder");
    fs::write(folder.path().join("tidings.toml"), config).expect("a file");
    folder
}

/// The process and its output.
struct Process {
    child: Child,
    folder: TempDir,
    out: tokio::io::Lines<BufReader<ChildStdout>>,
    err: Option<tokio::io::Lines<BufReader<ChildStderr>>>,
}

impl Process {
    fn spawn(folder: TempDir, arguments: &[&str], input: Stdio) -> Process {
        let file = folder.path().join("tidings.toml");
        let speaks = arguments.contains(&"--stdio");
        let log = fs::File::create(folder.path().join("log")).expect("a file");
        // With a file that is handed down to it, and which it must not hand down to its tools.
        let mut child = Command::new("/bin/sh")
            .env_clear()
            .args(["-c", "exec \"$0\" \"$@\" 7</dev/null", binary()])
            .arg("serve")
            .arg(folder.path())
            .arg("--config")
            .arg(&file)
            .args(arguments)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(if speaks { Stdio::piped() } else { log.into() })
            .spawn()
            .expect("the binary starts");
        let out = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let err = child.stderr.take().map(|err| BufReader::new(err).lines());
        Process {
            child,
            folder,
            out,
            err,
        }
    }

    async fn err_line(&mut self) -> Option<String> {
        self.err.as_mut()?.next_line().await.ok()?
    }

    fn terminate(&self) {
        let pid = self.child.id().expect("it runs").to_string();
        let status = std::process::Command::new("kill").args(["-TERM", &pid]).status();
        assert!(status.expect("kill is there").success());
    }

    async fn assert_ended(&mut self) {
        let rest = within("the end of stdout", self.out.next_line()).await;
        assert_eq!(rest.expect("stdout is text"), None, "stdout");
        let status = within("the end of the process", self.child.wait()).await;
        assert_eq!(status.expect("it was started").code(), Some(0));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            eprintln!("the service said:\n{log}");
        }
        if let Err(error) = self.child.start_kill() {
            // The usual case: the process has ended already.
            eprintln!("the service was not killed: {error}");
        }
    }
}
