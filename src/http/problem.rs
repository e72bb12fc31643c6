//! Errors as problem details (RFC 9457), and the mapping from the errors of the bus.

use ::http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use bytes::Bytes;
use serde::Serialize;
use tidings_actors::{Closed, NotLatest, PublishError, ReadError};

use crate::auth::BorderRefusal;

/// Longest path that an answer repeats; no URI that the bus accepts needs a longer one.
const INSTANCE_LEN_MAX: usize = 8192;

/// The kind of a problem, which decides its status and its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    /// The content is kept in a form that the client does not take.
    NotAcceptable,
    AlreadyExists,
    Conflict,
    PreconditionFailed,
    BodyTooLarge,
    UnsupportedMediaType,
    UpgradeRequired,
    /// The body did not come in time.
    RequestTimeout,
    /// The caller has reached a limit of its own.
    TooManyRequests,
    Internal,
    ReaderFailed,
    /// A callback did not return the content in time.
    ReaderLate,
    Unavailable,
    Full,
    NotOwner,
    /// The store has no room left.
    StoreFull,
    /// The store fails for another reason.
    StoreFailed,
}

impl ProblemKind {
    /// Returns the status, the last part of the type, and the title.
    fn row(self) -> (StatusCode, &'static str, &'static str) {
        use StatusCode as Status;
        match self {
            Self::BadRequest => (Status::BAD_REQUEST, "bad-request", "Bad request"),
            Self::Unauthorized => (Status::UNAUTHORIZED, "unauthorized", "Credentials are needed"),
            Self::Forbidden => (Status::FORBIDDEN, "forbidden", "Forbidden"),
            Self::NotFound => (Status::NOT_FOUND, "not-found", "Not found"),
            Self::MethodNotAllowed => (
                Status::METHOD_NOT_ALLOWED,
                "method-not-allowed",
                "Method not allowed",
            ),
            Self::NotAcceptable => (Status::NOT_ACCEPTABLE, "not-acceptable", "Not in this form"),
            Self::AlreadyExists => (Status::CONFLICT, "already-exists", "The resource already exists"),
            Self::Conflict => (Status::CONFLICT, "conflict", "The resource changed"),
            Self::PreconditionFailed => (
                Status::PRECONDITION_FAILED,
                "precondition-failed",
                "A precondition does not hold",
            ),
            Self::BodyTooLarge => (
                Status::PAYLOAD_TOO_LARGE,
                "body-too-large",
                "The body is too large",
            ),
            Self::UnsupportedMediaType => (
                Status::UNSUPPORTED_MEDIA_TYPE,
                "unsupported-media-type",
                "The body cannot be taken",
            ),
            Self::UpgradeRequired => (
                Status::UPGRADE_REQUIRED,
                "upgrade-required",
                "Another protocol is spoken here",
            ),
            Self::RequestTimeout => (Status::REQUEST_TIMEOUT, "request-timeout", "The body is late"),
            Self::TooManyRequests => (Status::TOO_MANY_REQUESTS, "too-many", "Too many requests"),
            Self::Internal => (Status::INTERNAL_SERVER_ERROR, "internal", "Internal error"),
            Self::ReaderFailed => (Status::BAD_GATEWAY, "reader-failed", "The read failed"),
            Self::ReaderLate => (Status::GATEWAY_TIMEOUT, "reader-late", "The read took too long"),
            Self::Unavailable => (Status::SERVICE_UNAVAILABLE, "unavailable", "Not available now"),
            Self::Full => (
                Status::INSUFFICIENT_STORAGE,
                "full",
                "A limit of the bus is reached",
            ),
            Self::NotOwner => (
                Status::CONFLICT,
                "not-owner",
                "The resource belongs to another owner",
            ),
            Self::StoreFull => (Status::INSUFFICIENT_STORAGE, "store-full", "The store is full"),
            Self::StoreFailed => (Status::SERVICE_UNAVAILABLE, "store-failed", "The store fails"),
        }
    }

    /// Makes a problem of this kind; `detail` names the input and the remedy.
    pub(crate) fn because(self, detail: impl Into<String>) -> Problem {
        Problem {
            kind: self,
            detail: detail.into(),
            allow: None,
            retry_after: 1,
            lines_max: None,
            headers: Vec::new(),
        }
    }
}

/// The reason why a request was refused. It changed nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(super) kind: ProblemKind,
    detail: String,
    /// The methods that are possible, as the `Allow` header names them.
    allow: Option<&'static str>,
    /// The seconds after which the client may try again, where that may help.
    retry_after: u32,
    /// The lines that a batch may have, where it has more.
    lines_max: Option<usize>,
    /// Headers of the answer that depend on more than the kind.
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The body of a problem.
#[derive(Serialize)]
#[cfg_attr(feature = "service", derive(schemars::JsonSchema))]
pub(super) struct Details<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
    /// The lines that a batch may have, in the refusal of one that has more.
    #[serde(rename = "linesMax", skip_serializing_if = "Option::is_none")]
    lines_max: Option<usize>,
}

