//! A load of requests on kept connections, each with one request in flight, from one epoll thread.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mio::{Events, Poll, Token};
use tidings::wire::connection::BlockingConnection;
use tidings::wire::nonblocking::{NonblockingConnection, ReadOutcome};

use crate::support::{Column, Cpu, Table, Threads, median, quantile};

/// The limit on the time without any answer.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Larger than any answer, so that one read takes the whole of it.
const READ_BYTES: usize = 16 * 1024;
/// The number of the first request. All later ones have as many digits.
pub(crate) const FIRST_NUMBER: u64 = 100_000_000;

/// The columns of a row that compares two loads.
pub(crate) const COLUMNS: &[Column] = &[
    ("per_second", "requests/s", 0),
    ("per_second_x", "x twin", 2),
    ("per_second_x_min", "min", 2),
    ("per_second_x_max", "max", 2),
    ("cpu_us", "server CPU µs per request", 1),
    ("cpu_x", "CPU x twin", 2),
    ("p50_ms", "p50 ms", 2),
    ("p99_ms", "p99 ms", 2),
    ("client_cpu_us", "client CPU µs per request", 1),
];

/// Bytes with a place for a number of nine digits.
pub(crate) struct Numbered {
    bytes: Vec<u8>,
    /// The place; none in bytes that are the same each time.
    place: Option<usize>,
}

impl Numbered {
    /// Takes the place where `bytes` have [`FIRST_NUMBER`].
    pub(crate) fn new(bytes: Vec<u8>) -> Numbered {
        let place = memchr::memmem::find(&bytes, FIRST_NUMBER.to_string().as_bytes());
        Numbered { bytes, place }
    }

    /// Keeps the number that the bytes have.
    pub(crate) fn fix(&mut self) {
        self.place = None;
    }

    /// Returns the bytes with this number.
    pub(crate) fn with(&mut self, number: u64) -> &[u8] {
        if let Some(place) = self.place {
            // Written digit by digit, since formatting would be a part of the client's cost.
            let mut rest = number;
            for digit in self.bytes[place..place + 9].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        &self.bytes
    }
}

/// The requests of a load, and the answers that they must have.
pub(crate) trait Requests {
    /// Returns request number `number`, which is sent on this connection.
    fn request(&mut self, connection: usize, number: u64) -> &[u8];

