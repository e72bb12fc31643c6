//! One client of the test: opens its stream, subscribes, and reads what it is told.
//!
//! Owns its connection and how far it is. One connection carries everything, the stream last, as it would with any
//! client that keeps connections. What it reads goes to the book; when it reads is the engine's decision.

use std::collections::HashMap;
use std::io;

use mio::{Registry, Token};
use serde_json::json;

use crate::bench::CLIENT_NAME;
use crate::bench::load::stats::{Kind, Stats};
use crate::bench::load::updates::{Updates, Watch};
use crate::bench::notice::Notice;
use crate::bench::target::source;
use crate::wire::dialect::{Dialect, Revision};
use crate::wire::http1::{HttpTarget, ResponseReader};
use crate::wire::jsonrpc;
use crate::wire::nonblocking::{NonblockingConnection, ReadOutcome};
use crate::wire::sse::EventReader;

/// So much of a refused stream's body is kept to quote it.
const QUOTE_BYTES: usize = 1024;

/// The receive buffer of those who do not read: the less the kernel takes, the sooner the server feels it.
const SMALL_RECEIVE_BYTES: usize = 4096;

/// What all sessions share.
#[derive(Debug)]
pub(crate) struct Book {
    pub(crate) target: HttpTarget,
    pub(crate) uris: Vec<String>,
    pub(crate) numbers: HashMap<String, usize>,
    pub(crate) updates: Updates,
    pub(crate) stats: Stats,
}

impl Book {
    pub(crate) fn new(target: HttpTarget, uris: Vec<String>) -> Book {
        Book {
            numbers: uris.iter().cloned().zip(0..).collect(),
            updates: Updates::new(uris.len()),
            stats: Stats::new(),
            uris,
            target,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Initialize,
    Initialized,
    Subscribe(usize),
    Stream,
    Live,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) kind: Kind,
    index: usize,
    dialect: Dialect,
    /// The first resource that it subscribes to; the others follow it.
    first: usize,
    watches: Vec<Watch>,
    step: Step,
    conn: NonblockingConnection,
    response: ResponseReader,
    events: EventReader,
    body: Vec<u8>,
    retried: bool,
}

impl Session {
    /// Begins to connect. `index` decides its resources and its source address.
    pub(crate) fn open(
        book: &Book,
        registry: &Registry,
        (index, kind): (usize, Kind),
        revision: Revision,
        subscribe: usize,
    ) -> io::Result<Session> {
        let mut session = Session {
            kind,
            index,
            dialect: Dialect::new(revision, CLIENT_NAME),
            first: index * subscribe % book.uris.len(),
            watches: vec![Watch::default(); subscribe],
            step: match revision.is_stateless() {
                true => Step::Stream,
                false => Step::Initialize,
            },
            conn: connect(book, index, kind)?,
            response: ResponseReader::default(),
            events: EventReader::default(),
            body: Vec::new(),
            retried: false,
        };
        session.conn.register(registry, Token(index))?;
        session.ask(book)?;
        Ok(session)
    }

    pub(crate) fn is_live(&self) -> bool {
        self.step == Step::Live
    }

    /// The request that ends the session, where it is one.
    pub(crate) fn farewell(&self, target: &HttpTarget) -> Option<Vec<u8>> {
        self.dialect.delete(target)
    }

    /// No readiness is told of any more: it reads when it is asked to.
    pub(crate) fn withdraw(&mut self, registry: &Registry) -> io::Result<()> {
        self.conn.deregister(registry)
    }

    /// Readiness is told of again.
    pub(crate) fn come_back(&mut self, registry: &Registry) -> io::Result<()> {
        self.conn.register(registry, Token(self.index))
    }

    /// It begins to count now, in the middle of the run.
    pub(crate) fn begin_late(&mut self, book: &Book) {
        let (first, count) = (self.first, book.uris.len());
        for (nth, watch) in self.watches.iter_mut().enumerate() {
            *watch = Watch::late((first + nth) % count, &book.updates);
        }
    }

