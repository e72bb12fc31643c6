//! Row `bus-scope`: what a change costs that 100 sessions watch, among few others and among many.
//!
//! Owns: the comparison. Never: measures another way than row `outbox` does, whose bus with bystanders it uses.

use crate::Options;
use crate::outbox::{Cost, OfBus, rounds_of};
use crate::support::{Column, RUNS, Table, least, median};

/// Sessions that watch what is changed.
const WATCHING: usize = 100;
/// Sessions in all.
const SESSIONS: [usize; 2] = [1_000, 18_000];
/// Changes per run.
const ROUNDS: usize = 20_000;

const COLUMNS: &[Column] = &[
    ("wall_us", "µs per change", 2),
    ("wall_x", "x the first", 2),
    ("cpu_us", "CPU µs per change", 2),
    ("cpu_x", "x the first", 2),
    ("cpu_us_min", "least CPU µs", 2),
    ("cpu_x_min", "x the first", 2),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let sizes = options.sessions.map_or(SESSIONS, |many| [SESSIONS[0], many]);
    let mut buses = Vec::new();
    for size in sizes {
        buses.push(OfBus::start(WATCHING, size.saturating_sub(WATCHING), 0)?);
    }
    let mut runs: Vec<Vec<Cost>> = vec![Vec::new(); sizes.len()];
    for _ in 0..RUNS {
        for (bus, runs) in buses.iter_mut().zip(&mut runs) {
            runs.push(rounds_of(bus, true, ROUNDS, WATCHING)?);
        }
    }
    let figures = |runs: &[Cost]| {
        let min = least(runs.iter().map(|cost| cost.cpu));
        let (wall, cpu) = (
            runs.iter().map(|cost| cost.wall),
            runs.iter().map(|cost| cost.cpu),
        );
        [median(wall), median(cpu), min].map(|nanos| nanos / 1e3)
    };
    let mut table = Table::new("bus-scope", COLUMNS);
    let first = figures(&runs[0]);
    for (size, runs) in sizes.iter().zip(&runs) {
        let with_ratio = figures(runs).into_iter().zip(first);
        let figures = with_ratio.flat_map(|(cost, first)| [Some(cost), Some(cost / first)]);
        table.line(format!("{WATCHING} of {size} sessions"), figures.collect());
    }
    Ok(table)
}