impl Problem {
    /// Refuses a method where only those of `allow` are possible.
    pub(crate) fn wrong_method(method: &Method, allow: &'static str) -> Problem {
        let mut problem = ProblemKind::MethodNotAllowed.because(format!(
            "{method} is not possible here; the Allow header names the methods that are"
        ));
        problem.allow = Some(allow);
        problem
    }

    /// Sets the seconds after which the client may try again, for a kind that says so.
    #[must_use]
    pub(super) fn retry_after(mut self, seconds: u32) -> Problem {
        self.retry_after = seconds;
        self
    }

    /// Sets the lines that a batch may have, for the refusal of one that has more.
    #[cfg(feature = "service")]
    #[must_use]
    pub(super) fn lines_max(mut self, lines: usize) -> Problem {
        self.lines_max = Some(lines);
        self
    }

    pub(super) fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Returns the text for the client.
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the status of the response.
    pub(super) fn status(&self) -> StatusCode {
        self.kind.row().0
    }

    /// Makes the response to a request for the path `instance`.
    pub(crate) fn respond(&self, instance: &str) -> Response<Bytes> {
        let (status, slug, title) = self.kind.row();
        let details = Details {
            r#type: format!("/problems/{slug}"),
            title,
            status: status.as_u16(),
            detail: &self.detail,
            // An answer must not repeat a path of many kilobytes.
            instance: Some(instance).filter(|path| path.len() <= INSTANCE_LEN_MAX),
            lines_max: self.lines_max,
        };
        let details = serde_json::to_vec(&details).expect("texts and numbers are JSON");
        let mut response = Response::new(Bytes::from(details));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(allow) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(allow));
        }
        match self.kind {
            ProblemKind::Unavailable
            | ProblemKind::StoreFull
            | ProblemKind::StoreFailed
            | ProblemKind::TooManyRequests => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(self.retry_after));
            }
            // RFC 9110, section 15.5.9.
            ProblemKind::RequestTimeout => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            // RFC 9110, section 15.5.22, requires the header Upgrade.
            ProblemKind::UpgradeRequired => {
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            }
            // RFC 9110, section 15.5.16: names the codings that would have been accepted.
            ProblemKind::UnsupportedMediaType => {
                headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            }
            _ => {}
        }
        headers.extend(self.headers.iter().cloned());
        response
    }
}

/// Makes a problem of an error of the bus, and adds the remedy.
fn bus_problem(kind: ProblemKind, error: &str) -> Problem {
    let remedy = match kind {
        ProblemKind::NotFound => "; create it with PUT, or see what exists at /v1/resources",
        ProblemKind::AlreadyExists => ", which is PUT here",
        ProblemKind::Unavailable => "; try again later",
        ProblemKind::ReaderFailed => "; see the log of what publishes it",
        _ => "",
    };
    kind.because(format!("{error}{remedy}"))
}

impl From<BorderRefusal> for Problem {
    fn from(refusal: BorderRefusal) -> Problem {
        let kind = match refusal.status {
            StatusCode::BAD_REQUEST => ProblemKind::BadRequest,
            StatusCode::UNAUTHORIZED => ProblemKind::Unauthorized,
            StatusCode::TOO_MANY_REQUESTS => ProblemKind::TooManyRequests,
            StatusCode::SERVICE_UNAVAILABLE => ProblemKind::Unavailable,
            _ => ProblemKind::Forbidden,
        };
        let mut problem = kind.because(refusal.detail);
        if let Some(challenge) = refusal.challenge {
            problem.headers.push((header::WWW_AUTHENTICATE, challenge));
        }
        if let Some(seconds) = refusal.retry_after {
            problem.retry_after = seconds;
        }
        problem
    }
}

impl From<PublishError> for Problem {
    fn from(error: PublishError) -> Problem {
        let kind = match &error {
            PublishError::AlreadyExists(_) => ProblemKind::AlreadyExists,
            PublishError::NotFound(_) => ProblemKind::NotFound,
            PublishError::Conflict { .. } => ProblemKind::Conflict,
            PublishError::TooMany { .. } | PublishError::BytesFull { .. } => ProblemKind::Full,
            PublishError::NotOwner { .. } => ProblemKind::NotOwner,
            // In a cluster the log is what keeps the changes.
            PublishError::StoreUnavailable { full: true, .. }
            | PublishError::LogUnavailable { full: true, .. } => ProblemKind::StoreFull,
            PublishError::StoreUnavailable { .. } | PublishError::LogUnavailable { .. } => {
                ProblemKind::StoreFailed
            }
            PublishError::BodyTooLarge { .. } | PublishError::BatchTooLarge { .. } => {
                ProblemKind::BodyTooLarge
            }
            PublishError::InvalidUri(_) => ProblemKind::BadRequest,
            PublishError::Busy(_) | PublishError::Closed(_) => ProblemKind::Unavailable,
            PublishError::Lister { .. } => ProblemKind::ReaderFailed,
            _ => ProblemKind::Internal,
        };
        bus_problem(kind, &error.to_string())
    }
}

