//! The bare twin: the kernel's share and nothing else.
//!
//! Owns: a thread that accepts, and one that answers `POST /publish/{name}` by writing one ready-made frame to every
//! open socket; of requests that are there at once, the frames of all of them in one write. Never: knows a session, or
//! keeps what a socket does not take.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;

use super::kind::{padded, uri};

const ANSWER: &str = "HTTP/1.1 204 No Content\r\n\r\n";
/// Requests that are seen at once: as many bytes as one read takes.
const READ_BYTES: usize = 64 * 1024;

type Streams = Arc<Mutex<Vec<TcpStream>>>;

/// Serves until standard input closes; the one argument is the bytes of a frame with its framing.
pub(crate) fn serve(arguments: &[String]) -> anyhow::Result<()> {
    end_with_parent();
    let frame_bytes = arguments.first().and_then(|bytes| bytes.parse().ok());
    let frame_bytes = frame_bytes.context("serve-bare needs the bytes of a frame")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("twin listening on http://{}/mcp", listener.local_addr()?);
    let streams = Streams::default();
    for socket in listener.incoming() {
        let (socket, streams) = (socket?, streams.clone());
        socket.set_nodelay(true)?;
        admit(socket, streams, frame_bytes)?;
    }
    Ok(())
}

/// Ends this process when whoever started it has gone.
pub(super) fn end_with_parent() {
    std::thread::spawn(|| {
        let mut byte = [0];
        // Nothing is ever written there: any outcome of the read means that the other end has gone.
        drop(std::io::stdin().read(&mut byte));
        std::process::exit(0);
    });
}

/// Keeps a stream, or begins to publish for whoever does.
fn admit(socket: TcpStream, streams: Streams, frame_bytes: usize) -> anyhow::Result<()> {
    let mut reader = BufReader::with_capacity(READ_BYTES, socket);
    let Some(start) = head(&mut reader)? else {
        return Ok(());
    };
    if !start.starts_with("GET ") {
        std::thread::spawn(move || publish(reader, &start, &streams, frame_bytes));
        return Ok(());
    }
    let mut socket = reader.into_inner();
    socket.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    )?;
    socket.set_nonblocking(true)?;
    streams
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(socket);
    Ok(())
}

/// Answers one connection's changes, the first of which has the start line `start`.
fn publish(
    mut reader: BufReader<TcpStream>,
    start: &str,
    streams: &Streams,
    frame_bytes: usize,
) -> anyhow::Result<()> {
    let mut start = Some(start.to_owned());
    while let Some(first) = start {
        let (mut frames, mut answers) = (frame(&first, frame_bytes), ANSWER.to_owned());
        while !reader.buffer().is_empty() {
            let Some(next) = head(&mut reader)? else {
                return Ok(());
            };
            frames.extend(frame(&next, frame_bytes));
            answers += ANSWER;
        }
        for socket in streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // What a full socket does not take is lost; the reader that waits for it fails its run.
            drop((&*socket).write(&frames));
        }
        reader.get_mut().write_all(answers.as_bytes())?;
        start = head(&mut reader)?;
    }
    Ok(())
}

/// Reads a request and answers its start line; none when the connection ended.
fn head(reader: &mut BufReader<TcpStream>) -> anyhow::Result<Option<String>> {
    let (mut start, mut line, mut length) = (String::new(), String::new(), 0);
    if reader.read_line(&mut start)? == 0 {
        return Ok(None);
    }
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = number.trim().parse().context("a length is no number")?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(start))
}

/// The update that the request with this start line publishes, as a chunk of `bytes` bytes, or of as many as it needs.
fn frame(start: &str, bytes: usize) -> Vec<u8> {
    let path = start.split_whitespace().nth(1).unwrap_or_default();
    let uri = uri(path.trim_start_matches("/publish/"));
    padded(bytes, |padding| {
        let event = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\
             \"params\":{{\"uri\":\"{uri}\",\"_meta\":{{\"pad\":\"{padding}\"}}}}}}\n\n"
        );
        format!("{:X}\r\n{event}\r\n", event.len()).into_bytes()
    })
}
