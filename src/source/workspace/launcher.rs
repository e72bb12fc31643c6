//! The launcher of tools: this program, started once more for each tool, which limits itself and then becomes
//! the tool.
//!
//! A limit that is set from outside comes after the tool has begun to run, and code between `fork` and `exec`
//! would be unsafe. A process that was just started may call everything, so it sets its own limits.

use crate::config::ToolsConfig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// The first argument of a process that is to become a tool.
const ARGUMENT: &str = "become-tool";
/// The file that is this program, even if another one has its name by now.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// The exit code of a launcher whose tool could not be started, as shells have it.
const NOT_STARTED: i32 = 127;
/// The start of its message.
const MESSAGE_START: &str = "tidings could not start it: ";
/// The first descriptor that a tool does not get: it has its input, its output and its errors.
const FIRST_INHERITED: RawFd = 3;
/// Pause before another attempt to start a program that is open for writing, and the number of pauses.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(10);
pub(super) const BUSY_PAUSES_MAX: u32 = 50;

/// Set once this process can start itself as a launcher.
static ENABLED: OnceLock<()> = OnceLock::new();

/// The limits of the processes of a tool; `None` leaves the limit that the service has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessLimits {
    /// Bytes of the address space of one process.
    pub(super) address_space: Option<u64>,
    /// Processes and threads of the service's user.
    pub(super) processes: Option<u64>,
    /// Seconds of processor time of one process.
    pub(super) cpu_seconds: Option<u64>,
    /// Open files of one process.
    pub(super) open_files: Option<u64>,
}

/// Lets folders run their tools under the limits of [`ToolsConfig`], without new
/// privileges and without inherited files. It is called first in `main`, before any thread or file: a process
/// that was started for a tool becomes the tool here and does not return.
///
/// Without this call tools run with the limits and the files that the process hands down, which is logged
/// with the first of them. It has an effect on Linux alone.
pub fn enable_launcher() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == ARGUMENT => {
            let Err(error) = become_tool(arguments);
            let message = format!("{MESSAGE_START}{error}\n");
            if let Err(unread) = io::stderr().write_all(message.as_bytes()) {
                // The exit code alone tells it then.
                tracing::debug!(%unread, "the reason was not read");
            }
            std::process::exit(NOT_STARTED)
        }
        _ => ENABLED.get_or_init(|| ()),
    };
}

/// Returns the command that runs `program` under `limits`, for its arguments to be added.
pub(super) fn command(program: &Path, limits: &ProcessLimits) -> Command {
    if ENABLED.get().is_none() {
        static TOLD: OnceLock<()> = OnceLock::new();
        TOLD.get_or_init(|| {
            tracing::warn!("tools run without limits of their own; call enable_launcher first in main");
        });
        return Command::new(program);
    }
    let mut command = Command::new(OWN_PROGRAM);
    command.arg(ARGUMENT);
    for (_, limit) in limits.each() {
        command.arg(match limit {
            Some(limit) => limit.to_string(),
            None => "-".to_owned(),
        });
    }
    command.arg(program);
    command
}

/// Returns the reason for which a launcher could not start its tool, if that is how a process ended.
pub(super) fn not_started(code: Option<i32>, stderr: &str) -> Option<io::Error> {
    if code != Some(NOT_STARTED) || ENABLED.get().is_none() {
        return None;
    }
    let reason = stderr.strip_prefix(MESSAGE_START)?;
    Some(io::Error::other(reason.trim_end().to_owned()))
}

impl ProcessLimits {
    /// Returns the limits that the configuration sets.
    pub(super) fn of(config: &ToolsConfig) -> ProcessLimits {
        ProcessLimits {
            address_space: config.address_space_max,
            processes: config.processes_max,
            cpu_seconds: config.cpu_max.map(|time| time.as_secs()),
            open_files: config.open_files_max,
        }
    }

    /// The limits in the order of the launcher's arguments.
    fn each(&self) -> [(Resource, Option<u64>); 4] {
        [
            (Resource::RLIMIT_AS, self.address_space),
            (Resource::RLIMIT_NPROC, self.processes),
            (Resource::RLIMIT_CPU, self.cpu_seconds),
            (Resource::RLIMIT_NOFILE, self.open_files),
        ]
    }

    fn read(arguments: &mut impl Iterator<Item = OsString>) -> io::Result<ProcessLimits> {
        let mut next = || match arguments.next() {
            Some(text) if text == "-" => Ok(None),
            Some(text) => match text.to_str().and_then(|text| text.parse().ok()) {
                Some(limit) => Ok(Some(limit)),
                None => Err(io::Error::other("a limit is no number")),
            },
            None => Err(io::Error::other("a limit is missing")),
        };
        Ok(ProcessLimits {
            address_space: next()?,
            processes: next()?,
            cpu_seconds: next()?,
            open_files: next()?,
        })
    }

    /// Sets the limits of this process. One that is higher than the service's own changes nothing.
    fn set(&self) -> io::Result<()> {
        for (resource, limit) in self.each() {
            if let Some(limit) = limit {
                let (_, hard) = getrlimit(resource)?;
                let limit = limit.min(hard);
                // The signal of the lower limit tells the cause; that of the upper one cannot be caught.
                let upper = match resource {
                    Resource::RLIMIT_CPU => limit.saturating_add(1).min(hard),
                    _ => limit,
                };
                setrlimit(resource, limit, upper)?;
            }
        }
        // A core file would leave what the tool has read in the folder.
        setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
        Ok(())
    }
}

/// Becomes the tool that the arguments name. Returns the reason that this failed.
fn become_tool(mut arguments: impl Iterator<Item = OsString>) -> io::Result<Infallible> {
    let limits = ProcessLimits::read(&mut arguments)?;
    let Some(program) = arguments.next() else {
        return Err(io::Error::other("the program is missing"));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    close_inherited()?;
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_no_new_privs()?;
    limits.set()?;
    for _ in 0..BUSY_PAUSES_MAX {
        let error = command.exec();
        if error.kind() != ErrorKind::ExecutableFileBusy {
            return Err(error);
        }
        std::thread::sleep(BUSY_PAUSE);
    }
    Err(command.exec())
}

/// Closes the files that the service inherited from the process that started it and handed down.
fn close_inherited() -> io::Result<()> {
    let mut inherited = Vec::new();
    for file in std::fs::read_dir("/proc/self/fd")? {
        let name = file?.file_name();
        if let Some(descriptor) = name.to_str().and_then(|name| name.parse::<RawFd>().ok())
            && descriptor >= FIRST_INHERITED
        {
            inherited.push(descriptor);
        }
    }
    for descriptor in inherited {
        // The folder of the list itself was one of them, and is closed by now.
        if let Err(error) = nix::unistd::close(descriptor)
            && error != nix::errno::Errno::EBADF
        {
            return Err(error.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_survive_the_command_line() {
        let limits = ProcessLimits {
            address_space: Some(1 << 30),
            cpu_seconds: Some(5),
            ..ProcessLimits::default()
        };
        let mut written = limits.each().into_iter().map(|(_, limit)| {
            OsString::from(match limit {
                Some(limit) => limit.to_string(),
                None => "-".to_owned(),
            })
        });
        assert_eq!(ProcessLimits::read(&mut written).unwrap(), limits);
        assert!(ProcessLimits::read(&mut ["1", "x"].map(OsString::from).into_iter()).is_err());
    }
}
