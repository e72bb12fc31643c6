//! `tidings check`: tests how an MCP server announces changes, and prints the report to standard output.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use clap::Args;

use super::credentials::{CredentialsArgs, denied};
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
    /// Listen this long for notifications that must not come
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    quiet_time: Duration,
    /// Wait this long for the notice of a change
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    wait: Duration,
    /// Wait this long for a sign of life on a silent stream
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    idle: Option<Duration>,
    /// Give up after this long
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    timeout: Duration,
    /// Revisions of the protocol to check: all, 2026-07-28, or 2025-11-25 and older
    #[arg(long, value_enum, default_value_t = EraName::Auto)]
    era: EraName,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    credentials: CredentialsArgs,
}

/// The limit on each duration: one hour.
const SECONDS_MAX: f64 = 3600.0;

fn seconds(text: &str) -> Result<Duration, String> {
    let Ok(seconds) = text.parse::<f64>() else {
        return Err("expected a number of seconds".to_owned());
    };
    // Infinity and NaN are numbers too: a duration cannot be made of them.
    if seconds > 0.0 && seconds <= SECONDS_MAX {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("expected more than 0 and at most {SECONDS_MAX} seconds"))
    }
}

impl Check {
    /// Checks the server and prints the report; an interrupt ends it without one.
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let (target, options) = self.target_and_options()?;
        let report = block_on(async {
            tokio::select! {
                // An interrupt wins over a check that ends at the same time: the user wants no report any
                // more.
                biased;
                () = signal::interrupted() => Ok(None),
                checked = check::run(&target, &options) => Ok(Some(checked?)),
            }
        })?;
        match report {
            Some(report) => self.print(&report),
            None => Ok(Exit::Ok),
        }
    }

    fn target_and_options(&self) -> Result<(Target, Options), CliError> {
        let target = match &self.target {
            Some(url) => Target::http(url),
            None => Target::command(self.command.clone()),
        };
        let target = target.map_err(|error| usage("check", &error.to_string()))?;
        if let Some(uri) = &self.uri {
            ResourceUri::new(uri).map_err(|error| usage("check", &error.to_string()))?;
        }
        let credentials = self.credentials.for_target("check", &target)?;
        let options = Options {
            credentials,
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
        let text = match self.json {
            true => report.to_json() + "\n",
            false => report.to_string(),
        };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(exit_for(report.worst()))
    }
}

/// Returns the exit code for a report with this highest severity.
fn exit_for(worst: Option<Severity>) -> Exit {
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
            CheckError::Denied { .. } => denied(error),
            CheckError::NoServer { .. } | CheckError::Credentials(_) => CliError::failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<(Target, Options), CliError> {
        let words = ["tidings", "check"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(CliError::Usage)?.command {
            Command::Check(check) => check.target_and_options(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn url_and_command_are_targets() {
        let (target, options) = parse("http://h/mcp").unwrap();
        assert_eq!(target, Target::Http("http://h/mcp".to_owned()));
        assert_eq!(options, Options::default());
        let (target, options) =
            parse("--touch x --uri demo://a --quiet-time 0.5 --idle 20 -- server --json").unwrap();
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
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit(), Exit::Usage, "{line}: {error}");
        }
    }

    #[test]
    fn worst_severity_decides_the_exit_code() {
        assert_eq!(exit_for(None), Exit::Ok);
        assert_eq!(exit_for(Some(Severity::Info)), Exit::Ok);
        assert_eq!(exit_for(Some(Severity::Warning)) as u8, 3);
        assert_eq!(exit_for(Some(Severity::Error)) as u8, 1);
    }
}
