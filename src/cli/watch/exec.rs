//! The command of `tidings watch --exec`, which runs once per change, one run at a time.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::client::ResourceChanged;
use crate::client::latest_queue::LatestQueue;

/// The time that a command may take to end after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a command for each change.
pub(super) struct Exec {
    command: Option<String>,
    running: Option<RunningCommand>,
    /// Changes that wait for their run: only the newest per resource, so a slow command costs bounded memory.
    waiting: LatestQueue<ResourceChanged>,
}

/// A command in progress, and the resource it runs for.
struct RunningCommand {
    uri: String,
    child: Child,
}

impl Exec {
    /// Runs `command` with `sh`; `None` runs nothing.
    pub(super) fn new(command: Option<String>) -> Exec {
        Exec {
            command,
            running: None,
            waiting: LatestQueue::new(),
        }
    }

    /// Runs the command for `changed`, now or after the runs before it.
    pub(super) fn push(&mut self, changed: &ResourceChanged) -> io::Result<()> {
        if self.command.is_none() {
            return Ok(());
        }
        self.waiting.push(&changed.uri, changed.clone());
        self.start()
    }

    fn start(&mut self) -> io::Result<()> {
        let (None, Some(line)) = (&self.running, &self.command) else {
            return Ok(());
        };
        let Some(changed) = self.waiting.try_next() else {
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
        // In a process group of its own, so that the programs it started can be ended with it.
        #[cfg(unix)]
        command.process_group(0);
        self.running = Some(RunningCommand {
            uri: changed.uri,
            child: command.spawn()?,
        });
        Ok(())
    }

    /// Waits for the end of the current run and starts the next one; waits for ever if nothing runs. Cancel
    /// safe.
    pub(super) async fn ended(&mut self) -> io::Result<(String, ExitStatus)> {
        let Some(run) = &mut self.running else {
            return std::future::pending().await;
        };
        let status = run.child.wait().await?;
        let uri = std::mem::take(&mut run.uri);
        self.running = None;
        self.start()?;
        Ok((uri, status))
    }

    /// Ends the current run and the programs it started. Waiting changes are dropped.
    pub(super) async fn close(self) {
        let Some(RunningCommand { mut child, .. }) = self.running else {
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

/// Sends a signal to the process group `id`.
async fn signal_group(id: u32, name: &str) {
    // Through the shell, which is present because it runs the command; the standard library cannot signal a
    // group.
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

    /// Returns true if the process of this `/proc` file runs; a zombie does not.
    fn is_alive(stat: &Path) -> bool {
        let stat = written(stat);
        !stat.is_empty() && !stat.contains(") Z ")
    }

    #[tokio::test]
    async fn changes_during_a_run_run_once_per_resource() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let gate = dir.path().join("gate");
        // The first run waits for the gate, so that the changes below come while it runs.
        let line = format!(
            "while [ ! -e {gate} ]; do sleep 0.01; done; echo $TIDINGS_URI $TIDINGS_ETAG $TIDINGS_ROAD >>{log}; \
             [ $TIDINGS_URI != demo://b ]",
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
    async fn close_ends_the_command_and_its_children() {
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
        let stat = Path::new("/proc").join(id.trim()).join("stat");
        let gone = async {
            while cfg!(target_os = "linux") && is_alive(&stat) {
                tokio::task::yield_now().await;
            }
        };
        soon(gone).await;
    }
}
