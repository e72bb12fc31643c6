//! Row `h2`: many streams on few connections of HTTP/2, one change at a time, beside twins.
//!
//! The twins are bare sockets, one for each stream, and the crate `h2` with nothing around it. All servers of
//! a shape are open together and take turns of a block of changes each, so that a disturbance of the machine
//! meets all of them.

use std::time::Instant;

use crate::Options;
use crate::sockets::{
    Case, FENCE, Kind, Plan, Running, Server, StreamPlan, Streams, Trial, WATCHED, delivery_bytes, measure,
};
use crate::support::{Column, Cpu, Spread, Table, Threads, quantile, resident_kib};

/// Connections and the streams of each, unless `--connections` and `--sessions` have others.
const SHAPES: [(usize, usize); 2] = [(1, 1_000), (16, 625)];
/// Bare sockets are no more than this: their cost does not depend on their number, and each is a file.
const SOCKETS_MAX: usize = 10_000;
/// The turns of each server in one repetition, and the changes counted in each, after one that warms caches.
const TURNS: usize = 3;
const CHANGES: usize = 10;

const KINDS: [Kind; 3] = [Kind::Bare, Kind::BareStreams, Kind::TidingsStreams];

/// The limits of the service, as high as they go.
pub(crate) const SETTINGS: [(&str, &str); 3] = [
    ("TIDINGS_HTTP__H2_STREAMS_MAX", "1000000"),
    ("TIDINGS_SESSION__STREAMS_MAX", "1000000"),
    ("TIDINGS_SESSION__MAX", "1000000"),
];

const COLUMNS: &[Column] = &[
    ("cpu_us", "CPU µs per delivery", 2),
    ("bare_x", "x bare sockets", 3),
    ("h2_x", "x bare h2", 2),
    ("p50_ms", "p50 ms", 2),
    ("p99_ms", "p99 ms", 2),
    ("last_ms", "p99 ms to the last stream", 2),
    ("last_h2_x", "the same x bare h2", 2),
    ("opened_per_s", "opened per s", 0),
    ("idle_kib", "KiB per idle stream", 2),
    ("after_kib", "KiB after", 2),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("h2", COLUMNS);
    let bytes = delivery_bytes()?;
    for shape in shapes(options) {
        let cases = measure(&KINDS, KINDS.len(), |kind| Fan::start(kind, shape, bytes));
        let (connections, each) = shape;
        for case in &cases {
            let size = format!("{connections} x {each}");
            case.add_to(&mut table, &size, figures(case, &cases));
        }
        if connections * each > SOCKETS_MAX {
            table.add_note(format!("{connections} x {each}: bare sockets are {SOCKETS_MAX}"));
        }
    }
    Ok(table)
}

/// Returns the shapes asked for: `--sessions` streams on `--connections` connections.
fn shapes(options: &Options) -> Vec<(usize, usize)> {
    match (options.connections, options.sessions) {
        (None, None) => SHAPES.to_vec(),
        (connections, sessions) => {
            let connections = connections.unwrap_or(1);
            let streams = sessions.unwrap_or(connections * 1_000);
            vec![(connections, streams.div_ceil(connections))]
        }
    }
}

fn figures(case: &Case<Figures>, all: &[Case<Figures>]) -> Vec<Option<Spread>> {
    let twin = match case.kind {
        Kind::TidingsStreams => Some(Kind::BareStreams),
        _ => None,
    };
    vec![
        case.spread(|figures| figures.cpu_us),
        case.beside(all, Some(Kind::Bare), |figures| figures.cpu_us),
        case.beside(all, twin, |figures| figures.cpu_us),
        case.spread(|figures| figures.p50_ms),
        case.spread(|figures| figures.p99_ms),
        case.spread(|figures| figures.last_ms),
        case.beside(all, twin, |figures| figures.last_ms),
        case.spread(|figures| figures.opened_per_s),
        case.spread(|figures| figures.idle_kib),
        case.spread(|figures| figures.after_kib),
    ]
}

/// The figures of one repetition of one server.
struct Figures {
    /// Server CPU per delivery.
    cpu_us: f64,
    /// The time from writing a change to reading its notice, of each stream.
    p50_ms: f64,
    p99_ms: f64,
    /// The same of the last stream of each change.
    last_ms: f64,
    opened_per_s: f64,
    /// The growth of the server's memory per stream, before the first change and after the last.
    idle_kib: f64,
    after_kib: f64,
}

