//! The readers of streams that share connections of HTTP/2, and the connection that publishes.
//!
//! As the readers of sockets ([`super::load`]), they parse no notice: one is a frame that has a text which
//! each has exactly once.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use memchr::memmem::Finder;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use tidings::wire::dialect::{ACKNOWLEDGED, Dialect, Revision};
use tidings::wire::http1::HttpTarget;
use tidings::wire::http2::client::{StreamEnd, StreamEvent};
use tidings::wire::http2::connection::Http2Connection;
use tidings::wire::http2::request::ListenRequests;

use super::kind::{WATCHED, uri};

/// The limit on the time until all streams are open, or have one change.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// The limit on the time until all have ended.
const DRAIN_MAX: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 * 1024;
/// Streams that are opening at the same time, of one connection and of all.
const OPENING_MAX: usize = 100;
const ALL_OPENING_MAX: usize = 4_000;
/// The token of the first publisher; connections have their number.
const PUBLISHER: Token = Token(usize::MAX - 2);
/// The token of the second one.
const SECOND_PUBLISHER: Token = Token(usize::MAX - 1);

/// The streams to open.
#[derive(Clone, Copy)]
pub(crate) struct StreamPlan<'p> {
    pub(crate) connections: usize,
    /// The streams of each connection.
    pub(crate) each: usize,
    /// The number of them, the last ones, whose windows are not widened until [`Streams::unshut`].
    pub(crate) shut: usize,
    /// The resources of the stream at a place: its connection's number times `each`, plus its own number.
    pub(crate) names: &'p dyn Fn(usize) -> Vec<String>,
}

/// The streams of one connection.
struct Shared {
    connection: Http2Connection,
    opened: usize,
    /// The streams whose answers have begun.
    begun: usize,
}

/// All streams, and two publishers.
pub(crate) struct Streams {
    poll: Poll,
    events: Events,
    shared: Vec<Shared>,
    publishers: [TcpStream; 2],
    buffer: Vec<u8>,
    each: usize,
    shut: usize,
}

/// What a turn came upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    /// The head of an answer.
    Head,
    /// A part of a body with the text of this number among those searched for.
    Text(usize),
    /// The end of an answer.
    End,
}

impl Streams {
    /// Opens the streams of a plan whose windows are open.
    pub(crate) fn open(
        target: &HttpTarget,
        plan: &StreamPlan<'_>,
        publishers: [std::net::TcpStream; 2],
    ) -> anyhow::Result<Streams> {
        let poll = Poll::new()?;
        let publishers = publishers.map(|publisher| {
            publisher.set_nonblocking(true)?;
            Ok(TcpStream::from_std(publisher))
        });
        let [first, second]: [anyhow::Result<TcpStream>; 2] = publishers;
        let mut publishers = [first?, second?];
        for (publisher, token) in publishers.iter_mut().zip([PUBLISHER, SECOND_PUBLISHER]) {
            poll.registry().register(publisher, token, Interest::READABLE)?;
        }
        let mut shared = Vec::with_capacity(plan.connections);
        for nth in 0..plan.connections {
            let streams = (plan.each, plan.shut > 0);
            let connection = Http2Connection::open(target, None, streams, (poll.registry(), Token(nth)))?;
            shared.push(Shared {
                connection,
                opened: 0,
                begun: 0,
            });
        }
        let mut streams = Streams {
            poll,
            events: Events::with_capacity(1024),
            shared,
            publishers,
            buffer: vec![0; READ_BYTES],
            each: plan.each,
            shut: plan.shut,
        };
        streams.open_until(target, plan, plan.each - plan.shut)?;
        Ok(streams)
    }

    /// Opens the streams of a plan whose windows are closed.
    pub(crate) fn open_shut(&mut self, target: &HttpTarget, plan: &StreamPlan<'_>) -> anyhow::Result<()> {
        self.open_until(target, plan, plan.each)
    }

