//! How HTTP clients of ours are built: with TLS where the address asks for it and the feature `tls` is on.
//!
//! Owns: which schemes are spoken, the choice of the cryptography (ring) and where trusted certificates come from
//! (the system's store, or `SSL_CERT_FILE`). Never: sends anything. Called by the watching client, the check,
//! `tidings publish` and webhooks.

use reqwest::ClientBuilder;

/// Asks whether a client of ours can speak `scheme`, the part of an address before its colon.
///
/// # Errors
/// What to use instead.
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

/// A client's builder for `url`, which is one whose scheme was accepted.
#[cfg(not(feature = "tls"))]
pub(crate) fn builder(_: &str) -> ClientBuilder {
    reqwest::Client::builder()
}

/// A client's builder for `url`, which is one whose scheme was accepted. Only one that starts with `https` has the
/// certificates of the system read, which takes time, and fails where there are none.
#[cfg(feature = "tls")]
pub(crate) fn builder(url: &str) -> ClientBuilder {
    use rustls::crypto::ring;
    use std::sync::Arc;

    let builder = reqwest::Client::builder();
    let secure = url
        .get(..6)
        .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
    if secure {
        // Fails where the embedder has chosen one already, which is as good.
        ring::default_provider().install_default().unwrap_or_default();
        return builder.https_only(true);
    }
    let provider = Arc::new(ring::default_provider());
    let nobody = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring has the default versions of TLS")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    builder.tls_backend_preconfigured(nobody)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_needs_its_feature_and_says_so() {
        assert_eq!(accept("http"), Ok(()));
        assert!(accept("ftp").is_err());
        let https = accept("https");
        assert_eq!(https.is_ok(), cfg!(feature = "tls"), "{https:?}");
        assert!(https.err().is_none_or(|text| text.contains("\"tls\"")));
    }
}
