//! Running one process under limits, with all that it starts.
//!
//! Owns: the only place where the source starts a process, its clean environment, and the signal to its group.
//! However the run ends (exit, time, output, or because nobody waits any more), the whole group is killed. What
//! leaves the group by itself (`setsid`) is out of reach. The runner and `register` say what to run.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// Bytes of standard error that are kept: the last ones.
const STDERR_TAIL: usize = 2 << 10;
/// Time for what is still in the pipes after the process and its group are gone.
const REST_TIMEOUT: Duration = Duration::from_millis(500);
/// Pauses, and how many, while the program is still open for writing.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const BUSY_PAUSES_MAX: u32 = 50;
/// Where programs are found when the service itself has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// What to run.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    /// An absolute path, or a name to be found on the `PATH`.
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// Where it runs: the served folder.
    pub(super) dir: PathBuf,
    /// What it reads on standard input.
    pub(super) input: Vec<u8>,
    pub(super) timeout: Duration,
    /// Bytes it may print on standard output.
    pub(super) output_bytes_max: u64,
}

/// A process that ended by itself.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    /// The end of standard error.
    pub(super) stderr: String,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Broken {
    /// It could not be started.
    NotStarted(io::Error),
    /// It ran for longer than it may.
    TimedOut,
    /// It printed more than it may.
    TooMuchOutput,
    /// The system failed to wait for it or to read from it.
    Failed(io::Error),
}

/// A process and all that it started; killed when dropped.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Group(id.map(Pid::from_raw))
    }

    fn kill(&mut self) {
        if let Some(group) = self.0.take()
            && let Err(error) = killpg(group, Signal::SIGKILL)
        {
            // Usually nobody is left.
            tracing::trace!(%group, %error, "no process group to kill");
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Launch {
    /// Runs it to its end. When the future is dropped, the processes are killed.
    pub(super) async fn run(self) -> Result<Finished, Broken> {
        let timeout = self.timeout;
        match tokio::time::timeout(timeout, self.run_unlimited()).await {
            Ok(ended) => ended,
            Err(_elapsed) => Err(Broken::TimedOut),
        }
    }

    async fn run_unlimited(self) -> Result<Finished, Broken> {
        let mut child = self.start().await.map_err(Broken::NotStarted)?;
        let mut group = Group::of(&child);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut printed, mut tail) = (Vec::new(), Vec::new());
        let status = {
            let feeding = async {
                if let Some(mut stdin) = stdin
                    && let Err(error) = stdin.write_all(&self.input).await
                {
                    // It need not read what it does not want to know.
                    tracing::trace!(%error, "a process did not read its input");
                }
            };
            let reading = async {
                let printed = capture(stdout, self.output_bytes_max, &mut printed);
                let ((), ()) = tokio::try_join!(printed, follow(stderr, &mut tail))?;
                Ok::<(), Broken>(())
            };
            tokio::pin!(feeding, reading);
            let (mut fed, mut read) = (false, false);
            let status = loop {
                tokio::select! {
                    status = child.wait() => break status.map_err(Broken::Failed)?,
                    result = &mut reading, if !read => { result?; read = true; }
                    () = &mut feeding, if !fed => fed = true,
                }
            };
            // What it left running would keep the pipes open.
            group.kill();
            if !read && let Ok(result) = tokio::time::timeout(REST_TIMEOUT, reading).await {
                result?;
            }
            status
        };
        let stderr = String::from_utf8_lossy(&tail).trim_end().to_owned();
        Ok(Finished {
            status,
            stdout: printed,
            stderr,
        })
    }

    async fn start(&self) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .env_clear()
            .env(
                "PATH",
                std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into()),
            )
            .env("LANG", "C.UTF-8")
            .env("TIDINGS_WORKSPACE", &self.dir)
            .current_dir(&self.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for _ in 0..BUSY_PAUSES_MAX {
            match command.spawn() {
                // Somebody is writing the program, or was when another process was forked.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                other => return other,
            }
        }
        command.spawn()
    }
}

/// Reads all that is printed, up to `max` bytes.
async fn capture(pipe: Option<impl AsyncRead + Unpin>, max: u64, out: &mut Vec<u8>) -> Result<(), Broken> {
    let Some(pipe) = pipe else { return Ok(()) };
    let read = pipe
        .take(max + 1)
        .read_to_end(out)
        .await
        .map_err(Broken::Failed)?;
    if read as u64 > max {
        Err(Broken::TooMuchOutput)
    } else {
        Ok(())
    }
}

/// Reads all that is printed and keeps the end of it.
async fn follow(pipe: Option<impl AsyncRead + Unpin>, tail: &mut Vec<u8>) -> Result<(), Broken> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    let mut piece = [0; 4 << 10];
    loop {
        match pipe.read(&mut piece).await.map_err(Broken::Failed)? {
            0 => return Ok(()),
            read => tail.extend_from_slice(&piece[..read]),
        }
        let beyond = tail.len().saturating_sub(STDERR_TAIL);
        tail.drain(..beyond);
    }
}

impl Finished {
    /// How a process ended that did not succeed, and what it said last.
    pub(super) fn failure(&self) -> String {
        use std::os::unix::process::ExitStatusExt;
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "no exit code".to_owned(),
        };
        if self.stderr.is_empty() {
            how
        } else {
            format!("{how}: {}", self.stderr)
        }
    }
}
