//! The load test of notification fan-out, for Tidings and for any MCP server over streamable HTTP.
//!
//! [`run`] takes settings to a report, [`find_max`] searches the number of sessions that a latency allows,
//! and [`calibrate`] measures the cost of the test itself. Readers and publisher share one thread with one
//! epoll over bare sockets, with TLS where the address has it, so that the test takes little of the machine
//! that it shares with the server. `docs/bench.md` has the rules by which latencies and missing notices are
//! counted.

mod settings;
mod target;
mod secure;
mod presented;
mod notice;
mod control;
mod load;
mod engine;
mod meter;
mod child;
mod null_server;
mod search;
mod report;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub use crate::credentials::{Credentials, CredentialsError};
pub use load::schedule::Pace;
pub use report::compare::compare;
pub use report::html::html;
pub use report::table::table;
pub use report::{
    Calibration, GroupReport, Opened, OwnCost, Percentile, Report, SCHEMA, Second, ServerCost, Spread,
    UpdateReport,
};
pub use search::{Goal, TRIALS_MAX, duration};
pub use settings::{
    DURATION_MAX, Era, Publish, RESOURCES_MAX, SESSIONS_HTTP2_MAX, SESSIONS_MAX, Settings, Uris,
};

use crate::open_files::{self, OpenFilesLimit};
use crate::wire::dialect::Dialect;
use crate::wire::http1::{HttpTarget, resource_path};
use child::Server;
use control::Control;
use engine::Engine;
use load::poller::Poller;
use load::publisher::{Publisher, Way};
use load::session::Book;
use load::stats::Kind;
use load::streams::Streams;
use notice::version;
use presented::Presented;
use report::Run;
use search::Search;

/// Files that are not connections of the test.
const SPARE_FILES: usize = 64;

/// The name that the clients of the test give.
const CLIENT_NAME: &str = "tidings-bench";
/// No trial of a search begins after this time.
const SEARCH_MAX: Duration = Duration::from_secs(1800);

/// The reason for a missing report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The settings contradict each other or exceed a bound.
    #[error("{0}")]
    Arguments(String),
    /// No server answers at the address.
    #[error("{0}")]
    Unreachable(String),
    /// The server does not let this client in, or not with these credentials.
    #[error("{0}")]
    Denied(String),
    /// The server refused a request, or not all sessions could be opened.
    #[error("{0}")]
    Failed(String),
}

impl From<std::io::Error> for BenchError {
    fn from(error: std::io::Error) -> BenchError {
        BenchError::Failed(error.to_string())
    }
}

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'p> {
    /// The name of the phase.
    pub phase: &'p str,
    /// The part of `of` that is done; both are 0 where the amount is unknown.
    pub done: u64,
    /// The amount to do.
    pub of: u64,
    /// Notices that were read so far.
    pub deliveries: u64,
}

/// The connection of a run to its caller: progress and interruption.
pub struct Observer<'o> {
    /// Called several times per second.
    pub progress: &'o mut dyn FnMut(Progress<'_>),
    /// Once true, the run ends early; the report covers the time until then.
    pub stop: &'o AtomicBool,
}

/// Runs one load test. It blocks until the end, which the settings bound.
///
/// # Errors
///
/// [`BenchError`] for wrong settings, an absent server, and sessions that could not be opened. Faults during
/// the measurement are in the report's `problems` instead.
pub fn run(settings: &Settings, outside: &mut Observer<'_>) -> Result<Report, BenchError> {
    measure(settings, outside).map(|run| run.report)
}

/// Makes room for this number of connections, or says which limit forbids it.
fn check_open_files(connections: usize) -> Result<(), BenchError> {
    let needed = (connections + SPARE_FILES) as u64;
    let Err(OpenFilesLimit { soft, hard }) = open_files::make_room(needed) else {
        return Ok(());
    };
    Err(BenchError::Arguments(format!(
        "the sessions need {needed} open files, and this process may have {soft} (soft limit) of {hard} (hard limit): \
         raise them with ulimit -n, or lower --sessions"
    )))
}

