//! The handshakes under way: each is bounded in time, and all are bounded in number.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;

use super::stream::TlsStream;
use crate::metrics::{self, HandshakeFailure, Limit};

/// The handshakes under way at a time. At the limit the oldest ends: an honest one is done within a few
/// round trips, and those that an attacker leaves open are the oldest.
const UNDER_WAY_MAX: usize = 1_024;

/// The bytes of the first read. The first message of most clients fits.
const FIRST_READ: usize = 2 << 10;

/// The first byte of a handshake (RFC 8446, 5.1).
const HANDSHAKE: u8 = 22;

/// The bytes that a client of plain HTTP may send on, so that it reads the answer.
const IGNORED_MAX: usize = 64 << 10;

/// The time that such a client has for that.
const LINGER: Duration = Duration::from_millis(500);

/// The answer to plain HTTP. Its length is that of the text.
const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\
    content-length: 66\r\n\r\nthis port speaks TLS: call it by an address that begins with https";

/// A handshake that failed.
#[derive(Debug)]
pub(super) struct FailedHandshake {
    pub(super) outcome: HandshakeFailure,
    pub(super) error: io::Error,
}

/// The handshakes under way.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    places: Mutex<Places>,
}

/// The places of handshakes by their age. A place ends when its sender is dropped.
#[derive(Debug, Default)]
struct Places {
    next: u64,
    held: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A place, which is given back when dropped.
struct HandshakePlace {
    handshakes: Arc<Handshakes>,
    number: u64,
}

impl Handshakes {
    /// Shakes hands over `io` within `time`.
    pub(super) async fn shake<T: AsyncRead + AsyncWrite + Unpin>(
        self: &Arc<Handshakes>,
        io: T,
        config: Arc<ServerConfig>,
        time: Duration,
    ) -> Result<TlsStream<T>, FailedHandshake> {
        let (place, displaced) = self.enter();
        // Boxed, so that the task of a connection is not larger for it afterwards.
        let shaken = Box::pin(tokio::time::timeout(time, shake(io, config)));
        let shaken = tokio::select! {
            shaken = shaken => shaken,
            _ = displaced => {
                let text = "too many handshakes are under way, and this was the oldest";
                return Err(failed(HandshakeFailure::Displaced, io::Error::other(text)));
            }
        };
        drop(place);
        match shaken {
            Ok(shaken) => shaken,
            Err(_elapsed) => {
                metrics::limit_reached(Limit::HeaderTimeout);
                let text = "the handshake was not finished within http.header_timeout";
                Err(failed(
                    HandshakeFailure::Late,
                    io::Error::new(io::ErrorKind::TimedOut, text),
                ))
            }
        }
    }

    /// Takes a place, from the oldest holder if there is none left. The receiver resolves when the place is
    /// taken away.
    fn enter(self: &Arc<Handshakes>) -> (HandshakePlace, oneshot::Receiver<()>) {
        let (sender, displaced) = oneshot::channel();
        let mut places = self.places();
        if places.held.len() >= UNDER_WAY_MAX && places.held.pop_first().is_some() {
            metrics::limit_reached(Limit::Handshakes);
        }
        let number = places.next;
        places.next += 1;
        places.held.insert(number, sender);
        let place = HandshakePlace {
            handshakes: self.clone(),
            number,
        };
        (place, displaced)
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // The places are valid after every single change, so a panic of another holder does no harm.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.handshakes.places().held.remove(&self.number);
    }
}

fn failed(outcome: HandshakeFailure, error: io::Error) -> FailedHandshake {
    FailedHandshake { outcome, error }
}

async fn shake<T: AsyncRead + AsyncWrite + Unpin>(
    mut io: T,
    config: Arc<ServerConfig>,
) -> Result<TlsStream<T>, FailedHandshake> {
    let mut first = [0; FIRST_READ];
    let gone = |error| failed(HandshakeFailure::Gone, error);
    let length = io.read(&mut first).await.map_err(gone)?;
    match first[..length] {
        [HANDSHAKE, ..] => {}
        [] => return Err(gone(io::ErrorKind::UnexpectedEof.into())),
        [byte, ..] => {
            // Methods are upper-case letters. Anything else gets no answer.
            if byte.is_ascii_uppercase() {
                answer_plain(&mut io).await.map_err(gone)?;
            }
            let text = "the client does not speak TLS";
            return Err(failed(HandshakeFailure::NotTls, io::Error::other(text)));
        }
    }
    let tls = ServerConnection::new(config);
    let tls = tls.map_err(|error| failed(HandshakeFailure::Refused, io::Error::other(error)))?;
    TlsStream::accept(io, tls, &first[..length])
        .await
        .map_err(|error| {
            let outcome = match error.kind() {
                io::ErrorKind::InvalidData => outcome_of(&error),
                _ => HandshakeFailure::Gone,
            };
            failed(outcome, error)
        })
}

/// Returns the outcome of a handshake that the TLS library broke off.
fn outcome_of(error: &io::Error) -> HandshakeFailure {
    match error
        .get_ref()
        .and_then(|error| error.downcast_ref::<rustls::Error>())
    {
        Some(rustls::Error::InvalidCertificate(_)) => HandshakeFailure::Certificate,
        _ => HandshakeFailure::Refused,
    }
}

/// Answers a client of plain HTTP, and reads on for a moment, since bytes that were not read would take the
/// answer from it.
async fn answer_plain<T: AsyncRead + AsyncWrite + Unpin>(io: &mut T) -> io::Result<()> {
    io.write_all(PLAIN_ANSWER).await?;
    io.shutdown().await?;
    match tokio::time::timeout(LINGER, ignore(io)).await {
        Ok(ignored) => ignored,
        // It had time to read the answer.
        Err(_elapsed) => Ok(()),
    }
}

/// Reads and drops bytes up to the end or a limit.
async fn ignore<T: AsyncRead + Unpin>(io: &mut T) -> io::Result<()> {
    let mut ignored = 0;
    let mut scratch = [0; 512];
    while ignored <= IGNORED_MAX {
        match io.read(&mut scratch).await? {
            0 => break,
            read => ignored += read,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_answer_has_the_length_of_its_text() {
        let answer = std::str::from_utf8(PLAIN_ANSWER).unwrap();
        let (head, text) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("content-length: {}", text.len())),
            "{}",
            text.len()
        );
    }

    #[tokio::test]
    async fn oldest_handshake_gives_way_at_the_limit() {
        let handshakes = Arc::<Handshakes>::default();
        let mut places: Vec<_> = (0..UNDER_WAY_MAX).map(|_| handshakes.enter()).collect();
        assert!(places[0].1.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        let (newest, _) = handshakes.enter();
        assert!(places[0].1.try_recv() == Err(oneshot::error::TryRecvError::Closed));
        assert!(places[1].1.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        drop(newest);
        drop(places.pop());
        assert_eq!(handshakes.places().held.len(), UNDER_WAY_MAX - 2);
    }
}
