//! The bare twin of streams over HTTP/2: the crate `h2` with nothing around it.
//!
//! Two threads of tokio serve the connections; a request opens a stream below its URI. A thread per publisher
//! answers `POST /publish/{name}` in HTTP/1.1: it looks the name up and gives every stream there a notice of
//! the service's own text, with the id that the stream's request has. It knows no bus, no rights and no
//! limits.

use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{Request, Response};
use serde_json::Value;
use tidings::wire::dialect::{ACKNOWLEDGED, ETAG_META_KEY, RESOURCE_UPDATED, SUBSCRIPTION_ID_META_KEY};
use tidings::wire::stand_in::read_request;
use tokio::net::{TcpListener, TcpStream};

use super::kind::uri;
use crate::twin;

const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
/// The first bytes of a connection in HTTP/2.
const PREFACE_START: &[u8] = b"PRI";
/// More than any row opens on a connection.
const STREAMS_MAX: u32 = 1_000_000;
/// Any number of as many digits as those of the service's etags have.
const ETAG_SUFFIX: &str = "123456789";

struct Stream {
    id: String,
    sender: h2::SendStream<Bytes>,
}

#[derive(Default)]
struct Shared {
    streams: Mutex<HashMap<String, Vec<Stream>>>,
    changes: AtomicU64,
}

/// Serves until the parent ends.
pub(crate) fn serve() -> anyhow::Result<()> {
    twin::end_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        twin::print_address(listener.local_addr()?);
        let shared = Arc::new(Shared::default());
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let shared = shared.clone();
            tokio::spawn(async move {
                if let Err(error) = admit(socket, shared).await {
                    eprintln!("a connection broke: {error:#}");
                }
            });
        }
    })
}

/// Serves a connection in HTTP/2, or starts the thread of a publisher.
async fn admit(socket: TcpStream, shared: Arc<Shared>) -> anyhow::Result<()> {
    let mut first = [0; PREFACE_START.len()];
    socket.peek(&mut first).await?;
    if first != PREFACE_START {
        let socket = socket.into_std()?;
        socket.set_nonblocking(false)?;
        std::thread::spawn(move || shared.answer_publisher(socket));
        return Ok(());
    }
    let mut builder = Builder::new();
    builder.max_concurrent_streams(STREAMS_MAX);
    let mut connection = builder.handshake::<_, Bytes>(socket).await?;
    while let Some(request) = connection.accept().await {
        let (request, answer) = request?;
        let shared = shared.clone();
        tokio::spawn(async move {
            if let Err(error) = shared.listen(request, answer).await {
                eprintln!("a stream could not be opened: {error:#}");
            }
        });
    }
    Ok(())
}

impl Shared {
    /// Opens a stream.
    async fn listen(
        &self,
        request: Request<RecvStream>,
        mut answer: SendResponse<Bytes>,
    ) -> anyhow::Result<()> {
        let mut body = request.into_body();
        let mut text = Vec::new();
        while let Some(part) = body.data().await {
            let part = part?;
            body.flow_control().release_capacity(part.len())?;
            text.extend_from_slice(&part);
        }
        let message: Value = serde_json::from_slice(&text)?;
        let id = message["id"].to_string();
        let asked = &message["params"]["notifications"];
        let name = asked["resourceSubscriptions"][0].as_str();
        let name = name.context("a request names no resource")?.to_owned();
        let head = Response::builder().header("content-type", "text/event-stream");
        let mut sender = answer.send_response(head.body(())?, false)?;
        let acknowledged = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"{ACKNOWLEDGED}\",\"params\":{{\"notifications\":{asked},\
             \"_meta\":{{\"{SUBSCRIPTION_ID_META_KEY}\":{id}}}}}}}\n\n"
        );
        sender.send_data(acknowledged.into(), false)?;
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.entry(name).or_default().push(Stream { id, sender });
        Ok(())
    }

    /// Answers the changes on one connection.
    fn answer_publisher(&self, socket: std::net::TcpStream) -> anyhow::Result<()> {
        let mut reader = BufReader::new(socket);
        while let Some(start) = read_request(&mut reader)? {
            let path = start.split_whitespace().nth(1).unwrap_or_default();
            self.change(&uri(path.trim_start_matches("/publish/")));
            reader.get_mut().write_all(ANSWER)?;
        }
        Ok(())
    }

    fn change(&self, uri: &str) {
        let version = self.changes.fetch_add(1, Ordering::Relaxed) + 2;
        let same = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"method\":\"{RESOURCE_UPDATED}\",\"params\":{{\"uri\":\"{uri}\",\"_meta\":\
             {{\"{ETAG_META_KEY}\":\"v{version}-{ETAG_SUFFIX}\",\"{SUBSCRIPTION_ID_META_KEY}\":"
        );
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.get_mut(uri).into_iter().flatten() {
            let frame = [same.as_str(), &stream.id, "}}}\n\n"].concat();
            // A reader that waits for the notice fails its run.
            if let Err(error) = stream.sender.send_data(frame.into(), false) {
                eprintln!("a stream lost its notice: {error}");
            }
        }
    }
}
