//! The client's side of a connection without its socket: bytes go in, events of streams and bytes to send
//! come out.
//!
//! A stream costs eight bytes. The windows are so large that a server seldom waits for an update of one; a
//! stream that is opened *shut* gets a small window and no update, as a client that stopped reading.

use super::frames::FrameReader;
use super::header_block::HeaderBlock;
use super::state::{ConnectionState, STREAMS_MAX};

pub use super::events::{StreamEnd, StreamEvent};

/// A connection; its streams are numbered from 0 on in the order in which they are opened.
#[derive(Debug)]
pub struct Http2Client {
    reader: FrameReader,
    state: ConnectionState,
}

impl Http2Client {
    /// Begins a connection for about `streams` streams; `some_shut` says whether some will be shut.
    pub fn new(streams: usize, some_shut: bool) -> Http2Client {
        Http2Client {
            reader: FrameReader::default(),
            state: ConnectionState::new(streams, some_shut),
        }
    }

    /// Returns true if a stream can be opened now: the server has said how many it takes, and the request
    /// before is sent.
    pub fn can_open(&self) -> bool {
        let state = &self.state;
        // One body at a time: a second one would need a queue of what waits for windows.
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
        // Also after an error, upon which the connection is given up.
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
        // Apart from the reader, which lends the frames that the state takes.
        let state = &mut self.state;
        self.reader.read(bytes, |frame| state.take(frame, &mut on_event))
    }
}

#[cfg(test)]
mod tests {
    use super::super::frames::{
        ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PREFACE,
        PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, write_frame,
    };
    use super::*;
    use proptest::prelude::*;

