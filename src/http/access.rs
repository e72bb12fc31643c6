//! The rule of hosts and origins, and the way to the caller of a request that passed it.
//!
//! The rule defends a service on the user's own machine against web pages: a page whose name was rebound to a
//! loopback address calls by that name (`Host`), and a page of another site says where it comes from
//! (`Origin`), or its browser does (`Sec-Fetch-Site`). It does not authenticate, which is the [`Border`]'s
//! part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::http::{HeaderMap, HeaderName, Method, Request, Uri, header};

use super::fetch_metadata::foreign_site;
use super::problem::{Problem, ProblemKind};
use crate::auth::{Border, Caller};
use crate::hosts::{Host, WebOrigin};

/// The length to which a refusal shortens the text that it repeats.
const SHOWN_LEN_MAX: usize = 120;

/// True once a refusal of an origin was logged.
static ORIGIN_REFUSED: AtomicBool = AtomicBool::new(false);

/// The hosts and origins whose requests are answered, besides those of loopback.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Hosts that the service may be called by, besides localhost, 127.0.0.1 and \[::1\]: without port, IPv6
    /// in brackets. A request for another one gets 403.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call, besides those of localhost, 127.0.0.1 and \[::1\]:
    /// `scheme://host`, with the port unless it is the scheme's own. A request from another one gets 403.
    pub allowed_origins: Vec<String>,
    /// Identifies callers and judges their rights; none lets every caller do everything.
    pub border: Option<Arc<Border>>,
}

impl Access {
    /// Lets a request in: checks its host, the page behind it and its credentials, and puts its [`Caller`]
    /// into its extensions. A request that has one was let in before, perhaps by a wider rule, and passes.
    ///
    /// # Errors
    /// The refusal: 403, or one of the border.
    pub(crate) async fn admit<B>(&self, request: &mut Request<B>) -> Result<(), Problem> {
        // Extensions never come from the wire, so a client cannot forge this.
        if Caller::of(request.extensions()).is_some() {
            return Ok(());
        }
        self.check(request)?;
        let caller = match &self.border {
            Some(border) => {
                // Only the head crosses the wait, so that the body need not be shared between threads.
                let admission = border.admit(request.headers().clone(), request.extensions().clone());
                admission.await?
            }
            None => Caller::unlimited(request.extensions().get().copied()),
        };
        request.extensions_mut().insert(caller);
        Ok(())
    }