fn measure(settings: &Settings, outside: &mut Observer<'_>) -> Result<Run, BenchError> {
    settings.validate()?;
    check_open_files(settings.connections() + settings.publish_connections)?;
    // After the limit of open files was checked: a server that is started for nothing would only slow down
    // the error.
    let server = settings.serve_command.as_deref().map(Server::start).transpose()?;
    let url = match &server {
        Some(server) => settings.url.replace("{port}", &server.port.to_string()),
        None => settings.url.clone(),
    };
    let presented = Presented::start(&settings.credentials)?;
    let mut target = target::resolve(&url, settings.allow_remote)?;
    target.tls = secure::tls(&url, &settings.credentials)?;
    target.headers = presented.lines();
    let mut control = Control::new(&target);
    let mut prepared = Prepared::new(settings, &mut control)?;
    if settings.http2 {
        prepared.streams.tls = target.tls.as_ref().map(|tls| tls.agreeing_on(b"h2"));
    }
    if let Some(server) = &server {
        // The process that the test starts itself is the one that counts, whatever `--pid` would say.
        prepared.pid = Some(server.pid());
    }
    let mut farewells = Vec::new();
    let measured = prepared.measure(settings, &mut control, outside, &mut farewells);
    if let Some(Way::Api(_)) = prepared.way(settings) {
        for uri in &prepared.uris {
            farewells.push(target.request_to("DELETE", &resource_path(uri)).finish());
        }
    }
    // A server that ends with the run needs no cleaning up.
    if server.is_none() {
        control.clean_up(&farewells);
    }
    let mut run = measured?;
    run.report.settings["url"] = url.into();
    Ok(run)
}

/// The knowledge that is gathered before the first session opens.
struct Prepared {
    uris: Vec<String>,
    /// The version of each resource, where updates go through the HTTP API.
    versions: Option<Vec<u64>>,
    dialect: Dialect,
    /// The target of sessions that share connections of HTTP/2; all else stays with HTTP/1.1.
    streams: HttpTarget,
    /// The process of the server, where it is known.
    pid: Option<u32>,
}

impl Prepared {
    fn new(settings: &Settings, control: &mut Control<'_>) -> Result<Prepared, BenchError> {
        let has_api = settings.publish == Publish::Auto && control.has_api()?;
        if settings.publish == Publish::Auto && !has_api {
            return Err(BenchError::Arguments(
                "the server has no HTTP API of Tidings to publish through: name a tool that changes a resource with \
                 --publish-tool, or only listen with --passive"
                    .to_owned(),
            ));
        }
        // The publisher uses the dialect of a session; it opens a session only where it calls tools or lists.
        let speaks = matches!(settings.publish, Publish::Tool { .. }) || settings.uris == Uris::Listed;
        let dialect = match speaks {
            true => control.introduce(settings.revision_of(1))?,
            false => Dialect::new(settings.revision_of(1), CLIENT_NAME),
        };
        let uris = match &settings.uris {
            Uris::Pattern(pattern) => (0..settings.resources)
                .map(|number| pattern.replace("{n}", &number.to_string()))
                .collect(),
            Uris::Listed => control.listed(&dialect, settings.resources)?,
        };
        if uris.len() < settings.subscribe.max(1) {
            let found = uris.len();
            let wanted = settings.subscribe;
            return Err(BenchError::Arguments(format!(
                "the server lists {found} resources and each session is to subscribe to {wanted}: lower --subscribe"
            )));
        }
        let mut prepared = Prepared {
            uris,
            versions: None,
            dialect,
            streams: control.target().clone(),
            pid: settings.pid,
        };
        if has_api {
            let mut versions = Vec::with_capacity(prepared.uris.len());
            for uri in &prepared.uris {
                let etag = control.create(uri, "before the first update")?;
                let Some(version) = version(&etag) else {
                    let reason = format!("the etag {etag:?} of {uri} names no version");
                    return Err(BenchError::Failed(reason));
                };
                versions.push(version);
            }
            prepared.versions = Some(versions);
        }
        Ok(prepared)
    }

    fn way(&self, settings: &Settings) -> Option<Way> {
        match &settings.publish {
            Publish::Auto => Some(Way::api(&self.uris)),
            Publish::Passive => None,
            Publish::Tool { name, arguments } => Some(Way::Tool {
                dialect: self.dialect.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
            }),
        }
    }

