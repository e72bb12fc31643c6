//! How the program ends: the exit codes, and the errors that lead to them.
//!
//! Every subcommand answers with a [`CliError`]; this module alone decides which code it becomes and how it is
//! printed. It decides nothing about what is an error.

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use crate::config::ConfigError;
use crate::telemetry::TelemetryError;

/// The exit codes, as `--help` shows them.
pub(super) const HELP: &str = "\
Exit codes:
   0  success, or ended by an interrupt
   1  failed while running, or a check found errors
   2  wrong usage of the command line
   3  a check found warnings and no errors
  69  the service or server cannot be reached
  78  the configuration is wrong";

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// As asked.
    Ok = 0,
    /// It failed while running, or a check found errors.
    Failure = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// A check found warnings and no errors.
    Warnings = 3,
    /// Whom it was to speak to cannot be reached (`EX_UNAVAILABLE` of sysexits).
    Unavailable = 69,
    /// The configuration is wrong (`EX_CONFIG` of sysexits).
    Config = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a subcommand ended early.
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
    /// Whom it was to speak to cannot be reached.
    #[error("{0}")]
    Unavailable(String),
    /// It failed while running.
    #[error("{0}")]
    Failed(String),
    /// Whoever read the output is gone, as with `| head -1`: the end of the work, not a fault.
    #[error("nobody reads the output any more")]
    Unread,
}

impl CliError {
    pub(super) fn failed(error: impl Display) -> CliError {
        CliError::Failed(error.to_string())
    }

    /// The exit code it becomes.
    pub fn exit(&self) -> Exit {
        match self {
            CliError::Usage(error) if error.exit_code() == 0 => Exit::Ok,
            CliError::Usage(_) => Exit::Usage,
            CliError::Config(_) | CliError::Telemetry(_) => Exit::Config,
            CliError::Unavailable(_) => Exit::Unavailable,
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
        // Without its streams the program has only the exit code left to answer with.
        printed.ok();
    }
}

/// The error, one line for each mistake of a configuration.
fn lines(error: &CliError) -> String {
    match error {
        CliError::Config(error) => {
            let lines = error
                .mistakes()
                .iter()
                .map(|mistake| format!("error: {mistake}\n"));
            lines.collect()
        }
        other => format!("{}\n", line(other)),
    }
}

/// An error and what caused it, on one line whatever they contain.
fn line(error: &CliError) -> String {
    let mut text = format!("error: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        text.push_str(&format!(": {source}"));
        cause = source.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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

    #[test]
    fn each_error_has_its_code() {
        let config = Config::load(
            Some("/nowhere/tidings.toml".as_ref()),
            std::iter::empty(),
            &Overrides::default(),
        );
        let config = CliError::from(config.unwrap_err());
        assert_eq!(config.exit(), Exit::Config);
        assert_eq!(CliError::Unavailable(String::new()).exit(), Exit::Unavailable);
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
    fn an_error_is_one_line_with_its_cause() {
        let config = Config::load(
            Some("/nowhere/tidings.toml".as_ref()),
            std::iter::empty(),
            &Overrides::default(),
        );
        let text = line(&CliError::from(config.unwrap_err()));
        assert!(
            text.starts_with("error: cannot read the configuration file /nowhere/tidings.toml: No such file"),
            "{text}"
        );
        assert_eq!(line(&CliError::failed("two\nlines")), "error: two lines");
    }
}
