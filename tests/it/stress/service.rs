//! The service under test, with a watched folder, a JSON-lines file and a webhook.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tidings::Etag;
use tidings::wire::connection::{self, HttpAnswer};
use tidings::wire::http1::{HttpTarget, ResponseHead, resource_path};
use tidings::wire::jsonrpc::refusal;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::plan::Size;
use super::receiver::SlowReceiver;
use crate::mcp::server::Server;

/// The time within which a request must be answered.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The time within which everything must come to rest after a storm.
pub(super) const REST_MAX: Duration = Duration::from_secs(60);
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Threads that may come and go at rest: workers that wait for files.
const THREADS_SPARE: usize = 4;
/// Descriptors that may come and go at rest: connections that the webhook keeps for its next delivery.
const DESCRIPTORS_SPARE: usize = 4;
/// A secret of 24 bytes; the receiver does not verify it.
const SECRET: &str = "whsec_c3Rvcm1zdG9ybXN0b3Jtc3Rvcm1zdG9y";

/// The resources of the process at rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Footprint {
    pub(super) resident_kib: u64,
    descriptors: usize,
    threads: usize,
}

impl Footprint {
    /// Describes a leak since `first`.
    fn leak_since(&self, first: &Footprint) -> Option<String> {
        if self.descriptors > first.descriptors + DESCRIPTORS_SPARE {
            let counts = format!("{}, at first {}", self.descriptors, first.descriptors);
            return Some(format!("open descriptors at rest: {counts}"));
        }
        if self.threads > first.threads + THREADS_SPARE {
            return Some(format!(
                "threads at rest: {}, at first {}",
                self.threads, first.threads
            ));
        }
        None
    }
}

pub(super) struct StressedService {
    server: Server,
    pub(super) target: HttpTarget,
    size: Size,
    /// The folder of the webhook's secret, which is read before each delivery.
    _secrets: TempDir,
    /// Makes every final content a new one.
    settled: AtomicU64,
}

impl StressedService {
    pub(super) async fn start(config: &str, receiver: &SlowReceiver, size: Size) -> StressedService {
        let secrets = tempfile::tempdir().unwrap();
        let secret = secrets.path().join("secret");
        fs::write(&secret, SECRET).unwrap();
        let config = format!(
            "{config}[workspace]\nrescan = \"1s\"\n\n\
             [[journal]]\nname = \"journal\"\nfile = \"journal.jsonl\"\n\n\
             [[webhook]]\nname = \"receiver\"\nurl = \"http://{}/\"\nsecret_file = \"{}\"\nallow_private = true\n",
            receiver.address,
            secret.display()
        );
        let server = Server::with(&config).await;
        StressedService {
            target: HttpTarget::mcp(server.address),
            server,
            size,
            _secrets: secrets,
            settled: AtomicU64::new(0),
        }
    }

    /// Returns the number of resources and files.
    pub(super) fn targets(&self) -> usize {
        self.size.targets()
    }

    pub(super) fn uri(&self, target: usize) -> String {
        match self.file(target) {
            Some(file) => format!("workspace:///{file}"),
            None => format!("stress://resource/{target}"),
        }
    }

    /// Returns the name of the file behind a target that is one.
    fn file(&self, target: usize) -> Option<String> {
        let number = target.checked_sub(self.size.resources)?;
        Some(format!("file{number}.txt"))
    }

