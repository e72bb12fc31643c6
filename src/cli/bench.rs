//! `tidings bench`: loads an MCP server with sessions and updates, and reports how fast its clients are told.
//!
//! The table goes to standard output, the progress bar to standard error.

mod bar;
mod probe;
mod reports;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::credentials::denied;
use super::duration::duration as time;
use super::server::ServerArgs;
use super::{CliError, Exit, block_on, signal, usage};
use crate::bench::{
    self, BenchError, Credentials, Era, Goal, Observer, Pace, Progress, Publish, Report, Settings, Trial,
    Uris,
};
use crate::client::Target;
use crate::printable;
use crate::wire::protocol::Revision;
use bar::Bar;

/// The arguments of `tidings bench`.
#[derive(Debug, Args)]
pub(super) struct Bench {
    /// Address of the server's MCP endpoint [default: http://127.0.0.1:8808/mcp]
    url: Option<String>,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    publishing: Publishing,
    #[command(flatten)]
    result: Outcome,
    #[command(flatten)]
    server: ServerArgs,
}

/// A placeholder as the help shows it. clap replaces the plain text by a line break, so a style stands in it,
/// which is left out where there are no colours.
macro_rules! n {
    () => {
        "{\x1b[1mn\x1b[22m}"
    };
}

const URI_TEMPLATE_HELP: &str = concat!(
    "Their URIs, ",
    n!(),
    " being a number from 0 on; \"listed\" takes the ones that the server lists"
);
const PUBLISH_ARGS_HELP: &str = concat!("Its arguments as JSON; {uri} and ", n!(), " are replaced");

/// The clients and their subscriptions.
#[derive(Debug, Args)]
#[command(next_help_heading = "Load")]
struct Load {
    /// Sessions that read as fast as they can
    #[arg(long, value_name = "N", default_value_t = 100)]
    sessions: usize,
    /// Kind of these sessions: with GET streams, subscriptions/listen of 2026-07-28, or half of each
    /// [default: mix; with --http2: modern]
    #[arg(long, value_enum)]
    era: Option<BenchEra>,
    /// Let the sessions be streams that share connections of HTTP/2
    #[arg(long)]
    http2: bool,
    /// Number of these connections [default: one for each 1000 sessions]
    #[arg(long, value_name = "C", requires = "http2")]
    connections: Option<usize>,
    /// Revision of the sessions with GET streams
    #[arg(long, default_value = "2025-11-25", value_parser = revision)]
    revision: Revision,
    /// Sessions opened per second
    #[arg(long, value_name = "R", default_value_t = 2000.0)]
    connect_rate: f64,
    /// Time within which all of them must be open
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    open_timeout: Duration,
    /// Number of resources that change
    #[arg(long, value_name = "K", default_value_t = 10)]
    resources: usize,
    /// Number of resources that each session subscribes to
    #[arg(long, value_name = "M", default_value_t = 1)]
    subscribe: usize,
    #[arg(long, help = URI_TEMPLATE_HELP, value_name = "URI", default_value = "demo://bench/{n}")]
    uri_template: String,
    /// Further sessions that read nothing until the end
    #[arg(long, value_name = "N", default_value_t = 0)]
    stalled: usize,
    /// Further sessions that read slowly
    #[arg(long, value_name = "N", default_value_t = 0)]
    slow: usize,
    /// Bytes per second that those read, such as 1KiB/s
    #[arg(long, value_name = "RATE", default_value = "1KiB/s", value_parser = byte_rate)]
    slow_rate: u64,
    /// Further sessions opened per second, each for one second
    #[arg(long, value_name = "R", default_value_t = 0.0)]
    churn: f64,
    /// Further clients that call the tool get_resource_etag instead of listening
    #[arg(long, value_name = "N", default_value_t = 0)]
    pollers: usize,
    /// Interval of their calls
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    poll_interval: Duration,
    /// Process of the server, whose CPU and memory are measured
    #[arg(long)]
    pid: Option<u32>,
    /// Command that starts the server on port {port}; it is measured and ended
    #[arg(long, value_name = "CMD")]
    serve_command: Option<String>,
    /// Load a server on another machine
    #[arg(long)]
    allow_remote: bool,
}

