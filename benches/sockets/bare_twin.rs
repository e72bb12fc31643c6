//! The bare twin: the kernel's share of a delivery and no more.
//!
//! One thread accepts; one per publisher answers `POST /publish/{name}` by writing a ready-made frame to
//! every stream. Of requests that are there at once, it writes the frames together. It knows no session.

use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use tidings::wire::stand_in::{STREAM_HEAD, event_chunk, read_request};

use super::kind::{padded, uri};
use crate::twin;

const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
/// The bytes of one read, and so of the requests that are answered together.
const READ_BYTES: usize = 64 * 1024;

type Streams = Arc<Mutex<Vec<TcpStream>>>;

/// Serves until the parent ends. The one argument is the bytes of a frame with its framing.
pub(crate) fn serve(arguments: &[String]) -> anyhow::Result<()> {
    twin::end_with_parent();
    let frame_bytes = arguments
        .first()
        .context("serve-bare needs the bytes of a frame")?;
    let frame_bytes = frame_bytes
        .parse()
        .context("the bytes of a frame are no number")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    twin::print_address(listener.local_addr()?);
    let streams = Streams::default();
    for socket in listener.incoming() {
        let socket = socket?;
        socket.set_nodelay(true)?;
        admit(socket, streams.clone(), frame_bytes)?;
    }
    Ok(())
}

/// Keeps a stream, or starts the thread of a publisher.
fn admit(socket: TcpStream, streams: Streams, frame_bytes: usize) -> anyhow::Result<()> {
    let mut reader = BufReader::with_capacity(READ_BYTES, socket);
    let Some(start) = read_request(&mut reader)? else {
        return Ok(());
    };
    if !start.starts_with("GET ") {
        std::thread::spawn(move || answer_publisher(reader, start, &streams, frame_bytes));
        return Ok(());
    }
    let mut socket = reader.into_inner();
    socket.write_all(STREAM_HEAD)?;
    socket.set_nonblocking(true)?;
    let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
    streams.push(socket);
    Ok(())
}

/// Answers the changes on one connection, the first of which has the first line `start`.
fn answer_publisher(
    mut reader: BufReader<TcpStream>,
    mut start: String,
    streams: &Streams,
    frame_bytes: usize,
) -> anyhow::Result<()> {
    loop {
        let mut frames = frame(&start, frame_bytes);
        let mut answers = ANSWER.to_owned();
        while !reader.buffer().is_empty() {
            let Some(next) = read_request(&mut reader)? else {
                return Ok(());
            };
            frames.extend(frame(&next, frame_bytes));
            answers.extend_from_slice(ANSWER);
        }
        for mut socket in streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // A full socket loses the frames; the reader that waits for them then fails its run.
            if let Err(error) = socket.write(&frames) {
                eprintln!("a stream lost its frames: {error}");
            }
        }
        reader.get_mut().write_all(&answers)?;
        match read_request(&mut reader)? {
            Some(next) => start = next,
            None => return Ok(()),
        }
    }
}

/// Returns the notice of the change that the request with this first line makes, as a chunk of `bytes` bytes,
/// or of as many as it needs.
fn frame(start: &str, bytes: usize) -> Vec<u8> {
    let path = start.split_whitespace().nth(1).unwrap_or_default();
    let uri = uri(path.trim_start_matches("/publish/"));
    padded(bytes, |padding| {
        event_chunk(&format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\
             \"params\":{{\"uri\":\"{uri}\",\"_meta\":{{\"pad\":\"{padding}\"}}}}}}"
        ))
    })
}
