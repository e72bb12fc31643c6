//! The folder of a service that outlives its processes, and one process in it: a life.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tidings::wire::connection::{self, HttpAnswer};
use tidings::wire::http1::{HttpTarget, RequestBuilder, resource_path};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use super::disk::DiskLayer;
use crate::mcp::server::binary;

/// The time within which a request is answered, and a process starts or ends.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// A folder with the configuration, the store and the log of a service.
pub(super) struct Home {
    folder: TempDir,
    /// The folder of the store; none keeps everything in memory.
    data: Option<PathBuf>,
    /// A folder that is served.
    served: Option<PathBuf>,
    pub(super) layer: Option<DiskLayer>,
}

impl Home {
    /// Makes a folder for a service that has a store.
    pub(super) fn new(config: &str) -> Home {
        let mut home = Home::without_store(config);
        let data = home.file("data");
        fs::create_dir(&data).unwrap();
        home.data = Some(data);
        home
    }

    pub(super) fn without_store(config: &str) -> Home {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tidings.toml"), config).unwrap();
        Home {
            folder,
            data: None,
            served: None,
            layer: None,
        }
    }

    /// Lays the disk layer over the folder of the store.
    pub(super) fn with_layer(mut self) -> Home {
        let root = self.data.as_deref().unwrap_or(self.folder.path());
        self.layer = Some(DiskLayer::over(root, self.folder.path()));
        self
    }

    /// Serves a folder too; returns its path.
    pub(super) fn serve_folder(&mut self) -> PathBuf {
        let served = self.file("served");
        fs::create_dir_all(served.join("resources")).unwrap();
        self.served = Some(served.clone());
        served
    }

    /// Keeps the store in another folder.
    pub(super) fn set_data(&mut self, data: PathBuf) {
        self.data = Some(data);
    }

    pub(super) fn data(&self) -> &Path {
        self.data.as_deref().unwrap()
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn configure(&self, config: &str) {
        fs::write(self.file("tidings.toml"), config).unwrap();
    }

    /// Returns everything that the service has said since the last start.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    fn command(&self) -> Command {
        let log = fs::File::create(self.file("log")).unwrap();
        // A long form may run another build, such as one that is not replaced while it runs.
        let program = std::env::var_os("TIDINGS_BIN").unwrap_or(binary().into());
        let mut command = Command::new(program);
        command.env_clear().arg("serve");
        if let Some(served) = &self.served {
            command.arg(served);
        }
        command.args(["--listen", "127.0.0.1:0", "--config"]);
        command.arg(self.file("tidings.toml"));
        if let Some(data) = &self.data {
            command.arg("--data").arg(data);
        }
        if let Some(layer) = &self.layer {
            command.envs(layer.variables().iter().cloned());
        }
        command
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        command
    }

    /// Starts the service and waits until it is ready.
    pub(super) async fn start(&self) -> Life {
        match self.try_start().await {
            Ok(life) => life,
            Err(refusal) => panic!("the service did not start: {refusal}"),
        }
    }

    /// Starts the service and waits until it is ready.
    ///
    /// # Errors
    /// The log of a service that ended instead.
    pub(super) async fn try_start(&self) -> Result<Life, String> {
        let mut child = self.command().spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(ANSWER_MAX, out.next_line()).await;
        let Some(line) = line.expect("it starts or ends").unwrap() else {
            let status = timeout(ANSWER_MAX, child.wait()).await;
            let status = status.expect("it has closed its output").unwrap();
            return Err(format!("{status}: {}", self.log()));
        };
        let address = line.trim_start_matches("tidings listening on http://");
        let address = address.trim_end_matches("/mcp").parse().unwrap();
        let life = Life {
            target: HttpTarget::mcp(address),
            child,
            _out: out.into_inner(),
        };
        life.wait_ready()
            .await
            .map_err(|fault| format!("{fault}: {}", self.log()))?;
        Ok(life)
    }
}

/// A process of the service.
pub(super) struct Life {
    pub(super) target: HttpTarget,
    child: Child,
    _out: BufReader<ChildStdout>,
}

impl Life {
    async fn wait_ready(&self) -> Result<(), String> {
        let request = self.target.request_to("GET", "/readyz").finish();
        loop {
            let answer = Connection::new(&self.target).ask(&request).await?;
            if answer.head.status == 200 {
                return Ok(());
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    pub(super) fn connect(&self) -> Connection {
        Connection::new(&self.target)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Returns KiB of memory in use.
    pub(super) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Returns true while the process runs.
    pub(super) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).unwrap()), signal).unwrap();
    }

    /// Kills the process, which gets no chance to finish anything.
    pub(super) async fn kill(mut self) {
        self.child.start_kill().unwrap();
        self.wait().await;
    }

    /// Ends the service in order.
    pub(super) async fn end(mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.wait().await;
        assert!(status.success(), "{status}");
    }

    async fn wait(&mut self) -> ExitStatus {
        let ended = timeout(ANSWER_MAX, self.child.wait()).await;
        ended.expect("the process ends").unwrap()
    }
}

/// A connection that is kept for several requests, one at a time, and opened again when the service closed
/// it.
pub(crate) struct Connection {
    pub(crate) target: HttpTarget,
    socket: Option<TcpStream>,
}

impl Connection {
    pub(crate) fn new(target: &HttpTarget) -> Connection {
        Connection {
            target: target.clone(),
            socket: None,
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// A connection that broke; the request may have been carried out all the same.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<HttpAnswer, String> {
        let exchange = async {
            let mut socket = match self.socket.take() {
                Some(socket) => socket,
                None => {
                    let socket = TcpStream::connect(self.target.address).await?;
                    socket.set_nodelay(true)?;
                    socket
                }
            };
            let answer = connection::exchange(&mut socket, request).await?;
            Ok::<_, std::io::Error>((socket, answer))
        };
        match timeout(ANSWER_MAX, exchange).await {
            Ok(Ok((socket, answer))) => {
                if !answer.head.closes {
                    self.socket = Some(socket);
                }
                Ok(answer)
            }
            Ok(Err(error)) => Err(format!("a request failed: {error}")),
            Err(_) => Err(format!("a request was not answered within {ANSWER_MAX:?}")),
        }
    }

    /// Begins a request about a resource.
    pub(crate) fn resource(&self, method: &str, uri: &str) -> RequestBuilder {
        self.target.request_to(method, &resource_path(uri))
    }

    /// Asks for a resource.
    pub(crate) async fn get(&mut self, uri: &str) -> Result<HttpAnswer, String> {
        let request = self.resource("GET", uri).finish();
        self.ask(&request).await
    }

    /// Creates or replaces a text resource.
    pub(crate) async fn put(&mut self, uri: &str, text: &str) -> Result<HttpAnswer, String> {
        let request = self.target.put_resource(uri, text);
        self.ask(&request).await
    }

    /// Creates or replaces a text resource, which must succeed; returns its etag.
    pub(crate) async fn put_etag(&mut self, uri: &str, text: &str) -> String {
        let answer = self.put(uri, text).await.unwrap();
        assert!(answer.head.is_success(), "{answer:?}");
        answer.head.etag().unwrap().to_owned()
    }

    pub(crate) async fn delete(&mut self, uri: &str) -> Result<HttpAnswer, String> {
        let request = self.resource("DELETE", uri).finish();
        self.ask(&request).await
    }
}
