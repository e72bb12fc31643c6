//! Row `storm`: how fast sessions open when all clients come at once.
//!
//! Each client opens the next session as soon as it has opened one, each on a connection of its own:
//! `initialize`, `initialized`, a subscription and the stream in one era, one request in the other. Nothing
//! is changed meanwhile. Server and clients share the machine, so the CPU of the clients is shown too.

use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tidings::wire::dialect::Revision;
use tidings::wire::http1::HttpTarget;

use crate::Options;
use crate::sockets::{
    Era, Kind, Server, WATCHED, connect, fit, listen, open_session, open_session_stream, subscribe,
};
use crate::support::{Column, Cpu, RUNS, Spread, Table, Threads};

const SESSIONS: usize = 10_000;
/// The clients, each on a thread.
const CLIENTS: usize = 64;

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
        for (era, runs) in std::iter::zip(Era::ALL, &mut runs) {
            runs.push(storm(era, sessions)?);
        }
    }
    for (era, runs) in std::iter::zip(Era::ALL, &runs) {
        let figures = vec![
            Spread::of(runs.iter().map(|run| run.sessions_s)),
            Spread::of(runs.iter().map(|run| run.server_us)),
            Spread::of(runs.iter().map(|run| run.client_us)),
            Spread::of(runs.iter().map(|run| run.refused)),
        ];
        table.add_spreads(format!("{}, {sessions}", Kind::Tidings(era).label()), figures);
        if let Some(reason) = runs.iter().find_map(|run| run.reason.as_ref()) {
            table.add_note(format!("{}: refused: {reason}", era.name()));
        }
    }
    Ok(table)
}

/// The figures of one storm.
struct Figures {
    sessions_s: f64,
    server_us: f64,
    client_us: f64,
    refused: f64,
    /// The error of the first session that could not be opened.
    reason: Option<String>,
}

fn storm(era: Era, sessions: usize) -> anyhow::Result<Figures> {
    let server = Server::start(Kind::Tidings(era), 0, &[])?;
    server.create(&[WATCHED.to_owned()])?;
    let target = server.target()?;
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    let client_cpu_us = own_cpu_us()?;
    let server_cpu = Cpu::read(server.pid(), Threads::All)?;
    // The streams are kept until the end, since a stream that closes ends its session.
    let opened: Vec<anyhow::Result<TcpStream>> = thread::scope(|scope| {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(scope.spawn(|| open_until(era, &target, &next, sessions)));
        }
        let mut opened = Vec::with_capacity(sessions);
        for client in clients {
            opened.extend(client.join().expect("a client returns its errors"));
        }
        opened
    });
    let elapsed = started.elapsed();
    let failures: Vec<_> = opened.iter().flat_map(|opened| opened.as_ref().err()).collect();
    Ok(Figures {
        sessions_s: (sessions - failures.len()) as f64 / elapsed.as_secs_f64(),
        server_us: server_cpu.since()? / 1e3 / sessions as f64,
        client_us: (own_cpu_us()? - client_cpu_us) / sessions as f64,
        refused: failures.len() as f64,
        reason: failures.first().map(|failure| format!("{failure:#}")),
    })
}

/// Opens one session after the other, until all clients together have opened `sessions`.
fn open_until(
    era: Era,
    target: &HttpTarget,
    next: &AtomicUsize,
    sessions: usize,
) -> Vec<anyhow::Result<TcpStream>> {
    let mut opened = Vec::new();
    loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= sessions {
            return opened;
        }
        opened.push(open(era, target, index));
    }
}

/// Opens one session with its subscription and its stream, all on one connection.
fn open(era: Era, target: &HttpTarget, index: usize) -> anyhow::Result<TcpStream> {
    let names = [WATCHED.to_owned()];
    let mut connection = connect(target.address)?;
    match era {
        Era::Listen => listen(connection, target, index, &names),
        Era::Sessions => {
            let dialect = open_session(&mut connection, target, Revision::R2025_11_25)?;
            subscribe(&mut connection, target, &dialect, &names)?;
            open_session_stream(connection, target, &dialect)
        }
    }
}

/// Returns the CPU that this process has used, threads that have ended included.
fn own_cpu_us() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("cannot read the CPU of this process")?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64)
}
