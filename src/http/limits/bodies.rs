//! The bodies of requests, while they are received and answered: their number of bytes, and their time.

use std::error::Error;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::http::{HeaderMap, header};
use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;

use super::SharedLimits;
use crate::metrics::{self, Limit};

/// The bytes of the bodies that are in flight, over all connections.
#[derive(Debug)]
pub(super) struct Bodies {
    bytes: Arc<AtomicUsize>,
    max: usize,
}

/// The bytes of one body among those in flight; given back when dropped.
#[derive(Debug)]
pub(crate) struct BytesPlace {
    all: Arc<AtomicUsize>,
    held: usize,
}

/// The whole body of a request. Its bytes count as in flight until it is dropped.
#[derive(Debug)]
pub(crate) struct ReceivedBody {
    /// The content.
    pub(crate) bytes: Bytes,
    place: BytesPlace,
}

impl ReceivedBody {
    /// Takes the content apart from its place among those in flight.
    pub(crate) fn into_parts(self) -> (Bytes, BytesPlace) {
        (self.bytes, self.place)
    }
}

/// The reason why a body was not received. The limits that a text names are counted already.
#[derive(Debug)]
pub(crate) enum BodyFault {
    /// It has more bytes than it may, by its announcement or by those that came. The caller counts this one,
    /// since it knows the key that limits it.
    TooLarge,
    /// It did not come within `http.body_timeout`.
    Late(String),
    /// The bodies in flight have as many bytes as `http.bodies_bytes_max` allows.
    Full(String),
    /// The connection failed.
    Unreadable(String),
}

impl Bodies {
    pub(super) fn new(max: usize) -> Bodies {
        Bodies {
            bytes: Arc::default(),
            max,
        }
    }

    fn place(&self) -> BytesPlace {
        BytesPlace {
            all: self.bytes.clone(),
            held: 0,
        }
    }
}

impl BytesPlace {
    /// Returns the length of the body.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Adds `len` bytes. Returns false, without effect, if all bodies would then have more than `max`.
    fn grow(&mut self, len: usize, max: usize) -> bool {
        let grown = self
            .all
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| {
                bytes.checked_add(len).filter(|sum| *sum <= max)
            });
        if grown.is_ok() {
            self.held += len;
        }
        grown.is_ok()
    }
}

impl Drop for BytesPlace {
    fn drop(&mut self) {
        self.all.fetch_sub(self.held, Ordering::Relaxed);
    }
}

impl SharedLimits {
    /// Takes a place for `len` bytes that wait to be written; none if all bodies together would then have
    /// more than `http.bodies_bytes_max`, which is counted.
    #[cfg(feature = "service")]
    pub(crate) fn place_body(&self, len: usize) -> Option<BytesPlace> {
        let bodies = &self.shared.bodies;
        let mut place = bodies.place();
        if place.grow(len, bodies.max) {
            return Some(place);
        }
        metrics::limit_reached(Limit::BodiesBytes);
        None
    }

    /// Receives a body of at most `bytes_max` bytes. Bytes are counted as they come, not as they are
    /// announced: a client must send what it takes from the others.
    ///
    /// # Errors
    /// The body is too large, late, one too many, or cut off.
    pub(crate) async fn receive<B>(
        &self,
        headers: &HeaderMap,
        body: B,
        bytes_max: usize,
    ) -> Result<ReceivedBody, BodyFault>
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        // Before the body is read: a client that announces too much is refused without a transfer.
        if told_length(headers) > Some(bytes_max as u64) {
            return Err(BodyFault::TooLarge);
        }
        let timeout = self.shared.body_timeout;
        match tokio::time::timeout(timeout, self.collect(body, bytes_max)).await {
            Ok(received) => received,
            Err(_elapsed) => {
                metrics::limit_reached(Limit::BodyTimeout);
                let text = format!(
                    "the body was not complete after {} s (http.body_timeout); send it faster or in parts",
                    timeout.as_secs_f64()
                );
                Err(BodyFault::Late(text))
            }
        }
    }

    async fn collect<B>(&self, body: B, bytes_max: usize) -> Result<ReceivedBody, BodyFault>
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let bodies = &self.shared.bodies;
        let mut place = bodies.place();
        let mut body = pin!(body);
        // Most bodies are one frame, which is taken as it is.
        let mut whole = Bytes::new();
        let mut joined = BytesMut::new();
        while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let frame = frame.map_err(|error| BodyFault::Unreadable(error.into().to_string()))?;
            // Trailers say nothing that is heeded here.
            let Ok(mut data) = frame.into_data() else { continue };
            let len = data.remaining();
            if len > bytes_max - place.held {
                return Err(BodyFault::TooLarge);
            }
            if !place.grow(len, bodies.max) {
                metrics::limit_reached(Limit::BodiesBytes);
                return Err(BodyFault::Full(format!(
                    "the bodies of all requests together have reached {} bytes (http.bodies_bytes_max); try again \
                     later",
                    bodies.max
                )));
            }
            if whole.is_empty() && joined.is_empty() {
                whole = data.copy_to_bytes(len);
                continue;
            }
            // Copied, as a frame may hold on to more memory than it has bytes.
            joined.extend_from_slice(&std::mem::take(&mut whole));
            joined.extend_from_slice(&data.copy_to_bytes(len));
        }
        Ok(ReceivedBody {
            bytes: if joined.is_empty() { whole } else { joined.freeze() },
            place,
        })
    }
}

