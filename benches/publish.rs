//! Row `publish`: the cost of a change in the bus that has no subscriber, with many in flight.
//!
//! The bare twin sends the same payload through three channels and back. It has the threads of a change that
//! is delivered: its first two hops share one, its third has its own. It makes no lookup, no digest and no
//! version.

use std::time::Duration;

use anyhow::{Context, bail};
use tidings::{Bus, Limits, Resource};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::Options;
use crate::pipeline::{RequestCost, pipeline};
use crate::support::{Column, RUNS, Table, least, median};

/// The changes of one run.
const CHANGES: usize = 200_000;
/// The resources that are changed in turn.
const RESOURCES: usize = 10_000;
/// The capacity of each channel of the twin: as much as the bus admits.
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
    let mut one_shard = Vec::new();
    let mut shard_per_core = Vec::new();
    let mut bare = Vec::new();
    for _ in 0..RUNS {
        one_shard.push(through_bus(1, CHANGES)?);
        shard_per_core.push(through_bus(0, CHANGES)?);
        bare.push(through_channels(CHANGES)?);
    }
    let bare_cpu = median(bare.iter().map(|run| run.cpu_us));
    let bare_own = median(bare.iter().map(|run| run.own_us));
    let mut table = Table::new("publish", COLUMNS);
    for (label, runs) in [
        ("bus, 1 shard", &one_shard),
        ("bus, a shard per core", &shard_per_core),
        ("bare channels", &bare),
    ] {
        let cpu = median(runs.iter().map(|run| run.cpu_us));
        let own = median(runs.iter().map(|run| run.own_us));
        // The ratio of the twin to itself would be no figure.
        let is_twin = label == "bare channels";
        let figures = vec![
            Some(median(runs.iter().map(|run| run.rate))),
            Some(cpu),
            (!is_twin).then_some(cpu / bare_cpu),
            Some(1e6 / cpu),
            Some(least(runs.iter().map(|run| run.cpu_us))),
            Some(own),
            (!is_twin).then_some(own / bare_own),
            Some(1e6 / own),
        ];
        table.add_line(label, figures);
    }
    Ok(table)
}

/// Makes `changes` changes and no others, for tools that count the instructions of the process.
pub(crate) fn publish(changes: usize) -> anyhow::Result<()> {
    through_bus(0, changes).map(drop)
}

/// Returns a resource whose body has this number.
fn state(number: usize) -> anyhow::Result<Resource> {
    let uri = format!("bench://quiet/{}", number % RESOURCES);
    Ok(Resource::text(uri, format!("change {number}"))?)
}

/// Returns the state for a change: its body differs from the one that was registered.
fn changed_state(number: usize) -> anyhow::Result<Resource> {
    state(RESOURCES + number)
}

fn through_bus(shards: usize, changes: usize) -> anyhow::Result<RequestCost> {
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let mut limits = Limits::default();
    limits.shards = shards;
    runtime.block_on(async {
        let bus = Bus::builder().limits(limits).start()?;
        for number in 0..RESOURCES {
            bus.register(state(number)?).await?;
        }
        let bus = &bus;
        let cost = pipeline(changes, |_, number| async move {
            bus.update(changed_state(number)?).await?;
            Ok(())
        })
        .await?;
        let changed = bus.stats().await?.changes;
        bus.shutdown(Duration::from_secs(5)).await;
        let expected = RESOURCES + changes;
        anyhow::ensure!(
            changed == expected as u64,
            "the bus counted {changed} of {expected} changes"
        );
        Ok(cost)
    })
}

/// A message of the twin: the payload, and the channel of its answer.
type Parcel = (Resource, oneshot::Sender<Resource>);

/// Passes every message on.
async fn hop(mut from: mpsc::Receiver<Parcel>, to: mpsc::Sender<Parcel>) {
    while let Some(parcel) = from.recv().await {
        if to.send(parcel).await.is_err() {
            return;
        }
    }
}

/// Answers every message.
async fn last_hop(mut from: mpsc::Receiver<Parcel>) {
    while let Some((resource, reply)) = from.recv().await {
        if reply.send(resource).is_err() {
            // The publisher has failed, and reports the reason itself.
            return;
        }
    }
}

fn through_channels(changes: usize) -> anyhow::Result<RequestCost> {
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
    let publisher = &first;
    let cost = runtime.block_on(pipeline(changes, |_, number| async move {
        let (reply, answer) = oneshot::channel();
        if publisher.send((changed_state(number)?, reply)).await.is_err() {
            bail!("the first hop ended");
        }
        answer.await?;
        Ok(())
    }));
    // The hops end when their channel does.
    drop(first);
    for thread in threads {
        thread.join().ok().context("a hop panicked")?;
    }
    cost
}
