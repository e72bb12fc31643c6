//! Row `cluster-heard`: the time from the request of a change until the clients of all nodes have heard it,
//! beside the time until the servers acknowledge a raw record, at one rate.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, TryStreamExt, stream};
use tidings::wire::connection::exchange;
use tidings::wire::http1::{HttpTarget, resource_path};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use super::brokers::Brokers;
use super::listeners::{Hearing, Listeners};
use super::node::Node;
use super::raw_log::{Delivery, RawLog, RawReaders};
use crate::Options;
use crate::support::{Column, RUNS, Spread, Table, quantile, ratios};

/// The changes per second, and the seconds of one run.
const RATE: usize = 1_000;
const SECONDS: usize = 5;
const CHANGES: usize = RATE * SECONDS;
/// The connections that publish in turn.
const LANES: usize = 64;
/// The resources: as many in each lane, so that the changes of one follow each other.
const RESOURCES: usize = 256;
/// The clients of each node, over which the resources are spread.
const CLIENTS: usize = 8;
/// The bytes of a body: as many as a record of the twin has.
const BODY_BYTES: usize = 200;
/// The limit on the time until all clients have the last change.
const HEARD_MAX: Duration = Duration::from_secs(20);

const COLUMNS: &[Column] = &[
    ("p50_ms", "p50 ms", 1),
    ("p99_ms", "p99 ms", 1),
    ("p50_x", "p50 x raw", 2),
    ("p99_x", "p99 x raw", 2),
];

const LABELS: [&str; 5] = [
    "raw, acknowledged",
    "raw, delivered by all servers",
    "a node, answered",
    "heard by clients of that node",
    "heard by clients of all nodes",
];

/// The median and the 99th percentile of one run, in milliseconds.
type Quantiles = (f64, f64);

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("cluster-heard", COLUMNS);
    let Some(brokers) = Brokers::start(&mut table)? else {
        return Ok(table);
    };
    let readers = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let runs = super::runtime()?.block_on(measure(&brokers, &readers))?;
    // Before the nodes, which end their streams.
    readers.shutdown_background();
    let raw = &runs[0];
    for (number, runs) in runs.iter().enumerate() {
        let part = |part| parts(runs, part);
        let is_twin = number == 0;
        let beside = |quantile| ratios(&part(quantile), &parts(raw, quantile)).filter(|_| !is_twin);
        table.add_spreads(
            LABELS[number],
            vec![
                Spread::of(part(|run| run.0)),
                Spread::of(part(|run| run.1)),
                beside(|run| run.0),
                beside(|run| run.1),
            ],
        );
    }
    table.add_note(format!(
        "{RATE} changes per second of {RESOURCES} resources for {SECONDS} s, each heard by one client of each of \
         three nodes, timed from its request, as raw deliveries are; acknowledgements and answers from when it is due."
    ));
    Ok(table)
}

async fn measure(brokers: &Brokers, readers: &Runtime) -> anyhow::Result<[Vec<Quantiles>; 5]> {
    let urls = brokers.urls();
    let raw = RawLog::open(&urls, "RAW", RESOURCES).await?;
    let delivered = RawLog::open(&urls, "RAWREAD", RESOURCES).await?;
    let deliveries = RawReaders::start(&urls, "RAWREAD")?;
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(Node::start(brokers, "heard", name)?);
    }
    let mut publishers = Publishers::open(&nodes[0].target).await?;
    publishers.create().await?;
    let names: Vec<String> = (0..RESOURCES).map(name).collect();
    let mut listeners = Vec::new();
    for node in &nodes {
        wait_for_all(node).await?;
        listeners.push(Listeners::open(readers, node, (CLIENTS, &names))?);
    }
    let mut runs: [Vec<Quantiles>; 5] = Default::default();
    for _ in 0..RUNS {
        let acknowledged = paced(|number| raw.publish(number % RESOURCES)).await?;
        runs[0].push(quantiles(acknowledged));
        let records = RefCell::default();
        paced(|number| note_record(&delivered, number % RESOURCES, &records)).await?;
        runs[1].push(quantiles(delivered_by_all(&records.take(), &deliveries).await?));
        // A node ends connections that are idle for as long as the raw part takes.
        publishers.sockets = connect(&nodes[0].target).await?;
        let answered = paced(|number| publishers.put(number)).await?;
        runs[2].push(quantiles(answered));
        let changes = publishers.changes.take();
        let heard = heard_by_all(&changes, &listeners).await?;
        runs[3].push(quantiles(heard.iter().map(|times| times[0]).collect()));
        runs[4].push(quantiles(heard.iter().map(|times| farthest(times)).collect()));
    }
    Ok(runs)
}

