//! The HTTP client of every part that sends requests, with TLS if the feature `tls` is on.
//!
//! The cryptography is that of ring, and trusted certificates are the system's, or those of `SSL_CERT_FILE`.

use reqwest::ClientBuilder;

/// Checks that this build can send requests to addresses with this scheme.
///
/// # Errors
/// The remedy.
pub(crate) fn accept(scheme: &str) -> Result<(), &'static str> {
    match scheme {
        "http" => Ok(()),
        "https" if cfg!(feature = "tls") => Ok(()),
        "https" => {
            Err("this build speaks no TLS: use an http address, or build with tidings' feature \"tls\"")
        }
        _ => Err("expected an address that starts with http:// or https://"),
    }
}

/// Returns a builder of clients for `url`, whose scheme was accepted.
#[cfg(not(feature = "tls"))]
pub(crate) fn builder(_: &str) -> ClientBuilder {
    reqwest::Client::builder()
}

/// Returns a builder of clients for `url`, whose scheme was accepted.
#[cfg(feature = "tls")]
pub(crate) fn builder(url: &str) -> ClientBuilder {
    use rustls::crypto::ring;
    use std::sync::Arc;

    let builder = reqwest::Client::builder();
    if url.to_ascii_lowercase().starts_with("https:") {
        // An embedder may have installed a provider already; that one is used then.
        if ring::default_provider().install_default().is_err() {
            tracing::debug!("the process has a TLS provider already");
        }
        return builder.https_only(true);
    }
    // A client without TLS must not read the system's certificates: that takes time, and fails if there are
    // none.
    let provider = Arc::new(ring::default_provider());
    let without_roots = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions of TLS")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    builder.tls_backend_preconfigured(without_roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_requires_the_tls_feature() {
        assert_eq!(accept("http"), Ok(()));
        assert!(accept("ftp").is_err());
        let https = accept("https");
        assert_eq!(https.is_ok(), cfg!(feature = "tls"), "{https:?}");
        if let Err(text) = https {
            assert!(text.contains("\"tls\""), "{text}");
        }
    }
}