    /// What it subscribed to, and how far it has been told of it.
    pub(crate) fn watches(&self, book: &Book) -> impl Iterator<Item = (usize, &Watch)> {
        let (first, count) = (self.first, book.uris.len());
        let numbered = self.watches.iter().enumerate();
        numbered.map(move |(nth, watch)| ((first + nth) % count, watch))
    }

    /// Reads up to `bytes` of what has come, or all of it. Fails when it cannot be opened or its stream is lost.
    pub(crate) fn turn(
        &mut self,
        book: &mut Book,
        registry: &Registry,
        buffer: &mut [u8],
        (now, ended): (u64, bool),
    ) -> Result<(), String> {
        if !self.is_live() {
            self.conn.flush().map_err(|error| error.to_string())?;
        }
        loop {
            match self.conn.read(buffer).map_err(|error| error.to_string())? {
                ReadOutcome::Nothing => return Ok(()),
                ReadOutcome::End => {
                    self.end(book, registry)?;
                    return Ok(());
                }
                ReadOutcome::Bytes(count) => {
                    self.take(&buffer[..count], book, registry, now)?;
                    // A read that does not fill the buffer took everything (epoll(7)): no second call only to hear so.
                    if count < buffer.len() && !ended {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads once, no more than fits into `buffer`.
    pub(crate) fn read_once(
        &mut self,
        book: &mut Book,
        registry: &Registry,
        buffer: &mut [u8],
        now: u64,
    ) -> Result<(), String> {
        match self.conn.read(buffer).map_err(|error| error.to_string())? {
            ReadOutcome::Nothing => Ok(()),
            ReadOutcome::End => self.end(book, registry),
            ReadOutcome::Bytes(count) => self.take(&buffer[..count], book, registry, now),
        }
    }

    fn take(&mut self, bytes: &[u8], book: &mut Book, registry: &Registry, now: u64) -> Result<(), String> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = match self.step {
                Step::Live | Step::Stream => self.take_stream(rest, book, now)?,
                _ => self.take_answer(rest, book, registry)?,
            };
            rest = &rest[used..];
        }
        Ok(())
    }

    fn take_answer(&mut self, bytes: &[u8], book: &Book, registry: &Registry) -> Result<usize, String> {
        let body = &mut self.body;
        let read = self.response.read(bytes, |part| body.extend_from_slice(part));
        let used = read.map_err(|error| error.to_string())?;
        if self.response.is_done() {
            self.answered(book, registry)?;
        }
        Ok(used)
    }

    /// An answer to one of the requests before the stream is complete.
    fn answered(&mut self, book: &Book, registry: &Registry) -> Result<(), String> {
        let response = std::mem::take(&mut self.response);
        let body = std::mem::take(&mut self.body);
        let head = response.head().ok_or("an answer without a head")?;
        self.step = match self.step {
            Step::Initialize => {
                jsonrpc::result(head, &body).map_err(|reason| format!("initialize was refused: {reason}"))?;
                self.dialect.session = head.session().map(str::to_owned);
                Step::Initialized
            }
            Step::Initialized if head.is_success() => Step::Subscribe(0),
            Step::Initialized => {
                return Err(format!(
                    "initialized was refused: {}",
                    jsonrpc::refusal(head, &body)
                ));
            }
            Step::Subscribe(nth) => {
                jsonrpc::result(head, &body)
                    .map_err(|reason| format!("resources/subscribe was refused: {reason}"))?;
                match nth + 1 < self.watches.len() {
                    true => Step::Subscribe(nth + 1),
                    false => Step::Stream,
                }
            }
            step => step,
        };
        self.retried = false;
        match head.closes {
            true => self.reconnect(book, registry),
            false => self.ask(book).map_err(|error| error.to_string()),
        }
    }

    fn take_stream(&mut self, bytes: &[u8], book: &mut Book, now: u64) -> Result<usize, String> {
        let Session {
            response,
            events,
            body,
            watches,
            first,
            kind,
            ..
        } = self;
        let (kind, first, live) = (*kind, *first, self.step == Step::Live);
        let (mut granted, mut ended, mut broken) = (None, None, Ok(()));
        let used = response.read(bytes, |part| {
            if !live && body.len() < QUOTE_BYTES {
                body.extend_from_slice(part);
            }
            let heard = events.read(part, |event| match Notice::read(event.data) {
                // Comments, and the event that primes a stream.
                Notice::Other if event.data.is_empty() => {}
                Notice::Updated { uri, version } => match book.numbers.get(uri.as_ref()) {
                    Some(number) => {
                        let nth = (number + book.uris.len() - first) % book.uris.len();
                        if let Some(watch) = watches.get_mut(nth) {
                            let told = watch.note(*number, version, now, &book.updates);
                            book.stats.note(kind, told, now);
                        } else {
                            book.stats.others += 1;
                        }
                    }
                    None => book.stats.others += 1,
                },
                Notice::Acknowledged { granted: count } => granted = Some(count),
                Notice::Answer { error } => ended = Some(error),
                Notice::Other => book.stats.others += 1,
            });
            broken = broken.and(heard);
        });
        let used = used.map_err(|error| error.to_string())?;
        broken.map_err(|error| error.to_string())?;
        if let Some(error) = ended {
            let error = error.unwrap_or_else(|| "it said that it is complete".to_owned());
            return Err(format!("the server ended the stream: {error}"));
        }
        if !live {
            self.become_live(granted)?;
        }
        match self.response.is_done() {
            true => Err("the server ended the stream".to_owned()),
            false => Ok(used),
        }
    }

    fn become_live(&mut self, granted: Option<Option<usize>>) -> Result<(), String> {
        let Some(head) = self.response.head() else {
            return Ok(());
        };
        if head.status != 200 || !head.is_stream {
            // All of the refusal, or as much as came with the head.
            let reason = jsonrpc::refusal(head, &self.body);
            return Err(format!("the stream was refused: {reason}"));
        }
        if self.dialect.revision.is_stateless() {
            match granted {
                None => return Ok(()),
                Some(Some(count)) if count < self.watches.len() => {
                    return Err(format!(
                        "the server granted {count} of {} subscriptions",
                        self.watches.len()
                    ));
                }
                Some(_) => {}
            }
        }
        self.step = Step::Live;
        self.body = Vec::new();
        Ok(())
    }

    /// The connection ended.
    fn end(&mut self, book: &Book, registry: &Registry) -> Result<(), String> {
        match self.step {
            Step::Live | Step::Stream => Err("the server closed the stream's connection".to_owned()),
            _ if self.response.ends_with_connection() => self.answered(book, registry),
            _ if self.retried => Err("the server closed the connection before it answered".to_owned()),
            _ => {
                self.retried = true;
                self.reconnect(book, registry)
            }
        }
    }

    fn reconnect(&mut self, book: &Book, registry: &Registry) -> Result<(), String> {
        self.response = ResponseReader::default();
        self.body.clear();
        let opened = connect(book, self.index, self.kind).and_then(|conn| {
            self.conn = conn;
            self.conn.register(registry, Token(self.index))?;
            self.ask(book)
        });
        opened.map_err(|error| error.to_string())
    }

    /// Sends the request of the step that it is at.
    fn ask(&mut self, book: &Book) -> io::Result<()> {
        let uri = |nth: usize| book.uris[(self.first + nth) % book.uris.len()].as_str();
        let request = match self.step {
            Step::Initialize => self.dialect.initialize(&book.target),
            Step::Initialized => self.dialect.initialized(&book.target),
            Step::Subscribe(nth) => {
                let params = json!({ "uri": uri(nth) });
                let id = nth as u64 + 1;
                self.dialect
                    .request(&book.target, id, "resources/subscribe", params)
            }
            Step::Stream => {
                let uris: Vec<&str> = (0..self.watches.len()).map(uri).collect();
                self.dialect.stream(&book.target, &uris)
            }
            Step::Live => return Ok(()),
        };
        self.conn.send(&request)
    }
}

fn connect(book: &Book, index: usize, kind: Kind) -> io::Result<NonblockingConnection> {
    let small = matches!(kind, Kind::Slow | Kind::Stalled).then_some(SMALL_RECEIVE_BYTES);
    NonblockingConnection::open(book.target.address, source(&book.target, index), small)
}
