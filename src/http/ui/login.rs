//! The logins of the page: random values in cookies, which stand for principals that presented a token.
//!
//! A cookie is good for reading the API and for ending a session, and only from the page itself: a page of
//! another origin can neither read nor use it. The token is forgotten as soon as it was checked.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::http::{Extensions, HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::PageTransport;
use crate::auth::{Border, Caller, PeerAddress, Principal};
use crate::hosts::WebOrigin;
use crate::http::fetch_metadata::SITE;
use crate::http::problem::{Problem, ProblemKind};
use crate::metrics::{self, Limit};
use crate::rate_limiter::RateLimiter;

/// The time after which a login ends, whatever its token allows.
const LIFETIME: Duration = Duration::from_secs(28_800);
/// The logins at a time. The oldest ends for a further one.
const LOGINS_MAX: usize = 1_000;
/// Wrong tokens that one address may send, all at once or evenly.
const FAILURES_MAX: u32 = 5;
/// The time in which an address may send as many.
const FAILURES_PERIOD: Duration = Duration::from_secs(60);
/// The name of the cookie where it may be sent without TLS.
const COOKIE: &str = "tidings";
/// Its name with TLS: browsers take a cookie of this prefix from this host alone.
const SECURE_COOKIE: &str = "__Host-tidings";

/// The hash of a cookie's value. Values are looked up by it, so that the time of a look-up tells nothing of
/// those that are known.
type ValueHash = [u8; 32];

/// The logins of a service.
pub(super) struct Logins {
    border: Arc<Border>,
    is_secure: bool,
    open: Mutex<HashMap<ValueHash, Login>>,
    failures: RateLimiter<Option<IpAddr>>,
}

struct Login {
    principal: Principal,
    began: Instant,
}

impl std::fmt::Debug for Logins {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logins").finish_non_exhaustive()
    }
}

/// Returns true for a request that a cookie may let in: one that reads the API or ends a session, and comes
/// from the page itself.
pub(super) fn is_for<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    let is_in_reach = match *request.method() {
        // An upgrade is a GET too, but what follows on a WebSocket is more than reading.
        Method::GET | Method::HEAD => (path.starts_with("/v1/") && path != "/v1/ws") || path == "/ui/login",
        Method::DELETE => path.starts_with("/v1/sessions/"),
        _ => false,
    };
    is_in_reach && is_of_same_origin(request.headers())
}

/// Returns true for a request that a page of this service causes, as its browser says.
fn is_of_same_origin(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get(SITE) {
        return site == "same-origin";
    }
    let text = |name| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let (Some(origin), Some(host)) = (text(header::ORIGIN), text(header::HOST)) else {
        return false;
    };
    // The scheme of this service is not in the request, and a proxy may change it.
    ["http", "https"].iter().any(|scheme| {
        let own = format!("{scheme}://{host}");
        matches!((WebOrigin::parse(origin), WebOrigin::parse(&own)), (Some(one), Some(other)) if one == other)
    })
}

impl Logins {
    pub(super) fn new(border: Arc<Border>, transport: PageTransport) -> Logins {
        Logins {
            border,
            is_secure: transport == PageTransport::Tls,
            open: Mutex::default(),
            failures: RateLimiter::new(FAILURES_MAX, FAILURES_PERIOD),
        }
    }

    /// Checks a token, and returns the cookie that stands for its principal from now on.
    ///
    /// # Errors
    /// 401 for a wrong token, 429 for one of an address that has sent too many, 503 while tokens cannot be
    /// checked.
    pub(super) async fn log_in(&self, token: &str, extensions: &Extensions) -> Result<HeaderValue, Problem> {
        let address: Option<PeerAddress> = extensions.get().copied();
        let counted = address.map(PeerAddress::counted);
        if let Some(wait) = self.failures.wait(&counted) {
            return Err(too_many(wait));
        }
        // The border reads tokens from this header, with every rule that it has for them.
        let mut headers = HeaderMap::new();
        if let Ok(value) = HeaderValue::try_from(format!("Bearer {token}")) {
            headers.insert(header::AUTHORIZATION, value);
        } else {
            return Err(self.wrong_token(&counted));
        }
        let caller = match self.border.admit(headers, extensions.clone()).await {
            Ok(caller) => caller,
            Err(refusal) if matches!(refusal.status, StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST) => {
                return Err(self.wrong_token(&counted));
            }
            Err(refusal) => return Err(refusal.into()),
        };
        let mut random = [0u8; 32];
        getrandom::fill(&mut random).map_err(|error| {
            ProblemKind::Internal.because(format!("the system has no random numbers: {error}"))
        })?;
        let value = URL_SAFE_NO_PAD.encode(random);
        self.add(hash_of(&value), caller.principal().clone(), Instant::now());
        Ok(self.cookie(&value, LIFETIME))
    }

