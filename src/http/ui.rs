//! The live page at `/ui/`: its files, its headers, and the login.
//!
//! The files are the same for every viewer and have no data in them: the page asks the HTTP API for what it
//! shows, so the server writes no HTML and has nothing to escape. A viewer's rights are those of its
//! credential, which the API judges as for any other caller.

mod assets;
mod login;

use std::error::Error;
use std::sync::Arc;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use bytes::Bytes;
use http_body::Body;
use http_body_util::Full;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::Access;
use super::limits::{BodyFault, SharedLimits};
use super::problem::{Problem, ProblemKind};
use super::service_route::ServiceRoute;
use crate::auth::{Caller, Object, PeerAddress, Right};
use assets::Asset;
use login::Logins;

pub(crate) use assets::names;

/// The largest body of a login: tokens of authorization servers have several kilobytes.
const LOGIN_BYTES_MAX: usize = 16 << 10;

/// The headers of every answer: the page runs its own scripts alone, sends nothing to others, and cannot be
/// framed. A script that made HTML of a text would fail, since Trusted Types allow none.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
         trusted-types 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), microphone=(), geolocation=()",
    ),
];

type PageResponse = Response<Full<Bytes>>;

/// The page. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Page(Arc<PageParts>);

#[derive(Debug)]
struct PageParts {
    access: Access,
    limits: SharedLimits,
    /// Those who have logged in; none where callers need no credentials.
    logins: Option<Logins>,
    transport: PageTransport,
    in_cluster: bool,
}

/// The way in which browsers reach the page, on which the cookie of a login depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageTransport {
    /// TLS.
    Tls,
    /// Plain HTTP on a listener that this machine alone can reach.
    Loopback,
    /// Plain HTTP that other machines can reach. There is no login, since the cookie could be read on its
    /// way.
    Plain,
}

/// The body of a login.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginBody {
    /// A token, as `Authorization: Bearer` takes it.
    token: String,
}

/// What the page needs to know of its viewer.
#[derive(Serialize, JsonSchema)]
pub(super) struct ViewerItem<'a> {
    /// Whether there is a login at all.
    login: bool,
    /// The principal whose rights the viewer has; none if it has to log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    /// Whether it has logged in, so that it can log out.
    session: bool,
    /// Whether it may see and end sessions.
    admin: bool,
    /// True if the service is a node of a cluster; left out otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cluster: bool,
}

impl Page {
    /// Makes the page of a service that lets in the callers of `access`.
    pub fn new(access: Access, limits: SharedLimits, transport: PageTransport) -> Page {
        Page::of_node(access, limits, (transport, false))
    }

    /// Makes the page of a service, with whether it is a node of a cluster, whose nodes the page then shows.
    pub fn of_node(
        access: Access,
        limits: SharedLimits,
        (transport, in_cluster): (PageTransport, bool),
    ) -> Page {
        let logins = access.border.clone().map(|border| Logins::new(border, transport));
        Page(Arc::new(PageParts {
            access,
            limits,
            logins,
            transport,
            in_cluster,
        }))
    }

    /// Returns true for a path of the page, which [`handle`](Self::handle) answers.
    pub(crate) fn is_at(&self, path: &str) -> bool {
        matches!(path, "/" | "/ui") || path.starts_with("/ui/")
    }

    /// Answers a request for a path of the page.
    pub async fn handle<B>(&self, request: Request<B>) -> PageResponse
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let (head, body) = request.into_parts();
        let answered = self.answer(&head, body).await;
        let mut response = match answered {
            Ok(response) => response,
            Err(problem) => problem.respond(head.uri.path()).map(Full::new),
        };
        // Refusals have them too: a browser shows their text like any other document.
        for (name, value) in &HEADERS {
            response
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
        if head.method == Method::HEAD {
            let (parts, body) = response.into_parts();
            response = Response::from_parts(parts, Full::default());
            let length = HeaderValue::from(body.size_hint().exact().unwrap_or_default());
            response
                .headers_mut()
                .entry(header::CONTENT_LENGTH)
                .or_insert(length);
        }
        response
    }

    /// Lets in a request of a viewer that has logged in: puts its [`Caller`] into the extensions, if the
    /// cookie is good for this request. Any other request is left as it is.
    ///
    /// # Errors
    /// 403 for a host or a page that may not call.
    pub(crate) fn identify<B>(&self, request: &mut Request<B>) -> Result<(), Problem> {
        let Some(logins) = &self.0.logins else {
            return Ok(());
        };
        // Credentials of the request itself come first, and are checked as without a page.
        if request.headers().contains_key(header::AUTHORIZATION) || !login::is_for(request) {
            return Ok(());
        }
        let peer = request.extensions().get().copied();
        let Some(caller) = logins.caller(request.headers(), peer) else {
            return Ok(());
        };
        self.0.access.check(request)?;
        request.extensions_mut().insert(caller);
        Ok(())
    }

