//! The transport over the standard input and output of a process that is started for the check.
//!
//! Answers go back to the caller, every other message to the transcript. The error output of the process is
//! copied to our own, so that its log lines reach the terminal.

use std::collections::HashMap;
use std::ffi::OsString;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};
use tracing::debug;

use super::answer::{Answer, MESSAGE_BYTES_MAX, TransportError};
use super::options::Options;
use super::transcript::{MessageOrigin, Transcript};
use crate::client::error_output::ErrorOutput;
use crate::wire::jsonrpc::reply;

/// The time that a process has to end, first by itself and then after SIGTERM.
const END_MAX: Duration = Duration::from_secs(5);

/// The time that a process has to end after it closed one of its pipes.
const ENDED_MAX: Duration = Duration::from_secs(1);

/// The event that ended a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProcessEnd {
    /// The end of its standard input.
    InputClosed,
    /// SIGTERM.
    Terminated,
    /// SIGKILL.
    Killed,
}

/// The requests without an answer so far, by the text of their id.
type Pending = HashMap<String, oneshot::Sender<Value>>;

/// The part of the transport that the reading task shares.
struct ProcessIo {
    /// None once the input was closed.
    input: AsyncMutex<Option<ChildStdin>>,
    pending: Mutex<Pending>,
    transcript: Arc<Transcript>,
    answer_max: Duration,
}

/// A transport to a server process, which is killed with it at the latest.
pub(super) struct StdioTransport {
    shared: Arc<ProcessIo>,
    process: AsyncMutex<ServerProcess>,
    reader: JoinHandle<()>,
}

/// A process and the copying of its error output.
struct ServerProcess {
    child: Child,
    errors: Option<ErrorOutput>,
}

impl ServerProcess {
    /// Waits for the end of the process, within `limit`, and of the lines that it printed; none if it goes
    /// on.
    async fn ended(&mut self, limit: Duration) -> Option<std::io::Result<ExitStatus>> {
        let ended = timeout(limit, self.child.wait()).await.ok()?;
        if let Some(mut errors) = self.errors.take() {
            errors.finish().await;
        }
        Some(ended)
    }
}

impl StdioTransport {
    /// Starts the program with its arguments.
    pub(super) fn spawn(
        command: &[OsString],
        options: &Options,
        transcript: Arc<Transcript>,
    ) -> Result<StdioTransport, TransportError> {
        let (program, arguments) = command.split_first().expect("a target has a program");
        let mut started = Command::new(program);
        let variables = options.variables.0.iter().map(|(name, value)| (name, value));
        started
            .args(arguments)
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(folder) = &options.folder {
            started.current_dir(folder);
        }
        let spawned = started.spawn();
        let mut child = spawned.map_err(|error| {
            let program = program.to_string_lossy();
            TransportError::Unreachable(format!("cannot start {program}: {error}"))
        })?;
        let output = child.stdout.take().expect("stdout is piped");
        let shared = Arc::new(ProcessIo {
            input: AsyncMutex::new(child.stdin.take()),
            pending: Mutex::default(),
            transcript,
            answer_max: options.answer_timeout,
        });
        let reader = tokio::spawn(shared.clone().read(output));
        let errors = child.stderr.take().map(ErrorOutput::copy);
        Ok(StdioTransport {
            shared,
            process: AsyncMutex::new(ServerProcess { child, errors }),
            reader,
        })
    }

    /// Sends a request and returns its answer, which has to come within `limit`.
    pub(super) async fn request(&self, message: &Value, limit: Duration) -> Result<Answer, TransportError> {
        let id = message["id"].to_string();
        let (sender, answer) = oneshot::channel();
        // Registered before it is sent: the answer may arrive before `send` returns.
        self.shared.pending().insert(id.clone(), sender);
        if let Err(error) = self.send(message).await {
            return Err(self.describe_end(error).await);
        }
        let answer = timeout(limit, answer).await;
        // Still there only if no answer came.
        self.shared.pending().remove(&id);
        match answer {
            Ok(Ok(message)) => Ok(Answer {
                status: None,
                message,
            }),
            // The reading task drops all senders when the output ends.
            Ok(Err(_)) => {
                let problem = "the process closed its standard output".to_owned();
                Err(self.describe_end(TransportError::Broken(problem)).await)
            }
            Err(_) => Err(TransportError::Timeout(limit)),
        }
    }