    /// Opens, publishes and settles. The requests that clean up at the server go into `farewells` in any
    /// case.
    fn measure(
        &self,
        settings: &Settings,
        control: &mut Control<'_>,
        outside: &mut Observer<'_>,
        farewells: &mut Vec<Vec<u8>>,
    ) -> Result<Run, BenchError> {
        let mut book = Book::new(control.target().clone(), self.uris.clone());
        for (resource, version) in self.versions.iter().flatten().enumerate() {
            book.updates.begin_at(resource, *version);
        }
        let tokens = Engine::pipeline_tokens(settings.publish_connections);
        let publisher = self
            .way(settings)
            .map(|way| Publisher::new(way, settings.pace, tokens));
        let streams = settings.shared_connections();
        let streams = streams.map(|count| Streams::new(settings, count, self.streams.clone()));
        let mut engine = Engine::new(settings, outside, book, (publisher, streams), self.pid)?;
        for number in 0..settings.pollers {
            let dialect = control.introduce(settings.revision_of(number))?;
            let token = Engine::poller_token(number);
            engine
                .pollers
                .push(Poller::new(dialect, number % self.uris.len(), token));
        }
        // Noted before anything can fail, so that the session is ended in any case.
        farewells.extend(self.dialect.delete(control.target()));
        let ended = engine
            .open()
            .and_then(|()| engine.run())
            .and_then(|()| engine.settle(self.versions.is_some()));
        farewells.extend(engine.farewells());
        ended?;
        Ok(Run::new(settings, &engine, self.versions.is_some()))
    }
}

/// The outcome of one run of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The number of reading sessions.
    pub sessions: usize,
    /// True if the goal was met without a problem.
    pub passed: bool,
    /// The latency at the percentile of the goal; none without a report.
    pub latency: Option<Duration>,
    /// The first problem.
    pub problem: Option<String>,
}

/// Finds the largest number of sessions that meets `goal`.
///
/// Doubles from `settings.sessions` until a trial fails, then halves the gap until it is 5 %. It takes at
/// most [`TRIALS_MAX`] runs and half an hour; a server that the test starts is a fresh one for each. Every
/// trial is handed to `tried`.
///
/// # Errors
///
/// Those of [`run`], except that failures of a trial only end the doubling.
pub fn find_max(
    settings: &Settings,
    goal: Goal,
    outside: &mut Observer<'_>,
    tried: &mut dyn FnMut(&Trial),
) -> Result<Option<usize>, BenchError> {
    let others = settings.clients() - settings.sessions;
    let mut search = Search::new(settings.sessions, settings.sessions_max().saturating_sub(others));
    let begin = Instant::now();
    while let Some(sessions) = search.next() {
        if begin.elapsed() > SEARCH_MAX || outside.stop.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        let settings = Settings {
            sessions,
            ..settings.clone()
        };
        let trial = match measure(&settings, outside) {
            Ok(run) => {
                let latency = Duration::from_micros(run.latency_at(goal.percentile));
                let problem = run.report.problems.first().cloned();
                Trial {
                    sessions,
                    passed: problem.is_none() && latency < goal.below,
                    latency: Some(latency),
                    problem,
                }
            }
            // Too many files, or a server that takes no more sessions: the limit is below this number.
            Err(BenchError::Failed(reason)) => failed(sessions, reason),
            Err(BenchError::Arguments(reason)) if search.best().is_some() => failed(sessions, reason),
            Err(error) => return Err(error),
        };
        search.record(trial.passed);
        tried(&trial);
    }
    Ok(search.best())
}

fn failed(sessions: usize, reason: String) -> Trial {
    Trial {
        sessions,
        passed: false,
        latency: None,
        problem: Some(reason),
    }
}

/// Measures the cost of the test itself.
///
/// It runs for about a second against a server in this process that only writes ready-made notices to bare
/// sockets; the CPU of that server is not counted.
///
/// # Errors
///
/// Those of [`run`].
pub fn calibrate(outside: &mut Observer<'_>) -> Result<Calibration, BenchError> {
    let address = null_server::start()?;
    let settings = Settings {
        url: format!("http://{address}/mcp"),
        era: Era::Modern,
        resources: 1,
        pace: Pace::PerSecond(100.0),
        duration: Duration::from_secs(1),
        warm_up: Duration::from_millis(200),
        publish_connections: 1,
        ..Settings::default()
    };
    let run = measure(&settings, outside)?;
    let latency = match run.report.group(Kind::Reading.name()) {
        Some(group) => group.latency,
        None => Spread::default(),
    };
    Ok(Calibration {
        cpu_us_per_delivery: run.report.own.cpu_us_per_delivery,
        p50_us: latency.p50_us,
        p99_us: latency.p99_us,
    })
}
