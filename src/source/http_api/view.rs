//! The reading half: resources, their list, and who is subscribed.
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
use tidings_actors::{Body, Etag, ListKind, Resource, Snapshot, SubscriberInfo};

use super::Api;
use super::condition::{Preconditions, Verdict};
use super::problem::{Kind, Problem};
use super::target::Target;

const PAGE_LEN: usize = 100;
const PAGE_LEN_MAX: usize = 1000;

/// `GET` and `HEAD` of a resource: its body, or 304 when the client has it.
pub(super) async fn resource(
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
        Verdict::Other => Err(Kind::PreconditionFailed.because(format!(
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
pub(super) async fn resources(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let Query(PageQuery { after, limit }) = Query::try_from_uri(&uri).map_err(|error| {
        Kind::BadRequest.because(format!("{}; the query takes after and limit", error.body_text()))
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

fn page_len(text: &str) -> Result<usize, Problem> {
    let asked = text
        .parse()
        .ok()
        .filter(|asked| (1..=PAGE_LEN_MAX).contains(asked));
    asked.ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        Kind::BadRequest.because(format!("limit {text:?} is not a number from 1 to {PAGE_LEN_MAX}"))
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubscriberItem<'a> {
    id: String,
    kind: &'static str,
    label: &'a str,
    /// What it speaks, and what carries what it is told.
    revision: &'static str,
    transport: &'static str,
    /// How many streams read it now.
    streams: usize,
    subscriptions: usize,
    pending: PendingItem<'a>,
    /// Per list the hash it was last told of.
    lists_told: ListsTold,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PendingItem<'a> {
    entries: usize,
    uris: Vec<&'a str>,
    /// How long its oldest resource entry has been waiting, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_ms: Option<u64>,
}

#[derive(Serialize)]
struct ListsTold {
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompts: Option<String>,
}

/// `GET /v1/sessions`: who is there and what they have not been told yet, the longest waiting first.
pub(super) async fn sessions(State(api): State<Arc<Api>>) -> Result<Response, Problem> {
    Ok(subscriber_items(&api.bus.sessions().await?))
}

/// `GET …/subscribers`: who is subscribed to the resource; those of a removed one are told, 404 when there is
/// neither.
pub(super) async fn subscribers(
    State(api): State<Arc<Api>>,
    Target(uri): Target,
) -> Result<Response, Problem> {
    let found = api.bus.subscribers(&uri).await?;
    if found.is_empty() {
        let known = api.bus.etags(vec![uri.clone()]).await?;
        if known.into_iter().flatten().next().is_none() {
            return Err(tidings_actors::ReadError::NotFound(uri).into());
        }
    }
    Ok(subscriber_items(&found))
}

fn subscriber_items(infos: &[SubscriberInfo]) -> Response {
    let items = infos.iter().map(subscriber_item).collect();
    Json(Items { items, next: None }).into_response()
}

fn subscriber_item(info: &SubscriberInfo) -> SubscriberItem<'_> {
    let pending = &info.pending;
    let told = |kind: ListKind| {
        let at = ListKind::ALL.iter().position(|other| *other == kind)?;
        pending.lists_told[at].map(|hash| hash.to_string())
    };
    SubscriberItem {
        id: info.id.to_string(),
        kind: info.kind.name(),
        label: &info.label,
        revision: info.protocol,
        transport: info.transport,
        streams: pending.streams,
        subscriptions: pending.subscriptions,
        pending: PendingItem {
            entries: pending.entries,
            uris: pending.uris.iter().map(|uri| uri.as_str()).collect(),
            oldest_ms: pending
                .oldest
                .map(|oldest| u64::try_from(oldest.as_millis()).unwrap_or(u64::MAX)),
        },
        lists_told: ListsTold {
            resources: told(ListKind::Resources),
            tools: told(ListKind::Tools),
            prompts: told(ListKind::Prompts),
        },
    }
}