    /// Returns the error of a pipe that broke: the end of the process, if that is the cause.
    async fn describe_end(&self, error: TransportError) -> TransportError {
        if !matches!(error, TransportError::Broken(_)) {
            return error;
        }
        // The pipes close a moment before the process has ended.
        let mut process = self.process.lock().await;
        match process.ended(ENDED_MAX).await {
            Some(Ok(status)) => TransportError::Broken(format!("the process ended with {status}")),
            Some(Err(_)) | None => error,
        }
    }

    /// Sends a message that has no answer.
    pub(super) async fn send(&self, message: &Value) -> Result<(), TransportError> {
        self.shared.send(message).await
    }

    /// Ends the process: closes its input, and sends SIGTERM and SIGKILL if it does not end by itself.
    pub(super) async fn end(&self) -> ProcessEnd {
        self.shared.input.lock().await.take();
        let mut process = self.process.lock().await;
        if process.ended(END_MAX).await.is_some() {
            return ProcessEnd::InputClosed;
        }
        if let Some(pid) = process.child.id() {
            // `sh` has `kill` built in; the program of that name is not installed everywhere.
            let kill = format!("kill -TERM {pid}");
            let sent = Command::new("sh").args(["-c", &kill]).status().await;
            if sent.is_ok() && process.ended(END_MAX).await.is_some() {
                return ProcessEnd::Terminated;
            }
        }
        if let Err(error) = process.child.start_kill() {
            debug!(%error, "the process could not be killed; it is killed again when it is dropped");
        }
        ProcessEnd::Killed
    }
}

impl Drop for StdioTransport {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl ProcessIo {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending
            .lock()
            .expect("no code panics while it holds the requests")
    }

    async fn send(&self, message: &Value) -> Result<(), TransportError> {
        // A process that does not read its input would block the write without an end.
        match timeout(self.answer_max, self.write(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(TransportError::Broken(format!(
                "the process no longer reads its standard input: {error}"
            ))),
            Err(_) => Err(TransportError::Timeout(self.answer_max)),
        }
    }

    async fn write(&self, message: &Value) -> std::io::Result<()> {
        let mut input = self.input.lock().await;
        let input = input.as_mut().ok_or(std::io::ErrorKind::BrokenPipe)?;
        input.write_all(format!("{message}\n").as_bytes()).await?;
        input.flush().await
    }

    /// Reads the output line by line, until it ends or a line exceeds the limit.
    async fn read(self: Arc<Self>, output: ChildStdout) {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        loop {
            line.clear();
            // A line without an end would otherwise fill the memory.
            let mut limited = (&mut output).take(MESSAGE_BYTES_MAX as u64);
            let read = limited.read_until(b'\n', &mut line).await;
            if read.is_err() || line.last() != Some(&b'\n') {
                break;
            }
            self.transcript.record_activity();
            if let Ok(message) = serde_json::from_slice(&line) {
                self.receive(message).await;
            }
        }
        // Without their senders, the requests that still wait fail at once.
        self.pending().clear();
    }

    async fn receive(&self, message: Value) {
        if message.get("method").is_none() {
            let sender = self.pending().remove(&message["id"].to_string());
            if let Some(sender) = sender {
                if sender.send(message).is_err() {
                    debug!("an answer came after its request had timed out");
                }
                return;
            }
        }
        let reply = reply(&message);
        self.transcript.push(MessageOrigin::Session, message);
        if let Some(reply) = reply
            && let Err(error) = self.send(&reply).await
        {
            // No rule that is checked depends on the server taking the answer to its own request.
            debug!(%error, "the server did not take the answer to its request");
        }
    }
}
