//! The frames of a server: what each changes in the state of the connection.

use super::events::{StreamEnd, StreamEvent};
use super::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PRIORITY, PUSH_PROMISE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, write_frame,
};
use super::header_block::status;
use super::state::{
    CONNECTION_WINDOW, ConnectionState, PartialBlock, SETTING_STREAMS_MAX, SETTING_WINDOW, SHUT_WINDOW,
    STREAM_WINDOW, WINDOW_MAX,
};

/// A header block beyond this many bytes is refused.
const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// The quoted part of a reason that comes with GOAWAY.
const REASON_BYTES: usize = 200;

impl ConnectionState {
    /// Takes one frame.
    pub(super) fn take(
        &mut self,
        frame: Frame<'_>,
        on_event: &mut impl FnMut(usize, StreamEvent<'_>),
    ) -> Result<(), String> {
        if self.block.is_some() && frame.kind != CONTINUATION {
            return Err("the server sent another frame within a header block".to_owned());
        }
        match frame.kind {
            DATA => self.data(frame, on_event),
            HEADERS => self.headers(frame, on_event),
            CONTINUATION => self.continuation(frame, on_event),
            RST_STREAM => {
                let code = word(frame)?;
                let place = self.place(frame.stream)?;
                self.end(place, StreamEnd::Reset(code), on_event);
                Ok(())
            }
            SETTINGS => self.settings(frame),
            PUSH_PROMISE => Err("the server pushes, though it was told not to".to_owned()),
            PING => match (frame.payload.len(), frame.has(ACK)) {
                (8, false) => {
                    write_frame(&mut self.out, PING, ACK, 0, frame.payload);
                    Ok(())
                }
                (8, true) => Ok(()),
                _ => Err("the server sent a PING of a wrong length".to_owned()),
            },
            GOAWAY => self.goaway(frame, on_event),
            WINDOW_UPDATE => self.window_update(frame),
            // Priorities, and types of extensions.
            _ => Ok(()),
        }
    }

    fn data(
        &mut self,
        frame: Frame<'_>,
        on_event: &mut impl FnMut(usize, StreamEvent<'_>),
    ) -> Result<(), String> {
        let place = self.place(frame.stream)?;
        let body = frame.unpadded()?;
        // Padding counts, too.
        let length = frame.payload.len() as u32;
        self.received += length;
        if self.received >= CONNECTION_WINDOW / 2 {
            let by = std::mem::take(&mut self.received);
            self.widen(0, by);
        }
        let stream = &mut self.streams[place];
        // Checked, since a server that ignores the window of a shut stream would look faster than it is.
        stream.received += length;
        let window = match stream.is_shut {
            true => SHUT_WINDOW,
            false => STREAM_WINDOW,
        };
        if stream.received > window {
            return Err("the server sends more than the window of a stream allows".to_owned());
        }
        if stream.has_ended || !stream.has_head {
            return Err("the server sent a body before its head, or after its end".to_owned());
        }
        if !stream.is_shut && stream.received >= STREAM_WINDOW / 2 && !frame.has(END_STREAM) {
            let by = std::mem::take(&mut stream.received);
            self.widen(frame.stream, by);
        }
        on_event(place, StreamEvent::Data(body));
        if frame.has(END_STREAM) {
            self.end(place, StreamEnd::Complete, on_event);
        }
        Ok(())
    }

    fn headers(
        &mut self,
        frame: Frame<'_>,
        on_event: &mut impl FnMut(usize, StreamEvent<'_>),
    ) -> Result<(), String> {
        self.place(frame.stream)?;
        let mut bytes = frame.unpadded()?;
        if frame.has(PRIORITY) {
            let rest = bytes.get(5..);
            bytes = rest.ok_or("the server sent a head that is shorter than its priority")?;
        }
        if frame.has(END_HEADERS) {
            return self.head(frame.stream, bytes, frame.has(END_STREAM), on_event);
        }
        self.block = Some(PartialBlock {
            number: frame.stream,
            ends_stream: frame.has(END_STREAM),
            bytes: bytes.to_vec(),
        });
        Ok(())
    }

    fn continuation(
        &mut self,
        frame: Frame<'_>,
        on_event: &mut impl FnMut(usize, StreamEvent<'_>),
    ) -> Result<(), String> {
        let Some(mut block) = self.block.take().filter(|block| block.number == frame.stream) else {
            return Err("the server sent the rest of a header block that has not begun".to_owned());
        };
        block.bytes.extend_from_slice(frame.payload);
        if block.bytes.len() > BLOCK_BYTES_MAX {
            return Err(format!(
                "the server sent more than {BLOCK_BYTES_MAX} bytes of headers"
            ));
        }
        match frame.has(END_HEADERS) {
            true => self.head(block.number, &block.bytes, block.ends_stream, on_event),
            false => {
                self.block = Some(block);
                Ok(())
            }
        }
    }

    fn head(
        &mut self,
        number: u32,
        block: &[u8],
        ends_stream: bool,
        on_event: &mut impl FnMut(usize, StreamEvent<'_>),
    ) -> Result<(), String> {
        let place = self.place(number)?;
        let stream = &mut self.streams[place];
        // A reset by this side never happens, so a head after the end is the server's fault.
        if stream.has_ended {
            return Err("the server sent a head after the end of its stream".to_owned());
        }
        // The second one has the trailers.
        if !stream.has_head {
            let status = status(block);
            // An informational answer comes before the real one.
            let is_early = matches!(status, Some(100..=199));
            if !is_early {
                stream.has_head = true;
                on_event(place, StreamEvent::Head { status });
            }
        }
        if ends_stream {
            self.end(place, StreamEnd::Complete, on_event);
        }
        Ok(())
    }

    fn settings(&mut self, frame: Frame<'_>) -> Result<(), String> {
        if frame.has(ACK) {
            return Ok(());
        }
        let (values, rest) = frame.payload.as_chunks::<6>();
        if !rest.is_empty() {
            return Err("the server sent SETTINGS of a wrong length".to_owned());
        }
        for [name_high, name_low, value @ ..] in values {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*name_high, *name_low]) {
                SETTING_STREAMS_MAX => self.streams_max = value,
                SETTING_WINDOW if i64::from(value) > WINDOW_MAX => {
                    return Err("the server wants a window of more than 2 GiB".to_owned());
                }
                SETTING_WINDOW => {
                    if let Some(upload) = &mut self.upload {
                        upload.window += i64::from(value) - i64::from(self.stream_window);
                    }
                    self.stream_window = value;
                }
                // The other ones allow this side more than it makes use of.
                _ => {}
            }
        }
        self.is_ready = true;
        write_frame(&mut self.out, SETTINGS, ACK, 0, &[]);
        self.send_body();
        Ok(())
    }

    fn window_update(&mut self, frame: Frame<'_>) -> Result<(), String> {
        let by = i64::from(word(frame)? & 0x7fff_ffff);
        let window = match (&mut self.upload, frame.stream) {
            (_, 0) => &mut self.window,
            (Some(upload), number) if upload.number == number => &mut upload.window,
            // The request of this stream is sent.
            _ => return Ok(()),
        };
        *window += by;
        if by == 0 || *window > WINDOW_MAX {
            return Err("the server opens a window by nothing, or by too much".to_owned());
        }
        self.send_body();
        Ok(())
    }

    fn goaway(
        &mut self,
        frame: Frame<'_>,
        on_event: &mut impl FnMut(usize, StreamEvent<'_>),
    ) -> Result<(), String> {
        let Some(([a, b, c, d, code @ ..], reason)) = frame.payload.split_first_chunk::<8>() else {
            return Err("the server sent a GOAWAY that is too short".to_owned());
        };
        let code = u32::from_be_bytes(*code);
        let last = u32::from_be_bytes([*a, *b, *c, *d]) & 0x7fff_ffff;
        let reason = String::from_utf8_lossy(&reason[..reason.len().min(REASON_BYTES)]);
        self.farewell = Some(match reason.trim() {
            "" => super::events::error_name(code),
            reason => format!("{}, {reason}", super::events::error_name(code)),
        });
        for place in (last as usize).div_ceil(2)..self.streams.len() {
            self.end(place, StreamEnd::Refused(code), on_event);
        }
        Ok(())
    }
}

/// Returns the one number of a payload of four bytes.
fn word(frame: Frame<'_>) -> Result<u32, String> {
    match frame.payload.try_into() {
        Ok(bytes) => Ok(u32::from_be_bytes(bytes)),
        Err(_) => Err(format!(
            "the server sent a frame of type {} of a wrong length",
            frame.kind
        )),
    }
}
