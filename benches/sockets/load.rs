//! The readers of all streams and the connections that publish, in one epoll loop on one thread.
//!
//! They parse no protocol: a notice is an occurrence of a text that each has exactly once, and so is an
//! answer. Plain nonblocking sockets instead of an async runtime keep the readers' share of the machine
//! small.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::kind::Kind;
use super::matches::{Matches, Text};

/// The limit on the time until every reader has one change, or one burst.
const DELIVERY_MAX: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 * 1024;
/// The sockets that one turn of the loop reads, so that a change that is due waits for no more of them.
const TURN_MAX: usize = 1024;

/// All readers and the publishers. The token of a stream is its index, that of a publisher its index after
/// all of them.
pub(crate) struct Load {
    poll: Poll,
    events: Events,
    publishers: Vec<Publisher>,
    /// The texts in any answer and in a success; none where publications are not answered.
    answer: Option<(Text, Text)>,
    streams: Vec<Stream>,
    notice: Text,
    fence: Text,
    bytes: u64,
    buffer: Vec<u8>,
}

struct Publisher {
    socket: TcpStream,
    answers: Matches,
    successes: Matches,
}

struct Stream {
    socket: TcpStream,
    notices: Matches,
    fences: Matches,
}

/// The notices that a stream has read since the last publication.
#[derive(Debug, Clone, Copy)]
struct Progress {
    notices: usize,
    fences: usize,
}

/// The notices that a stream waits for.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Notices(usize),
    Fence,
}

impl Progress {
    fn without_fences(self) -> usize {
        self.notices - self.fences
    }

    fn has(self, awaited: Awaited) -> bool {
        match awaited {
            Awaited::Notices(count) => self.notices >= count,
            Awaited::Fence => self.fences > 0,
        }
    }
}

impl Load {
    /// Takes the sockets over; they become nonblocking.
    pub(crate) fn new(
        kind: Kind,
        publishers: Vec<std::net::TcpStream>,
        streams: Vec<std::net::TcpStream>,
    ) -> anyhow::Result<Load> {
        let poll = Poll::new()?;
        let mut load = Load {
            events: Events::with_capacity(TURN_MAX),
            publishers: Vec::new(),
            answer: kind
                .answers()
                .map(|(any, success)| (Text::new(any), Text::new(success))),
            streams: Vec::new(),
            notice: Text::new(kind.notice()),
            fence: Text::new(kind.fence()),
            bytes: 0,
            buffer: vec![0; READ_BYTES],
            poll,
        };
        for socket in streams {
            let socket = load.register(socket, load.streams.len())?;
            load.streams.push(Stream {
                socket,
                notices: Matches::default(),
                fences: Matches::default(),
            });
        }
        for socket in publishers {
            let socket = load.register(socket, load.streams.len() + load.publishers.len())?;
            load.publishers.push(Publisher {
                socket,
                answers: Matches::default(),
                successes: Matches::default(),
            });
        }
        Ok(load)
    }

