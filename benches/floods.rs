//! Row `floods`: the streams of others while one client floods the service with frames of HTTP/2.
//!
//! A hundred listen streams on ten connections watch a resource that is changed all the time: before a flood,
//! and during it. A flood has one connection at a time, and a new one as soon as the service ends it.
//! Half-open requests have as many connections as the service takes from one address.

mod frames;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use tidings::wire::http2::frames::PREFACE;

use self::frames::{FLOODS, Flood};
use crate::Options;
use crate::sockets::{Kind, Server, StreamPlan, Streams, WATCHED, delivery_bytes};
use crate::support::{Column, Cpu, Table, Threads, quantile, resident_kib};

/// The streams of others: connections, and streams of each.
const OTHERS: (usize, usize) = (10, 10);
/// The time of a flood, unless `--seconds` has another one.
const FLOOD: Duration = Duration::from_secs(60);
/// The part of it for which the others are measured before.
const BEFORE_PART: u32 = 4;
/// The pause between two changes.
const PAUSE: Duration = Duration::from_millis(10);
/// A connection that takes nothing for this long is given up for another one.
const GIVE_UP: Duration = Duration::from_secs(1);

const COLUMNS: &[Column] = &[
    ("mib_per_s", "MiB sent per s", 1),
    ("connections", "connections", 0),
    ("cpu_x", "cores of the service", 2),
    ("before_p99_ms", "p99 ms before", 2),
    ("during_p99_ms", "p99 ms during", 2),
    ("p99_x", "÷ before", 2),
    ("growth_mib", "growth MiB at most", 1),
    ("after_mib", "growth MiB after", 1),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let time = match options.seconds {
        Some(seconds) => Duration::from_secs(seconds),
        None => FLOOD,
    };
    let mut table = Table::new("floods", COLUMNS);
    let part = options.flood.as_deref().unwrap_or_default();
    for flood in FLOODS.iter().filter(|flood| flood.name.contains(part)) {
        table.add_line(flood.name, measure(flood, time)?);
    }
    Ok(table)
}

fn measure(flood: &'static Flood, time: Duration) -> anyhow::Result<Vec<Option<f64>>> {
    let mut others = Others::open()?;
    others.change_for(time / BEFORE_PART / 4)?;
    let mut before = others.change_for(time / BEFORE_PART)?;
    let memory = resident_kib(others.server.pid())?;
    others.memory_max = memory;
    let cpu = Cpu::read(others.server.pid(), Threads::All)?;
    let started = Instant::now();
    let flooding = Flooding::start(flood, others.server.address());
    let mut during = others.change_for(time)?;
    let sent = flooding.stop()?;
    let seconds = started.elapsed().as_secs_f64();
    let cores = cpu.since()? / 1e9 / seconds;
    others.change_for(time / BEFORE_PART)?;
    let after = resident_kib(others.server.pid())?;
    let before = quantile(&mut before, 0.99);
    let during = quantile(&mut during, 0.99);
    let figures = [
        sent.bytes as f64 / f64::from(1 << 20) / seconds,
        sent.connections as f64,
        cores,
        before,
        during,
        during / before,
        (others.memory_max - memory) / 1024.0,
        (after - memory) / 1024.0,
    ];
    Ok(figures.map(Some).to_vec())
}

/// The service, and the streams of clients that do no harm.
struct Others {
    server: Server,
    streams: Streams,
    changes: usize,
    memory_max: f64,
}

impl Others {
    fn open() -> anyhow::Result<Others> {
        let server = Server::start(Kind::TidingsStreams, delivery_bytes()?, &[])?;
        server.create(&[WATCHED.to_owned()])?;
        let publishers = [server.publisher()?, server.publisher()?];
        let plan = StreamPlan {
            connections: OTHERS.0,
            each: OTHERS.1,
            shut: 0,
            names: &|_| vec![WATCHED.to_owned()],
        };
        let streams = Streams::open(&server.target()?, &plan, publishers)?;
        Ok(Others {
            server,
            streams,
            changes: 0,
            memory_max: 0.0,
        })
    }

    /// Changes the resource for `time`. Returns after how many milliseconds each stream had each change.
    fn change_for(&mut self, time: Duration) -> anyhow::Result<Vec<f64>> {
        let started = Instant::now();
        let mut latencies = Vec::new();
        while started.elapsed() < time {
            self.changes += 1;
            let state = format!("state {}", self.changes);
            latencies.extend(self.streams.change(&self.server.publication(WATCHED, &state)?)?);
            self.memory_max = self.memory_max.max(resident_kib(self.server.pid())?);
            std::thread::sleep(PAUSE);
        }
        Ok(latencies)
    }
}

/// What a flood has sent.
#[derive(Default)]
struct Sent {
    bytes: usize,
    connections: usize,
}

/// A flood under way, on a thread of its own.
struct Flooding {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Sent>>,
}

impl Flooding {
    fn start(flood: &'static Flood, server: SocketAddr) -> Flooding {
        let ended = Arc::new(AtomicBool::new(false));
        let until = ended.clone();
        let thread = std::thread::spawn(move || {
            let mut sent = Sent::default();
            let mut kept = Vec::new();
            while !until.load(Ordering::Relaxed) {
                let mut stream = TcpStream::connect(server)?;
                sent.connections += 1;
                send(&mut stream, flood, &until, &mut sent.bytes);
                if flood.connections > 1 {
                    kept.push(stream);
                    if kept.len() == flood.connections {
                        kept.remove(0);
                    }
                }
            }
            Ok(sent)
        });
        Flooding { ended, thread }
    }

    fn stop(self) -> anyhow::Result<Sent> {
        self.ended.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_panic| anyhow!("the flood panicked"))?
    }
}

/// Sends frames on a connection until it is at its end, or the flood is.
fn send(stream: &mut TcpStream, flood: &Flood, until: &AtomicBool, bytes: &mut usize) {
    if stream.set_nonblocking(true).is_err() || stream.write_all(PREFACE).is_err() {
        return;
    }
    let mut answers = vec![0; 64 << 10];
    let mut taken = Instant::now();
    let mut turn = 0;
    let mut rest = Vec::new();
    while !until.load(Ordering::Relaxed) && taken.elapsed() < GIVE_UP {
        if rest.is_empty() {
            match flood.turns {
                Some(turns) if turn == turns => return,
                _ => rest = (flood.frames)(turn),
            }
            turn += 1;
        }
        match stream.write(&rest) {
            Ok(count) => {
                rest.drain(..count);
                *bytes += count;
                taken = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return,
        }
        if flood.reads {
            match stream.read(&mut answers) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}
