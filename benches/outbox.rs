//! Row `outbox`: the cost per subscriber of one change, up to the outbox, without sockets.
//!
//! The fan-out goes through the bus's public API. Its bare twins are loops over as many subscribers: one
//! locks each and sets a flag, the other leaves in each the parts of a delivery, the newest notice per URI
//! and a wake-up. All of them pass the change to a thread of their own and wait for its answer. The
//! requesting thread drains all outboxes between changes, and is not counted.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tidings::rights::Viewer;
use tidings::{Bus, Limits, OutboxReader, Resource, ResourceUri, Session, SessionOptions, SubscriberKind};
use tokio::runtime::Runtime;

use crate::Options;
use crate::support::{Column, Cpu, RUNS, Table, Threads, least, median};

/// The outboxes marked in one run, so that every size takes about as long.
const MARKS: usize = 3_000_000;
/// The outboxes drained in one run of unwatched changes. More than are marked, because such a change takes
/// little time and the kernel counts CPU in steps of milliseconds.
const UNWATCHED_DRAINS: usize = 10_000_000;

/// The resources of [`notify`]: few enough for an outbox to keep them in its small table, as most do.
const NOTIFY_RESOURCES: usize = 16;

const COLUMNS: &[Column] = &[
    ("wall_ns", "ns per outbox", 1),
    ("wall_flags_x", "x bare flags", 2),
    ("wall_outboxes_x", "x bare outboxes", 2),
    ("cpu_ns", "CPU ns per outbox", 1),
    ("cpu_flags_x", "x bare flags", 2),
    ("cpu_outboxes_x", "x bare outboxes", 2),
    ("cpu_ns_min", "least CPU ns", 1),
    ("cpu_flags_x_min", "x bare flags", 2),
    ("cpu_outboxes_x_min", "x bare outboxes", 2),
];

const LABELS: [&str; 4] = [
    "bus, 1 shard",
    "bus, a shard per core",
    "bare flags",
    "bare outboxes",
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("outbox", COLUMNS);
    for size in options.sizes(&[1_000, 10_000]) {
        let mut runs: [Vec<Run>; 4] = Default::default();
        for _ in 0..RUNS {
            runs[0].push(measure(&mut BusFanOut::start(size, 0, 1)?, size)?);
            runs[1].push(measure(&mut BusFanOut::start(size, 0, 0)?, size)?);
            runs[2].push(measure(&mut LoopFanOut::<Flag>::start(size), size)?);
            runs[3].push(measure(&mut LoopFanOut::<BareOutbox>::start(size), size)?);
        }
        let costs = runs.map(|runs| figures(&runs, size));
        let [_, _, flags, outboxes] = costs;
        for (label, cost) in std::iter::zip(LABELS, costs) {
            let is_twin = label.starts_with("bare");
            let mut line = Vec::new();
            for (index, cost) in cost.into_iter().enumerate() {
                line.extend([
                    Some(cost),
                    ratio(is_twin, cost, flags[index]),
                    ratio(is_twin, cost, outboxes[index]),
                ]);
            }
            table.add_line(format!("{label}, {size}"), line);
        }
    }
    Ok(table)
}

/// Returns the ratio to a twin; none for a twin itself, and none where the noise of a difference made one
/// side negative.
fn ratio(is_twin: bool, cost: f64, twin: f64) -> Option<f64> {
    match !is_twin && cost > 0.0 && twin > 0.0 {
        true => Some(cost / twin),
        false => None,
    }
}

/// Returns the median wall time, the median CPU and the least CPU per outbox.
fn figures(runs: &[Run], size: usize) -> [f64; 3] {
    let middle = beyond_unwatched(runs, size, median);
    let min = beyond_unwatched(runs, size, least);
    [middle.wall, middle.cpu, min.cpu]
}

/// The cost of one change, or of one outbox, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeCost {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

/// One run.
pub(crate) struct Run {
    /// A change without a subscriber.
    unwatched: ChangeCost,
    /// A change that every subscriber watches.
    watched: ChangeCost,
}

