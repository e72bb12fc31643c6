//! The settings of TLS for connections that no HTTP library makes.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use super::{CredentialsError, read_pem, unusable};
use crate::credentials::Credentials;

/// The protocol that is offered: the callers speak no other.
const HTTP_1_1: &[u8] = b"http/1.1";

/// Returns settings that trust the authorities of `credentials`, or else the system's, and present its
/// certificate. Reads files.
///
/// # Errors
/// [`CredentialsError::File`] for a file that cannot be used, [`CredentialsError::Invalid`] for a system
/// without authorities.
pub(crate) fn client_config(credentials: &Credentials) -> Result<ClientConfig, CredentialsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions of TLS");
    let builder = match credentials.authorities() {
        Some(path) => {
            let kind = "CA certificate";
            let pem = read_pem(kind, path)?;
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let added = certificate.ok().map(|certificate| roots.add(certificate));
                if !matches!(added, Some(Ok(()))) {
                    return Err(unusable(kind, path, "it has a section that is no certificate"));
                }
            }
            if roots.is_empty() {
                return Err(unusable(kind, path, "it has no certificate in PEM form"));
            }
            builder.with_root_certificates(roots)
        }
        None => builder.with_platform_verifier().map_err(|error| {
            CredentialsError::Invalid(format!(
                "the authorities of this system cannot be used: {error}; name a file of them by --ca-certificate"
            ))
        })?,
    };
    let mut config = match credentials.certificate() {
        Some(own) => {
            let pem = read_pem("certificate", &own.certificate)?;
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
            let key = PrivateKeyDer::from_pem_slice(&read_pem("key", &own.key)?);
            // The errors of the library say no more, and may quote the key.
            let made = match (chain, key) {
                (Ok(chain), Ok(key)) if !chain.is_empty() => builder.with_client_auth_cert(chain, key).ok(),
                _ => None,
            };
            made.ok_or_else(|| {
                let reason = "it and its key are no certificate chain and private key in PEM form";
                unusable("certificate", &own.certificate, reason)
            })?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};

    #[test]
    fn unusable_files_are_named_without_the_key() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap();
        let good = write("good.pem", &certificate.pem());
        let good_key = write("good.key", &key.serialize_pem());
        let other_key = write("other.key", &KeyPair::generate().unwrap().serialize_pem());
        let text = write("text", "s3cr3t");
        let absent = folder.path().join("absent");
        let trusting = Credentials::default().with_authorities(&good);
        let config = client_config(&trusting.clone().with_certificate(&good, &good_key)).unwrap();
        assert_eq!(config.alpn_protocols, [HTTP_1_1]);
        assert!(config.client_auth_cert_resolver.has_certs());
        for (credentials, name) in [
            (Credentials::default().with_authorities(&text), "text"),
            (Credentials::default().with_authorities(&absent), "absent"),
            (trusting.clone().with_certificate(&text, &good_key), "text"),
            (trusting.clone().with_certificate(&good, &other_key), "good.pem"),
            (trusting.with_certificate(&good, &absent), "absent"),
        ] {
            let error = client_config(&credentials).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("s3cr3t"), "{error}");
        }
    }
}
