//! One node: a service on servers of NATS, in a process that a test may stop, kill and start again.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tidings::wire::http1::HttpTarget;

use super::brokers::Brokers;
use crate::support::free_port;

/// The time for which a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(120);

/// One node; it is killed when it is dropped.
pub(super) struct Node {
    /// None while it is down.
    process: Option<Child>,
    file: PathBuf,
    log: PathBuf,
    port: u16,
    pub(super) address: String,
    pub(super) name: String,
}

/// The end of a request.
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
    pub(super) text: String,
}

impl Answered {
    /// The etag without its quotes, as events have it.
    pub(super) fn unquoted_etag(self) -> String {
        self.etag.unwrap().trim_matches('"').to_owned()
    }
}

impl Node {
    /// Starts a node that listens before it has caught up, and returns without waiting for it.
    pub(super) fn spawn(name: &str, folder: &Path, config: &str) -> Node {
        let port = free_port();
        let file = folder.join(format!("{name}.toml"));
        let text = format!("[http]\nlisten = '127.0.0.1:{port}'\n{config}node = '{name}'\n");
        std::fs::write(&file, text).unwrap();
        let mut node = Node {
            process: None,
            file,
            log: folder.join(format!("{name}.log")),
            port,
            address: format!("http://127.0.0.1:{port}"),
            name: name.to_owned(),
        };
        node.run();
        node
    }

    /// Starts a node, and waits until it says its address.
    pub(super) fn start(name: &str, folder: &Path, config: &str) -> Node {
        let mut node = Node::spawn(name, folder, config);
        let mut line = String::new();
        let output = node.process.as_mut().unwrap().stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert!(
            line.starts_with("tidings listening on "),
            "{line}{}",
            node.log_text()
        );
        node
    }

    /// Starts a node without a cluster.
    pub(super) fn start_alone(name: &str, folder: &Path, config: &str) -> Node {
        Node::start(name, folder, &format!("{config}[cluster]\n"))
    }

    /// Starts the process of a node that is down, at the same address.
    pub(super) fn run(&mut self) {
        assert!(self.process.is_none(), "{} runs", self.name);
        // A long form may run another build, such as one that is not replaced while it runs.
        let program = std::env::var_os("TIDINGS_BIN").unwrap_or(env!("CARGO_BIN_EXE_tidings").into());
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .unwrap();
        let process = Command::new(program)
            .args(["serve", "--config"])
            .arg(&self.file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        self.process = Some(process);
    }

    /// Everything that the node has said.
    pub(super) fn log_text(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The name of the server that it reads the log from.
    pub(super) fn server_name(&self) -> String {
        let log = self.log_text();
        let connected = log
            .lines()
            .rfind(|line| line.contains("connected to the shared log"));
        let name = connected.and_then(|line| line.split_once("name=")).unwrap().1;
        name.split_whitespace()
            .next()
            .unwrap()
            .trim_matches('"')
            .to_owned()
    }

    /// The MCP endpoint of the node.
    pub(super) fn target(&self) -> HttpTarget {
        HttpTarget::mcp(([127, 0, 0, 1], self.port).into())
    }

    pub(super) async fn ask(&self, method: &str, path: &str, body: &str) -> Answered {
        // The clients of these tests speak no TLS, but make their provider all the same.
        rustls::crypto::ring::default_provider().install_default().ok();
        let url = format!("{}{path}", self.address);
        let request = reqwest::Client::new().request(method.parse().unwrap(), url);
        let request = request.header("content-type", "text/plain").body(body.to_owned());
        match request.send().await {
            Ok(answer) => {
                let etag = answer.headers().get("etag");
                Answered {
                    status: answer.status().as_u16(),
                    etag: etag.map(|etag| etag.to_str().unwrap().to_owned()),
                    text: answer.text().await.unwrap_or_default(),
                }
            }
            Err(error) => Answered {
                status: 0,
                etag: None,
                text: error.to_string(),
            },
        }
    }

    pub(super) async fn put(&self, uri: &str, body: &str) -> Answered {
        self.ask("PUT", &path_of(uri), body).await
    }

    pub(super) async fn get(&self, uri: &str) -> Answered {
        self.ask("GET", &path_of(uri), "").await
    }

    pub(super) async fn cluster(&self) -> Value {
        let answer = self.ask("GET", "/v1/cluster", "").await;
        serde_json::from_str(&answer.text).unwrap_or_default()
    }

    /// Waits until a resource has this body.
    pub(super) async fn until_body(&self, uri: &str, body: &str) -> Answered {
        let begin = Instant::now();
        loop {
            let found = self.get(uri).await;
            if found.status == 200 && found.text == body {
                return found;
            }
            let status = found.status;
            let text = found.text;
            assert!(
                begin.elapsed() < PATIENCE,
                "{}: {uri}: {status} {text}",
                self.name
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn until(&self, what: &str, holds: impl AsyncFn(&Node) -> bool) {
        let begin = Instant::now();
        while !holds(self).await {
            assert!(
                begin.elapsed() < PATIENCE,
                "{}: {what}: {}\n{}",
                self.name,
                self.cluster().await,
                self.log_text()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the node takes changes.
    pub(super) async fn until_ready(&self) {
        self.until("it is ready", async |node| {
            node.ask("GET", "/readyz", "").await.status == 200
        })
        .await;
    }

    /// Sends a signal to the process, unless it is down.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            kill(Pid::from_raw(process.id() as i32), signal).unwrap();
        }
    }

    /// Kills the process, which gets no chance to finish anything.
    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended already.
            process.kill().ok();
            process.wait().unwrap();
        }
    }

    /// Ends the process in order.
    pub(super) fn end(&mut self) {
        self.signal(Signal::SIGTERM);
        let mut process = self.process.take().unwrap();
        assert!(process.wait().unwrap().success(), "{}", self.name);
    }

    /// Stops the node in order.
    pub(super) fn stop(mut self) {
        self.end();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) fn path_of(uri: &str) -> String {
    format!("/v1/resources/{}", uri.replace(':', "%3A").replace('/', "%2F"))
}

/// The configuration of a node on these servers.
pub(super) fn config(brokers: &Brokers, namespace: &str) -> String {
    config_at(&brokers.urls(), namespace)
}

/// The configuration of a node that reaches the servers at these addresses. Its streams are small, since the
/// servers of all tests reserve their room.
pub(super) fn config_at(urls: &[String], namespace: &str) -> String {
    format!(
        "[cluster]\nengine = 'nats'\nurls = {urls:?}\nnamespace = '{namespace}'\nreplicas = {}\n\
         max_bytes = '64MiB'\n",
        urls.len().min(3),
    )
}
