//! Reads the events of streams that share connections, and counts them.

use std::collections::HashMap;
use std::ops::Range;

use crate::bench::load::session::Book;
use crate::bench::load::stats::Kind;
use crate::bench::load::updates::Watch;
use crate::bench::notice::Notice;
use crate::wire::http2::client::StreamEnd;
use crate::wire::jsonrpc;
use crate::wire::sse::EventReader;

/// The bytes of a refused stream's body that are kept for the report.
const QUOTE_BYTES: usize = 1024;

/// The step of a stream's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Waiting,
    Opening,
    Live,
    Gone,
}

/// A stream that is not live, or that has read a part of an event.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    /// The status of a refusal.
    refused: Option<String>,
    /// The beginning of the body, in case it is a refusal.
    quote: Vec<u8>,
    events: EventReader,
}

/// The stream on which something came, and the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) place: usize,
    pub(crate) kind: Kind,
    pub(crate) now: u64,
}

/// The changes that one turn of a connection made.
#[derive(Debug, Default)]
pub(crate) struct Turned {
    /// Streams that became live.
    pub(crate) opened: usize,
    /// Streams that could not be opened.
    pub(crate) failed: usize,
    /// Live streams that ended.
    pub(crate) lost: usize,
    /// The first reason for either.
    pub(crate) reason: Option<String>,
    /// True if more is there to read.
    pub(crate) has_more: bool,
}

/// The subscriptions of all streams.
#[derive(Debug)]
pub(crate) struct StreamReader {
    subscribe: usize,
    /// The subscriptions of every stream, one stream after the other.
    watches: Vec<Watch>,
    pub(crate) phases: Vec<Phase>,
    /// The resource of the notice before, which is often that of the next one.
    last: usize,
    pub(crate) turned: Turned,
}

impl StreamReader {
    /// Makes room for `streams` streams with `subscribe` subscriptions each.
    pub(crate) fn new(streams: usize, subscribe: usize) -> StreamReader {
        StreamReader {
            subscribe,
            watches: vec![Watch::default(); streams * subscribe],
            phases: vec![Phase::Waiting; streams],
            last: 0,
            turned: Turned::default(),
        }
    }

