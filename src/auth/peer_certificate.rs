//! The certificate by which a client proved its name when its connection opened.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::watch;

use super::principal::Revocable;

/// The time after which the signatures are verified again: authorities and revocation lists end by the clock,
/// too.
const VERIFIED_AGE_MAX: Duration = Duration::from_secs(60);

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
    verified: Mutex<Option<Verified>>,
}

/// The result of the last verification.
#[derive(Clone, Copy)]
struct Verified {
    /// The replacements of authorities and lists before it.
    generation: u64,
    at: Instant,
    is_trusted: bool,
}

/// The authorities and revocation lists of a listener, which may be replaced while it runs.
pub(crate) trait Trust: Send + Sync {
    /// Returns the number of replacements.
    fn generation(&self) -> u64;

    /// Returns the number of replacements as a value that wakes its holders.
    fn changes(&self) -> watch::Receiver<u64>;

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
            verified: Mutex::default(),
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

    /// Returns false if it has expired, was revoked, or its authority is no longer trusted. Its signatures
    /// are verified, which takes some 100 µs, after the authorities or lists were replaced and once in a
    /// minute; other calls compare two numbers.
    pub fn is_trusted(&self) -> bool {
        if SystemTime::now() > self.0.not_after {
            return false;
        }
        let Some(trust) = &self.0.trust else {
            return true;
        };
        // Each write replaces a whole value, so a panic of another holder does no harm.
        let mut verified = self.0.verified.lock().unwrap_or_else(PoisonError::into_inner);
        // Read before the chain is verified: what is replaced meanwhile has it verified again.
        let generation = trust.generation();
        if let Some(last) = *verified
            && last.generation == generation
            && last.at.elapsed() < VERIFIED_AGE_MAX
        {
            return last.is_trusted;
        }
        let is_trusted = trust.verifies(&self.0.chain);
        *verified = Some(Verified {
            generation,
            at: Instant::now(),
            is_trusted,
        });
        is_trusted
    }

    /// Returns the generation of the authorities and revocation lists, which moves when they are replaced;
    /// none where they never are.
    pub fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.0.trust.as_ref()?.changes())
    }
}

impl Revocable for PeerCertificate {
    fn is_revoked(&self) -> bool {
        !self.is_trusted()
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
    use x509_parser::revocation_list::CertificateRevocationList;
    use x509_parser::time::ASN1Time;

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
                verified: Mutex::default(),
            };
            Some(PeerCertificate(Arc::new(content)))
        }
    }

    /// Returns the end of the validity of a certificate in DER.
    pub(crate) fn expiry_of(der: &[u8]) -> Option<SystemTime> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(not_after(&certificate))
    }

    /// Returns the time from which on a revocation list in DER is not current any more.
    pub(crate) fn end_of_list(der: &[u8]) -> Option<SystemTime> {
        let (_, list) = CertificateRevocationList::from_der(der).ok()?;
        Some(time_of(list.next_update()?))
    }

    fn not_after(certificate: &X509Certificate<'_>) -> SystemTime {
        time_of(certificate.validity().not_after)
    }

    fn time_of(time: ASN1Time) -> SystemTime {
        let seconds = time.timestamp();
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
pub(crate) use reading::{end_of_list, expiry_of};

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    struct Authorities {
        generation: watch::Sender<u64>,
        trusts: AtomicBool,
        verified: AtomicUsize,
    }

    impl Trust for Authorities {
        fn generation(&self) -> u64 {
            *self.generation.borrow()
        }

        fn changes(&self) -> watch::Receiver<u64> {
            self.generation.subscribe()
        }

        fn verifies(&self, _: &[Vec<u8>]) -> bool {
            self.verified.fetch_add(1, Ordering::SeqCst);
            self.trusts.load(Ordering::SeqCst)
        }
    }

    fn certificate(authorities: &Arc<Authorities>, not_after: SystemTime) -> PeerCertificate {
        let mut content = Arc::into_inner(PeerCertificate::new(None, not_after).0).unwrap();
        content.trust = Some(authorities.clone());
        PeerCertificate(Arc::new(content))
    }

    #[test]
    fn chain_is_verified_once_per_replacement() {
        let authorities = Arc::new(Authorities {
            generation: watch::Sender::new(0),
            trusts: AtomicBool::new(true),
            verified: AtomicUsize::new(0),
        });
        let later = SystemTime::now() + VERIFIED_AGE_MAX;
        let certificate = certificate(&authorities, later);
        let clone = certificate.clone();
        for _ in 0..100 {
            assert!(certificate.is_trusted() && clone.is_trusted() && !clone.is_revoked());
        }
        assert_eq!(authorities.verified.load(Ordering::SeqCst), 1);
        authorities.trusts.store(false, Ordering::SeqCst);
        let changes = certificate.changes().unwrap();
        authorities.generation.send_modify(|number| *number += 1);
        assert!(changes.has_changed().unwrap());
        assert!(!certificate.is_trusted() && !clone.is_trusted());
        assert_eq!(authorities.verified.load(Ordering::SeqCst), 2);
        // Without a replacement, an old result does not hold for ever.
        authorities.trusts.store(true, Ordering::SeqCst);
        let mut verified = certificate.0.verified.lock().unwrap();
        verified.as_mut().unwrap().at -= VERIFIED_AGE_MAX;
        drop(verified);
        assert!(certificate.is_trusted());
    }

    #[test]
    fn certificate_ends_with_its_time() {
        let authorities = Arc::new(Authorities {
            generation: watch::Sender::new(0),
            trusts: AtomicBool::new(true),
            verified: AtomicUsize::new(0),
        });
        let past = SystemTime::now() - Duration::from_secs(1);
        assert!(!certificate(&authorities, past).is_trusted());
        assert!(!PeerCertificate::new(None, past).is_trusted());
        assert!(PeerCertificate::new(None, SystemTime::now() + VERIFIED_AGE_MAX).is_trusted());
    }
}
