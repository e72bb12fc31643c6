//! Row `memory`: the memory of a hundred thousand subscribed sessions, over connections in memory.
//!
//! A process may not open as many sockets. The service's own HTTP server carries the connections, so only the
//! kernel's share is missing. Each run is a process of its own, since an allocator does not return all
//! memory; the far ends of the connections live in it too and are counted.

mod pipe;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;
use tidings::config::Config;
use tidings::http::HttpServer;
use tidings::mcp::{Endpoint, McpOptions};
use tidings::wire::connection::{HttpAnswer, exchange};
use tidings::wire::dialect::{ACKNOWLEDGED, Dialect, RESOURCE_UPDATED, Revision};
use tidings::wire::http1::HttpTarget;
use tidings::wire::jsonrpc::refusal;
use tidings::{Bus, Limits, Resource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::Options;
use crate::sockets::Era;
use crate::support::{Column, Cpu, RUNS, Spread, Table, Threads, resident_kib};
use pipe::Pipe;

const SESSIONS: usize = 100_000;
/// The sessions that are opened at a time.
const OPENING: usize = 64;
/// The changes, each of which every session watches.
const CHANGES: usize = 3;
/// The limit on one answer, and on the time until a session has one notice.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const WATCHED: &str = "bench://watched";
const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

const COLUMNS: &[Column] = &[
    ("idle_bytes", "bytes per idle session", 0),
    ("after_bytes", "bytes after", 0),
    ("cpu_us", "CPU µs per delivery, both ends", 2),
    ("opened_per_s", "opened per s", 0),
];

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let sessions = options.sessions.unwrap_or(SESSIONS);
    let mut table = Table::new("memory", COLUMNS);
    let mut runs: [Vec<[f64; 4]>; 2] = Default::default();
    for _ in 0..RUNS {
        for (era, runs) in std::iter::zip(Era::ALL, &mut runs) {
            runs.push(in_child(era, sessions)?);
        }
    }
    for (era, runs) in std::iter::zip(Era::ALL, &runs) {
        let mut figures = Vec::new();
        for index in 0..COLUMNS.len() {
            figures.push(Spread::of(runs.iter().map(|run| run[index])));
        }
        table.add_spreads(format!("{}, {sessions}", era.name()), figures);
    }
    Ok(table)
}

fn in_child(era: Era, sessions: usize) -> anyhow::Result<[f64; 4]> {
    let child = Command::new(std::env::current_exe()?)
        .args(["hold-sessions", era.name(), &sessions.to_string()])
        .output()
        .context("cannot start a process that holds sessions")?;
    ensure!(
        child.status.success(),
        "the process that holds sessions failed: {}",
        String::from_utf8_lossy(&child.stderr)
    );
    serde_json::from_slice(&child.stdout).context("the process that holds sessions printed no figures")
}

/// Runs the child: opens the sessions, makes a few changes, and prints four figures as JSON.
pub(crate) fn hold(arguments: &[String]) -> anyhow::Result<()> {
    let [era, sessions] = arguments else {
        bail!("hold-sessions needs an era and a number");
    };
    let sessions = sessions.parse();
    let sessions = sessions.context("the number of sessions is no number")?;
    let era = Era::ALL.into_iter().find(|known| known.name() == era);
    let era = era.context("there is no such era")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let figures = runtime.block_on(measure(era, sessions))?;
    println!("{}", json!(figures));
    Ok(())
}

async fn measure(era: Era, sessions: usize) -> anyhow::Result<[f64; 4]> {
    let server = start(sessions).await?;
    // The first session makes the server allocate the memory that it needs once.
    let first = open(&server.http, era).await?;
    let pid = std::process::id();
    let empty_kib = resident_kib(pid)?;
    let began = Instant::now();
    let streams = stream::iter(0..sessions)
        .map(|_| open(&server.http, era))
        .buffer_unordered(OPENING)
        .try_collect::<Vec<Pipe>>();
    let mut streams = streams.await?;
    let opened_per_s = sessions as f64 / began.elapsed().as_secs_f64();
    let idle_kib = resident_kib(pid)? - empty_kib;
    let cpu = Cpu::read(pid, Threads::All)?;
    for change in 0..CHANGES {
        let changed = Resource::text(WATCHED, format!("change {change}"))?;
        server.bus.update(changed).await?;
        for stream in &mut streams {
            read_until(stream, RESOURCE_UPDATED.as_bytes()).await?;
        }
    }
    let cpu_us = cpu.since()? / 1e3 / (sessions * CHANGES) as f64;
    let after_kib = resident_kib(pid)? - empty_kib;
    // Open up to here, as the sessions of a service are.
    drop(first);
    drop(streams);
    let bytes_per_session = 1024.0 / sessions as f64;
    Ok([
        idle_kib * bytes_per_session,
        after_kib * bytes_per_session,
        cpu_us,
        opened_per_s,
    ])
}

