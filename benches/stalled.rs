//! Row `stalled`: the memory, in the service and in the kernel, that a session can hold which never reads.
//!
//! Owns: 100 sessions that are subscribed to as many resources as a session may be, and whose sockets nobody reads,
//! with receive buffers as the system makes them. All resources are changed again and again until nothing grows any
//! more. The history of changes, which the service keeps for others and which is bounded, is filled before.
//!
//! The service's share is the growth of its resident memory; the kernel's is what `ss` says of the service's sockets,
//! and beside it what the kernel says of all TCP sockets, which counts both ends.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::Options;
use crate::sockets::{Client, Era, Kind, Server};
use crate::support::{Column, RUNS, Spread, Table, resident_kib};

const SESSIONS: usize = 100;
/// Subscriptions of each session: `session.subscriptions_max` as it is by default.
const RESOURCES: usize = 1_000;
/// Rounds of changes before the first session: more than `events.history_max` holds by default.
const HISTORY_ROUNDS: usize = 11;
/// Rounds until nothing may grow any more, and how many of the last ones have to agree.
const ROUNDS_MAX: usize = 20;
const ROUNDS_STEADY: usize = 3;
/// What one session may grow by in a round that counts as steady: pages that come and go.
const STEADY_KIB: f64 = 1.0;
/// What the service has after a round to hand to the kernel what the kernel takes.
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
    let mut runs = Era::ALL.map(|_| Vec::new());
    for _ in 0..RUNS {
        for (era, runs) in Era::ALL.into_iter().zip(&mut runs) {
            runs.push(stall(era, sessions)?);
        }
    }
    for (era, runs) in Era::ALL.into_iter().zip(&runs) {
        let spread = |figure: &dyn Fn(&Held) -> Option<f64>| Spread::of(runs.iter().filter_map(figure));
        let figures = vec![
            spread(&|run| Some(run.kib())),
            spread(&|run| Some(run.user)),
            spread(&|run| run.sender),
            spread(&|run| run.receiver),
            spread(&|run| Some(run.both)),
            spread(&|run| Some(run.rounds as f64)),
        ];
        table.spreads(format!("{}, {sessions}", Kind::Tidings(era).label()), figures);
    }
    if runs.iter().flatten().any(|run| run.sender.is_none()) {
        table.note("not measured by socket: install iproute2; what is held counts both sockets");
    }
    Ok(table)
}

/// KiB that are held: in all, or per session.
#[derive(Debug, Clone, Copy)]
struct Held {
    user: f64,
    /// By the service's sockets and by the readers'; none without `ss`.
    sender: Option<f64>,
    receiver: Option<f64>,
    /// By all TCP sockets of this machine.
    both: f64,
    rounds: usize,
}

impl Held {
    fn now(server: &Server, rounds: usize) -> anyhow::Result<Held> {
        let port = server.address.port();
        Ok(Held {
            user: resident_kib(server.pid())?,
            sender: sockets_kib(&format!("sport = :{port}")),
            receiver: sockets_kib(&format!("dport = :{port}")),
            both: tcp_kib()?,
            rounds,
        })
    }

    /// What one of `sessions` sessions has grown by since `before`.
    fn growth(self, before: Held, sessions: usize) -> Held {
        let each = |now: f64, before: f64| (now - before) / sessions as f64;
        let each_known = |now: Option<f64>, before: Option<f64>| Some(each(now?, before?));
        Held {
            user: each(self.user, before.user),
            sender: each_known(self.sender, before.sender),
            receiver: each_known(self.receiver, before.receiver),
            both: each(self.both, before.both),
            rounds: self.rounds,
        }
    }

    /// In the service and the kernel on its side; where that is not known, on both sides.
    fn kib(&self) -> f64 {
        self.user + self.sender.unwrap_or(self.both)
    }
}

fn stall(era: Era, sessions: usize) -> anyhow::Result<Held> {
    let server = Server::start(Kind::Tidings(era), 0, &[])?;
    let names: Vec<String> = (0..RESOURCES).map(|number| format!("r{number}")).collect();
    server.create(&names)?;
    let mut publisher = Client::connect(server.address)?;
    let mut change_all = |round: usize| {
        let publication = |name: &String| server.publication(name, &format!("state {round}"));
        publisher.publish(&names.iter().map(publication).collect::<Vec<_>>())
    };
    for round in 0..HISTORY_ROUNDS {
        change_all(round)?;
    }
    let _never_read = server.open_streams(sessions, &|_| names.clone())?;
    let before = Held::now(&server, 0)?;
    let (mut last, mut steady) = (before, 0);
    for round in 1..=ROUNDS_MAX {
        change_all(HISTORY_ROUNDS + round)?;
        thread::sleep(SETTLE);
        let now = Held::now(&server, round)?;
        let is_steady = now.growth(last, sessions).kib() < STEADY_KIB;
        steady = if is_steady { steady + 1 } else { 0 };
        last = now;
        if steady == ROUNDS_STEADY {
            return Ok(now.growth(before, sessions));
        }
    }
    let grown = last.growth(before, sessions).kib();
    bail!("after {ROUNDS_MAX} rounds, in which a session has come to hold {grown:.0} KiB, it still grows")
}

/// The memory of the sockets that pass this filter: what waits to be read and what waits to be sent or confirmed, as
/// the kernel accounts it, with what is reserved for more. None without `ss`.
fn sockets_kib(filter: &str) -> Option<f64> {
    let output = Command::new("ss").args(["-tmnH", filter]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let sockets = text.split("skmem:(").skip(1);
    let bytes = sockets.flat_map(|socket| socket.split(')').next().unwrap_or_default().split(','));
    let held = bytes.filter_map(|field| {
        let digits = field.find(|letter: char| letter.is_ascii_digit())?;
        let (name, number) = field.split_at(digits);
        let is_held = matches!(name, "r" | "w" | "f" | "o" | "bl");
        number.parse::<f64>().ok().filter(|_| is_held)
    });
    Some(held.sum::<f64>() / 1024.0)
}

/// The memory of all TCP sockets, which the kernel counts in pages.
fn tcp_kib() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/net/sockstat").context("cannot read /proc/net/sockstat")?;
    let words: Vec<&str> = text
        .lines()
        .find_map(|line| line.strip_prefix("TCP:"))
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let pages = words
        .windows(2)
        .find_map(|pair| (pair[0] == "mem").then(|| pair[1].parse::<f64>().ok())?);
    Ok(pages.context("/proc/net/sockstat has no memory of TCP")? * 4.0)
}
