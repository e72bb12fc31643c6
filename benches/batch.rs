//! Row `batch`: changes over one connection, in batches of 1,000, pipelined, and one at a time.
//!
//! One service answers all of them, in memory, and the loads take turns, so that a disturbance of the machine
//! is in all of them.

use std::fmt::Write;
use std::time::Instant;

use anyhow::ensure;
use tidings::wire::connection::BlockingConnection;
use tidings::wire::http1::HttpTarget;

use crate::Options;
use crate::server_process::ListeningServer;
use crate::sockets::connect;
use crate::support::{Column, Cpu, RUNS, Spread, Table, Threads, ratios};

const COLUMNS: &[Column] = &[
    ("per_cpu_second", "changes/s of server CPU", 0),
    ("per_cpu_second_x", "x single", 1),
    ("cpu_us", "server CPU µs per change", 2),
    ("per_second", "changes/s", 0),
];

/// The lines of one batch, and the resources that are changed in turn.
const LINES: usize = 1_000;
/// The pipelined requests that wait for their answers.
const PIPELINED: usize = 64;
/// The changes of each load in one repetition.
const CHANGES: usize = 100_000;
/// The changes of the loads that send one request each.
const REQUESTS: usize = 20_000;

/// The cost of a load.
#[derive(Default)]
struct Costs {
    per_cpu_second: Vec<f64>,
    cpu_us: Vec<f64>,
    per_second: Vec<f64>,
}

/// One service, and the connection that changes its resources.
struct Load {
    service: ListeningServer,
    target: HttpTarget,
    connection: BlockingConnection,
    /// Numbers the changes, so that each body differs from the one before.
    next: usize,
}

/// Measures the row.
pub(crate) fn run(_: &Options) -> anyhow::Result<Table> {
    let mut batches = Costs::default();
    let mut pipelined = Costs::default();
    let mut singles = Costs::default();
    for _ in 0..RUNS {
        let mut load = Load::start()?;
        load.send_batches(LINES)?;
        load.measure(&mut singles, REQUESTS, |load, count| load.send_requests(count, 1))?;
        load.measure(&mut pipelined, REQUESTS, |load, count| {
            load.send_requests(count, PIPELINED)
        })?;
        load.measure(&mut batches, CHANGES, Load::send_batches)?;
    }
    let mut table = Table::new("batch", COLUMNS);
    let compared = [
        (format!("POST of {LINES} changes"), &batches),
        (format!("PUT, {PIPELINED} pipelined"), &pipelined),
        ("PUT, one at a time".to_owned(), &singles),
    ];
    for (label, costs) in compared {
        let spreads = vec![
            Spread::of(costs.per_cpu_second.iter().copied()),
            ratios(&costs.per_cpu_second, &singles.per_cpu_second),
            Spread::of(costs.cpu_us.iter().copied()),
            Spread::of(costs.per_second.iter().copied()),
        ];
        table.add_spreads(label, spreads);
    }
    Ok(table)
}

impl Load {
    fn start() -> anyhow::Result<Load> {
        let service = ListeningServer::service()?;
        let target = HttpTarget::mcp(service.address);
        let connection = connect(target.address)?;
        Ok(Load {
            service,
            target,
            connection,
            next: 0,
        })
    }

    /// Makes `count` changes, and adds their cost to `costs`.
    fn measure(
        &mut self,
        costs: &mut Costs,
        count: usize,
        send: impl Fn(&mut Load, usize) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        // So that caches and buffers are those of this load.
        send(self, count / 10)?;
        let cpu = Cpu::read(self.service.pid(), Threads::All)?;
        let started = Instant::now();
        send(self, count)?;
        let elapsed = started.elapsed();
        let cpu_us = cpu.since()? * 1e-3 / count as f64;
        costs.cpu_us.push(cpu_us);
        costs.per_cpu_second.push(1e6 / cpu_us);
        costs.per_second.push(count as f64 / elapsed.as_secs_f64());
        Ok(())
    }

    /// Returns the URI and the body of the next change.
    fn next_change(&mut self) -> (String, String) {
        let number = self.next;
        self.next += 1;
        (
            format!("bench://resource/{:04}", number % LINES),
            format!("change {number:09}"),
        )
    }

    fn send_batches(&mut self, count: usize) -> anyhow::Result<()> {
        for _ in 0..count / LINES {
            let mut lines = String::new();
            for _ in 0..LINES {
                let (uri, body) = self.next_change();
                writeln!(lines, r#"{{"put":"{uri}","text":"{body}"}}"#)?;
            }
            let request = self.target.request_to("POST", "/v1/resources");
            let request = request.body("application/x-ndjson", lines.as_bytes());
            let answer = self.connection.exchange(&request)?;
            let changed = memchr::memmem::find_iter(&answer.body, br#""changed":true"#).count();
            ensure!(changed == LINES, "{changed} of {LINES} changes were made");
        }
        Ok(())
    }

    /// Sends `count` requests with one change each, `at_once` before the first of their answers is read.
    fn send_requests(&mut self, count: usize, at_once: usize) -> anyhow::Result<()> {
        for _ in 0..count.div_ceil(at_once) {
            let mut requests = Vec::new();
            for _ in 0..at_once {
                let (uri, body) = self.next_change();
                requests.extend(self.target.put_resource(&uri, &body));
            }
            self.connection.send(&requests)?;
            for _ in 0..at_once {
                let answer = self.connection.answer()?;
                ensure!(
                    answer.head.is_success(),
                    "a change was answered {}",
                    answer.head.status
                );
            }
        }
        Ok(())
    }
}
