//! Row `outbox`: what one change costs per subscriber, up to the outbox, without sockets.
//!
//! Owns: the fan-out through the bus's public API, and its bare twins, loops over as many subscribers: one locks each and
//! sets a flag, the other leaves in each what a delivery needs, the newest notice per URI and a wake-up. All hand the
//! change to a thread of their own and wait for its answer; all are read out between changes by the thread that asked,
//! which is not counted.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tidings::{Bus, Limits, OutboxReader, Resource, ResourceUri, Session, SessionOptions, SubscriberKind};
use tokio::runtime::Runtime;

use crate::Options;
use crate::support::{Column, Cpu, RUNS, Table, Threads, least, median};

/// Outboxes marked per run, so that every size takes about as long.
const MARKS: usize = 3_000_000;
/// Outboxes read out per run though nothing was marked. More, because a change that nobody watches is soon made and
/// the kernel counts CPU in steps of milliseconds.
const LOOKS: usize = 10_000_000;

/// Resources of [`tell`]; few enough for every outbox to find them as those of most subscribers are found.
const TELL_MAX: usize = 16;

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

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("outbox", COLUMNS);
    let sizes = options.sessions.map_or(vec![1_000, 10_000], |size| vec![size]);
    for size in sizes {
        let mut runs: [(&str, Vec<Run>); 4] = LINES.map(|line| (line, Vec::new()));
        for _ in 0..RUNS {
            runs[0].1.push(fan_out(&mut OfBus::start(size, 0, 1)?, size)?);
            runs[1].1.push(fan_out(&mut OfBus::start(size, 0, 0)?, size)?);
            runs[2].1.push(fan_out(&mut OfLoop::<Flag>::start(size), size)?);
            runs[3]
                .1
                .push(fan_out(&mut OfLoop::<Letters>::start(size), size)?);
        }
        let costs = runs.map(|(line, runs)| (line, figures(&runs, size)));
        let [_, _, (_, flags), (_, letters)] = costs;
        for (line, cost) in costs {
            // A difference within the noise may be below zero, and a ratio to it says nothing; neither does one of a
            // twin.
            let ratio = |cost: f64, bare: f64| {
                (line.starts_with("bus") && cost > 0.0 && bare > 0.0).then_some(cost / bare)
            };
            let figures = cost.into_iter().zip(flags).zip(letters);
            let figures = figures
                .flat_map(|((cost, flags), letters)| [Some(cost), ratio(cost, flags), ratio(cost, letters)]);
            table.line(format!("{line}, {size}"), figures.collect());
        }
    }
    Ok(table)
}

const LINES: [&str; 4] = [
    "bus, 1 shard",
    "bus, a shard per core",
    "bare flags",
    "bare outboxes",
];

/// Per outbox: median wall time, median CPU, least CPU.
fn figures(runs: &[Run], size: usize) -> [f64; 3] {
    let (middle, min) = (beyond(runs, size, median), beyond(runs, size, least));
    [middle.wall, middle.cpu, min.cpu]
}

/// Nanoseconds: of one change, or per outbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

/// One run: a change that nobody watches, and one that everybody does.
type Run = (Cost, Cost);

/// Per outbox, what `pick` makes of all runs of a watched change beyond what it makes of the others. Picked first,
/// subtracted then: a difference of single runs would be mostly their noise.
fn beyond(runs: &[Run], size: usize, pick: fn(Vec<f64>) -> f64) -> Cost {
    let cost = |figure: fn(&Cost) -> f64| {
        let quiet = pick(runs.iter().map(|(quiet, _)| figure(quiet)).collect());
        let watched = pick(runs.iter().map(|(_, watched)| figure(watched)).collect());
        (watched - quiet) / size as f64
    };
    Cost {
        wall: cost(|cost| cost.wall),
        cpu: cost(|cost| cost.cpu),
    }
}

/// Something that tells many.
pub(crate) trait FanOut {
    /// Makes change number `number`, of the watched thing or of one that nobody watches, and waits for the answer.
    fn publish(&mut self, watched: bool, number: usize) -> anyhow::Result<()>;
    /// Reads every subscriber out.
    fn drain(&mut self) -> usize;
}

/// Makes changes that nobody watches, then changes that everybody does.
fn fan_out(target: &mut impl FanOut, size: usize) -> anyhow::Result<Run> {
    let quiet = rounds_of(target, false, (LOOKS / size).max(50), 0)?;
    let watched = rounds_of(target, true, (MARKS / size).max(50), size)?;
    Ok((quiet, watched))
}