struct Server {
    bus: Bus,
    http: HttpServer<Endpoint>,
}

/// Starts a bus and the service's HTTP server on it, with limits above `sessions`.
async fn start(sessions: usize) -> anyhow::Result<Server> {
    let room = sessions + 2;
    let mut limits = Limits::default();
    limits.sessions_max = room;
    // No keep-alive may fall into a measurement.
    limits.keep_alive = Duration::from_secs(3600);
    let bus = Bus::builder().limits(limits).start()?;
    bus.register(Resource::text(WATCHED, "")?).await?;
    let mut options = McpOptions::default();
    options.session.streams_max = room;
    let endpoint = Endpoint::new(bus.clone(), options);
    let mut config = Config::default().http;
    config.connections_max = 2 * room;
    let http = HttpServer::new(&bus, endpoint, &config);
    Ok(Server { bus, http })
}

fn connect(http: &HttpServer<Endpoint>) -> anyhow::Result<Pipe> {
    let (near, far) = Pipe::pair();
    http.serve(CLIENT, move || Ok(near))?;
    Ok(far)
}

/// Opens a subscribed stream.
async fn open(http: &HttpServer<Endpoint>, era: Era) -> anyhow::Result<Pipe> {
    let target = HttpTarget::mcp(CLIENT);
    let mut pipe = connect(http)?;
    if era == Era::Listen {
        let dialect = Dialect::new(Revision::R2026_07_28, "bench");
        pipe.write_all(&dialect.listen(&target, 1, &[WATCHED])).await?;
        read_until(&mut pipe, ACKNOWLEDGED.as_bytes()).await?;
        return Ok(pipe);
    }
    let mut dialect = Dialect::new(Revision::R2025_11_25, "bench");
    let initialized = answer(http, &dialect.initialize(&target)).await?;
    let session = initialized.head.session();
    let session = session.context("the answer to initialize names no session")?;
    dialect.session = Some(session.to_owned());
    answer(http, &dialect.initialized(&target)).await?;
    let params = json!({ "uri": WATCHED });
    let subscribe = dialect.request(&target, 2, "resources/subscribe", params);
    let subscribed = answer(http, &subscribe).await?;
    subscribed.result().map_err(|reason| anyhow!("{reason}"))?;
    pipe.write_all(&dialect.session_stream(&target, None)).await?;
    // The priming event, with which every stream of this revision begins.
    read_until(&mut pipe, b"data: \n\n").await?;
    Ok(pipe)
}

/// Makes one request on a connection of its own.
async fn answer(http: &HttpServer<Endpoint>, request: &[u8]) -> anyhow::Result<HttpAnswer> {
    let mut pipe = connect(http)?;
    let answer = timeout(ANSWER_MAX, exchange(&mut pipe, request));
    let answer = answer.await.context("no answer in time")??;
    ensure!(
        answer.head.is_success(),
        "{}",
        refusal(&answer.head, &answer.body)
    );
    Ok(answer)
}

/// Reads until `part` has come.
async fn read_until(pipe: &mut Pipe, part: &[u8]) -> anyhow::Result<()> {
    let found = timeout(ANSWER_MAX, async {
        let mut read = Vec::with_capacity(1024);
        while memchr::memmem::find(&read, part).is_none() {
            let count = pipe.read_buf(&mut read).await?;
            ensure!(
                count > 0,
                "the connection ended after {}",
                String::from_utf8_lossy(&read)
            );
        }
        Ok(())
    });
    let part = String::from_utf8_lossy(part);
    let found = found.await;
    found.with_context(|| format!("{part:?} did not come within {ANSWER_MAX:?}"))?
}
