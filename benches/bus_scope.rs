//! Row `bus-scope`: the cost of a change that 100 sessions watch, among few other sessions and among many.
//!
//! It measures as the row `outbox` does, with other sessions beside those that watch.

use crate::Options;
use crate::outbox::{BusFanOut, ChangeCost, measure_changes};
use crate::support::{Column, RUNS, Table, least, median};

/// The sessions that watch the changed resource.
const WATCHING: usize = 100;
/// All sessions.
const SESSIONS: [usize; 2] = [1_000, 18_000];
/// The changes of one run.
const CHANGES: usize = 20_000;

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
    let mut sizes = SESSIONS;
    if let Some(many) = options.sessions {
        sizes[1] = many;
    }
    let mut buses = Vec::new();
    for size in sizes {
        buses.push(BusFanOut::start(WATCHING, size.saturating_sub(WATCHING), 0)?);
    }
    let mut runs: [Vec<ChangeCost>; 2] = Default::default();
    for _ in 0..RUNS {
        for (bus, runs) in std::iter::zip(&mut buses, &mut runs) {
            runs.push(measure_changes(bus, true, CHANGES, WATCHING)?);
        }
    }
    let mut table = Table::new("bus-scope", COLUMNS);
    let first = figures(&runs[0]);
    for (size, runs) in std::iter::zip(sizes, &runs) {
        let mut line = Vec::new();
        for (cost, first) in std::iter::zip(figures(runs), first) {
            line.extend([Some(cost), Some(cost / first)]);
        }
        table.add_line(format!("{WATCHING} of {size} sessions"), line);
    }
    Ok(table)
}

/// Returns the median wall time, the median CPU and the least CPU of a change, in µs.
fn figures(runs: &[ChangeCost]) -> [f64; 3] {
    let nanos = [
        median(runs.iter().map(|cost| cost.wall)),
        median(runs.iter().map(|cost| cost.cpu)),
        least(runs.iter().map(|cost| cost.cpu)),
    ];
    nanos.map(|nanos| nanos / 1e3)
}
