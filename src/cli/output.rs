//! The options of all commands: colours, and how much is said on standard error.
//!
//! They hold for the process, so they are kept beside the commands instead of being handed through each.

use std::ffi::OsString;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use anstream::{AutoStream, ColorChoice};
use clap::{ArgAction, Args, ValueEnum};

use super::CliError;
use crate::config::{LogConfig, LogFormat};
use crate::{printable, telemetry};

static QUIET: AtomicBool = AtomicBool::new(false);
static VERBOSE: AtomicU8 = AtomicU8::new(0);

/// The options of all commands.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// Colours: in a terminal unless NO_COLOR is set, always, or never
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = Color::Auto)]
    color: Color,
    /// Say nothing but errors on standard error
    #[arg(short, long, global = true)]
    quiet: bool,
    /// Log the requests, too; given twice, what the libraries log as well
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl OutputArgs {
    /// Makes them hold for this process.
    pub(super) fn apply(&self) {
        QUIET.store(self.quiet, Ordering::Relaxed);
        VERBOSE.store(self.verbose, Ordering::Relaxed);
    }
}

/// Makes the colours of a command line hold, also for its help and its mistakes, which come before it is
/// read.
pub(super) fn apply_color(arguments: &[OsString]) {
    let mut words = arguments.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        let name = match word.split_once('=') {
            // After it come the words of another program.
            None if word == "--" => return,
            None if word == "--color" => words.next(),
            Some(("--color", name)) => Some(name),
            _ => continue,
        };
        let choice = match name.map(|name| Color::from_str(name, true)) {
            Some(Ok(Color::Always)) => ColorChoice::Always,
            Some(Ok(Color::Never)) => ColorChoice::Never,
            // A wrong name is reported when the line is read.
            _ => ColorChoice::Auto,
        };
        choice.write_global();
    }
}

/// Returns true if nothing but errors is wanted.
pub(super) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Returns true if standard output takes colours.
pub(super) fn has_color() -> bool {
    AutoStream::choice(&std::io::stdout()) != ColorChoice::Never
}

/// Returns the level of the log that the options ask for.
pub(super) fn log_level() -> Option<&'static str> {
    match (is_quiet(), VERBOSE.load(Ordering::Relaxed)) {
        (true, _) => Some("error"),
        (false, 0) => None,
        (false, 1) => Some("info,tidings=debug"),
        (false, _) => Some("debug"),
    }
}

/// Installs a log for a command that has none of its own, if the options ask for one.
pub(super) fn install_log() -> Result<(), CliError> {
    let Some(level) = log_level().filter(|_| !is_quiet()) else {
        return Ok(());
    };
    let level = level.to_owned();
    let format = LogFormat::Text;
    Ok(telemetry::install(&LogConfig { level, format })?)
}

/// Prints a line about the work on standard error, unless errors alone are wanted.
pub(super) fn status(line: &str) -> Result<(), CliError> {
    if is_quiet() {
        return Ok(());
    }
    Ok(writeln!(std::io::stderr(), "{}", printable::line(line))?)
}

#[cfg(test)]
mod tests {
    use crate::cli::Cli;
    use clap::Parser;

    #[test]
    fn options_stand_before_and_after_the_command() {
        for line in [
            "tidings -v ls",
            "tidings ls -vv --color never",
            "tidings --color=always ls -q",
        ] {
            assert!(Cli::try_parse_from(line.split_whitespace()).is_ok(), "{line}");
        }
        for line in ["tidings ls -qv", "tidings ls --color blue"] {
            assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{line}");
        }
    }
}
