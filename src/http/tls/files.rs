//! The PEM files of TLS: the certificate and its key, the authorities of clients and their revocation lists.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::TlsError;
use crate::auth::{end_of_list, expiry_of};
use crate::config::TlsConfig;
use crate::file_watch::FileStamps;
use crate::small_file;

/// The largest file. Revocation lists of large authorities have some megabytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The protocols that are offered (RFC 7301), besides which no other is spoken.
const HTTP_1_1: &[u8] = b"http/1.1";
pub(super) const HTTP_2: &[u8] = b"h2";

/// The files that the configuration names.
#[derive(Debug, Clone)]
pub(super) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    client_crl: Option<PathBuf>,
}

/// All that new connections need, of one reading of the files.
pub(super) struct Loaded {
    pub(super) server: Arc<ServerConfig>,
    /// The same without HTTP/2.
    pub(super) http1_alone: Arc<ServerConfig>,
    /// Verifies the certificates of clients, if they may present any.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The end of the validity of the listener's certificate.
    pub(super) expires: Option<SystemTime>,
    /// The times from which on the revocation lists are not current any more.
    pub(super) list_ends: Vec<SystemTime>,
}

/// The verifier of clients' certificates, and the ends of its revocation lists.
#[derive(Default)]
struct ClientVerifier {
    /// None if clients present no certificates.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    list_ends: Vec<SystemTime>,
}

impl TlsFiles {
    /// Returns the files of `config`; none if TLS is off.
    pub(super) fn of(config: &TlsConfig) -> Option<TlsFiles> {
        Some(TlsFiles {
            certificate: config.certificate.clone()?,
            key: config.key.clone()?,
            client_ca: config.client_ca.clone(),
            client_crl: config.client_crl.clone(),
        })
    }

    /// Looks at the files.
    pub(super) fn stamps(&self) -> FileStamps {
        let named = [&self.certificate, &self.key].into_iter();
        let paths = named.chain(&self.client_ca).chain(&self.client_crl);
        FileStamps::at(paths.map(PathBuf::as_path))
    }

    /// Returns each mistake in the files.
    pub(super) fn faults(&self) -> Vec<TlsError> {
        let mut faults = Vec::new();
        faults.extend(certificates("tls.certificate", &self.certificate).err());
        faults.extend(private_key(&self.key).err());
        if let Some(path) = &self.client_ca {
            faults.extend(certificates("tls.client_ca", path).err());
        }
        if let Some(path) = &self.client_crl {
            faults.extend(lists(path).err());
        }
        if !faults.is_empty() {
            return faults;
        }
        // Only files that can be read may be a pair or not.
        match ring::Ticketer::new() {
            Ok(tickets) => faults.extend(self.load(&tickets).err()),
            Err(error) => faults.push(TlsError(format!("TLS cannot make keys: {error}"))),
        }
        faults
    }

    /// Reads the files. `tickets` resumes sessions of clients that cannot present a certificate.
    pub(super) fn load(&self, tickets: &Arc<dyn ProducesTickets>) -> Result<Loaded, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates("tls.certificate", &self.certificate)?;
        let key = private_key(&self.key)?;
        let ClientVerifier { verifier, list_ends } = match &self.client_ca {
            Some(path) => self.verifier(path, &provider)?,
            None => ClientVerifier::default(),
        };
        let expires = expiry_of(&chain[0]);
        let builder = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(format!("TLS cannot be set up: {error}")))?;
        let builder = match &verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut server = builder.with_single_cert(chain, key).map_err(|error| {
            TlsError(format!(
                "the certificate in {} and the key in {} do not make a pair: {error}; \
                 give the key that the certificate was made for (tls.certificate, tls.key)",
                self.certificate.display(),
                self.key.display()
            ))
        })?;
        server.alpn_protocols = vec![HTTP_1_1.to_vec()];
        // Sessions of the library's cache would take memory for each client, with its certificates.
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        if verifier.is_none() {
            // A resumed session keeps the certificate of the first one without another look at the
            // revocation lists, so only clients without certificates get tickets.
            server.ticketer = tickets.clone();
            server.send_tls13_tickets = 1;
        }
        let http1_alone = Arc::new(server.clone());
        server.alpn_protocols.insert(0, HTTP_2.to_vec());
        Ok(Loaded {
            server: Arc::new(server),
            http1_alone,
            verifier,
            expires,
            list_ends,
        })
    }

    /// Makes the verifier of clients' certificates.
    fn verifier(
        &self,
        authorities: &Path,
        provider: &Arc<CryptoProvider>,
    ) -> Result<ClientVerifier, TlsError> {
        let key = "tls.client_ca";
        let mut roots = RootCertStore::empty();
        for certificate in certificates(key, authorities)? {
            let added = roots.add(certificate);
            added.map_err(|error| {
                let path = authorities.display();
                TlsError(format!(
                    "{path} has a certificate that cannot be trusted: {error} ({key})"
                ))
            })?;
        }
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let mut source = authorities;
        let mut list_ends = Vec::new();
        if let Some(path) = &self.client_crl {
            let lists = lists(path)?;
            list_ends = lists.iter().filter_map(|list| end_of_list(list)).collect();
            // An expired list says nothing of the certificates that were revoked since.
            builder = builder.with_crls(lists).enforce_revocation_expiration();
            source = path;
        }
        // Whether a client needs one is decided for each request, by its rights.
        let verifier = builder.allow_unauthenticated().build();
        let verifier =
            verifier.map_err(|error| TlsError(format!("{} cannot be used: {error}", source.display())))?;
        Ok(ClientVerifier {
            verifier: Some(verifier),
            list_ends,
        })
    }
}

/// Reads the file of the key.
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = read("tls.key", path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| pem_error("tls.key", path, &error))
}

/// Reads a file of certificates, of which there is at least one.
fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(key, path)?;
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    some_of(key, path, parsed)
}

/// Reads the file of revocation lists, of which there is at least one.
fn lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let key = "tls.client_crl";
    let bytes = read(key, path)?;
    let parsed: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    some_of(key, path, parsed)
}

fn some_of<T>(key: &str, path: &Path, parsed: Result<Vec<T>, pem::Error>) -> Result<Vec<T>, TlsError> {
    match parsed {
        Ok(items) if !items.is_empty() => Ok(items),
        Ok(_) => Err(pem_error(key, path, &pem::Error::NoItemsFound)),
        Err(error) => Err(pem_error(key, path, &error)),
    }
}

/// Reads a file. Its content stands in no error: one of the files is a secret.
fn read(key: &str, path: &Path) -> Result<Vec<u8>, TlsError> {
    small_file::read(path, FILE_BYTES_MAX).map_err(|error| read_error(key, path, &error))
}

fn read_error(key: &str, path: &Path, error: &io::Error) -> TlsError {
    TlsError(format!("cannot read {} ({key}): {error}", path.display()))
}

fn pem_error(key: &str, path: &Path, error: &pem::Error) -> TlsError {
    let path = path.display();
    let text = match error {
        pem::Error::NoItemsFound => "it holds no such PEM section",
        pem::Error::Base64Decode(_) => "its base64 is broken",
        _ => "its PEM sections are broken",
    };
    TlsError(format!("cannot use {path} ({key}): {text}"))
}
