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
use tidings::wire::http2::client::StreamEvent;
use tidings::wire::http2::connection::Http2Connection;
use tidings::wire::http2::request::ListenRequests;

use super::kind::uri;

/// The limit on the time until all streams are open, or have one change.
const WAIT_MAX: Duration = Duration::from_secs(120);
const READ_BYTES: usize = 64 * 1024;
/// Streams of one connection that are opening at the same time.
const OPENING_MAX: usize = 100;
/// The token of the publisher; connections have their number.
const PUBLISHER: Token = Token(usize::MAX - 1);

/// The streams of one connection.
struct Shared {
    connection: Http2Connection,
    /// The number of the last event of each stream: 0 before any, 1 for the acknowledgement, then one more
    /// for each change.
    reached: Vec<u32>,
    acknowledged: usize,
}

/// All streams, and the publisher.
pub(crate) struct Streams {
    poll: Poll,
    events: Events,
    shared: Vec<Shared>,
    publisher: TcpStream,
    buffer: Vec<u8>,
    changes: u32,
}

impl Streams {
    /// Opens `each` streams of the resource `name` on each of as many connections.
    pub(crate) fn open(
        target: &HttpTarget,
        (connections, each): (usize, usize),
        name: &str,
        publisher: std::net::TcpStream,
    ) -> anyhow::Result<Streams> {
        let poll = Poll::new()?;
        publisher.set_nonblocking(true)?;
        let mut publisher = TcpStream::from_std(publisher);
        poll.registry()
            .register(&mut publisher, PUBLISHER, Interest::READABLE)?;
        let mut shared = Vec::with_capacity(connections);
        for nth in 0..connections {
            let connection =
                Http2Connection::open(target, None, (each, false), (poll.registry(), Token(nth)))?;
            shared.push(Shared {
                connection,
                reached: Vec::with_capacity(each),
                acknowledged: 0,
            });
        }
        let mut streams = Streams {
            poll,
            events: Events::with_capacity(1024),
            shared,
            publisher,
            buffer: vec![0; READ_BYTES],
            changes: 0,
        };
        streams.open_all(target, each, name)?;
        Ok(streams)
    }

    fn open_all(&mut self, target: &HttpTarget, each: usize, name: &str) -> anyhow::Result<()> {
        let uri = uri(name);
        let requests = ListenRequests::new(target, &Dialect::new(Revision::R2026_07_28, "bench"));
        let started = Instant::now();
        let finder = Finder::new(ACKNOWLEDGED);
        while self.shared.iter().any(|shared| shared.acknowledged < each) {
            ensure!(
                started.elapsed() < WAIT_MAX,
                "not all streams were open after {WAIT_MAX:?}"
            );
            for shared in &mut self.shared {
                if let Some(max) = shared.connection.client().streams_max() {
                    ensure!(
                        max as usize >= each,
                        "the server takes {max} streams on a connection"
                    );
                }
                while shared.reached.len() < each
                    && shared.reached.len() - shared.acknowledged < OPENING_MAX
                    && shared.connection.client().can_open()
                {
                    let body = requests.body(std::iter::once(uri.as_str()));
                    shared.connection.request(requests.headers(), body, false);
                    shared.reached.push(0);
                }
                shared.connection.flush()?;
            }
            self.turn(Duration::from_millis(5), &finder, 1, |_| ())?;
        }
        Ok(())
    }

    /// Makes one change and reads until every stream has its notice; returns after how many milliseconds
    /// each had it.
    pub(crate) fn change(&mut self, request: &[u8]) -> anyhow::Result<Vec<f64>> {
        self.changes += 1;
        let number = self.changes + 1;
        let readers = self.shared.iter().map(|shared| shared.reached.len()).sum();
        let finder = Finder::new("\"uri\":\"bench://");
        let started = Instant::now();
        let written = self.publisher.write(request)?;
        ensure!(
            written == request.len(),
            "the publishing socket is too small for a change"
        );
        let mut latencies = Vec::with_capacity(readers);
        let mut is_answered = false;
        while latencies.len() < readers || !is_answered {
            let left = WAIT_MAX.saturating_sub(started.elapsed());
            let count = latencies.len();
            ensure!(
                !left.is_zero(),
                "after {WAIT_MAX:?} {count} of {readers} streams had the notice"
            );
            is_answered |= self.turn(left, &finder, number, |at| {
                latencies.push(at.duration_since(started).as_secs_f64() * 1e3);
            })?;
        }
        Ok(latencies)
    }

    /// Waits for something to read and reads it. A stream that reaches the event `number` is handed to
    /// `on_reached` with the time of the read. Returns true if a change was answered.
    fn turn(
        &mut self,
        wait: Duration,
        finder: &Finder<'_>,
        number: u32,
        mut on_reached: impl FnMut(Instant),
    ) -> anyhow::Result<bool> {
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(false),
            polled => polled?,
        }
        let mut is_answered = false;
        for event in &self.events {
            if event.token() == PUBLISHER {
                is_answered |= read_answer(&mut self.publisher, &mut self.buffer)?;
            } else if let Some(shared) = self.shared.get_mut(event.token().0) {
                shared.read(&mut self.buffer, finder, number, &mut on_reached)?;
            }
        }
        Ok(is_answered)
    }
}

impl Shared {
    /// Reads all bytes that are there.
    fn read(
        &mut self,
        buffer: &mut [u8],
        finder: &Finder<'_>,
        number: u32,
        on_reached: &mut impl FnMut(Instant),
    ) -> anyhow::Result<()> {
        self.connection.flush()?;
        loop {
            let mut now = None;
            let mut ended = None;
            let reached = &mut self.reached;
            let acknowledged = &mut self.acknowledged;
            let has_more = self.connection.read(buffer, |stream, event| match event {
                StreamEvent::Data(bytes) if finder.find(bytes).is_some() => {
                    if reached[stream] + 1 == number {
                        reached[stream] = number;
                        *acknowledged += usize::from(number == 1);
                        on_reached(*now.get_or_insert_with(Instant::now));
                    }
                }
                StreamEvent::Data(_) | StreamEvent::Head { status: Some(200) } => {}
                StreamEvent::Head { status } => ended = Some(format!("a stream was answered {status:?}")),
                StreamEvent::End(end) => ended = Some(end.to_string()),
            });
            let has_more = has_more.map_err(|reason| anyhow!("{reason}"))?;
            if let Some(reason) = ended {
                bail!("{reason}");
            }
            if !has_more {
                return Ok(());
            }
        }
    }
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
