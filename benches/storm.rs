//! Row `storm`: how fast sessions open when everybody comes at once.
//!
//! Owns: many clients that begin as soon as the one before them on their thread is done, each on a connection of its
//! own: `initialize`, `initialized`, a subscription and the stream in one era, one request in the other. Nothing is
//! changed meanwhile. Server and clients share the machine; what the clients take of it is shown.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::Options;
use crate::sockets::{Client, Era, Kind, Server, WATCHED, fit, listen, open_stream, start_session};
use crate::support::{Column, Cpu, RUNS, Spread, Table, Threads};

const SESSIONS: usize = 10_000;
/// Sessions that open at the same time, each on a thread.
const AT_ONCE: usize = 64;

const COLUMNS: &[Column] = &[
    ("sessions_s", "sessions/s", 0),
    ("server_us", "server CPU µs per session", 0),
    ("client_us", "client CPU µs per session", 0),
    ("refused", "refused", 0),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    fit(sessions)?;
    let mut table = Table::new("storm", COLUMNS);
    let mut runs = Era::ALL.map(|_| Vec::new());
    for _ in 0..RUNS {
        for (era, runs) in Era::ALL.into_iter().zip(&mut runs) {
            runs.push(storm(era, sessions)?);
        }
    }
    for (era, runs) in Era::ALL.into_iter().zip(&runs) {
        let spread = |figure: fn(&Figures) -> f64| Spread::of(runs.iter().map(figure));
        let figures = vec![
            spread(|run| run.sessions_s),
            spread(|run| run.server_us),
            spread(|run| run.client_us),
            spread(|run| run.refused),
        ];
        table.spreads(format!("{}, {sessions}", Kind::Tidings(era).label()), figures);
        if let Some(reason) = runs.iter().find_map(|run| run.reason.as_ref()) {
            table.note(format!("{}: refused: {reason}", era.name()));
        }
    }
    Ok(table)
}

/// What one storm came to.
struct Figures {
    sessions_s: f64,
    server_us: f64,
    client_us: f64,
    refused: f64,
    /// Why the first one was refused.
    reason: Option<String>,
}

fn storm(era: Era, sessions: usize) -> anyhow::Result<Figures> {
    let server = Server::start(Kind::Tidings(era), 0, &[])?;
    let names = [WATCHED.to_owned()];
    server.create(&names)?;
    let (next, address) = (AtomicUsize::new(0), server.address);
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < sessions);
    let client = || {
        let all = std::iter::from_fn(take).map(|index| open(era, address, index, &names));
        all.collect::<Vec<_>>()
    };
    let (started, own) = (Instant::now(), own_cpu_us()?);
    let server_before = Cpu::read(server.pid(), Threads::All)?;
    let opened: Vec<anyhow::Result<TcpStream>> = thread::scope(|scope| {
        let clients: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(client)).collect();
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client reports what fails"))
            .collect()
    });
    let each = |total: f64| total / sessions as f64;
    let failures: Vec<_> = opened.iter().filter_map(|opened| opened.as_ref().err()).collect();
    Ok(Figures {
        sessions_s: (sessions - failures.len()) as f64 / started.elapsed().as_secs_f64(),
        server_us: each(server_before.since()? / 1e3),
        client_us: each(own_cpu_us()? - own),
        refused: failures.len() as f64,
        reason: failures.first().map(|failure| format!("{failure:#}")),
    })
}

/// Opens one session with its subscription and its stream, all on one connection.
fn open(era: Era, address: SocketAddr, index: usize, names: &[String]) -> anyhow::Result<TcpStream> {
    let mut client = Client::connect(address)?;
    match era {
        Era::Listen => listen(client, index, names),
        Era::Sessions => {
            let headers = start_session(&mut client, names)?;
            open_stream(client, &headers)
        }
    }
}

/// What this process has used, threads that have ended included.
fn own_cpu_us() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("cannot read what this process has used")?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64)
}
