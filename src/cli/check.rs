//! `tidings check`: tests how an MCP server announces changes, and prints the report to standard output.

mod host_file;
mod progress;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::credentials::denied;
use super::duration::positive;
use super::server::ServerArgs;
use super::watch::EraName;
use super::{CliError, Exit, block_on, output, signal, usage};
use crate::ResourceUri;
use crate::check::{self, CheckError, Options, Report, Severity, ToolCall};
use crate::client::Target;
use crate::printable;
use host_file::HostServer;
use progress::StepPrinter;

const USAGE: &str = "tidings check [OPTIONS] TARGET\n       tidings check [OPTIONS] -- COMMAND [ARG]...\n       \
                     tidings check [OPTIONS] --config FILE [--server NAME]";

// A style stands in the placeholder, since clap replaces the plain text by a line break.
const TOUCH_TOOL_HELP: &str = "Tool that changes the resource or a list, with its arguments, in which \
     {\x1b[1mn\x1b[22m} becomes another number for each change; may be given several times";

/// The variable that GitHub Actions sets.
const GITHUB_VARIABLE: &str = "GITHUB_ACTIONS";

/// The arguments of `tidings check`.
#[derive(Debug, Args)]
#[command(override_usage = USAGE)]
pub(super) struct Check {
    /// Address of the server, such as http://127.0.0.1:8808/mcp or localhost:8808, unless a COMMAND is given;
    /// without either, the service of the context or of TIDINGS_URL
    #[arg(conflicts_with = "command")]
    target: Option<String>,
    /// Program that is an MCP server on its standard input and output, and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
    /// File of an MCP host with the server: Claude's or Cursor's mcpServers, or VS Code's servers
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "command", "context"])]
    config: Option<PathBuf>,
    /// Name of the server in that file; it may be left out if there is one
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// Shell command that changes the content of the resource; without it nothing is changed
    #[arg(long, value_name = "CMD")]
    touch: Option<String>,
    #[arg(long, help = TOUCH_TOOL_HELP, value_name = "NAME=JSON", value_parser = ToolCall::parse)]
    touch_tool: Vec<ToolCall>,
    /// The resource that --touch changes; by default the first that is listed
    #[arg(long)]
    uri: Option<String>,
    /// Listen this long for notifications that must not come
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = positive)]
    quiet_time: Duration,
    /// Wait this long for the notice of a change
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive)]
    wait: Duration,
    /// Wait this long for a sign of life on a silent stream
    #[arg(long, value_name = "TIME", value_parser = positive)]
    idle: Option<Duration>,
    /// Wait this long for the first answer in each era, and so for the start of a program
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive)]
    start_timeout: Duration,
    /// Wait this long for every later answer
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive)]
    answer_timeout: Duration,
    /// Give up after this long, besides the waits for a first answer
    #[arg(long, value_name = "TIME", default_value = "120s", value_parser = positive)]
    timeout: Duration,
    /// Revisions of the protocol to check: all, 2026-07-28, or 2025-11-25 and older
    #[arg(long, value_enum, default_value_t = EraName::Auto)]
    era: EraName,
    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,
    /// Write the report to this file as JUnit XML, too
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Print failures as annotations of GitHub Actions on standard error; there it is the default
    #[arg(long)]
    github: bool,
    #[command(flatten)]
    access: ServerArgs,
}

