//! Rows `get` and `put`: reads and writes of resources over HTTP, beside `/healthz`, which does neither.
//!
//! One service answers all requests, and the two loads of a row take turns, so that a disturbance of the
//! machine is in both.

use anyhow::{Context, ensure};
use tidings::wire::connection::BlockingConnection;
use tidings::wire::http1::{HttpTarget, resource_path};

use crate::Options;
use crate::request_load::{COLUMNS, FIRST_NUMBER, Figures, Numbered, RequestLoad, Requests, add_lines};
use crate::server_process::ListeningServer;
use crate::sockets::connect;
use crate::support::{RUNS, Table};

/// The connections, each with one request in flight.
pub(crate) const CONNECTIONS: usize = 64;
/// The resources that are read and written in turn.
const RESOURCES: usize = 1_000;
/// The requests of each load in one repetition.
pub(crate) const REQUESTS: usize = 50_000;
/// The requests before the measured ones.
pub(crate) const WARM_UP: usize = 5_000;

/// The body of every resource before the first measured change.
pub(crate) const BODY: &str = "the first state of a resource";

const HEAD_END: &[u8] = b"\r\n\r\n";

/// Measures the row `get`; `--sessions` is the number of connections.
pub(crate) fn run_get(options: &Options) -> anyhow::Result<Table> {
    measure_row("get", "GET /v1/resources/{uri}", options, reads)
}

/// Returns requests that read each resource in turn.
pub(crate) fn reads(target: &HttpTarget) -> ResourceRequests {
    let mut requests = Vec::new();
    for uri in uris() {
        requests.push(target.request_to("GET", &resource_path(&uri)).finish());
    }
    ResourceRequests::new(requests, BODY.len())
}

/// Measures the row `put`; `--sessions` is the number of connections.
pub(crate) fn run_put(options: &Options) -> anyhow::Result<Table> {
    measure_row("put", "PUT /v1/resources/{uri}", options, puts)
}

/// Returns requests that change each resource in turn.
pub(crate) fn puts(target: &HttpTarget) -> ResourceRequests {
    // Each body has the number of its request, so that every PUT is a change.
    let body = format!("change {FIRST_NUMBER}");
    let mut requests = Vec::new();
    for uri in uris() {
        requests.push(target.put_resource(&uri, &body));
    }
    ResourceRequests::new(requests, 0)
}

/// Returns the URIs of the resources.
pub(crate) fn uris() -> impl Iterator<Item = String> {
    (0..RESOURCES).map(|number| format!("bench://resource/{number:04}"))
}

/// Measures a load beside the requests of `/healthz`.
fn measure_row(
    name: &'static str,
    label: &str,
    options: &Options,
    load: impl Fn(&HttpTarget) -> ResourceRequests,
) -> anyhow::Result<Table> {
    let connections = options.sessions.unwrap_or(CONNECTIONS);
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(measure_both(&load, connections)?);
    }
    let mut table = Table::new(name, COLUMNS);
    let labels = [label, "GET /healthz"].map(|load| format!("{load}, {connections}"));
    add_lines(&mut table, labels, &runs);
    Ok(table)
}

/// One repetition, with a service of its own.
fn measure_both(
    load: impl Fn(&HttpTarget) -> ResourceRequests,
    connections: usize,
) -> anyhow::Result<(Figures, Figures)> {
    let service = ListeningServer::service()?;
    let target = HttpTarget::mcp(service.address);
    let mut control = connect(target.address)?;
    create(&mut control, &target)?;
    let mut subject = load(&target);
    let mut health = healthz(&target, &mut control)?;
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(connect(target.address)?);
    }
    let mut connections = RequestLoad::new(opened)?;
    connections.run(&mut health, WARM_UP)?;
    let health = connections.measure(service.pid(), &mut health, REQUESTS)?;
    connections.run(&mut subject, WARM_UP)?;
    let subject = connections.measure(service.pid(), &mut subject, REQUESTS)?;
    Ok((subject, health))
}

/// Creates every resource.
pub(crate) fn create(control: &mut BlockingConnection, target: &HttpTarget) -> anyhow::Result<()> {
    for uri in uris() {
        let answer = control.exchange(&target.put_resource(&uri, BODY))?;
        ensure!(
            answer.head.is_success(),
            "{uri} was answered with {}",
            answer.head.status
        );
    }
    Ok(())
}

/// Returns requests that neither read nor write a resource.
pub(crate) fn healthz(
    target: &HttpTarget,
    control: &mut BlockingConnection,
) -> anyhow::Result<ResourceRequests> {
    let request = target.request_to("GET", "/healthz").finish();
    let answer = control.exchange(&request)?;
    ensure!(
        answer.head.is_success(),
        "/healthz was answered with {}",
        answer.head.status
    );
    Ok(ResourceRequests::new(vec![request], answer.body.len()))
}

/// Requests that are made in turn, each answered with a body of the same length.
pub(crate) struct ResourceRequests {
    requests: Vec<Numbered>,
    body_bytes: usize,
}

impl ResourceRequests {
    /// Takes requests whose answers have bodies of this length.
    pub(crate) fn new(requests: Vec<Vec<u8>>, body_bytes: usize) -> ResourceRequests {
        ResourceRequests {
            requests: requests.into_iter().map(Numbered::new).collect(),
            body_bytes,
        }
    }
}

impl Requests for ResourceRequests {
    fn request(&mut self, _: usize, number: u64) -> &[u8] {
        let index = number as usize % self.requests.len();
        self.requests[index].with(number)
    }

    fn is_complete(&mut self, _: usize, _: u64, answer: &[u8]) -> anyhow::Result<bool> {
        // The end of the head is searched for instead of parsing it, so that the client takes little of the
        // machine; etags in it grow, so that its length varies.
        let Some(head) = memchr::memmem::find(answer, HEAD_END) else {
            return Ok(false);
        };
        let bytes = head + HEAD_END.len() + self.body_bytes;
        let status = answer.get(..12).context("an answer has no status")?;
        ensure!(
            status.starts_with(b"HTTP/1.1 2") && answer.len() <= bytes,
            "a request was answered {}",
            String::from_utf8_lossy(answer)
        );
        Ok(answer.len() == bytes)
    }
}
