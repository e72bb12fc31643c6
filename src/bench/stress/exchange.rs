//! One request and its answer, on a connection of its own.
//!
//! Owns the connection for as long as the answer takes, at most [`ANSWER_MAX`]. It keeps nothing.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::bench::response::{Head, Response};
use crate::bench::target::Target;

/// How long an answer may take.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Sends `request` and reads the whole answer. The error is in words.
pub(super) async fn ask(server: &Target, request: &[u8]) -> Result<(Head, Vec<u8>), String> {
    let asked = async {
        let mut socket = TcpStream::connect(server.address).await?;
        socket.write_all(request).await?;
        read_answer(&mut socket).await
    };
    match timeout(ANSWER_MAX, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(format!("a request failed: {error}")),
        Err(_) => Err(format!("a request was not answered within {ANSWER_MAX:?}")),
    }
}

async fn read_answer(socket: &mut TcpStream) -> io::Result<(Head, Vec<u8>)> {
    let (mut response, mut body) = (Response::default(), Vec::new());
    let mut buffer = [0; 8192];
    while !response.is_done() {
        let count = socket.read(&mut buffer).await?;
        if count == 0 {
            if response.ends_with_connection() {
                break;
            }
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        response
            .read(&buffer[..count], |part| body.extend_from_slice(part))
            .map_err(io::Error::other)?;
    }
    let head = response.head().cloned().unwrap_or_default();
    Ok((head, body))
}
