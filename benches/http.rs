//! Row `http`: the cost of a delivery over real sockets, one change at a time, beside twins.
//!
//! The twins are bare sockets, rmcp's own session layer, and two brokers that could stand in the service's
//! place, nats-server and redis-server, each with its own protocol and deliveries of the same length. As many
//! servers as the limit of open files allows are open together and take turns of a block of changes each, so
//! that a disturbance of the machine meets all of them.

use std::iter::repeat_n;

use crate::Options;
use crate::sockets::{Case, Era, FENCE, Kind, Plan, Running, Trial, WATCHED, delivery_bytes, fit, measure};
use crate::support::{Column, Spread, Table, quantile};

/// The numbers of sessions, unless `--sessions` has another one.
const SESSIONS: [usize; 2] = [1_000, 5_000];
/// The turns of each server in one repetition, and the changes counted in each, after one that warms caches.
const TURNS: usize = 3;
const CHANGES: usize = 10;
/// The changes made back to back.
const BURST: usize = 40;

const KINDS: [Kind; 7] = [
    Kind::Bare,
    Kind::Tidings(Era::Sessions),
    Kind::Tidings(Era::Listen),
    Kind::Rmcp(Era::Sessions),
    Kind::Rmcp(Era::Listen),
    Kind::Nats,
    Kind::Redis,
];

const COLUMNS: &[Column] = &[
    ("cpu_us", "CPU µs per delivery", 1),
    ("bare_x", "x bare", 2),
    ("rmcp_x", "x rmcp's sessions", 2),
    ("rmcp_era_x", "x rmcp, same era", 2),
    ("nats_x", "x nats", 2),
    ("redis_x", "x redis", 2),
    ("p50_ms", "p50 ms", 1),
    ("p99_ms", "p99 ms", 1),
    ("p99_bare_x", "p99 x bare", 2),
    ("burst_cpu_us", "back to back: CPU µs per change and session", 2),
    ("burst_frames", "frames per change and session", 2),
    ("idle_kib", "KiB per idle session", 1),
    ("after_kib", "KiB after", 1),
    ("frame_bytes", "bytes per delivery", 0),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("http", COLUMNS);
    let delivery_bytes = delivery_bytes()?;
    for sessions in options.sizes(&SESSIONS) {
        let cases = one_by_one(&KINDS, sessions, delivery_bytes)?;
        for case in &cases {
            case.add_to(&mut table, sessions, figures(case, &cases));
        }
    }
    Ok(table)
}

/// Measures servers of these kinds, with one change at a time. The brokers get deliveries of
/// `delivery_bytes`.
pub(crate) fn one_by_one(
    kinds: &[Kind],
    sessions: usize,
    delivery_bytes: usize,
) -> anyhow::Result<Vec<Case<Figures>>> {
    let resources = [WATCHED.to_owned(), FENCE.to_owned()];
    Ok(measure(kinds, fit(sessions)?, |kind| {
        OneByOne::start(&Plan {
            kind,
            sessions,
            delivery_bytes,
            publishers: 1,
            resources: &resources,
            names: &|_| resources.to_vec(),
            settings: &[],
        })
    }))
}

fn figures(case: &Case<Figures>, all: &[Case<Figures>]) -> Vec<Option<Spread>> {
    // Twins are compared with bare sockets only. rmcp's session layer serves the older revisions alone, so
    // its listen streams are compared with ours.
    let [rmcp_sessions, rmcp_same_era, nats, redis] = match case.kind {
        Kind::Tidings(era) => [
            Some(Kind::Rmcp(Era::Sessions)),
            Some(Kind::Rmcp(era)),
            Some(Kind::Nats),
            Some(Kind::Redis),
        ],
        _ => [None; 4],
    };
    vec![
        case.spread(|figures| figures.cpu_us),
        case.beside(all, Some(Kind::Bare), |figures| figures.cpu_us),
        case.beside(all, rmcp_sessions, |figures| figures.cpu_us),
        case.beside(all, rmcp_same_era, |figures| figures.cpu_us),
        case.beside(all, nats, |figures| figures.cpu_us),
        case.beside(all, redis, |figures| figures.cpu_us),
        case.spread(|figures| figures.p50_ms),
        case.spread(|figures| figures.p99_ms),
        case.beside(all, Some(Kind::Bare), |figures| figures.p99_ms),
        case.spread(|figures| figures.burst_cpu_us),
        case.spread(|figures| figures.burst_frames),
        case.spread(|figures| figures.idle_kib),
        case.spread(|figures| figures.after_kib),
        case.spread(|figures| figures.frame_bytes),
    ]
}

