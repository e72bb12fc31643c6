//! A connection on which requests follow each other without waiting for the answers before.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use mio::{Registry, Token};

use crate::bench::load::schedule::nanos;
use crate::wire::http1::{HttpTarget, ResponseHead, ResponseReader};
use crate::wire::nonblocking::{NonblockingConnection, ReadOutcome};

/// A connection that was idle for longer is replaced, because many servers close it after a few seconds.
const IDLE_MAX: Duration = Duration::from_secs(2);

/// The server, and the poll that watches the connections to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PipelineEnds<'r> {
    pub(crate) target: &'r HttpTarget,
    pub(crate) registry: &'r Registry,
}

/// Requests under way; a `T` goes with each and comes back with the answer.
#[derive(Debug)]
pub(crate) struct Pipeline<T> {
    token: Token,
    conn: Option<NonblockingConnection>,
    response: ResponseReader,
    body: Vec<u8>,
    waiting: VecDeque<T>,
    used_at: u64,
}

impl<T> Pipeline<T> {
    pub(crate) fn new(token: Token) -> Pipeline<T> {
        Pipeline {
            token,
            conn: None,
            response: ResponseReader::default(),
            body: Vec::new(),
            waiting: VecDeque::new(),
            used_at: 0,
        }
    }

    /// Returns the number of answers that are due.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Sends a request, on a new connection where there is none; its answer will come with `subject`.
    pub(crate) fn send(
        &mut self,
        route: PipelineEnds<'_>,
        request: &[u8],
        subject: T,
        now: u64,
    ) -> io::Result<()> {
        if self.waiting.is_empty() && now.saturating_sub(self.used_at) > nanos(IDLE_MAX) {
            self.close();
        }
        self.used_at = now;
        let conn = match &mut self.conn {
            Some(conn) => conn,
            none => {
                // Opened with the first request: pollers and publishers that never send need none.
                let mut conn = NonblockingConnection::open(route.target, None, None)?;
                conn.register(route.registry, self.token)?;
                none.insert(conn)
            }
        };
        self.waiting.push_back(subject);
        conn.send(request)
    }

    /// Reads the available bytes and hands every answer to `answered`.
    ///
    /// Fails when the connection ends before all answers came; [`Pipeline::abandon`] then counts the missing
    /// ones.
    pub(crate) fn turn(
        &mut self,
        buffer: &mut [u8],
        mut answered: impl FnMut(T, &ResponseHead, &[u8]),
    ) -> Result<(), String> {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        conn.flush().map_err(|error| error.to_string())?;
        loop {
            let arrived = conn.read(buffer).map_err(|error| error.to_string())?;
            let mut rest = match arrived {
                ReadOutcome::Nothing => return Ok(()),
                ReadOutcome::Bytes(count) => &buffer[..count],
                ReadOutcome::End if self.response.ends_with_connection() => {
                    if let (Some(subject), Some(head)) = (self.waiting.pop_front(), self.response.head()) {
                        answered(subject, head, &self.body);
                    }
                    return self.end();
                }
                ReadOutcome::End => return self.end(),
            };
            while !rest.is_empty() {
                let body = &mut self.body;
                let used = self.response.read(rest, |part| body.extend_from_slice(part));
                rest = &rest[used.map_err(|error| error.to_string())?..];
                // The rest of the answer comes with a later read.
                if !self.response.is_done() {
                    continue;
                }
                let response = std::mem::take(&mut self.response);
                if let (Some(subject), Some(head)) = (self.waiting.pop_front(), response.head()) {
                    answered(subject, head, &self.body);
                }
                self.body.clear();
            }
        }
    }

    fn end(&mut self) -> Result<(), String> {
        self.close();
        match self.waiting.len() {
            0 => Ok(()),
            due => Err(format!("the server closed a connection with {due} answers due")),
        }
    }

    /// Closes the connection and returns the number of answers that will not come.
    pub(crate) fn abandon(&mut self) -> usize {
        self.close();
        let due = self.waiting.len();
        self.waiting.clear();
        due
    }

    fn close(&mut self) {
        self.conn = None;
        self.response = ResponseReader::default();
        self.body.clear();
    }
}
