//! The state of a connection, and what it sends.

use super::events::{StreamEnd, StreamEvent};
use super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PAYLOAD_MAX, PREFACE, SETTINGS, WINDOW_UPDATE,
    write_frame,
};
use super::header_block::HeaderBlock;

/// The bytes that a server may send on a connection before it waits for an update.
pub(super) const CONNECTION_WINDOW: u32 = 1 << 30;
/// The same for a stream that is read.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;
/// The same for a stream that is shut.
pub(super) const SHUT_WINDOW: u32 = 4096;
/// The window of RFC 9113 that holds until a side says otherwise.
const WINDOW_DEFAULT: u32 = 65_535;
pub(super) const WINDOW_MAX: i64 = (1 << 31) - 1;

/// The streams of one connection: a client has the odd numbers below 2^31.
pub(super) const STREAMS_MAX: usize = 1 << 30;
/// A server pushes nothing if this is 0.
const SETTING_PUSH: u16 = 2;
/// The streams that the sender of the value takes at a time.
pub(super) const SETTING_STREAMS_MAX: u16 = 3;
/// The window that new streams have.
pub(super) const SETTING_WINDOW: u16 = 4;

/// A stream, by the bits of its state and the bytes that came since the last update of its window.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Stream {
    pub(super) received: u32,
    pub(super) has_head: bool,
    pub(super) is_shut: bool,
    pub(super) has_ended: bool,
}

/// A request whose body is not sent to its end.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) number: u32,
    pub(super) body: Vec<u8>,
    pub(super) sent: usize,
    pub(super) window: i64,
}

/// A header block that goes on in further frames.
#[derive(Debug)]
pub(super) struct PartialBlock {
    pub(super) number: u32,
    pub(super) ends_stream: bool,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct ConnectionState {
    pub(super) out: Vec<u8>,
    pub(super) streams: Vec<Stream>,
    pub(super) open: usize,
    /// The window that new streams have; smaller than [`STREAM_WINDOW`] where some will be shut.
    pub(super) first_window: u32,
    pub(super) received: u32,
    pub(super) window: i64,
    pub(super) stream_window: u32,
    pub(super) streams_max: u32,
    pub(super) is_ready: bool,
    pub(super) upload: Option<Upload>,
    pub(super) block: Option<PartialBlock>,
    /// The reason for which the server ends the connection.
    pub(super) farewell: Option<String>,
    pub(super) scratch: Vec<u8>,
}

impl ConnectionState {
    pub(super) fn new(streams: usize, some_shut: bool) -> ConnectionState {
        let first_window = match some_shut {
            // The value holds for all streams, so those that are read get the rest by an update of their own.
            true => SHUT_WINDOW,
            false => STREAM_WINDOW,
        };
        let mut out = PREFACE.to_vec();
        let mut settings = Vec::new();
        for (name, value) in [(SETTING_PUSH, 0), (SETTING_WINDOW, first_window)] {
            settings.extend_from_slice(&name.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        write_frame(&mut out, SETTINGS, 0, 0, &settings);
        let more = CONNECTION_WINDOW - WINDOW_DEFAULT;
        write_frame(&mut out, WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        ConnectionState {
            out,
            streams: Vec::with_capacity(streams.min(STREAMS_MAX)),
            open: 0,
            first_window,
            received: 0,
            window: WINDOW_DEFAULT.into(),
            stream_window: WINDOW_DEFAULT,
            streams_max: u32::MAX,
            is_ready: false,
            upload: None,
            block: None,
            farewell: None,
            scratch: Vec::new(),
        }
    }

    pub(super) fn open(&mut self, headers: &HeaderBlock, body: Vec<u8>, is_shut: bool) -> usize {
        // Streams are numbered in the order of their requests, so a place gives the number (section 5.1.1).
        let place = self.streams.len();
        let number = number_of(place);
        self.streams.push(Stream {
            is_shut,
            ..Stream::default()
        });
        self.open += 1;
        let mut block = std::mem::take(&mut self.scratch);
        headers.write_with_length(body.len(), &mut block);
        let count = block.chunks(PAYLOAD_MAX).len();
        for (nth, part) in block.chunks(PAYLOAD_MAX).enumerate() {
            let kind = if nth == 0 { HEADERS } else { CONTINUATION };
            let flags = if nth + 1 == count { END_HEADERS } else { 0 };
            write_frame(&mut self.out, kind, flags, number, part);
        }
        self.scratch = block;
        if !is_shut && self.first_window < STREAM_WINDOW {
            self.widen(number, STREAM_WINDOW - self.first_window);
        }
        self.upload = Some(Upload {
            number,
            body,
            sent: 0,
            window: self.stream_window.into(),
        });
        self.send_body();
        place
    }

    /// Sends as much of the body as the server's windows allow.
    pub(super) fn send_body(&mut self) {
        let Some(upload) = &mut self.upload else { return };
        loop {
            let left = upload.body.len() - upload.sent;
            let room = usize::try_from(upload.window.min(self.window)).unwrap_or(0);
            let length = left.min(room).min(PAYLOAD_MAX);
            // An update of a window calls this again.
            if length == 0 && left > 0 {
                return;
            }
            let part = &upload.body[upload.sent..upload.sent + length];
            let flags = if length == left { END_STREAM } else { 0 };
            write_frame(&mut self.out, DATA, flags, upload.number, part);
            upload.sent += length;
            upload.window -= length as i64;
            self.window -= length as i64;
            if length == left {
                self.upload = None;
                return;
            }
        }
    }

    pub(super) fn widen(&mut self, number: u32, by: u32) {
        write_frame(&mut self.out, WINDOW_UPDATE, 0, number, &by.to_be_bytes());
    }

    pub(super) fn unshut(&mut self, place: usize) {
        let Some(stream) = self.streams.get_mut(place) else {
            return;
        };
        if stream.is_shut && !stream.has_ended {
            stream.is_shut = false;
            // What came before counts against the small window, which stays used up.
            let by = STREAM_WINDOW - SHUT_WINDOW + stream.received;
            stream.received = 0;
            self.widen(number_of(place), by);
        }
    }

    /// Returns the place of a stream that was opened here.
    pub(super) fn place(&self, number: u32) -> Result<usize, String> {
        let place = (number / 2) as usize;
        match number % 2 == 1 && place < self.streams.len() {
            true => Ok(place),
            false => Err(format!(
                "the server sent a frame of stream {number}, which is not open"
            )),
        }
    }

    pub(super) fn end(
        &mut self,
        place: usize,
        end: StreamEnd,
        on_event: &mut impl FnMut(usize, StreamEvent<'_>),
    ) {
        let stream = &mut self.streams[place];
        // A reset may follow the end of an answer.
        if stream.has_ended {
            return;
        }
        stream.has_ended = true;
        self.open -= 1;
        let number = number_of(place);
        // The rest of a request that is answered already is of no use.
        if let Some(upload) = &self.upload
            && upload.number == number
        {
            self.upload = None;
        }
        on_event(place, StreamEvent::End(end));
    }
}

/// Returns the number of the stream at a place, the inverse of [`ConnectionState::place`].
fn number_of(place: usize) -> u32 {
    place as u32 * 2 + 1
}
