//! The exit codes of the program, and the errors that lead to them.
//!
//! Every subcommand returns a [`CliError`]; its exit code and its text on standard error are decided here.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use tracing::debug;

use crate::config::ConfigError;
use crate::printable;
use crate::telemetry::TelemetryError;

/// The exit codes, as `--help` shows them.
pub(super) const HELP: &str = "\
Exit codes:
   0  success, or ended by an interrupt
   1  failed while running, or a check found errors
   2  wrong usage of the command line
   3  a check found warnings and no errors
  69  the service or server cannot be reached
  77  the service or server refuses the credentials, or asks for some
  78  the configuration is wrong";

/// The exit code of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It did its work.
    Ok = 0,
    /// It failed while running, or a check found errors.
    Failure = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// A check found warnings and no errors.
    Warnings = 3,
    /// The service or server cannot be reached (`EX_UNAVAILABLE` of sysexits).
    Unavailable = 69,
    /// The service or server refuses the credentials, or asks for some (`EX_NOPERM` of sysexits).
    Denied = 77,
    /// The configuration is wrong (`EX_CONFIG` of sysexits).
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// The reason for which a subcommand ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The command line makes no sense, or asks for help.
    #[error(transparent)]
    Usage(clap::Error),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log cannot be installed as configured.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The saved contexts, or files that the configuration names, are wrong: a line for each mistake.
    #[error("{0}")]
    Settings(String),
    /// The service or server cannot be reached.
    #[error("{0}")]
    Unavailable(String),
    /// The service or server refuses the credentials, or asks for some.
    #[error("{0}")]
    Denied(String),
    /// It failed while running.
    #[error("{0}")]
    Failed(String),
    /// The reader of the output is gone, as with `| head -1`. That ends the work and is no failure.
    #[error("the reader of the output is gone")]
    Unread,
}

impl CliError {
    pub(super) fn failed(error: impl Display) -> CliError {
        CliError::Failed(error.to_string())
    }

    /// Returns the exit code of the program.
    pub fn exit(&self) -> Exit {
        match self {
            CliError::Usage(error) if error.exit_code() == 0 => Exit::Ok,
            CliError::Usage(_) => Exit::Usage,
            CliError::Config(_) | CliError::Telemetry(_) | CliError::Settings(_) => Exit::Config,
            CliError::Unavailable(_) => Exit::Unavailable,
            CliError::Denied(_) => Exit::Denied,
            CliError::Failed(_) => Exit::Failure,
            CliError::Unread => Exit::Ok,
        }
    }

    /// Prints it on standard error, one line for each mistake; help and misuse as clap does.
    pub(super) fn print(&self) {
        let printed = match self {
            CliError::Usage(error) => error.print(),
            CliError::Unread => Ok(()),
            other => std::io::stderr().write_all(lines(other).as_bytes()),
        };
        if let Err(error) = printed {
            // Without its streams the program can report the failure by its exit code alone.
            debug!(%error, "the error could not be printed");
        }
    }
}

/// Returns the text of an error: one line for each mistake of a configuration, one line for any other error.
fn lines(error: &CliError) -> String {
    let mistakes: Vec<String> = match error {
        CliError::Config(error) => error.mistakes.iter().map(ToString::to_string).collect(),
        CliError::Settings(text) => text.lines().map(str::to_owned).collect(),
        _ => return format!("{}\n", line(error)),
    };
    let mut lines = String::new();
    for mistake in &mistakes {
        let mistake = printable::without_secrets(mistake);
        lines.push_str(&format!("error: {}\n", printable::lines(&mistake)));
    }
    lines
}

/// Returns an error and its causes on one line, even if their texts have several.
fn line(error: &CliError) -> String {
    let mut text = format!("error: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text.push_str(&format!(": {source}"));
        cause = source.source();
    }
    // Scripts and log collectors read errors line by line.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    printable::line(&printable::without_secrets(&text)).into_owned()
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> CliError {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => CliError::Unread,
            _ => CliError::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Overrides};

    /// The error of a file that is not there.
    fn config_error() -> CliError {
        let path = "/nowhere/tidings.toml".as_ref();
        let loaded = Config::load(Some(path), std::iter::empty(), &Overrides::default());
        CliError::from(loaded.unwrap_err())
    }

    #[test]
    fn errors_have_their_exit_codes() {
        assert_eq!(config_error().exit(), Exit::Config);
        assert_eq!(CliError::Unavailable(String::new()).exit(), Exit::Unavailable);
        assert_eq!(CliError::Denied(String::new()).exit(), Exit::Denied);
        assert_eq!(CliError::failed("x").exit(), Exit::Failure);
        assert_eq!(
            CliError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe)).exit(),
            Exit::Ok
        );
        assert_eq!(
            CliError::from(std::io::Error::other("full")).exit(),
            Exit::Failure
        );
    }

    #[test]
    fn error_is_one_line_with_its_cause() {
        let text = line(&config_error());
        assert!(
            text.starts_with("error: cannot read the configuration file /nowhere/tidings.toml: No such file"),
            "{text}"
        );
        assert_eq!(line(&CliError::failed("two\nlines")), "error: two lines");
        assert_eq!(
            line(&CliError::failed(
                "cannot reach http://a:b@h/?t: \u{1b}[2J\u{202e}"
            )),
            "error: cannot reach http://***@h/?***:  [2J "
        );
    }
}