    async fn answer<B>(&self, head: &Parts, body: B) -> Result<PageResponse, Problem>
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let path = head.uri.path();
        let bare = Request::from_parts(head.clone(), ());
        match path {
            "/ui/login" | "/ui/logout" => self.0.access.check(&bare)?,
            // A link from another page may open this one.
            _ => self.0.access.check_names(&bare)?,
        }
        let route = route_of(path).ok_or_else(unknown_path)?;
        let allow = route.allow();
        if !allow.split(',').any(|method| method == head.method.as_str()) {
            return Err(Problem::wrong_method(&head.method, allow));
        }
        match route {
            ServiceRoute::Login if head.method == Method::POST => self.log_in(head, body).await,
            ServiceRoute::Login => self.describe_viewer(bare).await,
            ServiceRoute::Logout => Ok(self.log_out(head)),
            _ => show(path, &head.headers),
        }
    }

    /// `POST /ui/login`: checks a token and answers with a cookie.
    async fn log_in<B>(&self, head: &Parts, body: B) -> Result<PageResponse, Problem>
    where
        B: Body<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let Some(logins) = &self.0.logins else {
            let text = "this service asks nobody for credentials; there is nothing to log in to";
            return Err(ProblemKind::BadRequest.because(text));
        };
        if self.0.transport == PageTransport::Plain {
            let text = "a login needs TLS here, since others could read the cookie: set [tls], or open the page on \
                        a listener of this machine alone";
            return Err(ProblemKind::Forbidden.because(text));
        }
        let received = self.0.limits.receive(&head.headers, body, LOGIN_BYTES_MAX).await;
        let received = received.map_err(unreadable)?;
        let Ok(LoginBody { token }) = serde_json::from_slice(&received.bytes) else {
            let text = "the body is not {\"token\": \"…\"} in JSON; send the token so";
            return Err(ProblemKind::BadRequest.because(text));
        };
        let cookie = logins.log_in(token.trim(), &head.extensions).await?;
        Ok(with_cookie(cookie))
    }

    /// `POST /ui/logout`: forgets the login.
    fn log_out(&self, head: &Parts) -> PageResponse {
        match &self.0.logins {
            Some(logins) => with_cookie(logins.log_out(&head.headers)),
            // A page that was open while credentials were turned off may still ask for it.
            None => status(StatusCode::NO_CONTENT),
        }
    }

    /// `GET /ui/login`: the viewer, and what it may do.
    async fn describe_viewer(&self, mut request: Request<()>) -> Result<PageResponse, Problem> {
        let peer: Option<PeerAddress> = request.extensions().get().copied();
        let cookie = match &self.0.logins {
            Some(logins) if login::is_for(&request) => logins.caller(request.headers(), peer),
            _ => None,
        };
        // A cookie that ended counts as none, so that the page asks for a new login.
        let session = cookie.is_some();
        if let Some(caller) = cookie {
            request.extensions_mut().insert(caller);
        }
        // A viewer that is refused gets the answer too: it says that there is a login.
        let admitted = self.0.access.admit(&mut request).await;
        let caller = Caller::of(request.extensions()).filter(|_| admitted.is_ok());
        let item = ViewerItem {
            login: self.0.logins.is_some(),
            principal: caller.map(|caller| caller.principal().id()),
            session,
            admin: matches!(caller, Some(caller) if caller.sees(Right::Admin, Object::Service)),
            cluster: self.0.in_cluster,
        };
        let text = serde_json::to_vec(&item).expect("texts and truth values are JSON");
        let mut response = Response::new(Full::new(Bytes::from(text)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(response)
    }
}

/// Returns the route of a path; none where the page has nothing.
fn route_of(path: &str) -> Option<ServiceRoute> {
    let route = match path {
        "/" => ServiceRoute::Root,
        "/ui" => ServiceRoute::PageFolder,
        "/ui/" => ServiceRoute::Page,
        "/ui/login" => ServiceRoute::Login,
        "/ui/logout" => ServiceRoute::Logout,
        _ => return Asset::at(path).map(|_| ServiceRoute::PageFile),
    };
    Some(route)
}

/// Answers with the file of a path.
fn show(path: &str, headers: &HeaderMap) -> Result<PageResponse, Problem> {
    if matches!(path, "/" | "/ui") {
        let mut response = status(StatusCode::TEMPORARY_REDIRECT);
        // Relative, so that it holds behind a proxy that serves this under a path of its own.
        response
            .headers_mut()
            .insert(header::LOCATION, HeaderValue::from_static("ui/"));
        return Ok(response);
    }
    match Asset::at(path) {
        Some(asset) => asset.answer(headers),
        None => Err(unknown_path()),
    }
}

fn unknown_path() -> Problem {
    ProblemKind::NotFound.because("the page has no such file; it begins at /ui/")
}

fn unreadable(fault: BodyFault) -> Problem {
    match fault {
        BodyFault::TooLarge => {
            let text = format!("a login has at most {LOGIN_BYTES_MAX} bytes; send the token alone");
            ProblemKind::BodyTooLarge.because(text)
        }
        BodyFault::Late(text) => ProblemKind::RequestTimeout.because(text),
        BodyFault::Full(text) => ProblemKind::Unavailable.because(text),
        BodyFault::Unreadable(error) => {
            ProblemKind::BadRequest.because(format!("the body could not be read: {error}; send it again"))
        }
    }
}

fn status(status: StatusCode) -> PageResponse {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

fn with_cookie(cookie: HeaderValue) -> PageResponse {
    let mut response = status(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(header::SET_COOKIE, cookie);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
