//! How HTTP clients of ours are built: with TLS where the address asks for it.
//!
//! Owns: the choice of the cryptography (ring) and where trusted certificates come from (the system's store, or
//! `SSL_CERT_FILE`). Never: sends anything. Called by the watching client, the check, `tidings publish` and webhooks.

use std::sync::Arc;

use reqwest::ClientBuilder;
use rustls::crypto::ring;

/// A client's builder for `url`. Only one that starts with `https` has the certificates of the system read, which
/// takes time, and fails where there are none.
pub(crate) fn builder(url: &str) -> ClientBuilder {
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