/// The source of the changes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Updates")]
struct Publishing {
    /// Updates per second, of the resources in turn
    #[arg(long, value_name = "R", default_value_t = 10.0)]
    rate: f64,
    /// Update as fast as the server answers
    #[arg(long, conflicts_with = "rate")]
    flat_out: bool,
    /// Measured time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    duration: Duration,
    /// Time of updates before the measured time
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    warm_up: Duration,
    /// Silence at the end after which a notice counts as missing
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    settle: Duration,
    /// Tool of the server that changes a resource; by default the HTTP API of Tidings is used
    #[arg(long, value_name = "NAME", conflicts_with = "passive")]
    publish_tool: Option<String>,
    #[arg(long, help = PUBLISH_ARGS_HELP, value_name = "JSON", default_value = r#"{"uri":"{uri}"}"#)]
    publish_args: String,
    /// Connections on which updates go out
    #[arg(long, value_name = "N", default_value_t = 4)]
    publish_connections: usize,
    /// Update nothing: only listen, and count
    #[arg(long)]
    passive: bool,
}

/// The use of the figures.
#[derive(Debug, Args)]
#[command(next_help_heading = "Result")]
struct Outcome {
    /// Write the report as JSON; - is standard output, in place of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as a page with charts, which needs no other file; with --compare, of both
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Earlier report (JSON) to show beside this one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["find_max", "compare"])]
    baseline: Option<PathBuf>,
    /// Measure first the cost of the test itself against bare sockets
    #[arg(long)]
    calibrate: bool,
    /// Find the largest number of sessions that meets this, such as p99<250ms
    #[arg(long, value_name = "GOAL", conflicts_with_all = ["json", "html", "calibrate"])]
    find_max: Option<Goal>,
    /// Compare two reports, and run nothing
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"], conflicts_with_all = ["url", "find_max", "json", "calibrate"])]
    compare: Option<Vec<PathBuf>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchEra {
    Legacy,
    Modern,
    Mix,
}

impl From<BenchEra> for Era {
    fn from(name: BenchEra) -> Era {
        match name {
            BenchEra::Legacy => Era::Legacy,
            BenchEra::Modern => Era::Modern,
            BenchEra::Mix => Era::Mix,
        }
    }
}

fn revision(text: &str) -> Result<Revision, String> {
    match Revision::parse(text) {
        Some(revision) => Ok(revision),
        None => {
            let known = Revision::ALL.map(Revision::as_str).join(", ");
            Err(format!("no such revision: use one of {known}"))
        }
    }
}

fn byte_rate(text: &str) -> Result<u64, String> {
    match bytes(text.strip_suffix("/s").unwrap_or(text)) {
        Some(bytes) => Ok(bytes),
        None => Err("write bytes per second, such as 512B/s or 1KiB/s".to_owned()),
    }
}

fn bytes(text: &str) -> Option<u64> {
    let at = text.find(|letter: char| !letter.is_ascii_digit());
    let (number, unit) = text.split_at(at.unwrap_or(text.len()));
    let number: u64 = number.parse().ok()?;
    match unit {
        "" | "B" => Some(number),
        "KiB" => number.checked_mul(1 << 10),
        "MiB" => number.checked_mul(1 << 20),
        _ => None,
    }
}

impl Bench {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        if let Some(files) = &self.result.compare {
            return reports::compare(files, self.result.html.as_deref());
        }
        // Before the run, whose figures would be lost with the error.
        let baseline = self
            .result
            .baseline
            .as_deref()
            .map(reports::Named::read)
            .transpose()?;
        let mut settings = self.settings();
        self.choose_server(&mut settings)?;
        // Before the bar is drawn, so that an error stands alone.
        settings.validate().map_err(|error| failure("bench", error))?;
        if self.load.serve_command.is_none() {
            block_on(probe::probe(&settings))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        stop_when_interrupted(stop.clone());
        let bar = Bar::new();
        let mut progress = |progress: Progress<'_>| bar.show(&progress);
        let mut outside = Observer {
            progress: &mut progress,
            stop: &stop,
        };
        if let Some(goal) = self.result.find_max {
            return self.find_max(&settings, goal, &mut outside);
        }
        let ran = self.measure(&settings, &mut outside);
        bar.clear();
        self.show(&ran?, baseline.as_ref())
    }