/// Returns the cost per outbox: that of a watched change beyond that of an unwatched one.
///
/// `pick` chooses among the runs before the subtraction, since a difference of single runs would be mostly
/// noise.
pub(crate) fn beyond_unwatched(runs: &[Run], size: usize, pick: fn(Vec<f64>) -> f64) -> ChangeCost {
    let wall = pick(runs.iter().map(|run| run.watched.wall).collect())
        - pick(runs.iter().map(|run| run.unwatched.wall).collect());
    let cpu = pick(runs.iter().map(|run| run.watched.cpu).collect())
        - pick(runs.iter().map(|run| run.unwatched.cpu).collect());
    ChangeCost {
        wall: wall / size as f64,
        cpu: cpu / size as f64,
    }
}

/// A publisher with many subscribers.
pub(crate) trait FanOut {
    /// Makes change number `number`, of the watched resource or of one without subscribers, and waits for the
    /// answer.
    fn publish(&mut self, watched: bool, number: usize) -> anyhow::Result<()>;

    /// Drains every subscriber; returns the number of notices.
    fn drain(&mut self) -> usize;
}

/// Measures changes of one resource that all `size` subscribers watch, and of one that none does.
pub(crate) fn measure(target: &mut impl FanOut, size: usize) -> anyhow::Result<Run> {
    Ok(Run {
        unwatched: measure_changes(target, false, (UNWATCHED_DRAINS / size).max(50), 0)?,
        watched: measure_changes(target, true, (MARKS / size).max(50), size)?,
    })
}

/// Makes `count` changes, each of which has `expected` notices; returns the median wall time and the mean CPU
/// of one.
pub(crate) fn measure_changes(
    target: &mut impl FanOut,
    watched: bool,
    count: usize,
    expected: usize,
) -> anyhow::Result<ChangeCost> {
    let mut walls = Vec::with_capacity(count);
    let cpu = Cpu::read(std::process::id(), Threads::Helpers)?;
    for number in 0..count {
        let started = Instant::now();
        target.publish(watched, number)?;
        walls.push(started.elapsed().as_nanos() as f64);
        check_notified(target.drain(), expected)?;
    }
    Ok(ChangeCost {
        wall: median(walls),
        cpu: cpu.since()? / count as f64,
    })
}

fn check_notified(notified: usize, expected: usize) -> anyhow::Result<()> {
    ensure!(
        notified == expected,
        "{notified} of {expected} subscribers were notified of one change"
    );
    Ok(())
}

/// Makes the rights of one session; none for a session that sees everything.
type MakeViewer = fn() -> Option<Arc<dyn Viewer>>;

/// The bus with sessions that watch one resource, and others that watch another.
pub(crate) struct BusFanOut {
    runtime: Runtime,
    bus: Bus,
    sessions: Vec<Session>,
    /// The readers of `sessions`.
    readers: Vec<OutboxReader>,
    others: Vec<Session>,
    /// The readers of `others`, which are open and never drained.
    idle: Vec<OutboxReader>,
}

impl BusFanOut {
    /// Starts a bus with `size` sessions that watch and `others` that do not.
    pub(crate) fn start(size: usize, others: usize, shards: usize) -> anyhow::Result<BusFanOut> {
        BusFanOut::start_for((size, others), shards, || None)
    }

