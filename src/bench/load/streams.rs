//! The clients of a run that share connections of HTTP/2: each is one listen stream.
//!
//! A client costs its subscriptions and ten bytes, so that a million of them fit: its resources, its kind and
//! its connection follow from its place among the others.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::Instant;

use mio::{Registry, Token};

use crate::bench::load::schedule::nanos;
use crate::bench::load::session::Book;
use crate::bench::load::stats::Kind;
use crate::bench::load::updates::Watch;
use crate::bench::settings::Settings;
use crate::bench::target::source;
use crate::bench::{BenchError, CLIENT_NAME};
use crate::wire::dialect::{Dialect, Revision};
use crate::wire::http1::HttpTarget;
use crate::wire::http2::client::StreamEvent;
use crate::wire::http2::connection::Http2Connection;
use crate::wire::http2::request::ListenRequests;

use super::stream_reader::{Arrival, Partial, Phase, StreamReader, Turned};

/// Streams of one connection that are opening at the same time.
const OPENING_MAX: usize = 100;
/// Connections that are opening at the same time: less than any listener's backlog.
const CONNECTING_MAX: usize = 100;
/// Reads of one connection before the others have their turn.
const READS_MAX: usize = 16;

/// All streams.
pub(crate) struct Streams {
    target: HttpTarget,
    shared: Vec<SharedConnection>,
    reader: StreamReader,
    /// The streams that were opened, or will never be.
    begun: usize,
    /// The connection that opens the next stream.
    next: usize,
    some_shut: bool,
}

/// The streams of one connection.
struct SharedConnection {
    connection: Option<Http2Connection>,
    is_lost: bool,
    /// True once the server has sent the end of the connection.
    is_closed: bool,
    /// The places of its streams among all of them; those beyond the first `reading` are stalled.
    places: Range<usize>,
    reading: usize,
    /// The streams that were opened.
    opened: usize,
    /// The part of them that is not live yet.
    opening: usize,
    partial: HashMap<usize, Partial>,
}

impl Streams {
    /// Plans the streams of a run.
    pub(crate) fn new(settings: &Settings, connections: usize, target: HttpTarget) -> Streams {
        let mut shared = Vec::with_capacity(connections);
        let mut begin = 0;
        for nth in 0..connections {
            // Every connection has its share of each kind, so that the stalled ones are beside others.
            let share = |all: usize| all / connections + usize::from(nth < all % connections);
            let reading = share(settings.sessions);
            let end = begin + reading + share(settings.stalled);
            shared.push(SharedConnection {
                connection: None,
                is_lost: false,
                is_closed: false,
                places: begin..end,
                reading,
                opened: 0,
                opening: 0,
                partial: HashMap::new(),
            });
            begin = end;
        }
        Streams {
            target,
            shared,
            reader: StreamReader::new(begin, settings.subscribe),
            begun: 0,
            next: 0,
            some_shut: settings.stalled > 0,
        }
    }

    /// Opens streams until `allowed` of them were opened, as far as the server takes them now.
    ///
    /// # Errors
    /// [`BenchError::Failed`] if a connection cannot be made, or cannot have as many streams.
    pub(crate) fn open_until(
        &mut self,
        allowed: usize,
        book: &Book,
        registry: &Registry,
    ) -> Result<(), BenchError> {
        self.connect_some(registry)?;
        let dialect = Dialect::new(Revision::R2026_07_28, CLIENT_NAME);
        // Anew each time, since a token may have been renewed.
        let requests = ListenRequests::new(&self.target, &dialect);
        let count = self.shared.len();
        // In turn, so that no connection has all of its streams before another has some.
        let mut passed = 0;
        while self.begun < allowed && passed < count {
            let shared = &mut self.shared[self.next];
            self.next = (self.next + 1) % count;
            match shared.open_one(&requests, book, &mut self.reader) {
                true => {
                    self.begun += 1;
                    passed = 0;
                }
                false => passed += 1,
            }
        }
        for shared in &mut self.shared {
            if let Some(connection) = &mut shared.connection {
                // An error of the socket shows in the next read, too, which counts the streams.
                connection.flush().ok();
            }
        }
        Ok(())
    }

