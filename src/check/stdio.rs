//! The wire over the standard input and output of a process that is started for it.
//!
//! Owns the process, which ends with it at the latest, and the requests that wait for an answer. Everything that is no
//! answer goes to the log. What the process writes to standard error goes to ours.

use std::collections::HashMap;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use super::log::{Log, Via};
use super::wire::{Answer, MESSAGE_BYTES_MAX, Trouble, reply};

/// How long a process may take to end.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What it took to end a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It ended when its standard input did.
    Closed,
    /// It ended on SIGTERM only.
    Terminated,
    /// It had to be killed.
    Killed,
}

type Waiting = HashMap<String, oneshot::Sender<Value>>;

struct Shared {
    input: AsyncMutex<Option<ChildStdin>>,
    waiting: Mutex<Waiting>,
    log: Arc<Log>,
    limit: Duration,
}

pub(super) struct StdioWire {
    shared: Arc<Shared>,
    child: AsyncMutex<Child>,
    reader: JoinHandle<()>,
}

impl StdioWire {
    pub(super) fn spawn(command: &[OsString], log: Arc<Log>, limit: Duration) -> Result<StdioWire, Trouble> {
        let (program, arguments) = command.split_first().expect("a target has a program");
        let unreachable =
            |error| Trouble::Unreachable(format!("cannot start {}: {error}", program.to_string_lossy()));
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(unreachable)?;
        let output = child.stdout.take().expect("stdout is piped");
        let shared = Arc::new(Shared {
            input: AsyncMutex::new(child.stdin.take()),
            waiting: Mutex::default(),
            log,
            limit,
        });
        let reader = tokio::spawn(shared.clone().read(output));
        Ok(StdioWire {
            shared,
            child: AsyncMutex::new(child),
            reader,
        })
    }

    pub(super) async fn request(&self, message: &Value) -> Result<Answer, Trouble> {
        let (answered, answer) = oneshot::channel();
        self.shared.waiting().insert(message["id"].to_string(), answered);
        self.send(message).await?;
        let answer = timeout(self.shared.limit, answer).await;
        self.shared.waiting().remove(&message["id"].to_string());
        let message = answer
            .map_err(|_| Trouble::Late(self.shared.limit))?
            .map_err(|_| Trouble::Broken("the process closed its standard output".to_owned()))?;
        Ok(Answer {
            status: None,
            message,
        })
    }

    pub(super) async fn send(&self, message: &Value) -> Result<(), Trouble> {
        self.shared.send(message).await
    }

    pub(super) async fn end(&self) -> Ending {
        self.shared.input.lock().await.take();
        let mut child = self.child.lock().await;
        if timeout(END_WITHIN, child.wait()).await.is_ok() {
            return Ending::Closed;
        }
        if let Some(pid) = child.id() {
            let kill = format!("kill -TERM {pid}");
            let sent = Command::new("sh").args(["-c", &kill]).status().await;
            if sent.is_ok() && timeout(END_WITHIN, child.wait()).await.is_ok() {
                return Ending::Terminated;
            }
        }
        // It is killed once more when it is dropped.
        child.start_kill().unwrap_or_default();
        Ending::Killed
    }
}

impl Drop for StdioWire {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting
            .lock()
            .expect("nothing panics while it holds the requests")
    }

    async fn send(&self, message: &Value) -> Result<(), Trouble> {
        let gone = |error: &dyn std::fmt::Display| {
            Trouble::Broken(format!(
                "the process reads no more of its standard input: {error}"
            ))
        };
        let line = format!("{message}\n");
        let written = timeout(self.limit, async {
            let mut input = self.input.lock().await;
            let input = input.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
            input.write_all(line.as_bytes()).await?;
            input.flush().await
        });
        let written = written.await.map_err(|_| Trouble::Late(self.limit))?;
        written.map_err(|error| gone(&error))
    }

    async fn read(self: Arc<Self>, output: ChildStdout) {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = (&mut output).take(MESSAGE_BYTES_MAX as u64);
            let read = bounded.read_until(b'\n', &mut line).await;
            if !matches!(read, Ok(bytes) if bytes > 0) || line.last() != Some(&b'\n') {
                break;
            }
            self.log.sign();
            if let Ok(message) = serde_json::from_slice(&line) {
                self.hear(message).await;
            }
        }
        self.waiting().clear();
    }

    async fn hear(&self, message: Value) {
        if message.get("method").is_none() {
            let waiting = self.waiting().remove(&message["id"].to_string());
            if let Some(waiting) = waiting {
                // Whoever asked may have given up.
                waiting.send(message).unwrap_or_default();
                return;
            }
        }
        let due = reply(&message);
        self.log.push(Via::Session, message);
        if let Some(due) = due {
            // A server that does not take the answer to its own request harms only itself.
            self.send(&due).await.unwrap_or_default();
        }
    }
}
