//! The load test of notification fan-out, of Tidings and of any MCP server over streamable HTTP.
//!
//! Owns one run from its settings to its report: [`run`]; the search for the number of sessions that a latency allows:
//! [`find_max`]; and the measurement of what the test itself costs: [`calibrate`]. It prints nothing and reads no
//! command line. Readers and publisher are one thread with one epoll over plain sockets, so that the test takes little
//! of the machine it shares with the server. The rules by which latencies and missing ends are counted are in
//! `docs/bench.md`, and in code in `bench/updates.rs`.

mod settings;
mod target;
mod notice;
mod control;
mod load;
mod engine;
mod meter;
mod rlimit;
mod child;
mod null_server;
mod search;
mod report;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

pub use load::schedule::Pace;
pub use report::compare::compare;
pub use report::html::html;
pub use report::table::table;
pub use report::{
    Calibration, GroupReport, Opened, OwnCost, Percentile, Report, SCHEMA, Second, ServerCost, Spread,
    UpdateReport,
};
pub use search::{Goal, TRIALS_MAX, duration};
pub use settings::{DURATION_MAX, Era, Publish, RESOURCES_MAX, SESSIONS_MAX, Settings, Uris};

use crate::wire::dialect::Dialect;
use crate::wire::http1::{HttpTarget, resource_path};
use child::Server;
use control::Control;
use engine::Engine;
use load::poller::Poller;
use load::publisher::{Publisher, Way};
use load::session::Book;
use load::stats::Kind;
use notice::version;
use report::Run;
use search::Search;

/// The name that the clients of the test give.
const CLIENT_NAME: &str = "tidings-bench";
/// However a search goes, no trial begins after this long.
const SEARCH_MAX: Duration = Duration::from_secs(1800);

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// What was asked for makes no sense.
    #[error("{0}")]
    Arguments(String),
    /// Nobody is there.
    #[error("{0}")]
    Unreachable(String),
    /// The server did not do what it was asked to, or not all sessions could be opened.
    #[error("{0}")]
    Failed(String),
}

impl From<std::io::Error> for BenchError {
    fn from(error: std::io::Error) -> BenchError {
        BenchError::Failed(error.to_string())
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress<'p> {
    /// What is being done.
    pub phase: &'p str,
    /// How much of it is done, of `of`; both are 0 where nobody knows.
    pub done: u64,
    /// How much there is to do.
    pub of: u64,
    /// Notices so far.
    pub deliveries: u64,
}

/// Who watches a run and who may stop it.
pub struct Observer<'o> {
    /// Called several times per second.
    pub progress: &'o mut dyn FnMut(Progress<'_>),
    /// Once true, the run ends early and is reported as far as it came.
    pub stop: &'o AtomicBool,
}

/// Runs one load test. It blocks until the end, which the settings bound.
///
/// # Errors
///
/// There is no report when the settings make no sense, nobody is there, or not all sessions could be opened. What went
/// wrong during the measurement is in the report's `problems`.
pub fn run(settings: &Settings, outside: &mut Observer<'_>) -> Result<Report, BenchError> {
    measure(settings, outside).map(|run| run.report)
}

fn measure(settings: &Settings, outside: &mut Observer<'_>) -> Result<Run, BenchError> {
    settings.validate()?;
    rlimit::make_room(settings.connections() + settings.publish_connections)?;
    let server = settings.serve_command.as_deref().map(Server::start).transpose()?;
    let url = match &server {
        Some(server) => settings.url.replace("{port}", &server.port.to_string()),
        None => settings.url.clone(),
    };
    let target = target::resolve(&url, settings.allow_remote)?;
    let mut control = Control::new(&target);
    let prepared = Prepared::new(settings, &mut control)?;
    let pid = server.as_ref().map(Server::pid).or(settings.pid);
    let mut farewells = Vec::new();
    let measured = prepared.measure(settings, &mut control, (&target, pid), outside, &mut farewells);
    if let Some(Way::Api(_)) = prepared.way(settings) {
        let removal = |uri: &String| target.request_to("DELETE", &resource_path(uri)).finish();
        farewells.extend(prepared.uris.iter().map(removal));
    }
    // A server that ends with the run needs no cleaning up.
    if server.is_none() {
        control.clean_up(&farewells);
    }
    let mut run = measured?;
    run.report.settings["url"] = url.into();
    Ok(run)
}