    fn connect_some(&mut self, registry: &Registry) -> Result<(), BenchError> {
        let some_shut = self.some_shut;
        let mut connecting = 0;
        for (nth, shared) in self.shared.iter_mut().enumerate() {
            if connecting == CONNECTING_MAX {
                break;
            }
            if shared.connection.is_none() && !shared.is_lost && !shared.places.is_empty() {
                let opened = Http2Connection::open(
                    &self.target,
                    source(&self.target, nth),
                    (shared.places.len(), some_shut),
                    (registry, Token(nth)),
                );
                let opened = opened.map_err(|error: io::Error| BenchError::Failed(error.to_string()))?;
                shared.connection = Some(opened);
            }
            let Some(connection) = &shared.connection else {
                continue;
            };
            match connection.client().streams_max() {
                None => connecting += 1,
                Some(max) if (max as usize) < shared.places.len() => {
                    let all = self.reader.phases.len();
                    return Err(BenchError::Failed(format!(
                        "the server takes {max} streams on a connection: say --connections {} or more, or let it take \
                         more (http.h2_streams_max of Tidings)",
                        all.div_ceil((max as usize).max(1))
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Reads what has come on a connection.
    pub(crate) fn turn(
        &mut self,
        (nth, closed): (usize, bool),
        book: &mut Book,
        buffer: &mut [u8],
        clock: Instant,
    ) -> Turned {
        let Some(shared) = self.shared.get_mut(nth) else {
            return Turned::default();
        };
        shared.is_closed |= closed;
        let read = shared.read(book, &mut self.reader, buffer, clock);
        // Before an error is looked at: streams can open and be lost in one read.
        let mut turned = std::mem::take(&mut self.reader.turned);
        shared.opening -= turned.opened + turned.failed;
        let reason = match read {
            Ok(more) => {
                turned.has_more = more;
                let client = shared.connection.as_ref().map(Http2Connection::client);
                let farewell = client.and_then(|client| client.farewell());
                farewell.map(|reason| format!("the server takes no more streams (GOAWAY): {reason}"))
            }
            Err(reason) => {
                shared.connection = None;
                shared.is_lost = true;
                shared.opening = 0;
                let begun = shared.places.start..shared.places.start + shared.opened;
                self.reader.lose_all(begun, &mut turned, &reason);
                Some(reason)
            }
        };
        // Those that were not opened yet will never be.
        let unopened = shared.places.len() - shared.opened;
        if let Some(reason) = reason
            && unopened > 0
        {
            let first = shared.places.start + shared.opened;
            self.reader.phases[first..shared.places.end].fill(Phase::Gone);
            shared.opened = shared.places.len();
            self.begun += unopened;
            turned.failed += unopened;
            turned.reason.get_or_insert(reason);
        }
        turned
    }

    /// Lets the stalled streams read like the others.
    pub(crate) fn unshut(&mut self) {
        for shared in &mut self.shared {
            let Some(connection) = &mut shared.connection else {
                continue;
            };
            for stream in shared.reading..shared.opened {
                connection.unshut(stream);
            }
            // An error of the socket shows in the next read, too.
            connection.flush().ok();
        }
    }

    /// Returns the subscriptions of all live streams with their kinds and the numbers of their resources, of
    /// which there are `count`.
    pub(crate) fn watches(&self, count: usize) -> impl Iterator<Item = (Kind, usize, &Watch)> {
        let shared = self.shared.iter();
        let numbered = shared.flat_map(|shared| shared.places.clone().map(move |place| (shared, place)));
        let live = numbered.filter(|(_, place)| self.reader.phases[*place] == Phase::Live);
        live.flat_map(move |(shared, place)| {
            let watches = self.reader.watches_of(place, count);
            let kind = kind_of(place - shared.places.start, shared.reading);
            watches.map(move |(resource, watch)| (kind, resource, watch))
        })
    }

    /// Returns the version and the cipher suite of TLS; none without TLS.
    pub(crate) fn tls(&self) -> Option<String> {
        let mut connections = self.shared.iter().filter_map(|shared| shared.connection.as_ref());
        connections.find_map(Http2Connection::tls)
    }
}

impl SharedConnection {
    /// Opens one more stream, unless it has all, or must wait.
    fn open_one(&mut self, requests: &ListenRequests, book: &Book, reader: &mut StreamReader) -> bool {
        let Some(connection) = &mut self.connection else {
            return false;
        };
        // The server's own limit may be higher, but a burst of requests would delay the answers to all.
        if self.opened == self.places.len() || self.opening == OPENING_MAX || !connection.client().can_open()
        {
            return false;
        }
        let place = self.places.start + self.opened;
        let body = requests.body(reader.uris(place, &book.uris));
        connection.request(requests.headers(), body, self.opened >= self.reading);
        reader.phases[place] = Phase::Opening;
        self.opened += 1;
        self.opening += 1;
        true
    }

    /// Returns true if more may be there.
    fn read(
        &mut self,
        book: &mut Book,
        reader: &mut StreamReader,
        buffer: &mut [u8],
        clock: Instant,
    ) -> Result<bool, String> {
        let begin = self.places.start;
        let reading = self.reading;
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        connection.flush().map_err(|error| error.to_string())?;
        let mut is_drained = false;
        for _ in 0..READS_MAX {
            let mut now = None;
            let partial = &mut self.partial;
            let has_more = connection.read(buffer, |stream, event| {
                // One time for all events of a read.
                let now = *now.get_or_insert_with(|| nanos(clock.elapsed()));
                let place = begin + stream;
                let kind = kind_of(stream, reading);
                match event {
                    StreamEvent::Data(bytes) => {
                        reader.data(Arrival { place, kind, now }, partial, bytes, book);
                    }
                    StreamEvent::Head { status } => reader.head(place, partial, status),
                    StreamEvent::End(end) => reader.end(place, partial, end),
                }
            })?;
            // No event will follow the one that told of the end, so it is read after the last bytes.
            if !has_more && (is_drained || !self.is_closed) {
                return Ok(false);
            }
            is_drained = !has_more;
        }
        Ok(true)
    }
}

/// Returns the kind of a connection's stream, of which the first `reading` are read.
fn kind_of(stream: usize, reading: usize) -> Kind {
    match stream < reading {
        true => Kind::Reading,
        false => Kind::Stalled,
    }
}