impl Check {
    /// Checks the server and prints the report; an interrupt ends it without one.
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let (target, options) = self.target_and_options()?;
        let steps = StepPrinter::new();
        let checked = block_on(async {
            tokio::select! {
                // An interrupt wins over a check that ends at the same time: the user wants no report any
                // more.
                biased;
                () = signal::interrupted() => Ok(None),
                checked = self.check(&target, &options, &steps) => Ok(Some(checked)),
                () = steps.speak_up() => Ok(None),
            }
        })?;
        match checked {
            Some(Ok(report)) => self.report(&report),
            Some(Err(error)) => {
                self.write_junit(&error.to_junit())?;
                self.annotate(&error.to_github())?;
                Err(error.into())
            }
            None => Ok(Exit::Ok),
        }
    }

    async fn check(
        &self,
        target: &Target,
        options: &Options,
        steps: &StepPrinter,
    ) -> Result<Report, CheckError> {
        match output::is_quiet() {
            true => check::run(target, options).await,
            false => check::run_with_steps(target, options, &|step| steps.take(step)).await,
        }
    }

    fn target_and_options(&self) -> Result<(Target, Options), CliError> {
        let mut options = Options {
            touch: self.touch.clone(),
            touch_tools: self.touch_tool.clone(),
            uri: self.uri.clone(),
            quiet_time: self.quiet_time,
            wait: self.wait,
            idle: self.idle,
            start_timeout: self.start_timeout,
            answer_timeout: self.answer_timeout,
            timeout: self.timeout,
            era: self.era.into(),
            ..Options::default()
        };
        let target = match &self.config {
            Some(path) => self.configured(path, &mut options)?,
            None => self.named(&mut options)?,
        };
        if let Some(uri) = &self.uri {
            ResourceUri::new(uri).map_err(|error| usage("check", &error.to_string()))?;
        }
        Ok((target, options))
    }

    /// Returns the server that the command line names.
    fn named(&self, options: &mut Options) -> Result<Target, CliError> {
        if self.server.is_some() {
            return Err(usage(
                "check",
                "--server names a server in a file: add --config FILE",
            ));
        }
        if self.command.is_empty() {
            let (target, credentials) = self.access.target("check", self.target.as_deref())?;
            options.credentials = credentials;
            return Ok(target);
        }
        self.access.refuse_for_program("check")?;
        program(self.command.clone())
    }

    /// Returns the server in the file of a host.
    fn configured(&self, path: &Path, options: &mut Options) -> Result<Target, CliError> {
        let server = host_file::read(path, self.server.as_deref()).map_err(CliError::Settings)?;
        match server {
            HostServer::Program {
                command,
                variables,
                folder,
            } => {
                self.access.refuse_for_program("check")?;
                options.variables = variables;
                options.folder = folder;
                program(command)
            }
            HostServer::Address { url, headers } => {
                let access = self.access.clone().with_headers(headers);
                let (target, credentials) = access.target("check", Some(&url))?;
                options.credentials = credentials;
                Ok(target)
            }
        }
    }

    /// Prints the report, and writes it in the forms that were asked for.
    fn report(&self, report: &Report) -> Result<Exit, CliError> {
        self.write_junit(&report.to_junit())?;
        let text = match self.json {
            true => report.to_json() + "\n",
            false => report.to_string(),
        };
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        drop(out);
        self.annotate(&report.to_github())?;
        Ok(exit_for(report.worst()))
    }

    fn write_junit(&self, xml: &str) -> Result<(), CliError> {
        let Some(path) = &self.junit else {
            return Ok(());
        };
        std::fs::write(path, xml).map_err(|error| {
            let path = path.display();
            CliError::failed(format!(
                "cannot write {path}: {error}; name another file by --junit"
            ))
        })
    }

    /// Prints the commands on standard error, where the runner reads them too: standard output may be JSON.
    fn annotate(&self, commands: &str) -> Result<(), CliError> {
        let is_asked = self.github || std::env::var(GITHUB_VARIABLE).as_deref() == Ok("true");
        if is_asked {
            std::io::stderr().write_all(printable::lines(commands).as_bytes())?;
        }
        Ok(())
    }
}

fn program(command: Vec<OsString>) -> Result<Target, CliError> {
    Target::command(command).map_err(|error| usage("check", &error.to_string()))
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
        let (_, options) = parse(r#"http://h/mcp --touch-tool a={"x":1} --touch-tool b"#).unwrap();
        let names: Vec<&str> = options.touch_tools.iter().map(ToolCall::name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn misuse_is_refused() {
        for line in [
            "ftp://h/mcp",
            "http://h/mcp -- server",
            "http://h/mcp --wait 0",
            "http://h/mcp --timeout -1",
            "http://h/mcp --timeout inf",
            "http://h/mcp --uri nonsense",
            "http://h/mcp --touch-tool edit=[]",
            "http://h/mcp --config mcp.json",
            "http://h/mcp --server a",
            "--config mcp.json -- server",
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
