//! Row `etag`: polls of `get_resource_etag` over HTTP, beside a bare axum handler.
//!
//! The servers are processes of their own. The twin reads the same requests whole and answers the same bytes
//! without looking at them.

mod axum_twin;

use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tidings::wire::connection::{BlockingConnection, HttpAnswer};
use tidings::wire::dialect::{Dialect, Revision};
use tidings::wire::http1::HttpTarget;

pub(crate) use axum_twin::serve as serve_axum;

use crate::Options;
use crate::request_load::{COLUMNS, FIRST_NUMBER, Figures, Numbered, RequestLoad, Requests, add_lines};
use crate::server_process::ListeningServer;
use crate::sockets::{connect, open_session};
use crate::support::{RUNS, Table};

/// The connections, each with one poll in flight.
const CONNECTIONS: usize = 64;
/// The polls of one repetition.
const POLLS: usize = 50_000;
/// The polls before the measured ones.
const WARM_UP: usize = 5_000;

const ANSWER_START: &[u8] = b"HTTP/1.1 200 OK\r\n";

/// Measures the row; `--sessions` is the number of connections.
pub(crate) fn run(options: &Options) -> anyhow::Result<Table> {
    let connections = options.sessions.unwrap_or(CONNECTIONS);
    let mut table = Table::new("etag", COLUMNS);
    for (revision, name) in [
        (Revision::R2025_11_25, "session 2025-11-25"),
        (Revision::R2026_07_28, "stateless 2026-07-28"),
    ] {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            runs.push(measure_both(revision, connections).context(name)?);
        }
        let labels = ["tidings", "bare axum"].map(|server| format!("{server}, {name}, {connections}"));
        add_lines(&mut table, labels, &runs);
    }
    Ok(table)
}

/// Measures the service and then its twin.
fn measure_both(revision: Revision, connections: usize) -> anyhow::Result<(Figures, Figures)> {
    let service = ListeningServer::service()?;
    let target = HttpTarget::mcp(service.address);
    let mut pollers = Vec::new();
    for index in 0..connections {
        let uri = format!("bench://polled/{index:04}");
        let etag = put(&target, &uri)?;
        pollers.push(open_poller(&target, revision, &uri, &etag)?);
    }
    let mut requests: Vec<Vec<u8>> = Vec::new();
    for (_, poll) in &mut pollers {
        requests.push(poll.request.with(FIRST_NUMBER).to_vec());
    }
    let body = pollers[0].1.expected.with(FIRST_NUMBER).to_vec();
    let ours = measure(&service, pollers)?;
    // Ended before the twin starts, since an idle service still has timers.
    drop(service);
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve-axum", std::str::from_utf8(&body)?]);
    let twin = ListeningServer::start(command, tempfile::tempdir()?)?;
    let mut pollers = Vec::new();
    for request in requests {
        pollers.push(open_twin_poller(&twin, request, &body)?);
    }
    Ok((ours, measure(&twin, pollers)?))
}

fn measure(server: &ListeningServer, pollers: Vec<(BlockingConnection, Poll)>) -> anyhow::Result<Figures> {
    let (connections, polls): (Vec<_>, Vec<_>) = pollers.into_iter().unzip();
    let mut polls = Polls(polls);
    let mut load = RequestLoad::new(connections)?;
    load.run(&mut polls, WARM_UP)?;
    load.measure(server.pid(), &mut polls, POLLS)
}

/// The poll that one connection repeats.
struct Poll {
    request: Numbered,
    /// The body of the answer.
    expected: Numbered,
    /// The bytes of an answer, head included.
    answer_bytes: usize,
}

impl Poll {
    fn new(request: Vec<u8>, answer: HttpAnswer) -> Poll {
        Poll {
            request: Numbered::new(request),
            answer_bytes: answer.head.bytes() + answer.body.len(),
            expected: Numbered::new(answer.body),
        }
    }
}

/// The poll of each connection.
struct Polls(Vec<Poll>);

impl Requests for Polls {
    fn request(&mut self, connection: usize, number: u64) -> &[u8] {
        self.0[connection].request.with(number)
    }

    fn is_complete(&mut self, connection: usize, number: u64, answer: &[u8]) -> anyhow::Result<bool> {
        let poll = &mut self.0[connection];
        if answer.len() < poll.answer_bytes {
            return Ok(false);
        }
        // The bytes are compared instead of parsed, so that the client takes little of the machine.
        let is_expected = answer.len() == poll.answer_bytes
            && answer.starts_with(ANSWER_START)
            && answer.ends_with(poll.expected.with(number));
        ensure!(
            is_expected,
            "a poll has another answer than the first one: {}",
            String::from_utf8_lossy(answer)
        );
        Ok(true)
    }
}

/// Makes a resource and returns its etag.
fn put(target: &HttpTarget, uri: &str) -> anyhow::Result<String> {
    let answer = connect(target.address)?.exchange(&target.put_resource(uri, "one"))?;
    let etag = answer.head.etag();
    Ok(etag.context("a PUT was answered without an etag")?.to_owned())
}

/// Opens a connection that polls `uri` with the etag it has, and checks the first answer.
fn open_poller(
    target: &HttpTarget,
    revision: Revision,
    uri: &str,
    etag: &str,
) -> anyhow::Result<(BlockingConnection, Poll)> {
    let mut connection = connect(target.address)?;
    let dialect = match revision.is_stateless() {
        true => Dialect::new(revision, "bench"),
        false => open_session(&mut connection, target, revision)?,
    };
    let params = json!({
        "name": "get_resource_etag",
        "arguments": { "uri": uri, "client_etag": etag },
    });
    let request = dialect.request(target, FIRST_NUMBER, "tools/call", params);
    let answer = connection.exchange(&request)?;
    let body: Value = serde_json::from_slice(&answer.body)?;
    let content = &body["result"]["structuredContent"];
    ensure!(
        content["etag_encoded"] == etag && content["stale_for_client"] == false && body["id"] == FIRST_NUMBER,
        "{uri} is at {etag}, and its poll was answered {body}"
    );
    Ok((connection, Poll::new(request, answer)))
}

/// Opens a connection to the twin that sends the same `request`.
fn open_twin_poller(
    twin: &ListeningServer,
    request: Vec<u8>,
    body: &[u8],
) -> anyhow::Result<(BlockingConnection, Poll)> {
    let mut connection = connect(twin.address)?;
    let answer = connection.exchange(&request)?;
    ensure!(answer.body == body, "the twin answers another body");
    let mut poll = Poll::new(request, answer);
    // The twin answers the same number each time.
    poll.expected.fix();
    Ok((connection, poll))
}
