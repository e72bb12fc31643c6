//! The reading half: resources and their list.
//!
//! Owns: how a snapshot becomes a response, and the JSON of lists. Never: changes anything, or keeps a copy. Asks
//! the bus.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidings_actors::{Body, Etag, Resource, Snapshot};

use super::Api;
use super::conditions::{Preconditions, Verdict};
use super::path::Target;
use crate::http::problem::{Problem, ProblemKind};

pub(super) const PAGE_LEN: usize = 100;
pub(super) const PAGE_LEN_MAX: usize = 1000;

/// `GET` and `HEAD` of a resource: its body, or 304 when the client has it.
pub(super) async fn read(
    State(api): State<Arc<Api>>,
    Target(uri): Target,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let conditions = Preconditions::parse(&headers)?;
    if !conditions.is_empty() {
        // A client that polls costs no run of a lazy resource's reader while nothing changed.
        let known = api
            .bus
            .etags(vec![uri.clone()])
            .await?
            .into_iter()
            .next()
            .flatten();
        if let Some(etag) = known.filter(|etag| conditions.lists(*etag)) {
            return Ok(not_modified(etag));
        }
    }
    let snapshot = api.bus.read(&uri).await?;
    let etag = snapshot.etag;
    match conditions.judge(Some(etag)) {
        Verdict::Holds => Ok(whole(snapshot)),
        Verdict::Same => Ok(not_modified(etag)),
        Verdict::Other => Err(ProblemKind::PreconditionFailed.because(format!(
            "{uri} is at \"{etag}\", which If-Match does not name; leave If-Match out to read it"
        ))),
    }
}

fn whole(snapshot: Snapshot) -> Response {
    let usual = match &snapshot.body {
        Body::Text(_) => HeaderValue::from_static("text/plain; charset=utf-8"),
        Body::Blob(_) => HeaderValue::from_static("application/octet-stream"),
    };
    let media_type = snapshot.descriptor.media_type;
    let media_type = media_type
        .and_then(|text| HeaderValue::try_from(text).ok())
        .unwrap_or(usual);
    let bytes = match snapshot.body {
        Body::Text(text) => Bytes::from_owner(SharedText(text)),
        Body::Blob(bytes) => bytes,
    };
    let mut response = (StatusCode::OK, bytes).into_response();
    let headers = response.headers_mut();
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

fn not_modified(etag: Etag) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    identify(response.headers_mut(), etag);
    response
}

fn identify(headers: &mut HeaderMap, etag: Etag) {
    let quoted = HeaderValue::try_from(format!("\"{etag}\"")).expect("an etag is visible ASCII");
    headers.insert(header::ETAG, quoted);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}

/// A text body as bytes, without a copy.
struct SharedText(Arc<str>);

impl AsRef<[u8]> for SharedText {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    after: Option<String>,
    limit: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceItem<'a> {
    uri: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    subscribable: bool,
    etag: String,
}

#[derive(Serialize)]
struct Items<T> {
    items: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// `GET /v1/resources?after=&limit=`: a page of the list, ordered by URI; `next` is the `after` of the next page.
pub(super) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let Query(PageQuery { after, limit }) = Query::try_from_uri(&uri).map_err(|error| {
        ProblemKind::BadRequest.because(format!("{}; the query takes after and limit", error.body_text()))
    })?;
    let limit = match limit.as_deref() {
        None | Some("") => PAGE_LEN,
        Some(text) => page_len(text)?,
    };
    let after = after.filter(|after| !after.is_empty());
    let page = api.bus.resources(after, limit).await?;
    let items = page
        .items
        .iter()
        .map(|(resource, etag)| item(resource, *etag))
        .collect();
    Ok(Json(Items {
        items,
        next: page.next,
    })
    .into_response())
}

pub(super) fn page_len(text: &str) -> Result<usize, Problem> {
    let asked = text
        .parse()
        .ok()
        .filter(|asked| (1..=PAGE_LEN_MAX).contains(asked));
    asked.ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        ProblemKind::BadRequest.because(format!("limit {text:?} is not a number from 1 to {PAGE_LEN_MAX}"))
    })
}

fn item(resource: &Resource, etag: Etag) -> ResourceItem<'_> {
    let descriptor = resource.descriptor();
    ResourceItem {
        uri: descriptor.uri.as_str(),
        name: &descriptor.name,
        title: descriptor.title.as_deref(),
        description: descriptor.description.as_deref(),
        media_type: descriptor.media_type.as_deref(),
        subscribable: descriptor.subscribable,
        etag: etag.to_string(),
    }
}
