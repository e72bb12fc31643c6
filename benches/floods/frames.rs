//! The frames of each flood.

use tidings::wire::http2::frames::{
    CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, write_frame,
};

/// The frames of one turn.
const FRAMES: u32 = 200;
/// The streams of one connection that stay open.
const OPEN: u32 = 100;
/// Fields of the static table of HPACK (RFC 7541, appendix A): GET, PUT by name, http, and the path by name.
const GET: &[u8] = &[0x82, 0x86];
const PUT: &[u8] = &[0x02, 3, b'P', b'U', b'T', 0x86];
/// The setting of the window with which streams begin.
const INITIAL_WINDOW: u16 = 4;

/// A flood.
pub(super) struct Flood {
    pub(super) name: &'static str,
    /// The frames of a turn of a connection.
    pub(super) frames: fn(u32) -> Vec<u8>,
    /// The turns of a connection; none if it is flooded until it ends.
    pub(super) turns: Option<u32>,
    /// True if the answers are read.
    pub(super) reads: bool,
    /// The connections that stay open at a time.
    pub(super) connections: usize,
}

pub(super) const FLOODS: &[Flood] = &[
    flood("rapid reset", rapid_reset),
    flood("CONTINUATION without end", continuations),
    Flood {
        reads: false,
        ..flood("SETTINGS", |_| repeated(SETTINGS, &[]))
    },
    Flood {
        reads: false,
        ..flood("PING", |_| repeated(PING, &[0; 8]))
    },
    flood("windows of one byte", tiny_windows),
    flood("windows that overflow", |_| {
        repeated(WINDOW_UPDATE, &0x7fff_ffff_u32.to_be_bytes())
    }),
    flood("header bombs", header_bombs),
    Flood {
        turns: Some(1),
        connections: 1_000,
        ..flood("half-open requests", half_open)
    },
];

const fn flood(name: &'static str, frames: fn(u32) -> Vec<u8>) -> Flood {
    Flood {
        name,
        frames,
        turns: None,
        reads: true,
        connections: 1,
    }
}

/// The number of a client's stream by its turn and its place in it.
fn stream(turn: u32, place: u32) -> u32 {
    2 * (turn * FRAMES + place) + 1
}

/// The header block of a request with this method and path.
fn request(method: &[u8], path: &str) -> Vec<u8> {
    let mut block = method.to_vec();
    // Literals without indexing: the path, and the name that the client called.
    block.extend([0x04, path.len() as u8]);
    block.extend(path.as_bytes());
    block.extend([0x01, 9]);
    block.extend(b"localhost");
    block
}

/// Frames of the connection.
fn repeated(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..FRAMES {
        write_frame(&mut out, kind, 0, 0, payload);
    }
    out
}

fn rapid_reset(turn: u32) -> Vec<u8> {
    let block = request(GET, "/v1/resources");
    let mut out = Vec::new();
    for place in 0..FRAMES {
        let stream = stream(turn, place);
        write_frame(&mut out, HEADERS, END_HEADERS | END_STREAM, stream, &block);
        // CANCEL.
        write_frame(&mut out, RST_STREAM, 0, stream, &[0, 0, 0, 8]);
    }
    out
}

fn continuations(turn: u32) -> Vec<u8> {
    let mut out = Vec::new();
    if turn == 0 {
        write_frame(&mut out, HEADERS, END_STREAM, 1, &request(GET, "/healthz"));
    }
    for _ in 0..FRAMES {
        write_frame(&mut out, CONTINUATION, 0, 1, &[0x00, 1, b'x', 1, b'y']);
    }
    out
}

fn tiny_windows(turn: u32) -> Vec<u8> {
    let mut out = Vec::new();
    if turn == 0 {
        let [high, low] = INITIAL_WINDOW.to_be_bytes();
        write_frame(&mut out, SETTINGS, 0, 0, &[high, low, 0, 0, 0, 1]);
        for place in 0..OPEN {
            let block = request(GET, "/v1/openapi.json");
            write_frame(
                &mut out,
                HEADERS,
                END_HEADERS | END_STREAM,
                stream(0, place),
                &block,
            );
        }
    }
    for place in 0..OPEN {
        write_frame(&mut out, WINDOW_UPDATE, 0, stream(0, place), &[0, 0, 0, 1]);
    }
    out
}

/// Requests whose few bytes stand for many: a long field is put into the table once, and named again and
/// again.
fn header_bombs(turn: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for place in 0..FRAMES {
        let mut block = request(GET, "/healthz");
        // With indexing, a value of 4,000 bytes, whose length takes three bytes (RFC 7541, 5.1).
        block.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
        block.extend([b'y'; 4_000]);
        // The newest entry of the table.
        block.extend([0xbe; 10_000]);
        write_frame(
            &mut out,
            HEADERS,
            END_HEADERS | END_STREAM,
            stream(turn, place),
            &block,
        );
    }
    out
}

fn half_open(turn: u32) -> Vec<u8> {
    let block = request(PUT, "/v1/resources/bench%3A%2F%2Fhalf");
    let mut out = Vec::new();
    for place in 0..OPEN {
        write_frame(&mut out, HEADERS, END_HEADERS, stream(turn, place), &block);
    }
    out
}
