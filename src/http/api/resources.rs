//! Resources: read, created, replaced, touched and removed.
//!
//! A write with preconditions cannot overwrite a version that its client did not see: they travel with the
//! change and are evaluated where its place in the order of changes is decided.

use std::error::Error;
use std::fmt::Write as _;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use bytes::{BufMut, Bytes, BytesMut};
use http_body::Body as HttpBody;
use http_body_util::Full;
use tidings_actors::{
    Body, Bus, Change, Condition, Etag, Outcome, PublishError, ReadError, ResourceUri, Snapshot,
};

use super::api_path::ApiPath;
use super::body::receive;
use super::conditions::{Evaluation, Preconditions};
use super::path::{parse_uri, path_of};
use super::{Api, ApiResponse, empty};
use crate::auth::{Denied, Object, Right};
use crate::http::limits::Counted;
use crate::http::problem::{Problem, ProblemKind};
use crate::http::rights::{caller, refusal as rights_refusal, require};
use crate::metrics::{self, Limit};

const CHANGED: HeaderName = HeaderName::from_static("tidings-changed");
const TOLD: HeaderName = HeaderName::from_static("tidings-told");

impl Api {
    /// `/v1/resources/{uri}`.
    pub(super) async fn resource<B>(
        &self,
        segment: &str,
        head: &Parts,
        body: B,
    ) -> Result<ApiResponse, Problem>
    where
        B: HttpBody<Error: Into<Box<dyn Error + Send + Sync>>>,
    {
        let make_change = match head.method {
            Method::GET | Method::HEAD => return self.read(parse_uri(segment, head)?, head).await,
            Method::DELETE => return self.remove(parse_uri(segment, head)?, head).await,
            // A description that the headers leave out is not kept from before.
            Method::PUT => Change::Upsert,
            // A resource that exists is left as it is (409).
            Method::POST => Change::Register,
            _ => return Err(Problem::wrong_method(&head.method, ApiPath::Resource("").allow())),
        };
        let uri = parse_uri(segment, head)?;
        require(&head.extensions, Right::Publish, Object::Resource(uri.as_str()))?;
        let preconditions = Preconditions::parse(&head.headers)?;
        let bytes_max = self.bus.limits().body_bytes_max;
        let received = receive(&self.limits, uri.clone(), &head.headers, body, bytes_max);
        // The body counts as in flight until it is answered, as the change may wait for admission.
        let (resource, place) = received.await?;
        let caller = Counted::of(&head.extensions);
        let reserved = self.limits.publish(&caller, &uri, place.len())?;
        let outcome = self.publish(make_change(resource), &preconditions).await;
        if let (Err(_), Some(reserved)) = (&outcome, reserved) {
            reserved.refused();
        }
        let outcome = outcome?;
        Ok(created_or_no_content(&uri, &outcome))
    }

    /// Answers with a resource's body, or with 304 when the client has it.
    async fn read(&self, uri: ResourceUri, head: &Parts) -> Result<ApiResponse, Problem> {
        let preconditions = Preconditions::parse(&head.headers)?;
        let caller = caller(&head.extensions)?;
        let object = Object::Resource(uri.as_str());
        if let Some(scope) = caller.lacks_scope(Right::Read, object) {
            return Err(rights_refusal(caller, Denied::NeedsScope(scope), || {
                ReadError::NotFound(uri.clone()).into()
            }));
        }
        self.bus.until_latest().await?;
        // A client that polls must not run the reader of a lazy resource while nothing changed.
        if !preconditions.is_empty()
            && caller.sees(Right::Read, object)
            && let Some(etag) = self.etag(&uri).await?
            && preconditions.list(etag)
        {
            return Ok(not_modified(etag));
        }
        let read = self.in_time(caller.read(&self.bus, uri.as_str()));
        let snapshot = read.await??;
        let etag = snapshot.etag;
        match preconditions.evaluate(Some(etag)) {
            Evaluation::Hold => Ok(whole(snapshot)),
            Evaluation::IfNoneMatchFails => Ok(not_modified(etag)),
            Evaluation::IfMatchFails => Err(ProblemKind::PreconditionFailed.because(format!(
                "{uri} is at \"{etag}\", which If-Match does not name; leave If-Match out to read it"
            ))),
        }
    }

    async fn etag(&self, uri: &ResourceUri) -> Result<Option<Etag>, Problem> {
        let etag = self.bus.etag(uri).await?;
        Ok((etag != Etag::UNKNOWN).then_some(etag))
    }

    /// Removes a resource (204); the etag in the answer is its last.
    async fn remove(&self, uri: ResourceUri, head: &Parts) -> Result<ApiResponse, Problem> {
        require(&head.extensions, Right::Publish, Object::Resource(uri.as_str()))?;
        let preconditions = Preconditions::parse(&head.headers)?;
        let outcome = self.publish(Change::Remove(uri.clone()), &preconditions).await;
        match &outcome {
            Err(problem) if problem.kind() != ProblemKind::NotFound => {}
            // Also of one that is gone: a write whose client left counts although it may have been refused.
            _ => self.limits.removed(&uri),
        }
        Ok(changed(StatusCode::NO_CONTENT, &outcome?))
    }

    /// `POST …/touch`: announces that the resource changed (204).
    pub(super) async fn touch(&self, segment: &str, head: &Parts) -> Result<ApiResponse, Problem> {
        let uri = parse_uri(segment, head)?;
        require(&head.extensions, Right::Publish, Object::Resource(uri.as_str()))?;
        let preconditions = Preconditions::parse(&head.headers)?;
        let outcome = self.publish(Change::Touch(uri), &preconditions).await?;
        Ok(changed(StatusCode::NO_CONTENT, &outcome))
    }

