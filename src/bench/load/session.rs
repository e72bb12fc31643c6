//! A client of the test: opens its stream, subscribes, and reads its notices.
//!
//! One connection carries all of its requests, the stream last, as with a client that keeps connections.

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

/// The bytes of a refused stream's body that are kept for the report.
const QUOTE_BYTES: usize = 1024;

/// The receive buffer of clients that do not read: the less the kernel takes, the sooner the server is
/// blocked.
const SMALL_RECEIVE_BYTES: usize = 4096;

/// The state that all sessions share.
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
        let mut numbers = HashMap::new();
        for (number, uri) in uris.iter().enumerate() {
            numbers.insert(uri.clone(), number);
        }
        Book {
            numbers,
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

/// A client with a stream.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) kind: Kind,
    index: usize,
    dialect: Dialect,
    /// The number of the first resource that it subscribes to; the others follow it.
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
    /// Begins to connect. `index` determines its resources and its source address.
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

    /// Returns the version and the cipher suite of its TLS; none without TLS.
    pub(crate) fn tls(&self) -> Option<String> {
        self.conn.tls()
    }

    /// Returns the request that ends the session; none for a stream without a session.
    pub(crate) fn farewell(&self, target: &HttpTarget) -> Option<Vec<u8>> {
        self.dialect.delete(target)
    }

    /// Ends the registration for events: it reads on demand from now on.
    pub(crate) fn withdraw(&mut self, registry: &Registry) -> io::Result<()> {
        self.conn.deregister(registry)
    }

    /// Registers for events again.
    pub(crate) fn come_back(&mut self, registry: &Registry) -> io::Result<()> {
        self.conn.register(registry, Token(self.index))
    }

    /// Begins to count now, in the middle of the run.
    pub(crate) fn begin_late(&mut self, book: &Book) {
        let first = self.first;
        let count = book.uris.len();
        for (nth, watch) in self.watches.iter_mut().enumerate() {
            *watch = Watch::late((first + nth) % count, &book.updates);
        }
    }

    /// Returns its subscriptions with the numbers of their resources, of which there are `count`.
    pub(crate) fn watches_of(&self, count: usize) -> impl Iterator<Item = (usize, &Watch)> {
        let first = self.first;
        let numbered = self.watches.iter().enumerate();
        numbered.map(move |(nth, watch)| ((first + nth) % count, watch))
    }

    /// Reads all bytes that have come. Fails when the stream cannot be opened or is lost.
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
                    // A read that does not fill the buffer took everything (epoll(7)), which saves a second
                    // call.
                    if count < buffer.len() && !ended {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads once, at most as much as fits into `buffer`.
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

    /// Takes the answer to one of the requests before the stream.
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
        let kind = *kind;
        let first = *first;
        let live = self.step == Step::Live;
        let mut granted = None;
        let mut ended = None;
        let mut broken = Ok(());
        let used = response.read(bytes, |part| {
            // Kept until the stream is live, in case it is a refusal.
            if !live && body.len() < QUOTE_BYTES {
                body.extend_from_slice(part);
            }
            let read = events.read(part, |event| match Notice::read(event.data) {
                // Comments, and the event that primes a stream.
                Notice::Other if event.data.is_empty() => {}
                Notice::Updated { uri, version } => match book.numbers.get(uri.as_ref()) {
                    Some(number) => {
                        // Subscriptions are a run of resources from `first` on, which wraps at the end.
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
            if let Err(error) = read {
                broken = Err(error);
            }
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
            // The whole refusal, or the part that came with the head.
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

    /// Handles the end of the connection.
    fn end(&mut self, book: &Book, registry: &Registry) -> Result<(), String> {
        match self.step {
            Step::Live | Step::Stream => Err("the server closed the stream's connection".to_owned()),
            _ if self.response.ends_with_connection() => self.answered(book, registry),
            // Once only: a server that closes every connection would be asked for ever.
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

    /// Returns the URI of its nth subscription.
    fn uri<'b>(&self, book: &'b Book, nth: usize) -> &'b str {
        &book.uris[(self.first + nth) % book.uris.len()]
    }

    /// Sends the request of the current step.
    fn ask(&mut self, book: &Book) -> io::Result<()> {
        let request = match self.step {
            Step::Initialize => self.dialect.initialize(&book.target),
            Step::Initialized => self.dialect.initialized(&book.target),
            Step::Subscribe(nth) => {
                let params = json!({ "uri": self.uri(book, nth) });
                let id = nth as u64 + 1;
                self.dialect
                    .request(&book.target, id, "resources/subscribe", params)
            }
            Step::Stream => {
                let count = self.watches.len();
                let uris: Vec<&str> = (0..count).map(|nth| self.uri(book, nth)).collect();
                self.dialect.stream(&book.target, &uris)
            }
            Step::Live => return Ok(()),
        };
        self.conn.send(&request)
    }
}

fn connect(book: &Book, index: usize, kind: Kind) -> io::Result<NonblockingConnection> {
    let receive_bytes = match kind {
        Kind::Slow | Kind::Stalled => Some(SMALL_RECEIVE_BYTES),
        Kind::Reading | Kind::Churn | Kind::Polling => None,
    };
    NonblockingConnection::open(&book.target, source(&book.target, index), receive_bytes)
}
