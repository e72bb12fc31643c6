//! Row `flat`: the cost of a notice when many changes are in flight, beside one change at a time.
//!
//! Each session subscribes to 64 resources. In a round all 64 are changed at once, each on a connection of
//! its own, since the requests of one connection are answered one after the other; the round ends when every
//! stream has the notice of each, so that nothing is merged. The twin gets all requests of a round on one
//! connection and writes their 64 frames to each socket in one call, which is the most that batching can
//! save.

use crate::Options;
use crate::sockets::{Case, Era, Kind, Plan, Running, Trial, delivery_bytes, fit, measure};
use crate::support::{Column, Spread, Table};

const SESSIONS: usize = 1_000;
/// The resources, and so the changes in flight.
const RESOURCES: usize = 64;
/// The turns of each server in one repetition, and the single changes and the rounds counted in each, after
/// one of both that warms caches.
const TURNS: usize = 2;
const CHANGES: usize = 10;
const ROUNDS: usize = 3;

const KINDS: [Kind; 3] = [
    Kind::Bare,
    Kind::Tidings(Era::Sessions),
    Kind::Tidings(Era::Listen),
];

const COLUMNS: &[Column] = &[
    ("one_cpu_us", "one at a time: CPU µs per delivery", 1),
    ("cpu_us", "flat out: CPU µs per notice", 2),
    ("one_x", "x one at a time", 2),
    ("bare_x", "x bare", 2),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    let mut table = Table::new("flat", COLUMNS);
    let delivery_bytes = delivery_bytes()?;
    let resources: Vec<String> = (0..RESOURCES).map(|number| format!("r{number}")).collect();
    let cases = measure(&KINDS, fit(sessions)?, |kind| {
        let running = Running::start(&Plan {
            kind,
            sessions,
            delivery_bytes,
            publishers: if kind.is_service() { RESOURCES } else { 1 },
            resources: &resources,
            names: &|_| resources.clone(),
            settings: &[],
        })?;
        Ok(FlatOut {
            running,
            sessions,
            resources: resources.clone(),
            one_cpu_ns: 0.0,
            cpu_ns: 0.0,
        })
    });
    for case in &cases {
        case.add_to(&mut table, sessions, figures(case, &cases));
    }
    Ok(table)
}

fn figures(case: &Case<Figures>, all: &[Case<Figures>]) -> Vec<Option<Spread>> {
    vec![
        case.spread(|figures| figures.one_cpu_us),
        case.spread(|figures| figures.cpu_us),
        case.spread(|figures| figures.cpu_us / figures.one_cpu_us),
        case.beside(all, Some(Kind::Bare), |figures| figures.cpu_us),
    ]
}

/// The figures of one repetition of one server, per notice.
struct Figures {
    one_cpu_us: f64,
    cpu_us: f64,
}

/// A server in the middle of a repetition.
struct FlatOut {
    running: Running,
    sessions: usize,
    resources: Vec<String>,
    one_cpu_ns: f64,
    cpu_ns: f64,
}

impl FlatOut {
    fn one_at_a_time(&mut self, count: usize) -> anyhow::Result<f64> {
        let cpu = self.running.cpu()?;
        for _ in 0..count {
            self.running.change(&self.resources[0], self.sessions)?;
        }
        cpu.since()
    }

    fn all_at_once(&mut self, count: usize) -> anyhow::Result<f64> {
        let cpu = self.running.cpu()?;
        for _ in 0..count {
            let mut requests = Vec::new();
            for name in &self.resources {
                requests.push(self.running.publication(name)?);
            }
            self.running.load().change_all(&requests)?;
        }
        cpu.since()
    }
}

impl Trial for FlatOut {
    type Figures = Figures;
    const STEPS: usize = TURNS;

    fn step(&mut self, _number: usize) -> anyhow::Result<()> {
        self.one_at_a_time(1)?;
        self.one_cpu_ns += self.one_at_a_time(CHANGES)?;
        self.all_at_once(1)?;
        self.cpu_ns += self.all_at_once(ROUNDS)?;
        Ok(())
    }

    fn end(self) -> anyhow::Result<Figures> {
        let changes = (self.sessions * TURNS * CHANGES) as f64;
        let notices = (self.sessions * TURNS * ROUNDS * RESOURCES) as f64;
        Ok(Figures {
            one_cpu_us: self.one_cpu_ns / 1e3 / changes,
            cpu_us: self.cpu_ns / 1e3 / notices,
        })
    }
}
