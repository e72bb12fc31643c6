//! The readers: every stream in one epoll loop on one thread, and the connections that publish.
//!
//! Owns: the sockets once they are open, and what has been counted on each. Never: parses a protocol: a notice is an
//! occurrence of a text that each has once, and so is an answer. Plain nonblocking sockets instead of an async
//! runtime keep its share of the machine small.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::kind::Kind;
use super::matches::{Matches, Text};

/// How long one change, or one burst, may take until every reader has it.
const TOLD_MAX: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 * 1024;
/// Sockets that one turn of the loop reads, so that a change that is due waits for no more of them.
const TURN_MAX: usize = 1024;

/// All readers and the publishers. The token of a stream is its index, that of a publisher its index after all of them.
pub(crate) struct Load {
    poll: Poll,
    events: Events,
    publishers: Vec<Publisher>,
    /// What an answer has, and one that accepts; none where publications are not answered.
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
    accepted: Matches,
}

struct Stream {
    socket: TcpStream,
    notices: Matches,
    fences: Matches,
}

/// What a stream has been told since something was published.
#[derive(Debug, Clone, Copy)]
struct Told {
    notices: usize,
    fences: usize,
}

/// What a stream has to be told until it counts.
#[derive(Debug, Clone, Copy)]
enum Awaited {
    Notices(usize),
    Fence,
}