    fn register(&self, socket: std::net::TcpStream, token: usize) -> anyhow::Result<TcpStream> {
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket);
        let registry = self.poll.registry();
        registry.register(&mut socket, Token(token), Interest::READABLE)?;
        Ok(socket)
    }

    /// Returns the bytes read on all streams.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes one change and reads until `readers` streams have its notice; returns after how many
    /// milliseconds each had it.
    pub(crate) fn change(&mut self, request: &[u8], readers: usize) -> anyhow::Result<Vec<f64>> {
        self.publish(&[request], Awaited::Notices(1), readers)
    }

    /// Makes changes of as many resources at once, spread over the publishers, and reads until every stream
    /// has the notice of each.
    pub(crate) fn change_all(&mut self, requests: &[Vec<u8>]) -> anyhow::Result<()> {
        let readers = self.streams.len();
        self.publish(requests, Awaited::Notices(requests.len()), readers)?;
        Ok(())
    }

    /// Makes changes at once, of which the last is the fence, and reads until every stream has its notice.
    /// Returns the number of all notices.
    pub(crate) fn burst(&mut self, requests: &[Vec<u8>]) -> anyhow::Result<usize> {
        let readers = self.streams.len();
        self.publish(requests, Awaited::Fence, readers)?;
        Ok(self.streams.iter().map(|stream| stream.notices.count).sum())
    }

    /// Makes a change every `interval`, in the open model: each is made when it is due, even if the one
    /// before is not delivered yet. The last one is of the fence; reads until every stream has its notice.
    ///
    /// Returns, in milliseconds, how long after a change was due each stream had its notice. The n-th notice
    /// of a stream is taken for the n-th change: where changes were merged, latencies look longer than they
    /// were, and never shorter.
    pub(crate) fn paced(&mut self, requests: &[Vec<u8>], interval: Duration) -> anyhow::Result<Vec<f64>> {
        self.reset();
        let readers = self.streams.len();
        let started = Instant::now();
        let mut published = 0;
        let mut reached = 0;
        let mut latencies = Vec::with_capacity(readers * requests.len());
        while reached < readers {
            let due = interval * published as u32;
            let is_over = published == requests.len();
            if !is_over && started.elapsed() >= due {
                self.write(&requests[published..=published])?;
                published += 1;
                continue;
            }
            let next = match is_over {
                true => due + DELIVERY_MAX,
                false => due,
            };
            let left = next.saturating_sub(started.elapsed());
            ensure!(
                !(is_over && left.is_zero()),
                "{DELIVERY_MAX:?} after the last change {reached} of {readers} streams had its notice"
            );
            self.turn(left, |before, after| {
                let now = started.elapsed();
                for number in before.without_fences()..after.without_fences() {
                    let late = now.saturating_sub(interval * number as u32);
                    latencies.push(late.as_secs_f64() * 1e3);
                }
                reached += usize::from(after.has(Awaited::Fence) && !before.has(Awaited::Fence));
            })?;
        }
        Ok(latencies)
    }

    fn publish(
        &mut self,
        requests: &[impl AsRef<[u8]>],
        awaited: Awaited,
        readers: usize,
    ) -> anyhow::Result<Vec<f64>> {
        self.reset();
        let answers_due = match self.answer {
            Some(_) => requests.len(),
            None => 0,
        };
        let started = Instant::now();
        self.write(requests)?;
        let mut latencies = Vec::with_capacity(readers);
        while latencies.len() < readers || self.answers() < answers_due {
            let left = DELIVERY_MAX.saturating_sub(started.elapsed());
            if left.is_zero() {
                bail!(
                    "after {DELIVERY_MAX:?} {} of {readers} streams had the notice; of {answers_due} changes {} were \
                     answered and {} accepted",
                    latencies.len(),
                    self.answers(),
                    self.successes()
                );
            }
            self.turn(left, |before, after| {
                if after.has(awaited) && !before.has(awaited) {
                    latencies.push(started.elapsed().as_secs_f64() * 1e3);
                }
            })?;
        }
        let refused = answers_due.saturating_sub(self.successes());
        ensure!(refused == 0, "{refused} of {answers_due} changes were refused");
        Ok(latencies)
    }

    fn answers(&self) -> usize {
        let counts = self.publishers.iter().map(|publisher| publisher.answers.count);
        counts.sum()
    }

    fn successes(&self) -> usize {
        let counts = self.publishers.iter().map(|publisher| publisher.successes.count);
        counts.sum()
    }

    /// Starts all counts anew.
    fn reset(&mut self) {
        for publisher in &mut self.publishers {
            publisher.answers.count = 0;
            publisher.successes.count = 0;
        }
        for stream in &mut self.streams {
            stream.notices.count = 0;
            stream.fences.count = 0;
        }
    }

    /// Writes the requests, those of each publisher at once.
    fn write(&mut self, requests: &[impl AsRef<[u8]>]) -> anyhow::Result<()> {
        let each = requests.len().div_ceil(self.publishers.len());
        for (publisher, requests) in std::iter::zip(&mut self.publishers, requests.chunks(each)) {
            let all: Vec<u8> = requests.iter().flat_map(AsRef::as_ref).copied().collect();
            let written = publisher.socket.write(&all).context("cannot publish")?;
            ensure!(
                written == all.len(),
                "the publishing socket is too small for one burst"
            );
        }
        Ok(())
    }

    /// Waits for something to read and reads it; passes the progress of each stream before and after the read
    /// to `on_progress`.
    fn turn(
        &mut self,
        wait: Duration,
        mut on_progress: impl FnMut(Progress, Progress),
    ) -> anyhow::Result<()> {
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            polled => polled?,
        }
        for event in &self.events {
            let index = event.token().0;
            let Some(stream) = self.streams.get_mut(index) else {
                let publisher = &mut self.publishers[index - self.streams.len()];
                read_all(&mut publisher.socket, &mut self.buffer, |bytes| {
                    if let Some((any, success)) = &self.answer {
                        any.count(&mut publisher.answers, bytes);
                        success.count(&mut publisher.successes, bytes);
                    }
                })?;
                continue;
            };
            let before = stream.progress();
            read_all(&mut stream.socket, &mut self.buffer, |bytes| {
                self.bytes += bytes.len() as u64;
                self.notice.count(&mut stream.notices, bytes);
                self.fence.count(&mut stream.fences, bytes);
            })?;
            on_progress(before, stream.progress());
        }
        Ok(())
    }
}

impl Stream {
    fn progress(&self) -> Progress {
        Progress {
            notices: self.notices.count,
            fences: self.fences.count,
        }
    }
}

/// Reads all bytes that are there.
fn read_all(
    socket: &mut TcpStream,
    buffer: &mut [u8],
    mut on_bytes: impl FnMut(&[u8]),
) -> anyhow::Result<()> {
    loop {
        match socket.read(buffer) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => {
                on_bytes(&buffer[..count]);
                // A read that does not fill the buffer took everything (epoll(7)): this saves a second call
                // per delivery that would find nothing.
                if count < buffer.len() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("a connection broke"),
        }
    }
}
