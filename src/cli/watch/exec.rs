//! The command of `tidings watch --exec`: run once per change, one run at a time.
//!
//! Owns the running command and the changes that wait for it, of which only the newest per resource is kept, so a slow
//! command costs one entry per resource. Receives changes from the watch; how a run ended is said by whoever waits for
//! it. It never decides that the watch ends.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::client::ResourceChanged;

/// How long a command may take to end once it was asked to.
const END_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Exec {
    command: Option<String>,
    running: Option<(String, Child)>,
    order: VecDeque<String>,
    waiting: HashMap<String, ResourceChanged>,
}

impl Exec {
    /// Runs `command` with `sh`; without one, nothing is ever run.
    pub(super) fn new(command: Option<String>) -> Exec {
        Exec {
            command,
            running: None,
            order: VecDeque::new(),
            waiting: HashMap::new(),
        }
    }

    /// Runs the command for `changed`, now or once it is its turn.
    pub(super) fn push(&mut self, changed: &ResourceChanged) -> io::Result<()> {
        if self.command.is_none() {
            return Ok(());
        }
        if self
            .waiting
            .insert(changed.uri.clone(), changed.clone())
            .is_none()
        {
            self.order.push_back(changed.uri.clone());
        }
        self.start()
    }

    fn start(&mut self) -> io::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let Some(changed) = self.order.pop_front().and_then(|uri| self.waiting.remove(&uri)) else {
            return Ok(());
        };
        let Some(line) = &self.command else {
            return Ok(());
        };
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .env("TIDINGS_URI", &changed.uri)
            .env("TIDINGS_ETAG", changed.etag.as_deref().unwrap_or_default())
            .env("TIDINGS_ROAD", changed.strategy.name())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        // Of its own group, so that what it started can be ended with it.
        #[cfg(unix)]
        command.process_group(0);
        self.running = Some((changed.uri, command.spawn()?));
        Ok(())
    }

    /// The resource of the run that ended, and how; never when nothing runs. The next run is started. May be cancelled.
    pub(super) async fn ended(&mut self) -> io::Result<(String, ExitStatus)> {
        let Some((_, child)) = &mut self.running else {
            return std::future::pending().await;
        };
        let status = child.wait().await?;
        let uri = self.running.take().map(|(uri, _)| uri).unwrap_or_default();
        self.start()?;
        Ok((uri, status))
    }

    /// Ends the run, if there is one, and what it started. What waits is not run any more.
    pub(super) async fn close(self) {
        let Some((_, mut child)) = self.running else {
            return;
        };
        let Some(id) = child.id() else {
            return;
        };
        signal_group(id, "TERM").await;
        if tokio::time::timeout(END_TIMEOUT, child.wait()).await.is_err() {
            signal_group(id, "KILL").await;
            if let Err(error) = child.kill().await {
                tracing::warn!(%error, "the command could not be killed");
            }
        }
    }
}

/// Sends a signal to the group of the command. The shell knows how, and it is there: it runs the command.
async fn signal_group(id: u32, name: &str) {
    let sent = Command::new("sh")
        .args(["-c", "kill -s \"$1\" -- \"-$2\"", "sh", name, &id.to_string()])
        .stderr(Stdio::null())
        .status()
        .await;
    if let Err(error) = sent {
        tracing::warn!(%error, "the command could not be signalled");
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::client::WatchStrategy;
    use std::path::Path;

    fn changed(uri: &str, etag: &str) -> ResourceChanged {
        ResourceChanged {
            uri: uri.to_owned(),
            etag: Some(etag.to_owned()),
            digest: None,
            strategy: WatchStrategy::EtagTool,
        }
    }

    async fn soon<T>(work: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), work)
            .await
            .expect("it happens within the deadline")
    }

    fn written(file: &Path) -> String {
        std::fs::read_to_string(file).unwrap_or_default()
    }

    #[tokio::test]
    async fn changes_that_come_during_a_run_are_run_once_with_the_newest_of_each() {
        let dir = tempfile::tempdir().unwrap();
        let (log, gate) = (dir.path().join("log"), dir.path().join("gate"));
        let line = format!(
            "while [ ! -e {gate} ]; do sleep 0.01; done; echo $TIDINGS_URI $TIDINGS_ETAG $TIDINGS_ROAD >>{log}; [ $TIDINGS_URI != demo://b ]",
            gate = gate.display(),
            log = log.display()
        );
        let mut exec = Exec::new(Some(line));
        for (uri, etag) in [
            ("demo://a", "v1-1"),
            ("demo://b", "v2-2"),
            ("demo://a", "v3-3"),
            ("demo://b", "v4-4"),
        ] {
            exec.push(&changed(uri, etag)).unwrap();
        }
        std::fs::write(&gate, "").unwrap();
        let mut ended = Vec::new();
        for _ in 0..3 {
            let (uri, status) = soon(exec.ended()).await.unwrap();
            ended.push((uri, status.code()));
        }
        let expected = [
            ("demo://a", Some(0)),
            ("demo://b", Some(1)),
            ("demo://a", Some(0)),
        ];
        assert_eq!(ended, expected.map(|(uri, code)| (uri.to_owned(), code)));
        assert_eq!(
            written(&log),
            "demo://a v1-1 etag\ndemo://b v4-4 etag\ndemo://a v3-3 etag\n"
        );
    }

    #[tokio::test]
    async fn closing_ends_the_command_and_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let line = format!("sleep 1000 & echo $! >{}; wait", pid.display());
        let mut exec = Exec::new(Some(line));
        exec.push(&changed("demo://a", "v1-1")).unwrap();
        let started = async {
            while !written(&pid).ends_with('\n') {
                tokio::task::yield_now().await;
            }
        };
        soon(started).await;
        soon(exec.close()).await;
        let id = written(&pid);
        let alive = || {
            let stat = written(&Path::new("/proc").join(id.trim()).join("stat"));
            // One that nobody waits for yet has ended all the same.
            !stat.is_empty() && !stat.contains(") Z ")
        };
        let gone = async {
            while cfg!(target_os = "linux") && alive() {
                tokio::task::yield_now().await;
            }
        };
        soon(gone).await;
    }
}
