//! Certificates that a test makes for itself, and connections that trust them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An authority with one key.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        Authority::of(CertificateParams::default())
    }

    /// Makes one that others can be told from: a revocation list is found by the name of its authority.
    pub(crate) fn named(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, name);
        Authority::of(params)
    }

    fn of(mut params: CertificateParams) -> Authority {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.use_authority_key_identifier_extension = true;
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Makes a certificate with these alternative names, and this serial number.
    pub(crate) fn issue(&self, names: &[SanType], serial: u64) -> Pair {
        self.issue_until(names, serial, None)
    }

    /// Makes one like [`issue`](Self::issue) that ends at a time, if there is one.
    pub(crate) fn issue_until(&self, names: &[SanType], serial: u64, until: Option<SystemTime>) -> Pair {
        let mut params = CertificateParams::default();
        if let Some(until) = until {
            params.not_after = until.into();
        }
        params.subject_alt_names = names.to_vec();
        params.serial_number = Some(SerialNumber::from(serial));
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Makes a certificate for a listener on loopback.
    pub(crate) fn issue_server(&self, serial: u64) -> Pair {
        self.issue(&[SanType::DnsName("localhost".try_into().unwrap())], serial)
    }

    /// Makes a list of the revoked serial numbers, which is current until the end of this year.
    pub(crate) fn revoke(&self, serials: &[u64], until_year: i32) -> String {
        self.revoke_until(serials, date_time_ymd(until_year, 12, 31).into())
    }

    /// Makes a list of the revoked serial numbers, which is current until this time.
    pub(crate) fn revoke_until(&self, serials: &[u64], until: SystemTime) -> String {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: until.into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }

    /// Returns a client that trusts this authority and presents `own`, if there is one. It offers HTTP/1.1.
    pub(crate) fn client(&self, own: Option<&Pair>) -> TlsConnector {
        self.client_of(own, &["http/1.1"])
    }

    /// Returns a client that offers `protocols`.
    pub(crate) fn client_of(&self, own: Option<&Pair>, protocols: &[&str]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            Some(pair) => {
                let chain = vec![CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config).into()
    }
}

impl Pair {
    /// Writes it to `server.pem` and `server.key`.
    pub(crate) fn write(&self, folder: &Path) {
        std::fs::write(folder.join("server.pem"), &self.certificate).unwrap();
        std::fs::write(folder.join("server.key"), &self.key).unwrap();
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()
    }
}

/// The name by which every test calls.
pub(crate) fn localhost() -> ServerName<'static> {
    "localhost".try_into().unwrap()
}

/// Connects, with room for few received bytes if `small` is set.
pub(crate) async fn connect(
    client: &TlsConnector,
    server: SocketAddr,
    small: bool,
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpSocket::new_v4()?;
    if small {
        SockRef::from(&socket).set_recv_buffer_size(4 << 10)?;
    }
    let stream = socket.connect(server).await?;
    stream.set_nodelay(true)?;
    client.connect(localhost(), stream).await
}

/// Listens for plain connections, and carries each to the server over TLS.
pub(crate) async fn tunnel(client: TlsConnector, server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut plain, _)) = listener.accept().await {
            let client = client.clone();
            tokio::spawn(async move {
                if let Ok(mut secure) = connect(&client, server, false).await
                    && let Err(error) = tokio::io::copy_bidirectional(&mut plain, &mut secure).await
                {
                    eprintln!("a tunnelled connection ended: {error}");
                }
            });
        }
    });
    address
}
