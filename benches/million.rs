//! Row `million`: a million listen streams on a thousand connections of HTTP/2, from their opening to the
//! drain.
//!
//! All streams watch one resource, and a hundred of them another one, too. The last tenth of each
//! connection's streams is opened after the first measurements, with closed windows. The twin is the crate
//! `h2` with nothing around it, which takes the first steps alone, before the service is started.

use std::time::{Duration, Instant};

use anyhow::ensure;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Options;
use crate::h2::SETTINGS;
use crate::sockets::{Kind, Server, StreamPlan, Streams, WATCHED, delivery_bytes};
use crate::support::{Column, Table, quantile, resident_kib};

/// Comments on a million silent streams would take a tenth of the time that is measured, and their ends take
/// longer than the default allows.
const MORE_SETTINGS: [(&str, &str); 2] = [
    ("TIDINGS_HTTP__KEEP_ALIVE", "5m"),
    ("TIDINGS_SHUTDOWN__DRAIN_TIMEOUT", "60s"),
];

/// Connections and all streams, unless `--connections` and `--sessions` have others.
const CONNECTIONS: usize = 1_000;
const STREAMS: usize = 1_000_000;
/// The part of the streams whose windows are closed: one of so many.
const SHUT_PART: usize = 10;
/// The resource of few streams, and how many they are.
const FEW: &str = "few";
const FEW_STREAMS: usize = 100;
/// The resource that fills the windows of the streams that do not open them, and its changes.
const FILL: &str = "fill";
const FILL_CHANGES: usize = 40;
const FILL_PAUSE: Duration = Duration::from_millis(200);
/// The changes for all of which each figure is taken, after one that warms caches.
const CHANGES: usize = 5;
/// The changes for few while nothing else happens.
const FEW_CHANGES: usize = 50;
/// The wait for what a change leaves to do before the next figure.
const PAUSE: Duration = Duration::from_millis(500);

const COLUMNS: &[Column] = &[
    ("opened_per_s", "opened per s", 0),
    ("resident_mib", "resident MiB", 0),
    ("stream_kib", "KiB per stream", 2),
    ("all_ms", "ms to the last of all", 0),
    ("all_p99_ms", "p99 of all", 0),
    ("few_p99_ms", "p99 of 100", 1),
    ("meanwhile_p99_ms", "p99 of 100 meanwhile", 1),
    ("beside_shut_x", "p99 of all beside closed windows ÷ before", 2),
    ("finals_missing", "finals missing", 0),
    ("drain_s", "drain s", 1),
    ("undrained", "not ended", 0),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let connections = options.connections.unwrap_or(CONNECTIONS);
    let each = options.sessions.unwrap_or(STREAMS).div_ceil(connections);
    let shut = each / SHUT_PART;
    let reading = each - shut;
    ensure!(
        connections * reading >= FEW_STREAMS,
        "row million needs more streams, such as --connections 10 --sessions 1000"
    );
    let every = connections * reading / FEW_STREAMS;
    let plan = StreamPlan {
        connections,
        each,
        shut,
        names: &|place| {
            let mut names = vec![WATCHED.to_owned()];
            let stream = place % each;
            // The number among those that read, over which the few are spread.
            let nth = place / each * reading + stream;
            if stream >= reading {
                names.push(FILL.to_owned());
            } else if nth.is_multiple_of(every) && nth / every < FEW_STREAMS {
                names.push(FEW.to_owned());
            }
            names
        },
    };
    let mut table = Table::new("million", COLUMNS);
    for kind in [Kind::BareStreams, Kind::TidingsStreams] {
        let label = format!("{connections} x {each}, {}", kind.label());
        let crowd = Crowd::open(kind, plan)?;
        table.add_line(label, crowd.measure()?);
    }
    Ok(table)
}

/// A server and its streams.
struct Crowd<'p> {
    kind: Kind,
    plan: StreamPlan<'p>,
    server: Server,
    streams: Streams,
    empty_kib: f64,
    opened_per_s: f64,
    /// The changes of each resource.
    changes: usize,
    changes_of_few: usize,
}