/// Returns the length of a body that its head tells. The libraries have refused lengths that are no numbers,
/// and HTTP/2 ends a request with another body.
pub(in crate::http) fn told_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HttpConfig, QuotaConfig, SessionConfig};
    use futures_util::{StreamExt, stream};
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use std::convert::Infallible;
    use std::time::Duration;
    use tokio::time::Instant;

    fn limits(bodies_bytes_max: usize) -> SharedLimits {
        let http = HttpConfig {
            bodies_bytes_max,
            ..HttpConfig::default()
        };
        SharedLimits::new(&http, &SessionConfig::default(), &QuotaConfig::default())
    }

    /// A body of these parts that never ends.
    fn endless(parts: &[&'static str]) -> impl Body<Data = Bytes, Error = Infallible> {
        let frames = parts.iter().map(|part| Ok(Frame::data(Bytes::from(*part))));
        let frames: Vec<_> = frames.collect();
        StreamBody::new(stream::iter(frames).chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn late_body_is_given_up_after_its_time() {
        let limits = limits(100);
        let start = Instant::now();
        let received = limits.receive(&HeaderMap::new(), endless(&["a", "b"]), 10).await;
        assert!(matches!(received, Err(BodyFault::Late(_))), "{received:?}");
        assert_eq!(start.elapsed().as_secs(), 30);
        assert_eq!(limits.shared.bodies.bytes.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_in_flight_share_their_bytes() {
        let limits = limits(10);
        let none = HeaderMap::new();
        let stalled = limits.receive(&none, endless(&["123", "456"]), 10);
        let mut stalled = Box::pin(stalled);
        let waited = tokio::time::timeout(Duration::from_secs(1), &mut stalled).await;
        assert!(waited.is_err());
        let five = async || limits.receive(&none, Full::new(Bytes::from("12345")), 10).await;
        assert!(matches!(five().await, Err(BodyFault::Full(_))));
        drop(stalled);
        let held = five().await.unwrap();
        assert_eq!(held.bytes, "12345");
        // The bytes count until the request is answered.
        assert!(five().await.is_ok());
        let another = five().await.unwrap();
        assert!(matches!(five().await, Err(BodyFault::Full(_))));
        drop((held, another));
    }

    #[tokio::test]
    async fn body_of_several_frames_is_joined_up_to_its_limit() {
        let limits = limits(100);
        let body = || {
            let parts = ["ab", "", "cd", "e"];
            let frames = parts.map(|part| Ok::<_, Infallible>(Frame::data(Bytes::from(part))));
            StreamBody::new(stream::iter(frames))
        };
        let none = HeaderMap::new();
        assert_eq!(limits.receive(&none, body(), 5).await.unwrap().bytes, "abcde");
        assert!(matches!(
            limits.receive(&none, body(), 4).await,
            Err(BodyFault::TooLarge)
        ));
        let mut announced = HeaderMap::new();
        announced.insert(header::CONTENT_LENGTH, "6".parse().unwrap());
        let received = limits.receive(&announced, endless(&[]), 5).await;
        assert!(matches!(received, Err(BodyFault::TooLarge)));
    }
}
