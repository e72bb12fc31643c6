//! Row `scope`: whether a change costs by those who watch it, or by all who are there.
//!
//! Owns: two services, one with few sessions and one with many, in each of which 100 sessions, spread evenly, watch
//! what is changed and all others something else. Both are open together and take turns, and each repetition has fresh
//! ones, since one process may cost more than another that does the same. Streams say nothing by themselves meanwhile
//! (`http.keep_alive` is long), since what idle streams cost by the second is not what a change costs.

use anyhow::ensure;

use crate::Options;
use crate::sockets::{Era, FENCE, Kind, Plan, Running, WATCHED, fit};
use crate::support::{Column, RUNS, Spread, Table, ratios};

const FEW: usize = 1_000;
const MANY: usize = 18_000;
/// Sessions that watch what is changed.
const WATCHERS: usize = 100;
/// Turns of each service in one repetition, and changes in each that are counted, after some that warm caches.
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
        "--sessions {many} is fewer than the {FEW} they are compared with"
    );
    fit(FEW + many)?;
    let mut table = Table::new("scope", COLUMNS);
    for era in Era::ALL {
        let sizes = [FEW, many];
        let mut cpu_us = [Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            let mut running = [start(era, FEW)?, start(era, many)?];
            for (cpu, all) in repeat(&mut running)?.into_iter().zip(&mut cpu_us) {
                all.push(cpu);
            }
        }
        for (size, cpu) in sizes.into_iter().zip(&cpu_us) {
            let deliveries = cpu.iter().map(|cpu| cpu / WATCHERS as f64);
            let figures = vec![
                Spread::of(cpu.iter().copied()),
                Spread::of(deliveries),
                ratios(cpu, &cpu_us[0]).filter(|_| size > FEW),
            ];
            table.spreads(
                format!("{}, {WATCHERS} of {size}", Kind::Tidings(era).label()),
                figures,
            );
        }
    }
    Ok(table)
}

fn start(era: Era, sessions: usize) -> anyhow::Result<Running> {
    let every = sessions / WATCHERS;
    let names = |index: usize| {
        let watches = index.is_multiple_of(every) && index / every < WATCHERS;
        vec![(if watches { WATCHED } else { FENCE }).to_owned()]
    };
    Running::start(&Plan {
        kind: Kind::Tidings(era),
        sessions,
        delivery_bytes: 0,
        publishers: 1,
        resources: &[WATCHED.to_owned(), FENCE.to_owned()],
        names: &names,
        settings: &[("TIDINGS_HTTP__KEEP_ALIVE", "5m")],
    })
}

/// Server CPU per change of each, in microseconds.
fn repeat(running: &mut [Running; 2]) -> anyhow::Result<[f64; 2]> {
    let mut cpu_us = [0.0; 2];
    for _ in 0..TURNS {
        for (running, cpu_us) in running.iter_mut().zip(&mut cpu_us) {
            change(running, WARM)?;
            let before = running.cpu()?;
            change(running, CHANGES)?;
            *cpu_us += before.since()? / 1e3 / (TURNS * CHANGES) as f64;
        }
    }
    Ok(cpu_us)
}

fn change(running: &mut Running, count: usize) -> anyhow::Result<()> {
    (0..count).try_for_each(|_| running.change(WATCHED, WATCHERS).map(drop))
}
