//! The service under test: a process of its own with a folder, a JSON-lines file and a webhook.
//!
//! Owns the process and its folder, the writes, and what it looks like at rest. It knows nothing of clients.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use super::exchange::ask;
use super::receiver::Receiver;
use super::{LOOK_EVERY, REST_MAX};
use crate::bench::BenchError;
use crate::bench::child::ask_to_end;
use crate::bench::meter::Meter;
use crate::bench::notice::version;
use crate::bench::request::{plain, put, resource_path};
use crate::bench::response::Head;
use crate::bench::rpc::{is_success, refusal};
use crate::bench::target::Target;

/// Files of the watched folder that change.
pub(super) const FILES: usize = 4;
/// How long the service may take to say where it listens, and to end.
const START_MAX: Duration = Duration::from_secs(30);
const END_MAX: Duration = Duration::from_secs(30);
/// Threads that may come and go at rest: workers for what waits for files.
const THREADS_SPARE: usize = 4;
/// A secret of 24 bytes, for a receiver that does not look at it.
const SECRET_FILE: &str = "secret";
const SECRET: &str = "whsec_c3Rvcm1zdG9ybXN0b3Jtc3Rvcm1zdG9y";
/// Descriptors that may come and go at rest: connections that the webhook keeps for its next delivery.
const DESCRIPTORS_SPARE: usize = 4;

/// The service at rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) resident_kib: u64,
    descriptors: usize,
    threads: usize,
}

/// The service under test.
#[derive(Debug)]
pub(super) struct ServiceProcess {
    child: Child,
    pub(super) server: Arc<Target>,
    folder: TempDir,
    resources: usize,
    /// Makes every last content another one.
    settled: AtomicU64,
}

impl ServiceProcess {
    pub(super) async fn start(
        program: &Path,
        receiver: &Receiver,
        resources: usize,
    ) -> Result<ServiceProcess, BenchError> {
        let folder = tempfile::tempdir().map_err(|error| failed("cannot make a folder", &error))?;
        let served = folder.path().join("served/resources");
        std::fs::create_dir_all(&served).map_err(|error| failed("cannot make a folder", &error))?;
        let config = folder.path().join("tidings.toml");
        std::fs::write(&config, configuration(folder.path(), receiver))
            .map_err(|error| failed("cannot write the configuration", &error))?;
        std::fs::write(folder.path().join(SECRET_FILE), SECRET)
            .map_err(|error| failed("cannot write the webhook's secret", &error))?;
        let mut child = Command::new(program)
            .arg("serve")
            .arg(folder.path().join("served"))
            .args(["--listen", "127.0.0.1:0", "--log", "error", "--config"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&format!("cannot start {}", program.display()), &error))?;
        let url = listening(&mut child).await;
        let server = url.and_then(|url| Target::resolve(&url, false));
        match server {
            Ok(server) => Ok(ServiceProcess {
                child,
                server: Arc::new(server),
                folder,
                resources,
                settled: AtomicU64::new(0),
            }),
            Err(error) => {
                // Both fail only for a child that has ended already.
                drop(child.kill());
                drop(child.wait());
                Err(error)
            }
        }
    }

    /// How many targets there are.
    pub(super) fn targets(&self) -> usize {
        self.resources + FILES
    }

    pub(super) fn uri(&self, target: usize) -> String {
        match target.checked_sub(self.resources) {
            None => format!("stress://resource/{target}"),
            Some(file) => format!("workspace:///{}", file_name(file)),
        }
    }

    /// Gives `target` this content. Answers the version where the service says it.
    pub(super) async fn write(&self, target: usize, body: &str) -> Result<Option<u64>, String> {
        if let Some(file) = target.checked_sub(self.resources) {
            return self.write_file(file, body).map(|()| None);
        }
        let path = resource_path(&self.uri(target));
        let (head, answer) = ask(&self.server, &put(&self.server, &path, body)).await?;
        if !is_success(&head) {
            return Err(format!(
                "writing {}: {}",
                self.uri(target),
                refusal(&head, &answer)
            ));
        }
        Ok(version_of(&head))
    }

    fn write_file(&self, file: usize, body: &str) -> Result<(), String> {
        let place = self.folder.path().join("served/resources").join(file_name(file));
        // Written beside it first, so that nobody reads half of it.
        let beside = self.folder.path().join(format!("{}.new", file_name(file)));
        std::fs::write(&beside, body)
            .and_then(|()| std::fs::rename(&beside, &place))
            .map_err(|error| format!("cannot write {}: {error}", place.display()))
    }

