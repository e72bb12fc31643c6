//! The TLS of the load: what every connection to an `https` address begins with.

use http::Uri;
use http::uri::Scheme;

use crate::bench::BenchError;
use crate::credentials::Credentials;
use crate::wire::tls::TlsTarget;

/// Returns the TLS in front of the server at `url`, which was resolved; none for plain HTTP. Reads the files
/// of certificates once, for the whole run.
///
/// # Errors
/// [`BenchError::Arguments`] for certificates and an address without TLS, [`BenchError::Failed`] for files
/// that cannot be used.
pub(crate) fn tls(url: &str, credentials: &Credentials) -> Result<Option<TlsTarget>, BenchError> {
    // One that cannot be parsed was refused before.
    let parsed: Option<Uri> = url.parse().ok();
    let secure = parsed.filter(|url| url.scheme() == Some(&Scheme::HTTPS));
    if let Some(host) = secure.as_ref().and_then(Uri::host) {
        return settings(host.trim_matches(['[', ']']), credentials).map(Some);
    }
    if credentials.certificate().is_some() || credentials.authorities().is_some() {
        let reason = "certificates are for an https address: use one, or leave them out";
        return Err(BenchError::Arguments(reason.to_owned()));
    }
    Ok(None)
}

#[cfg(feature = "tls")]
fn settings(host: &str, credentials: &Credentials) -> Result<TlsTarget, BenchError> {
    let config = crate::http_client::client_config(credentials);
    let mut config = config.map_err(|error| BenchError::Failed(error.to_string()))?;
    // Each session stands for a client of its own, which has no ticket of another one.
    config.resumption = rustls::client::Resumption::disabled();
    TlsTarget::new(config.into(), host).ok_or_else(|| {
        let reason = format!("no certificate can name the host {host:?}: use its DNS name or IP address");
        BenchError::Arguments(reason)
    })
}

#[cfg(not(feature = "tls"))]
fn settings(_: &str, _: &Credentials) -> Result<TlsTarget, BenchError> {
    let reason = "this build speaks no TLS: use an http address, or build with tidings' feature \"tls\"";
    Err(BenchError::Arguments(reason.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_need_an_https_address() {
        let credentials = Credentials::default().with_authorities("/nowhere/ca.pem");
        let Err(BenchError::Arguments(reason)) = tls("http://127.0.0.1:1/mcp", &credentials) else {
            panic!("certificates are of no use without TLS");
        };
        assert!(reason.contains("https"), "{reason}");
        let Err(BenchError::Failed(reason)) = tls("https://127.0.0.1:1/mcp", &credentials) else {
            panic!("the file cannot be read");
        };
        assert!(reason.contains("/nowhere/ca.pem"), "{reason}");
        assert_eq!(tls("http://127.0.0.1:1/mcp", &Credentials::default()), Ok(None));
    }
}
