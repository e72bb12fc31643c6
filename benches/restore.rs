//! Row `restore`: a store with 1 GB of bodies. The time from the start of the service until it is ready with
//! all of them, and the latency of changes beside them.
//!
//! It runs by name only, since it writes 1 GB. A few bodies are large, and stand in files of their own; the
//! many others stand in the database.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tidings::wire::connection::exchange;
use tidings::wire::http1::{HttpTarget, resource_path};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::Options;
use crate::ready_server::ReadyServer;
use crate::server_process::serve_command;
use crate::sockets::connect;
use crate::support::{Column, Spread, Table, quantile, resident_kib};

const URIS: usize = 100_000;
/// Every so many resources have a large body.
const LARGE_EVERY: usize = 100;
const LARGE_BYTES: usize = 500_000;
const SMALL_BYTES: usize = 5_000;

/// The starts that are measured.
const STARTS: usize = 3;
/// The limit on the time of a start.
const START_MAX: Duration = Duration::from_secs(120);
/// The connections that fill the store, and that change it.
const CONNECTIONS: usize = 64;
/// The changes per second, and the seconds of them.
const RATE: usize = 1_000;
const SECONDS: usize = 20;

const COLUMNS: &[Column] = &[
    ("ready_s", "s until ready", 2),
    ("memory_mb", "MB resident", 0),
    ("p50_ms", "PUT p50 ms", 2),
    ("p99_ms", "PUT p99 ms", 2),
];

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let folder = tempfile::tempdir().context("cannot make a folder for the store")?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let service = serve_store(&folder)?;
    runtime.block_on(fill(&service.target))?;
    drop(service);
    let mut ready = Vec::new();
    let mut memory = Vec::new();
    let mut latencies = Vec::new();
    for start in 0..STARTS {
        let service = serve_store(&folder)?;
        ready.push(service.ready.as_secs_f64());
        memory.push(resident_kib(service.process.pid())? / 1e3);
        check_restored(service.target.address)?;
        if start + 1 == STARTS {
            latencies = runtime.block_on(put_steadily(&service.target))?;
        }
    }
    let mut table = Table::new("restore", COLUMNS);
    let figures = vec![
        Spread::of(ready),
        Spread::of(memory),
        Spread::of([quantile(&mut latencies, 0.5)]),
        Spread::of([quantile(&mut latencies, 0.99)]),
    ];
    table.add_spreads("100,000 URIs, 1 GB of bodies", figures);
    table.add_note(format!(
        "{RATE} PUTs per second for {SECONDS} s, timed from when each is due."
    ));
    Ok(table)
}

/// Starts a service with the store in `folder`.
fn serve_store(folder: &TempDir) -> anyhow::Result<ReadyServer> {
    let served = folder.path().join("served");
    std::fs::create_dir_all(&served)?;
    let mut command = serve_command(Path::new(&served));
    command.arg("--data").arg(folder.path().join("data"));
    ReadyServer::start(command, folder.path().join("log"), START_MAX)
}

fn uri(number: usize) -> String {
    format!("bench://restore/{number:06}")
}

/// Returns the body of a resource; no two have the same.
fn body(number: usize) -> Vec<u8> {
    let bytes = match number.is_multiple_of(LARGE_EVERY) {
        true => LARGE_BYTES,
        false => SMALL_BYTES,
    };
    let line = format!("the text of resource {number}\n");
    let mut body = line.repeat(bytes / line.len() + 1).into_bytes();
    body.truncate(bytes);
    body
}

fn put(target: &HttpTarget, number: usize, body: &[u8]) -> Vec<u8> {
    target
        .request_to("PUT", &resource_path(&uri(number)))
        .body("text/plain", body)
}

/// Puts every resource.
async fn fill(target: &HttpTarget) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let target = target.clone();
        let next = next.clone();
        tasks.spawn(async move {
            let mut socket = open(&target).await?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= URIS {
                    return anyhow::Ok(());
                }
                send(&mut socket, &put(&target, number, &body(number))).await?;
            }
        });
    }
    join(tasks).await
}

/// The last resource must be there with all of its body.
fn check_restored(address: SocketAddr) -> anyhow::Result<()> {
    let target = HttpTarget::mcp(address);
    for number in [URIS - 1, 0] {
        let request = target.request_to("GET", &resource_path(&uri(number))).finish();
        let answer = connect(address)?.exchange(&request)?;
        ensure!(
            answer.body == body(number),
            "resource {number} is not as it was put"
        );
    }
    Ok(())
}

/// Changes resources at a steady rate; returns the milliseconds from when each change was due to its answer.
async fn put_steadily(target: &HttpTarget) -> anyhow::Result<Vec<f64>> {
    let begin = Instant::now() + Duration::from_millis(200);
    let mut tasks = JoinSet::new();
    for lane in 0..CONNECTIONS {
        let target = target.clone();
        tasks.spawn(async move {
            let mut socket = open(&target).await?;
            let mut latencies = Vec::new();
            for number in (lane..RATE * SECONDS).step_by(CONNECTIONS) {
                let due = begin + Duration::from_secs(1) * number as u32 / RATE as u32;
                tokio::time::sleep_until(due.into()).await;
                let text = format!("change {number} {}", "x".repeat(400));
                // Spread over the resources, and never one with a large body.
                let changed = (number * 37) % (URIS - 1) / LARGE_EVERY * LARGE_EVERY + 1;
                send(&mut socket, &put(&target, changed, text.as_bytes())).await?;
                latencies.push(due.elapsed().as_secs_f64() * 1e3);
            }
            anyhow::Ok(latencies)
        });
    }
    let mut all = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        all.append(&mut ended??);
    }
    Ok(all)
}

async fn open(target: &HttpTarget) -> anyhow::Result<TcpStream> {
    let socket = TcpStream::connect(target.address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

async fn send(socket: &mut TcpStream, request: &[u8]) -> anyhow::Result<()> {
    let answer = exchange(socket, request).await?;
    let status = answer.head.status;
    ensure!(
        answer.head.is_success(),
        "a PUT was answered with HTTP status {status}"
    );
    Ok(())
}

async fn join(mut tasks: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
