//! Row `etag`: how many polls of `get_resource_etag` the service answers over HTTP, beside a bare axum handler.
//!
//! Owns: the plan of the measurement and its figures. Never: serves or polls itself: the servers are processes of their
//! own ([`server`]), the clients one epoll thread here ([`load`]). The twin ([`axum_twin`]) reads the same requests whole
//! and answers the same bytes without looking at them.

mod axum_twin;
mod load;
mod server;
mod wire;

use anyhow::Context;

pub(crate) use axum_twin::serve as serve_axum;

use self::load::Load;
use self::server::Server;
use self::wire::{Era, FIRST_ID, Numbered, Poller};
use crate::Options;
use crate::support::{Column, Cpu, RUNS, Table, Threads, median, quantile};

/// Connections that are kept alive, each with one poll on its way.
const CONNECTIONS: usize = 64;
/// Polls of one repetition.
const POLLS: usize = 50_000;
/// Polls before anything is counted.
const WARM_UP: usize = 5_000;

const COLUMNS: &[Column] = &[
    ("per_second", "requests/s", 0),
    ("per_second_x", "x bare", 2),
    ("per_second_x_min", "min", 2),
    ("per_second_x_max", "max", 2),
    ("cpu_us", "server CPU µs per request", 1),
    ("cpu_x", "CPU x bare", 2),
    ("p50_ms", "p50 ms", 2),
    ("p99_ms", "p99 ms", 2),
    ("client_cpu_us", "client CPU µs per request", 1),
];

/// What one repetition with one server measured.
struct Figures {
    per_second: f64,
    cpu_us: f64,
    client_cpu_us: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// Measures the row; `--sessions` is the number of connections.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let connections = options.sessions.unwrap_or(CONNECTIONS);
    let mut table = Table::new("etag", COLUMNS);
    for era in [Era::Session, Era::Stateless] {
        let mut pairs = Vec::new();
        for _ in 0..RUNS {
            pairs.push(pair(era, connections).with_context(|| era.name())?);
        }
        let label = |name| format!("{name}, {}, {connections}", era.name());
        table.line(label("tidings"), line(&pairs, |(ours, _)| ours, true));
        table.line(label("bare axum"), line(&pairs, |(_, bare)| bare, false));
    }
    Ok(table)
}

/// The medians of one side, and how it compares to the other, repetition by repetition.
fn line(
    pairs: &[(Figures, Figures)],
    side: impl Fn(&(Figures, Figures)) -> &Figures,
    compared: bool,
) -> Vec<Option<f64>> {
    let of = |figure: fn(&Figures) -> f64| Some(median(pairs.iter().map(|pair| figure(side(pair)))));
    let ratios = |figure: fn(&Figures) -> f64| {
        let ratio = pairs.iter().map(|(ours, bare)| figure(ours) / figure(bare));
        ratio.collect::<Vec<f64>>()
    };
    let per_second = ratios(|run| run.per_second);
    let compared = |ratio: f64| compared.then_some(ratio);
    vec![
        of(|run| run.per_second),
        compared(median(per_second.iter().copied())),
        compared(quantile(&mut per_second.clone(), 0.0)),
        compared(quantile(&mut per_second.clone(), 1.0)),
        of(|run| run.cpu_us),
        compared(median(ratios(|run| run.cpu_us))),
        of(|run| run.p50_ms),
        of(|run| run.p99_ms),
        of(|run| run.client_cpu_us),
    ]
}

/// Measures the service and then its twin.
fn pair(era: Era, connections: usize) -> anyhow::Result<(Figures, Figures)> {
    let server = Server::tidings()?;
    let mut pollers = Vec::new();
    for index in 0..connections {
        let uri = format!("bench://polled/{index:04}");
        let etag = wire::put(server.address, &uri)?;
        pollers.push(wire::open(server.address, era, &uri, &etag)?);
    }
    let first = |numbered: &mut Numbered| numbered.with(FIRST_ID).to_vec();
    let requests: Vec<_> = pollers
        .iter_mut()
        .map(|poller| first(&mut poller.request))
        .collect();
    let body = first(&mut pollers[0].expected);
    let ours = measure(&server, pollers)?;
    drop(server);
    let twin = Server::bare(std::str::from_utf8(&body)?)?;
    let open = |request| wire::open_twin(twin.address, request, &body);
    let pollers = requests
        .into_iter()
        .map(open)
        .collect::<anyhow::Result<Vec<Poller>>>()?;
    Ok((ours, measure(&twin, pollers)?))
}

fn measure(server: &Server, pollers: Vec<Poller>) -> anyhow::Result<Figures> {
    let mut load = Load::new(pollers)?;
    load.run(WARM_UP)?;
    let cpu = Cpu::read(server.pid(), Threads::All)?;
    let own = Cpu::read(std::process::id(), Threads::All)?;
    let mut run = load.run(POLLS)?;
    let per_poll = |nanoseconds: f64| nanoseconds / 1e3 / POLLS as f64;
    Ok(Figures {
        cpu_us: per_poll(cpu.since()?),
        client_cpu_us: per_poll(own.since()?),
        per_second: POLLS as f64 / run.elapsed.as_secs_f64(),
        p50_ms: quantile(&mut run.latencies, 0.5),
        p99_ms: quantile(&mut run.latencies, 0.99),
    })
}