/// The readers of a server: a socket for each stream, or shared connections.
enum Readers {
    Sockets(Box<Running>),
    Streams(Box<(Server, Streams)>),
}

/// A server in the middle of a repetition.
struct Fan {
    readers: Readers,
    streams: usize,
    empty_kib: f64,
    opened_per_s: f64,
    idle_kib: f64,
    states: usize,
    cpu_ns: f64,
    latencies: Vec<f64>,
    last: Vec<f64>,
}

impl Fan {
    fn start(kind: Kind, (connections, each): (usize, usize), delivery_bytes: usize) -> anyhow::Result<Fan> {
        let (streams, opened_in, empty_kib, readers);
        let resources = [WATCHED.to_owned(), FENCE.to_owned()];
        if kind == Kind::Bare {
            streams = (connections * each).min(SOCKETS_MAX);
            let running = Running::start(&Plan {
                kind,
                sessions: streams,
                delivery_bytes,
                publishers: 1,
                resources: &resources,
                names: &|_| resources.to_vec(),
                settings: &[],
            })?;
            opened_in = running.opened_in();
            empty_kib = running.empty_kib();
            readers = Readers::Sockets(Box::new(running));
        } else {
            streams = connections * each;
            let server = Server::start(kind, delivery_bytes, &SETTINGS)?;
            server.create(&resources)?;
            empty_kib = resident_kib(server.pid())?;
            let publishers = [server.publisher()?, server.publisher()?];
            let plan = StreamPlan {
                connections,
                each,
                shut: 0,
                names: &|_| vec![WATCHED.to_owned()],
            };
            let started = Instant::now();
            let opened = Streams::open(&server.target()?, &plan, publishers)?;
            opened_in = started.elapsed();
            readers = Readers::Streams(Box::new((server, opened)));
        }
        let mut fan = Fan {
            readers,
            streams,
            empty_kib,
            opened_per_s: streams as f64 / opened_in.as_secs_f64(),
            idle_kib: 0.0,
            states: 0,
            cpu_ns: 0.0,
            latencies: Vec::new(),
            last: Vec::new(),
        };
        fan.idle_kib = fan.kib_per_stream()?;
        Ok(fan)
    }

    fn pid(&self) -> u32 {
        match &self.readers {
            Readers::Sockets(running) => running.pid(),
            Readers::Streams(streams) => streams.0.pid(),
        }
    }

    fn kib_per_stream(&self) -> anyhow::Result<f64> {
        Ok((resident_kib(self.pid())? - self.empty_kib) / self.streams as f64)
    }

    fn change(&mut self) -> anyhow::Result<Vec<f64>> {
        self.states += 1;
        match &mut self.readers {
            Readers::Sockets(running) => running.change(WATCHED, self.streams),
            Readers::Streams(both) => {
                let (server, streams) = &mut **both;
                streams.change(&server.publication(WATCHED, &format!("state {}", self.states))?)
            }
        }
    }
}

impl Trial for Fan {
    type Figures = Figures;
    const STEPS: usize = TURNS;

    /// Changes one at a time, after one that warms caches.
    fn step(&mut self, _: usize) -> anyhow::Result<()> {
        self.change()?;
        let cpu = Cpu::read(self.pid(), Threads::All)?;
        for _ in 0..CHANGES {
            let latencies = self.change()?;
            self.last.push(latencies.iter().copied().fold(0.0, f64::max));
            self.latencies.extend(latencies);
        }
        self.cpu_ns += cpu.since()?;
        Ok(())
    }

    fn end(mut self) -> anyhow::Result<Figures> {
        let deliveries = (self.streams * TURNS * CHANGES) as f64;
        Ok(Figures {
            cpu_us: self.cpu_ns / 1e3 / deliveries,
            p50_ms: quantile(&mut self.latencies, 0.5),
            p99_ms: quantile(&mut self.latencies, 0.99),
            last_ms: quantile(&mut self.last, 0.99),
            opened_per_s: self.opened_per_s,
            idle_kib: self.idle_kib,
            after_kib: self.kib_per_stream()?,
        })
    }
}
