//! Row `hidden`: the time of reads of resources that the caller may not see, beside reads of URIs that do not
//! exist.
//!
//! A caller must not tell the two apart, by the answer or by the time of it. Reads of both take turns on one
//! connection, and which of them is first changes with each pair.

use std::time::Instant;

use anyhow::ensure;
use serde_json::json;
use tidings::wire::connection::BlockingConnection;
use tidings::wire::dialect::{Dialect, Revision};
use tidings::wire::http1::{HttpTarget, resource_path};

use crate::Options;
use crate::guard::{self, Guard, OPS, OPS_RULE};
use crate::server_process::ListeningServer;
use crate::sockets::{connect, publish};
use crate::support::{Column, RUNS, Spread, Table, median};

/// The reads of each kind in a repetition, unless `--sessions` has another number.
const READS: usize = 1_000;
/// The pairs of reads before the measured ones.
const WARM_UP: usize = 200;
/// The principal that sees some resources, and no hidden one.
const READER: &str = "reader";
const READER_RULE: &str = "[[auth.rule]]\nroles = ['reader']\nmay = ['list', 'read', 'subscribe']\n\
    match = ['note://*', 'bench://{name}']\n";

const COLUMNS: &[Column] = &[
    ("hidden_us", "hidden: median µs", 1),
    ("unknown_us", "unknown: median µs", 1),
    ("difference_percent", "difference %", 2),
    ("difference_abs_percent", "without its sign %", 2),
];

/// A way to read a resource.
#[derive(Clone, Copy)]
enum Way {
    /// `GET /v1/resources/{uri}`.
    Http,
    /// `resources/read` of 2026-07-28.
    Mcp,
}

impl Way {
    fn label(self) -> &'static str {
        match self {
            Way::Http => "GET /v1/resources/{uri}",
            Way::Mcp => "resources/read 2026-07-28",
        }
    }

    fn request(self, target: &HttpTarget, uri: &str) -> Vec<u8> {
        match self {
            Way::Http => target.request_to("GET", &resource_path(uri)).finish(),
            Way::Mcp => {
                let dialect = Dialect::new(Revision::R2026_07_28, "bench");
                dialect.request(target, 1, "resources/read", json!({ "uri": uri }))
            }
        }
    }
}

/// Measures the row.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let reads = options.sessions.unwrap_or(READS);
    let rules = format!("{READER_RULE}{OPS_RULE}");
    let mut table = Table::new("hidden", COLUMNS);
    let mut runs: [Vec<Medians>; 2] = Default::default();
    for _ in 0..RUNS {
        // A service of its own for each repetition, so that no layout of its memory is in all of them.
        let (server, guard) = guard::start(&[OPS, READER], &rules)?;
        create_hidden(&server, &guard, reads)?;
        let target = HttpTarget::mcp(server.address);
        guard.authorize(&target, READER)?;
        for (way, runs) in [Way::Http, Way::Mcp].into_iter().zip(&mut runs) {
            runs.push(measure(&target, way, reads)?);
        }
    }
    for (way, runs) in [Way::Http, Way::Mcp].into_iter().zip(&runs) {
        let figures = vec![
            Spread::of(runs.iter().map(|run| run.hidden)),
            Spread::of(runs.iter().map(|run| run.unknown)),
            Spread::of(runs.iter().map(Medians::difference)),
            Spread::of(runs.iter().map(|run| run.difference().abs())),
        ];
        table.add_spreads(format!("{}, {reads}", way.label()), figures);
    }
    Ok(table)
}

/// The median times of one repetition, in µs.
struct Medians {
    hidden: f64,
    unknown: f64,
}

impl Medians {
    fn difference(&self) -> f64 {
        (self.hidden / self.unknown - 1.0) * 100.0
    }
}

fn hidden_uri(number: usize) -> String {
    format!("secret://hidden/{number:04}")
}

/// As long as a hidden one, since the answer names it.
fn unknown_uri(number: usize) -> String {
    format!("secret://absent/{number:04}")
}

fn create_hidden(server: &ListeningServer, guard: &Guard, count: usize) -> anyhow::Result<()> {
    let target = HttpTarget::mcp(server.address);
    guard.authorize(&target, OPS)?;
    let mut requests = Vec::new();
    for number in 0..count {
        requests.push(target.put_resource(&hidden_uri(number), "the content of a secret"));
    }
    publish(&mut connect(target.address)?, &requests)
}

fn measure(target: &HttpTarget, way: Way, reads: usize) -> anyhow::Result<Medians> {
    let mut connection = connect(target.address)?;
    let mut hidden = Vec::with_capacity(reads);
    let mut unknown = Vec::with_capacity(reads);
    for number in 0..WARM_UP + reads {
        let uris = [hidden_uri(number % reads), unknown_uri(number % reads)];
        let requests = uris.map(|uri| way.request(target, &uri));
        let mut times = [0.0; 2];
        let mut answers = [const { String::new() }; 2];
        // The second of two equal requests finds more in the caches.
        let order = match number % 2 {
            0 => [0, 1],
            _ => [1, 0],
        };
        for which in order {
            let (time, answer) = timed(&mut connection, &requests[which])?;
            times[which] = time;
            answers[which] = answer;
        }
        let [of_hidden, of_unknown] = answers;
        ensure!(
            of_hidden.replace("hidden", "absent") == of_unknown,
            "the answers differ: {of_hidden} and {of_unknown}"
        );
        if number >= WARM_UP {
            hidden.push(times[0]);
            unknown.push(times[1]);
        }
    }
    Ok(Medians {
        hidden: median(hidden),
        unknown: median(unknown),
    })
}

/// Returns the time of an answer in µs, and its status and body.
fn timed(connection: &mut BlockingConnection, request: &[u8]) -> anyhow::Result<(f64, String)> {
    let started = Instant::now();
    let answer = connection.exchange(request)?;
    let time = started.elapsed().as_secs_f64() * 1e6;
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    Ok((time, format!("{} {body}", answer.head.status)))
}