    /// Checks the host of a request and the page behind it, and no credentials.
    ///
    /// # Errors
    /// 403.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        self.check_caller(request.uri(), request.headers())?;
        self.check_page(request.method(), request.headers())
    }

    /// Checks the names that a request calls the service by, and not the page behind it.
    ///
    /// # Errors
    /// 403.
    #[cfg(feature = "service")]
    pub(crate) fn check_names<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        self.check_called(request.uri(), request.headers())
    }

    fn check_caller(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        self.check_called(uri, headers)?;
        match sole(headers, &header::ORIGIN)? {
            Some(origin) => self.check_origin(origin),
            None => Ok(()),
        }
    }

    fn check_called(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        // The name in the request line counts too: a server behind this one may go by either.
        let authority = uri.authority().map(|authority| authority.as_str());
        let host = sole(headers, &header::HOST)?;
        if host.is_none() && authority.is_none() {
            return Err(ProblemKind::Forbidden.because("the request has no Host header; send one"));
        }
        for called in [host, authority].into_iter().flatten() {
            self.check_host(called)?;
        }
        // Proxies and this service could go by different ones (RFC 9113, 8.3.1).
        if let (Some(host), Some(authority)) = (host, authority)
            && !are_one(host, authority, uri.scheme_str())
        {
            let host = shorten(host);
            let authority = shorten(authority);
            return Err(ProblemKind::Forbidden.because(format!(
                "the request calls {authority:?} and its Host header {host:?}; send one name"
            )));
        }
        Ok(())
    }

    /// Refuses what pages of other origins may not cause, but for those that the configuration names.
    fn check_page(&self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(site) = foreign_site(method, headers) else {
            return Ok(());
        };
        if let Some(origin) = sole(headers, &header::ORIGIN)?
            && let Some(known) = WebOrigin::parse(origin)
            && self.allows_origin(known)
        {
            return Ok(());
        }
        Err(ProblemKind::Forbidden.because(format!(
            "a page of another origin may not cause this {method} (sec-fetch-site: {site}); add its origin to \
             http.allowed_origins"
        )))
    }

    fn check_host(&self, called: &str) -> Result<(), Problem> {
        if let Some((host, _)) = Host::with_port(called)
            && (host.is_loopback() || self.allows_host(host))
        {
            return Ok(());
        }
        let called = shorten(called);
        Err(ProblemKind::Forbidden.because(format!(
            "host {called:?} is not served; call a loopback name or add it to http.allowed_hosts"
        )))
    }

    fn allows_host(&self, host: Host<'_>) -> bool {
        self.allowed_hosts
            .iter()
            .any(|allowed| Host::with_port(allowed) == Some((host, None)))
    }

    fn allows_origin(&self, origin: WebOrigin<'_>) -> bool {
        self.allowed_origins
            .iter()
            .any(|allowed| WebOrigin::parse(allowed) == Some(origin))
    }

    fn check_origin(&self, origin: &str) -> Result<(), Problem> {
        if let Some(known) = WebOrigin::parse(origin)
            && (known.is_loopback() || self.allows_origin(known))
        {
            return Ok(());
        }
        let origin = shorten(origin);
        // Once, since a page can cause any number of requests; its author sees no reason in the browser.
        if !ORIGIN_REFUSED.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                ?origin,
                "refused a page of another origin; http.allowed_origins admits some"
            );
        }
        Err(ProblemKind::Forbidden.because(format!(
            "pages of origin {origin:?} may not call; add it to http.allowed_origins"
        )))
    }
}

/// Returns true if both are one host and port. A missing port is that of the scheme.
fn are_one(host: &str, authority: &str, scheme: Option<&str>) -> bool {
    let own_port = match scheme {
        Some("https") => 443,
        _ => 80,
    };
    let [one, other] = [host, authority].map(|called| {
        let (host, port) = Host::with_port(called)?;
        Some((host, port.unwrap_or(own_port)))
    });
    one == other
}

/// Returns the one value of a header. Several are refused, since a proxy may go by another one than this
/// service.
fn sole<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        let text = format!("the request has several {name} headers; send one");
        return Err(ProblemKind::Forbidden.because(text));
    }
    match value.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) => {
            let text = format!("the {name} header is not ASCII; send a plain name");
            Err(ProblemKind::Forbidden.because(text))
        }
    }
}

