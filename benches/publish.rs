//! Row `publish`: what one change costs the bus when nobody listens, with many in flight.
//!
//! Owns: the changes of many resources in turn, and their bare twin, the same payload through three bare
//! channels and back. The twin has the threads that a change passes in the bus when it is told: its first two hops
//! share one, its third has its own. It decides nothing: no lookup, no digest, no version.

use std::time::Duration;

use anyhow::Context;
use tidings::{Bus, Limits, Resource};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::Options;
use crate::pipeline::{Cost, pipeline};
use crate::support::{Column, RUNS, Table, least, median};

/// Changes per run.
const CHANGES: usize = 200_000;
/// Resources that are changed in turn.
const RESOURCES: usize = 10_000;
/// Room of one channel of the twin: as much as the bus lets through its door.
const CHANNEL: usize = 1_024;

const COLUMNS: &[Column] = &[
    ("changes_per_s", "changes/s", 0),
    ("cpu_us", "CPU µs per change", 2),
    ("cpu_x", "x bare", 2),
    ("per_core", "changes per s of CPU", 0),
    ("cpu_us_min", "least CPU µs", 2),
    ("own_us", "without the publisher: CPU µs", 2),
    ("own_x", "x bare", 2),
    ("own_per_core", "changes per s of CPU", 0),
];

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let (mut one, mut each, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        one.push(through_bus(1, CHANGES)?);
        each.push(through_bus(0, CHANGES)?);
        bare.push(through_channels(CHANGES)?);
    }
    let middle = |runs: &[Cost], figure: fn(&Cost) -> f64| median(runs.iter().map(figure));
    let (bare_cpu, bare_own) = (middle(&bare, |run| run.cpu_us), middle(&bare, |run| run.own_us));
    let mut table = Table::new("publish", COLUMNS);
    for (label, runs) in [
        ("bus, 1 shard", &one),
        ("bus, a shard per core", &each),
        ("bare channels", &bare),
    ] {
        // The twin beside itself would be no figure.
        let ratio = |cost: f64, twin: f64| (label != "bare channels").then_some(cost / twin);
        let (cpu, own) = (middle(runs, |run| run.cpu_us), middle(runs, |run| run.own_us));
        let figures = vec![
            Some(middle(runs, |run| run.rate)),
            Some(cpu),
            ratio(cpu, bare_cpu),
            Some(1e6 / cpu),
            Some(least(runs.iter().map(|run| run.cpu_us))),
            Some(own),
            ratio(own, bare_own),
            Some(1e6 / own),
        ];
        table.line(label, figures);
    }
    Ok(table)
}

/// Makes `changes` changes and nothing else, for whoever counts what the process does.
pub(crate) fn publish(changes: usize) -> anyhow::Result<()> {
    through_bus(0, changes).map(drop)
}

fn payload(number: usize) -> anyhow::Result<Resource> {
    let uri = format!("bench://quiet/{}", number % RESOURCES);
    Ok(Resource::text(uri, format!("change {number}"))?)
}

/// Other bodies than those registered.
fn another(number: usize) -> anyhow::Result<Resource> {
    payload(RESOURCES + number)
}

fn through_bus(shards: usize, changes: usize) -> anyhow::Result<Cost> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let mut limits = Limits::default();
    limits.shards = shards;
    runtime.block_on(async {
        let bus = Bus::builder().limits(limits).start()?;
        for number in 0..RESOURCES {
            bus.register(payload(number)?).await?;
        }
        let bus = &bus;
        let cost = pipeline(changes, |_, number| async move {
            bus.update(another(number)?).await?;
            Ok(())
        })
        .await?;
        let changed = bus.stats().await?.changes;
        bus.shutdown(Duration::from_secs(5)).await;
        let due = RESOURCES + changes;
        anyhow::ensure!(changed == due as u64, "{changed} of {due} changes were changes");
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

fn through_channels(changes: usize) -> anyhow::Result<Cost> {
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
    let cost = runtime.block_on(pipeline(changes, |_, number| async move {
        let (reply, answer) = oneshot::channel();
        way.send((another(number)?, reply))
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
