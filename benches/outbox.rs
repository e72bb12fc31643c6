//! Row `outbox`: what one change costs per subscriber, up to the outbox, without sockets.
//!
//! Owns: the fan-out through the bus's public API, and its bare twin, a loop that locks each subscriber and sets a
//! flag. Both hand the change to a thread of their own and wait for its answer; both are read out between changes by
//! the thread that asked, which is not counted.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
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

const COLUMNS: &[Column] = &[
    ("wall_ns", "ns per outbox", 1),
    ("wall_x", "x bare", 2),
    ("cpu_ns", "CPU ns per outbox", 1),
    ("cpu_x", "x bare", 2),
    ("cpu_ns_min", "least CPU ns", 1),
    ("cpu_x_min", "x bare", 2),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new("outbox", COLUMNS);
    let sizes = options.sessions.map_or(vec![1_000, 10_000], |size| vec![size]);
    for size in sizes {
        let (mut one, mut each, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..RUNS {
            one.push(fan_out(&mut OfBus::start(size, 1)?, size)?);
            each.push(fan_out(&mut OfBus::start(size, 0)?, size)?);
            bare.push(fan_out(&mut OfLoop::start(size), size)?);
        }
        let (bare, bare_min) = (beyond(&bare, size, median), beyond(&bare, size, least));
        for (label, runs) in [("bus, 1 shard", one), ("bus, a shard per core", each)] {
            let (cost, min) = (beyond(&runs, size, median), beyond(&runs, size, least));
            let pairs = [
                (cost.wall, bare.wall),
                (cost.cpu, bare.cpu),
                (min.cpu, bare_min.cpu),
            ];
            // A difference within the noise may be below zero, and a ratio to it says nothing.
            let ratio = |cost: f64, bare: f64| (cost > 0.0 && bare > 0.0).then_some(cost / bare);
            let figures = pairs.map(|(cost, bare)| [Some(cost), ratio(cost, bare)]);
            let figures = figures.into_iter().flatten();
            table.line(format!("{label}, {size}"), figures.collect());
        }
        let figures = [bare.wall, bare.cpu, bare_min.cpu];
        let figures = figures.iter().flat_map(|cost| [Some(*cost), None]);
        table.line(format!("bare loop, {size}"), figures.collect());
    }
    Ok(table)
}

/// Nanoseconds: of one change, or per outbox.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
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
trait FanOut {
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
fn rounds_of(
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

/// The bus with sessions that watch one resource.
struct OfBus {
    runtime: Runtime,
    bus: Bus,
    readers: Vec<OutboxReader>,
    sessions: Vec<Session>,
}

impl OfBus {
    fn start(size: usize, shards: usize) -> anyhow::Result<OfBus> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        let mut limits = Limits::default();
        limits.shards = shards;
        // No sign of life may fall into a measurement.
        limits.keep_alive = Duration::from_secs(3600);
        limits.sessions_max = limits.sessions_max.max(size);
        let (bus, sessions) = runtime.block_on(async {
            let bus = Bus::builder().limits(limits).start()?;
            bus.register(Resource::text("bench://watched", "")?).await?;
            bus.register(Resource::text("bench://quiet", "")?).await?;
            let watched = ResourceUri::try_from("bench://watched")?;
            let options = SessionOptions::new(SubscriberKind::Session, "bench");
            let mut sessions = Vec::with_capacity(size);
            for _ in 0..size {
                let session = bus.open(options.clone()).await?;
                for answer in session.subscribe(vec![watched.clone()]).await? {
                    answer?;
                }
                sessions.push(session);
            }
            anyhow::Ok((bus, sessions))
        })?;
        Ok(OfBus {
            runtime,
            bus,
            readers: sessions.iter().map(Session::reader).collect(),
            sessions,
        })
    }
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
        self.sessions.clear();
        self.runtime.block_on(self.bus.shutdown(Duration::from_secs(5)));
    }
}

/// What a subscriber is to the twin.
#[derive(Debug, Default)]
struct Slot {
    version: usize,
    dirty: bool,
}

/// A thread that walks the subscribers.
struct OfLoop {
    slots: Arc<Vec<Arc<Mutex<Slot>>>>,
    asks: Option<SyncSender<(bool, usize)>>,
    answers: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl OfLoop {
    fn start(size: usize) -> OfLoop {
        let slots: Vec<_> = (0..size).map(|_| Arc::<Mutex<Slot>>::default()).collect();
        let slots = Arc::new(slots);
        let (asks, asked) = sync_channel::<(bool, usize)>(1);
        let (answer, answers) = sync_channel(1);
        let walked = slots.clone();
        let walk = move || {
            for (watched, number) in asked {
                for slot in walked.iter().filter(|_| watched) {
                    let mut slot = slot.lock().expect("nobody panics with the lock held");
                    slot.version = number;
                    slot.dirty = true;
                }
                if answer.send(()).is_err() {
                    return;
                }
            }
        };
        OfLoop {
            slots,
            asks: Some(asks),
            answers,
            thread: Some(std::thread::spawn(walk)),
        }
    }
}

impl FanOut for OfLoop {
    fn publish(&mut self, watched: bool, number: usize) -> anyhow::Result<()> {
        let asks = self.asks.as_ref().context("the loop was asked after its end")?;
        asks.send((watched, number))?;
        Ok(self.answers.recv()?)
    }

    fn drain(&mut self) -> usize {
        let slots = self.slots.iter();
        slots
            .filter(|slot| {
                let mut slot = slot.lock().expect("nobody panics with the lock held");
                std::mem::take(&mut slot.dirty)
            })
            .count()
    }
}

impl Drop for OfLoop {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
