//! The library as the server of one HTTP/2 connection: from the first frames of the client to the end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::http::Request;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use tokio::io::{AsyncRead, AsyncWrite};

use super::http2_pings::Pings;
use super::sent_frames::SentFrame;
use crate::config::HttpConfig;
use crate::http::write_deadline::is_write_timeout;

/// The bytes of one request's body that a client may send before they are read.
const STREAM_WINDOW: u32 = 256 << 10;

/// The same over all requests of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;

/// The table by which a client may shorten repeated headers, in bytes.
const HEADER_TABLE: u32 = 4 << 10;

/// A request, and the way of its answer.
pub(super) type Accepted = (Request<RecvStream>, SendResponse<SentFrame>);

/// The end of a connection by the library.
#[derive(Debug)]
pub(super) enum LibraryEnd {
    /// All is done, or the client is gone.
    Done,
    Failed(h2::Error),
    /// The client has not answered a ping.
    NoAnswer,
}

impl LibraryEnd {
    /// Returns true if the library ended a connection for a fault of its client, and has told it.
    pub(super) fn is_fault(&self) -> bool {
        match self {
            LibraryEnd::Failed(error) => error.is_library(),
            LibraryEnd::Done | LibraryEnd::NoAnswer => false,
        }
    }

    /// Returns true if the library ended a connection for what its client asked of it.
    pub(super) fn is_flood(&self) -> bool {
        match self {
            LibraryEnd::Failed(error) => self.is_fault() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM),
            _ => false,
        }
    }

    /// Returns true if the client took nothing for the write time-out.
    pub(super) fn is_write_timeout(&self) -> bool {
        match self {
            LibraryEnd::Failed(error) => match error.get_io() {
                Some(error) => is_write_timeout(error),
                None => false,
            },
            _ => false,
        }
    }
}

/// The library over `T`.
pub(super) struct Library<T> {
    stage: LibraryStage<T>,
    config: Arc<HttpConfig>,
    /// True once no further requests are accepted.
    is_closing: bool,
}

/// The stage that a connection is at.
enum LibraryStage<T> {
    /// The client has not sent its first frames.
    Handshake(Handshake<T, SentFrame>),
    Serving(Connection<T, SentFrame>, Option<Pings>),
}

impl<T: AsyncRead + AsyncWrite + Unpin> Library<T> {
    pub(super) fn new(socket: T, config: Arc<HttpConfig>) -> Library<T> {
        let bounded = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut builder = Builder::new();
        builder
            .max_concurrent_streams(bounded(config.h2_streams_max))
            .max_header_list_size(bounded(config.h2_header_bytes_max))
            .header_table_size(HEADER_TABLE)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // WebSockets (RFC 8441).
            .enable_connect_protocol();
        Library {
            stage: LibraryStage::Handshake(builder.handshake(socket)),
            config,
            is_closing: false,
        }
    }

    /// Reads and writes frames. Ready with the next request, or at the end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Accepted, LibraryEnd>> {
        let (connection, pings) = loop {
            match &mut self.stage {
                LibraryStage::Serving(connection, pings) => break (connection, pings),
                LibraryStage::Handshake(handshake) => {
                    let mut connection = ready!(Pin::new(handshake).poll(cx)).map_err(LibraryEnd::Failed)?;
                    if self.is_closing {
                        connection.graceful_shutdown();
                    }
                    let pings = connection
                        .ping_pong()
                        .map(|pings| Pings::new(pings, &self.config));
                    self.stage = LibraryStage::Serving(connection, pings);
                }
            }
        };
        // First, since a client that is gone sends nothing that would have the connection polled again.
        if let Some(pings) = pings.as_mut()
            && pings.poll(cx).is_ready()
        {
            return Poll::Ready(Err(LibraryEnd::NoAnswer));
        }
        let Some(accepted) = ready!(connection.poll_accept(cx)) else {
            return Poll::Ready(Err(LibraryEnd::Done));
        };
        if let Some(pings) = pings {
            pings.note_heard();
        }
        Poll::Ready(accepted.map_err(LibraryEnd::Failed))
    }

    /// Returns true once no further requests are accepted.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Accepts no further requests, and ends after those that are under way.
    pub(super) fn close(&mut self) {
        if let LibraryStage::Serving(connection, _) = &mut self.stage
            && !self.is_closing
        {
            connection.graceful_shutdown();
        }
        // A client that has not sent its first frames is told after them.
        self.is_closing = true;
    }
}