fn shorten(text: &str) -> &str {
    text.get(..SHOWN_LEN_MAX).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::PeerAddress;
    use ::http::HeaderValue;

    fn admits(uri: &str, sent: &[(HeaderName, &str)]) -> bool {
        let access = Access {
            allowed_hosts: vec!["bus.example.org".into(), "[2001:db8::1]".into()],
            allowed_origins: vec![
                "https://app.example.org".into(),
                "https://dev.example.org:8443".into(),
            ],
            border: None,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        access.check_caller(&uri.parse().unwrap(), &headers).is_ok()
    }

    #[test]
    fn only_known_hosts_are_served() {
        for host in [
            "localhost",
            "LocalHost:8808",
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:80",
            "[0:0:0:0:0:0:0:1]:65535",
            "bus.example.org",
            "BUS.example.org:443",
            "[2001:DB8::1]:8808",
        ] {
            assert!(admits("/v1", &[(header::HOST, host)]), "{host}");
        }
        for host in [
            "",
            ":80",
            "localhost.evil.example",
            "evil.example",
            "localhost:",
            "localhost:x",
            "localhost:+80",
            "localhost:65536",
            "localhost:80:80",
            "localhost@evil.example",
            "evil.example@localhost",
            "localhost ",
            "localhost.",
            "0.0.0.0",
            "127.0.0.1.evil.example",
            "[::1",
            "[::1]x",
            "[::1].evil.example",
            "::1",
            "[localhost]",
            "lökalhost",
        ] {
            assert!(!admits("/v1", &[(header::HOST, host)]), "{host}");
        }
    }

    #[test]
    fn missing_or_repeated_host_is_refused() {
        assert!(!admits("/v1", &[]));
        let twice = [(header::HOST, "localhost"), (header::HOST, "localhost")];
        assert!(!admits("/v1", &twice));
    }

    #[test]
    fn name_in_request_line_is_checked() {
        assert!(admits("http://localhost:1/v1", &[]));
        assert!(!admits("http://evil.example/v1", &[(header::HOST, "localhost")]));
        assert!(!admits("http://localhost/v1", &[(header::HOST, "evil.example")]));
    }

    #[test]
    fn host_header_agrees_with_request_line() {
        for (uri, host, is_let_in) in [
            ("http://localhost:1/v1", "LOCALHOST:1", true),
            ("http://localhost/v1", "localhost:80", true),
            ("https://localhost:443/v1", "localhost", true),
            ("http://localhost:1/v1", "localhost:2", false),
            ("http://localhost:1/v1", "127.0.0.1:1", false),
            ("http://localhost/v1", "bus.example.org", false),
        ] {
            assert_eq!(admits(uri, &[(header::HOST, host)]), is_let_in, "{uri} {host}");
        }
    }

    #[test]
    fn only_known_origins_may_call() {
        let from = |origin| admits("/v1", &[(header::HOST, "localhost"), (header::ORIGIN, origin)]);
        for origin in [
            "http://localhost",
            "https://localhost:3000",
            "HTTP://127.0.0.1:5173",
            "http://[::1]:80",
            "https://app.example.org",
            "https://APP.example.org:443",
            "https://dev.example.org:8443",
        ] {
            assert!(from(origin), "{origin}");
        }
        for origin in [
            "null",
            "",
            "localhost",
            "file://",
            "ftp://localhost",
            "chrome-extension://localhost",
            "http://localhost.evil.example",
            "http://localhost/",
            "http://app.example.org",
            "https://app.example.org:8443",
            "https://dev.example.org",
            "https://evil.example",
            "https://x@app.example.org",
        ] {
            assert!(!from(origin), "{origin}");
        }
        let twice = [
            (header::HOST, "localhost"),
            (header::ORIGIN, "http://localhost"),
            (header::ORIGIN, "http://localhost"),
        ];
        assert!(!admits("/v1", &twice));
    }

    #[tokio::test]
    async fn only_listed_pages_may_write() {
        let access = Access {
            allowed_origins: vec!["https://app.example.org".into()],
            ..Access::default()
        };
        for (origin, is_let_in) in [
            (Some("https://app.example.org"), true),
            (Some("http://localhost:3000"), false),
            (None, false),
        ] {
            let mut request = Request::put("/v1").header("host", "localhost");
            request = request.header("sec-fetch-site", "cross-site");
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            let admitted = access.admit(&mut request.body(()).unwrap()).await;
            assert_eq!(admitted.is_ok(), is_let_in, "{origin:?}");
        }
    }

    #[tokio::test]
    async fn admitted_request_names_its_caller() {
        let access = Access::default();
        let mut request = Request::get("/v1").header("host", "localhost").body(()).unwrap();
        request
            .extensions_mut()
            .insert(PeerAddress("192.0.2.1".parse().unwrap()));
        assert!(Caller::of(request.extensions()).is_none());
        access.admit(&mut request).await.unwrap();
        let caller = Caller::of(request.extensions()).unwrap();
        assert_eq!(caller.counted(), Some("192.0.2.1".parse().unwrap()));
    }

    #[tokio::test]
    async fn refused_request_has_no_caller() {
        let mut request = Request::get("/v1")
            .header("host", "evil.example")
            .body(())
            .unwrap();
        Access::default().admit(&mut request).await.unwrap_err();
        assert!(Caller::of(request.extensions()).is_none());
    }
}
