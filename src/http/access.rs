//! Who may call: the defence against web pages that reach a service on the user's own machine.
//!
//! Owns: the check of `Host` (a page whose name was bound to a loopback address calls us by that name) and of
//! `Origin` (a page of another site says where it comes from). Never: authenticates anybody. Receives every request
//! under `/v1` before its handler.

use std::net::Ipv6Addr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Uri, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use super::api::wrong_method;
use super::problem::{self, Problem, ProblemKind};

/// Names that lead to this machine only.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The hosts and origins whose requests are answered, besides those of loopback.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Hosts that the service may be called by, besides localhost, 127.0.0.1 and \[::1\]: without port, IPv6 in
    /// brackets. A request for another one gets 403.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call, besides those of localhost, 127.0.0.1 and \[::1\]: `scheme://host`,
    /// with the port unless it is the scheme's own. A request from another one gets 403.
    pub allowed_origins: Vec<String>,
}

impl Access {
    fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let host = single(headers, &header::HOST)?;
        let authority = uri.authority().map(|authority| authority.as_str());
        if host.is_none() && authority.is_none() {
            return Err(ProblemKind::Forbidden.because("the request has no Host header; send one"));
        }
        for called in [host, authority].into_iter().flatten() {
            self.admit_host(called)?;
        }
        single(headers, &header::ORIGIN)?.map_or(Ok(()), |origin| self.admit_origin(origin))
    }

    fn admit_host(&self, called: &str) -> Result<(), Problem> {
        let allowed = split(called)
            .is_some_and(|(name, _)| knows(&LOOPBACK, &name) || knows(&self.allowed_hosts, &name));
        allowed.then_some(()).ok_or_else(|| {
            let called = shorten(called);
            ProblemKind::Forbidden.because(format!(
                "host {called:?} is not served; call a loopback name or add it to http.allowed_hosts"
            ))
        })
    }

    fn admit_origin(&self, origin: &str) -> Result<(), Problem> {
        let allowed =
            normalize(origin).is_some_and(|(local, normal)| local || knows(&self.allowed_origins, &normal));
        allowed.then_some(()).ok_or_else(|| {
            let origin = shorten(origin);
            ProblemKind::Forbidden.because(format!(
                "pages of origin {origin:?} may not call; add it to http.allowed_origins"
            ))
        })
    }
}

/// Puts the check of host and origin before `routes`, and writes their problems.
pub(super) fn guarded(routes: Router, access: Access) -> Router {
    routes
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::new(access), check))
        .layer(from_fn(problem::render))
}

/// Lets the request pass, or answers 403.
pub(super) async fn check(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    match access.admit(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// The one value of a header; two could be read differently by whoever stands between.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(
            ProblemKind::Forbidden.because(format!("the request has several {name} headers; send one"))
        );
    }
    let text = first.map(|value| value.to_str()).transpose();
    text.map_err(|_| {
        ProblemKind::Forbidden.because(format!("the {name} header is not ASCII; send a plain name"))
    })
}

fn knows(names: &[impl AsRef<str>], name: &str) -> bool {
    names
        .iter()
        .any(|known| known.as_ref().eq_ignore_ascii_case(name))
}

fn shorten(text: &str) -> &str {
    text.get(..120).unwrap_or(text)
}

/// The host in lower case and the port of `host[:port]`; none when it is not exactly that.
fn split(authority: &str) -> Option<(String, Option<u16>)> {
    let (name, after) = if let Some(rest) = authority.strip_prefix('[') {
        let (inside, after) = rest.split_once(']')?;
        (format!("[{}]", inside.parse::<Ipv6Addr>().ok()?), after)
    } else {
        let (name, after) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
        let letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || !name.bytes().all(letter) {
            return None;
        }
        (name.to_ascii_lowercase(), after)
    };
    if after.is_empty() {
        return Some((name, None));
    }
    let digits = after.strip_prefix(':')?;
    let port = digits
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| digits.parse().ok())??;
    Some((name, Some(port)))
}

/// Whether `origin` is one of this machine, and its normal form; none when it is no `scheme://host[:port]`.
fn normalize(origin: &str) -> Option<(bool, String)> {
    let (scheme, authority) = origin.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let (name, port) = split(authority)?;
    let usual = match scheme.as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let local = usual.is_some() && knows(&LOOPBACK, &name);
    let normal = match port.filter(|port| Some(*port) != usual) {
        Some(port) => format!("{scheme}://{name}:{port}"),
        None => format!("{scheme}://{name}"),
    };
    Some((local, normal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn admits(uri: &str, sent: &[(HeaderName, &str)]) -> bool {
        let access = Access {
            allowed_hosts: vec!["bus.example.org".into(), "[2001:db8::1]".into()],
            allowed_origins: vec![
                "https://app.example.org".into(),
                "https://dev.example.org:8443".into(),
            ],
        };
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        access.admit(&uri.parse().unwrap(), &headers).is_ok()
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
    fn a_request_without_host_or_with_two_is_refused() {
        assert!(!admits("/v1", &[]));
        let twice = [(header::HOST, "localhost"), (header::HOST, "localhost")];
        assert!(!admits("/v1", &twice));
    }

    #[test]
    fn the_name_in_the_request_line_counts_too() {
        assert!(admits("http://localhost:1/v1", &[]));
        assert!(!admits("http://evil.example/v1", &[(header::HOST, "localhost")]));
        assert!(!admits("http://localhost/v1", &[(header::HOST, "evil.example")]));
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
}