impl From<ReadError> for Problem {
    fn from(error: ReadError) -> Problem {
        let kind = match &error {
            ReadError::NotFound(_) => ProblemKind::NotFound,
            ReadError::Reader { .. } => ProblemKind::ReaderFailed,
            ReadError::InvalidUri(_) => ProblemKind::BadRequest,
            ReadError::Closed(_) => ProblemKind::Unavailable,
            _ => ProblemKind::Internal,
        };
        bus_problem(kind, &error.to_string())
    }
}

impl From<NotLatest> for Problem {
    fn from(error: NotLatest) -> Problem {
        ProblemKind::Unavailable.because(error.to_string())
    }
}

impl From<Closed> for Problem {
    fn from(closed: Closed) -> Problem {
        Problem::from(ReadError::from(closed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidings_actors::{InvalidUri, Owner, ResourceUri};

    fn uri() -> ResourceUri {
        ResourceUri::new("demo://a").unwrap()
    }

    fn invalid() -> InvalidUri {
        ResourceUri::new("none").unwrap_err()
    }

    fn unavailable(full: bool) -> PublishError {
        PublishError::StoreUnavailable {
            full,
            reason: "disk".into(),
        }
    }

    #[test]
    fn failing_store_says_when_to_try_again() {
        for (full, status) in [(true, 507), (false, 503)] {
            let response = Problem::from(unavailable(full)).respond("/");
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.headers()[header::RETRY_AFTER], "1");
        }
    }

    #[test]
    fn log_that_fails_says_whether_to_repeat() {
        for (unknown, full, status, text) in [
            (true, false, 503, "repeat it"),
            (false, false, 503, "try again later"),
            (false, true, 507, "try again later"),
        ] {
            let reason = "no leader".into();
            let problem = Problem::from(PublishError::LogUnavailable {
                unknown,
                full,
                reason,
            });
            assert!(problem.detail().ends_with(text), "{}", problem.detail());
            let response = problem.respond("/");
            assert_eq!(response.status().as_u16(), status);
            assert!(response.headers().contains_key(header::RETRY_AFTER));
        }
    }

    #[test]
    fn each_bus_error_has_its_kind() {
        let body = PublishError::BodyTooLarge {
            uri: uri(),
            len: 2,
            max: 1,
        };
        let many = PublishError::TooMany {
            what: "resources",
            max: 1,
        };
        let owned = PublishError::NotOwner {
            uri: uri(),
            owner: Owner::Workspace,
        };
        let conflict = PublishError::Conflict {
            uri: uri(),
            current: None,
        };
        let lister = PublishError::Lister {
            template: "a://{b}".into(),
            message: "gone".into(),
        };
        for (error, kind) in [
            (PublishError::AlreadyExists(uri()), ProblemKind::AlreadyExists),
            (PublishError::NotFound(uri()), ProblemKind::NotFound),
            (conflict, ProblemKind::Conflict),
            (many, ProblemKind::Full),
            (PublishError::BytesFull { len: 2, max: 1 }, ProblemKind::Full),
            (owned, ProblemKind::NotOwner),
            (unavailable(true), ProblemKind::StoreFull),
            (unavailable(false), ProblemKind::StoreFailed),
            (body, ProblemKind::BodyTooLarge),
            (PublishError::Busy(7), ProblemKind::Unavailable),
            (invalid().into(), ProblemKind::BadRequest),
            (lister, ProblemKind::ReaderFailed),
            (Closed.into(), ProblemKind::Unavailable),
        ] {
            assert_eq!(Problem::from(error.clone()).kind, kind, "{error}");
        }
        let reader = ReadError::Reader {
            uri: uri(),
            source: "disk gone".into(),
        };
        for (error, kind) in [
            (ReadError::NotFound(uri()), ProblemKind::NotFound),
            (reader, ProblemKind::ReaderFailed),
            (invalid().into(), ProblemKind::BadRequest),
            (Closed.into(), ProblemKind::Unavailable),
        ] {
            let text = error.to_string();
            let problem = Problem::from(error);
            assert_eq!(problem.kind, kind, "{text}");
            assert!(problem.detail.starts_with(&text), "{problem:?}");
        }
    }
}
