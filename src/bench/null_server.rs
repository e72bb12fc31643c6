//! A server that only writes ready-made notices to bare sockets, to measure the cost of the test itself.
//!
//! It answers the few requests that the test sends and knows nothing else of the protocol.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;

use crate::bench::BenchError;
use crate::bench::meter::NULL_SERVER_THREAD;
use crate::wire::protocol::ETAG_META_KEY;
use crate::wire::stand_in::{STREAM_HEAD, event_chunk, read_request};

#[derive(Default)]
struct NullServer {
    streams: Mutex<Vec<TcpStream>>,
    version: AtomicU64,
}

/// Starts it and returns its address. Its threads live as long as the process.
pub(crate) fn start() -> Result<SocketAddr, BenchError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| cannot_start(&error))?;
    let address = listener.local_addr().map_err(|error| cannot_start(&error))?;
    let all = Arc::new(NullServer::default());
    thread(move || accept(&listener, &all)).map_err(|error| cannot_start(&error))?;
    Ok(address)
}

fn accept(listener: &TcpListener, server: &Arc<NullServer>) {
    for socket in listener.incoming().flatten() {
        let server = server.clone();
        // Without a thread the connection is closed, and one that breaks is lost: its client reports both.
        thread(move || drop(server.serve(socket))).ok();
    }
}

fn cannot_start(error: &std::io::Error) -> BenchError {
    BenchError::Failed(format!("cannot start the stand-in: {error}"))
}

fn thread(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    Builder::new()
        .name(NULL_SERVER_THREAD.to_owned())
        .spawn(work)
        .map(drop)
}

impl NullServer {
    /// Answers the requests on one connection, until it becomes a stream.
    fn serve(&self, socket: TcpStream) -> std::io::Result<()> {
        socket.set_nodelay(true)?;
        let mut reader = BufReader::new(socket);
        while let Some(start) = read_request(&mut reader)? {
            // The only POST of a modern session is its listen request.
            if start.starts_with("POST") {
                let mut socket = reader.into_inner();
                let acknowledged = r#"{"method":"notifications/subscriptions/acknowledged"}"#;
                socket.write_all(STREAM_HEAD)?;
                socket.write_all(&event_chunk(acknowledged))?;
                self.streams
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(socket);
                return Ok(());
            }
            let answer = if start.starts_with("PUT") {
                self.change()
            } else {
                let body = r#"{"items":[]}"#;
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            };
            reader.get_mut().write_all(answer.as_bytes())?;
        }
        Ok(())
    }

    /// Writes a notice of one more change to every stream and returns the answer for the publisher.
    fn change(&self) -> String {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let notice = event_chunk(&format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\
             \"params\":{{\"uri\":\"demo://bench/0\",\"_meta\":{{\"{ETAG_META_KEY}\":\"v{version}-1\"}}}}}}"
        ));
        for mut stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // A stream that broke is reported by its reader.
            stream.write_all(&notice).ok();
        }
        format!("HTTP/1.1 204 No Content\r\nETag: \"v{version}-1\"\r\n\r\n")
    }
}
