//! The loop of the load test: every connection on one thread with one epoll, so that its share of the machine
//! is small.
//!
//! Between a few events it checks whether an update is due, so that reading never delays an update. The
//! phases are in [`opening`], [`running`] and [`settling`].

mod opening;
mod running;
mod settling;
mod ticker;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::{Poll, Registry, Token, Waker};

use crate::bench::load::pipeline::Pipeline;
use crate::bench::load::poller::Poller;
use crate::bench::load::publisher::Publisher;
use crate::bench::load::schedule::{Schedule, nanos};
use crate::bench::load::session::{Book, Session};
use crate::bench::load::stats::Kind;
use crate::bench::load::streams::Streams;
use crate::bench::meter::Meter;
use crate::bench::report::Second;
use crate::bench::settings::Settings;
use crate::bench::{BenchError, Observer, Progress};

/// The first token of the publisher's connections; sessions have the tokens below.
const PIPELINES: usize = 1 << 20;
/// The first token of the pollers.
const POLLERS: usize = 2 << 20;
/// The connection on which ended sessions are deleted.
const CLEANER: Token = Token(3 << 20);
const WAKER: Token = Token(4 << 20);

/// Events that are handled between two checks for due updates.
const EVENTS_AT_ONCE: usize = 32;
const EVENTS_MAX: usize = 4096;
const READ_BYTES: usize = 64 * 1024;

/// The longest wait; progress, interruption and slow readers are checked this often.
const TICK: Duration = Duration::from_millis(50);

/// CPU and memory of the server and the test at certain moments.
#[derive(Debug, Default, Clone)]
pub(crate) struct Readings {
    pub(crate) empty_kib: Option<u64>,
    pub(crate) idle_kib: Option<u64>,
    pub(crate) after_kib: Option<u64>,
    /// Nanoseconds of CPU in the measured time.
    pub(crate) server_cpu: Option<u64>,
    pub(crate) own_cpu: Option<u64>,
    pub(crate) opened_in: Duration,
}

pub(crate) struct Engine<'a> {
    settings: &'a Settings,
    stop: &'a AtomicBool,
    progress: &'a mut dyn FnMut(Progress<'_>),
    poll: Poll,
    registry: Registry,
    ready: Vec<(usize, bool)>,
    waker: Arc<Waker>,
    events: mio::Events,
    buffer: Vec<u8>,
    clock: Instant,
    pub(crate) book: Book,
    sessions: Vec<Option<Session>>,
    /// The sessions that share connections; then there are no others.
    streams: Option<Streams>,
    /// Connections with more to read, which no event will announce.
    unread: Vec<usize>,
    /// Indices of sessions that have gone, for the next ones.
    free: Vec<usize>,
    opening: usize,
    live: usize,
    /// Sessions that could not be opened, with the reason of the first.
    failed: usize,
    failed_reason: Option<String>,
    running: bool,
    /// The time of the last progress report.
    reported_at: u64,
    churners: VecDeque<(u64, usize)>,
    pub(crate) publisher: Option<Publisher>,
    schedule: Option<Schedule>,
    cleaner: Pipeline<()>,
    pub(crate) pollers: Vec<Poller>,
    server: Option<Meter>,
    own: Meter,
    pub(crate) readings: Readings,
    pub(crate) timeline: Vec<Second>,
}

