//! A byte stream behind TLS that reports a byte as taken when the kernel has it, and not before.
//!
//! The TLS library would take any byte into a buffer of its own, where a notice grows old that a newer one
//! could have replaced. Here a write encrypts one record and is pending until the socket has taken a part of
//! it; the caller comes back with the bytes that were not taken, as with a socket.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::ServerConnection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::debug;

use super::files::HTTP_2;

/// The bytes of one record, the most that TLS allows.
const RECORD_MAX: usize = 16 << 10;

/// A connection behind TLS.
///
/// A write that was not taken whole must be repeated with the same bytes, as all writers in this crate do:
/// they are encrypted already.
pub(in crate::http) struct TlsStream<T> {
    io: T,
    tls: ServerConnection,
    /// The bytes that are encrypted and not yet reported as taken.
    encrypted: usize,
    /// The bytes of their record that the socket has taken, less those that were reported.
    sent: usize,
    closed: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> TlsStream<T> {
    /// Shakes hands with a client whose first bytes were read already, up to the last byte of this side.
    ///
    /// # Errors
    /// The client is gone, or it breaks the protocol or is refused; an alert has told it why.
    pub(super) async fn accept(io: T, mut tls: ServerConnection, first: &[u8]) -> io::Result<TlsStream<T>> {
        tls.set_buffer_limit(Some(RECORD_MAX));
        let mut stream = TlsStream {
            io,
            tls,
            encrypted: 0,
            sent: 0,
            closed: false,
        };
        let mut first = Some(first);
        poll_fn(|cx| {
            if let Some(mut first) = first.take() {
                while !first.is_empty() && stream.tls.read_tls(&mut first)? > 0 {
                    stream.process(cx)?;
                }
            }
            stream.poll_handshake(cx)
        })
        .await?;
        Ok(stream)
    }

    /// Returns the state of TLS.
    pub(super) fn tls(&self) -> &ServerConnection {
        &self.tls
    }

    /// Returns true if client and server have agreed on HTTP/2.
    pub(in crate::http) fn agreed_on_http2(&self) -> bool {
        self.tls.alpn_protocol() == Some(HTTP_2)
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(cx))? == 0 {
                let text = "the client ended the connection within the handshake";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
        }
    }

    /// Sends all records that are ready. Pending while the socket does not take them all.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let mut io = Polled { io: &mut self.io, cx };
            match self.tls.write_tls(&mut io) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads bytes from the socket and decrypts them. Returns 0 at its end.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut io = Polled { io: &mut self.io, cx };
        let read = match self.tls.read_tls(&mut io) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        self.process(cx)?;
        Poll::Ready(Ok(read))
    }

    /// Decrypts the bytes that were read.
    fn process(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Err(error) = self.tls.process_new_packets() else {
            return Ok(());
        };
        // The client learns the reason from the alert, if the socket has room for it.
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            debug!(%error, "an alert could not be sent");
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        loop {
            match stream.tls.reader().read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The socket ended without the farewell of TLS. A request that was cut short is noticed by
                // its own framing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(stream.poll_receive(cx))?;
            // The answer to a change of keys, if the socket has room; otherwise the next write sends it.
            // While a write waits, its task must be the one that the socket wakes.
            if stream.encrypted == 0
                && let Poll::Ready(sent) = stream.poll_send(cx)
            {
                sent?;
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if stream.encrypted == 0 {
            // Records of the handshake or of an alert.
            ready!(stream.poll_send(cx))?;
            stream.encrypted = stream.tls.writer().write(&bytes[..bytes.len().min(RECORD_MAX)])?;
            stream.sent = 0;
            if stream.encrypted == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        let taken = match stream.poll_send(cx)? {
            Poll::Ready(()) => stream.encrypted,
            // A record is longer than its content, so its last byte is taken with its end.
            Poll::Pending => stream.sent.min(stream.encrypted - 1),
        };
        let taken = taken.min(bytes.len());
        if taken == 0 {
            return Poll::Pending;
        }
        stream.encrypted -= taken;
        stream.sent = stream.sent.saturating_sub(taken);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        ready!(stream.poll_send(cx))?;
        Pin::new(&mut stream.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if !stream.closed {
            stream.closed = true;
            stream.tls.send_close_notify();
        }
        // A client that takes nothing does not delay the end of its connection.
        if let Poll::Ready(sent) = stream.poll_send(cx) {
            sent?;
        }
        Pin::new(&mut stream.io).poll_shutdown(cx)
    }
}

/// The socket for the TLS library, which calls it like a blocking one that never blocks.
struct Polled<'a, 'b, T> {
    io: &'a mut T,
    cx: &'a mut Context<'b>,
}

impl<T: AsyncRead + Unpin> Read for Polled<'_, '_, T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        match Pin::new(&mut *self.io).poll_read(self.cx, &mut buffer) {
            Poll::Ready(read) => read.map(|()| buffer.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<T: AsyncWrite + Unpin> Write for Polled<'_, '_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(&mut *self.io).poll_write(self.cx, bytes) {
            Poll::Ready(taken) => taken,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.io).poll_write_vectored(self.cx, slices) {
            Poll::Ready(taken) => taken,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
