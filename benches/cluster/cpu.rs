//! Row `cluster-cpu`: the CPU of each node for a change that one of them takes, with clients and without.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use tidings::wire::connection::BlockingConnection;
use tidings::wire::http1::resource_path;

use super::brokers::Brokers;
use super::listeners::Listeners;
use super::node::Node;
use crate::Options;
use crate::request_load::RequestLoad;
use crate::resources::{BODY, WARM_UP, healthz, puts, uris};
use crate::sockets::{connect, publish};
use crate::support::{Column, Cpu, RUNS, Spread, Table, Threads};

/// The connections that publish, each with one change in flight.
const DEPTHS: [usize; 2] = [64, 256];
/// The changes of one run.
const CHANGES: usize = 10_000;
/// The clients of one node, over which the resources are spread: each change is told to one.
const CLIENTS: usize = 10;
/// The connections that create the resources.
const CREATING: usize = 32;
/// The limit on the time until the other nodes have the last change.
const HEARD_MAX: Duration = Duration::from_secs(20);

const COLUMNS: &[Column] = &[
    ("per_s", "changes/s", 0),
    ("taken_us", "CPU µs of the node that takes it", 1),
    ("http_us", "of which a request without a change takes", 1),
    ("change_us", "of which the change", 1),
    ("idle_us", "of a node without clients", 1),
    ("told_us", "of a node with clients", 1),
    ("notices", "notices there", 2),
    ("brokers_us", "of the servers", 0),
];

/// One run: the figures in the order of the columns.
type Run = [f64; 8];

/// Measures the row; `--sessions` is the number of connections.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("cluster-cpu", COLUMNS);
    let Some(brokers) = Brokers::start(&mut table)? else {
        return Ok(table);
    };
    let nodes = ["a", "b", "c"].map(|name| Node::start(&brokers, "cpu", name));
    let [taking, idle, telling] = nodes;
    let nodes = [taking?, idle?, telling?];
    create_all(&nodes[0])?;
    settle(&mut connect(nodes[0].address())?, &nodes)?;
    let readers = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let names: Vec<String> = uris()
        .map(|uri| uri.trim_start_matches("bench://").to_owned())
        .collect();
    let listeners = Listeners::open(&readers, &nodes[2], (CLIENTS, &names))?;
    for depth in options.sizes(&DEPTHS) {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(measure(depth, (&brokers, &nodes), &listeners)?);
        }
        let figures = (0..COLUMNS.len()).map(|column| Spread::of(runs.iter().map(|run| run[column])));
        table.add_spreads(format!("{depth} PUTs in flight"), figures.collect());
    }
    readers.shutdown_background();
    table.add_note(format!(
        "{CHANGES} PUTs of 1,000 resources in a run, all to one of three nodes; {CLIENTS} clients of another one \
         watch 100 resources each."
    ));
    Ok(table)
}

/// Creates every resource, many at a time: one by one each would wait for the disks of the servers.
fn create_all(node: &Node) -> anyhow::Result<()> {
    let uris: Vec<String> = uris().collect();
    std::thread::scope(|scope| {
        let created = uris.chunks(uris.len().div_ceil(CREATING)).map(|uris| {
            scope.spawn(move || {
                let requests: Vec<Vec<u8>> = uris
                    .iter()
                    .map(|uri| node.target.put_resource(uri, BODY))
                    .collect();
                publish(&mut connect(node.address())?, &requests)
            })
        });
        let created: Vec<_> = created.collect();
        for thread in created {
            match thread.join() {
                Ok(created) => created?,
                Err(_) => bail!("a thread that creates resources panicked"),
            }
        }
        Ok(())
    })
}

fn measure(
    depth: usize,
    (brokers, nodes): (&Brokers, &[Node; 3]),
    listeners: &Listeners,
) -> anyhow::Result<Run> {
    let [taking, idle, telling] = nodes;
    let mut opened = Vec::new();
    for _ in 0..depth {
        opened.push(connect(taking.address())?);
    }
    let mut load = RequestLoad::new(opened)?;
    let mut control = connect(taking.address())?;
    let mut health = healthz(&taking.target, &mut control)?;
    load.run(&mut health, WARM_UP)?;
    let health = load.measure(taking.pid(), &mut health, CHANGES)?;
    let mut puts = puts(&taking.target);
    load.run(&mut puts, WARM_UP)?;
    settle(&mut control, nodes)?;
    listeners.take();
    let servers = brokers.cpu()?;
    let cpu = [idle, telling].map(|node| Cpu::read(node.pid(), Threads::All));
    let [of_idle, of_telling] = cpu;
    let of_idle = of_idle?;
    let of_telling = of_telling?;
    let taken = load.measure(taking.pid(), &mut puts, CHANGES)?;
    settle(&mut control, nodes)?;
    let us = 1e-3 / CHANGES as f64;
    Ok([
        taken.per_second,
        taken.cpu_us,
        health.cpu_us,
        taken.cpu_us - health.cpu_us,
        of_idle.since()? * us,
        of_telling.since()? * us,
        listeners.take().len() as f64 / CHANGES as f64,
        servers.since()? * us,
    ])
}

/// Waits until all nodes have heard everything: makes one more change, and waits for it.
fn settle(control: &mut BlockingConnection, nodes: &[Node; 3]) -> anyhow::Result<()> {
    let uri = "bench://settled";
    let body = format!("{:?}", Instant::now());
    let answer = control.exchange(&nodes[0].target.put_resource(uri, &body))?;
    ensure!(
        answer.head.is_success(),
        "{uri} was answered with {}",
        answer.head.status
    );
    wait_for(nodes, &body, uri)
}

fn wait_for(nodes: &[Node; 3], body: &str, uri: &str) -> anyhow::Result<()> {
    let until = Instant::now() + HEARD_MAX;
    for node in nodes {
        let mut connection = connect(node.address())?;
        let request = node.target.request_to("GET", &resource_path(uri)).finish();
        while connection.exchange(&request)?.body != body.as_bytes() {
            ensure!(Instant::now() < until, "a node does not hear the others");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}
