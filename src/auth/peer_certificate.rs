//! The certificate by which a client proved its name when its connection opened.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use tokio::sync::watch;

/// The certificate that the client of a request presented, verified against the authorities of
/// `tls.client_ca` when its connection opened. The server that carries the connection puts it into the
/// extensions of each request; without one there is none.
///
/// A connection may outlive the trust in it. A holder checks [`is_trusted`](Self::is_trusted) again when
/// [`changes`](Self::changes) reports a new generation, and ends what it holds at
/// [`not_after`](Self::not_after).
#[derive(Clone)]
pub struct PeerCertificate(Arc<Content>);

struct Content {
    name: Option<String>,
    not_after: SystemTime,
    serial: String,
    fingerprint: String,
    /// The certificate and those between it and its authority, in DER.
    chain: Vec<Vec<u8>>,
    trust: Option<Arc<dyn Trust>>,
}

/// The authorities and revocation lists of a listener, which may be replaced while it runs.
pub(crate) trait Trust: Send + Sync {
    /// Returns the number of replacements, which wakes its holders.
    fn generation(&self) -> watch::Receiver<u64>;

    /// Verifies a chain of certificates against the present authorities, lists and time.
    fn verifies(&self, chain: &[Vec<u8>]) -> bool;
}

impl PeerCertificate {
    /// Makes the certificate of a client that another server has verified, for services that are mounted in
    /// it. It stays trusted, and has neither serial number nor fingerprint.
    pub fn new(name: Option<String>, not_after: SystemTime) -> PeerCertificate {
        PeerCertificate(Arc::new(Content {
            name,
            not_after,
            serial: String::new(),
            fingerprint: String::new(),
            chain: Vec::new(),
            trust: None,
        }))
    }

    /// Returns the first URI or DNS name among its subject alternative names; none if it has no such name.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Returns the end of its validity.
    pub fn not_after(&self) -> SystemTime {
        self.0.not_after
    }

    /// Returns its serial number in hexadecimal digits.
    pub fn serial(&self) -> &str {
        &self.0.serial
    }

    /// Returns the SHA-256 of it in hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.0.fingerprint
    }

    /// Returns false if it has expired, was revoked, or its authority is no longer trusted. Verifies its
    /// signatures again, which takes some 100 µs.
    pub fn is_trusted(&self) -> bool {
        match &self.0.trust {
            Some(trust) => trust.verifies(&self.0.chain),
            None => SystemTime::now() <= self.0.not_after,
        }
    }

    /// Returns the generation of the authorities and revocation lists, which moves when they are replaced;
    /// none where they never are.
    pub fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.0.trust.as_ref()?.generation())
    }
}

impl fmt::Debug for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCertificate")
            .field("name", &self.0.name)
            .field("serial", &self.0.serial)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "tls")]
mod reading {
    use super::*;
    use std::time::Duration;

    use sha2::{Digest, Sha256};
    use x509_parser::extensions::GeneralName;
    use x509_parser::prelude::{FromDer, X509Certificate};

    /// The length of a name beyond which it is taken for none.
    const NAME_LEN_MAX: usize = 1_024;

    impl PeerCertificate {
        /// Reads a chain that `trust` has verified. Returns none if the first certificate cannot be read.
        pub(crate) fn read(chain: Vec<Vec<u8>>, trust: Arc<dyn Trust>) -> Option<PeerCertificate> {
            let der = chain.first()?;
            let (_, certificate) = X509Certificate::from_der(der).ok()?;
            let content = Content {
                name: name_of(&certificate),
                not_after: not_after(&certificate),
                serial: hex(certificate.raw_serial()),
                fingerprint: hex(&Sha256::digest(der)),
                chain,
                trust: Some(trust),
            };
            Some(PeerCertificate(Arc::new(content)))
        }
    }

    /// Returns the end of the validity of a certificate in DER.
    pub(crate) fn expiry_of(der: &[u8]) -> Option<SystemTime> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(not_after(&certificate))
    }

    fn not_after(certificate: &X509Certificate<'_>) -> SystemTime {
        let seconds = certificate.validity().not_after.timestamp();
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
    }

    fn name_of(certificate: &X509Certificate<'_>) -> Option<String> {
        let names = certificate.subject_alternative_name().ok()??;
        let name = names.value.general_names.iter().find_map(|name| match name {
            GeneralName::URI(name) | GeneralName::DNSName(name) => Some(*name),
            _ => None,
        })?;
        // It stands in logs and is compared with configured names, so nothing unprintable may hide in it.
        let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
        (is_plain && name.len() <= NAME_LEN_MAX).then(|| name.to_owned())
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(feature = "tls")]
pub(crate) use reading::expiry_of;
