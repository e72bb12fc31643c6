//! Row `publish`: what one change costs the bus when nobody listens, with many in flight.
//!
//! Owns: the pipeline of changes, and its bare twin, the same payload through three bare channels and back. The twin
//! has the bus's threads: its first two hops share one, its third has its own. It decides nothing: no lookup, no
//! digest, no version.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tidings::{Bus, Limits, Resource};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::Options;
use crate::support::{Column, Cpu, RUNS, Table, Threads, least, median};

/// Changes per run.
const CHANGES: usize = 100_000;
/// Changes that wait for their answer at once.
const IN_FLIGHT: usize = 64;
/// Room of one channel of the twin: as much as the bus lets through its door.
const CHANNEL: usize = 1_024;

const COLUMNS: &[Column] = &[
    ("changes_per_s", "changes/s", 0),
    ("cpu_us", "CPU µs per change", 2),
    ("cpu_x", "x bare", 2),
    ("cpu_us_min", "least CPU µs", 2),
    ("cpu_x_min", "x bare", 2),
];

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let (mut one, mut each, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        one.push(through_bus(1)?);
        each.push(through_bus(0)?);
        bare.push(through_channels()?);
    }
    let rate = |runs: &[Cost]| median(runs.iter().map(|run| run.rate));
    let middle = |runs: &[Cost]| median(runs.iter().map(|run| run.cpu_us));
    let min = |runs: &[Cost]| least(runs.iter().map(|run| run.cpu_us));
    let mut table = Table::new("publish", COLUMNS);
    for (label, runs) in [
        ("bus, 1 shard", &one),
        ("bus, a shard per core", &each),
        ("bare channels", &bare),
    ] {
        // The twin beside itself would be no figure.
        let ratio = |cost: f64, twin: f64| (label != "bare channels").then_some(cost / twin);
        let figures = vec![
            Some(rate(runs)),
            Some(middle(runs)),
            ratio(middle(runs), middle(&bare)),
            Some(min(runs)),
            ratio(min(runs), min(&bare)),
        ];
        table.line(label, figures);
    }
    Ok(table)
}

#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Changes per second.
    rate: f64,
    /// CPU of the whole process per change, the publisher's own included.
    cpu_us: f64,
}

fn payload(number: usize) -> anyhow::Result<Resource> {
    Ok(Resource::text("bench://quiet", format!("change {number}"))?)
}

/// Keeps `IN_FLIGHT` changes under way until all are answered.
async fn pipeline<F>(change: impl Fn(Resource) -> F) -> anyhow::Result<Cost>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let next = AtomicUsize::new(0);
    let lane = || async {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= CHANGES {
                return anyhow::Ok(());
            }
            change(payload(number)?).await?;
        }
    };
    let pid = std::process::id();
    let (started, before) = (Instant::now(), Cpu::read(pid, Threads::All)?);
    let mut lanes: FuturesUnordered<_> = (0..IN_FLIGHT).map(|_| lane()).collect();
    while let Some(lane) = lanes.next().await {
        lane?;
    }
    let (took, used) = (started.elapsed(), before.since()?);
    Ok(Cost {
        rate: CHANGES as f64 / took.as_secs_f64(),
        cpu_us: used / 1e3 / CHANGES as f64,
    })
}

fn through_bus(shards: usize) -> anyhow::Result<Cost> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let mut limits = Limits::default();
    limits.shards = shards;
    runtime.block_on(async {
        let bus = Bus::builder().limits(limits).start()?;
        bus.register(payload(CHANGES)?).await?;
        let bus = &bus;
        let cost = pipeline(|resource| async move {
            bus.update(resource).await?;
            Ok(())
        })
        .await?;
        let changes = bus.stats().await?.changes;
        bus.shutdown(Duration::from_secs(5)).await;
        anyhow::ensure!(changes > CHANGES as u64, "only {changes} changes were changes");
        Ok(cost)
    })
}

/// What travels: the payload and the way back.
type Parcel = (Resource, oneshot::Sender<Resource>);

/// Hands everything on.
async fn hop(mut from: mpsc::Receiver<Parcel>, to: mpsc::Sender<Parcel>) {
    while let Some(parcel) = from.recv().await {
        if to.send(parcel).await.is_err() {
            return;
        }
    }
}

/// Answers everything.
async fn last_hop(mut from: mpsc::Receiver<Parcel>) {
    while let Some((resource, reply)) = from.recv().await {
        // Whoever asked waits for it, or has failed and says so itself.
        drop(reply.send(resource));
    }
}

fn through_channels() -> anyhow::Result<Cost> {
    let (first, to_first) = mpsc::channel::<Parcel>(CHANNEL);
    let (second, to_second) = mpsc::channel::<Parcel>(CHANNEL);
    let (third, to_third) = mpsc::channel::<Parcel>(CHANNEL);
    let core = Builder::new_current_thread().build()?;
    let shard = Builder::new_current_thread().build()?;
    let threads = [
        std::thread::spawn(move || {
            core.block_on(async {
                tokio::join!(hop(to_first, second), hop(to_second, third));
            });
        }),
        std::thread::spawn(move || shard.block_on(last_hop(to_third))),
    ];
    let runtime = Builder::new_current_thread().build()?;
    let way = &first;
    let cost = runtime.block_on(pipeline(|resource| async move {
        let (reply, answer) = oneshot::channel();
        way.send((resource, reply))
            .await
            .ok()
            .context("the first hop ended")?;
        answer.await?;
        Ok(())
    }));
    drop(first);
    for thread in threads {
        thread.join().ok().context("a hop panicked")?;
    }
    cost
}
