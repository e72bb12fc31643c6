//! Row `scope`: the cost of a change that few sessions watch, among few other sessions and among many.
//!
//! One service has few sessions and one has many; in each, 100 sessions, spread evenly, watch the changed
//! resource, and the others watch another. Both are open together and take turns, and each repetition has
//! fresh ones, since two processes that do the same may differ in cost. Streams send no keep-alives
//! meanwhile, which would be counted.

use anyhow::ensure;

use crate::Options;
use crate::sockets::{Era, FENCE, Kind, Plan, Running, WATCHED, fit};
use crate::support::{Column, RUNS, Spread, Table, ratios};

const FEW: usize = 1_000;
const MANY: usize = 18_000;
/// The sessions that watch the changed resource.
const WATCHERS: usize = 100;
/// The turns of each service in one repetition, and the changes counted in each, after some that warm caches.
const TURNS: usize = 10;
const CHANGES: usize = 20;
const WARM: usize = 3;

const COLUMNS: &[Column] = &[
    ("cpu_us", "CPU µs per change", 0),
    ("delivery_us", "per delivery", 1),
    ("few_x", "x few", 3),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let many = options.sessions.unwrap_or(MANY);
    ensure!(
        many >= FEW,
        "--sessions {many} is less than {FEW}, the number that it is compared with"
    );
    fit(FEW + many)?;
    let mut table = Table::new("scope", COLUMNS);
    for era in Era::ALL {
        let mut cpu_us = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            let mut running = [start(era, FEW)?, start(era, many)?];
            for (run, runs) in std::iter::zip(repeat(&mut running)?, &mut cpu_us) {
                runs.push(run);
            }
        }
        for (size, cpu) in std::iter::zip([FEW, many], &cpu_us) {
            let deliveries = cpu.iter().map(|cpu| cpu / WATCHERS as f64);
            let figures = vec![
                Spread::of(cpu.iter().copied()),
                Spread::of(deliveries),
                ratios(cpu, &cpu_us[0]).filter(|_| size > FEW),
            ];
            table.add_spreads(
                format!("{}, {WATCHERS} of {size}", Kind::Tidings(era).label()),
                figures,
            );
        }
    }
    Ok(table)
}

fn start(era: Era, sessions: usize) -> anyhow::Result<Running> {
    let every = sessions / WATCHERS;
    Running::start(&Plan {
        kind: Kind::Tidings(era),
        sessions,
        delivery_bytes: 0,
        publishers: 1,
        resources: &[WATCHED.to_owned(), FENCE.to_owned()],
        names: &|index| {
            let watches = index.is_multiple_of(every) && index / every < WATCHERS;
            let name = if watches { WATCHED } else { FENCE };
            vec![name.to_owned()]
        },
        settings: &[("TIDINGS_HTTP__KEEP_ALIVE", "5m")],
    })
}

/// Returns the CPU of each server per change, in µs.
fn repeat(running: &mut [Running; 2]) -> anyhow::Result<[f64; 2]> {
    let mut cpu_us = [0.0; 2];
    for _ in 0..TURNS {
        for (running, cpu_us) in std::iter::zip(running.iter_mut(), &mut cpu_us) {
            change(running, WARM)?;
            let cpu = running.cpu()?;
            change(running, CHANGES)?;
            *cpu_us += cpu.since()? / 1e3 / (TURNS * CHANGES) as f64;
        }
    }
    Ok(cpu_us)
}

fn change(running: &mut Running, count: usize) -> anyhow::Result<()> {
    for _ in 0..count {
        running.change(WATCHED, WATCHERS)?;
    }
    Ok(())
}
