//! Running one process under limits, in a clean environment and a process group of its own.
//!
//! The launcher sets the limits. However the run ends (exit, time, output, or a dropped future), the whole
//! group is killed. A process that leaves the group by itself (`setsid`) is out of reach.

use super::launcher::{self, BUSY_PAUSE, BUSY_PAUSES_MAX, ProcessLimits};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

/// Bytes of standard error that are kept: the last ones.
const STDERR_TAIL: usize = 2 << 10;
/// Time to read the rest of the pipes after the process and its group have ended. A process that left the
/// group may hold them open for longer.
const REST_TIMEOUT: Duration = Duration::from_millis(500);
/// The `PATH` of programs if the service itself has none.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program to run.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    /// An absolute path, or a name that is found on the `PATH`.
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// The served folder, in which it runs.
    pub(super) dir: PathBuf,
    /// The bytes for its standard input.
    pub(super) input: Vec<u8>,
    pub(super) timeout: Duration,
    /// Most bytes that it may print to standard output.
    pub(super) output_bytes_max: u64,
    pub(super) limits: ProcessLimits,
}

/// The output of a process that ended by itself.
#[derive(Debug)]
pub(super) struct ProcessOutput {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    /// The end of standard error.
    pub(super) stderr: String,
}

/// The reason that a process gave no output.
#[derive(Debug)]
pub(super) enum ProcessError {
    /// It could not be started.
    NotStarted(io::Error),
    /// It ran for longer than it may.
    TimedOut,
    /// It printed more than it may.
    TooMuchOutput,
    /// The system failed to wait for it or to read from it.
    Failed(io::Error),
}

impl From<io::Error> for ProcessError {
    fn from(error: io::Error) -> ProcessError {
        ProcessError::Failed(error)
    }
}

/// A process and its descendants, which are killed when it is dropped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> ProcessGroup {
        match child.id() {
            Some(id) => ProcessGroup(i32::try_from(id).ok().map(Pid::from_raw)),
            None => ProcessGroup(None),
        }
    }

    fn kill(&mut self) {
        if let Some(group) = self.0.take()
            && let Err(error) = killpg(group, Signal::SIGKILL)
        {
            // This is the usual case: all processes have ended.
            tracing::trace!(%group, %error, "no process group to kill");
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Launch {
    /// Runs the program to its end. Dropping the future kills its processes.
    pub(super) async fn run(self) -> Result<ProcessOutput, ProcessError> {
        match tokio::time::timeout(self.timeout, self.run_unlimited()).await {
            Ok(ended) => ended,
            Err(_elapsed) => Err(ProcessError::TimedOut),
        }
    }

    async fn run_unlimited(&self) -> Result<ProcessOutput, ProcessError> {
        let mut child = self.start().await.map_err(ProcessError::NotStarted)?;
        let mut group = ProcessGroup::of(&child);
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        let status = {
            let writing = write_input(child.stdin.take(), &self.input);
            let printing = read_all(child.stdout.take(), self.output_bytes_max, &mut stdout);
            let failing = read_tail(child.stderr.take(), &mut stderr);
            let reading = async { tokio::try_join!(printing, failing) };
            tokio::pin!(writing, reading);
            let mut is_written = false;
            let mut is_read = false;
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status?,
                    read = &mut reading, if !is_read => { read?; is_read = true; }
                    () = &mut writing, if !is_written => is_written = true,
                }
            };
            // Background processes that it started would keep the pipes open.
            group.kill();
            if !is_read && let Ok(read) = tokio::time::timeout(REST_TIMEOUT, reading).await {
                read?;
            }
            status
        };
        let stderr = String::from_utf8_lossy(&stderr).trim_end().to_owned();
        match launcher::not_started(status.code(), &stderr) {
            Some(error) => Err(ProcessError::NotStarted(error)),
            None => Ok(ProcessOutput {
                status,
                stdout,
                stderr,
            }),
        }
    }

    async fn start(&self) -> io::Result<Child> {
        let path = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
        let mut command = Command::from(launcher::command(&self.program, &self.limits));
        command
            .args(&self.arguments)
            // The environment of the service may hold secrets.
            .env_clear()
            .env("PATH", path)
            .env("LANG", "C.UTF-8")
            .env("TIDINGS_WORKSPACE", &self.dir)
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A group of its own, so that its descendants can be killed with it.
            .process_group(0)
            .kill_on_drop(true);
        for _ in 0..BUSY_PAUSES_MAX {
            match command.spawn() {
                // The program is being written, or was when another process was forked, which inherited the
                // file.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                started => return started,
            }
        }
        command.spawn()
    }
}

async fn write_input(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin
        && let Err(error) = stdin.write_all(input).await
    {
        // A program need not read its input.
        tracing::trace!(%error, "a process did not read its input");
    }
}

/// Reads everything that is printed into `out`, up to `max` bytes. If the future is dropped, `out` has the
/// bytes read so far.
async fn read_all(
    pipe: Option<impl AsyncRead + Unpin>,
    max: u64,
    out: &mut Vec<u8>,
) -> Result<(), ProcessError> {
    let Some(pipe) = pipe else { return Ok(()) };
    let read = pipe.take(max + 1).read_to_end(out).await?;
    if read as u64 > max {
        Err(ProcessError::TooMuchOutput)
    } else {
        Ok(())
    }
}

/// Reads everything that is printed, and keeps the end of it in `tail`.
async fn read_tail(pipe: Option<impl AsyncRead + Unpin>, tail: &mut Vec<u8>) -> Result<(), ProcessError> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut piece = [0; 4 << 10];
    loop {
        match pipe.read(&mut piece).await? {
            0 => return Ok(()),
            read => tail.extend_from_slice(&piece[..read]),
        }
        // The last lines tell the cause; the first ones could be arbitrarily many.
        let excess = tail.len().saturating_sub(STDERR_TAIL);
        tail.drain(..excess);
    }
}

impl ProcessOutput {
    /// Returns true if it ended because it used more processor time than it may.
    pub(super) fn is_out_of_cpu_time(&self) -> bool {
        use std::os::unix::process::ExitStatusExt;
        // A shell reports the signal of its last command as an exit code.
        let signal = Signal::SIGXCPU as i32;
        self.status.signal() == Some(signal) || self.status.code() == Some(128 + signal)
    }

    /// Describes the end of a process that did not succeed, with the last lines that it printed.
    pub(super) fn failure(&self) -> String {
        use std::os::unix::process::ExitStatusExt;
        let end = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "no exit code".to_owned(),
        };
        if self.stderr.is_empty() {
            end
        } else {
            format!("{end}: {}", self.stderr)
        }
    }
}