impl<'a> Engine<'a> {
    pub(crate) fn new(
        settings: &'a Settings,
        outside: &'a mut Observer<'_>,
        book: Book,
        (publisher, streams): (Option<Publisher>, Option<Streams>),
        pid: Option<u32>,
    ) -> Result<Engine<'a>, BenchError> {
        let poll = Poll::new().map_err(|error| broken(&error))?;
        let registry = poll.registry().try_clone().map_err(|error| broken(&error))?;
        let waker = Arc::new(Waker::new(&registry, WAKER).map_err(|error| broken(&error))?);
        Ok(Engine {
            settings,
            stop: outside.stop,
            progress: &mut *outside.progress,
            poll,
            registry,
            ready: Vec::new(),
            waker,
            events: mio::Events::with_capacity(EVENTS_MAX),
            buffer: vec![0; READ_BYTES],
            clock: Instant::now(),
            book,
            sessions: Vec::new(),
            streams,
            unread: Vec::new(),
            free: Vec::new(),
            opening: 0,
            live: 0,
            failed: 0,
            failed_reason: None,
            running: false,
            reported_at: 0,
            churners: VecDeque::new(),
            publisher,
            schedule: None,
            cleaner: Pipeline::new(CLEANER),
            pollers: Vec::new(),
            server: pid.map(Meter::new),
            own: Meter::new(std::process::id()),
            readings: Readings::default(),
            timeline: Vec::new(),
        })
    }

    /// The tokens of the publisher's connections.
    pub(crate) fn pipeline_tokens(count: usize) -> impl Iterator<Item = Token> {
        (PIPELINES..PIPELINES + count).map(Token)
    }

    pub(crate) fn poller_token(number: usize) -> Token {
        Token(POLLERS + number)
    }

    fn now(&self) -> u64 {
        nanos(self.clock.elapsed())
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn report_progress(&mut self, phase: &'static str, done: u64, of: u64) {
        let now = self.now();
        if now.saturating_sub(self.reported_at) < nanos(TICK) {
            return;
        }
        self.reported_at = now;
        let deliveries = self.book.stats.deliveries();
        (self.progress)(Progress {
            phase,
            done,
            of,
            deliveries,
        });
    }

    /// Waits for events until `until` at the longest, and handles them.
    fn turn(&mut self, until: u64) -> Result<(), BenchError> {
        // Never longer than a tick, since interruption is only checked between two waits.
        // Events are edge-triggered: what was left unread is not announced again.
        let wait = match self.unread.is_empty() {
            true => Duration::from_nanos(until.saturating_sub(self.now())).min(TICK),
            false => Duration::ZERO,
        };
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(broken(&error)),
            _ => {}
        }
        // Copied out of the selector's buffer, because handling an event needs the whole engine; the vector
        // is kept.
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let events = self.events.iter();
        ready.extend(events.map(|event| (event.token().0, event.is_read_closed())));
        ready.extend(self.unread.drain(..).map(|token| (token, false)));
        for events in ready.chunks(EVENTS_AT_ONCE) {
            self.publish_due()?;
            for (token, closed) in events {
                self.handle(*token, *closed);
            }
        }
        self.ready = ready;
        self.publish_due()
    }

    fn handle(&mut self, token: usize, closed: bool) {
        if token < PIPELINES {
            match self.streams.is_some() {
                true => self.read_streams(token, closed),
                false => self.read_session(token, closed),
            }
        } else if token < POLLERS {
            let now = self.now();
            if let Some(publisher) = &mut self.publisher {
                publisher.turn(token - PIPELINES, &mut self.buffer, now);
            }
        } else if token < CLEANER.0 {
            self.read_poller(token - POLLERS);
        } else if token == CLEANER.0 && self.cleaner.turn(&mut self.buffer, |(), _, _| ()).is_err() {
            // A server that cannot be told of an ended session lets it time out.
            self.cleaner.abandon();
        }
    }

    fn read_session(&mut self, index: usize, closed: bool) {
        let now = self.now();
        let Some(Some(session)) = self.sessions.get_mut(index) else {
            return;
        };
        let was_live = session.is_live();
        let read = session.turn(&mut self.book, &self.registry, &mut self.buffer, (now, closed));
        let is_live = session.is_live();
        let kind = session.kind;
        // Counted before the outcome of the read: a session can open and break in one read.
        if !was_live && is_live {
            self.opening -= 1;
            self.live += 1;
            self.has_opened(index, kind);
        }
        if let Err(reason) = read {
            self.lose(index, is_live, reason);
        }
    }

    fn read_streams(&mut self, connection: usize, closed: bool) {
        let Some(streams) = &mut self.streams else { return };
        let turned = streams.turn((connection, closed), &mut self.book, &mut self.buffer, self.clock);
        self.live = self.live + turned.opened - turned.lost;
        self.failed += turned.failed;
        if let Some(reason) = turned.reason {
            if turned.failed > 0 {
                self.failed_reason.get_or_insert_with(|| reason.clone());
            }
            if turned.lost > 0 {
                self.book.stats.lose_many(turned.lost, reason);
            }
        }
        if turned.has_more {
            self.unread.push(connection);
        }
    }

    fn has_opened(&mut self, index: usize, kind: Kind) {
        let now = self.now();
        let Some(session) = &mut self.sessions[index] else {
            return;
        };
        if self.running {
            session.begin_late(&self.book);
        }
        match kind {
            Kind::Churn => {
                self.book.stats.group_mut(kind).sessions += 1;
                self.churners.push_back((now + running::CHURN_LIFE, index));
            }
            // The engine decides when they are read. Deregistering fails for a broken socket only, which the
            // next read reports.
            Kind::Slow | Kind::Stalled => {
                session.withdraw(&self.registry).ok();
            }
            Kind::Reading | Kind::Polling => {}
        }
    }

    /// Counts a session that could not be opened, or whose stream ended.
    fn lose(&mut self, index: usize, was_live: bool, reason: String) {
        self.sessions[index] = None;
        if was_live {
            self.live -= 1;
            self.book.stats.lose(reason);
        } else {
            self.opening -= 1;
            self.failed += 1;
            self.failed_reason.get_or_insert(reason);
        }
    }

    fn read_poller(&mut self, number: usize) {
        let now = self.now();
        let poller = &mut self.pollers[number];
        if let Err(reason) = poller.turn(&mut self.book, &mut self.buffer, now) {
            self.book.stats.lose(reason);
        }
    }

    /// Returns the memory of the server, where its process is known.
    fn server_kib(&self) -> Option<u64> {
        self.server.as_ref()?.resident_kib()
    }

    /// Sends every due update whose connection has room.
    fn publish_due(&mut self) -> Result<(), BenchError> {
        let (Some(publisher), Some(schedule)) = (&mut self.publisher, &mut self.schedule) else {
            return Ok(());
        };
        let mut now = nanos(self.clock.elapsed());
        while let Some(due) = schedule.due(now) {
            // It stays due: a later send counts from its due time, so that waiting shows as latency.
            if !publisher.has_room(due.resource) {
                break;
            }
            publisher
                .publish(&mut self.book, &self.registry, due, now)
                .map_err(|error| broken(&error))?;
            schedule.advance();
            now = nanos(self.clock.elapsed());
        }
        Ok(())
    }

    /// Returns the number of sessions that could not be opened during the run, with the first reason.
    pub(crate) fn late_failures(&self) -> Option<(usize, &str)> {
        let reason = self.failed_reason.as_deref()?;
        Some((self.failed, reason))
    }

    /// Returns the version and the cipher suite of TLS, as a session has agreed on them; none without TLS.
    pub(crate) fn tls(&self) -> Option<String> {
        match &self.streams {
            Some(streams) => streams.tls(),
            None => self.sessions.iter().flatten().find_map(Session::tls),
        }
    }

    /// Returns the requests that end the open sessions at the server.
    pub(crate) fn farewells(&self) -> Vec<Vec<u8>> {
        let mut requests = Vec::new();
        for session in self.sessions.iter().flatten() {
            requests.extend(session.farewell(&self.book.target));
        }
        for poller in &self.pollers {
            requests.extend(poller.farewell(&self.book));
        }
        requests
    }
}

fn broken(error: &io::Error) -> BenchError {
    BenchError::Failed(format!("the load test itself broke: {error}"))
}