    const GREETING: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, kind, flags, stream, payload);
        bytes
    }

    fn headers() -> HeaderBlock {
        HeaderBlock::post(false, "a", "/")
    }

    /// A connection with this many streams, without the bytes that opened them.
    fn opened(count: usize, is_shut: bool) -> Http2Client {
        let mut client = Http2Client::new(count, is_shut);
        assert!(
            !client.can_open(),
            "the server has not said how many streams it takes"
        );
        receive(&mut client, GREETING).unwrap();
        for place in 0..count {
            assert!(client.can_open());
            assert_eq!(client.open(&headers(), b"{}".to_vec(), is_shut), place);
        }
        sent(&mut client);
        client
    }

    fn receive(client: &mut Http2Client, bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        client.receive(bytes, |stream, event| all.push(format!("{stream} {event:?}")))?;
        Ok(all)
    }

    /// Returns the kinds, flags, streams and payloads of the frames that the client sends.
    fn sent(client: &mut Http2Client) -> Vec<(u8, u8, u32, Vec<u8>)> {
        let mut all = Vec::new();
        let flushed = client.flush(|bytes| {
            let bytes = bytes.strip_prefix(PREFACE).unwrap_or(bytes);
            FrameReader::default().read(
                bytes,
                |Frame {
                     kind,
                     flags,
                     stream,
                     payload,
                 }| {
                    all.push((kind, flags, stream, payload.to_vec()));
                    Ok(())
                },
            )
        });
        flushed.unwrap();
        all
    }

    #[test]
    fn answer_is_handed_on_as_events() {
        let mut client = opened(2, false);
        let bytes = [
            frame(HEADERS, END_HEADERS, 3, b"\x88"),
            frame(DATA, 0, 3, b"abc"),
            frame(HEADERS, 0, 1, b"\x48\x03"),
            frame(CONTINUATION, END_HEADERS, 1, b"503"),
            frame(DATA, END_STREAM, 1, b"no"),
            frame(RST_STREAM, 0, 3, &[0, 0, 0, 11]),
        ];
        let events = receive(&mut client, &bytes.concat()).unwrap();
        assert_eq!(
            events,
            [
                "1 Head { status: Some(200) }",
                "1 Data([97, 98, 99])",
                "0 Head { status: Some(503) }",
                "0 Data([110, 111])",
                "0 End(Complete)",
                "1 End(Reset(11))",
            ]
        );
        assert!(StreamEnd::Reset(11).to_string().contains("ENHANCE_YOUR_CALM"));
    }

    #[test]
    fn settings_and_pings_are_answered() {
        let mut client = opened(1, false);
        receive(&mut client, &frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1])).unwrap();
        receive(&mut client, &frame(PING, 0, 0, b"12345678")).unwrap();
        receive(&mut client, &frame(PING, ACK, 0, b"12345678")).unwrap();
        let answers = [
            (SETTINGS, ACK, 0, Vec::new()),
            (PING, ACK, 0, b"12345678".to_vec()),
        ];
        assert_eq!(sent(&mut client), answers);
        assert!(!client.can_open(), "one stream is open, and no more are allowed");
        assert_eq!(client.streams_max(), Some(1));
    }

    #[test]
    fn body_waits_for_the_windows_of_the_server() {
        let mut client = Http2Client::new(1, false);
        receive(&mut client, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 3])).unwrap();
        sent(&mut client);
        client.open(&headers(), b"abcdefg".to_vec(), false);
        let frames = sent(&mut client);
        assert_eq!(frames[1], (DATA, 0, 1, b"abc".to_vec()));
        assert!(!client.can_open(), "the request before is not sent");
        receive(&mut client, &frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 2])).unwrap();
        receive(&mut client, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9])).unwrap();
        let frames = sent(&mut client);
        assert_eq!(frames[0], (DATA, 0, 1, b"de".to_vec()));
        assert_eq!(frames[2], (DATA, END_STREAM, 1, b"fg".to_vec()));
        assert!(client.can_open());
    }

    #[test]
    fn window_is_opened_when_half_is_used() {
        let mut client = opened(1, false);
        receive(&mut client, &frame(HEADERS, END_HEADERS, 1, b"\x88")).unwrap();
        let part = frame(DATA, 0, 1, &[b'x'; 16_384]);
        for _ in 0..31 {
            receive(&mut client, &part).unwrap();
        }
        assert_eq!(sent(&mut client), []);
        receive(&mut client, &part).unwrap();
        assert_eq!(sent(&mut client), [(WINDOW_UPDATE, 0, 1, vec![0, 8, 0, 0])]);
    }

    #[test]
    fn shut_stream_gets_its_window_at_the_end() {
        let mut client = opened(1, true);
        receive(&mut client, &frame(HEADERS, END_HEADERS, 1, b"\x88")).unwrap();
        receive(&mut client, &frame(DATA, 0, 1, &[b'x'; 4096])).unwrap();
        assert_eq!(sent(&mut client), []);
        client.unshut(0);
        assert_eq!(sent(&mut client), [(WINDOW_UPDATE, 0, 1, vec![0, 16, 0, 0])]);
        receive(&mut client, &frame(DATA, 0, 1, &[b'x'; 4097])).unwrap();
        let mut client = opened(1, true);
        receive(&mut client, &frame(HEADERS, END_HEADERS, 1, b"\x88")).unwrap();
        let refused = receive(&mut client, &frame(DATA, 0, 1, &[b'x'; 4097]));
        assert!(refused.unwrap_err().contains("window"));
    }

    #[test]
    fn goaway_ends_the_streams_beyond_its_last() {
        let mut client = opened(3, false);
        let reason = [&[0, 0, 0, 3, 0, 0, 0, 0][..], b"bye"].concat();
        let events = receive(&mut client, &frame(GOAWAY, 0, 0, &reason)).unwrap();
        assert_eq!(events, ["2 End(Refused(0))"]);
        assert_eq!(client.farewell(), Some("NO_ERROR, bye"));
        assert!(!client.can_open());
    }

    #[test]
    fn forbidden_frames_end_the_connection() {
        for bytes in [
            frame(DATA, 0, 1, b"before the head"),
            frame(DATA, 0, 5, b"of no stream"),
            frame(HEADERS, END_HEADERS, 2, b"\x88"),
            frame(HEADERS, END_HEADERS | 0x20, 1, b"\x88"),
            frame(CONTINUATION, END_HEADERS, 1, b"\x88"),
            [frame(HEADERS, 0, 1, b"\x88"), frame(PING, 0, 0, b"12345678")].concat(),
            [
                frame(HEADERS, 0, 1, b"\x88"),
                frame(CONTINUATION, 0, 1, &[0; 16_384]).repeat(5),
            ]
            .concat(),
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 8]),
            frame(SETTINGS, 0, 0, &[0; 5]),
            frame(SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]),
            frame(PING, 0, 0, b"1"),
            frame(GOAWAY, 0, 0, b"1"),
            frame(RST_STREAM, 0, 1, b"1"),
            frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ] {
            let mut client = opened(1, false);
            assert!(receive(&mut client, &bytes).is_err(), "{:?}", &bytes[..9]);
        }
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..24)) {
            let bytes = [
                frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 9]),
                frame(HEADERS, 0, 1, b"\x48\x03"),
                frame(CONTINUATION, END_HEADERS, 1, b"200"),
                frame(DATA, 0x8, 1, b"\x02data: a\n\nxx"),
                frame(HEADERS, END_HEADERS, 3, b"\x88"),
                frame(DATA, 0, 3, &[b'y'; 300]),
                frame(99, 0xff, 0, b"unknown"),
                frame(DATA, END_STREAM, 1, b""),
                frame(GOAWAY, 0, 0, &[0; 8]),
            ].concat();
            let expected = receive(&mut opened(2, false), &bytes).unwrap();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let mut client = opened(2, false);
            let mut all = Vec::new();
            for pair in places.windows(2) {
                all.extend(receive(&mut client, &bytes[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(all, expected);
        }

        #[test]
        fn no_frames_break_the_client(frames in prop::collection::vec(
            (0u8..12, any::<u8>(), 0u32..6, prop::collection::vec(any::<u8>(), 0..40)),
            0..20,
        )) {
            let mut client = opened(2, false);
            for (kind, flags, stream, payload) in frames {
                if receive(&mut client, &frame(kind, flags, stream, &payload)).is_err() {
                    break;
                }
                if client.can_open() {
                    client.open(&headers(), vec![b'x'; 20_000], false);
                }
            }
        }
    }
}
