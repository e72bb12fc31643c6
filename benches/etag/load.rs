//! The polling clients: every connection in one epoll loop on one thread, each with one poll on its way.
//!
//! Owns: the sockets once they are open. Never: parses an answer: it has the bytes that are due, or the run fails.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::wire::{FIRST_ID, Numbered, Poller};

/// How long nothing may be answered.
const QUIET_MAX: Duration = Duration::from_secs(30);
const ANSWER_START: &[u8] = b"HTTP/1.1 200 OK\r\n";

/// All pollers.
pub(super) struct Load {
    poll: Poll,
    events: Events,
    pollers: Vec<Polling>,
    next_id: u64,
}

struct Polling {
    socket: TcpStream,
    request: Numbered,
    expected: Numbered,
    answer: Vec<u8>,
    answer_bytes: usize,
    /// The number of the poll on its way.
    id: u64,
    sent_at: Instant,
}

/// What a run of polls took.
pub(super) struct Run {
    pub(super) elapsed: Duration,
    /// In milliseconds.
    pub(super) latencies: Vec<f64>,
}

impl Load {
    /// Takes the sockets over; they become nonblocking.
    pub(super) fn new(pollers: Vec<Poller>) -> anyhow::Result<Load> {
        let poll = Poll::new()?;
        let polling = pollers.into_iter().enumerate().map(|(index, poller)| {
            poller.socket.set_nonblocking(true)?;
            let mut socket = TcpStream::from_std(poller.socket);
            poll.registry()
                .register(&mut socket, Token(index), Interest::READABLE)?;
            Ok(Polling {
                socket,
                request: poller.request,
                expected: poller.expected,
                answer: Vec::with_capacity(poller.answer_bytes + 1),
                answer_bytes: poller.answer_bytes,
                id: 0,
                sent_at: Instant::now(),
            })
        });
        let pollers = polling.collect::<anyhow::Result<Vec<_>>>()?;
        Ok(Load {
            events: Events::with_capacity(pollers.len()),
            poll,
            pollers,
            next_id: FIRST_ID,
        })
    }

    /// Polls `count` times, each connection again as soon as it is answered.
    pub(super) fn run(&mut self, count: usize) -> anyhow::Result<Run> {
        let started = Instant::now();
        let (mut sent, mut latencies) = (0, Vec::with_capacity(count));
        let mut send = |polling: &mut Polling| -> anyhow::Result<()> {
            if sent < count {
                sent += 1;
                self.next_id += 1;
                polling.send(self.next_id)?;
            }
            Ok(())
        };
        self.pollers.iter_mut().try_for_each(&mut send)?;
        while latencies.len() < count {
            self.poll.poll(&mut self.events, Some(QUIET_MAX))?;
            ensure!(!self.events.is_empty(), "no answer for {QUIET_MAX:?}");
            for event in &self.events {
                let polling = &mut self.pollers[event.token().0];
                if polling.answered()? {
                    latencies.push(polling.sent_at.elapsed().as_secs_f64() * 1e3);
                    send(polling)?;
                }
            }
        }
        Ok(Run {
            elapsed: started.elapsed(),
            latencies,
        })
    }
}

impl Polling {
    fn send(&mut self, id: u64) -> anyhow::Result<()> {
        (self.id, self.sent_at) = (id, Instant::now());
        self.answer.clear();
        let request = self.request.with(id);
        let written = self.socket.write(request).context("cannot poll")?;
        ensure!(written == request.len(), "a socket did not take a whole poll");
        Ok(())
    }

    /// Reads; whether the answer is whole, and it is the right one.
    fn answered(&mut self) -> anyhow::Result<bool> {
        let mut bytes = [0; 4096];
        // An answer is less than that, so what is read short of it is all there is.
        match self.socket.read(&mut bytes) {
            Ok(0) => bail!("the server closed a connection"),
            Ok(count) => self.answer.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error).context("cannot read an answer"),
        }
        if self.answer.len() < self.answer_bytes {
            return Ok(false);
        }
        let right = self.answer.len() == self.answer_bytes
            && self.answer.starts_with(ANSWER_START)
            && self.answer.ends_with(self.expected.with(self.id));
        ensure!(
            right,
            "a poll was answered otherwise: {}",
            String::from_utf8_lossy(&self.answer)
        );
        Ok(true)
    }
}
