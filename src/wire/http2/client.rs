//! The client's side of a connection without its socket: bytes go in, events of streams and bytes to send
//! come out.
//!
//! A stream costs eight bytes. The windows are so large that a server seldom waits for an update of one; a
//! stream that is opened *shut* gets a small window and no update, as a client that stopped reading.

use super::frames::FrameReader;
use super::header_block::HeaderBlock;
use super::state::{STREAMS_MAX, State};

pub use super::events::{StreamEnd, StreamEvent};

/// A connection; its streams are numbered from 0 on in the order in which they are opened.
#[derive(Debug)]
pub struct Http2Client {
    reader: FrameReader,
    state: State,
}

impl Http2Client {
    /// Begins a connection for about `streams` streams; `some_shut` says whether some will be shut.
    pub fn new(streams: usize, some_shut: bool) -> Http2Client {
        Http2Client {
            reader: FrameReader::default(),
            state: State::new(streams, some_shut),
        }
    }

    /// Returns true if a stream can be opened now: the server has said how many it takes, and the request
    /// before is sent.
    pub fn can_open(&self) -> bool {
        let state = &self.state;
        state.is_ready
            && state.upload.is_none()
            && state.farewell.is_none()
            && state.open < state.streams_max as usize
            && state.streams.len() < STREAMS_MAX
    }

    /// Returns the number of streams that the server takes at a time, once it has said so.
    pub fn streams_max(&self) -> Option<u32> {
        self.state.is_ready.then_some(self.state.streams_max)
    }

    /// Returns the reason for which the server ends the connection, if it gave one.
    pub fn farewell(&self) -> Option<&str> {
        self.state.farewell.as_deref()
    }

    /// Opens a stream by a request, and returns its number. Only while [`can_open`](Self::can_open) is true.
    pub fn open(&mut self, headers: &HeaderBlock, body: Vec<u8>, is_shut: bool) -> usize {
        self.state.open(headers, body, is_shut)
    }

    /// Gives a stream that is shut a window again.
    pub fn unshut(&mut self, stream: usize) {
        self.state.unshut(stream);
    }

    /// Hands the bytes that are to be sent to `send`, if there are some.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn flush<E>(&mut self, send: impl FnOnce(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.state.out.is_empty() {
            return Ok(());
        }
        let sent = send(&self.state.out);
        self.state.out.clear();
        sent
    }

    /// Takes bytes from the server, and hands what they mean to `on_event` with the number of the stream.
    ///
    /// # Errors
    /// Bytes that are no HTTP/2; the connection cannot be used any further.
    pub fn receive(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(usize, StreamEvent<'_>),
    ) -> Result<(), String> {
        let state = &mut self.state;
        self.reader.read(bytes, |frame| state.take(frame, &mut on_event))
    }
}
