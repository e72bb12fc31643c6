//! `tidings check`: tests how any MCP server tells of changes, and prints a report.
//!
//! Owns the two forms of its command line and which exit code a report becomes. The report goes to standard output.
//! It never speaks to a server itself; [`crate::check`] does.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use clap::Args;

use super::watch::EraName;
use super::{CliError, Exit, block_on, signal, usage};
use crate::ResourceUri;
use crate::check::{self, CheckError, Options, Report, Severity};
use crate::client::Target;

const USAGE: &str = "tidings check [OPTIONS] TARGET\n       tidings check [OPTIONS] -- COMMAND [ARG]...";

/// The arguments of `tidings check`.
#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
pub(super) struct Check {
    /// Address of the server, such as http://127.0.0.1:8808/mcp, unless a COMMAND is given
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    target: Option<String>,
    /// Program that is an MCP server on its standard input and output, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// Shell command that changes the content of the resource; without it nothing is changed
    #[arg(long, value_name = "CMD")]
    touch: Option<String>,
    /// The resource that --touch changes; by default the first that is listed
    #[arg(long)]
    uri: Option<String>,
    /// How long to listen for what must not come
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    quiet_time: Duration,
    /// How long to wait for the notice of a change
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    wait: Duration,
    /// Wait so long for a sign of life on a silent stream
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    idle: Option<Duration>,
    /// How long all of it may take
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
    /// Revisions of the protocol to look at: all, 2026-07-28, or 2025-11-25 and older
    #[arg(long, value_enum, default_value_t = EraName::Auto)]
    era: EraName,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
}

/// At most an hour: nobody waits longer for a report.
const SECONDS_MAX: f64 = 3600.0;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "expected a number of seconds".to_owned())?;
    if seconds > 0.0 && seconds <= SECONDS_MAX {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("expected more than 0 and at most {SECONDS_MAX} seconds"))
    }
}

impl Check {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let (target, options) = self.plan()?;
        let report = block_on(async {
            tokio::select! {
                biased;
                () = signal::interrupted() => Ok(None),
                checked = check::run(&target, &options) => Ok(Some(checked?)),
            }
        })?;
        report.map_or(Ok(Exit::Ok), |report| self.print(&report))
    }

    fn plan(&self) -> Result<(Target, Options), CliError> {
        let misuse = |message: &str| usage("check", message);
        let target = match &self.target {
            Some(url) => Target::http(url),
            None => Target::command(self.command.clone()),
        };
        let target = target.map_err(|error| misuse(&error.to_string()))?;
        if let Some(uri) = &self.uri {
            ResourceUri::new(uri).map_err(|error| misuse(&error.to_string()))?;
        }
        let options = Options {
            touch: self.touch.clone(),
            uri: self.uri.clone(),
            quiet_time: self.quiet_time,
            wait: self.wait,
            idle: self.idle,
            timeout: self.timeout,
            era: self.era.into(),
        };
        Ok((target, options))
    }

    fn print(&self, report: &Report) -> Result<Exit, CliError> {
        let text = if self.json {
            report.to_json() + "\n"
        } else {
            report.to_string()
        };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(exit(report.worst()))
    }
}

fn exit(worst: Option<Severity>) -> Exit {
    match worst {
        Some(Severity::Error) => Exit::Failure,
        Some(Severity::Warning) => Exit::Warnings,
        Some(Severity::Info) | None => Exit::Ok,
    }
}

impl From<CheckError> for CliError {
    fn from(error: CheckError) -> CliError {
        match error {
            CheckError::Unreachable { .. } => CliError::Unavailable(error.to_string()),
            CheckError::NoServer { .. } => CliError::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn plan(line: &str) -> Result<(Target, Options), CliError> {
        let words = ["tidings", "check"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(CliError::Usage)?.command {
            Command::Check(check) => check.plan(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_forms_are_understood() {
        let (target, options) = plan("http://h/mcp").unwrap();
        assert_eq!(target, Target::Http("http://h/mcp".to_owned()));
        assert_eq!(options, Options::default());
        let (target, options) =
            plan("--touch x --uri demo://a --quiet-time 0.5 --idle 20 -- server --json").unwrap();
        assert_eq!(target, Target::Command(vec!["server".into(), "--json".into()]));
        assert_eq!(options.touch.as_deref(), Some("x"));
        assert_eq!(options.quiet_time, Duration::from_millis(500));
        assert_eq!(options.idle, Some(Duration::from_secs(20)));
    }

    #[test]
    fn misuse_is_refused() {
        for line in [
            "",
            "ftp://h/mcp",
            "http://h/mcp -- server",
            "http://h/mcp --wait 0",
            "http://h/mcp --timeout -1",
            "http://h/mcp --timeout inf",
            "http://h/mcp --uri nonsense",
        ] {
            let error = plan(line).expect_err(line);
            assert_eq!(error.exit(), Exit::Usage, "{line}: {error}");
        }
    }

    #[test]
    fn the_worst_decides_the_exit_code() {
        assert_eq!(exit(None), Exit::Ok);
        assert_eq!(exit(Some(Severity::Info)), Exit::Ok);
        assert_eq!(exit(Some(Severity::Warning)) as u8, 3);
        assert_eq!(exit(Some(Severity::Error)) as u8, 1);
    }
}
