//! TLS in front of a connection, driven by hand: one thread carries thousands of connections, and no library
//! may wait for any of them.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, Stream};

/// The TLS side of a server: the name that its certificate must have, and the settings of connections to it.
#[derive(Clone)]
pub struct TlsTarget {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TlsTarget {
    /// Takes the host of an address, without the brackets of IPv6; none if it can stand in no certificate.
    pub fn new(config: Arc<ClientConfig>, host: &str) -> Option<TlsTarget> {
        let name = ServerName::try_from(host.to_owned()).ok()?;
        Some(TlsTarget { config, name })
    }

    /// Returns the same target for connections that agree on `protocol` (ALPN), or are refused.
    #[must_use]
    pub fn agreeing_on(&self, protocol: &[u8]) -> TlsTarget {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![protocol.to_vec()];
        TlsTarget {
            config: config.into(),
            name: self.name.clone(),
        }
    }

    /// Returns the state of a new connection, whose handshake begins with the first bytes that are sent.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub fn session(&self) -> io::Result<TlsSession> {
        let made = ClientConnection::new(self.config.clone(), self.name.clone());
        let mut connection = made.map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        // Requests are queued until the handshake is done; their number is bounded by the callers.
        connection.set_buffer_limit(None);
        Ok(TlsSession(Box::new(connection)))
    }
}

impl fmt::Debug for TlsTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings hold a private key.
        f.debug_struct("TlsTarget")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Equal if they have the same settings, not if those have the same content.
impl PartialEq for TlsTarget {
    fn eq(&self, other: &TlsTarget) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.name == other.name
    }
}

impl Eq for TlsTarget {}

/// The TLS state of one connection. Boxed, so that connections without TLS stay small.
#[derive(Debug)]
pub struct TlsSession(Box<ClientConnection>);

impl TlsSession {
    /// Returns the version and the cipher suite once they are agreed, such as
    /// `TLS 1.3, TLS13_AES_256_GCM_SHA384`.
    pub fn agreed(&self) -> Option<String> {
        let version = match self.0.protocol_version()? {
            ProtocolVersion::TLSv1_2 => "TLS 1.2",
            ProtocolVersion::TLSv1_3 => "TLS 1.3",
            _ => "TLS",
        };
        let suite = self.0.negotiated_cipher_suite()?.suite();
        Some(format!("{version}, {}", suite.as_str().unwrap_or_default()))
    }

    /// Encrypts bytes, or keeps them until the handshake is done; [`flush`](Self::flush) sends them.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn queue(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.writer().write_all(bytes)
    }

    /// Sends what waits to a socket that does not block, as far as the socket takes it.
    ///
    /// # Errors
    /// The error of the socket.
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.0.wants_write() {
            match self.0.write_tls(socket) {
                Ok(_) => {}
                Err(error) if is_not_ready(&error) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads from a socket that does not block: fills `buffer` unless the socket has no more. Returns none if
    /// nothing is there yet, and 0 at the end of the connection.
    ///
    /// # Errors
    /// The error of the socket, or the reason for which TLS failed, with [`ErrorKind::InvalidData`].
    pub fn read<S: Read + Write>(&mut self, socket: &mut S, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut count = 0;
        let mut is_drained = false;
        loop {
            // Before the socket is read: the library stops to read when too much of this waits.
            match self.0.reader().read(&mut buffer[count..]) {
                // An end without the closing message of TLS is treated like that of a plain connection: the
                // framing of HTTP tells a whole answer from a part.
                Ok(0) => return Ok(Some(count)),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(Some(count)),
                Ok(more) => {
                    count += more;
                    if count == buffer.len() {
                        return Ok(Some(count));
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if is_drained {
                return Ok((count > 0).then_some(count));
            }
            is_drained = self.receive(socket)?;
        }
    }

    /// Reads once from the socket and decrypts. Returns true if the socket has no more for now.
    fn receive<S: Read + Write>(&mut self, socket: &mut S) -> io::Result<bool> {
        let mut noting = NotingReader {
            socket: &mut *socket,
            is_drained: false,
        };
        let read = self.0.read_tls(&mut noting);
        let is_drained = noting.is_drained;
        match read {
            Ok(_) => {}
            Err(error) if is_not_ready(&error) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(error),
        }
        let processed = self.0.process_new_packets();
        // The answers of the handshake, and the alert that names a failure to the server.
        let flushed = self.flush(socket);
        processed.map_err(|error| failed(&error))?;
        flushed?;
        Ok(is_drained)
    }

    /// Reads from a socket that blocks; 0 is the end of the connection.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_blocking(&mut self, socket: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        match Stream::new(&mut *self.0, socket).read(buffer) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            other => other.map_err(with_remedy),
        }
    }

    /// Writes all bytes to a socket that blocks.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn write_blocking(&mut self, socket: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        let mut stream = Stream::new(&mut *self.0, socket);
        let written = stream.write_all(bytes).and_then(|()| stream.flush());
        written.map_err(with_remedy)
    }
}

/// Returns the error for a connection on which TLS failed, with the remedy.
fn failed(error: &rustls::Error) -> io::Error {
    let remedy = match error {
        rustls::Error::InvalidCertificate(_) => {
            "; name the server as its certificate does, and trust its authority by --ca-certificate"
        }
        rustls::Error::AlertReceived(_) => {
            "; the server may want another certificate (--client-certificate, --client-key)"
        }
        rustls::Error::InvalidMessage(_) => "; does the server speak plain http there?",
        _ => "",
    };
    let text = format!("TLS with the server failed: {error}{remedy}");
    io::Error::new(ErrorKind::InvalidData, text)
}

/// Returns an error of the library's own loop as [`failed`] does, and every other one as it is.
fn with_remedy(error: io::Error) -> io::Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(inner) => failed(inner),
        None => error,
    }
}