/// The figures of one repetition of one server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Server CPU per delivery, one change at a time.
    pub(crate) cpu_us: f64,
    /// The time from writing the change to reading the delivery.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Server CPU per change and session, changes back to back; a change merged into a later one counts as
    /// delivered.
    burst_cpu_us: f64,
    /// Frames written per change and session, changes back to back: below 1 where changes were merged.
    burst_frames: f64,
    /// The growth of the server's memory per session, before the first change and after the last.
    pub(crate) idle_kib: f64,
    after_kib: f64,
    /// The bytes of one delivery, framing included.
    frame_bytes: f64,
}

/// A server in the middle of a repetition.
struct OneByOne {
    running: Running,
    sessions: usize,
    idle_kib: f64,
    cpu_ns: f64,
    bytes: u64,
    latencies: Vec<f64>,
    burst_cpu_ns: f64,
    burst_frames: usize,
}

impl OneByOne {
    fn start(plan: &Plan<'_>) -> anyhow::Result<OneByOne> {
        let running = Running::start(plan)?;
        Ok(OneByOne {
            idle_kib: running.kib_per_session()?,
            running,
            sessions: plan.sessions,
            cpu_ns: 0.0,
            bytes: 0,
            latencies: Vec::new(),
            burst_cpu_ns: 0.0,
            burst_frames: 0,
        })
    }

    /// Changes one at a time, after one that warms caches.
    fn turn(&mut self) -> anyhow::Result<()> {
        self.running.change(WATCHED, self.sessions)?;
        let cpu = self.running.cpu()?;
        let bytes = self.running.load().bytes();
        for _ in 0..CHANGES {
            self.latencies
                .extend(self.running.change(WATCHED, self.sessions)?);
        }
        self.cpu_ns += cpu.since()?;
        self.bytes += self.running.load().bytes() - bytes;
        Ok(())
    }

    /// Changes back to back.
    fn burst(&mut self) -> anyhow::Result<()> {
        let mut burst = Vec::new();
        for name in repeat_n(WATCHED, BURST).chain([FENCE]) {
            burst.push(self.running.publication(name)?);
        }
        let cpu = self.running.cpu()?;
        self.burst_frames = self.running.load().burst(&burst)?;
        self.burst_cpu_ns = cpu.since()?;
        Ok(())
    }
}

impl Trial for OneByOne {
    type Figures = Figures;
    const STEPS: usize = TURNS + 1;

    fn step(&mut self, number: usize) -> anyhow::Result<()> {
        match number {
            TURNS => self.burst(),
            _ => self.turn(),
        }
    }

    fn end(mut self) -> anyhow::Result<Figures> {
        let deliveries = (self.sessions * TURNS * CHANGES) as f64;
        let burst_deliveries = (self.sessions * (BURST + 1)) as f64;
        Ok(Figures {
            cpu_us: self.cpu_ns / 1e3 / deliveries,
            p50_ms: quantile(&mut self.latencies, 0.5),
            p99_ms: quantile(&mut self.latencies, 0.99),
            burst_cpu_us: self.burst_cpu_ns / 1e3 / burst_deliveries,
            burst_frames: self.burst_frames as f64 / burst_deliveries,
            idle_kib: self.idle_kib,
            after_kib: self.running.kib_per_session()?,
            frame_bytes: self.bytes as f64 / deliveries,
        })
    }
}