    /// Makes `change` if `preconditions` hold at the moment it is made.
    async fn publish(&self, change: Change, preconditions: &Preconditions) -> Result<Outcome, Problem> {
        let bus = &self.bus;
        if preconditions.is_empty() {
            return Ok(bus.publish(change, Condition::Always).await?);
        }
        let uri = change.uri().clone();
        let mut member = None;
        if bus.cached_etag(uri.as_str())?.is_none() {
            // Only the reader of its template knows whether a member exists, so it is asked before.
            member = self.in_time(current(bus, &uri)).await??;
        }
        let condition = preconditions.condition(member);
        match bus.publish(change, condition.into()).await {
            Ok(outcome) => Ok(outcome),
            Err(error) => Err(refusal(error, preconditions)),
        }
    }

    /// Waits for a read, which may run code of others, as long as that may take.
    ///
    /// # Errors
    /// 504. The read is stopped then.
    pub(super) async fn in_time<T>(&self, read: impl Future<Output = T>) -> Result<T, Problem> {
        let Some(timeout) = self.handler_timeout else {
            return Ok(read.await);
        };
        match tokio::time::timeout(timeout, read).await {
            Ok(read) => Ok(read),
            Err(_elapsed) => {
                metrics::limit_reached(Limit::HandlerTime);
                Err(ProblemKind::ReaderLate.because(format!(
                    "the reader took longer than {} s and was stopped (mcp.handler_timeout); try again later, or \
                     see the log of what publishes it",
                    timeout.as_secs_f64()
                )))
            }
        }
    }
}

/// Answers with the body of a resource.
fn whole(snapshot: Snapshot) -> ApiResponse {
    let default_type = match &snapshot.body {
        Body::Text(_) => "text/plain; charset=utf-8",
        Body::Blob(_) => "application/octet-stream",
    };
    let media_type = match snapshot.descriptor.media_type {
        // A media type that comes from another source than this API may be no header.
        Some(text) => {
            HeaderValue::try_from(text.into_owned()).unwrap_or(HeaderValue::from_static(default_type))
        }
        None => HeaderValue::from_static(default_type),
    };
    let bytes = match snapshot.body {
        Body::Text(text) => Bytes::from_owner(SharedText(text)),
        Body::Blob(bytes) => bytes,
    };
    let mut response = Response::new(Full::new(bytes));
    let headers = response.headers_mut();
    // Makes room for all headers at once rather than in two steps.
    headers.reserve(5);
    headers.insert(header::CONTENT_TYPE, media_type);
    // Bodies are other people's data: a browser that shows one must not run it as a page of this service.
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; sandbox"),
    );
    identify(headers, snapshot.etag);
    response
}

fn not_modified(etag: Etag) -> ApiResponse {
    let mut response = empty(StatusCode::NOT_MODIFIED);
    identify(response.headers_mut(), etag);
    response
}

fn identify(headers: &mut HeaderMap, etag: Etag) {
    headers.insert(header::ETAG, quoted(etag));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}

fn quoted(etag: Etag) -> HeaderValue {
    // Written in place: every answer carries an etag, and a string of its own would cost an allocation.
    let mut text = BytesMut::with_capacity(48);
    text.put_u8(b'"');
    write!(text, "{etag}\"").expect("a buffer that grows takes any text");
    HeaderValue::from_maybe_shared(text.freeze()).expect("an etag is visible ASCII")
}

/// A text body as bytes, without a copy.
struct SharedText(std::sync::Arc<str>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Makes the refusal of a write, which says how its preconditions failed if they did.
pub(super) fn refusal(error: PublishError, preconditions: &Preconditions) -> Problem {
    match error {
        PublishError::Conflict { uri, current } => unmet(&uri, current, preconditions),
        error => error.into(),
    }
}

/// Returns the etag of a resource; none when it does not exist.
pub(super) async fn current(bus: &Bus, uri: &ResourceUri) -> Result<Option<Etag>, Problem> {
    match bus.read(uri).await {
        Ok(snapshot) => Ok(Some(snapshot.etag)),
        Err(ReadError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes the refusal of a write, with the etag that the client could have named. `current` is none if a
/// change that was decided just before cannot be seen yet.
fn unmet(uri: &ResourceUri, current: Option<Etag>, preconditions: &Preconditions) -> Problem {
    let same_time = || format!("{uri} changed at the same time; read it again");
    let Some(current) = current else {
        return ProblemKind::PreconditionFailed.because(same_time());
    };
    let (current, now) = match current {
        Etag::UNKNOWN => (None, "does not exist".to_owned()),
        etag => (Some(etag), format!("is at \"{etag}\"")),
    };
    let detail = match preconditions.evaluate(current) {
        Evaluation::IfMatchFails => format!("{uri} {now}, which If-Match does not name; read it again"),
        Evaluation::IfNoneMatchFails => format!("{uri} {now}, which If-None-Match rules out"),
        Evaluation::Hold => same_time(),
    };
    ProblemKind::PreconditionFailed.because(detail)
}

fn created_or_no_content(uri: &ResourceUri, outcome: &Outcome) -> ApiResponse {
    if !outcome.created {
        return changed(StatusCode::NO_CONTENT, outcome);
    }
    let mut response = changed(StatusCode::CREATED, outcome);
    let location = HeaderValue::try_from(path_of(uri)).expect("a percent-encoded path is ASCII");
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// Answers with the outcome of a change.
fn changed(status: StatusCode, outcome: &Outcome) -> ApiResponse {
    let mut response = empty(status);
    let headers = response.headers_mut();
    headers.insert(header::ETAG, quoted(outcome.etag));
    let changed = if outcome.changed { "true" } else { "false" };
    headers.insert(CHANGED, HeaderValue::from_static(changed));
    headers.insert(TOLD, HeaderValue::from(outcome.notified));
    response
}