impl<'p> Crowd<'p> {
    fn open(kind: Kind, plan: StreamPlan<'p>) -> anyhow::Result<Crowd<'p>> {
        let settings = [&SETTINGS[..], &MORE_SETTINGS].concat();
        let server = Server::start(kind, delivery_bytes()?, &settings)?;
        server.create(&[WATCHED, FEW, FILL].map(str::to_owned))?;
        let empty_kib = resident_kib(server.pid())?;
        let publishers = [server.publisher()?, server.publisher()?];
        let started = Instant::now();
        let streams = Streams::open(&server.target()?, &plan, publishers)?;
        let opened = plan.connections * (plan.each - plan.shut);
        let seconds = started.elapsed().as_secs_f64();
        Ok(Crowd {
            kind,
            plan,
            server,
            streams,
            empty_kib,
            opened_per_s: opened as f64 / seconds,
            changes: 0,
            changes_of_few: 0,
        })
    }

    /// Goes through all steps. The twin has the first of them.
    fn measure(mut self) -> anyhow::Result<Vec<Option<f64>>> {
        self.change()?;
        let (all_ms, all_p99_ms) = self.change_all()?;
        let mut figures = vec![Some(self.opened_per_s)];
        if self.kind == Kind::BareStreams {
            let (resident_mib, stream_kib) = self.memory(self.plan.each - self.plan.shut)?;
            figures.extend([resident_mib, stream_kib, all_ms, all_p99_ms].map(Some));
            figures.resize(COLUMNS.len(), None);
            return Ok(figures);
        }
        let few_p99_ms = self.change_few()?;
        let meanwhile_p99_ms = self.change_few_meanwhile()?;
        self.streams.open_shut(&self.server.target()?, &self.plan)?;
        self.fill_windows()?;
        let (resident_mib, stream_kib) = self.memory(self.plan.each)?;
        let (_, beside_shut_p99_ms) = self.change_all()?;
        // The first state of a resource has version 1.
        let last = format!("\"v{}-", self.changes + 1);
        let missing = self.streams.unshut(&last)?;
        let (drain_s, undrained) = self.drain()?;
        figures.extend([resident_mib, stream_kib, all_ms, all_p99_ms, few_p99_ms].map(Some));
        figures.push(Some(meanwhile_p99_ms));
        figures.push(Some(beside_shut_p99_ms / all_p99_ms));
        figures.extend([missing as f64, drain_s, undrained as f64].map(Some));
        Ok(figures)
    }

    /// Returns the memory of the server in MiB, and the part of a stream in KiB.
    fn memory(&self, each: usize) -> anyhow::Result<(f64, f64)> {
        let kib = resident_kib(self.server.pid())?;
        let streams = self.plan.connections * each;
        Ok((kib / 1024.0, (kib - self.empty_kib) / streams as f64))
    }

    fn change(&mut self) -> anyhow::Result<Vec<f64>> {
        let request = next_change(&self.server, WATCHED, &mut self.changes)?;
        self.streams.change(&request)
    }

    /// Returns the time until the last stream had a change for all, and the p99 of all.
    fn change_all(&mut self) -> anyhow::Result<(f64, f64)> {
        let mut last = Vec::new();
        let mut all = Vec::new();
        for _ in 0..CHANGES {
            let latencies = self.change()?;
            last.push(latencies.iter().copied().fold(0.0, f64::max));
            all.extend(latencies);
            std::thread::sleep(PAUSE);
        }
        Ok((quantile(&mut last, 0.5), quantile(&mut all, 0.99)))
    }

    /// Sends notices to the streams that do not open their windows, until those are full.
    fn fill_windows(&mut self) -> anyhow::Result<()> {
        for number in 0..FILL_CHANGES {
            let request = self.server.publication(FILL, &format!("state {number}"))?;
            self.streams.change_of(FILL, 0, &request)?;
            std::thread::sleep(FILL_PAUSE);
        }
        Ok(())
    }

    fn change_few(&mut self) -> anyhow::Result<f64> {
        let mut all = Vec::new();
        for _ in 0..FEW_CHANGES {
            let request = next_change(&self.server, FEW, &mut self.changes_of_few)?;
            all.extend(self.streams.change_of(FEW, FEW_STREAMS, &request)?);
        }
        Ok(quantile(&mut all, 0.99))
    }

    /// Returns the p99 of changes for few, made while one for all is told.
    fn change_few_meanwhile(&mut self) -> anyhow::Result<f64> {
        let mut few = Vec::new();
        for _ in 0..CHANGES {
            let request = next_change(&self.server, WATCHED, &mut self.changes)?;
            let server = &self.server;
            let changes = &mut self.changes_of_few;
            few.extend(
                self.streams
                    .change_meanwhile(&request, (FEW, FEW_STREAMS), || next_change(server, FEW, changes))?,
            );
            std::thread::sleep(PAUSE);
        }
        Ok(quantile(&mut few, 0.99))
    }

    /// Ends the service with SIGTERM. Returns the seconds until its streams had ended, and how many did not
    /// end as they should.
    fn drain(&mut self) -> anyhow::Result<(f64, usize)> {
        kill(Pid::from_raw(i32::try_from(self.server.pid())?), Signal::SIGTERM)?;
        let started = Instant::now();
        let open = self.streams.read_to_end()?;
        Ok((started.elapsed().as_secs_f64(), open))
    }
}

/// Counts one more change of a resource, and returns the request that makes it.
fn next_change(server: &Server, name: &str, changes: &mut usize) -> anyhow::Result<Vec<u8>> {
    *changes += 1;
    server.publication(name, &format!("state {changes}"))
}
