//! Clients of one node, whose listen streams are read by a thread of their own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, bail};
use memchr::memmem;
use tidings::wire::dialect::ETAG_META_KEY;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::node::Node;
use crate::sockets::{connect, listen};

const READ_BYTES: usize = 64 * 1024;
const FRAME_END: &[u8] = b"\n\n";

/// The time at which a client was told a version of a resource.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hearing {
    /// The number at the end of its URI.
    pub(super) resource: usize,
    pub(super) version: u64,
    pub(super) at: Instant,
}

/// The clients of one node.
pub(super) struct Listeners {
    hearings: Arc<Mutex<Vec<Hearing>>>,
}

impl Listeners {
    /// Opens `clients` listen streams, over which the resources are spread: each is watched by one of them.
    pub(super) fn open(
        runtime: &Runtime,
        node: &Node,
        (clients, names): (usize, &[String]),
    ) -> anyhow::Result<Listeners> {
        let hearings = Arc::new(Mutex::new(Vec::new()));
        for (index, names) in names.chunks(names.len().div_ceil(clients)).enumerate() {
            let socket = listen(connect(node.address())?, &node.target, index, names)?;
            socket.set_nonblocking(true)?;
            let hearings = hearings.clone();
            runtime.spawn(async move {
                let read = match TcpStream::from_std(socket) {
                    Ok(socket) => read(socket, &hearings).await,
                    Err(error) => Err(error.into()),
                };
                if let Err(error) = read {
                    eprintln!("a client of a node ended: {error:#}");
                }
            });
        }
        Ok(Listeners { hearings })
    }

    /// Takes what was heard since the last call.
    pub(super) fn take(&self) -> Vec<Hearing> {
        std::mem::take(&mut *self.hearings.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Reads the frames of a stream until the node ends it.
async fn read(mut socket: TcpStream, hearings: &Mutex<Vec<Hearing>>) -> anyhow::Result<()> {
    let uri = memmem::Finder::new("\"uri\":\"bench://");
    let etag = format!("\"{ETAG_META_KEY}\":\"v");
    let etag = memmem::Finder::new(&etag);
    let mut bytes = Vec::with_capacity(READ_BYTES);
    loop {
        if socket.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        let at = Instant::now();
        let mut begin = 0;
        while let Some(length) = memmem::find(&bytes[begin..], FRAME_END) {
            let frame = &bytes[begin..begin + length];
            begin += length + FRAME_END.len();
            // A heartbeat, or another message.
            let Some(place) = uri.find(frame) else {
                continue;
            };
            let name = &frame[place + uri.needle().len()..];
            let place = etag.find(frame).context("a notice has no etag")?;
            let version = &frame[place + etag.needle().len()..];
            let hearing = Hearing {
                resource: number(name.split(|byte| *byte == b'/').nth(1))?,
                version: number(Some(version))?,
                at,
            };
            hearings
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(hearing);
        }
        bytes.drain(..begin);
    }
}

/// Returns the number at the beginning of `text`.
fn number<N: std::str::FromStr>(text: Option<&[u8]>) -> anyhow::Result<N> {
    let text = text.unwrap_or_default();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match std::str::from_utf8(&text[..digits])?.parse() {
        Ok(number) => Ok(number),
        Err(_) => bail!("no number in {:?}", String::from_utf8_lossy(text)),
    }
}