    /// Starts a bus with as many sessions that watch, and that do not, each with a viewer of its own.
    pub(crate) fn start_for(
        (size, others): (usize, usize),
        shards: usize,
        viewer: MakeViewer,
    ) -> anyhow::Result<BusFanOut> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let mut limits = Limits::default();
        limits.shards = shards;
        // No keep-alive may fall into a measurement.
        limits.keep_alive = Duration::from_secs(3600);
        limits.sessions_max = limits.sessions_max.max(size + others);
        let bus = runtime.block_on(async { Bus::builder().limits(limits).start() })?;
        let mut fan_out = BusFanOut {
            runtime,
            bus,
            sessions: Vec::with_capacity(size),
            readers: Vec::new(),
            others: Vec::with_capacity(others),
            idle: Vec::new(),
        };
        fan_out.open_sessions(size, others, viewer)?;
        Ok(fan_out)
    }

    fn open_sessions(&mut self, size: usize, others: usize, viewer: MakeViewer) -> anyhow::Result<()> {
        let bus = &self.bus;
        self.runtime.block_on(async {
            for uri in ["bench://watched", "bench://quiet", "bench://other"] {
                bus.register(Resource::text(uri, "")?).await?;
            }
            for _ in 0..size {
                self.sessions
                    .push(subscribed(bus, &["bench://watched"], viewer).await?);
                // Spread evenly, as the sessions of a service are.
                for _ in 0..others / size {
                    self.others
                        .push(subscribed(bus, &["bench://other"], viewer).await?);
                }
            }
            anyhow::Ok(())
        })?;
        self.readers = self.sessions.iter().map(Session::reader).collect();
        self.idle = self.others.iter().map(Session::reader).collect();
        Ok(())
    }
}

/// Notifies `size` outboxes of [`NOTIFY_RESOURCES`] resources each, `rounds` times, and drains them after
/// every `drain_every` changes, for tools that count the instructions of the process.
pub(crate) fn notify(size: usize, rounds: usize, drain_every: Option<usize>) -> anyhow::Result<()> {
    let mut bus = BusFanOut::start(0, 0, 1)?;
    let uris: Vec<String> = (0..NOTIFY_RESOURCES)
        .map(|number| format!("bench://{number}"))
        .collect();
    bus.runtime.block_on(async {
        for uri in &uris {
            bus.bus.register(Resource::text(uri.as_str(), "")?).await?;
        }
        for _ in 0..size {
            bus.sessions.push(subscribed(&bus.bus, &uris, || None).await?);
        }
        anyhow::Ok(())
    })?;
    bus.readers = bus.sessions.iter().map(Session::reader).collect();
    for change in 0..rounds * NOTIFY_RESOURCES {
        let uri = uris[change % NOTIFY_RESOURCES].as_str();
        let resource = Resource::text(uri, format!("change {change}"))?;
        let outcome = bus.runtime.block_on(bus.bus.update(resource))?;
        check_notified(outcome.notified, size)?;
        match drain_every {
            Some(every) if (change + 1) % every == 0 => {
                bus.drain();
            }
            _ => {}
        }
    }
    // The shutdown would be counted too, and how far it comes before the process ends is chance.
    std::mem::forget(bus);
    Ok(())
}

async fn subscribed(bus: &Bus, uris: &[impl AsRef<str>], viewer: MakeViewer) -> anyhow::Result<Session> {
    let mut options = SessionOptions::new(SubscriberKind::Session, "bench");
    options.viewer = viewer();
    let session = bus.open(options).await?;
    let mut parsed = Vec::new();
    for uri in uris {
        parsed.push(ResourceUri::try_from(uri.as_ref())?);
    }
    for answer in session.subscribe(parsed).await? {
        answer?;
    }
    Ok(session)
}

impl FanOut for BusFanOut {
    fn publish(&mut self, watched: bool, number: usize) -> anyhow::Result<()> {
        let uri = match watched {
            true => "bench://watched",
            false => "bench://quiet",
        };
        let resource = Resource::text(uri, format!("change {number}"))?;
        let outcome = self.runtime.block_on(self.bus.update(resource))?;
        ensure!(outcome.changed, "change {number} of {uri} changed nothing");
        Ok(())
    }

    fn drain(&mut self) -> usize {
        let mut notices = 0;
        let mut cx = Context::from_waker(Waker::noop());
        for reader in &mut self.readers {
            // Until it is pending: only then does the reader leave its waker, as a waiting stream does.
            while reader.poll_drain(&mut cx, |_| notices += 1).is_ready() {}
        }
        notices
    }
}

