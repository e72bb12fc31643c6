//! The rows of several nodes: `cluster`, `cluster-heard`, `cluster-cpu` and `cluster-start`.
//!
//! Three servers of NATS and the nodes share this machine. The twin writes to the same servers by
//! compare-and-swap with the client of NATS alone, in turn with the nodes.

mod brokers;
mod raw_log;
mod bus_node;
mod node;
mod lanes;
mod listeners;
mod heard;
mod cpu;
mod start;

use tokio::runtime::{Builder, Runtime};

use crate::Options;
use crate::support::{Column, RUNS, Spread, Table, ratios};
use brokers::Brokers;
use bus_node::BusNode;
use lanes::{Course, RESOURCES};
use node::Node;
use raw_log::{RawLog, RawReaders};

pub(crate) use cpu::run as run_cpu;
pub(crate) use heard::run as run_heard;
pub(crate) use start::run as run_start;

/// The changes in flight.
const DEPTHS: [usize; 2] = [64, 256];
/// The changes of one run.
const CHANGES: usize = 10_000;
/// The changes before the measured ones.
const WARM_UP: usize = 2_000;

const COLUMNS: &[Column] = &[
    ("per_s", "changes/s", 0),
    ("raw_x", "x raw", 2),
    ("raw_read_x", "x raw that is read", 2),
    ("p50_ms", "p50 ms", 1),
    ("p99_ms", "p99 ms", 1),
    ("cpu_us", "CPU µs of this process", 1),
    ("own_us", "without the publishing thread", 1),
    ("brokers_us", "CPU µs of the servers", 0),
];

/// The loads, which take turns.
const LABELS: [&str; 4] = ["raw", "raw, and three readers", "a node alone", "a node of three"];

/// Measures the row `cluster`; `--sessions` is the number of changes in flight.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("cluster", COLUMNS);
    let Some(brokers) = Brokers::start(&mut table)? else {
        return Ok(table);
    };
    runtime()?.block_on(async {
        let set = Publishers::start(&brokers).await?;
        for depth in options.sizes(&DEPTHS) {
            let mut runs: [Vec<Course>; 4] = Default::default();
            for _ in 0..RUNS {
                for (number, runs) in runs.iter_mut().enumerate() {
                    set.run(number, (depth, WARM_UP)).await?;
                    runs.push(set.run(number, (depth, CHANGES)).await?);
                }
            }
            add_lines(&mut table, depth, &runs);
        }
        table.add_note(format!(
            "{CHANGES} changes of {RESOURCES} resources in a run, bodies and raw records of 200 bytes; nats-server \
             {}, three replicas, `sync_interval: always`.",
            set.raw.version()
        ));
        set.alone.stop().await;
        set.of_three.stop().await;
        Ok(table)
    })
}

/// Returns the runtime of the publishing thread.
fn runtime() -> anyhow::Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// Everything that publishes, for the whole row: what does not publish is idle.
struct Publishers<'b> {
    brokers: &'b Brokers,
    raw: RawLog,
    raw_read: RawLog,
    readers: RawReaders,
    alone: BusNode,
    of_three: BusNode,
    _others: [Node; 2],
}

impl Publishers<'_> {
    async fn start(brokers: &Brokers) -> anyhow::Result<Publishers<'_>> {
        let urls = brokers.urls();
        let raw = RawLog::open(&urls, "RAW", RESOURCES).await?;
        let raw_read = RawLog::open(&urls, "RAWREAD", RESOURCES).await?;
        let readers = RawReaders::start(&urls, "RAWREAD")?;
        let alone = BusNode::start(brokers, "alone").await?;
        let of_three = BusNode::start(brokers, "three").await?;
        let others = [
            Node::start(brokers, "three", "a")?,
            Node::start(brokers, "three", "b")?,
        ];
        Ok(Publishers {
            brokers,
            raw,
            raw_read,
            readers,
            alone,
            of_three,
            _others: others,
        })
    }

    /// Runs the load with this number in [`LABELS`].
    async fn run(&self, number: usize, load: (usize, usize)) -> anyhow::Result<Course> {
        match number {
            0 => lanes::run(load, self.brokers, |resource| self.raw.publish(resource)).await,
            1 => {
                self.readers.take();
                let course = lanes::run(load, self.brokers, |resource| self.raw_read.publish(resource));
                let course = course.await?;
                // A record that is replaced before a reader is sent it is not delivered, but most are, three
                // times each.
                let deliveries: usize = self.readers.take().iter().map(Vec::len).sum();
                anyhow::ensure!(
                    deliveries > load.1,
                    "the readers of the twin do not follow: {deliveries} deliveries of {} records",
                    load.1
                );
                Ok(course)
            }
            2 => lanes::run(load, self.brokers, |resource| self.alone.publish(resource)).await,
            _ => lanes::run(load, self.brokers, |resource| self.of_three.publish(resource)).await,
        }
    }
}

fn add_lines(table: &mut Table, depth: usize, runs: &[Vec<Course>; 4]) {
    let rates = runs.each_ref().map(|runs| -> Vec<f64> {
        let rates = runs.iter().map(|run| run.rate);
        rates.collect()
    });
    for (number, runs) in runs.iter().enumerate() {
        let over = |figure: fn(&Course) -> f64| Spread::of(runs.iter().map(figure));
        let beside = |twin: usize| match number {
            2 | 3 => ratios(&rates[number], &rates[twin]),
            _ => None,
        };
        // The readers of the twin are a part of this process.
        let is_own = number != 1;
        table.add_spreads(
            format!("{}, {depth}", LABELS[number]),
            vec![
                over(|run| run.rate),
                beside(0),
                beside(1),
                over(|run| run.p50_ms),
                over(|run| run.p99_ms),
                over(|run| run.cpu_us).filter(|_| is_own),
                over(|run| run.own_us).filter(|_| number > 1),
                over(|run| run.brokers_us),
            ],
        );
    }
}
