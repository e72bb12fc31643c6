//! Row `durable`: changes that are kept on disk before they are answered, with many publishers in flight.
//!
//! The bare twin writes the same bytes with redb alone: one thread takes every change that waits, stores
//! line, body and position of each in one transaction, and answers them all after its commit. Both therefore
//! commit groups that grow with the time of a sync.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use redb::{Database, Durability, TableDefinition};
use tidings::store::RedbStore;
use tidings::{Bus, Limits, Owner, Resource};
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use crate::Options;
use crate::pipeline::{IN_FLIGHT, RequestCost, pipeline};
use crate::support::{Column, RUNS, Spread, Table, ratios};

/// The changes of one run.
const CHANGES: usize = 20_000;
/// The resources that are changed in turn.
const RESOURCES: usize = 1_000;
/// The bytes of a body.
const BODY_BYTES: usize = 400;
/// The bytes of a line: digest, version, time, offset and owner.
const LINE_BYTES: usize = 48;

const LINES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("lines");
const BODIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("bodies");
const POSITIONS: TableDefinition<'_, u64, &str> = TableDefinition::new("positions");

const COLUMNS: &[Column] = &[
    ("changes_per_s", "changes/s", 0),
    ("per_s_x", "x bare", 2),
    ("cpu_us", "CPU µs per change", 1),
];

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let mut bus = Vec::new();
    let mut bare = Vec::new();
    for _ in 0..RUNS {
        bus.push(through_bus()?);
        bare.push(through_redb()?);
    }
    let bus_rates: Vec<f64> = bus.iter().map(|run| run.rate).collect();
    let bare_rates: Vec<f64> = bare.iter().map(|run| run.rate).collect();
    let mut table = Table::new("durable", COLUMNS);
    for (label, runs, x) in [
        ("bus with a store", &bus, ratios(&bus_rates, &bare_rates)),
        ("bare redb, the same groups", &bare, None),
    ] {
        let rates = Spread::of(runs.iter().map(|run| run.rate));
        let cpu = Spread::of(runs.iter().map(|run| run.cpu_us));
        table.add_spreads(label, vec![rates, x, cpu]);
    }
    table.add_note(format!(
        "{IN_FLIGHT} changes in flight, bodies of {BODY_BYTES} bytes."
    ));
    Ok(table)
}

fn uri(number: usize) -> String {
    format!("bench://durable/{}", number % RESOURCES)
}

/// Returns a body that no other change has.
fn body(number: usize) -> String {
    format!("{number:0>BODY_BYTES$}")
}

fn through_bus() -> anyhow::Result<RequestCost> {
    let folder = tempfile::tempdir()?;
    let runtime = Builder::new_current_thread().enable_time().build()?;
    let limits = Limits::default();
    let store = RedbStore::open(folder.path(), limits.removed_max)?;
    runtime.block_on(async {
        let bus = Bus::builder().limits(limits).store(store).start()?;
        // The content of this owner is kept.
        let publisher = &bus.owned_by(Owner::Api);
        let cost = pipeline(CHANGES, |_, number| async move {
            let resource = Resource::text(uri(number), body(number))?;
            let outcome = publisher.upsert(resource).await?;
            ensure!(outcome.changed, "change {number} was none");
            Ok(())
        })
        .await?;
        bus.shutdown(Duration::from_secs(5)).await;
        Ok(cost)
    })
}

/// A change for the twin: its number, and the channel of its answer.
type Change = (usize, oneshot::Sender<()>);

fn through_redb() -> anyhow::Result<RequestCost> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("bare.redb");
    let (sender, changes) = mpsc::channel::<Change>(IN_FLIGHT);
    let writer = std::thread::spawn(move || write_groups(&file, changes));
    let runtime = Builder::new_current_thread().build()?;
    let publisher = &sender;
    let cost = runtime.block_on(pipeline(CHANGES, |_, number| async move {
        let (answer, answered) = oneshot::channel();
        if publisher.send((number, answer)).await.is_err() {
            bail!("the writer ended");
        }
        answered.await?;
        Ok(())
    }));
    // The writer ends when its channel does.
    drop(sender);
    writer.join().ok().context("the writer panicked")??;
    cost
}

/// Commits every change that waits, group by group.
fn write_groups(file: &Path, mut changes: mpsc::Receiver<Change>) -> anyhow::Result<()> {
    let database = Database::create(file)?;
    let mut offset = 0;
    let mut group = Vec::with_capacity(IN_FLIGHT);
    while changes.blocking_recv_many(&mut group, IN_FLIGHT) > 0 {
        let mut transaction = database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut lines = transaction.open_table(LINES)?;
            let mut bodies = transaction.open_table(BODIES)?;
            let mut positions = transaction.open_table(POSITIONS)?;
            for (number, _) in &group {
                let uri = uri(*number);
                offset += 1;
                lines.insert(uri.as_str(), [0; LINE_BYTES].as_slice())?;
                bodies.insert(uri.as_str(), body(*number).as_bytes())?;
                positions.insert(offset, uri.as_str())?;
            }
        }
        transaction.commit()?;
        for (number, answer) in group.drain(..) {
            if answer.send(()).is_err() {
                bail!("change {number} has no publisher any more");
            }
        }
    }
    Ok(())
}