    /// Sets the address and the credentials.
    fn choose_server(&self, settings: &mut Settings) -> Result<(), CliError> {
        if self.load.serve_command.is_some() {
            // The address of a server that is started here has a place for its port.
            settings.credentials = self.server.credentials("bench", &settings.url)?;
            return Ok(());
        }
        let (target, credentials) = self.server.target("bench", self.url.as_deref())?;
        if let Target::Http(url) = target {
            settings.url = url;
        }
        settings.credentials = credentials;
        Ok(())
    }

    fn settings(&self) -> Settings {
        let load = &self.load;
        let publishing = &self.publishing;
        let url_default = match load.serve_command {
            Some(_) => "http://127.0.0.1:{port}/mcp".to_owned(),
            None => Settings::default().url,
        };
        Settings {
            url: self.url.clone().unwrap_or(url_default),
            allow_remote: load.allow_remote,
            sessions: load.sessions,
            era: match (load.era, load.http2) {
                (Some(era), _) => era.into(),
                (None, true) => Era::Modern,
                (None, false) => Era::Mix,
            },
            http2: load.http2,
            http2_connections: load.connections,
            revision: load.revision,
            connect_rate: load.connect_rate,
            open_timeout: load.open_timeout,
            resources: load.resources,
            subscribe: load.subscribe,
            uris: match load.uri_template.as_str() {
                "listed" => Uris::Listed,
                pattern => Uris::Pattern(pattern.to_owned()),
            },
            pace: match publishing.flat_out {
                true => Pace::FlatOut,
                false => Pace::PerSecond(publishing.rate),
            },
            duration: publishing.duration,
            warm_up: publishing.warm_up,
            publish: match (&publishing.publish_tool, publishing.passive) {
                (Some(name), _) => Publish::Tool {
                    name: name.clone(),
                    arguments: publishing.publish_args.clone(),
                },
                (None, true) => Publish::Passive,
                (None, false) => Publish::Auto,
            },
            publish_connections: publishing.publish_connections,
            stalled: load.stalled,
            slow: load.slow,
            slow_rate: load.slow_rate,
            churn: load.churn,
            pollers: load.pollers,
            poll_interval: load.poll_interval,
            settle: publishing.settle,
            pid: load.pid,
            serve_command: load.serve_command.clone(),
            credentials: Credentials::default(),
        }
    }

    fn measure(&self, settings: &Settings, outside: &mut Observer<'_>) -> Result<Report, CliError> {
        let calibration = match self.result.calibrate {
            true => Some(bench::calibrate(outside).map_err(|error| failure("bench", error))?),
            false => None,
        };
        let mut report = bench::run(settings, outside).map_err(|error| failure("bench", error))?;
        report.calibration = calibration;
        Ok(report)
    }

    fn show(&self, report: &Report, baseline: Option<&reports::Named>) -> Result<Exit, CliError> {
        let name = self.name();
        let mut text = bench::table(report);
        if let Some(before) = baseline {
            text += &format!("\n{}", bench::compare(before.pair(), (&name, report)));
        }
        match &self.result.json {
            Some(path) if path.as_os_str() == "-" => text = report.to_json() + "\n",
            Some(path) => reports::write(path, &(report.to_json() + "\n"))?,
            None => {}
        }
        if let Some(path) = &self.result.html {
            let page = bench::html((&name, report), baseline.map(reports::Named::pair));
            reports::write(path, &page)?;
        }
        // Last, so that the files are written even if the reader of the output has gone.
        print(&text)?;
        match report.problems.first() {
            None => Ok(Exit::Ok),
            Some(problem) => Err(CliError::Failed(problem.clone())),
        }
    }

    /// The name of this run beside an earlier one.
    fn name(&self) -> String {
        match &self.result.json {
            Some(path) if path.as_os_str() != "-" => reports::file_name(path),
            _ => "this run".to_owned(),
        }
    }

    fn find_max(
        &self,
        settings: &Settings,
        goal: Goal,
        outside: &mut Observer<'_>,
    ) -> Result<Exit, CliError> {
        let best = bench::find_max(settings, goal, outside, &mut |trial: &Trial| {
            // A closed output does not end the search; printing the result fails then.
            print(&trial_line(trial)).ok();
        });
        let Some(best) = best.map_err(|error| failure("bench", error))? else {
            return Err(CliError::failed("no number of sessions meets the goal"));
        };
        print(&format!("{best} sessions meet the goal\n"))?;
        Ok(Exit::Ok)
    }
}