/// The median wall time and the mean CPU of one change.
pub(crate) fn rounds_of(
    target: &mut impl FanOut,
    watched: bool,
    rounds: usize,
    expected: usize,
) -> anyhow::Result<Cost> {
    let pid = std::process::id();
    let mut walls = Vec::with_capacity(rounds);
    let before = Cpu::read(pid, Threads::Helpers)?;
    for round in 0..rounds {
        let started = Instant::now();
        target.publish(watched, round)?;
        walls.push(started.elapsed().as_nanos() as f64);
        let told = target.drain();
        ensure!(
            told == expected,
            "{told} of {expected} subscribers were told of one change"
        );
    }
    Ok(Cost {
        wall: median(walls),
        cpu: before.since()? / rounds as f64,
    })
}

/// The bus with sessions that watch one resource, and bystanders that watch another.
pub(crate) struct OfBus {
    runtime: Runtime,
    bus: Bus,
    /// Of those who watch.
    readers: Vec<OutboxReader>,
    sessions: Vec<Session>,
    idle: Vec<OutboxReader>,
    bystanders: Vec<Session>,
}

impl OfBus {
    pub(crate) fn start(size: usize, bystanders: usize, shards: usize) -> anyhow::Result<OfBus> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let mut limits = Limits::default();
        limits.shards = shards;
        // No sign of life may fall into a measurement.
        limits.keep_alive = Duration::from_secs(3600);
        limits.sessions_max = limits.sessions_max.max(size + bystanders);
        let (bus, sessions, bystanders) = runtime.block_on(async {
            let bus = Bus::builder().limits(limits).start()?;
            bus.register(Resource::text("bench://watched", "")?).await?;
            bus.register(Resource::text("bench://quiet", "")?).await?;
            bus.register(Resource::text("bench://other", "")?).await?;
            // Spread evenly among the bystanders, as subscribers are.
            let (mut sessions, mut others) = (Vec::with_capacity(size), Vec::with_capacity(bystanders));
            for _ in 0..size {
                sessions.push(subscribed(&bus, "bench://watched").await?);
                for _ in 0..bystanders / size {
                    others.push(subscribed(&bus, "bench://other").await?);
                }
            }
            anyhow::Ok((bus, sessions, others))
        })?;
        Ok(OfBus {
            runtime,
            bus,
            readers: sessions.iter().map(Session::reader).collect(),
            sessions,
            idle: bystanders.iter().map(Session::reader).collect(),
            bystanders,
        })
    }
}

/// Tells `size` outboxes of [`TELL_MAX`] resources each, `rounds` times, and drains them after every so many changes, if
/// ever; for whoever counts what the process does.
pub(crate) fn tell(size: usize, rounds: usize, drain_every: Option<usize>) -> anyhow::Result<()> {
    let mut bus = OfBus::start(0, 0, 1)?;
    let uri = |number: usize| ResourceUri::try_from(format!("bench://{number}"));
    let uris: Vec<ResourceUri> = (0..TELL_MAX).map(uri).collect::<Result<_, _>>()?;
    bus.runtime.block_on(async {
        for uri in &uris {
            bus.bus.register(Resource::text(uri, "")?).await?;
        }
        for _ in 0..size {
            let options = SessionOptions::new(SubscriberKind::Session, "bench");
            let session = bus.bus.open(options).await?;
            session.subscribe(uris.clone()).await?;
            bus.sessions.push(session);
        }
        anyhow::Ok(())
    })?;
    bus.readers = bus.sessions.iter().map(Session::reader).collect();
    for change in 0..rounds * TELL_MAX {
        let resource = Resource::text(&uris[change % TELL_MAX], format!("change {change}"))?;
        let told = bus.runtime.block_on(bus.bus.update(resource))?.notified;
        ensure!(
            told == size,
            "{told} of {size} subscribers were told of one change"
        );
        if drain_every.is_some_and(|every| (change + 1) % every == 0) {
            bus.drain();
        }
    }
    // Its end would be counted too, and how far that comes before the process ends is chance.
    std::mem::forget(bus);
    Ok(())
}