    /// Opens streams until each connection has `count`.
    fn open_until(&mut self, target: &HttpTarget, plan: &StreamPlan<'_>, count: usize) -> anyhow::Result<()> {
        let requests = ListenRequests::new(target, &Dialect::new(Revision::R2026_07_28, "bench"));
        let started = Instant::now();
        let is_shut = count > self.reading();
        let texts = [Finder::new(ACKNOWLEDGED)];
        let mut opening = 0;
        while self.shared.iter().any(|shared| shared.begun < count) {
            ensure!(
                started.elapsed() < WAIT_MAX,
                "not all streams were open after {WAIT_MAX:?}"
            );
            for (nth, shared) in self.shared.iter_mut().enumerate() {
                if let Some(max) = shared.connection.client().streams_max() {
                    ensure!(
                        max as usize >= plan.each,
                        "the server takes {max} streams on a connection"
                    );
                }
                while shared.opened < count
                    && shared.opened - shared.begun < OPENING_MAX
                    && opening < ALL_OPENING_MAX
                    && shared.connection.client().can_open()
                {
                    let uris: Vec<String> = (plan.names)(nth * plan.each + shared.opened)
                        .iter()
                        .map(|name| uri(name))
                        .collect();
                    let body = requests.body(uris.iter().map(String::as_str));
                    shared.connection.request(requests.headers(), body, is_shut);
                    shared.opened += 1;
                    opening += 1;
                }
                shared.connection.flush()?;
            }
            // A stream whose window is closed has the head of its answer and nothing more.
            let sign = match is_shut {
                true => Met::Head,
                false => Met::Text(0),
            };
            let each = self.each;
            let mut begun = Vec::new();
            self.turn(Duration::from_millis(5), &texts, |place, met, _| {
                if met == sign {
                    begun.push(place / each);
                }
            })?;
            opening -= begun.len();
            for nth in begun {
                self.shared[nth].begun += 1;
            }
        }
        Ok(())
    }

    /// The streams of each connection whose windows are open.
    fn reading(&self) -> usize {
        self.each - self.shut
    }

    /// Makes one change and reads until every stream with an open window has its notice; returns after how
    /// many milliseconds each had it.
    pub(crate) fn change(&mut self, request: &[u8]) -> anyhow::Result<Vec<f64>> {
        let readers = self.shared.len() * self.reading();
        self.change_of(WATCHED, readers, request)
    }

    /// Makes one change of the resource `name`, and reads until as many streams have it.
    pub(crate) fn change_of(
        &mut self,
        name: &str,
        readers: usize,
        request: &[u8],
    ) -> anyhow::Result<Vec<f64>> {
        let texts = [notice_of(name)];
        let mut told = vec![false; self.shared.len() * self.each];
        let mut latencies = Vec::with_capacity(readers);
        let started = Instant::now();
        self.publish(0, request)?;
        let mut is_answered = false;
        while latencies.len() < readers || !is_answered {
            let count = latencies.len();
            let left = left_of(started, || format!("{count} of {readers} streams had the notice"))?;
            let answered = self.turn(left, &texts, |place, met, at| {
                if met == Met::Text(0) && !std::mem::replace(&mut told[place], true) {
                    latencies.push(milliseconds(at, started));
                }
            })?;
            is_answered |= answered[0];
        }
        Ok(latencies)
    }

    /// Makes a change for all, and until all have it one for `few` after the other, of another resource.
    /// Returns after how many milliseconds each of the few had a change of theirs.
    pub(crate) fn change_meanwhile(
        &mut self,
        request: &[u8],
        (name_of_few, few): (&str, usize),
        mut next: impl FnMut() -> anyhow::Result<Vec<u8>>,
    ) -> anyhow::Result<Vec<f64>> {
        let texts = [notice_of(WATCHED), notice_of(name_of_few)];
        let readers = self.shared.len() * self.reading();
        let mut told = vec![false; self.shared.len() * self.each];
        let mut count = 0;
        let mut latencies = Vec::new();
        let mut answers = [false, true];
        let mut begun = Instant::now();
        let mut due = 0;
        let started = Instant::now();
        self.publish(0, request)?;
        while count < readers || answers != [true, true] || due > 0 {
            if due == 0 && answers[1] && count < readers {
                begun = Instant::now();
                due = few;
                answers[1] = false;
                self.publish(1, &next()?)?;
            }
            let left = left_of(started, || {
                format!("{count} of {readers} streams had the notice, and {due} of {few} had not theirs")
            })?;
            let answered = self.turn(left, &texts, |place, met, at| match met {
                Met::Text(0) if !std::mem::replace(&mut told[place], true) => {
                    count += 1;
                }
                Met::Text(1) => {
                    latencies.push(milliseconds(at, begun));
                    due -= 1;
                }
                _ => {}
            })?;
            answers[0] |= answered[0];
            answers[1] |= answered[1];
        }
        Ok(latencies)
    }

    /// Opens the windows that were closed. Returns how many of their streams do not get the text `last`,
    /// which the notice of the last change has.
    pub(crate) fn unshut(&mut self, last: &str) -> anyhow::Result<usize> {
        let first = self.reading();
        let each = self.each;
        for shared in &mut self.shared {
            for stream in first..each {
                shared.connection.unshut(stream);
            }
            shared.connection.flush()?;
        }
        let texts = [Finder::new(last)];
        let mut told = vec![false; self.shared.len() * each];
        let mut missing = self.shared.len() * self.shut;
        let started = Instant::now();
        while missing > 0 && started.elapsed() < WAIT_MAX {
            self.turn(Duration::from_secs(1), &texts, |place, met, _| {
                let is_shut = place % each >= first;
                if is_shut && met == Met::Text(0) && !std::mem::replace(&mut told[place], true) {
                    missing -= 1;
                }
            })?;
        }
        Ok(missing)
    }