fn trial_line(trial: &Trial) -> String {
    let verdict = if trial.passed { "met" } else { "missed" };
    let latency = match trial.latency {
        Some(latency) => format!("{:.1} ms", latency.as_secs_f64() * 1e3),
        None => "no latency".to_owned(),
    };
    let problem = match &trial.problem {
        Some(problem) => format!("; {problem}"),
        None => String::new(),
    };
    format!("{} sessions: {latency}, {verdict}{problem}\n", trial.sessions)
}

fn failure(command: &str, error: BenchError) -> CliError {
    match error {
        BenchError::Arguments(reason) => usage(command, &reason),
        BenchError::Unreachable(reason) => CliError::Unavailable(reason),
        BenchError::Denied(reason) => denied(reason),
        BenchError::Failed(reason) => CliError::Failed(reason),
    }
}

fn print(text: &str) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(printable::lines(text).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Ends the run early but in order at the first interrupt, and the program at the second.
fn stop_when_interrupted(stop: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let waited = block_on(async {
            signal::interrupted().await;
            stop.store(true, Ordering::Relaxed);
            signal::interrupted().await;
            Ok(())
        });
        // Without a runtime there are no signals to wait for; the default action ends the program.
        if waited.is_ok() {
            std::process::exit(Exit::Failure as i32);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn parse(line: &str) -> Result<Bench, CliError> {
        let words = ["tidings", "bench"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words).map_err(CliError::Usage)?.command {
            Command::Bench(bench) => Ok(*bench),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_arguments_give_the_defaults() {
        assert_eq!(parse("").unwrap().settings(), Settings::default());
    }

    #[test]
    fn arguments_become_settings() {
        let settings = parse(
            "http://127.0.0.1:1/mcp --sessions 7 --era legacy --revision 2025-06-18 --flat-out --duration 500ms \
             --stalled 2 --slow 3 --slow-rate 2KiB/s --uri-template listed --publish-tool touch",
        );
        let settings = settings.unwrap().settings();
        assert_eq!((settings.sessions, settings.era), (7, Era::Legacy));
        assert_eq!(settings.revision, Revision::R2025_06_18);
        assert_eq!(
            (settings.pace, settings.duration),
            (Pace::FlatOut, Duration::from_millis(500))
        );
        assert_eq!(
            (settings.stalled, settings.slow, settings.slow_rate),
            (2, 3, 2048)
        );
        assert_eq!(settings.uris, Uris::Listed);
        let arguments = r#"{"uri":"{uri}"}"#.to_owned();
        assert_eq!(
            settings.publish,
            Publish::Tool {
                name: "touch".to_owned(),
                arguments
            }
        );
        let shared = parse("--http2 --connections 3").unwrap().settings();
        assert_eq!((shared.era, shared.connections()), (Era::Modern, 3));
        let started = parse("--serve-command x").unwrap().settings();
        assert_eq!(started.url, "http://127.0.0.1:{port}/mcp");
    }

    #[test]
    fn misuse_is_refused() {
        for line in [
            "--sessions x",
            "--revision 1999-01-01",
            "--duration 10d",
            "--rate 5 --flat-out",
            "--publish-tool a --passive",
            "--find-max p99",
            "--find-max p99<1s --json -",
            "--compare a.json",
            "http://127.0.0.1:1/ --compare a b",
            "--baseline a --compare a b",
            "--baseline a --find-max p99<1s",
            "--slow-rate fast",
            "--connections 3",
        ] {
            let error = parse(line).map(drop).expect_err(line);
            assert_eq!(error.exit(), Exit::Usage, "{line}");
        }
        for line in [
            "--sessions 70000",
            "--http2 --era mix",
            "--revision 2026-07-28",
            "http://192.0.2.1/mcp",
            "https://192.0.2.1/mcp",
            "ftp://127.0.0.1/",
        ] {
            let error = parse(line).unwrap().run().expect_err(line);
            assert_eq!(error.exit(), Exit::Usage, "{line}: {error}");
        }
    }
}
