//! Row `cluster-start`: the time from the start of a node until it is ready with 100,000 resources that the
//! log has, beside the time in which the client of NATS alone reads as many records.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::{StreamExt, TryStreamExt, stream};
use tidings::wire::http1::resource_path;

use super::brokers::Brokers;
use super::bus_node::{BusNode, uri};
use super::node::Node;
use super::raw_log::RawReaders;
use crate::Options;
use crate::sockets::connect;
use crate::support::{Column, Cpu, RUNS, Spread, Table, Threads, ratios, resident_kib};

const RESOURCES: usize = 100_000;
/// The changes in flight while the log is filled.
const IN_FLIGHT: usize = 256;
/// The limit on the time in which the twin reads the log.
const READ_MAX: Duration = Duration::from_secs(60);

const COLUMNS: &[Column] = &[
    ("ready_s", "s until ready", 2),
    ("raw_x", "x raw", 2),
    ("cpu_s", "CPU s", 2),
    ("memory_mb", "MB resident", 0),
];

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("cluster-start", COLUMNS);
    let Some(brokers) = Brokers::start(&mut table)? else {
        return Ok(table);
    };
    super::runtime()?.block_on(fill(&brokers))?;
    let mut ready = Vec::new();
    let mut cpu = Vec::new();
    let mut memory = Vec::new();
    let mut raw = Vec::new();
    for _ in 0..RUNS {
        raw.push(read(&brokers)?);
        let node = Node::start(&brokers, "start", "a")?;
        ready.push(node.ready.as_secs_f64());
        cpu.push(Cpu::total(node.pid(), Threads::All)? / 1e9);
        memory.push(resident_kib(node.pid())? / 1e3);
        check_last(&node)?;
    }
    let x = ratios(&ready, &raw);
    let figures = vec![Spread::of(ready), x, Spread::of(cpu), Spread::of(memory)];
    table.add_spreads("a node, 100,000 URIs", figures);
    table.add_spreads(
        "raw, a reader of the log",
        vec![Spread::of(raw), None, None, None],
    );
    Ok(table)
}

async fn fill(brokers: &Brokers) -> anyhow::Result<()> {
    let bus = BusNode::start(brokers, "start").await?;
    let changes = stream::iter((0..RESOURCES).map(|number| bus.publish(number)));
    changes.buffer_unordered(IN_FLIGHT).try_collect::<()>().await?;
    bus.stop().await;
    Ok(())
}

/// Returns the seconds in which the twin reads every record.
fn read(brokers: &Brokers) -> anyhow::Result<f64> {
    let begin = Instant::now();
    let readers = RawReaders::start(&brokers.urls()[..1], "TIDINGS_start")?;
    let mut count = 0;
    while count < RESOURCES {
        ensure!(begin.elapsed() < READ_MAX, "the twin reads too slowly");
        std::thread::sleep(Duration::from_millis(2));
        count += readers.take()[0].len();
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// The last resource must be there.
fn check_last(node: &Node) -> anyhow::Result<()> {
    let path = resource_path(&uri(RESOURCES - 1));
    let answer = connect(node.address())?.exchange(&node.target.request_to("GET", &path).finish())?;
    let status = answer.head.status;
    ensure!(status == 200, "the last resource was answered with {status}");
    Ok(())
}