    /// Counts a wrong token of an address, and refuses it.
    fn wrong_token(&self, counted: &Option<IpAddr>) -> Problem {
        // Others of the same address may have been counted since it was looked up.
        match self.failures.take(counted, 1) {
            Ok(()) => {
                ProblemKind::Unauthorized.because("the token is not valid here; check it, or get a new one")
            }
            Err(wait) => too_many(wait),
        }
    }

    fn add(&self, hash: ValueHash, principal: Principal, now: Instant) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked through here alone: logins are rare, and those that ended take no place of others.
        open.retain(|_, login| {
            now.duration_since(login.began) < LIFETIME && self.border.is_current(&login.principal)
        });
        if open.len() >= LOGINS_MAX
            && let Some(oldest) = open
                .iter()
                .min_by_key(|(_, login)| login.began)
                .map(|(hash, _)| *hash)
        {
            metrics::limit_reached(Limit::Logins);
            open.remove(&oldest);
        }
        let login = Login {
            principal,
            began: now,
        };
        open.insert(hash, login);
    }

    /// Forgets the login of a request. Returns the cookie that replaces its own.
    pub(super) fn log_out(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(value) = self.value_in(headers) {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.remove(&hash_of(value));
        }
        self.cookie("", Duration::ZERO)
    }

    /// Returns the caller of a request with a cookie, as long as the login and the credential behind it last.
    pub(super) fn caller(&self, headers: &HeaderMap, address: Option<PeerAddress>) -> Option<Caller> {
        let hash = hash_of(self.value_in(headers)?);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let login = open.get(&hash)?;
        if login.began.elapsed() < LIFETIME
            && let Some(caller) = self.border.readmit(&login.principal, address)
        {
            return Some(caller);
        }
        // Its credential will not become good again, as only a new token could.
        open.remove(&hash);
        None
    }

    fn name(&self) -> &'static str {
        match self.is_secure {
            true => SECURE_COOKIE,
            false => COOKIE,
        }
    }

    /// Returns the value of the cookie in a request.
    fn value_in<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.name();
        for header in headers.get_all(header::COOKIE) {
            for pair in header.to_str().unwrap_or_default().split(';') {
                if let Some((key, value)) = pair.trim().split_once('=')
                    && key == name
                {
                    return Some(value);
                }
            }
        }
        None
    }

    fn cookie(&self, value: &str, lifetime: Duration) -> HeaderValue {
        let name = self.name();
        let secure = if self.is_secure { "; Secure" } else { "" };
        let seconds = lifetime.as_secs();
        let text = format!("{name}={value}; HttpOnly{secure}; SameSite=Strict; Path=/; Max-Age={seconds}");
        HeaderValue::try_from(text).expect("a name and base64 are a header")
    }
}

fn hash_of(value: &str) -> ValueHash {
    Sha256::digest(value).into()
}

/// Refuses the login of an address that has to wait.
fn too_many(wait: Duration) -> Problem {
    metrics::limit_reached(Limit::LoginFailures);
    // Rounded up, since a client that comes back too early is refused again.
    let seconds = u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
    let text = format!("too many wrong tokens came from this address; try again in {seconds} s");
    ProblemKind::TooManyRequests.because(text).retry_after(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, path: &str, sent: &[(&'static str, &'static str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in sent {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn cookie_is_for_reading_and_ending_sessions() {
        let own = [("sec-fetch-site", "same-origin")];
        for (method, path, is_good) in [
            (Method::GET, "/v1/sessions", true),
            (Method::HEAD, "/v1/resources/a%3Ab", true),
            (Method::GET, "/v1/events", true),
            (Method::DELETE, "/v1/sessions/s1", true),
            (Method::GET, "/v1/ws", false),
            (Method::GET, "/mcp", false),
            (Method::GET, "/metrics", false),
            (Method::PUT, "/v1/resources/a%3Ab", false),
            (Method::DELETE, "/v1/resources/a%3Ab", false),
            (Method::POST, "/v1/resources", false),
            (Method::POST, "/v1/sessions/s1", false),
        ] {
            assert_eq!(
                is_for(&request(method.clone(), path, &own)),
                is_good,
                "{method} {path}"
            );
        }
    }

    #[test]
    fn cookie_is_for_the_page_itself() {
        for (sent, is_good) in [
            (&[("sec-fetch-site", "same-origin")][..], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("sec-fetch-site", "none")], false),
            (&[], false),
            (&[("host", "localhost:1"), ("origin", "http://localhost:1")], true),
            (
                &[("host", "bus.example"), ("origin", "https://bus.example")],
                true,
            ),
            (
                &[("host", "localhost:1"), ("origin", "http://localhost:2")],
                false,
            ),
            (
                &[
                    ("sec-fetch-site", "cross-site"),
                    ("host", "a"),
                    ("origin", "http://a"),
                ],
                false,
            ),
        ] {
            let request = request(Method::GET, "/v1/sessions", sent);
            assert_eq!(is_for(&request), is_good, "{sent:?}");
        }
    }
}