/// What is known before the first session opens.
struct Prepared {
    uris: Vec<String>,
    /// The version of each resource, where updates go through the HTTP API.
    versions: Option<Vec<u64>>,
    dialect: Dialect,
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
        // The publisher speaks what the first session speaks; it says hello only where it has something to say.
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
            let (found, wanted) = (uris.len(), settings.subscribe);
            return Err(BenchError::Arguments(format!(
                "the server lists {found} resources and each session is to subscribe to {wanted}: lower --subscribe"
            )));
        }
        let mut prepared = Prepared {
            uris,
            versions: None,
            dialect,
        };
        if has_api {
            let create = |uri: &String| {
                let etag = control.create(uri, "before the first update")?;
                version(&etag)
                    .ok_or_else(|| BenchError::Failed(format!("the etag {etag:?} of {uri} names no version")))
            };
            prepared.versions = Some(prepared.uris.iter().map(create).collect::<Result<_, _>>()?);
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

    /// Opens, publishes, settles. What has to be said to the server afterwards goes into `farewells`, however it ends.
    fn measure(
        &self,
        settings: &Settings,
        control: &mut Control<'_>,
        (target, pid): (&HttpTarget, Option<u32>),
        outside: &mut Observer<'_>,
        farewells: &mut Vec<Vec<u8>>,
    ) -> Result<Run, BenchError> {
        let mut book = Book::new(target.clone(), self.uris.clone());
        for (resource, version) in self.versions.iter().flatten().enumerate() {
            book.updates.begin_at(resource, *version);
        }
        let tokens = Engine::pipeline_tokens(settings.publish_connections);
        let publisher = self
            .way(settings)
            .map(|way| Publisher::new(way, settings.pace, tokens));
        let mut engine = Engine::new(settings, outside, book, publisher, pid)?;
        for number in 0..settings.pollers {
            let dialect = control.introduce(settings.revision_of(number))?;
            let token = Engine::poller_token(number);
            engine
                .pollers
                .push(Poller::new(dialect, number % self.uris.len(), token));
        }
        farewells.extend(self.dialect.delete(target));
        let ended = engine
            .open()
            .and_then(|()| engine.run())
            .and_then(|()| engine.settle(self.versions.is_some()));
        farewells.extend(engine.farewells());
        ended?;
        Ok(Run::new(settings, &engine, self.versions.is_some()))
    }
}

/// What one run of a search came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// How many sessions read.
    pub sessions: usize,
    /// Whether the goal was met and nothing went wrong.
    pub passed: bool,
    /// The latency that the goal is about; none when there is no report.
    pub latency: Option<Duration>,
    /// What went wrong.
    pub problem: Option<String>,
}

/// Finds the largest number of sessions that meets `goal`: doubles from `settings.sessions` until it fails, then
/// halves the gap until it is 5 %. At most [`TRIALS_MAX`] runs and half an hour; a server that the test starts is a
/// fresh one for each. Every trial is handed to `tried`.
///
/// # Errors
///
/// As for [`run`], when the settings make no sense or nobody is there.
pub fn find_max(
    settings: &Settings,
    goal: Goal,
    outside: &mut Observer<'_>,
    tried: &mut dyn FnMut(&Trial),
) -> Result<Option<usize>, BenchError> {
    let others = settings.connections() - settings.sessions;
    let mut search = Search::new(settings.sessions, SESSIONS_MAX.saturating_sub(others));
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
            // Too many files, or a server that takes no more: beyond what is possible, so the search goes down.
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

/// Measures what the test itself costs: a run of about a second against a stand-in in this process that only writes
/// ready-made notices to bare sockets, and whose own CPU is not counted.
///
/// # Errors
///
/// As for [`run`].
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
    let latency = run.report.group(Kind::Reading.name()).map(|group| group.latency);
    Ok(Calibration {
        cpu_us_per_delivery: run.report.own.cpu_us_per_delivery,
        p50_us: latency.map_or(0, |latency| latency.p50_us),
        p99_us: latency.map_or(0, |latency| latency.p99_us),
    })
}
