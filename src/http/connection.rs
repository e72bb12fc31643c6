//! One HTTP connection, on the thread of its shard.
//!
//! Its protocol is agreed on by TLS, or told by its first bytes ([`first_bytes`]). Each is spoken by a
//! library, and has its own task of the connection:
//!
//! - [`http1`]: one request after the other. A stream leaves the library once its head is written, and a
//!   WebSocket takes the whole connection along.
//! - [`http2`]: many requests at once, each a stream of the protocol ([`http2_request`]) with a task that the
//!   task of the connection polls ([`request_tasks`]).
//!
//! The service cannot tell them apart: a request has the same extensions, and an answer counts the same.

mod begun;
#[cfg(test)]
mod count_wakes;
mod first_bytes;
mod frame_buffers;
mod http1;
mod http2;
mod http2_answer;
mod http2_body;
mod http2_head;
mod http2_io;
mod http2_library;
mod http2_pings;
mod http2_request;
mod http2_streams;
mod http2_writer;
mod own_wakes;
mod request_tasks;
mod sent_frames;
mod short_turns;
#[cfg(test)]
mod texts;
mod turn_queue;
mod wait_list;
mod woken_tasks;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ::http::Extensions;
use first_bytes::{FirstBytes, Prefixed};
pub(super) use http1::Http1Service;
pub(super) use http2_streams::RequestPlaces;
use short_turns::begin_in_turn;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tracing::debug;

use super::server::{RequestService, ServerContext};
use super::write_deadline::{WriteDeadline, is_write_timeout};
use crate::auth::{PeerAddress, PeerCertificate};
use crate::metrics::{self, Limit, OpenConnection};

/// The right to one of the connections that the server allows; given back when the last clone is dropped. A
/// service that takes a connection over keeps the one in the request's extensions.
#[derive(Clone)]
pub(crate) struct ConnectionPermit {
    _held: Arc<(OwnedSemaphorePermit, OpenConnection)>,
}

impl ConnectionPermit {
    pub(super) fn new(permit: OwnedSemaphorePermit, open: OpenConnection) -> ConnectionPermit {
        ConnectionPermit {
            _held: Arc::new((permit, open)),
        }
    }
}

/// The client of a connection, as its requests tell it.
#[derive(Clone)]
pub(super) struct Peer {
    address: PeerAddress,
    certificate: Option<PeerCertificate>,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, certificate: Option<PeerCertificate>) -> Peer {
        Peer {
            address: PeerAddress(address.ip()),
            certificate,
        }
    }

    /// Puts the client into the extensions of a request.
    fn tell(&self, extensions: &mut Extensions) {
        extensions.insert(self.address);
        if let Some(certificate) = &self.certificate {
            extensions.insert(certificate.clone());
        }
    }
}

/// A version of HTTP, by the way in which it uses a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// HTTP/1.0 and HTTP/1.1.
    Http1,
    Http2,
}

/// The parts of a connection beside its bytes.
pub(super) struct ConnectionParts<S> {
    pub(super) peer: Peer,
    pub(super) context: ServerContext<S>,
    pub(super) permit: ConnectionPermit,
}

/// Carries one connection on the thread of its shard. `agreed` is its protocol, if client and server have
/// agreed on one.
pub(super) async fn serve_connection<S, T>(stream: T, agreed: Option<Protocol>, parts: ConnectionParts<S>)
where
    S: RequestService,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = &parts.context.config;
    let mut stream = WriteDeadline::new(Prefixed::new(stream), Some(config.write_timeout));
    let agreed = match config.h2_streams_max {
        0 => Some(Protocol::Http1),
        _ => agreed,
    };
    let FirstBytes { protocol, bytes } = match agreed {
        Some(protocol) => FirstBytes {
            protocol,
            bytes: Vec::new(),
        },
        None => {
            // Boxed, like all that not every connection needs for long, so that its task is not larger.
            let read = first_bytes::read(&mut stream, config.header_timeout, parts.context.closing.clone());
            match Box::pin(begin_in_turn(read)).await {
                Ok(Some(first)) => first,
                Ok(None) => return,
                Err(error) => return note_io_failure(&error),
            }
        }
    };
    match protocol {
        Protocol::Http1 => http1::serve(stream, bytes, parts).await,
        Protocol::Http2 => {
            stream.get_mut().unread(bytes);
            Box::pin(http2::serve(stream, parts)).await;
        }
    }
}

/// Logs why a connection failed outside the library, and counts the limit that ended it, if one did.
fn note_io_failure(error: &io::Error) {
    debug!(%error, "a connection or its stream ended");
    if is_write_timeout(error) {
        metrics::limit_reached(Limit::WriteTimeout);
    }
}