impl Drop for BusFanOut {
    fn drop(&mut self) {
        // A shutdown waits for open streams.
        self.readers.clear();
        self.idle.clear();
        self.sessions.clear();
        self.others.clear();
        self.runtime.block_on(self.bus.shutdown(Duration::from_secs(5)));
    }
}

/// A notice of a twin, shared by all its subscribers.
#[derive(Debug)]
struct BareNotice {
    uri: Arc<str>,
    version: usize,
}

/// A subscriber of a twin.
trait BareSubscriber: Default + Send + Sync + 'static {
    /// Leaves a notice.
    fn mark(&self, notice: &Arc<BareNotice>);

    /// Takes the notices and leaves a waker where there is one; returns the number of notices.
    fn drain(&self) -> usize;
}

/// A version, and a flag that says that it is new.
#[derive(Default)]
struct Flag(Mutex<(usize, bool)>);

impl BareSubscriber for Flag {
    fn mark(&self, notice: &Arc<BareNotice>) {
        *lock(&self.0) = (notice.version, true);
    }

    fn drain(&self) -> usize {
        usize::from(std::mem::take(&mut lock(&self.0).1))
    }
}

/// The newest notice of each URI, and the waker of the reader.
#[derive(Default)]
struct BareOutbox(Mutex<Pending>);

#[derive(Default)]
struct Pending {
    newest: HashMap<Arc<str>, Arc<BareNotice>>,
    waker: Option<Waker>,
}

impl BareSubscriber for BareOutbox {
    fn mark(&self, notice: &Arc<BareNotice>) {
        let mut pending = lock(&self.0);
        pending.newest.insert(notice.uri.clone(), notice.clone());
        if let Some(waker) = pending.waker.take() {
            waker.wake();
        }
    }

    fn drain(&self) -> usize {
        let mut pending = lock(&self.0);
        pending.waker = Some(Waker::noop().clone());
        pending.newest.drain().count()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code panics while it holds the lock")
}

/// A twin: a thread that marks its subscribers one after the other.
struct LoopFanOut<S> {
    subscribers: Arc<Vec<Arc<S>>>,
    /// The changes to make; none once the twin ends.
    changes: Option<SyncSender<(bool, usize)>>,
    answers: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl<S: BareSubscriber> LoopFanOut<S> {
    fn start(size: usize) -> LoopFanOut<S> {
        // Each in an allocation of its own, as outboxes are.
        let subscribers: Vec<Arc<S>> = (0..size).map(|_| Arc::default()).collect();
        let subscribers = Arc::new(subscribers);
        let (changes, to_make) = sync_channel::<(bool, usize)>(1);
        let (answer, answers) = sync_channel(1);
        let marked = subscribers.clone();
        let thread = std::thread::spawn(move || {
            let uri: Arc<str> = "bench://watched".into();
            for (watched, version) in to_make {
                let uri = uri.clone();
                let notice = Arc::new(BareNotice { uri, version });
                if watched {
                    for subscriber in marked.iter() {
                        subscriber.mark(&notice);
                    }
                }
                if answer.send(()).is_err() {
                    return;
                }
            }
        });
        LoopFanOut {
            subscribers,
            changes: Some(changes),
            answers,
            thread: Some(thread),
        }
    }
}

impl<S: BareSubscriber> FanOut for LoopFanOut<S> {
    fn publish(&mut self, watched: bool, number: usize) -> anyhow::Result<()> {
        let changes = self.changes.as_ref().context("the loop has ended")?;
        changes.send((watched, number))?;
        Ok(self.answers.recv()?)
    }

    fn drain(&mut self) -> usize {
        self.subscribers.iter().map(|subscriber| subscriber.drain()).sum()
    }
}

impl<S> Drop for LoopFanOut<S> {
    fn drop(&mut self) {
        // The thread ends with its channel.
        self.changes = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the thread of a twin panicked");
        }
    }
}