async fn subscribed(bus: &Bus, uri: &str) -> anyhow::Result<Session> {
    let options = SessionOptions::new(SubscriberKind::Session, "bench");
    let session = bus.open(options).await?;
    for answer in session.subscribe(vec![ResourceUri::try_from(uri)?]).await? {
        answer?;
    }
    Ok(session)
}

impl FanOut for OfBus {
    fn publish(&mut self, watched: bool, number: usize) -> anyhow::Result<()> {
        let uri = if watched {
            "bench://watched"
        } else {
            "bench://quiet"
        };
        let resource = Resource::text(uri, format!("change {number}"))?;
        let outcome = self.runtime.block_on(self.bus.update(resource))?;
        ensure!(outcome.changed, "change {number} of {uri} changed nothing");
        Ok(())
    }

    fn drain(&mut self) -> usize {
        let mut told = 0;
        let mut cx = Context::from_waker(Waker::noop());
        for reader in &mut self.readers {
            // Until it is pending: only then does the reader leave its waker, as a stream that waits does.
            while reader.poll_drain(&mut cx, |_| told += 1).is_ready() {}
        }
        told
    }
}

impl Drop for OfBus {
    fn drop(&mut self) {
        // Shutting down waits for streams that are still open.
        self.readers.clear();
        self.idle.clear();
        self.sessions.clear();
        self.bystanders.clear();
        self.runtime.block_on(self.bus.shutdown(Duration::from_secs(5)));
    }
}

/// What is told: shared by all who are.
#[derive(Debug)]
struct Letter {
    uri: Arc<str>,
    version: usize,
}

/// What a subscriber is to a twin.
trait Told: Default + Send + Sync + 'static {
    fn mark(&self, letter: &Arc<Letter>);
    /// Reads it out, and waits for more; answers how much it was told.
    fn drain(&self) -> usize;
}

/// A number and a flag.
#[derive(Default)]
struct Flag(Mutex<(usize, bool)>);

impl Told for Flag {
    fn mark(&self, letter: &Arc<Letter>) {
        *lock(&self.0) = (letter.version, true);
    }

    fn drain(&self) -> usize {
        usize::from(std::mem::take(&mut lock(&self.0).1))
    }
}

/// The newest letter of each URI, and who is woken for them.
#[derive(Default)]
struct Letters(Mutex<Held>);

#[derive(Default)]
struct Held {
    newest: HashMap<Arc<str>, Arc<Letter>>,
    waker: Option<Waker>,
}

impl Told for Letters {
    fn mark(&self, letter: &Arc<Letter>) {
        let mut held = lock(&self.0);
        held.newest.insert(letter.uri.clone(), letter.clone());
        if let Some(waker) = held.waker.take() {
            waker.wake();
        }
    }

    fn drain(&self) -> usize {
        let mut held = lock(&self.0);
        held.waker = Some(Waker::noop().clone());
        held.newest.drain().count()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nobody panics with the lock held")
}

/// A thread that walks the subscribers.
struct OfLoop<T> {
    told: Arc<Vec<Arc<T>>>,
    asks: Option<SyncSender<(bool, usize)>>,
    answers: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Told> OfLoop<T> {
    fn start(size: usize) -> OfLoop<T> {
        let told: Vec<_> = (0..size).map(|_| Arc::<T>::default()).collect();
        let told = Arc::new(told);
        let (asks, asked) = sync_channel::<(bool, usize)>(1);
        let (answer, answers) = sync_channel(1);
        let walked = told.clone();
        let walk = move || {
            let uri: Arc<str> = "bench://watched".into();
            for (watched, version) in asked {
                let uri = uri.clone();
                let letter = Arc::new(Letter { uri, version });
                for told in walked.iter().filter(|_| watched) {
                    told.mark(&letter);
                }
                if answer.send(()).is_err() {
                    return;
                }
            }
        };
        OfLoop {
            told,
            asks: Some(asks),
            answers,
            thread: Some(std::thread::spawn(walk)),
        }
    }
}

impl<T: Told> FanOut for OfLoop<T> {
    fn publish(&mut self, watched: bool, number: usize) -> anyhow::Result<()> {
        let asks = self.asks.as_ref().context("the loop was asked after its end")?;
        asks.send((watched, number))?;
        Ok(self.answers.recv()?)
    }

    fn drain(&mut self) -> usize {
        self.told.iter().map(|told| told.drain()).sum()
    }
}

impl<T> Drop for OfLoop<T> {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
