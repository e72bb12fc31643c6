//! A stand-in for a server: bare sockets to which one ready-made notice is written.
//!
//! Owns its threads, which live as long as the process does and are named so that nobody counts their CPU. It speaks
//! as much as the test asks of a server, and nothing of the protocol beyond.

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

/// Starts it; answers where it listens.
pub(crate) fn start() -> Result<SocketAddr, BenchError> {
    let broken = |error| BenchError::Failed(format!("cannot start the stand-in: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(broken)?;
    let address = listener.local_addr().map_err(broken)?;
    let all = Arc::new(NullServer::default());
    let accept = move || {
        for socket in listener.incoming().flatten() {
            let all = all.clone();
            // A connection without a thread is closed, and the test says so.
            drop(thread(move || drop(all.serve(socket))));
        }
    };
    thread(accept).map_err(broken)?;
    Ok(address)
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

    /// Tells every stream of one more change.
    fn change(&self) -> String {
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 1;
        let notice = event_chunk(&format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\
             \"params\":{{\"uri\":\"demo://bench/0\",\"_meta\":{{\"{ETAG_META_KEY}\":\"v{version}-1\"}}}}}}"
        ));
        for mut stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // A stream that has gone is missed by its reader, not here.
            drop(stream.write_all(&notice));
        }
        format!("HTTP/1.1 204 No Content\r\nETag: \"v{version}-1\"\r\n\r\n")
    }
}