    /// Reads until all streams have ended. Returns how many were not ended by the server as they should be.
    pub(crate) fn read_to_end(&mut self) -> anyhow::Result<usize> {
        let mut open = self.shared.len() * self.each;
        let started = Instant::now();
        while open > 0 && started.elapsed() < DRAIN_MAX {
            match self.poll.poll(&mut self.events, Some(Duration::from_secs(1))) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &self.events {
                if let Some(shared) = self.shared.get_mut(event.token().0) {
                    let read = shared.read(&mut self.buffer, &[], |_, met, _| {
                        open -= usize::from(met == Met::End);
                    });
                    // The server closes a connection after its streams.
                    read.ok();
                }
            }
        }
        Ok(open)
    }

    fn publish(&mut self, publisher: usize, request: &[u8]) -> anyhow::Result<()> {
        let written = self.publishers[publisher].write(request)?;
        ensure!(
            written == request.len(),
            "the publishing socket is too small for a change"
        );
        Ok(())
    }

    /// Waits for something to read and reads it. `on_met` gets the place of a stream, what it had, and the
    /// time of the read. Returns for each publisher whether its change was answered.
    fn turn(
        &mut self,
        wait: Duration,
        texts: &[Finder<'_>],
        mut on_met: impl FnMut(usize, Met, Instant),
    ) -> anyhow::Result<[bool; 2]> {
        let mut answered = [false; 2];
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(answered),
            polled => polled?,
        }
        for event in &self.events {
            match event.token() {
                PUBLISHER => answered[0] |= read_answer(&mut self.publishers[0], &mut self.buffer)?,
                SECOND_PUBLISHER => answered[1] |= read_answer(&mut self.publishers[1], &mut self.buffer)?,
                Token(nth) => {
                    let first = nth * self.each;
                    let on_met = |stream, met, at| on_met(first + stream, met, at);
                    self.shared[nth].read(&mut self.buffer, texts, on_met)?;
                }
            }
        }
        Ok(answered)
    }
}

impl Shared {
    /// Reads all bytes that are there.
    fn read(
        &mut self,
        buffer: &mut [u8],
        texts: &[Finder<'_>],
        mut on_met: impl FnMut(usize, Met, Instant),
    ) -> anyhow::Result<()> {
        self.connection.flush()?;
        loop {
            let mut now = None;
            let mut refused = None;
            let mut lost = None;
            let has_more = self.connection.read(buffer, |stream, event| {
                let now = *now.get_or_insert_with(Instant::now);
                match event {
                    StreamEvent::Data(bytes) => {
                        for (number, text) in texts.iter().enumerate() {
                            if text.find(bytes).is_some() {
                                on_met(stream, Met::Text(number), now);
                            }
                        }
                    }
                    StreamEvent::Head { status: Some(200) } => on_met(stream, Met::Head, now),
                    StreamEvent::Head { status } => refused = Some(status),
                    StreamEvent::End(StreamEnd::Complete) => on_met(stream, Met::End, now),
                    StreamEvent::End(end) => lost = Some(end),
                }
            });
            let has_more = has_more.map_err(|reason| anyhow!("{reason}"))?;
            if let Some(status) = refused {
                bail!("a stream was answered {status:?}");
            }
            if let Some(end) = lost {
                bail!("a stream was lost: {end}");
            }
            if !has_more {
                return Ok(());
            }
        }
    }
}

/// Finds the notices of a resource.
fn notice_of(name: &str) -> Finder<'static> {
    Finder::new(&format!("\"uri\":\"{}\"", uri(name))).into_owned()
}

fn milliseconds(at: Instant, since: Instant) -> f64 {
    at.duration_since(since).as_secs_f64() * 1e3
}

/// Returns the rest of the time since `started`.
///
/// # Errors
/// When it is over; `seen` says how far it came.
fn left_of(started: Instant, seen: impl FnOnce() -> String) -> anyhow::Result<Duration> {
    let left = WAIT_MAX.saturating_sub(started.elapsed());
    ensure!(!left.is_zero(), "after {WAIT_MAX:?} {}", seen());
    Ok(left)
}

/// Reads the answer to a change; true if it came.
fn read_answer(socket: &mut TcpStream, buffer: &mut [u8]) -> anyhow::Result<bool> {
    match socket.read(buffer) {
        Ok(0) => bail!("the server closed the publishing connection"),
        Ok(count) => {
            let answer = &buffer[..count];
            let is_success = answer.starts_with(b"HTTP/1.1 2");
            ensure!(
                is_success,
                "a change was refused: {}",
                String::from_utf8_lossy(answer)
            );
            Ok(true)
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