/// Returns the time of the last of several nodes, or consumers.
fn farthest(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}

/// Returns one of the two figures of all runs.
fn parts(runs: &[Quantiles], part: fn(&Quantiles) -> f64) -> Vec<f64> {
    runs.iter().map(part).collect()
}

fn quantiles(mut latencies: Vec<f64>) -> Quantiles {
    (quantile(&mut latencies, 0.5), quantile(&mut latencies, 0.99))
}

/// Makes changes at a steady rate. Returns the milliseconds from when each was due until its end.
async fn paced<F>(change: impl Fn(usize) -> F) -> anyhow::Result<Vec<f64>>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let begin = Instant::now() + Duration::from_millis(100);
    let change = &change;
    let mut lanes = FuturesUnordered::new();
    for lane in 0..LANES {
        lanes.push(async move {
            let mut latencies = Vec::with_capacity(CHANGES / LANES + 1);
            for number in (lane..CHANGES).step_by(LANES) {
                let due = begin + due(number);
                tokio::time::sleep_until(due.into()).await;
                change(number).await?;
                latencies.push(due.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(latencies)
        });
    }
    let mut all = Vec::with_capacity(CHANGES);
    while let Some(latencies) = lanes.next().await {
        all.append(&mut latencies?);
    }
    Ok(all)
}

fn due(number: usize) -> Duration {
    Duration::from_secs(1) * number as u32 / RATE as u32
}

fn name(resource: usize) -> String {
    format!("heard/{resource:03}")
}

fn path(resource: usize) -> String {
    resource_path(&format!("bench://{}", name(resource)))
}

/// A change that was answered.
struct Answered {
    resource: usize,
    version: u64,
    /// The time at which its request was begun: when the change was due, unless the change before it in its
    /// lane was answered later than that.
    begun: Instant,
}

/// The connections that publish to one node.
struct Publishers {
    target: HttpTarget,
    sockets: Vec<Mutex<TcpStream>>,
    /// The number of bodies so far, of which no two are equal.
    bodies: std::cell::Cell<u64>,
    changes: RefCell<Vec<Answered>>,
}

impl Publishers {
    async fn open(target: &HttpTarget) -> anyhow::Result<Publishers> {
        Ok(Publishers {
            target: target.clone(),
            sockets: connect(target).await?,
            bodies: std::cell::Cell::new(0),
            changes: RefCell::default(),
        })
    }

    async fn create(&self) -> anyhow::Result<()> {
        let changes = stream::iter((0..RESOURCES).map(|resource| self.put(resource)));
        changes.buffer_unordered(LANES).try_collect::<()>().await?;
        self.changes.take();
        Ok(())
    }

    /// Makes change `number` on the connection of its lane.
    async fn put(&self, number: usize) -> anyhow::Result<()> {
        let resource = number % RESOURCES;
        let begun = Instant::now();
        let body = self.bodies.get() + 1;
        self.bodies.set(body);
        let text = format!("{body:0>BODY_BYTES$}");
        let request = self.target.request_to("PUT", &path(resource));
        let request = request.body("text/plain", text.as_bytes());
        let mut socket = self.sockets[number % LANES].lock().await;
        let answer = exchange(&mut *socket, &request).await?;
        let status = answer.head.status;
        ensure!(
            answer.head.is_success(),
            "a PUT was answered with HTTP status {status}"
        );
        let etag = answer.head.header("etag").context("a PUT has no etag")?;
        let version = etag
            .trim_start_matches("\"v")
            .split('-')
            .next()
            .unwrap_or_default();
        let version = version
            .parse()
            .with_context(|| format!("the etag {etag} has no version"))?;
        self.changes.borrow_mut().push(Answered {
            resource,
            version,
            begun,
        });
        Ok(())
    }
}

/// A raw record that was acknowledged.
struct Record {
    sequence: u64,
    begun: Instant,
}

/// Publishes a raw record, and notes when that was begun.
async fn note_record(raw: &RawLog, resource: usize, records: &RefCell<Vec<Record>>) -> anyhow::Result<()> {
    let begun = Instant::now();
    let sequence = raw.publish_record(resource).await?;
    records.borrow_mut().push(Record { sequence, begun });
    Ok(())
}

/// Returns true if a consumer was given the record at this place, or a later one.
fn reaches(deliveries: &[Delivery], sequence: u64) -> bool {
    match deliveries.last() {
        Some(newest) => newest.sequence >= sequence,
        None => false,
    }
}

/// Waits until the consumers have the last record. Returns for each record the milliseconds until all of them
/// had it, or a later one.
async fn delivered_by_all(records: &[Record], readers: &RawReaders) -> anyhow::Result<Vec<f64>> {
    let last = records.iter().map(|record| record.sequence).max().unwrap_or(0);
    let until = Instant::now() + HEARD_MAX;
    let mut all = readers.take();
    while !all.iter().all(|deliveries| reaches(deliveries, last)) {
        ensure!(Instant::now() < until, "a consumer was not given the last record");
        tokio::time::sleep(Duration::from_millis(10)).await;
        for (all, more) in std::iter::zip(&mut all, readers.take()) {
            all.extend(more);
        }
    }
    let mut times = Vec::with_capacity(records.len());
    for record in records {
        let mut of_each = Vec::with_capacity(all.len());
        for deliveries in &all {
            // One that is replaced before its turn is not delivered.
            let first = deliveries.partition_point(|delivery| delivery.sequence < record.sequence);
            let delivery = deliveries.get(first).context("a record was not delivered")?;
            let since = delivery.at.saturating_duration_since(record.begun);
            of_each.push(since.as_secs_f64() * 1e3);
        }
        times.push(farthest(&of_each));
    }
    Ok(times)
}

/// Opens a connection for each lane.
async fn connect(target: &HttpTarget) -> anyhow::Result<Vec<Mutex<TcpStream>>> {
    let mut sockets = Vec::new();
    for _ in 0..LANES {
        let socket = TcpStream::connect(target.address).await?;
        socket.set_nodelay(true)?;
        sockets.push(Mutex::new(socket));
    }
    Ok(sockets)
}

/// Waits until a node has all resources.
async fn wait_for_all(node: &Node) -> anyhow::Result<()> {
    let mut socket = TcpStream::connect(node.address()).await?;
    let until = Instant::now() + HEARD_MAX;
    for resource in 0..RESOURCES {
        let request = node.target.request_to("GET", &path(resource)).finish();
        while exchange(&mut socket, &request).await?.head.status != 200 {
            ensure!(Instant::now() < until, "a node does not hear the others");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(())
}

/// Returns true if the last version of each resource was heard.
fn has_last(heard: &[Vec<Hearing>], last: &[u64]) -> bool {
    std::iter::zip(heard, last).all(|(heard, last)| match heard.last() {
        Some(newest) => newest.version >= *last,
        None => *last == 0,
    })
}

/// Waits until the clients of all nodes have the last changes. Returns for each change the milliseconds until
/// those of each node had it, or a later one.
async fn heard_by_all(changes: &[Answered], listeners: &[Listeners]) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut last = [0; RESOURCES];
    for change in changes {
        last[change.resource] = last[change.resource].max(change.version);
    }
    let mut times = vec![Vec::new(); changes.len()];
    for listeners in listeners {
        let until = Instant::now() + HEARD_MAX;
        let mut heard: Vec<Vec<Hearing>> = vec![Vec::new(); RESOURCES];
        while !has_last(&heard, &last) {
            ensure!(Instant::now() < until, "a client was not told of the last change");
            tokio::time::sleep(Duration::from_millis(10)).await;
            for hearing in listeners.take() {
                heard[hearing.resource].push(hearing);
            }
        }
        for (change, times) in std::iter::zip(changes, &mut times) {
            let heard = &heard[change.resource];
            // A notice may stand for several changes.
            let first = heard.partition_point(|hearing| hearing.version < change.version);
            let hearing = heard.get(first).context("a change was not told")?;
            // Some hear of a change before its answer is read, none before its request was.
            let since = hearing.at.saturating_duration_since(change.begun);
            times.push(since.as_secs_f64() * 1e3);
        }
    }
    Ok(times)
}