    /// Removes `target`, if it is there.
    pub(super) async fn remove(&self, target: usize) -> Result<(), String> {
        if let Some(file) = target.checked_sub(self.resources) {
            let place = self.folder.path().join("served/resources").join(file_name(file));
            return match std::fs::remove_file(&place) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(format!("cannot remove {}: {error}", place.display()))
                }
                _ => Ok(()),
            };
        }
        let path = resource_path(&self.uri(target));
        let (head, answer) = ask(&self.server, &plain(&self.server, "DELETE", &path)).await?;
        if is_success(&head) || head.status == 404 {
            return Ok(());
        }
        Err(format!(
            "removing {}: {}",
            self.uri(target),
            refusal(&head, &answer)
        ))
    }

    /// Gives `target` a content it never had, and waits until the service has it; answers the version.
    pub(super) async fn settle(&self, target: usize) -> Result<(String, u64), String> {
        let uri = self.uri(target);
        let body = format!("at rest {}", self.settled.fetch_add(1, Ordering::Relaxed));
        self.write(target, &body).await?;
        let until = Instant::now() + REST_MAX;
        loop {
            let request = plain(&self.server, "GET", &resource_path(&uri));
            let (head, read) = ask(&self.server, &request).await?;
            if let Some(version) = version_of(&head).filter(|_| read == body.as_bytes()) {
                return Ok((uri, version));
            }
            if Instant::now() > until {
                return Err(format!("{uri} did not become {body:?} within {REST_MAX:?}"));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until nothing of a storm is left; what is left then is a fault.
    pub(super) async fn at_rest(&self, first: Option<&Standing>, faults: &mut Vec<String>) -> Standing {
        let until = Instant::now() + REST_MAX;
        loop {
            let (sessions, standing) = (self.sessions().await, self.standing());
            let left = match &sessions {
                Err(fault) => Some(fault.clone()),
                Ok(0) => first.and_then(|first| standing.more_than(first)),
                Ok(left) => Some(format!("{left} sessions are left after everybody went")),
            };
            match left {
                None => return standing,
                Some(fault) if Instant::now() > until => {
                    faults.push(fault);
                    return standing;
                }
                Some(_) => sleep(LOOK_EVERY).await,
            }
        }
    }

    async fn sessions(&self) -> Result<usize, String> {
        let (head, body) = ask(&self.server, &plain(&self.server, "GET", "/v1/sessions")).await?;
        let listed: Value = serde_json::from_slice(&body).unwrap_or_default();
        match (listed["items"].as_array(), listed["total"].as_u64()) {
            (Some(items), Some(total)) => {
                let attached = items.iter().filter(|one| one["kind"] == "attached").count();
                Ok(total as usize - attached)
            }
            _ => Err(format!(
                "the sessions cannot be listed: {}",
                refusal(&head, &body)
            )),
        }
    }

    fn standing(&self) -> Standing {
        let pid = self.child.id();
        let entries =
            |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).map_or(0, Iterator::count);
        Standing {
            resident_kib: Meter::new(pid).resident_kib().unwrap_or(0),
            descriptors: entries("fd"),
            threads: entries("task"),
        }
    }

    /// Asks it to end. An end that is not in order is a fault.
    pub(super) fn end(mut self) -> Result<(), String> {
        ask_to_end(self.child.id());
        let until = Instant::now() + END_MAX;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(format!("the service ended with {status}")),
                Err(error) => return Err(format!("the service cannot be waited for: {error}")),
                Ok(None) if Instant::now() > until => {
                    return Err(format!("the service did not end within {END_MAX:?}"));
                }
                Ok(None) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // Both fail only for a child that has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Standing {
    fn more_than(&self, first: &Standing) -> Option<String> {
        if self.descriptors > first.descriptors + DESCRIPTORS_SPARE {
            let (now, then) = (self.descriptors, first.descriptors);
            return Some(format!(
                "{now} descriptors are open at rest; after the first round there were {then}"
            ));
        }
        let (now, then) = (self.threads, first.threads);
        (now > then + THREADS_SPARE)
            .then(|| format!("{now} threads run at rest; after the first round there were {then}"))
    }
}

fn file_name(file: usize) -> String {
    format!("file{file}.txt")
}

fn version_of(head: &Head) -> Option<u64> {
    version(head.etag.as_deref()?)
}

fn failed(what: &str, error: &std::io::Error) -> BenchError {
    BenchError::Failed(format!("{what}: {error}"))
}

/// The address in the line that the service prints when it listens; what else it prints is read and dropped.
async fn listening(child: &mut Child) -> Result<String, BenchError> {
    let Some(stdout) = child.stdout.take() else {
        return Err(BenchError::Failed(
            "the service has no standard output".to_owned(),
        ));
    };
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut tell = Some(tell);
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let url = line.find("http://").map(|at| line[at..].trim().to_owned());
            if let Some((tell, url)) = url.and_then(|url| Some((tell.take()?, url))) {
                // Nobody waits any more when it took too long.
                tell.send(url).unwrap_or_default();
            }
        }
    });
    match tokio::time::timeout(START_MAX, told).await {
        Ok(Ok(url)) => Ok(url),
        _ => Err(BenchError::Unreachable(
            "the service ended, or did not say where it listens, before it could be used".to_owned(),
        )),
    }
}

/// The service's configuration: everything that can be slow is there.
fn configuration(folder: &Path, receiver: &Receiver) -> String {
    let journal = folder.join("journal.jsonl");
    format!(
        "[workspace]\nrescan = \"1s\"\n\n\
         [[journal]]\nname = \"journal\"\nfile = {:?}\n\n\
         [[webhook]]\nname = \"receiver\"\nurl = \"http://{}/\"\nsecret_file = {:?}\nallow_private = true\n",
        journal.display().to_string(),
        receiver.address,
        folder.join(SECRET_FILE).display().to_string()
    )
}
