//! Row `http`: what a delivery costs the service over real sockets, one change at a time, beside its twins.
//!
//! Owns: the plan of the measurement and its figures. Beside bare sockets and rmcp's own session layer stand two
//! brokers that people would otherwise put there, nats-server and redis-server, each with its own protocol and
//! deliveries as long as ours. As many servers as the limit of open files allows are open together and take turns, a
//! block of changes each, so that what disturbs the machine disturbs all of them. Never: serves or reads anything
//! itself; that is in [`crate::sockets`].

use std::iter::repeat_n;

use crate::Options;
use crate::sockets::{Case, Era, FENCE, Kind, Plan, Running, Trial, WATCHED, delivery_bytes, fit, measure};
use crate::support::{Column, Spread, Table, quantile};

/// The sizes; another one is asked for with `--sessions`.
const SESSIONS: [usize; 2] = [1_000, 5_000];
/// Turns of each server in one repetition, and changes in each that are counted, after one that warms caches.
const TURNS: usize = 3;
const CHANGES: usize = 10;
/// Changes made back to back.
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
    let resources = [WATCHED.to_owned(), FENCE.to_owned()];
    for sessions in options.sizes(&SESSIONS) {
        let cases = measure(&KINDS, fit(sessions)?, |kind| {
            OneByOne::start(&Plan {
                kind,
                sessions,
                delivery_bytes,
                publishers: 1,
                resources: &resources,
                names: &|_| resources.to_vec(),
                settings: &[],
            })
        });
        for case in &cases {
            case.tell(&mut table, sessions, figures(case, &cases));
        }
    }
    Ok(table)
}

fn figures(case: &Case<Figures>, all: &[Case<Figures>]) -> Vec<Option<Spread>> {
    let ours = |twin: Kind| case.kind.is_ours().then_some(twin);
    // rmcp's own session layer serves the older revisions alone; its listen streams stand beside ours.
    let (layer, same_era) = match case.kind {
        Kind::Tidings(era) => (Some(Kind::Rmcp(Era::Sessions)), Some(Kind::Rmcp(era))),
        _ => (None, None),
    };
    let cpu_us = |figures: &Figures| figures.cpu_us;
    vec![
        case.spread(cpu_us),
        case.beside(all, Some(Kind::Bare), cpu_us),
        case.beside(all, layer, cpu_us),
        case.beside(all, same_era, cpu_us),
        case.beside(all, ours(Kind::Nats), cpu_us),
        case.beside(all, ours(Kind::Redis), cpu_us),
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

/// What one repetition of one server came to.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// Server CPU per delivery, one change at a time.
    cpu_us: f64,
    /// From writing the change to reading the delivery.
    p50_ms: f64,
    p99_ms: f64,
    /// Server CPU per change and session, changes back to back; what was conflated counts as told.
    burst_cpu_us: f64,
    /// Frames written per change and session, changes back to back: below 1 where changes were conflated.
    burst_frames: f64,
    /// Growth of the server's memory per session, before the first change and after the last.
    idle_kib: f64,
    after_kib: f64,
    /// Bytes that one stream gets for one change, framing included.
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
        let (before, bytes_before) = (self.running.cpu()?, self.running.load().bytes());
        for _ in 0..CHANGES {
            self.latencies
                .extend(self.running.change(WATCHED, self.sessions)?);
        }
        self.cpu_ns += before.since()?;
        self.bytes += self.running.load().bytes() - bytes_before;
        Ok(())
    }

    /// Changes back to back.
    fn burst(&mut self) -> anyhow::Result<()> {
        let names = repeat_n(WATCHED, BURST).chain([FENCE]);
        let burst: Vec<Vec<u8>> = names.map(|name| self.running.publication(name)).collect();
        let before = self.running.cpu()?;
        self.burst_frames = self.running.load().burst(&burst)?;
        self.burst_cpu_ns = before.since()?;
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
        let told = (self.sessions * TURNS * CHANGES) as f64;
        let burst_told = (self.sessions * (BURST + 1)) as f64;
        Ok(Figures {
            cpu_us: self.cpu_ns / 1e3 / told,
            p50_ms: quantile(&mut self.latencies, 0.5),
            p99_ms: quantile(&mut self.latencies, 0.99),
            burst_cpu_us: self.burst_cpu_ns / 1e3 / burst_told,
            burst_frames: self.burst_frames as f64 / burst_told,
            idle_kib: self.idle_kib,
            after_kib: self.running.kib_per_session()?,
            frame_bytes: self.bytes as f64 / told,
        })
    }
}