    /// Returns true if the answer to that request is complete.
    ///
    /// # Errors
    /// An answer that is not the expected one.
    fn is_complete(&mut self, connection: usize, number: u64, answer: &[u8]) -> anyhow::Result<bool>;
}

/// The connections of a load.
pub(crate) struct RequestLoad {
    poll: Poll,
    events: Events,
    connections: Vec<LoadConnection>,
    next_number: u64,
    buffer: Vec<u8>,
}

struct LoadConnection {
    connection: NonblockingConnection,
    /// The answer to the request in flight, as far as it has come.
    answer: Vec<u8>,
    /// The number of the request in flight.
    number: u64,
    sent_at: Instant,
}

/// The cost of some requests.
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) cpu_us: f64,
    client_cpu_us: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl RequestLoad {
    /// Takes the connections over; they become nonblocking.
    pub(crate) fn new(connections: Vec<BlockingConnection>) -> anyhow::Result<RequestLoad> {
        let poll = Poll::new()?;
        let mut taken = Vec::with_capacity(connections.len());
        for (index, connection) in connections.into_iter().enumerate() {
            let socket = connection.into_socket();
            socket.set_nonblocking(true)?;
            let mut connection = NonblockingConnection::from_socket(socket);
            connection.register(poll.registry(), Token(index))?;
            taken.push(LoadConnection {
                connection,
                answer: Vec::with_capacity(READ_BYTES),
                number: 0,
                sent_at: Instant::now(),
            });
        }
        Ok(RequestLoad {
            poll,
            events: Events::with_capacity(taken.len()),
            connections: taken,
            next_number: FIRST_NUMBER,
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Makes `count` requests of the server with this process id, and returns their cost.
    pub(crate) fn measure(
        &mut self,
        server: u32,
        requests: &mut impl Requests,
        count: usize,
    ) -> anyhow::Result<Figures> {
        let server_cpu = Cpu::read(server, Threads::All)?;
        let client_cpu = Cpu::read(std::process::id(), Threads::All)?;
        let started = Instant::now();
        let mut latencies = self.run(requests, count)?;
        let elapsed = started.elapsed();
        let per_request_us = 1e-3 / count as f64;
        Ok(Figures {
            cpu_us: server_cpu.since()? * per_request_us,
            client_cpu_us: client_cpu.since()? * per_request_us,
            per_second: count as f64 / elapsed.as_secs_f64(),
            p50_ms: quantile(&mut latencies, 0.5),
            p99_ms: quantile(&mut latencies, 0.99),
        })
    }

    /// Makes `count` requests, on each connection the next one as soon as one is answered.
    ///
    /// Returns the time of each answer in milliseconds.
    pub(crate) fn run(&mut self, requests: &mut impl Requests, count: usize) -> anyhow::Result<Vec<f64>> {
        let mut latencies = Vec::with_capacity(count);
        let mut sent = 0;
        for index in 0..self.connections.len().min(count) {
            self.send(requests, index)?;
            sent += 1;
        }
        // Taken out, so that connections can be borrowed while events are read.
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(1));
        while latencies.len() < count {
            self.poll.poll(&mut events, Some(SILENCE_MAX))?;
            ensure!(!events.is_empty(), "no answer for {SILENCE_MAX:?}");
            for event in &events {
                let index = event.token().0;
                if !self.read(requests, index)? {
                    continue;
                }
                let latency = self.connections[index].sent_at.elapsed();
                latencies.push(latency.as_secs_f64() * 1e3);
                if sent < count {
                    self.send(requests, index)?;
                    sent += 1;
                }
            }
        }
        self.events = events;
        Ok(latencies)
    }

    fn send(&mut self, requests: &mut impl Requests, index: usize) -> anyhow::Result<()> {
        self.next_number += 1;
        let lane = &mut self.connections[index];
        lane.number = self.next_number;
        lane.sent_at = Instant::now();
        lane.answer.clear();
        let request = requests.request(index, lane.number);
        lane.connection.send(request).context("cannot send a request")
    }

    /// Reads; returns true if the answer is complete.
    fn read(&mut self, requests: &mut impl Requests, index: usize) -> anyhow::Result<bool> {
        let lane = &mut self.connections[index];
        match lane
            .connection
            .read(&mut self.buffer)
            .context("cannot read an answer")?
        {
            ReadOutcome::Bytes(count) => lane.answer.extend_from_slice(&self.buffer[..count]),
            ReadOutcome::Nothing => return Ok(false),
            ReadOutcome::End => bail!("the server closed a connection"),
        }
        requests.is_complete(index, lane.number, &lane.answer)
    }
}

/// Adds the lines of a load and of its twin, which were measured in turn.
pub(crate) fn add_lines(table: &mut Table, labels: [String; 2], runs: &[(Figures, Figures)]) {
    let mut sides = [Vec::new(), Vec::new()];
    for (ours, twin) in runs {
        sides[0].push(ours);
        sides[1].push(twin);
    }
    let mut per_second_x: Vec<f64> = runs
        .iter()
        .map(|(ours, twin)| ours.per_second / twin.per_second)
        .collect();
    let cpu_x = median(runs.iter().map(|(ours, twin)| ours.cpu_us / twin.cpu_us));
    let ratios = [
        quantile(&mut per_second_x, 0.5),
        quantile(&mut per_second_x, 0.0),
        quantile(&mut per_second_x, 1.0),
        cpu_x,
    ];
    let compared = [ratios.map(Some), [None; 4]];
    for ((label, side), [x, x_min, x_max, cpu_x]) in labels.into_iter().zip(sides).zip(compared) {
        let figures = vec![
            median_of(&side, |figures| figures.per_second),
            x,
            x_min,
            x_max,
            median_of(&side, |figures| figures.cpu_us),
            cpu_x,
            median_of(&side, |figures| figures.p50_ms),
            median_of(&side, |figures| figures.p99_ms),
            median_of(&side, |figures| figures.client_cpu_us),
        ];
        table.add_line(label, figures);
    }
}

fn median_of(runs: &[&Figures], figure: fn(&Figures) -> f64) -> Option<f64> {
    Some(median(runs.iter().map(|run| figure(run))))
}
