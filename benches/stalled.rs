//! Row `stalled`: the memory, in the service and in the kernel, of a session that never reads.
//!
//! Each of 100 sessions subscribes to as many resources as a session may, and never reads its socket, whose
//! receive buffer has the system's default size. All resources are changed until the memory no longer grows.
//! The history of changes, which the service keeps for other subscribers, is filled before.
//!
//! The service's share is the growth of its resident memory. The kernel's share is the memory that `ss` shows
//! for the service's sockets; the kernel's total of all TCP sockets, which counts both ends, stands beside
//! it.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::Options;
use crate::sockets::{Era, Kind, Server, connect, publish};
use crate::support::{Column, RUNS, Spread, Table, resident_kib};

const SESSIONS: usize = 100;
/// The subscriptions of each session: the default of `session.subscriptions_max`.
const RESOURCES: usize = 1_000;
/// The rounds of changes before the first session: more changes than the default of `events.history_max`.
const HISTORY_ROUNDS: usize = 11;
/// The rounds until the memory must be steady, and the steady rounds in a row that prove it.
const ROUNDS_MAX: usize = 20;
const ROUNDS_STEADY: usize = 3;
/// The growth of one session in a steady round: pages come and go.
const STEADY_KIB: f64 = 1.0;
/// The time that the service has after a round to fill the kernel's buffers.
const SETTLE: Duration = Duration::from_millis(300);

const COLUMNS: &[Column] = &[
    ("held_kib", "KiB held per session", 1),
    ("user_kib", "of it in the service", 1),
    ("sender_kib", "in its socket", 1),
    ("receiver_kib", "beside it, in the reader's socket", 1),
    ("both_kib", "both sockets, by the kernel's total", 1),
    ("rounds", "rounds until steady", 0),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    let mut table = Table::new("stalled", COLUMNS);
    let mut runs: [Vec<Held>; 2] = Default::default();
    for _ in 0..RUNS {
        for (era, runs) in std::iter::zip(Era::ALL, &mut runs) {
            runs.push(stall(era, sessions)?);
        }
    }
    for (era, runs) in std::iter::zip(Era::ALL, &runs) {
        let figures = vec![
            Spread::of(runs.iter().map(Held::kib)),
            Spread::of(runs.iter().map(|run| run.user)),
            Spread::of(runs.iter().flat_map(|run| run.sender)),
            Spread::of(runs.iter().flat_map(|run| run.receiver)),
            Spread::of(runs.iter().map(|run| run.both)),
            Spread::of(runs.iter().map(|run| run.rounds as f64)),
        ];
        table.add_spreads(format!("{}, {sessions}", Kind::Tidings(era).label()), figures);
    }
    if runs.iter().flatten().any(|run| run.sender.is_none()) {
        table.add_note("not measured by socket: install iproute2; the memory held counts both sockets");
    }
    Ok(table)
}

/// The memory held, in KiB: in all, or per session.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// By the service.
    user: f64,
    /// By the service's sockets; none without `ss`.
    sender: Option<f64>,
    /// By the readers' sockets; none without `ss`.
    receiver: Option<f64>,
    /// By all TCP sockets of this machine.
    both: f64,
    rounds: usize,
}

impl Held {
    fn now(server: &Server, rounds: usize) -> anyhow::Result<Held> {
        let port = server.target()?.address.port();
        Ok(Held {
            user: resident_kib(server.pid())?,
            sender: sockets_kib(&format!("sport = :{port}")),
            receiver: sockets_kib(&format!("dport = :{port}")),
            both: tcp_kib()?,
            rounds,
        })
    }

    /// Returns the growth of one of `sessions` sessions since `before`.
    fn growth(self, before: Held, sessions: usize) -> Held {
        let sessions = sessions as f64;
        Held {
            user: (self.user - before.user) / sessions,
            sender: growth_of_known(self.sender, before.sender, sessions),
            receiver: growth_of_known(self.receiver, before.receiver, sessions),
            both: (self.both - before.both) / sessions,
            rounds: self.rounds,
        }
    }

    /// Returns the memory in the service and in the kernel on its side, or on both sides where that is not
    /// known.
    fn kib(&self) -> f64 {
        self.user + self.sender.unwrap_or(self.both)
    }
}

fn growth_of_known(now: Option<f64>, before: Option<f64>, sessions: f64) -> Option<f64> {
    Some((now? - before?) / sessions)
}

fn stall(era: Era, sessions: usize) -> anyhow::Result<Held> {
    let server = Server::start(Kind::Tidings(era), 0, &[])?;
    let names: Vec<String> = (0..RESOURCES).map(|number| format!("r{number}")).collect();
    server.create(&names)?;
    let mut publisher = connect(server.target()?.address)?;
    for round in 0..HISTORY_ROUNDS {
        publish(&mut publisher, &changes(&server, &names, round)?)?;
    }
    // Kept open, and never read.
    let _streams = server.open_streams(sessions, &|_| names.clone())?;
    let before = Held::now(&server, 0)?;
    let mut last = before;
    let mut steady = 0;
    for round in 1..=ROUNDS_MAX {
        publish(&mut publisher, &changes(&server, &names, HISTORY_ROUNDS + round)?)?;
        thread::sleep(SETTLE);
        let now = Held::now(&server, round)?;
        match now.growth(last, sessions).kib() < STEADY_KIB {
            true => steady += 1,
            false => steady = 0,
        }
        last = now;
        if steady == ROUNDS_STEADY {
            return Ok(now.growth(before, sessions));
        }
    }
    let grown = last.growth(before, sessions).kib();
    bail!("after {ROUNDS_MAX} rounds, in which a session came to hold {grown:.0} KiB, it still grows")
}

/// Returns the requests that change all resources.
fn changes(server: &Server, names: &[String], round: usize) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut requests = Vec::new();
    for name in names {
        requests.push(server.publication(name, &format!("state {round}"))?);
    }
    Ok(requests)
}

/// Returns the memory of the sockets that pass a filter of `ss`; none without `ss`.
///
/// It counts the bytes that wait to be read, sent or confirmed as the kernel accounts them, with the memory
/// reserved for more.
fn sockets_kib(filter: &str) -> Option<f64> {
    let output = Command::new("ss").args(["-tmnH", filter]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut bytes = 0.0;
    for socket in text.split("skmem:(").skip(1) {
        // Fields such as `r0,rb131072,t0`: a name, and a number.
        for field in socket.split(')').next().unwrap_or_default().split(',') {
            let name = field.trim_end_matches(|letter: char| letter.is_ascii_digit());
            if matches!(name, "r" | "w" | "f" | "o" | "bl") {
                bytes += field[name.len()..].parse().unwrap_or(0.0);
            }
        }
    }
    Some(bytes / 1024.0)
}

/// Returns the memory of all TCP sockets, which the kernel counts in pages.
fn tcp_kib() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/net/sockstat").context("cannot read /proc/net/sockstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"));
    let mut words = line.unwrap_or_default().split_whitespace();
    words.find(|word| *word == "mem");
    let pages = words.next().unwrap_or_default().parse::<f64>();
    Ok(pages.context("/proc/net/sockstat has no memory of TCP")? * 4.0)
}
