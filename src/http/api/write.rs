//! The writing half: `PUT`, `POST`, `POST …/touch` and `DELETE` of a resource.
//!
//! Owns: how a request with preconditions becomes a change that cannot overwrite what it did not see: the version
//! is read, judged, and the change is made only at the revision that was judged; when somebody was faster, all of it
//! again. Never: decides whether anything changed (the bus does). Sends to the bus, and answers its outcome.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidings_actors::{
    Bus, Change, Condition, Outcome, PublishError, ReadError, Resource, ResourceUri, Snapshot,
};

use super::Api;
use super::body::receive;
use super::conditions::{Preconditions, Verdict};
use super::path::{Target, path_of};
use crate::http::problem::{Problem, ProblemKind};

/// How often a guarded write is judged again because somebody else was faster. Each time somebody else succeeded.
const ATTEMPTS_MAX: usize = 64;

const CHANGED: HeaderName = HeaderName::from_static("tidings-changed");
const TOLD: HeaderName = HeaderName::from_static("tidings-told");

/// `PUT`: creates (201) or replaces (204) the resource. What a header does not say is not kept from before.
pub(super) async fn put(
    State(api): State<Arc<Api>>,
    Target(uri): Target,
    request: Request,
) -> Result<Response, Problem> {
    store(&api, uri, request, Change::Upsert).await
}

/// `POST`: creates the resource (201); one that exists is left as it is (409).
pub(super) async fn create(
    State(api): State<Arc<Api>>,
    Target(uri): Target,
    request: Request,
) -> Result<Response, Problem> {
    store(&api, uri, request, Change::Register).await
}

/// Receives the resource that a request carries and makes `change` of it.
async fn store(
    api: &Api,
    uri: ResourceUri,
    request: Request,
    change: fn(Resource) -> Change,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let conditions = Preconditions::parse(&parts.headers)?;
    let resource = receive(uri.clone(), &parts.headers, body, api.bus.limits().body_bytes_max).await?;
    let outcome = make(&api.bus, change(resource), &conditions).await?;
    Ok(stored(&uri, &outcome))
}

/// `POST …/touch`: says that the resource changed (204).
pub(super) async fn touch(
    State(api): State<Arc<Api>>,
    Target(uri): Target,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let conditions = Preconditions::parse(&headers)?;
    let outcome = make(&api.bus, Change::Touch(uri), &conditions).await?;
    Ok(answer(StatusCode::NO_CONTENT, &outcome))
}

/// `DELETE`: removes the resource (204); the etag in the answer is its last.
pub(super) async fn delete(
    State(api): State<Arc<Api>>,
    Target(uri): Target,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let conditions = Preconditions::parse(&headers)?;
    let outcome = make(&api.bus, Change::Remove(uri), &conditions).await?;
    Ok(answer(StatusCode::NO_CONTENT, &outcome))
}

/// Makes `change` when `conditions` hold at the very moment it is made.
async fn make(bus: &Bus, change: Change, conditions: &Preconditions) -> Result<Outcome, Problem> {
    if conditions.is_empty() {
        return Ok(bus.publish(change, Condition::Always).await?);
    }
    for _ in 0..ATTEMPTS_MAX {
        let current = current(bus, change.uri()).await?;
        let (change, condition) = pin(change.clone(), current.as_ref(), conditions)?;
        match bus.publish(change, condition).await {
            // What was judged is no longer so.
            Err(PublishError::Conflict(_) | PublishError::AlreadyExists(_) | PublishError::NotFound(_)) => {}
            other => return Ok(other?),
        }
    }
    Err(ProblemKind::Unavailable.because(format!(
        "{} changed {ATTEMPTS_MAX} times while its preconditions were judged; try again",
        change.uri()
    )))
}

async fn current(bus: &Bus, uri: &ResourceUri) -> Result<Option<Snapshot>, Problem> {
    match bus.read(uri).await {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(ReadError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Judges `change` against what is `current`, and binds it to that.
fn pin(
    change: Change,
    current: Option<&Snapshot>,
    conditions: &Preconditions,
) -> Result<(Change, Condition), Problem> {
    let revision = current.and_then(|snapshot| snapshot.generation);
    // A request that fails anyway says why: preconditions come after that (RFC 9110 13.2.1).
    match (&change, current) {
        (Change::Register(_), Some(_)) => {
            return Err(PublishError::AlreadyExists(change.uri().clone()).into());
        }
        (Change::Touch(_), None) => return Err(PublishError::NotFound(change.uri().clone()).into()),
        // A member of a template is not registered, so it cannot be removed.
        (Change::Remove(_), _) if revision.is_none() => {
            return Err(PublishError::NotFound(change.uri().clone()).into());
        }
        _ => {}
    }
    require(change.uri(), current, conditions)?;
    Ok(match (change, revision) {
        (change, Some(revision)) => (change, Condition::Generation(revision)),
        // Not registered: registering is the change that fails when it is by now.
        (Change::Upsert(resource), None) => (Change::Register(resource), Condition::Always),
        (change, None) => (change, Condition::Always),
    })
}

fn require(uri: &ResourceUri, current: Option<&Snapshot>, conditions: &Preconditions) -> Result<(), Problem> {
    let etag = current.map(|snapshot| snapshot.etag);
    let now = etag.map_or("does not exist".to_owned(), |etag| format!("is at \"{etag}\""));
    let detail = match conditions.judge(etag) {
        Verdict::Holds => return Ok(()),
        Verdict::Other => format!("{uri} {now}, which If-Match does not name; read it again"),
        Verdict::Same => format!("{uri} {now}, which If-None-Match rules out"),
    };
    Err(ProblemKind::PreconditionFailed.because(detail))
}

fn stored(uri: &ResourceUri, outcome: &Outcome) -> Response {
    if !outcome.created {
        return answer(StatusCode::NO_CONTENT, outcome);
    }
    let mut response = answer(StatusCode::CREATED, outcome);
    let location = HeaderValue::try_from(path_of(uri)).expect("a percent-encoded path is ASCII");
    response.headers_mut().insert(header::LOCATION, location);
    response
}

fn answer(status: StatusCode, outcome: &Outcome) -> Response {
    let headers = [
        (header::ETAG, format!("\"{}\"", outcome.etag)),
        (CHANGED, outcome.changed.to_string()),
        (TOLD, outcome.notified.to_string()),
    ];
    (status, headers).into_response()
}