    /// Returns the URIs of a stream: a run of them, which wraps at the end.
    pub(crate) fn uris<'u>(&self, place: usize, uris: &'u [String]) -> impl Iterator<Item = &'u str> {
        let first = place * self.subscribe % uris.len();
        let run = uris.iter().cycle().skip(first).take(self.subscribe);
        run.map(String::as_str)
    }

    /// Returns the subscriptions of a stream with the numbers of their resources, of which there are `count`.
    pub(crate) fn watches_of(&self, place: usize, count: usize) -> impl Iterator<Item = (usize, &Watch)> {
        let first = place * self.subscribe;
        let watches = self.watches[first..first + self.subscribe].iter();
        (first..)
            .zip(watches)
            .map(move |(nth, watch)| (nth % count, watch))
    }

    /// Takes the head of an answer.
    pub(crate) fn head(&mut self, place: usize, partial: &mut HashMap<usize, Partial>, status: Option<u16>) {
        if status != Some(200) {
            partial.entry(place).or_default().refused = Some(match status {
                Some(status) => status.to_string(),
                None => "that is not 200".to_owned(),
            });
        }
    }

    /// Takes a part of a stream's body.
    pub(crate) fn data(
        &mut self,
        at: Arrival,
        partial: &mut HashMap<usize, Partial>,
        bytes: &[u8],
        book: &mut Book,
    ) {
        let place = at.place;
        // What the server sent before it learned of the end counts for nothing.
        if self.phases[place] == Phase::Gone {
            return;
        }
        let mut rest = bytes;
        // Nearly always a frame has whole events of one line: those are read where they lie.
        if self.phases[place] == Phase::Live && (partial.is_empty() || !partial.contains_key(&place)) {
            while let Some((event, after)) = whole_event(rest) {
                if let Some(reason) = self.event(at, event, book) {
                    return self.lose(place, reason);
                }
                rest = after;
            }
            if rest.is_empty() {
                return;
            }
        }
        let mut state = partial.remove(&place).unwrap_or_default();
        if self.phases[place] != Phase::Live && state.quote.len() < QUOTE_BYTES {
            state
                .quote
                .extend_from_slice(&rest[..rest.len().min(QUOTE_BYTES)]);
        }
        // The body of a refusal has no events.
        if state.refused.is_none() {
            let mut ended = None;
            let read = state.events.read(rest, |event| {
                let reason = self.event(at, event.data, book);
                ended = ended.take().or(reason);
            });
            let reason = ended.or_else(|| read.err().map(|error| error.to_string()));
            if let Some(reason) = reason {
                return self.lose(place, reason);
            }
            if self.phases[place] == Phase::Live {
                state.quote = Vec::new();
                // Nothing of an event is left.
                if rest.ends_with(b"\n\n") {
                    return;
                }
            }
        }
        partial.insert(place, state);
    }

    /// Takes one event; returns the reason if it ends the stream.
    fn event(&mut self, at: Arrival, data: &[u8], book: &mut Book) -> Option<String> {
        match Notice::scan(data) {
            // Comments, and the event that primes a stream.
            Notice::Other if data.is_empty() => {}
            Notice::Updated { uri, version } => {
                if self.updated(at, &uri, version, book).is_none() {
                    book.stats.others += 1;
                }
            }
            Notice::Acknowledged { granted } => match granted {
                Some(count) if count < self.subscribe => {
                    let all = self.subscribe;
                    return Some(format!("the server granted {count} of {all} subscriptions"));
                }
                _ if self.phases[at.place] == Phase::Opening => {
                    self.phases[at.place] = Phase::Live;
                    self.turned.opened += 1;
                }
                _ => {}
            },
            Notice::Answer { error } => {
                let error = error.unwrap_or_else(|| "it said that it is complete".to_owned());
                return Some(format!("the server ended the stream: {error}"));
            }
            Notice::Other => book.stats.others += 1,
        }
        None
    }

    /// Counts a notice; none if the stream has not asked for the resource.
    fn updated(&mut self, at: Arrival, uri: &str, version: Option<u64>, book: &mut Book) -> Option<()> {
        if book.uris.get(self.last).map(String::as_str) != Some(uri) {
            self.last = *book.numbers.get(uri)?;
        }
        let number = self.last;
        let count = book.uris.len();
        let first = at.place * self.subscribe;
        // Subscriptions are a run of resources, which wraps at the end.
        let nth = (number + count - first % count) % count;
        let watches = &mut self.watches[first..first + self.subscribe];
        let told = watches.get_mut(nth)?.note(number, version, at.now, &book.updates);
        book.stats.note(at.kind, told, at.now);
        Some(())
    }

    /// Takes the end of a stream.
    pub(crate) fn end(&mut self, place: usize, partial: &mut HashMap<usize, Partial>, end: StreamEnd) {
        let state = partial.remove(&place).unwrap_or_default();
        let reason = match state.refused {
            Some(status) => format!(
                "the stream was refused: {}",
                jsonrpc::refused(&status, &state.quote)
            ),
            // Some servers answer with an error in JSON, and call that a success.
            None if !state.quote.is_empty() => jsonrpc::refused("200 without a stream", &state.quote),
            None => end.to_string(),
        };
        self.lose(place, reason);
    }

    fn lose(&mut self, place: usize, reason: String) {
        match std::mem::replace(&mut self.phases[place], Phase::Gone) {
            Phase::Live => self.turned.lost += 1,
            Phase::Waiting | Phase::Opening => self.turned.failed += 1,
            Phase::Gone => return,
        }
        self.turned.reason.get_or_insert(reason);
    }

    /// Loses all streams of a connection that were opened.
    pub(crate) fn lose_all(&mut self, places: Range<usize>, turned: &mut Turned, reason: &str) {
        // Counted where the other changes of the turn are.
        std::mem::swap(&mut self.turned, turned);
        for place in places {
            self.lose(place, reason.to_owned());
        }
        std::mem::swap(&mut self.turned, turned);
    }
}

/// Splits an event of one line of data off; none where the bytes begin otherwise.
fn whole_event(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = memchr::memchr(b'\n', bytes)?;
    let after = bytes[line..].strip_prefix(b"\n\n")?;
    let data = bytes[..line].strip_prefix(b"data: ")?;
    Some((data, after))
}