/// A socket that is still opening says that it is not connected.
fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected)
}

/// A socket that notes whether its last read took everything: one that does not fill the buffer did
/// (epoll(7)), which saves the call that finds nothing.
struct NotingReader<'s, S> {
    socket: &'s mut S,
    is_drained: bool,
}

impl<S: Read> Read for NotingReader<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(buffer)?;
        self.is_drained = count < buffer.len();
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{RootCertStore, ServerConfig, ServerConnection};

    fn ends() -> (TlsTarget, ServerConnection) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = CertificateDer::from(params.self_signed(&key).unwrap());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let target = TlsTarget::new(Arc::new(client), "localhost").unwrap();
        (target, ServerConnection::new(Arc::new(server)).unwrap())
    }

    /// The client's end of a connection that hands over at most so many bytes with each call, and those in
    /// the order of `parts`.
    struct Pipe {
        server: ServerConnection,
        inbox: VecDeque<u8>,
        parts: Vec<usize>,
        calls: usize,
    }

    impl Pipe {
        /// Lets the server take what was sent, and fetches its answer.
        fn serve(&mut self) {
            let mut bytes = Vec::new();
            while self.server.wants_write() {
                self.server.write_tls(&mut bytes).unwrap();
            }
            self.inbox.extend(bytes);
        }
    }

    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.inbox.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let part = self.parts[self.calls % self.parts.len()];
            self.calls += 1;
            // A part that is short of the buffer means that no more is there: the rest stays out of sight.
            let count = part.min(buffer.len()).min(self.inbox.len());
            for place in &mut buffer[..count] {
                *place = self.inbox.pop_front().unwrap();
            }
            Ok(count)
        }
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = self.server.read_tls(&mut &*bytes)?;
            self.server.process_new_packets().map_err(io::Error::other)?;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn every_byte_arrives_once_in_order(
            parts in prop::collection::vec(1_usize..6_000, 1..6),
            sizes in prop::collection::vec(1_usize..40_000, 1..4),
            room in 1_usize..70_000,
        ) {
            let (target, server) = ends();
            let mut session = target.session().unwrap();
            let mut pipe = Pipe { server, inbox: VecDeque::new(), parts, calls: 0 };
            session.queue(b"request").unwrap();
            session.flush(&mut pipe).unwrap();
            let mut expected = Vec::new();
            let mut got = Vec::new();
            let mut unsent = sizes.into_iter();
            let mut buffer = vec![0; room];
            loop {
                pipe.serve();
                while let Some(count) = session.read(&mut pipe, &mut buffer).unwrap() {
                    prop_assert!(count > 0, "the connection is open");
                    got.extend_from_slice(&buffer[..count]);
                }
                if !pipe.inbox.is_empty() || pipe.server.is_handshaking() {
                    continue;
                }
                let Some(size) = unsent.next() else { break };
                let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
                pipe.server.writer().write_all(&bytes).unwrap();
                expected.extend(bytes);
            }
            prop_assert_eq!(got, expected);
            let mut request = [0; 16];
            prop_assert_eq!(pipe.server.reader().read(&mut request).unwrap(), b"request".len());
            prop_assert!(session.agreed().unwrap().starts_with("TLS 1.3, TLS13_"));
            pipe.server.send_close_notify();
            pipe.serve();
            while !pipe.inbox.is_empty() {
                let last = session.read(&mut pipe, &mut buffer).unwrap();
                prop_assert!(matches!(last, None | Some(0)), "{:?}", last);
            }
            prop_assert_eq!(session.read(&mut pipe, &mut buffer).unwrap(), Some(0));
        }
    }

    #[test]
    fn unknown_server_is_refused_with_the_reason() {
        let (_, server) = ends();
        let (target, _) = ends();
        let mut session = target.session().unwrap();
        let mut pipe = Pipe {
            server,
            inbox: VecDeque::new(),
            parts: vec![usize::MAX],
            calls: 0,
        };
        session.queue(b"request").unwrap();
        session.flush(&mut pipe).unwrap();
        pipe.serve();
        let error = session.read(&mut pipe, &mut [0; 100]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("--ca-certificate"), "{error}");
        assert!(!format!("{target:?}").contains("config"), "{target:?}");
    }
}
