//! Row `scale`: as many sessions over real sockets as one process may have open.
//!
//! Two changes per second in the open model: each is made when it is due, and its latency counts from then.
//! A machine that is too busy for two per second makes the service merge some; the share of notices shows it.
//! One server is open at a time, since only one fits.

use std::iter::repeat_n;
use std::time::{Duration, Instant};

use crate::Options;
use crate::sockets::{Case, Era, FENCE, Kind, Plan, Running, Trial, WATCHED, delivery_bytes, fit, measure};
use crate::support::{Column, Spread, Table, quantile};

const SESSIONS: usize = 18_000;
/// Two per second, for ten seconds.
const INTERVAL: Duration = Duration::from_millis(500);
const CHANGES: usize = 20;

const KINDS: [Kind; 3] = [
    Kind::Bare,
    Kind::Tidings(Era::Sessions),
    Kind::Tidings(Era::Listen),
];

const COLUMNS: &[Column] = &[
    ("p50_ms", "p50 ms", 0),
    ("p99_ms", "p99 ms", 0),
    ("p99_bare_x", "p99 x bare", 2),
    ("told", "delivered of those due", 2),
    ("cpu_us", "CPU µs per delivery", 1),
    ("bare_x", "x bare", 2),
    ("idle_kib", "KiB per idle session", 1),
    ("open_s", "s to open, one after the other", 1),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    let mut table = Table::new("scale", COLUMNS);
    fit(sessions)?;
    let delivery_bytes = delivery_bytes()?;
    let resources = [WATCHED.to_owned(), FENCE.to_owned()];
    let cases = measure(&KINDS, 1, |kind| {
        let started = Instant::now();
        let running = Running::start(&Plan {
            kind,
            sessions,
            delivery_bytes,
            publishers: 1,
            resources: &resources,
            names: &|_| resources.to_vec(),
            settings: &[],
        })?;
        let open_s = started.elapsed().as_secs_f64();
        Ok(Paced {
            figures: Figures {
                idle_kib: running.kib_per_session()?,
                open_s,
                ..Figures::default()
            },
            running,
            sessions,
        })
    });
    for case in &cases {
        case.add_to(&mut table, sessions, figures(case, &cases));
    }
    Ok(table)
}

fn figures(case: &Case<Figures>, all: &[Case<Figures>]) -> Vec<Option<Spread>> {
    vec![
        case.spread(|figures| figures.p50_ms),
        case.spread(|figures| figures.p99_ms),
        case.beside(all, Some(Kind::Bare), |figures| figures.p99_ms),
        case.spread(|figures| figures.told),
        case.spread(|figures| figures.cpu_us),
        case.beside(all, Some(Kind::Bare), |figures| figures.cpu_us),
        case.spread(|figures| figures.idle_kib),
        case.spread(|figures| figures.open_s),
    ]
}

/// The figures of one repetition of one server.
#[derive(Default)]
struct Figures {
    p50_ms: f64,
    p99_ms: f64,
    cpu_us: f64,
    /// The share of changes that came as a notice of their own.
    told: f64,
    idle_kib: f64,
    open_s: f64,
}

/// A server in the middle of a repetition.
struct Paced {
    running: Running,
    sessions: usize,
    figures: Figures,
}

impl Trial for Paced {
    type Figures = Figures;
    const STEPS: usize = 1;

    fn step(&mut self, _number: usize) -> anyhow::Result<()> {
        self.running.change(WATCHED, self.sessions)?;
        let mut changes = Vec::new();
        for name in repeat_n(WATCHED, CHANGES).chain([FENCE]) {
            changes.push(self.running.publication(name)?);
        }
        let cpu = self.running.cpu()?;
        let mut latencies = self.running.load().paced(&changes, INTERVAL)?;
        // The fence has no latency, and a notice in each stream.
        let notices = (latencies.len() + self.sessions) as f64;
        self.figures.cpu_us = cpu.since()? / 1e3 / notices;
        self.figures.told = latencies.len() as f64 / (self.sessions * CHANGES) as f64;
        self.figures.p50_ms = quantile(&mut latencies, 0.5);
        self.figures.p99_ms = quantile(&mut latencies, 0.99);
        Ok(())
    }

    fn end(self) -> anyhow::Result<Figures> {
        Ok(self.figures)
    }
}
