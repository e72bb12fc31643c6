//! The readers: every stream in one epoll loop on one thread, and the connection that publishes.
//!
//! Owns: the sockets once they are open, and what has been counted on each. Never: parses HTTP or JSON: a delivery is
//! an occurrence of its URI, an answer one of a status line. Plain nonblocking sockets instead of an async runtime
//! keep its share of the machine small.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::wire::{FENCE, Thing, WATCHED, position};

/// How long one change, or one burst, may take until every reader has it.
const TOLD_MAX: Duration = Duration::from_secs(30);
const THINGS: [Thing; 2] = [WATCHED, FENCE];
const READ_BYTES: usize = 64 * 1024;
/// The token of the publishing connection; streams have their index.
const PUBLISHER: Token = Token(usize::MAX - 1);

/// All readers and the publisher.
pub(super) struct Load {
    poll: Poll,
    events: Events,
    publisher: TcpStream,
    answers: Matches,
    /// Of those, the ones that accept.
    accepted: Matches,
    streams: Vec<Stream>,
    bytes: u64,
    buffer: Vec<u8>,
}

struct Stream {
    socket: TcpStream,
    told: [Matches; 2],
}

/// Counts occurrences of a text in a stream of reads.
struct Matches {
    part: Vec<u8>,
    /// The end of the last read, in which the text may have begun.
    tail: Vec<u8>,
    count: usize,
}

impl Matches {
    fn new(part: impl Into<Vec<u8>>) -> Matches {
        Matches {
            part: part.into(),
            tail: Vec::new(),
            count: 0,
        }
    }

    fn read(&mut self, bytes: &[u8]) {
        let joined;
        let mut rest = bytes;
        if !self.tail.is_empty() {
            joined = [&self.tail, bytes].concat();
            rest = &joined;
        }
        let mut kept = rest;
        while let Some(at) = position(kept, &self.part) {
            self.count += 1;
            kept = &kept[at + self.part.len()..];
        }
        // The longest end that is a beginning of the text: usually none, so nothing is kept.
        let longest = kept.len().min(self.part.len() - 1);
        let begun = (1..=longest)
            .rev()
            .find(|length| kept.ends_with(&self.part[..*length]));
        self.tail = self.part[..begun.unwrap_or(0)].to_vec();
    }
}

impl Load {
    /// Takes the sockets over; they become nonblocking.
    pub(super) fn new(
        publisher: std::net::TcpStream,
        streams: Vec<std::net::TcpStream>,
    ) -> anyhow::Result<Load> {
        let poll = Poll::new()?;
        let register = |socket: std::net::TcpStream, token| -> anyhow::Result<TcpStream> {
            socket.set_nonblocking(true)?;
            let mut socket = TcpStream::from_std(socket);
            poll.registry().register(&mut socket, token, Interest::READABLE)?;
            Ok(socket)
        };
        let publisher = register(publisher, PUBLISHER)?;
        let streams = streams.into_iter().enumerate().map(|(index, socket)| {
            Ok(Stream {
                socket: register(socket, Token(index))?,
                // With the key before it, so that a URI elsewhere in a frame is not a second delivery.
                told: THINGS.map(|thing| Matches::new(format!("\"uri\":\"{}\"", thing.uri))),
            })
        });
        let streams = streams.collect::<anyhow::Result<Vec<Stream>>>()?;
        Ok(Load {
            events: Events::with_capacity(streams.len() + 1),
            poll,
            publisher,
            answers: Matches::new("HTTP/1.1 "),
            accepted: Matches::new("HTTP/1.1 2"),
            streams,
            bytes: 0,
            buffer: vec![0; READ_BYTES],
        })
    }

    /// Bytes read on all streams.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Makes one change of the watched thing and reads until every stream has it; adds to `latencies`, in
    /// milliseconds, when each had it.
    pub(super) fn change(&mut self, request: &[u8], latencies: &mut Vec<f64>) -> anyhow::Result<()> {
        self.publish(request, 1, 0, latencies)
    }

    /// Makes `count` changes at once, of which the last is the fence, and reads until every stream has that one.
    /// Answers how many frames came.
    pub(super) fn burst(&mut self, requests: &[u8], count: usize) -> anyhow::Result<usize> {
        self.publish(requests, count, 1, &mut Vec::new())?;
        let told = self.streams.iter().flat_map(|stream| &stream.told);
        Ok(told.map(|told| told.count).sum())
    }

    fn publish(
        &mut self,
        requests: &[u8],
        count: usize,
        awaited: usize,
        latencies: &mut Vec<f64>,
    ) -> anyhow::Result<()> {
        (self.answers.count, self.accepted.count) = (0, 0);
        for stream in &mut self.streams {
            stream.told.iter_mut().for_each(|told| told.count = 0);
        }
        let started = Instant::now();
        let written = self.publisher.write(requests).context("cannot publish")?;
        ensure!(
            written == requests.len(),
            "the publishing socket is too small for one burst"
        );
        let mut reached = 0;
        while reached < self.streams.len() || self.answers.count < count {
            let left = TOLD_MAX.saturating_sub(started.elapsed());
            if left.is_zero() {
                let (all, answers) = (self.streams.len(), self.answers.count);
                let accepted = self.accepted.count;
                bail!(
                    "after {TOLD_MAX:?} {reached} of {all} streams were told; of {count} changes {answers} were \
                     answered and {accepted} accepted"
                );
            }
            self.turn(left, awaited, |_| {
                reached += 1;
                latencies.push(started.elapsed().as_secs_f64() * 1e3);
            })?;
        }
        let refused = count - self.accepted.count.min(count);
        ensure!(refused == 0, "{refused} of {count} changes were refused");
        Ok(())
    }

    /// Waits for something to read and reads it; calls `reached` for each stream that is told of `awaited` for the
    /// first time.
    fn turn(&mut self, wait: Duration, awaited: usize, mut reached: impl FnMut(usize)) -> anyhow::Result<()> {
        match self.poll.poll(&mut self.events, Some(wait)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &self.events {
            if event.token() == PUBLISHER {
                read_all(&mut self.publisher, &mut self.buffer, |bytes| {
                    self.answers.read(bytes);
                    self.accepted.read(bytes);
                })?;
                continue;
            }
            let index = event.token().0;
            let stream = &mut self.streams[index];
            let known = stream.told[awaited].count;
            read_all(&mut stream.socket, &mut self.buffer, |bytes| {
                self.bytes += bytes.len() as u64;
                stream.told.iter_mut().for_each(|told| told.read(bytes));
            })?;
            if known == 0 && stream.told[awaited].count > 0 {
                reached(index);
            }
        }
        Ok(())
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
