//! The bytes of a connection, plain or behind TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[cfg(feature = "tls")]
use super::tls::TlsStream;

/// A connection as the HTTP side sees it. One type for both kinds, so that the server is compiled once.
pub(super) enum Transport<T> {
    /// The connection itself.
    Plain(T),
    /// Boxed, so that plain connections are not larger for it.
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<T>>),
}

/// Calls a method of the stream, whichever it is.
macro_rules! forward {
    ($transport:expr, $method:ident $(, $argument:expr)*) => {
        match $transport.get_mut() {
            Transport::Plain(stream) => Pin::new(stream).$method($($argument),*),
            #[cfg(feature = "tls")]
            Transport::Tls(stream) => Pin::new(&mut **stream).$method($($argument),*),
        }
    };
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Transport<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        forward!(self, poll_read, cx, buffer)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Transport<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self, poll_write, cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, poll_write_vectored, cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Transport::Plain(stream) => stream.is_write_vectored(),
            // The parts of a message are joined first, so that they are one record.
            #[cfg(feature = "tls")]
            Transport::Tls(_) => false,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_flush, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_shutdown, cx)
    }
}
