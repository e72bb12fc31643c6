//! The HTTP side of the service: its callers, upgrades of connections, the API, event streams, the WebSocket.

mod access;
mod auth;
pub(crate) mod rights;
mod descriptors;
mod upgrade;
pub(crate) mod upstreams;
mod api;
mod events;
mod http2;
mod limits;
mod pipelined;
mod quota;
pub(crate) mod tls;
mod ws;
mod content;
mod patterns;
mod page;
mod stats;
mod unread;

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::mcp::http::within;

/// A connection whose bytes a test chooses one by one.
struct RawConnection<S = TcpStream> {
    stream: S,
}

impl RawConnection {
    async fn open(server: SocketAddr) -> RawConnection {
        let stream = TcpStream::connect(server).await.unwrap();
        // Each `send` is a segment of its own.
        stream.set_nodelay(true).unwrap();
        RawConnection { stream }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> RawConnection<S> {
    async fn send(&mut self, bytes: &str) {
        self.stream.write_all(bytes.as_bytes()).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Reads the head of an answer, and nothing beyond it.
    async fn head(&mut self) -> String {
        let mut head = Vec::new();
        within("the head of an answer", async {
            while !head.ends_with(b"\r\n\r\n") {
                head.push(self.stream.read_u8().await.unwrap());
            }
        })
        .await;
        String::from_utf8(head).unwrap()
    }

    /// Reads a whole answer that has a length, and returns its status.
    async fn status(&mut self) -> u16 {
        self.answer().await.0
    }

    /// Reads a whole answer that has a length. Returns its status and body.
    async fn answer(&mut self) -> (u16, String) {
        let head = self.head().await;
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        });
        let mut body = vec![0; length.unwrap_or(0)];
        within("the body of an answer", self.stream.read_exact(&mut body))
            .await
            .unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, String::from_utf8(body).unwrap())
    }
}