impl Told {
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
    pub(super) fn new(
        kind: Kind,
        publishers: Vec<std::net::TcpStream>,
        streams: Vec<std::net::TcpStream>,
    ) -> anyhow::Result<Load> {
        let (poll, count) = (Poll::new()?, streams.len());
        let register = |(index, socket): (usize, std::net::TcpStream)| -> anyhow::Result<TcpStream> {
            socket.set_nonblocking(true)?;
            let mut socket = TcpStream::from_std(socket);
            poll.registry()
                .register(&mut socket, Token(index), Interest::READABLE)?;
            Ok(socket)
        };
        let mut sockets = streams.into_iter().chain(publishers).enumerate().map(register);
        let streams = sockets.by_ref().take(count).map(|socket| socket.map(Stream::new));
        let streams = streams.collect::<anyhow::Result<Vec<Stream>>>()?;
        let publishers = sockets.map(|socket| socket.map(Publisher::new));
        let publishers = publishers.collect::<anyhow::Result<Vec<Publisher>>>()?;
        Ok(Load {
            poll,
            events: Events::with_capacity(TURN_MAX),
            publishers,
            answer: kind
                .answers()
                .map(|(any, accepting)| (Text::new(any), Text::new(accepting))),
            streams,
            notice: Text::new(kind.notice()),
            fence: Text::new(kind.fence()),
            bytes: 0,
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Bytes read on all streams.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes one change and reads until `readers` streams have it; answers, in milliseconds, when each had it.
    pub(crate) fn change(&mut self, request: &[u8], readers: usize) -> anyhow::Result<Vec<f64>> {
        self.publish(&[request], Awaited::Notices(1), readers)
    }

    /// Makes changes of as many resources at once, dealt among the publishers, and reads until every stream has been
    /// told of each.
    pub(crate) fn flat_out(&mut self, requests: &[Vec<u8>]) -> anyhow::Result<()> {
        let readers = self.streams.len();
        self.publish(requests, Awaited::Notices(requests.len()), readers)?;
        Ok(())
    }

    /// Makes changes at once, of which the last is the fence, and reads until every stream has that one. Answers how
    /// many notices came.
    pub(crate) fn burst(&mut self, requests: &[Vec<u8>]) -> anyhow::Result<usize> {
        let readers = self.streams.len();
        self.publish(requests, Awaited::Fence, readers)?;
        Ok(self.streams.iter().map(|stream| stream.notices.count).sum())
    }

    /// Makes a change every `interval`, whatever became of the one before, the last of them of the fence, and reads
    /// until every stream has that one. Answers, in milliseconds, how long after a change was due each stream had it;
    /// its n-th notice is taken for the n-th change, so where changes were merged latencies look longer than they were,
    /// never shorter.
    pub(crate) fn paced(&mut self, requests: &[Vec<u8>], interval: Duration) -> anyhow::Result<Vec<f64>> {
        self.forget();
        let (readers, started) = (self.streams.len(), Instant::now());
        let due = |number: usize| interval * number as u32;
        let (mut published, mut reached) = (0, 0);
        let mut latencies = Vec::with_capacity(readers * requests.len());
        while reached < readers {
            let is_over = published == requests.len();
            if !is_over && started.elapsed() >= due(published) {
                self.write(&requests[published..=published])?;
                published += 1;
                continue;
            }
            let next = due(published) + if is_over { TOLD_MAX } else { Duration::ZERO };
            let left = next.saturating_sub(started.elapsed());
            ensure!(
                !(is_over && left.is_zero()),
                "{TOLD_MAX:?} after the last change {reached} of {readers} streams had been told of it"
            );
            self.turn(left, |before, after| {
                let now = started.elapsed();
                let told = before.without_fences()..after.without_fences();
                latencies.extend(told.map(|number| now.saturating_sub(due(number)).as_secs_f64() * 1e3));
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
        self.forget();
        let answered = if self.answer.is_some() { requests.len() } else { 0 };
        let started = Instant::now();
        self.write(requests)?;
        let mut latencies = Vec::with_capacity(readers);
        while latencies.len() < readers || self.answers() < answered {
            let left = TOLD_MAX.saturating_sub(started.elapsed());
            if left.is_zero() {
                let (told, answers, accepted) = (latencies.len(), self.answers(), self.accepted());
                bail!(
                    "after {TOLD_MAX:?} {told} of {readers} streams were told; of {answered} changes {answers} were \
                     answered and {accepted} accepted"
                );
            }
            self.turn(left, |before, after| {
                if after.has(awaited) && !before.has(awaited) {
                    latencies.push(started.elapsed().as_secs_f64() * 1e3);
                }
            })?;
        }
        let refused = answered - self.accepted().min(answered);
        ensure!(refused == 0, "{refused} of {answered} changes were refused");
        Ok(latencies)
    }

    fn answers(&self) -> usize {
        self.publishers
            .iter()
            .map(|publisher| publisher.answers.count)
            .sum()
    }

    fn accepted(&self) -> usize {
        self.publishers
            .iter()
            .map(|publisher| publisher.accepted.count)
            .sum()
    }

    fn forget(&mut self) {
        for publisher in &mut self.publishers {
            (publisher.answers.count, publisher.accepted.count) = (0, 0);
        }
        for stream in &mut self.streams {
            (stream.notices.count, stream.fences.count) = (0, 0);
        }
    }

    /// Writes the requests, those of each publisher at once.
    fn write(&mut self, requests: &[impl AsRef<[u8]>]) -> anyhow::Result<()> {
        let each = requests.len().div_ceil(self.publishers.len());
        for (publisher, requests) in self.publishers.iter_mut().zip(requests.chunks(each)) {
            let all: Vec<u8> = requests.iter().flat_map(AsRef::as_ref).copied().collect();
            let written = publisher.socket.write(&all).context("cannot publish")?;
            ensure!(
                written == all.len(),
                "the publishing socket is too small for one burst"
            );
        }
        Ok(())
    }

    /// Waits for something to read and reads it; calls `told` for each stream that was read, with what it had been
    /// told before and has been told now.
    fn turn(&mut self, wait: Duration, mut told: impl FnMut(Told, Told)) -> anyhow::Result<()> {
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            let index = event.token().0;
            let Some(stream) = self.streams.get_mut(index) else {
                let publisher = &mut self.publishers[index - self.streams.len()];
                read_all(&mut publisher.socket, &mut self.buffer, |bytes| {
                    if let Some((any, accepting)) = &self.answer {
                        any.count(&mut publisher.answers, bytes);
                        accepting.count(&mut publisher.accepted, bytes);
                    }
                })?;
                continue;
            };
            let before = stream.told();
            read_all(&mut stream.socket, &mut self.buffer, |bytes| {
                self.bytes += bytes.len() as u64;
                self.notice.count(&mut stream.notices, bytes);
                self.fence.count(&mut stream.fences, bytes);
            })?;
            told(before, stream.told());
        }
        Ok(())
    }
}

impl Publisher {
    fn new(socket: TcpStream) -> Publisher {
        Publisher {
            socket,
            answers: Matches::default(),
            accepted: Matches::default(),
        }
    }
}

impl Stream {
    fn new(socket: TcpStream) -> Stream {
        Stream {
            socket,
            notices: Matches::default(),
            fences: Matches::default(),
        }
    }

    fn told(&self) -> Told {
        Told {
            notices: self.notices.count,
            fences: self.fences.count,
        }
    }
}

/// Reads what there is. A read that does not fill the buffer took everything (epoll(7)), so it is the last one: no
/// second call per delivery only to be told that there is nothing.
fn read_all(socket: &mut TcpStream, buffer: &mut [u8], mut take: impl FnMut(&[u8])) -> anyhow::Result<()> {
    loop {
        match socket.read(buffer) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => {
                take(&buffer[..count]);
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
