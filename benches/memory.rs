//! Row `memory`: what a hundred thousand subscribed sessions hold, over connections in memory.
//!
//! Owns: the sessions and their figures. Never: opens a socket: a process may not open as many. The service's own HTTP
//! server carries them, so all but the kernel's share is the real thing. Each run is a process of its own, since an
//! allocator does not give back all that it once had; the far ends of the connections live in it too and are counted.

mod pipe;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tidings::config::Config;
use tidings::http::HttpServer;
use tidings::mcp::{Endpoint, McpOptions};
use tidings::{Bus, Limits, Resource};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::Options;
use crate::support::{Column, Cpu, RUNS, Spread, Table, Threads, resident_kib};
use pipe::Pipe;

const SESSIONS: usize = 100_000;
/// Sessions that are being opened at a time.
const OPENING: usize = 64;
/// Changes that everybody is told of.
const CHANGES: usize = 3;
/// How long one answer may take, and how long it may take until everybody is told.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const WATCHED: &str = "bench://watched";
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

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
    let mut cases = ERAS.map(|era| (era, Vec::new()));
    for _ in 0..RUNS {
        for (era, runs) in &mut cases {
            runs.push(in_child(era, sessions)?);
        }
    }
    for (era, runs) in &cases {
        let figure = |index: usize| Spread::of(runs.iter().map(|run: &[f64; 4]| run[index]));
        table.spreads(format!("{era}, {sessions}"), (0..4).map(figure).collect());
    }
    Ok(table)
}

const ERAS: [&str; 2] = ["sessions 2025-11-25", "listen 2026-07-28"];

fn in_child(era: &str, sessions: usize) -> anyhow::Result<[f64; 4]> {
    let child = Command::new(std::env::current_exe()?)
        .args(["hold-sessions", era, &sessions.to_string()])
        .output()
        .context("cannot start a process that holds sessions")?;
    let said = String::from_utf8_lossy(&child.stderr);
    ensure!(
        child.status.success(),
        "the process that holds sessions failed: {said}"
    );
    serde_json::from_slice(&child.stdout).context("the process that holds sessions printed no figures")
}

/// The child: opens the sessions, tells them of a few changes, and prints four figures as JSON.
pub(crate) fn hold(arguments: &[String]) -> anyhow::Result<()> {
    let [era, sessions] = arguments else {
        bail!("hold-sessions needs an era and a number");
    };
    let sessions = sessions.parse().context("the number of sessions is none")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let figures = runtime.block_on(measure(era, sessions))?;
    println!("{}", json!(figures));
    Ok(())
}

async fn measure(era: &str, sessions: usize) -> anyhow::Result<[f64; 4]> {
    let server = start(sessions).await?;
    // What is needed once is there before anything is counted.
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
    let per_session = |kib: f64| (kib - empty_kib) * 1024.0 / sessions as f64;
    let idle = per_session(resident_kib(pid)?);
    let before = Cpu::read(pid, Threads::All)?;
    for change in 0..CHANGES {
        server
            .bus
            .update(Resource::text(WATCHED, format!("change {change}"))?)
            .await?;
        for stream in &mut streams {
            read_until(stream, b"notifications/resources/updated").await?;
        }
    }
    let cpu_us = before.since()? / 1e3 / (sessions * CHANGES) as f64;
    let after = per_session(resident_kib(pid)?);
    drop((first, streams));
    // The process ends here and with it the bus.
    Ok([idle, after, cpu_us, opened_per_s])
}

struct Server {
    bus: Bus,
    http: HttpServer<Endpoint>,
}

/// A bus, and the service's HTTP server on it, wide enough for `sessions`.
async fn start(sessions: usize) -> anyhow::Result<Server> {
    let room = sessions + 2;
    let mut limits = Limits::default();
    limits.sessions_max = room;
    // No sign of life may fall into a measurement.
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
    http.serve(PEER, move || Ok(near))?;
    Ok(far)
}

/// Opens a subscribed stream.
async fn open(http: &HttpServer<Endpoint>, era: &str) -> anyhow::Result<Pipe> {
    let mut pipe = connect(http)?;
    if era == ERAS[1] {
        let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": {
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
            "notifications": {"resourceSubscriptions": [WATCHED]},
        }});
        let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n";
        post(&mut pipe, headers, &listen).await?;
        read_until(&mut pipe, b"notifications/subscriptions/acknowledged").await?;
        return Ok(pipe);
    }
    let mut control = connect(http)?;
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
    }});
    post(&mut control, "", &initialize).await?;
    let answer = read_until(&mut control, b"serverInfo").await?;
    let id = session_id(&answer).context("the answer to initialize names no session")?;
    let headers = format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let mut control = connect(http)?;
    post(&mut control, &headers, &initialized).await?;
    read_until(&mut control, b" 202 ").await?;
    let subscribe =
        json!({"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": {"uri": WATCHED}});
    let mut control = connect(http)?;
    post(&mut control, &headers, &subscribe).await?;
    read_until(&mut control, b"\"result\"").await?;
    let get = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{headers}\r\n");
    pipe.write_all(get.as_bytes()).await?;
    read_until(&mut pipe, b"retry: 3000\ndata: \n\n").await?;
    Ok(pipe)
}

async fn post(pipe: &mut Pipe, headers: &str, message: &Value) -> anyhow::Result<()> {
    let body = message.to_string();
    let length = body.len();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    Ok(pipe.write_all((head + &body).as_bytes()).await?)
}

/// Reads until `part` has come; answers all that was read.
async fn read_until(pipe: &mut Pipe, part: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut read = Vec::with_capacity(1024);
    let whole = async {
        while !read.windows(part.len()).any(|window| window == part) {
            let count = pipe.read_buf(&mut read).await?;
            ensure!(
                count > 0,
                "the connection ended after {}",
                String::from_utf8_lossy(&read)
            );
        }
        anyhow::Ok(())
    };
    let awaited = String::from_utf8_lossy(part);
    tokio::time::timeout(ANSWER_MAX, whole)
        .await
        .with_context(|| format!("{awaited:?} did not come within {ANSWER_MAX:?}"))??;
    Ok(read)
}

fn session_id(answer: &[u8]) -> Option<String> {
    let answer = String::from_utf8_lossy(answer);
    let mut headers = answer.lines().filter_map(|line| line.split_once(": "));
    let (_, id) = headers.find(|(name, _)| name.eq_ignore_ascii_case("mcp-session-id"))?;
    Some(id.trim().to_owned())
}