    /// Gives the target this content.
    pub(super) async fn write(&self, target: usize, text: &str) -> Result<(), String> {
        if let Some(file) = self.file(target) {
            let place = self.server.file(&file);
            // Written beside it first, so that the watcher never reads half of it.
            let beside = place.with_extension("new");
            let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &place));
            return written.map_err(|error| format!("cannot write {}: {error}", place.display()));
        }
        let uri = self.uri(target);
        let answer = ask(&self.target, &self.target.put_resource(&uri, text)).await?;
        match answer.head.is_success() {
            true => Ok(()),
            false => Err(format!("writing {uri}: {}", refusal(&answer.head, &answer.body))),
        }
    }

    /// Removes the target, which may be gone already.
    pub(super) async fn remove(&self, target: usize) -> Result<(), String> {
        if let Some(file) = self.file(target) {
            let place = self.server.file(&file);
            return match fs::remove_file(&place) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(format!("cannot remove {}: {error}", place.display()))
                }
                _ => Ok(()),
            };
        }
        let uri = self.uri(target);
        let request = self.target.request_to("DELETE", &resource_path(&uri)).finish();
        let answer = ask(&self.target, &request).await?;
        match answer.head.is_success() || answer.head.status == 404 {
            true => Ok(()),
            false => Err(format!("removing {uri}: {}", refusal(&answer.head, &answer.body))),
        }
    }

    /// Gives the target a content it never had, waits until the service has it, and returns URI and version.
    pub(super) async fn settle(&self, target: usize) -> Result<(String, u64), String> {
        let uri = self.uri(target);
        let text = format!("at rest {}", self.settled.fetch_add(1, Ordering::Relaxed));
        self.write(target, &text).await?;
        let request = self.target.request_to("GET", &resource_path(&uri)).finish();
        let until = Instant::now() + REST_MAX;
        while Instant::now() < until {
            let answer = ask(&self.target, &request).await?;
            if answer.body == text.as_bytes()
                && let Some(version) = version(&answer.head)
            {
                return Ok((uri, version));
            }
            sleep(POLL_INTERVAL).await;
        }
        Err(format!("{uri} did not become {text:?} within {REST_MAX:?}"))
    }

    /// Waits until nothing is left of a storm; anything that stays is a fault.
    pub(super) async fn wait_at_rest(
        &self,
        first: Option<&Footprint>,
        faults: &mut Vec<String>,
    ) -> Footprint {
        let until = Instant::now() + REST_MAX;
        loop {
            let footprint = self.footprint();
            let leak = match self.sessions().await {
                Err(fault) => Some(fault),
                Ok(0) => match first {
                    Some(first) => footprint.leak_since(first),
                    None => None,
                },
                Ok(left) => Some(format!("{left} sessions are left after every client went")),
            };
            let Some(leak) = leak else {
                return footprint;
            };
            if Instant::now() > until {
                faults.push(leak);
                return footprint;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Counts the sessions; attached subscribers are none.
    async fn sessions(&self) -> Result<usize, String> {
        let request = self.target.request_to("GET", "/v1/sessions").finish();
        let answer = ask(&self.target, &request).await?;
        let listed: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let (Some(items), Some(total)) = (listed["items"].as_array(), listed["total"].as_u64()) else {
            let refusal = refusal(&answer.head, &answer.body);
            return Err(format!("the sessions cannot be listed: {refusal}"));
        };
        let attached = items.iter().filter(|item| item["kind"] == "attached").count();
        Ok(total as usize - attached)
    }

    fn footprint(&self) -> Footprint {
        let process = format!("/proc/{}", self.server.pid());
        Footprint {
            resident_kib: self.server.memory() >> 10,
            descriptors: fs::read_dir(format!("{process}/fd")).unwrap().count(),
            threads: fs::read_dir(format!("{process}/task")).unwrap().count(),
        }
    }

    /// Ends the service, which must succeed.
    pub(super) async fn end(mut self) {
        self.server.terminate();
        self.server.assert_ended().await;
    }
}

/// Sends a request on a connection of its own and reads the answer.
pub(super) async fn ask(target: &HttpTarget, request: &[u8]) -> Result<HttpAnswer, String> {
    let exchange = async {
        let mut socket = TcpStream::connect(target.address).await?;
        connection::exchange(&mut socket, request).await
    };
    match timeout(ANSWER_MAX, exchange).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(format!("a request failed: {error}")),
        Err(_) => Err(format!("a request was not answered within {ANSWER_MAX:?}")),
    }
}

fn version(head: &ResponseHead) -> Option<u64> {
    let etag: Etag = head.etag()?.parse().ok()?;
    Some(etag.version)
}
